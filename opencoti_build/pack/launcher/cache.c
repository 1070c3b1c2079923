#include "cache.h"

#include "os.h"

#include <stdlib.h>
#include <string.h>

enum { STALE_SECONDS = 600 };

bool cache_make(const char *path, struct fail *fail)
{
    if (os_is_folder(path))
        return true;
    char *parent = text("%s", path), *cut = parent + strlen(parent);
    while (cut > parent && (!*cut || !strchr(os_separators, *cut)))
        cut--;
    *cut = 0;
    bool made = !*parent || cache_make(parent, fail);
    free(parent);
    if (!made)
        return false;
    /* some file systems say "read-only" before "exists" */
    if (os_make_folder(path, 0777) == OS_MADE || os_is_folder(path))
        return true;
    os_make_folder(path, 0777); /* for its cause */
    return fail_set(fail, FAIL_NO_SPACE, "%s: %s", path, os_why());
}

static void remove_one(void *context, const char *name)
{
    char *path = text("%s/%s", (const char *)context, name);
    os_remove(path);
    free(path);
}

void cache_remove(const char *path)
{
    char *copy = text("%s", path);
    os_list(path, remove_one, copy);
    os_remove(path);
    free(copy);
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

static void clean_one(void *context, const char *name)
{
    long pid = maker(name);
    char *path = text("%s/%s", (const char *)context, name);
    if (pid > 0 && os_is_gone(pid) && os_is_older(path, STALE_SECONDS)) {
        os_remove(path);
        if (os_is_folder(path)) /* a link to a folder is gone by now */
            cache_remove(path);
    }
    free(path);
}

void cache_clean(const char *folder)
{
    char *copy = text("%s", folder);
    os_list(folder, clean_one, copy);
    free(copy);
}
