#include "os.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { PAUSE_MS = 10 };

long os_pid(void)
{
    return (long)getpid();
}

bool os_is_gone(long pid)
{
    return kill((pid_t)pid, 0) && errno == ESRCH;
}

unsigned long os_random(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (unsigned long)now.tv_nsec ^ ((unsigned long)now.tv_sec & 0xffff) << 16;
}

/* Where the lock does not work (a network file system, a start that was stopped and holds it),
   each start unpacks for itself, which is as safe. */
os_file os_wait_turn(const char *folder, int milliseconds)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const struct timespec pause = {0, 1000000L * PAUSE_MS};
    for (int waited = 0; fd >= 0 && waited < milliseconds; waited += PAUSE_MS) {
        if (!flock(fd, LOCK_EX | LOCK_NB) || (errno != EWOULDBLOCK && errno != EINTR))
            break;
        nanosleep(&pause, NULL);
    }
    return fd;
}

void os_end_turn(os_file turn)
{
    if (turn >= 0)
        close((int)turn);
}

void os_arguments(int *count, char ***list)
{
    (void)count; /* the start script names the single file already */
    (void)list;
}

char *os_full_path(const char *path)
{
    return realpath(path, NULL);
}

bool os_set_self(const char *path)
{
    return !setenv("OPENCOTI_SELF", path, 1);
}

void os_run(const char *path, char **argv, struct fail *fail)
{
    execv(path, argv);
    int error = errno;
    if (error == ENOENT && !access(path, F_OK))
        fail_set(fail, FAIL_CANNOT_RUN,
                 "this system lacks the loader that the engine needs (glibc 2.28 or newer)");
    else /* another place may allow what this one does not; no place helps against the rest */
        fail_set(fail, error == E2BIG || error == ENOMEM ? FAIL_CANNOT_RUN : FAIL_NO_SPACE,
                 "%s: %s", path, strerror(error));
}

const char *os_why(void)
{
    return strerror(errno);
}

void os_say(const char *line)
{
    fprintf(stderr, "%s\n", line);
}
