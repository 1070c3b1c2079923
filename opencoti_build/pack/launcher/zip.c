#include "zip.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_READ = 1 << 20 };
enum { STORED = 0, DEFLATED = 8, UNUSUAL = 0x9 /* flags: encrypted, sizes after the data */ };
enum { LOCAL = 30, CENTRAL = 46, END = 22, END64 = 56, LOCATOR = 20 };
static const uint64_t MAX_DIRECTORY = 64u << 20;

static unsigned le16(const unsigned char *at)
{
    return at[0] | (unsigned)at[1] << 8;
}

static uint32_t le32(const unsigned char *at)
{
    return le16(at) | (uint32_t)le16(at + 2) << 16;
}

static uint64_t le64(const unsigned char *at)
{
    return le32(at) | (uint64_t)le32(at + 4) << 32;
}

static bool bad(struct fail *fail, const char *why)
{
    return fail_set(fail, FAIL_BAD_FILE, "%s", why);
}

bool read_at(os_file file, void *data, size_t size, uint64_t offset, struct fail *fail)
{
    char *at = data;
    while (size) {
        long count = os_read_at(file, at, size < MAX_READ ? size : MAX_READ, offset);
        if (count < 0)
            return fail_set(fail, FAIL_BAD_FILE, "cannot read: %s", os_why());
        if (count == 0)
            return bad(fail, "the file is cut off");
        at += count;
        size -= (size_t)count;
        offset += (uint64_t)count;
    }
    return true;
}

/* The end records: entry count, and the directory's offset and size, checked against the file. */
static bool read_end(struct zip *zip, uint64_t *count, uint64_t *size, struct fail *fail)
{
    unsigned char tail[END64 + LOCATOR + END] = {0};
    if (zip->size < END)
        return bad(fail, "the file is too short");
    size_t have = zip->size < sizeof tail ? (size_t)zip->size : sizeof tail;
    if (!read_at(zip->file, tail + sizeof tail - have, have, zip->size - have, fail))
        return false;
    const unsigned char *locator = tail + END64, *end = locator + LOCATOR;
    if (memcmp(end, "PK\5\6", 4))
        return bad(fail, "the file is cut off or has bytes added (no zip end record)");
    uint64_t stop = zip->size - END;
    *count = le16(end + 10);
    *size = le32(end + 12);
    zip->directory = le32(end + 16);
    if (le16(end + 4) || le16(end + 6) || le16(end + 8) != *count || le16(end + 20))
        return bad(fail, "the zip end record is damaged");
    if (*count == 0xffff || *size == 0xffffffff || zip->directory == 0xffffffff) {
        if (have < sizeof tail || memcmp(locator, "PK\6\7", 4) || memcmp(tail, "PK\6\6", 4))
            return bad(fail, "the zip64 end record is absent");
        stop = zip->size - sizeof tail;
        *count = le64(tail + 32);
        *size = le64(tail + 40);
        zip->directory = le64(tail + 48);
        if (le64(locator + 8) != stop || le32(locator + 4) || le32(locator + 16) != 1 ||
            le64(tail + 4) != END64 - 12 || le32(tail + 16) || le32(tail + 20) ||
            le64(tail + 24) != *count)
            return bad(fail, "the zip64 end record is damaged");
    }
    if (zip->directory > stop || *size != stop - zip->directory)
        return bad(fail, "the zip directory is not where the end record says");
    if (*size > MAX_DIRECTORY || *count > *size / CENTRAL)
        return bad(fail, "the zip directory has an impossible size");
    return true;
}

/* Replace 32-bit sentinels by the values of the zip64 extra field. */
static bool widen(const unsigned char *extra, size_t length, uint64_t *values[3], struct fail *fail)
{
    while (length >= 4) {
        size_t size = le16(extra + 2);
        const unsigned char *body = extra + 4;
        if (size > length - 4)
            break;
        if (le16(extra) == 1) {
            for (int i = 0; i < 3; i++) {
                if (*values[i] != 0xffffffff)
                    continue;
                if (size < 8)
                    return bad(fail, "a zip64 field is too short");
                *values[i] = le64(body);
                body += 8;
                size -= 8;
            }
            return size == 0 || bad(fail, "a zip64 field is too long");
        }
        extra += 4 + size;
        length -= 4 + size;
    }
    for (int i = 0; i < 3; i++)
        if (*values[i] == 0xffffffff)
            return bad(fail, "a zip64 field is absent");
    return true;
}

static enum zip_form form(unsigned flags, unsigned method, uint64_t packed, uint64_t size)
{
    if (flags & UNUSUAL)
        return ZIP_OTHER;
    if (method == STORED && packed == size)
        return ZIP_STORED;
    return method == DEFLATED ? ZIP_DEFLATED : ZIP_OTHER;
}

