/* Shared by the windows_*.c files: UTF-8 outside, UTF-16 for the system. */
#ifndef OPENCOTI_WINDOWS_H
#define OPENCOTI_WINDOWS_H

#include "os.h"

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

/* UTF-16 of UTF-8 and back, malloc'ed. What is not well-formed becomes U+FFFD. */
WCHAR *wide(const char *utf8);
char *narrow(const WCHAR *utf16);
/* `path` in the form without length limit (\\?\C:\...), malloc'ed. */
WCHAR *wide_path(const char *path);
/* An environment variable as UTF-8, malloc'ed; NULL when it is not set or empty. */
char *setting(const WCHAR *name);

#endif
