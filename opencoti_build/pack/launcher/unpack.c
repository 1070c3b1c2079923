#include "unpack.h"

#include "cache.h"
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

static bool copy(const struct zip *zip, uint64_t offset, const struct index_file *file,
                 os_file out, const char *path, struct fail *fail)
{
    struct sha256 hash;
    char hex[65], *piece = memory(PIECE);
    bool good = true;
    sha256_start(&hash);
    for (uint64_t left = file->size; good && left;) {
        size_t size = left < PIECE ? (size_t)left : PIECE;
        good = read_at(zip->file, piece, size, offset, fail);
        if (good && !os_write(out, piece, size))
            good = cannot(fail, path);
        sha256_update(&hash, piece, size);
        offset += size;
        left -= size;
    }
    free(piece);
    sha256_hex(&hash, hex);
    if (good && strcmp(hex, file->sha256))
        good = fail_set(fail, FAIL_BAD_FILE, "%s inside the file is damaged", file->name);
    return good;
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
        good = good && copy(zip, offset, file, out, path, fail);
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
