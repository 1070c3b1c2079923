/* SHA-256 (FIPS 180-4). */
#ifndef OPENCOTI_SHA256_H
#define OPENCOTI_SHA256_H

#include <stddef.h>
#include <stdint.h>

struct sha256 {
    uint32_t state[8];
    uint64_t length; /* bytes so far */
    unsigned char block[64];
};

void sha256_start(struct sha256 *hash);
void sha256_update(struct sha256 *hash, const void *data, size_t size);
/* The digest as 64 lower-case hex digits and a NUL. */
void sha256_hex(struct sha256 *hash, char hex[65]);

#endif
