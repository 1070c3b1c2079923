/* The launcher: unpacks the engine for this system from the single file, and becomes it.

   launcher FILE [argument...]     start the engine of FILE
   launcher --opencoti-probe       print "opencoti <first 16 hex digits of its own sha256>"

   The start script copies the launcher out of the file and runs it; see start.sh.in. On Windows
   the file itself is the program, and os_arguments puts its name where FILE is. */
#include "args.h"
#include "cache.h"
#include "cpu.h"
#include "index.h"
#include "os.h"
#include "sha256.h"
#include "unpack.h"
#include "zip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef OPENCOTI_TARGET
#error "OPENCOTI_TARGET must be the target's name as a string"
#endif

static const char PREFIX[] = "engine/" OPENCOTI_TARGET "/";
static const char INDEX_NAME[] = "engine/" OPENCOTI_TARGET "/INDEX";
static const char PROBE[] = "--opencoti-probe";
enum { MAX_SMALL = 1 << 20 };

static int probe(const char *own)
{
    struct sha256 hash;
    char data[1 << 14], hex[65];
    os_file file = os_open(own);
    long count = file == OS_NONE ? -1 : 0;
    uint64_t offset = 0;
    sha256_start(&hash);
    while (file != OS_NONE && (count = os_read_at(file, data, sizeof data, offset)) > 0) {
        sha256_update(&hash, data, (size_t)count);
        offset += (uint64_t)count;
    }
    sha256_hex(&hash, hex);
    return count < 0 || printf("opencoti %.16s\n", hex) < 0 || fflush(stdout);
}

/* Become the engine in `folder`; returns only when that fails. */
static void run(const char *folder, const struct index *index, char **argv, struct fail *fail)
{
    char *path = text("%s/%s", folder, index->files[0].name);
    os_run(path, argv, fail);
    free(path);
}

/* Try one place: use the engine that is there, or put it there. Returns only on failure. */
static void start(const struct zip *zip, const struct index *index, int place, char **argv,
                  struct fail *fail)
{
    char *base = os_place(place, fail);
    if (!base)
        return;
    char *parent = text("%s/v/%s", base, index->version);
    char *folder = text("%s/%s", parent, index->id);
    if (!os_runs(base))
        fail_set(fail, FAIL_NO_SPACE, "%s: mounted noexec", base);
    else if (unpack_whole(folder, index) ||
             (cache_make(parent, fail) && unpack(zip, PREFIX, index, parent, fail)))
        run(folder, index, argv, fail);
    free(folder);
    free(parent);
    free(base);
}

static void start_anywhere(const struct zip *zip, const struct index *index, char **argv,
                           struct fail *fail)
{
    char *all = NULL;
    for (int place = 0; place < os_places; place++) {
        struct fail one = {0};
        start(zip, index, place, argv, &one);
        if (one.code != FAIL_NO_SPACE) {
            *fail = one;
            free(all);
            return;
        }
        if (!strcmp(one.why, "no such place"))
            continue;
        char *longer = all ? text("%s; %s", all, one.why) : text("%s", one.why);
        free(all);
        all = longer;
    }
    fail_set(fail, FAIL_NO_SPACE, "cannot unpack the engine: %s", all ? all : "no place");
    free(all);
}

static bool read_index(const struct zip *zip, struct index *index, char **data, struct fail *fail)
{
    const struct zip_entry *entry = zip_find(zip, INDEX_NAME);
    if (!entry)
        return fail_set(fail, FAIL_BAD_FILE, "no engine for " OPENCOTI_TARGET " inside");
    *data = zip_read(zip, entry, MAX_SMALL, fail);
    return *data && index_parse(index, *data, entry->size, fail);
}

static void launch(char *self, os_file file, char **user, size_t count, struct fail *fail)
{
    struct zip zip;
    struct index index;
    char *data = NULL, *args = NULL, **argv = NULL;
    bool good = zip_open(&zip, file, fail) && read_index(&zip, &index, &data, fail);
    const struct zip_entry *entry = good ? zip_find(&zip, ".args") : NULL;
    if (entry) {
        args = zip_read(&zip, entry, MAX_SMALL, fail);
        good = args != NULL;
        if (good && strlen(args) != entry->size)
            good = fail_set(fail, FAIL_BAD_FILE, ".args has a NUL byte");
    }
    if (good && !os_set_self(self))
        good = fail_set(fail, FAIL_CANNOT_RUN, "cannot set OPENCOTI_SELF");
    if (good) {
        argv = args_build(self, args, user, count);
        start_anywhere(&zip, &index, argv, fail);
    }
    free(argv);
    free(args);
    free(data);
    zip_close(&zip);
}

__attribute__((noinline)) static int begin(int argc, char **argv)
{
    struct fail fail = {FAIL_CANNOT_RUN, "nothing to start"};
    os_arguments(&argc, &argv);
    if (argc == 2 && !strcmp(argv[1], PROBE))
        return probe(argv[0]);
    if (argc < 2)
        return fail_print(&fail, "launcher");
    char *self = os_full_path(argv[1]);
    os_file file = self ? os_open(self) : OS_NONE;
    if (file == OS_NONE)
        fail_set(&fail, FAIL_CANNOT_RUN, "%s", os_why());
    else
        launch(self, file, argv + 2, (size_t)argc - 2, &fail);
    if (file != OS_NONE)
        os_close(file);
    free(self);
    return fail_print(&fail, argv[1]);
}

/* Nothing before this check may use more than x86-64 has: the C library of Windows is made for the
   engine's CPU (launcher_build.py), `memset` too. */
int main(int argc, char **argv)
{
    const char *lacks = cpu_lacks();
    if (lacks && !(argc == 2 && !strcmp(argv[1], PROBE))) {
        char line[80];
        snprintf(line, sizeof line, "opencoti: this CPU lacks %s (x86-64-v2 is needed)", lacks);
        os_say(line);
        return FAIL_CANNOT_RUN;
    }
    return begin(argc, argv);
}
