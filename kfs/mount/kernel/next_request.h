/* Reads the next request from /dev/fuse, whose descriptor must not block.

   To wake a daemon that waits in the kernel takes the process that sends a request longer than most answers take us: 20
   to 100 microseconds where it runs on another CPU. A process that reads file after file sends its next request within
   microseconds of the reply. So while requests come that fast, we ask for the next one for a moment before we wait.

   sched_yield() gives the CPU to any process that can use it, such as the one that was just answered. A request that
   comes later than PROMPT_NANOSECONDS ends the asking until requests come fast again: an idle mount takes no CPU. */

#ifndef KFS_NEXT_REQUEST_H
#define KFS_NEXT_REQUEST_H

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

enum {
    ASK_NANOSECONDS = 100000,    /* how long we ask before we wait */
    PROMPT_NANOSECONDS = 200000, /* what comes that soon comes fast; waking us is part of it */
};

static inline long long nanoseconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* How requests come. Its times also tell how long answers take: an answer was given when we asked for the next request. */
typedef struct {
    int asks;         /* whether we ever ask before we wait: not where no other CPU could send a request */
    int comes_fast;   /* whether the last request came fast */
    long long asked;  /* when we asked for it */
    long long came;   /* when it came */
} Arrivals;

/* As read(), but waits for data. until is a time by nanoseconds_now(), 0 for never: at that time errno is ETIMEDOUT, even
   if requests still come. */
static inline ssize_t read_next_request(int device, void *request, size_t size, Arrivals *arrivals, long long until)
{
    arrivals->asked = nanoseconds_now();
    if (until && arrivals->asked >= until) {
        errno = ETIMEDOUT;
        return -1;
    }
    for (;;) {
        ssize_t got = read(device, request, size);
        long long taken;
        arrivals->came = nanoseconds_now();
        taken = arrivals->came - arrivals->asked;
        if (got >= 0 || errno != EAGAIN) {
            arrivals->comes_fast = taken < PROMPT_NANOSECONDS;
            return got;
        }
        if (arrivals->asks && arrivals->comes_fast && taken < ASK_NANOSECONDS) {
            sched_yield();
        } else {
            struct pollfd readable = {device, POLLIN, 0};
            long long left = until ? until - nanoseconds_now() : 0;
            if (left < 0)
                left = 0;
            if (poll(&readable, 1, until ? (int)((left + 999999) / 1000000) : -1) == 0) {
                errno = ETIMEDOUT;
                return -1;
            }
        }
    }
}

#endif
