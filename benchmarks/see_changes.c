/* When changes of files can be seen by who asks for them again and again.
 *
 *     see_changes < LIST
 *
 * Each line of LIST is a size in bytes and a path: it is waited until the file has at least that size, or, with the
 * size -1, until it is gone. One after another is stat'ed, with a pause of a millisecond, and the time
 * (CLOCK_MONOTONIC, nanoseconds) printed at which it was so. Files that are to go are looked at once before all that, so
 * that whoever serves them has shown them; a line "ready" follows that.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define PAUSE_NANOSECONDS 1000000

struct change {
    long long size; /* -1: the file is to go */
    char *path;
};

static int is_seen(const struct change *change)
{
    struct stat found;
    int is_there = stat(change->path, &found) == 0;

    return change->size < 0 ? !is_there : is_there && found.st_size >= change->size;
}

static struct change *read_list(size_t *count)
{
    struct change *changes = NULL;
    char *line = NULL;
    size_t room = 0;
    ssize_t length;

    for (*count = 0; (length = getline(&line, &room, stdin)) > 0; ++*count) {
        char *path;
        line[length - 1] = 0;
        changes = realloc(changes, (*count + 1) * sizeof *changes);
        changes[*count].size = strtoll(line, &path, 10);
        changes[*count].path = strdup(path + 1);
    }
    free(line);
    return changes;
}

int main(void)
{
    const struct timespec pause = {0, PAUSE_NANOSECONDS};
    size_t count;
    struct change *changes = read_list(&count);

    for (size_t at = 0; at < count; ++at)
        if (changes[at].size < 0 && is_seen(&changes[at])) {
            fprintf(stderr, "%s: not there\n", changes[at].path);
            return 1;
        }
    puts("ready");
    fflush(stdout);
    for (size_t at = 0; at < count; ++at) {
        struct timespec now;
        while (!is_seen(&changes[at]))
            nanosleep(&pause, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
        printf("%" PRId64 "\n", (int64_t)now.tv_sec * 1000000000 + now.tv_nsec);
    }
    return 0;
}
