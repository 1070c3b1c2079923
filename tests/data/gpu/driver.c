/* A stand-in for libcuda.so.1: it has the cards and the faults that the environment names.

   STANDIN_CARDS    "name/8.6/uuid byte/MiB;...": the cards, each one's UUID is that byte 16 times
   STANDIN_VERSION  the newest CUDA version that it supports [13000]
   STANDIN_FAULT    crash, exit, hang, or a CUDA error number, in cuInit
   STANDIN_RUN      a command for the shell, run in cuInit
   STANDIN_TRACE    a file that gets one line for each cuInit: the id of the process

   It obeys CUDA_VISIBLE_DEVICES, as numbers or as "GPU-<uuid>". */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX = 16, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101 };

struct card {
    char name[128];
    int major, minor;
    unsigned byte;
    unsigned long mib;
};

static struct card cards[MAX];
static int count, ready;

static const char *setting(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "";
}

static int is_named(const char *word, int number, const struct card *card)
{
    char uuid[64], *at = uuid, *end;
    at += sprintf(at, "GPU-");
    for (int i = 0; i < 16; i++)
        at += sprintf(at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", card->byte);
    return !strcmp(word, uuid) || (strtol(word, &end, 10) == number && !*end && end > word);
}

/* The cards in the order of CUDA_VISIBLE_DEVICES, up to the first word that names none. */
static void choose(const struct card *all, int number)
{
    char text[1024];
    snprintf(text, sizeof text, "%s", setting("CUDA_VISIBLE_DEVICES"));
    for (char *word = strtok(text, ","); word; word = strtok(NULL, ",")) {
        int i = 0;
        while (i < number && !is_named(word, i, &all[i]))
            i++;
        if (i == number)
            break;
        cards[count++] = all[i];
    }
}

static void read_cards(void)
{
    const char *at = setting("STANDIN_CARDS");
    struct card all[MAX];
    int number = 0;
    for (; *at && number < MAX; number++) {
        struct card *card = &all[number];
        int used = 0;
        if (sscanf(at, "%127[^/]/%d.%d/%x/%lu%n", card->name, &card->major, &card->minor,
                   &card->byte, &card->mib, &used) != 5)
            abort();
        at += used;
        at += *at == ';';
    }
    count = 0;
    if (getenv("CUDA_VISIBLE_DEVICES"))
        choose(all, number);
    else
        memcpy(cards, all, sizeof all[0] * (unsigned)(count = number));
}

int cuInit(unsigned flags)
{
    const char *fault = setting("STANDIN_FAULT"), *trace = setting("STANDIN_TRACE");
    (void)flags;
    if (*trace) {
        FILE *file = fopen(trace, "a");
        if (!file || fprintf(file, "%ld\n", (long)getpid()) < 0 || fclose(file))
            abort();
    }
    if (*setting("STANDIN_RUN") && system(setting("STANDIN_RUN")))
        abort();
    if (!strcmp(fault, "crash"))
        raise(SIGSEGV);
    if (!strcmp(fault, "exit"))
        exit(0);
    while (!strcmp(fault, "hang"))
        pause();
    if (*fault)
        return atoi(fault);
    read_cards();
    ready = 1;
    return count ? 0 : NO_DEVICE;
}

int cuDriverGetVersion(int *version)
{
    *version = *setting("STANDIN_VERSION") ? atoi(setting("STANDIN_VERSION")) : 13000;
    return 0;
}

int cuDeviceGetCount(int *number)
{
    *number = count;
    return ready ? 0 : NOT_INITIALIZED;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return ordinal >= 0 && ordinal < count ? 0 : INVALID_DEVICE;
}

int cuDeviceGetName(char *name, int size, int device)
{
    snprintf(name, (size_t)size, "%s", cards[device].name);
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    if (attribute != 75 && attribute != 76)
        return 1;
    *value = attribute == 75 ? cards[device].major : cards[device].minor;
    return 0;
}

int cuDeviceGetUuid_v2(unsigned char *uuid, int device)
{
    memset(uuid, (int)cards[device].byte, 16);
    return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    *bytes = (size_t)cards[device].mib << 20;
    return 0;
}
