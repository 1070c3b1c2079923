/* The .args file: default arguments that a bundled file carries. */
#ifndef OPENCOTI_ARGS_H
#define OPENCOTI_ARGS_H

#include <stddef.h>

/* The engine's argument vector (malloc'ed, NULL-terminated): `self`, then the arguments.

   `data` is the text of .args or NULL: one argument a line, split at CR or LF, blank lines
   vanish. A line "..." stands for the user's arguments (`user`, `count` of them); without one,
   the file counts only when the user gives no argument. `data` is changed and must be kept. */
char **args_build(char *self, char *data, char **user, size_t count);

#endif
