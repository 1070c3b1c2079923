/* engine/<target>/INDEX: which files an engine has.

   First line "opencoti-index 1 <version> <tag>", then one line a file:
   "<sha256> <size> <mode, octal> <name>". The first file is the engine. Names have no folders. */
#ifndef OPENCOTI_INDEX_H
#define OPENCOTI_INDEX_H

#include "fail.h"

#include <stddef.h>
#include <stdint.h>

struct index_file {
    const char *sha256;
    uint64_t size;
    unsigned mode;
    const char *name;
};

struct index {
    const char *version;
    const char *tag;
    char id[33]; /* the first 32 hex digits of the sha256 of the INDEX */
    struct index_file files[128];
    size_t count;
};

/* Parse `data` (`size` bytes and a NUL, both kept and changed while `index` is in use). */
bool index_parse(struct index *index, char *data, size_t size, struct fail *fail);

#endif
