#include "windows.h"

#include "cache.h"

#include <aclapi.h>
#include <sddl.h>
#include <stdlib.h>
#include <string.h>

const int os_places = 3;
const char os_separators[] = "/\\";

bool os_runs(const char *path)
{
    (void)path;
    return true;
}

/* Place 0: %OPENCOTI_HOME% or %USERPROFILE%\.llamafile. */
static char *home(struct fail *fail)
{
    char *base = setting(L"OPENCOTI_HOME"), *user = setting(L"USERPROFILE");
    char *path = base ? os_full_path(base) : user ? text("%s/.llamafile", user) : NULL;
    if (!path)
        fail_set(fail, FAIL_NO_SPACE, "USERPROFILE is not set");
    else if (!base && !os_is_folder(user))
        fail_set(fail, FAIL_NO_SPACE, "%s: not a folder", user);
    else if (cache_make(path, fail)) {
        free(base);
        free(user);
        return path;
    }
    free(base);
    free(user);
    free(path);
    return NULL;
}

/* This user's SID as text, LocalFree'd by the caller; `block` holds the token's data. */
static WCHAR *user_sid(TOKEN_USER *block, DWORD size)
{
    HANDLE token;
    WCHAR *sid = NULL;
    if (!OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &token))
        return NULL;
    if (!GetTokenInformation(token, TokenUser, block, size, &size) ||
        !ConvertSidToStringSidW(block->User.Sid, &sid))
        sid = NULL;
    CloseHandle(token);
    return sid;
}

/* Make `path` so that only this user and the system can enter it. */
static bool make_private(const WCHAR *path, const char *sid)
{
    SECURITY_ATTRIBUTES attributes = {sizeof attributes, NULL, FALSE};
    char *rights = text("O:%sD:P(A;OICI;FA;;;%s)(A;OICI;FA;;;SY)", sid, sid);
    WCHAR *rights16 = wide(rights);
    bool made = ConvertStringSecurityDescriptorToSecurityDescriptorW(
                    rights16, SDDL_REVISION_1, &attributes.lpSecurityDescriptor, NULL) &&
                (CreateDirectoryW(path, &attributes) || GetLastError() == ERROR_ALREADY_EXISTS);
    DWORD error = GetLastError();
    LocalFree(attributes.lpSecurityDescriptor);
    free(rights16);
    free(rights);
    SetLastError(error);
    return made;
}

/* Whether `path` is a folder, not a link, that this user owns: nobody else can have made it. */
static bool is_own(const WCHAR *path, PSID user)
{
    PSECURITY_DESCRIPTOR descriptor = NULL;
    PSID owner = NULL;
    DWORD bits = GetFileAttributesW(path);
    bool own = bits != INVALID_FILE_ATTRIBUTES && bits & FILE_ATTRIBUTE_DIRECTORY &&
               !(bits & FILE_ATTRIBUTE_REPARSE_POINT) &&
               !GetNamedSecurityInfoW((WCHAR *)path, SE_FILE_OBJECT, OWNER_SECURITY_INFORMATION,
                                      &owner, NULL, NULL, NULL, &descriptor) &&
               owner && EqualSid(owner, user);
    LocalFree(descriptor);
    return own;
}

/* The other places: "opencoti-<SID>" in folders that may be shared, for this user alone. */
static char *private(char *base, struct fail *fail)
{
    union {
        TOKEN_USER user;
        char room[256];
    } token;
    WCHAR *sid16 = base ? user_sid(&token.user, sizeof token) : NULL;
    if (!sid16) {
        fail_set(fail, FAIL_NO_SPACE, base ? "this user has no SID" : "no such place");
        free(base);
        return NULL;
    }
    char *sid = narrow(sid16), *path = text("%s/opencoti-%s", base, sid);
    WCHAR *name = wide_path(path);
    bool good = make_private(name, sid);
    if (!good)
        fail_set(fail, FAIL_NO_SPACE, "%s: %s", path, os_why());
    else if (!is_own(name, token.user.User.Sid))
        good = fail_set(fail, FAIL_NO_SPACE, "%s: not a private folder of this user", path);
    LocalFree(sid16);
    free(name);
    free(sid);
    free(base);
    if (good)
        return path;
    free(path);
    return NULL;
}

static char *temporary(void)
{
    WCHAR path[MAX_PATH + 2];
    DWORD length = GetTempPathW(MAX_PATH + 2, path);
    if (!length || length > MAX_PATH + 1)
        return NULL;
    if (path[length - 1] == '\\')
        path[length - 1] = 0;
    return narrow(path);
}

char *os_place(int place, struct fail *fail)
{
    switch (place) {
    case 0:
        return home(fail);
    case 1:
        return private(setting(L"LOCALAPPDATA"), fail);
    default:
        return private(temporary(), fail);
    }
}
