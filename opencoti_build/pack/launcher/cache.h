/* Folders that hold unpacked engines. */
#ifndef OPENCOTI_CACHE_H
#define OPENCOTI_CACHE_H

#include "fail.h"

/* Make `path` and the folders above it. */
bool cache_make(const char *path, struct fail *fail);

/* Delete a folder that holds plain files only; what cannot be deleted stays. */
void cache_remove(const char *path);

/* Delete what starts of this program that were killed have left in `folder`. */
void cache_clean(const char *folder);

#endif
