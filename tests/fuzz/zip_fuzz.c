/* libFuzzer target for everything that the launcher reads from the single file: the zip part,
   INDEX and .args. The file is in memory; the system header's functions are those below. */
#include "args.h"
#include "index.h"
#include "zip.h"

#include <stdlib.h>
#include <string.h>

static const uint8_t *bytes;
static uint64_t length;

bool os_size(os_file file, uint64_t *size)
{
    *size = length;
    return file == 1;
}

long os_read_at(os_file file, void *data, size_t size, uint64_t offset)
{
    if (file != 1 || offset >= length)
        return 0;
    if (size > length - offset)
        size = (size_t)(length - offset);
    memcpy(data, bytes + offset, size);
    return (long)size;
}

const char *os_why(void)
{
    return "";
}

void os_say(const char *line)
{
    (void)line;
}

static void read_args(char *data, size_t size)
{
    char self[] = "self", one[] = "one", two[] = "", *user[] = {one, two};
    if (strlen(data) != size)
        return;
    char **list = args_build(self, data, user, 2);
    size_t count = 0;
    while (list[count])
        count++;
    if (!count || list[0] != self)
        abort();
    free(list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct zip zip;
    struct fail fail = {0};
    static struct index index;
    bytes = data;
    length = size;
    bool good = zip_open(&zip, 1, &fail);
    if (!good && !fail.code)
        abort();
    for (size_t i = 0; good && i < zip.count; i++) {
        uint64_t offset;
        const struct zip_entry *entry = &zip.entries[i];
        struct fail one = {0};
        if (zip_data(&zip, entry, &offset, &one) &&
            (offset > length || entry->packed > length - offset ||
             offset + entry->packed > zip.directory || entry->form == ZIP_OTHER ||
             (entry->form == ZIP_STORED && entry->packed != entry->size)))
            abort();
        char *text = zip_read(&zip, entry, 1 << 20, &one);
        if (text && entry->form != ZIP_STORED)
            abort();
        if (text && entry->name_length == 5 && !memcmp(entry->name, ".args", 5))
            read_args(text, (size_t)entry->size);
        else if (text)
            index_parse(&index, text, (size_t)entry->size, &one);
        free(text);
    }
    zip_find(&zip, ".args");
    zip_close(&zip);
    return 0;
}
