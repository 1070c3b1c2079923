#include "index.h"

#include "sha256.h"

#include <stdlib.h>
#include <string.h>

static bool bad(struct fail *fail)
{
    return fail_set(fail, FAIL_BAD_FILE, "the engine's INDEX is damaged");
}

/* A word or name that is safe as one part of a path. */
static bool safe(const char *word)
{
    size_t length = strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                 "0123456789._+-");
    return length && length <= 128 && !word[length] && word[0] != '.' && word[0] != '-';
}

/* Cut the next part off `*at` at `stop`; NULL when there is no `stop`. */
static char *part(char **at, char stop)
{
    char *start = *at, *end = strchr(start, stop);
    if (!end)
        return NULL;
    *end = 0;
    *at = end + 1;
    return start;
}

static bool number(const char *word, int base, uint64_t *value)
{
    char *end;
    if (!*word || strspn(word, "0123456789") != strlen(word) || strlen(word) > 18)
        return false;
    *value = strtoull(word, &end, base);
    return !*end;
}

static bool line(struct index_file *file, char **at)
{
    uint64_t mode = 0;
    char *sha256 = part(at, ' ');
    char *size = sha256 ? part(at, ' ') : NULL;
    char *bits = size ? part(at, ' ') : NULL;
    char *name = bits ? part(at, '\n') : NULL;
    if (!name || strspn(sha256, "0123456789abcdef") != 64 || sha256[64] || !safe(name))
        return false;
    if (!number(size, 10, &file->size) || !number(bits, 8, &mode) || (mode != 0644 && mode != 0755))
        return false;
    file->sha256 = sha256;
    file->mode = (unsigned)mode;
    file->name = name;
    return true;
}

bool index_parse(struct index *index, char *data, size_t size, struct fail *fail)
{
    struct sha256 hash;
    char hex[65], *at = data;
    memset(index, 0, sizeof *index);
    sha256_start(&hash);
    sha256_update(&hash, data, size);
    sha256_hex(&hash, hex);
    memcpy(index->id, hex, 32);
    if (strlen(data) != size)
        return bad(fail);
    char *magic = part(&at, ' ');
    char *format = magic ? part(&at, ' ') : NULL;
    char *version = format ? part(&at, ' ') : NULL;
    char *tag = version ? part(&at, '\n') : NULL;
    if (!tag || strcmp(magic, "opencoti-index") || !safe(version) || !safe(tag))
        return bad(fail);
    if (strcmp(format, "1"))
        return fail_set(fail, FAIL_BAD_FILE, "the engine's INDEX has an unknown format");
    index->version = version;
    index->tag = tag;
    for (; *at; index->count++)
        if (index->count == sizeof index->files / sizeof *index->files ||
            !line(&index->files[index->count], &at))
            return bad(fail);
    return (index->count && index->files[0].mode == 0755) || bad(fail);
}
