#include "windows.h"

#include <stdlib.h>
#include <string.h>
#include <wchar.h>

enum { RENAME_TRIES = 50, PAUSE_MS = 20 };

bool os_is_folder(const char *path)
{
    WCHAR *name = wide_path(path);
    DWORD bits = GetFileAttributesW(name);
    free(name);
    return bits != INVALID_FILE_ATTRIBUTES && bits & FILE_ATTRIBUTE_DIRECTORY;
}

enum os_made os_make_folder(const char *path, unsigned mode)
{
    WCHAR *name = wide_path(path);
    bool made = CreateDirectoryW(name, NULL);
    DWORD error = GetLastError();
    (void)mode; /* what the folder above gives its children */
    free(name);
    SetLastError(error);
    return made ? OS_MADE : error == ERROR_ALREADY_EXISTS ? OS_EXISTS : OS_FAILED;
}

/* A virus scanner that reads the new files keeps their folder from being renamed for a moment. */
enum os_made os_rename(const char *from, const char *to)
{
    WCHAR *old = wide_path(from), *name = wide_path(to);
    enum os_made made = OS_FAILED;
    DWORD error = 0;
    for (int i = 0; i < RENAME_TRIES && made == OS_FAILED; i++) {
        if (i)
            Sleep(PAUSE_MS);
        if (MoveFileExW(old, name, MOVEFILE_WRITE_THROUGH))
            made = OS_MADE;
        else if ((error = GetLastError()) && GetFileAttributesW(name) != INVALID_FILE_ATTRIBUTES)
            made = OS_EXISTS;
        else if (error != ERROR_ACCESS_DENIED && error != ERROR_SHARING_VIOLATION)
            break;
    }
    free(old);
    free(name);
    SetLastError(error);
    return made;
}

bool os_flush_folder(const char *path)
{
    (void)path; /* MOVEFILE_WRITE_THROUGH has done it */
    return true;
}

void os_remove(const char *path)
{
    WCHAR *name = wide_path(path);
    if (!DeleteFileW(name))
        RemoveDirectoryW(name);
    free(name);
}

void os_list(const char *path, void (*each)(void *context, const char *name), void *context)
{
    WIN32_FIND_DATAW item;
    char *all = text("%s/*", path);
    WCHAR *pattern = wide_path(all);
    HANDLE list = FindFirstFileW(pattern, &item);
    free(pattern);
    free(all);
    if (list == INVALID_HANDLE_VALUE)
        return;
    do {
        char *name = narrow(item.cFileName);
        if (strcmp(name, ".") && strcmp(name, ".."))
            each(context, name);
        free(name);
    } while (FindNextFileW(list, &item));
    FindClose(list);
}

bool os_is_older(const char *path, long seconds)
{
    WIN32_FILE_ATTRIBUTE_DATA info;
    FILETIME now;
    WCHAR *name = wide_path(path);
    bool known = GetFileAttributesExW(name, GetFileExInfoStandard, &info);
    free(name);
    GetSystemTimeAsFileTime(&now); /* in 100 ns */
    uint64_t then = (uint64_t)info.ftLastWriteTime.dwHighDateTime << 32 |
                    info.ftLastWriteTime.dwLowDateTime;
    uint64_t today = (uint64_t)now.dwHighDateTime << 32 | now.dwLowDateTime;
    return known && then + (uint64_t)seconds * 10000000u <= today;
}
