#include "cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

static const time_t STALE_SECONDS = 600;

static const char *setting(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static bool cannot(struct fail *fail, const char *path)
{
    return fail_set(fail, FAIL_NO_SPACE, "%s: %s", path, strerror(errno));
}

static bool make_one(const char *path, struct fail *fail)
{
    struct stat info;
    if (!mkdir(path, 0777) || errno == EEXIST)
        return true;
    int error = errno; /* some file systems say "read-only" before "exists" */
    if (!stat(path, &info) && S_ISDIR(info.st_mode))
        return true;
    errno = error;
    return cannot(fail, path);
}

bool cache_make(const char *path, struct fail *fail)
{
    char *copy = text("%s", path), *at = copy;
    bool made = true;
    while (made && (at = strchr(at + 1, '/'))) {
        *at = 0;
        made = make_one(copy, fail);
        *at = '/';
    }
    made = made && make_one(copy, fail);
    free(copy);
    return made;
}

/* Place 0: the user's own folder. */
static char *home(struct fail *fail)
{
    const char *base = setting("OPENCOTI_HOME"), *user = setting("HOME");
    struct stat info;
    char here[4096], *path;
    if (base && base[0] != '/' && getcwd(here, sizeof here))
        path = text("%s/%s", here, base);
    else if (base)
        path = text("%s", base);
    else if (user && user[0] == '/' && !stat(user, &info) && S_ISDIR(info.st_mode))
        path = text("%s/.llamafile", user);
    else {
        fail_set(fail, FAIL_NO_SPACE, "HOME is not set to a folder");
        return NULL;
    }
    if (cache_make(path, fail))
        return path;
    free(path);
    return NULL;
}

/* The other places: a folder of this user alone inside a shared one. */
static char *private(const char *base, struct fail *fail)
{
    struct stat info;
    if (!base || base[0] != '/') {
        fail_set(fail, FAIL_NO_SPACE, "no such place");
        return NULL;
    }
    char *path = text("%s/opencoti-%lu", base, (unsigned long)geteuid());
    if ((mkdir(path, 0700) && errno != EEXIST) || lstat(path, &info))
        cannot(fail, path);
    else if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || info.st_mode & 077)
        fail_set(fail, FAIL_NO_SPACE, "%s: not a private folder of this user", path);
    else
        return path;
    free(path);
    return NULL;
}

char *cache_place(int place, struct fail *fail)
{
    const char *temporary = setting("TMPDIR");
    switch (place) {
    case 0:
        return home(fail);
    case 1:
        return private(setting("XDG_RUNTIME_DIR"), fail);
    case 2:
        return private(temporary ? temporary : "/tmp", fail);
    case 3:
        return private("/var/tmp", fail);
    default:
        return private("/dev/shm", fail);
    }
}

bool cache_runs(const char *path)
{
#ifdef ST_NOEXEC
    struct statvfs info;
    return statvfs(path, &info) || !(info.f_flag & ST_NOEXEC);
#else
    (void)path;
    return true;
#endif
}

void cache_remove(const char *path)
{
    DIR *list = opendir(path);
    if (list) {
        for (struct dirent *item; (item = readdir(list));)
            if (strcmp(item->d_name, ".") && strcmp(item->d_name, ".."))
                unlinkat(dirfd(list), item->d_name, 0);
        closedir(list);
    }
    rmdir(path);
}

/* The process that made a temporary name: ".launch.<pid>.<random>" or ".<id>.<pid>.<random>.tmp";
   0 for any other name. */
static long maker(const char *name)
{
    const char *dot = name[0] == '.' ? strchr(name + 1, '.') : NULL;
    size_t length = dot ? (size_t)(dot - name) - 1 : 0;
    bool launch = length == 6 && !strncmp(name, ".launch.", 8);
    bool folder = length == 32 && strlen(name) > 4 && !strcmp(name + strlen(name) - 4, ".tmp");
    return launch || folder ? strtol(dot + 1, NULL, 10) : 0;
}

void cache_clean(const char *folder)
{
    DIR *list = opendir(folder);
    if (!list)
        return;
    for (struct dirent *item; (item = readdir(list));) {
        struct stat info;
        long pid = maker(item->d_name);
        if (pid <= 0 || !kill((pid_t)pid, 0) || errno != ESRCH ||
            fstatat(dirfd(list), item->d_name, &info, AT_SYMLINK_NOFOLLOW) ||
            info.st_mtime > time(NULL) - STALE_SECONDS)
            continue;
        char *path = text("%s/%s", folder, item->d_name);
        if (S_ISDIR(info.st_mode))
            cache_remove(path);
        else
            unlink(path);
        free(path);
    }
    closedir(list);
}
