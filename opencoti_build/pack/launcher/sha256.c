#include "sha256.h"

#include <string.h>

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t turn(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

/* One round; the eight working variables change places in the calls, not in memory. */
static inline void turn_once(uint32_t a, uint32_t b, uint32_t c, uint32_t *d, uint32_t e,
                             uint32_t f, uint32_t g, uint32_t *h, uint32_t add)
{
    uint32_t one = *h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + (g ^ (e & (f ^ g))) + add;
    *d += one;
    *h = one + (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) | (c & (a | b)));
}

static void mix(uint32_t state[8], const unsigned char *block)
{
    uint32_t w[64];
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t x = w[i - 15], y = w[i - 2];
        w[i] = w[i - 16] + (turn(x, 7) ^ turn(x, 18) ^ x >> 3) + w[i - 7] +
               (turn(y, 17) ^ turn(y, 19) ^ y >> 10);
    }
    for (int i = 0; i < 64; i += 8) {
        turn_once(a, b, c, &d, e, f, g, &h, K[i] + w[i]);
        turn_once(h, a, b, &c, d, e, f, &g, K[i + 1] + w[i + 1]);
        turn_once(g, h, a, &b, c, d, e, &f, K[i + 2] + w[i + 2]);
        turn_once(f, g, h, &a, b, c, d, &e, K[i + 3] + w[i + 3]);
        turn_once(e, f, g, &h, a, b, c, &d, K[i + 4] + w[i + 4]);
        turn_once(d, e, f, &g, h, a, b, &c, K[i + 5] + w[i + 5]);
        turn_once(c, d, e, &f, g, h, a, &b, K[i + 6] + w[i + 6]);
        turn_once(b, c, d, &e, f, g, h, &a, K[i + 7] + w[i + 7]);
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
}

void sha256_start(struct sha256 *hash)
{
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(hash->state, first, sizeof first);
    hash->length = 0;
}

void sha256_update(struct sha256 *hash, const void *data, size_t size)
{
    const unsigned char *at = data;
    size_t held = hash->length % 64;
    hash->length += size;
    if (held) {
        size_t take = 64 - held < size ? 64 - held : size;
        memcpy(hash->block + held, at, take);
        if (held + take < 64)
            return;
        mix(hash->state, hash->block);
        at += take;
        size -= take;
    }
    for (; size >= 64; at += 64, size -= 64)
        mix(hash->state, at);
    if (size)
        memcpy(hash->block, at, size);
}

void sha256_hex(struct sha256 *hash, char hex[65])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char tail[72] = {0x80};
    uint64_t bits = hash->length * 8;
    size_t zeros = (119 - hash->length % 64) % 64; /* after the 0x80, to 56 modulo 64 */
    for (int i = 0; i < 8; i++)
        tail[1 + zeros + (size_t)i] = (unsigned char)(bits >> (56 - 8 * i));
    sha256_update(hash, tail, 1 + zeros + 8);
    for (int i = 0; i < 32; i++) {
        unsigned byte = hash->state[i / 4] >> (24 - 8 * (i % 4)) & 255;
        hex[2 * i] = digits[byte >> 4];
        hex[2 * i + 1] = digits[byte & 15];
    }
    hex[64] = 0;
}
