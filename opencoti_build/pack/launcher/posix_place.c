#include "os.h"

#include "cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* The engine unpacks its GPU library into the same places in the same order: list_places() of
   opencoti/gpu-unpack.cpp in patch 0121. */
const int os_places = 5;
const char os_separators[] = "/";

static const char *setting(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* Place 0: $OPENCOTI_HOME or $HOME/.llamafile. */
static char *home(struct fail *fail)
{
    const char *base = setting("OPENCOTI_HOME"), *user = setting("HOME");
    char here[4096], *path;
    if (base && base[0] != '/' && getcwd(here, sizeof here))
        path = text("%s/%s", here, base);
    else if (base)
        path = text("%s", base);
    else if (user && user[0] == '/' && os_is_folder(user))
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

/* The other places: "opencoti-<uid>" in shared folders, for this user alone. */
static char *private(const char *base, struct fail *fail)
{
    struct stat info;
    if (!base || base[0] != '/') {
        fail_set(fail, FAIL_NO_SPACE, "no such place");
        return NULL;
    }
    char *path = text("%s/opencoti-%lu", base, (unsigned long)geteuid());
    if (os_make_folder(path, 0700) == OS_FAILED || lstat(path, &info))
        fail_set(fail, FAIL_NO_SPACE, "%s: %s", path, os_why());
    else if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || info.st_mode & 077)
        fail_set(fail, FAIL_NO_SPACE, "%s: not a private folder of this user", path);
    else
        return path;
    free(path);
    return NULL;
}

char *os_place(int place, struct fail *fail)
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

bool os_runs(const char *path)
{
#ifdef ST_NOEXEC /* macOS does not say */
    struct statvfs info;
    return statvfs(path, &info) || !(info.f_flag & ST_NOEXEC);
#else
    (void)path;
    return true;
#endif
}
