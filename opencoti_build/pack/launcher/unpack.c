#include "unpack.h"

#include "cache.h"
#include "inflate.h"
#include "os.h"
#include "sha256.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 18, TRIES = 64, WAIT_MS = 60000 };

bool unpack_whole(const char *folder, const struct index *index)
{
    bool whole = true;
    for (size_t i = 0; whole && i < index->count; i++) {
        const struct index_file *file = &index->files[i];
        char *path = text("%s/%s", folder, file->name);
        whole = os_is_file(path, file->size, file->mode);
        free(path);
    }
    return whole;
}

static bool cannot(struct fail *fail, const char *path)
{
    return fail_set(fail, FAIL_NO_SPACE, "%s: %s", path, os_why());
}

/* One file on its way from the single file to the cache. */
struct way {
    os_file from, out;
    uint64_t offset; /* of what is read next */
    const char *path;
    struct sha256 hash;
    struct fail *fail;
};

static bool next(void *context, void *data, size_t size)
{
    struct way *way = context;
    bool good = read_at(way->from, data, size, way->offset, way->fail);
    way->offset += size;
    return good;
}

static bool put(void *context, const void *data, size_t size)
{
    struct way *way = context;
    sha256_update(&way->hash, data, size);
    return os_write(way->out, data, size) || cannot(way->fail, way->path);
}

static bool damaged(struct fail *fail, const struct index_file *file)
{
    return fail_set(fail, FAIL_BAD_FILE, "%s inside the file is damaged", file->name);
}

static bool copy(struct way *way, uint64_t left)
{
    char *piece = memory(PIECE);
    bool good = true;
    while (good && left) {
        size_t size = left < PIECE ? (size_t)left : PIECE;
        good = next(way, piece, size) && put(way, piece, size);
        left -= size;
    }
    free(piece);
    return good;
}

static bool expand(struct way *way, uint64_t packed, const struct index_file *file)
{
    const struct inflate_job job = {packed, file->size, next, put, way};
    enum inflate_end end = inflate_all(&job);
    return end == INFLATE_DONE || (end == INFLATE_DAMAGED && damaged(way->fail, file));
}

static bool transfer(struct way *way, const struct zip_entry *entry, const struct index_file *file)
{
    char hex[65];
    sha256_start(&way->hash);
    if (!(entry->form == ZIP_DEFLATED ? expand(way, entry->packed, file) : copy(way, file->size)))
        return false;
    sha256_hex(&way->hash, hex);
    return !strcmp(hex, file->sha256) || damaged(way->fail, file);
}

static bool write_file(const struct zip *zip, const char *prefix, const struct index_file *file,
                       const char *folder, struct fail *fail)
{
    uint64_t offset;
    char *name = text("%s%s", prefix, file->name), *path = text("%s/%s", folder, file->name);
    const struct zip_entry *entry = zip_find(zip, name);
    bool good = true;
    if (!entry || entry->size != file->size)
        good = fail_set(fail, FAIL_BAD_FILE, "%s is absent or has another size", name);
    good = good && zip_data(zip, entry, &offset, fail);
    if (good) {
        os_file out = os_create(path);
        good = out != OS_NONE || cannot(fail, path);
        struct way way = {.from = zip->file, .out = out, .offset = offset, .path = path,
                          .fail = fail};
        good = good && transfer(&way, entry, file);
        if (good && !os_finish(out, file->mode))
            good = cannot(fail, path);
        if (out != OS_NONE && !os_close(out) && good)
            good = cannot(fail, path);
    }
    free(name);
    free(path);
    return good;
}

/* A name in `parent` that nobody else uses; `cache_clean` knows its form. */
static char *temporary(const char *parent, const struct index *index)
{
    return text("%s/.%s.%ld.%08lx.tmp", parent, index->id, os_pid(), os_random());
}

/* Give the finished folder its name. Losing a race to an equal folder is fine; a damaged folder
   of that name is moved aside first. */
static bool settle(const char *made, const char *target, const char *parent,
                   const struct index *index, struct fail *fail)
{
    for (int i = 0; i < TRIES; i++) {
        enum os_made moved = os_rename(made, target);
        if (moved == OS_MADE)
            return os_flush_folder(parent) || cannot(fail, parent);
        if (moved == OS_FAILED)
            return cannot(fail, target);
        if (unpack_whole(target, index)) {
            cache_remove(made);
            return true;
        }
        char *aside = temporary(parent, index);
        if (os_rename(target, aside) == OS_MADE) {
            os_remove(aside);
            if (os_is_folder(aside))
                cache_remove(aside);
        }
        free(aside);
    }
    return fail_set(fail, FAIL_NO_SPACE, "%s: cannot be replaced", target);
}

static bool unpack_now(const struct zip *zip, const char *prefix, const struct index *index,
                       const char *parent, const char *target, struct fail *fail)
{
    char *made = NULL;
    bool good = false;
    cache_clean(parent);
    for (int i = 0; i < TRIES && !good; i++) {
        free(made);
        made = temporary(parent, index);
        enum os_made folder = os_make_folder(made, 0755);
        good = folder == OS_MADE;
        if (folder == OS_FAILED)
            break;
    }
    if (good) {
        for (size_t i = 0; good && i < index->count; i++)
            good = write_file(zip, prefix, &index->files[i], made, fail);
        if (good && !os_flush_folder(made))
            good = cannot(fail, made);
        good = good && settle(made, target, parent, index, fail);
        if (!good)
            cache_remove(made);
    } else {
        cannot(fail, parent);
    }
    free(made);
    return good;
}

bool unpack(const struct zip *zip, const char *prefix, const struct index *index,
            const char *parent, struct fail *fail)
{
    char *target = text("%s/%s", parent, index->id);
    os_file turn = os_wait_turn(parent, WAIT_MS); /* many first starts do the work once */
    bool good = unpack_whole(target, index) ||
                unpack_now(zip, prefix, index, parent, target, fail);
    os_end_turn(turn);
    free(target);
    return good;
}
