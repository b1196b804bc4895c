/* Signals during long computations: see hg_watch. */
#define _POSIX_C_SOURCE 199309L
#include <time.h>

#include "graph.h"

int hg_poll(hg_watch *watch)
{
    struct timespec clock;
    watch->left = HG_POLL_EVERY;
    if (clock_gettime(CLOCK_MONOTONIC, &clock) == 0) {
        const int64_t now = (int64_t)clock.tv_sec * 1000000000 + clock.tv_nsec;
        if (!watch->polled)
            watch->polled = now;
        if (now - watch->polled < HG_POLL_NS)
            return 0;
        watch->polled = now;
    }
    return watch->poll() != 0;
}

int hg_fill(void *memory, int byte, int64_t bytes, hg_watch *watch)
{
    enum { PIECE = 1 << 20 }; /* bytes between two looks at the watch: 256 page faults in fresh memory */
    for (int64_t done = 0; done < bytes; done += PIECE) {
        memset((char *)memory + done, byte, (size_t)(bytes - done < PIECE ? bytes - done : PIECE));
        if (hg_interrupted(watch, PIECE / 8))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}