static bool read_entry(const struct zip *zip, struct zip_entry *entry, const unsigned char **at,
                       const unsigned char *stop, struct fail *fail)
{
    const unsigned char *head = *at;
    if (stop - head < CENTRAL || memcmp(head, "PK\1\2", 4))
        return bad(fail, "the zip directory is damaged");
    size_t name = le16(head + 28), extra = le16(head + 30), comment = le16(head + 32);
    if ((size_t)(stop - head) - CENTRAL < name + extra + comment)
        return bad(fail, "the zip directory is cut off");
    uint64_t packed = le32(head + 20), size = le32(head + 24), header = le32(head + 42);
    uint64_t *values[3] = {&size, &packed, &header};
    if (!widen(head + CENTRAL + name, extra, values, fail))
        return false;
    if (header > zip->directory || zip->directory - header < LOCAL ||
        packed > zip->directory - header - LOCAL)
        return bad(fail, "a zip entry lies outside the file");
    entry->name = (const char *)head + CENTRAL;
    entry->name_length = name;
    entry->size = size;
    entry->packed = packed;
    entry->header = header;
    entry->form = form(le16(head + 8), le16(head + 10), packed, size);
    *at = head + CENTRAL + name + extra + comment;
    return true;
}

bool zip_open(struct zip *zip, os_file file, struct fail *fail)
{
    uint64_t count, size;
    memset(zip, 0, sizeof *zip);
    zip->file = file;
    if (!os_size(file, &zip->size))
        return bad(fail, "not a regular file");
    if (!read_end(zip, &count, &size, fail))
        return false;
    zip->block = memory(size);
    zip->entries = memory(count * sizeof *zip->entries);
    if (!read_at(file, zip->block, size, zip->directory, fail))
        return false;
    const unsigned char *at = zip->block, *stop = zip->block + size;
    for (; zip->count < count; zip->count++)
        if (!read_entry(zip, &zip->entries[zip->count], &at, stop, fail))
            return false;
    return at == stop || bad(fail, "the zip directory has bytes to spare");
}

void zip_close(struct zip *zip)
{
    free(zip->block);
    free(zip->entries);
    zip->block = NULL;
    zip->entries = NULL;
    zip->count = 0;
}

/* The last entry with this name wins in no reader of ours: two are refused when packing, and the
   first is used here, as in the engine. */
const struct zip_entry *zip_find(const struct zip *zip, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < zip->count; i++)
        if (zip->entries[i].name_length == length && !memcmp(zip->entries[i].name, name, length))
            return &zip->entries[i];
    return NULL;
}

bool zip_data(const struct zip *zip, const struct zip_entry *entry, uint64_t *offset,
              struct fail *fail)
{
    unsigned char head[LOCAL];
    unsigned method = entry->form == ZIP_DEFLATED ? DEFLATED : STORED;
    if (entry->form == ZIP_OTHER)
        return bad(fail, "a zip entry is neither stored nor deflated");
    if (!read_at(zip->file, head, sizeof head, entry->header, fail))
        return false;
    if (memcmp(head, "PK\3\4", 4) || (le16(head + 6) & UNUSUAL) || le16(head + 8) != method ||
        le16(head + 26) != entry->name_length)
        return bad(fail, "a zip entry's two headers differ");
    uint64_t room = zip->directory - entry->header - LOCAL;
    uint64_t skip = le16(head + 26) + (uint64_t)le16(head + 28);
    if (skip > room || entry->packed > room - skip)
        return bad(fail, "a zip entry lies outside the file");
    char *name = memory(entry->name_length);
    bool same = read_at(zip->file, name, entry->name_length, entry->header + LOCAL, fail);
    if (same && memcmp(name, entry->name, entry->name_length))
        same = bad(fail, "a zip entry's two headers differ");
    free(name);
    *offset = entry->header + LOCAL + skip;
    return same;
}

char *zip_read(const struct zip *zip, const struct zip_entry *entry, size_t limit,
               struct fail *fail)
{
    uint64_t offset;
    if (entry->form != ZIP_STORED) {
        bad(fail, "a zip entry is compressed that must be stored");
        return NULL;
    }
    if (entry->size > limit) {
        bad(fail, "a zip entry that should be small is large");
        return NULL;
    }
    if (!zip_data(zip, entry, &offset, fail))
        return NULL;
    char *data = memory(entry->size + 1);
    if (!read_at(zip->file, data, entry->size, offset, fail)) {
        free(data);
        return NULL;
    }
    data[entry->size] = 0;
    return data;
}
