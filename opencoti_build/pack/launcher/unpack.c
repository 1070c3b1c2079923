#include "unpack.h"

#include "cache.h"
#include "sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 1 << 18, TRIES = 64, PAUSE_MS = 10, WAIT_MS = 60000 };

bool unpack_whole(const char *folder, const struct index *index)
{
    bool whole = true;
    for (size_t i = 0; whole && i < index->count; i++) {
        const struct index_file *file = &index->files[i];
        struct stat info;
        char *path = text("%s/%s", folder, file->name);
        whole = !lstat(path, &info) && S_ISREG(info.st_mode) &&
                (uint64_t)info.st_size == file->size &&
                (info.st_mode & 0100 || !(file->mode & 0100));
        free(path);
    }
    return whole;
}

static bool cannot(struct fail *fail, const char *path)
{
    return fail_set(fail, FAIL_NO_SPACE, "%s: %s", path, strerror(errno));
}

/* Flush to disk; file systems that cannot are not asked to. */
static bool flush(int fd)
{
    return !fsync(fd) || errno == EINVAL || errno == ENOTSUP;
}

static bool flush_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool done = fd >= 0 && flush(fd);
    if (fd >= 0)
        close(fd);
    return done;
}

static bool write_all(int fd, const char *data, size_t size)
{
    while (size) {
        ssize_t count = write(fd, data, size);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0) {
            if (count == 0)
                errno = ENOSPC;
            return false;
        }
        data += count;
        size -= (size_t)count;
    }
    return true;
}

static bool copy(const struct zip *zip, uint64_t offset, const struct index_file *file, int fd,
                 const char *path, struct fail *fail)
{
    struct sha256 hash;
    char hex[65], *piece = memory(PIECE);
    bool good = true;
    sha256_start(&hash);
    for (uint64_t left = file->size; good && left;) {
        size_t size = left < PIECE ? (size_t)left : PIECE;
        good = read_at(zip->fd, piece, size, offset, fail);
        if (good && !write_all(fd, piece, size))
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
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        good = fd >= 0 || cannot(fail, path);
        good = good && copy(zip, offset, file, fd, path, fail);
        if (good && (fchmod(fd, file->mode) || !flush(fd)))
            good = cannot(fail, path);
        if (fd >= 0 && close(fd) && good)
            good = cannot(fail, path);
    }
    free(name);
    free(path);
    return good;
}

/* A name in `parent` that nobody else uses; `cache_clean` knows its form. */
static char *temporary(const char *parent, const struct index *index)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return text("%s/.%s.%ld.%08lx.tmp", parent, index->id, (long)getpid(),
                (unsigned long)now.tv_nsec ^ ((unsigned long)now.tv_sec & 0xffff) << 16);
}

/* Give the finished folder its name. Losing a race to an equal folder is fine; a damaged folder
   of that name is moved aside first. */
static bool settle(const char *made, const char *target, const char *parent,
                   const struct index *index, struct fail *fail)
{
    for (int i = 0; i < TRIES; i++) {
        if (!rename(made, target))
            return flush_folder(parent) || cannot(fail, parent);
        if (errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR)
            return cannot(fail, target);
        if (unpack_whole(target, index)) {
            cache_remove(made);
            return true;
        }
        char *aside = temporary(parent, index);
        if (!rename(target, aside)) {
            unlink(aside);
            cache_remove(aside);
        }
        free(aside);
    }
    return fail_set(fail, FAIL_NO_SPACE, "%s: cannot be replaced", target);
}

/* Wait until no other start unpacks into `parent`, so that many first starts do the work once.
   Only a courtesy: without it (a network file system, or a start that was stopped and holds the
   lock for long) each start unpacks for itself, which is as safe. Returns what to close, or -1. */
static int wait_turn(const char *parent)
{
    int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const struct timespec pause = {0, 1000000L * PAUSE_MS};
    for (int waited = 0; fd >= 0 && waited < WAIT_MS; waited += PAUSE_MS) {
        if (!flock(fd, LOCK_EX | LOCK_NB) || (errno != EWOULDBLOCK && errno != EINTR))
            break;
        nanosleep(&pause, NULL);
    }
    return fd;
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
        good = !mkdir(made, 0755);
        if (!good && errno != EEXIST)
            break;
    }
    if (good) {
        for (size_t i = 0; good && i < index->count; i++)
            good = write_file(zip, prefix, &index->files[i], made, fail);
        if (good && !flush_folder(made))
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
    int turn = wait_turn(parent);
    bool good = unpack_whole(target, index) ||
                unpack_now(zip, prefix, index, parent, target, fail);
    if (turn >= 0)
        close(turn);
    free(target);
    return good;
}
