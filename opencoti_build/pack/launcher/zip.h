/* Reads the zip part of the single file (PKWARE APPNOTE 4.3, 4.5.3), trusting nothing in it. */
#ifndef OPENCOTI_ZIP_H
#define OPENCOTI_ZIP_H

#include "fail.h"
#include "os.h"

#include <stddef.h>
#include <stdint.h>

struct zip_entry {
    const char *name; /* not NUL-terminated */
    size_t name_length;
    uint64_t size;
    uint64_t packed; /* bytes in the file: `size` if stored */
    uint64_t header; /* offset of the local header */
    enum zip_form { ZIP_OTHER, ZIP_STORED, ZIP_DEFLATED } form;
};

struct zip {
    os_file file;
    uint64_t size;      /* of the file */
    uint64_t directory; /* offset; all entries end before it */
    unsigned char *block;
    struct zip_entry *entries;
    size_t count;
};

bool zip_open(struct zip *zip, os_file file, struct fail *fail);
void zip_close(struct zip *zip);
const struct zip_entry *zip_find(const struct zip *zip, const char *name);
/* Where the entry's data (`packed` bytes) starts; checks its local header and that the data is in
   the file. */
bool zip_data(const struct zip *zip, const struct zip_entry *entry, uint64_t *offset,
              struct fail *fail);
/* The data of a small, stored entry, malloc'ed with a NUL after it; NULL on failure. */
char *zip_read(const struct zip *zip, const struct zip_entry *entry, size_t limit,
               struct fail *fail);
/* Read exactly `size` bytes at `offset`. */
bool read_at(os_file file, void *data, size_t size, uint64_t offset, struct fail *fail);

#endif
