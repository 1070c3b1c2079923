/* The few things that each system does in its own way: posix_*.c and windows_*.c.

   All text is UTF-8. Paths may use '/' everywhere; os_separators are all that can stand there. A function that returns false, OS_NONE or
   OS_FAILED leaves its cause for os_why. */
#ifndef OPENCOTI_OS_H
#define OPENCOTI_OS_H

#include "fail.h"

#include <stddef.h>
#include <stdint.h>

typedef intptr_t os_file;
enum { OS_NONE = -1 };
enum os_made { OS_MADE, OS_EXISTS, OS_FAILED };

/* Files. */
os_file os_open(const char *path);   /* for reading; children do not get it */
os_file os_create(const char *path); /* a new file of this user alone, never one that is there */
bool os_size(os_file file, uint64_t *size); /* false unless it is a regular file */
/* Up to `size` bytes at `offset`: their number, 0 at the end, -1 on failure. */
long os_read_at(os_file file, void *data, size_t size, uint64_t offset);
bool os_write(os_file file, const void *data, size_t size);
bool os_finish(os_file file, unsigned mode); /* permission bits, all on disk; stays open */
bool os_close(os_file file);
/* Whether `path` is a regular file of this size, executable if `mode` says so. */
bool os_is_file(const char *path, uint64_t size, unsigned mode);

/* Folders. */
extern const char os_separators[];
bool os_is_folder(const char *path);
enum os_made os_make_folder(const char *path, unsigned mode);
enum os_made os_rename(const char *from, const char *to); /* OS_EXISTS: `to` is something else */
bool os_flush_folder(const char *path);
void os_remove(const char *path); /* a file or an empty folder */
void os_list(const char *path, void (*each)(void *context, const char *name), void *context);
bool os_is_older(const char *path, long seconds);

/* Places for unpacked engines: 0 is the user's own, the others belong to this user alone.
   NULL with `fail` set when a place cannot be used; malloc'ed and made if absent. */
extern const int os_places;
char *os_place(int place, struct fail *fail);
bool os_runs(const char *path); /* whether programs may start from there */

/* Processes. */
long os_pid(void);
bool os_is_gone(long pid);
unsigned long os_random(void); /* for names; not secret */
/* Wait, but not for ever, until no other start works in `folder`; only a courtesy. */
os_file os_wait_turn(const char *folder, int milliseconds);
void os_end_turn(os_file turn);
/* The command line as {launcher, single file, argument...}, and the single file's full path. */
void os_arguments(int *count, char ***list);
char *os_full_path(const char *path);
bool os_set_self(const char *path); /* OPENCOTI_SELF, for the engine */
/* Become the engine, or run it and end with its exit code; returns only when that fails. */
void os_run(const char *path, char **argv, struct fail *fail);

/* What went wrong last, as text; and one line on stderr. */
const char *os_why(void);
void os_say(const char *line);

#endif
