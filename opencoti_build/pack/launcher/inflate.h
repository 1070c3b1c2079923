/* Unpacks one DEFLATE stream (RFC 1951) of known packed and unpacked size, piece by piece. */
#ifndef OPENCOTI_INFLATE_H
#define OPENCOTI_INFLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum inflate_end {
    INFLATE_DONE,
    INFLATE_DAMAGED, /* not a stream of exactly these two sizes */
    INFLATE_STOPPED  /* a callback returned false */
};

struct inflate_job {
    uint64_t packed; /* bytes of the stream; all of them must belong to it */
    uint64_t size;   /* bytes that it must give; `write` never gets more */
    bool (*read)(void *context, void *data, size_t size); /* the next `size` bytes, all of them */
    bool (*write)(void *context, const void *data, size_t size);
    void *context;
};

/* Uses about 200 KiB of memory, whatever the stream says. */
enum inflate_end inflate_all(const struct inflate_job *job);

#endif
