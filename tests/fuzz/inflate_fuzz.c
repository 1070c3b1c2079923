/* libFuzzer target for the launcher's inflate, beside zlib: both must take the same streams and
   give the same bytes. The first byte of the input says by how much the announced size is wrong;
   ours must give no byte more than announced. */
#include "inflate.h"

#include "fail.h"
#include "os.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { MOST = 1 << 20 };

struct ends {
    const uint8_t *in;
    size_t left;
    uint8_t *out;
    size_t made, size;
};

const char *os_why(void)
{
    return "";
}

void os_say(const char *line)
{
    (void)line;
}

static bool take(void *context, void *data, size_t size)
{
    struct ends *ends = context;
    if (size > ends->left)
        abort();
    memcpy(data, ends->in, size);
    ends->in += size;
    ends->left -= size;
    return true;
}

static bool put(void *context, const void *data, size_t size)
{
    struct ends *ends = context;
    if (size > ends->size - ends->made)
        abort();
    memcpy(ends->out + ends->made, data, size);
    ends->made += size;
    return true;
}

/* The size that zlib unpacks `data` to; -1 unless all of it is one stream. */
static long reference(const uint8_t *data, size_t size, uint8_t *out)
{
    z_stream stream = {.next_in = (Bytef *)data, .avail_in = (uInt)size, .next_out = out,
                       .avail_out = MOST};
    if (inflateInit2(&stream, -15) != Z_OK)
        abort();
    int end = inflate(&stream, Z_FINISH);
    long made = end == Z_STREAM_END && !stream.avail_in ? (long)stream.total_out : -1;
    inflateEnd(&stream);
    return made;
}

static bool ours(const uint8_t *data, size_t size, uint8_t *out, size_t announced)
{
    struct ends ends = {data, size, out, 0, announced};
    struct inflate_job job = {size, announced, take, put, &ends};
    enum inflate_end end = inflate_all(&job);
    if (end == INFLATE_STOPPED || (end == INFLATE_DONE && (ends.left || ends.made != announced)))
        abort();
    return end == INFLATE_DONE;
}

/* zlib does not look at the bits after the end in the last byte; ours wants zeros there. */
static bool without_rest(const uint8_t *data, size_t size, uint8_t *out, size_t announced)
{
    uint8_t *copy = malloc(size);
    bool good = false;
    memcpy(copy, data, size);
    for (int bits = 7; !good && bits; bits--) {
        copy[size - 1] &= (uint8_t)((1 << bits) - 1);
        good = ours(copy, size, out, announced);
    }
    free(copy);
    return good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t mine[MOST], theirs[MOST];
    if (!size)
        return 0;
    int off = (int8_t)data[0];
    long made = reference(data + 1, size - 1, theirs);
    long announced = (made < 0 ? 1000 : made) + off;
    if (announced < 0 || announced > MOST)
        return 0;
    bool good = ours(data + 1, size - 1, mine, (size_t)announced);
    bool right = made >= 0 && made == announced;
    if (right && !good)
        good = without_rest(data + 1, size - 1, mine, (size_t)announced);
    if (good != right || (right && memcmp(mine, theirs, (size_t)announced)))
        abort();
    return 0;
}
