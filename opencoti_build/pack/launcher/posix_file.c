#include "os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

os_file os_open(const char *path)
{
    return open(path, O_RDONLY | O_CLOEXEC);
}

os_file os_create(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
}

bool os_size(os_file file, uint64_t *size)
{
    struct stat info;
    if (fstat((int)file, &info) || !S_ISREG(info.st_mode))
        return false;
    *size = (uint64_t)info.st_size;
    return true;
}

long os_read_at(os_file file, void *data, size_t size, uint64_t offset)
{
    ssize_t count;
    do
        count = pread((int)file, data, size, (off_t)offset);
    while (count < 0 && errno == EINTR);
    return count;
}

bool os_write(os_file file, const void *data, size_t size)
{
    const char *at = data;
    while (size) {
        ssize_t count = write((int)file, at, size);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0) {
            if (count == 0)
                errno = ENOSPC;
            return false;
        }
        at += count;
        size -= (size_t)count;
    }
    return true;
}

/* Flush to disk; file systems that cannot are not asked to. */
static bool flush(int fd)
{
    return !fsync(fd) || errno == EINVAL || errno == ENOTSUP;
}

bool os_finish(os_file file, unsigned mode)
{
    return !fchmod((int)file, (mode_t)mode) && flush((int)file);
}

bool os_close(os_file file)
{
    return !close((int)file);
}

bool os_is_file(const char *path, uint64_t size, unsigned mode)
{
    struct stat info;
    return !lstat(path, &info) && S_ISREG(info.st_mode) && (uint64_t)info.st_size == size &&
           (info.st_mode & 0100 || !(mode & 0100));
}

bool os_is_folder(const char *path)
{
    struct stat info;
    return !stat(path, &info) && S_ISDIR(info.st_mode);
}

enum os_made os_make_folder(const char *path, unsigned mode)
{
    if (!mkdir(path, (mode_t)mode))
        return OS_MADE;
    return errno == EEXIST ? OS_EXISTS : OS_FAILED;
}

enum os_made os_rename(const char *from, const char *to)
{
    if (!rename(from, to))
        return OS_MADE;
    return errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR ? OS_EXISTS : OS_FAILED;
}

bool os_flush_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool done = fd >= 0 && flush(fd);
    if (fd >= 0)
        close(fd);
    return done;
}

void os_remove(const char *path)
{
    if (unlink(path))
        rmdir(path);
}

void os_list(const char *path, void (*each)(void *context, const char *name), void *context)
{
    DIR *list = opendir(path);
    if (!list)
        return;
    for (struct dirent *item; (item = readdir(list));)
        if (strcmp(item->d_name, ".") && strcmp(item->d_name, ".."))
            each(context, item->d_name);
    closedir(list);
}

bool os_is_older(const char *path, long seconds)
{
    struct stat info;
    return !lstat(path, &info) && info.st_mtime <= time(NULL) - seconds;
}
