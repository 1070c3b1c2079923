#include "fail.h"

#include "os.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool fail_set(struct fail *fail, int code, const char *format, ...)
{
    va_list list;
    fail->code = code;
    va_start(list, format);
    vsnprintf(fail->why, sizeof fail->why, format, list);
    va_end(list);
    return false;
}

int fail_print(const struct fail *fail, const char *file)
{
    char *line = text("opencoti: %s: %s", file, fail->why);
    for (char *at = line; *at; at++)
        if ((unsigned char)*at < 32 || *at == 127)
            *at = '?';
    os_say(line);
    free(line);
    return fail->code;
}

void *memory(unsigned long size)
{
    void *block = malloc(size ? size : 1);
    if (!block) {
        os_say("opencoti: out of memory");
        exit(FAIL_NO_SPACE);
    }
    return block;
}

char *text(const char *format, ...)
{
    va_list list, again;
    va_start(list, format);
    va_copy(again, list);
    int length = vsnprintf(NULL, 0, format, list);
    va_end(list);
    if (length < 0)
        length = 0;
    char *block = memory((unsigned long)length + 1);
    block[0] = 0;
    vsnprintf(block, (unsigned long)length + 1, format, again);
    va_end(again);
    return block;
}
