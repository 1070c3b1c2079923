/* A failure: an exit code and one line that says why. */
#ifndef OPENCOTI_FAIL_H
#define OPENCOTI_FAIL_H

#include <stdbool.h>

enum {
    FAIL_BAD_FILE = 65,   /* the single file is not what it should be */
    FAIL_NO_SPACE = 74,   /* the engine cannot be unpacked */
    FAIL_CANNOT_RUN = 126 /* the engine or this system cannot run it */
};

struct fail {
    int code;
    char why[768];
};

/* Fill `fail` and return false, so that callers can `return fail_set(...)`. */
bool fail_set(struct fail *fail, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4), nonnull(1, 3)));

/* Print "opencoti: <file>: <why>" as one line on stderr; returns the exit code. */
int fail_print(const struct fail *fail, const char *file);

/* malloc'ed printf; ends the process when memory is exhausted. */
char *text(const char *format, ...) __attribute__((format(printf, 1, 2), nonnull(1)));

/* malloc that ends the process when memory is exhausted. */
void *memory(unsigned long size);

#endif
