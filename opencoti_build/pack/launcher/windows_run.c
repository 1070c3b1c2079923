#include "windows.h"

#include <shellapi.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

long os_pid(void)
{
    return (long)GetCurrentProcessId();
}

bool os_is_gone(long pid)
{
    HANDLE process = OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION | SYNCHRONIZE, FALSE, (DWORD)pid);
    if (!process)
        return GetLastError() == ERROR_INVALID_PARAMETER;
    bool gone = WaitForSingleObject(process, 0) == WAIT_OBJECT_0;
    CloseHandle(process);
    return gone;
}

unsigned long os_random(void)
{
    LARGE_INTEGER count;
    FILETIME now;
    QueryPerformanceCounter(&count);
    GetSystemTimeAsFileTime(&now);
    return count.LowPart ^ now.dwLowDateTime << 8;
}

/* A mutex named after the folder; the system frees it when its holder is killed. */
os_file os_wait_turn(const char *folder, int milliseconds)
{
    unsigned long long hash = 14695981039346656037u; /* FNV-1a */
    for (const char *at = folder; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 1099511628211u;
    char *name = text("Local\\opencoti-%016llx", hash);
    WCHAR *name16 = wide(name);
    HANDLE mutex = CreateMutexW(NULL, FALSE, name16);
    free(name16);
    free(name);
    if (mutex)
        WaitForSingleObject(mutex, (DWORD)milliseconds);
    return mutex ? (os_file)mutex : OS_NONE;
}

void os_end_turn(os_file turn)
{
    if (turn != OS_NONE) {
        ReleaseMutex((HANDLE)turn);
        CloseHandle((HANDLE)turn);
    }
}

static char *own_path(void)
{
    for (DWORD room = 512; room <= 65536; room *= 2) {
        WCHAR *path = memory(sizeof *path * room);
        DWORD length = GetModuleFileNameW(NULL, path, room);
        char *out = length && length < room ? narrow(path) : NULL;
        free(path);
        if (out || !length)
            return out;
    }
    return NULL;
}

void os_arguments(int *count, char ***list)
{
    int have = 0;
    WCHAR **given = CommandLineToArgvW(GetCommandLineW(), &have);
    char *self = own_path(), **out = memory(sizeof *out * ((unsigned long)have + 3));
    int used = 0;
    out[used++] = text("%s", "launcher");
    if (self)
        out[used++] = self;
    for (int i = 1; self && i < have; i++)
        out[used++] = narrow(given[i]);
    out[used] = NULL;
    LocalFree(given);
    *count = used;
    *list = out;
}

char *os_full_path(const char *path)
{
    WCHAR *name = wide_path(path);
    char *out;
    /* the plain form where it does as well: other programs may not know the long one */
    if (wcslen(name) < MAX_PATH + 4 && !wcsncmp(name, L"\\\\?\\", 4) && name[5] == ':')
        out = narrow(name + 4);
    else
        out = narrow(name);
    free(name);
    return out;
}

bool os_set_self(const char *path)
{
    WCHAR *value = wide(path);
    bool set = SetEnvironmentVariableW(L"OPENCOTI_SELF", value);
    free(value);
    return set;
}

/* Append `argument` so that CommandLineToArgvW and the C library read it back: backslashes count
   double only before a quote. */
static char *quote(char *at, const char *argument)
{
    bool plain = *argument && !argument[strcspn(argument, " \t\n\v\"")];
    size_t slashes = 0;
    if (!plain)
        *at++ = '"';
    for (;; argument++) {
        if (*argument == '\\') {
            slashes++;
            *at++ = '\\';
            continue;
        }
        bool doubled = *argument == '"' || (!*argument && !plain);
        for (; doubled && slashes; slashes--)
            *at++ = '\\';
        slashes = 0;
        if (!*argument)
            break;
        if (*argument == '"')
            *at++ = '\\';
        *at++ = *argument;
    }
    if (!plain)
        *at++ = '"';
    return at;
}

static WCHAR *command_line(char **argv)
{
    size_t room = 1;
    for (char **item = argv; *item; item++)
        room += 2 * strlen(*item) + 3;
    char *line = memory(room), *at = line;
    for (char **item = argv; *item; item++) {
        if (item != argv)
            *at++ = ' ';
        at = quote(at, *item);
    }
    *at = 0;
    WCHAR *out = wide(line);
    free(line);
    return out;
}

/* Ctrl-C and the like reach the engine too, which is in the same console: it decides, and this
   program ends with it. When the console closes, the system allows a few seconds for that. */
static BOOL WINAPI wait_for_engine(DWORD event)
{
    if (event != CTRL_C_EVENT && event != CTRL_BREAK_EVENT)
        Sleep(INFINITE);
    return TRUE;
}

/* Make the engine end when this program is killed. */
static void tie(HANDLE process)
{
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits = {0};
    HANDLE job = CreateJobObjectW(NULL, NULL); /* open as long as this program runs */
    limits.BasicLimitInformation.LimitFlags =
        JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE | JOB_OBJECT_LIMIT_SILENT_BREAKAWAY_OK;
    if (job && SetInformationJobObject(job, JobObjectExtendedLimitInformation, &limits,
                                       sizeof limits))
        AssignProcessToJobObject(job, process);
}

void os_run(const char *path, char **argv, struct fail *fail)
{
    STARTUPINFOW start = {.cb = sizeof start};
    PROCESS_INFORMATION made;
    char *plain = os_full_path(path);
    WCHAR *program = wide(plain), *line = command_line(argv);
    SetConsoleCtrlHandler(wait_for_engine, TRUE);
    bool started = CreateProcessW(program, line, NULL, NULL, TRUE, CREATE_SUSPENDED, NULL, NULL,
                                  &start, &made);
    free(program);
    free(line);
    if (started) {
        DWORD code = FAIL_CANNOT_RUN;
        tie(made.hProcess);
        ResumeThread(made.hThread);
        WaitForSingleObject(made.hProcess, INFINITE);
        GetExitCodeProcess(made.hProcess, &code);
        ExitProcess(code);
    }
    DWORD error = GetLastError();
    fail_set(fail, error == ERROR_FILENAME_EXCED_RANGE ? FAIL_CANNOT_RUN : FAIL_NO_SPACE, "%s: %s",
             plain, os_why());
    SetConsoleCtrlHandler(wait_for_engine, FALSE);
    free(plain);
}
