#include "inflate.h"

#include "fail.h"

#include <stdlib.h>
#include <string.h>

enum {
    WINDOW = 1 << 15,    /* the furthest that a match reaches back */
    OUTPUT = WINDOW * 4, /* window and what was not written yet */
    INPUT = 1 << 16,
    LONGEST_CODE = 15,
    QUICK = 10, /* codes up to this length are found in one step */
    LITERALS = 288,
    DISTANCES = 32,
    LENGTHS = 19,
    BLOCK_END = 256
};

/* A canonical Huffman code. */
struct code {
    uint16_t quick[1 << QUICK];       /* by the next bits: symbol << 4 | length; 0: not here */
    uint16_t count[LONGEST_CODE + 1]; /* codes of each length */
    uint16_t symbols[LITERALS];       /* sorted by code */
};

struct state {
    const struct inflate_job *job;
    uint64_t unread; /* packed bytes that were not asked for yet */
    uint64_t room;   /* bytes that may still come out */
    uint64_t bits;   /* the next `count` bits, lowest first; zeros above them */
    unsigned count;
    bool stopped;
    size_t at, end;       /* in `input` */
    size_t written, made; /* in `output` */
    struct code literals, distances, lengths;
    unsigned char input[INPUT];
    unsigned char output[OUTPUT];
};

static const uint16_t length_base[29] = {3,  4,  5,  6,  7,  8,  9,  10,  11,  13,
                                         15, 17, 19, 23, 27, 31, 35, 43,  51,  59,
                                         67, 83, 99, 115, 131, 163, 195, 227, 258};
static const uint8_t length_extra[29] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                         2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
static const uint16_t distance_base[30] = {
    1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
    193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
static const uint8_t distance_extra[30] = {0, 0, 0, 0, 1, 1, 2, 2,  3,  3,  4,  4,  5,  5,  6,
                                           6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13};
static const uint8_t length_order[LENGTHS] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                              11, 4,  12, 3, 13, 2, 14, 1, 15};

/* Get more input into the empty buffer; false at the end of the stream or on failure. */
static bool more(struct state *s)
{
    size_t size = s->unread < INPUT ? (size_t)s->unread : INPUT;
    if (!size || s->stopped)
        return false;
    s->stopped = !s->job->read(s->job->context, s->input, size);
    if (s->stopped)
        return false;
    s->unread -= size;
    s->at = 0;
    s->end = size;
    return true;
}

/* Have at least 57 bits, or all that are left. */
static void fill(struct state *s)
{
    while (s->count <= 56) {
        if (s->at == s->end && !more(s))
            return;
        s->bits |= (uint64_t)s->input[s->at++] << s->count;
        s->count += 8;
    }
}

static bool drop(struct state *s, unsigned count)
{
    if (count > s->count)
        return false;
    s->bits >>= count;
    s->count -= count;
    return true;
}

/* The next `count` (at most 16) bits; `fill` must have been called. */
static bool take(struct state *s, unsigned count, unsigned *value)
{
    *value = (unsigned)s->bits & ((1u << count) - 1);
    return drop(s, count);
}

/* Write what is there and keep the window. */
static bool flush(struct state *s)
{
    size_t size = s->made - s->written;
    if (size && !s->job->write(s->job->context, s->output + s->written, size)) {
        s->stopped = true;
        return false;
    }
    if (s->made > WINDOW) {
        memmove(s->output, s->output + s->made - WINDOW, WINDOW);
        s->made = WINDOW;
    }
    s->written = s->made;
    return true;
}

/* Count `size` (at most a match) more bytes of output and have room for them. */
static bool reserve(struct state *s, size_t size)
{
    if (size > s->room || (OUTPUT - s->made < size && !flush(s)))
        return false;
    s->room -= size;
    return true;
}

/* Make the code whose symbols have these lengths (0: unused). It must be complete, or `lonely`:
   at most one symbol, one bit long, as encoders write where there is nothing to tell apart. */
static bool make_code(struct code *code, const uint8_t *lengths, unsigned count, bool lonely)
{
    unsigned place[LONGEST_CODE + 2] = {0}, next[LONGEST_CODE + 2] = {0}, used = 0;
    int left = 1;
    memset(code, 0, sizeof *code);
    for (unsigned i = 0; i < count; i++)
        code->count[lengths[i]]++;
    code->count[0] = 0;
    for (unsigned length = 1; length <= LONGEST_CODE; length++) {
        left = left * 2 - code->count[length];
        if (left < 0)
            return false;
        used += code->count[length];
        place[length + 1] = used;
        next[length + 1] = (next[length] + code->count[length]) << 1;
    }
    if (left && (!lonely || used > 1 || used != code->count[1]))
        return false;
    for (unsigned symbol = 0; symbol < count; symbol++) {
        unsigned length = lengths[symbol], turned = 0;
        if (!length)
            continue;
        code->symbols[place[length]++] = (uint16_t)symbol;
        unsigned value = next[length]++;
        if (length > QUICK)
            continue;
        for (unsigned i = 0; i < length; i++) /* codes come highest bit first */
            turned |= (value >> i & 1) << (length - 1 - i);
        for (; turned < 1u << QUICK; turned += 1u << length)
            code->quick[turned] = (uint16_t)(symbol << 4 | length);
    }
    return true;
}

