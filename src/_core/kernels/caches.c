/* The caches of the processor; see caches.h. */
#include "caches.h"

#include <stdatomic.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* Cache parameters that CPUID returns: Intel's Software Developer's Manual, volume 2, leaf 4; AMD's Architecture
 * Programmer's Manual, volume 3, function 0x8000001D, in the same format. Each subleaf describes a cache, up to one of
 * type 0. */
static int ways_by(unsigned leaf)
{
    enum { DATA = 1, MOST_CACHES = 8 };
    unsigned a, b, c, d;
    for (unsigned cache = 0; cache < MOST_CACHES && __get_cpuid_count(leaf, cache, &a, &b, &c, &d); cache++) {
        const unsigned type = a & 31, level = a >> 5 & 7;
        if (type == 0)
            break;
        if (type == DATA && level == 1)
            return (int)(b >> 22) + 1;
    }
    return 0;
}

static int ask(void)
{
    const int ways = ways_by(4);
    return ways ? ways : ways_by(0x8000001d);
}
#else
static int ask(void) { return 0; }
#endif

static atomic_int known;

int ht_l1_ways(void)
{
    enum { LEAST = 8 };
    int ways = atomic_load_explicit(&known, memory_order_relaxed);
    if (ways == 0) {
        /* Once: virtual machines answer CPUID in up to 70 us. */
        ways = ask();
        ways = ways ? ways : LEAST;
        atomic_store_explicit(&known, ways, memory_order_relaxed);
    }
    return ways;
}

void ht_assume_l1_ways(int ways) { atomic_store_explicit(&known, ways, memory_order_relaxed); }
