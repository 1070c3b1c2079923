#include "windows.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_STEP = 1 << 20 };

static HANDLE handle(os_file file)
{
    return (HANDLE)file;
}

static os_file open_file(const char *path, DWORD access, DWORD how)
{
    WCHAR *name = wide_path(path);
    /* no security attributes: no child gets the handle */
    HANDLE file = CreateFileW(name, access, FILE_SHARE_READ | FILE_SHARE_DELETE, NULL, how,
                              FILE_ATTRIBUTE_NORMAL, NULL);
    free(name);
    return file == INVALID_HANDLE_VALUE ? OS_NONE : (os_file)file;
}

os_file os_open(const char *path)
{
    return open_file(path, GENERIC_READ, OPEN_EXISTING);
}

os_file os_create(const char *path)
{
    return open_file(path, GENERIC_WRITE, CREATE_NEW);
}

bool os_size(os_file file, uint64_t *size)
{
    LARGE_INTEGER value;
    if (GetFileType(handle(file)) != FILE_TYPE_DISK || !GetFileSizeEx(handle(file), &value))
        return false;
    *size = (uint64_t)value.QuadPart;
    return true;
}

long os_read_at(os_file file, void *data, size_t size, uint64_t offset)
{
    OVERLAPPED where = {0};
    DWORD count = 0;
    where.Offset = (DWORD)offset;
    where.OffsetHigh = (DWORD)(offset >> 32);
    if (ReadFile(handle(file), data, size < MAX_STEP ? (DWORD)size : MAX_STEP, &count, &where))
        return (long)count;
    return GetLastError() == ERROR_HANDLE_EOF ? 0 : -1;
}

bool os_write(os_file file, const void *data, size_t size)
{
    const char *at = data;
    while (size) {
        DWORD count = 0;
        if (!WriteFile(handle(file), at, size < MAX_STEP ? (DWORD)size : MAX_STEP, &count, NULL))
            return false;
        if (!count) {
            SetLastError(ERROR_DISK_FULL);
            return false;
        }
        at += count;
        size -= count;
    }
    return true;
}

bool os_finish(os_file file, unsigned mode)
{
    (void)mode; /* every file can be run */
    return FlushFileBuffers(handle(file));
}

bool os_close(os_file file)
{
    return CloseHandle(handle(file));
}

bool os_is_file(const char *path, uint64_t size, unsigned mode)
{
    WIN32_FILE_ATTRIBUTE_DATA info;
    const DWORD other = FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_REPARSE_POINT;
    WCHAR *name = wide_path(path);
    bool is = GetFileAttributesExW(name, GetFileExInfoStandard, &info) &&
              !(info.dwFileAttributes & other) &&
              ((uint64_t)info.nFileSizeHigh << 32 | info.nFileSizeLow) == size;
    (void)mode;
    free(name);
    return is;
}