/* The next symbol; `fill` must have been called. */
static bool symbol(struct state *s, const struct code *code, unsigned *value)
{
    unsigned entry = code->quick[s->bits & ((1u << QUICK) - 1)];
    if (entry) {
        *value = entry >> 4;
        return drop(s, entry & 15);
    }
    unsigned first = 0, place = 0, read = 0;
    for (unsigned length = 1; length <= LONGEST_CODE; length++) {
        read = read << 1 | (unsigned)(s->bits >> (length - 1) & 1);
        unsigned count = code->count[length];
        if (read - first < count) { /* never smaller: shorter codes come first */
            *value = code->symbols[place + (read - first)];
            return drop(s, length);
        }
        place += count;
        first = (first + count) << 1;
    }
    return false;
}

static bool stored(struct state *s)
{
    unsigned size, inverse, byte;
    drop(s, s->count & 7);
    fill(s);
    if (!take(s, 16, &size) || !take(s, 16, &inverse) || (size ^ inverse) != 0xffff)
        return false;
    while (size--) {
        fill(s);
        if (!take(s, 8, &byte) || !reserve(s, 1))
            return false;
        s->output[s->made++] = (unsigned char)byte;
    }
    return true;
}

static bool match(struct state *s, unsigned value)
{
    unsigned extra, far;
    if (value >= 29)
        return false;
    size_t length = length_base[value];
    if (!take(s, length_extra[value], &extra) || !symbol(s, &s->distances, &far) || far >= 30)
        return false;
    length += extra;
    size_t distance = distance_base[far];
    if (!take(s, distance_extra[far], &extra))
        return false;
    distance += extra;
    /* `made` counts all output until it is more than the window, and then at least the window. */
    if (distance > s->made || !reserve(s, length))
        return false;
    unsigned char *to = s->output + s->made;
    const unsigned char *from = to - distance;
    if (distance >= length)
        memcpy(to, from, length);
    else
        for (size_t i = 0; i < length; i++)
            to[i] = from[i];
    s->made += length;
    return true;
}

static bool coded(struct state *s)
{
    for (;;) {
        unsigned value;
        fill(s); /* a whole match has at most 48 bits */
        if (!symbol(s, &s->literals, &value))
            return false;
        if (value == BLOCK_END)
            return true;
        if (value > BLOCK_END) {
            if (!match(s, value - BLOCK_END - 1))
                return false;
        } else {
            if (!reserve(s, 1))
                return false;
            s->output[s->made++] = (unsigned char)value;
        }
    }
}

static bool fixed_codes(struct state *s)
{
    uint8_t lengths[LITERALS];
    for (unsigned i = 0; i < LITERALS; i++)
        lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    if (!make_code(&s->literals, lengths, LITERALS, false))
        return false;
    memset(lengths, 5, DISTANCES);
    return make_code(&s->distances, lengths, DISTANCES, false);
}

/* The lengths of both codes, which are written as one list. */
static bool read_lengths(struct state *s, uint8_t *lengths, unsigned count)
{
    for (unsigned i = 0; i < count;) {
        unsigned value, times = 0, again = 0;
        fill(s);
        if (!symbol(s, &s->lengths, &value))
            return false;
        if (value < 16) {
            lengths[i++] = (uint8_t)value;
            continue;
        }
        if (value == 16 && !i)
            return false;
        if (value == 16)
            again = lengths[i - 1];
        if (!take(s, value == 16 ? 2 : value == 17 ? 3 : 7, &times))
            return false;
        times += value == 18 ? 11 : 3;
        if (times > count - i)
            return false;
        memset(lengths + i, (int)again, times);
        i += times;
    }
    return true;
}

static bool own_codes(struct state *s)
{
    uint8_t lengths[LITERALS + DISTANCES] = {0};
    unsigned literals, distances, count, value;
    fill(s);
    if (!take(s, 5, &literals) || !take(s, 5, &distances) || !take(s, 4, &count))
        return false;
    literals += 257;
    distances += 1;
    if (literals > 286 || distances > 30)
        return false;
    for (unsigned i = 0; i < count + 4; i++) {
        fill(s);
        if (!take(s, 3, &value))
            return false;
        lengths[length_order[i]] = (uint8_t)value;
    }
    if (!make_code(&s->lengths, lengths, LENGTHS, false))
        return false;
    memset(lengths, 0, sizeof lengths);
    return read_lengths(s, lengths, literals + distances) && lengths[BLOCK_END] &&
           make_code(&s->literals, lengths, literals, true) &&
           make_code(&s->distances, lengths + literals, distances, true);
}

static bool block(struct state *s, bool *last)
{
    unsigned final, kind;
    fill(s);
    if (!take(s, 1, &final) || !take(s, 2, &kind))
        return false;
    *last = final;
    if (kind == 0)
        return stored(s);
    return (kind == 1 ? fixed_codes(s) : kind == 2 && own_codes(s)) && coded(s);
}

enum inflate_end inflate_all(const struct inflate_job *job)
{
    struct state *s = memory(sizeof *s);
    bool good = true, last = false;
    memset(s, 0, offsetof(struct state, input));
    s->job = job;
    s->unread = job->packed;
    s->room = job->size;
    while (good && !last)
        good = block(s, &last);
    /* Nothing may follow, and the rest of the last byte is zero. */
    good = good && s->count < 8 && !s->bits && s->at == s->end && !s->unread && !s->room;
    good = good && flush(s);
    enum inflate_end end = good ? INFLATE_DONE : s->stopped ? INFLATE_STOPPED : INFLATE_DAMAGED;
    free(s);
    return end;
}
