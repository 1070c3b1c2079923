#include "windows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

WCHAR *wide(const char *utf8)
{
    int length = MultiByteToWideChar(CP_UTF8, 0, utf8, -1, NULL, 0);
    WCHAR *out = memory(sizeof *out * (unsigned long)(length > 0 ? length : 1));
    if (length <= 0 || !MultiByteToWideChar(CP_UTF8, 0, utf8, -1, out, length))
        out[0] = 0;
    return out;
}

char *narrow(const WCHAR *utf16)
{
    int length = WideCharToMultiByte(CP_UTF8, 0, utf16, -1, NULL, 0, NULL, NULL);
    char *out = memory((unsigned long)(length > 0 ? length : 1));
    if (length <= 0 || !WideCharToMultiByte(CP_UTF8, 0, utf16, -1, out, length, NULL, NULL))
        out[0] = 0;
    return out;
}

/* The full path of `path`, with room for `before` characters in front. */
static WCHAR *full(const WCHAR *path, size_t before)
{
    DWORD room = GetFullPathNameW(path, 0, NULL, NULL);
    WCHAR *out = memory(sizeof *out * (before + room + 1));
    DWORD length = room ? GetFullPathNameW(path, room, out + before, NULL) : 0;
    if (!length || length >= room)
        wcsncpy(out + before, path, room), out[before + room] = 0;
    return out;
}

WCHAR *wide_path(const char *path)
{
    WCHAR *given = wide(path);
    for (WCHAR *at = given; *at; at++)
        if (*at == L'/')
            *at = L'\\';
    WCHAR *out = full(given, 6);
    const WCHAR *start = out + 6;
    if (!wcsncmp(start, L"\\\\?\\", 4) || !wcsncmp(start, L"\\\\.\\", 4))
        wmemmove(out, start, wcslen(start) + 1);
    else if (!wcsncmp(start, L"\\\\", 2)) { /* \\server\share */
        wmemmove(out + 8, start + 2, wcslen(start + 2) + 1);
        wmemcpy(out, L"\\\\?\\UNC\\", 8);
    } else {
        wmemmove(out + 4, start, wcslen(start) + 1);
        wmemcpy(out, L"\\\\?\\", 4);
    }
    free(given);
    return out;
}

char *setting(const WCHAR *name)
{
    char *out = NULL;
    DWORD room = GetEnvironmentVariableW(name, NULL, 0);
    if (room > 1) {
        WCHAR *value = memory(sizeof *value * room);
        DWORD length = GetEnvironmentVariableW(name, value, room);
        if (length && length < room)
            out = narrow(value);
        free(value);
    }
    return out;
}

const char *os_why(void)
{
    static char why[512];
    DWORD error = GetLastError();
    WCHAR line[256];
    DWORD length = FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, NULL,
                                  error, 0, line, sizeof line / sizeof *line, NULL);
    while (length && (line[length - 1] <= ' ' || line[length - 1] == '.'))
        length--;
    line[length < sizeof line / sizeof *line ? length : 0] = 0;
    char *utf8 = narrow(line);
    snprintf(why, sizeof why, "%s (error %lu)", utf8, error);
    free(utf8);
    return why;
}

void os_say(const char *line)
{
    HANDLE out = GetStdHandle(STD_ERROR_HANDLE);
    DWORD mode, done;
    if (GetConsoleMode(out, &mode)) { /* a console wants UTF-16, whatever its code page is */
        WCHAR *text16 = wide(line);
        WriteConsoleW(out, text16, (DWORD)wcslen(text16), &done, NULL);
        WriteConsoleW(out, L"\n", 1, &done, NULL);
        free(text16);
        return;
    }
    WriteFile(out, line, (DWORD)strlen(line), &done, NULL);
    WriteFile(out, "\n", 1, &done, NULL);
}
