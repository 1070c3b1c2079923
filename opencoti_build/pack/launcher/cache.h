/* Folders that may hold unpacked engines. */
#ifndef OPENCOTI_CACHE_H
#define OPENCOTI_CACHE_H

#include "fail.h"

enum { CACHE_PLACES = 5 };

/* The folder of place 0 .. CACHE_PLACES - 1 (malloc'ed, made if absent), best first; NULL with
   `fail` set when the place cannot be used. Place 0 is $OPENCOTI_HOME or $HOME/.llamafile; the
   others are "opencoti-<uid>" in shared folders: they must belong to this user alone. */
char *cache_place(int place, struct fail *fail);

/* Make `path` and the folders above it. */
bool cache_make(const char *path, struct fail *fail);

/* Whether the file system of `path` is mounted so that programs can start from it. */
bool cache_runs(const char *path);

/* Delete a folder that holds plain files only; what cannot be deleted stays. */
void cache_remove(const char *path);

/* Delete what starts of this program that were killed have left in `folder`. */
void cache_clean(const char *folder);

#endif
