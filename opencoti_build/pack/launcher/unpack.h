/* Puts an engine's files into a folder named by their content, whole or not at all. */
#ifndef OPENCOTI_UNPACK_H
#define OPENCOTI_UNPACK_H

#include "index.h"
#include "zip.h"

/* Whether every file of `index` is in `folder` with its size and, where it has one, its
   executable bit. */
bool unpack_whole(const char *folder, const struct index *index);

/* Unpack `index` from the entries `prefix`<name> into `parent`/<content id>. The folder appears
   under its name only when every file's sha256 has been checked and written to disk. */
bool unpack(const struct zip *zip, const char *prefix, const struct index *index,
            const char *parent, struct fail *fail);

#endif
