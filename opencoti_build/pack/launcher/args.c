#include "args.h"

#include "fail.h"

#include <stdbool.h>
#include <string.h>

/* The next line that is not blank, or NULL. */
static char *next(char **at)
{
    while (**at) {
        char *line = *at;
        size_t length = strcspn(line, "\r\n");
        *at += length + (line[length] != 0);
        line[length] = 0;
        if (line[strspn(line, " \t")])
            return line;
    }
    return NULL;
}

char **args_build(char *self, char *data, char **user, size_t count)
{
    size_t room = count + 2, used = 0;
    for (const char *at = data; at && *at; at++)
        room += *at == '\n' || *at == '\r';
    char **list = memory((room + 1) * sizeof *list);
    bool placed = false;
    list[used++] = self;
    for (char *line; data && (line = next(&data));) {
        if (strcmp(line, "...")) {
            list[used++] = line;
        } else if (!placed) {
            memcpy(list + used, user, count * sizeof *list);
            used += count;
            placed = true;
        }
    }
    if (!placed && count) {
        used = 1;
        memcpy(list + used, user, count * sizeof *list);
        used += count;
    }
    list[used] = NULL;
    return list;
}
