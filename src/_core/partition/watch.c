/* Signals during long computations: see hg_watch. */
#include "../system.h"

#include "graph.h"

int hg_poll(hg_watch *watch)
{
    const int64_t now = ht_now_ns();
    watch->left = HG_POLL_EVERY;
    if (!watch->polled)
        watch->polled = now;
    if (now - watch->polled < HG_POLL_NS)
        return 0;
    watch->polled = now;
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
