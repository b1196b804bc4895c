/* A least-recently-used cache of path sets by pair of nodes: a hash table with chains, bounded by the bytes of its
 * sets, and a list from newest to oldest. Each operation is O(1), plus copying the set. Not locked: callers hold a
 * lock. */
#include "path_cache.h"

static inline uint32_t slot_of(const hg_path_cache *c, int32_t u, int32_t v)
{
    const uint64_t key = (uint64_t)(uint32_t)u << 32 | (uint32_t)v;
    return (uint32_t)(key * 0x9E3779B97F4A7C15u >> 32) & (uint32_t)(c->slots - 1); /* Fibonacci hashing */
}

static hg_path_set *find(const hg_path_cache *c, int32_t u, int32_t v)
{
    if (!c->slots)
        return NULL;
    hg_path_set *set = c->slot[slot_of(c, u, v)];
    while (set && (set->u != u || set->v != v))
        set = set->chain;
    return set;
}

static void unlink_set(hg_path_cache *c, hg_path_set *set)
{
    *(set->newer ? &set->newer->older : &c->newest) = set->older;
    *(set->older ? &set->older->newer : &c->oldest) = set->newer;
}

static void link_newest(hg_path_cache *c, hg_path_set *set)
{
    set->newer = NULL;
    set->older = c->newest;
    *(c->newest ? &c->newest->newer : &c->oldest) = set;
    c->newest = set;
}

static int64_t bytes_of(int32_t count) { return (int64_t)sizeof(hg_path_set) + (int64_t)count * (int64_t)sizeof(int32_t); }

static void forget_oldest(hg_path_cache *c)
{
    hg_path_set *set = c->oldest, **link = &c->slot[slot_of(c, set->u, set->v)];
    while (*link != set)
        link = &(*link)->chain;
    *link = set->chain;
    unlink_set(c, set);
    c->bytes -= bytes_of(set->count);
    c->count--;
    free(set);
}

const hg_path_set *hg_path_cache_find(hg_path_cache *c, int32_t u, int32_t v)
{
    hg_path_set *set = find(c, u, v);
    if (set && set != c->newest) {
        unlink_set(c, set);
        link_newest(c, set);
    }
    return set;
}

/* Twice as many slots once there is a set for each. Without memory for that, chains grow longer. */
static void make_slots(hg_path_cache *c)
{
    if (c->count < c->slots)
        return;
    const int64_t slots = c->slots ? 2 * c->slots : 64;
    hg_path_set **slot = slots <= INT32_MAX ? (hg_path_set **)calloc((size_t)slots, sizeof *slot) : NULL;
    if (!slot)
        return;
    free(c->slot);
    c->slot = slot;
    c->slots = slots;
    for (hg_path_set *set = c->newest; set; set = set->older) {
        hg_path_set **link = &slot[slot_of(c, set->u, set->v)];
        set->chain = *link;
        *link = set;
    }
}

void hg_path_cache_put(hg_path_cache *c, int32_t u, int32_t v, const int32_t *nodes, int32_t count)
{
    const int64_t bytes = bytes_of(count);
    if (bytes > c->max_bytes || find(c, u, v))
        return;
    make_slots(c);
    hg_path_set *set = c->slots ? (hg_path_set *)malloc((size_t)bytes) : NULL;
    if (!set)
        return; /* a cache may do without */
    while (c->bytes > c->max_bytes - bytes)
        forget_oldest(c);
    set->u = u;
    set->v = v;
    set->count = count;
    if (count)
        memcpy(set->nodes, nodes, (size_t)count * sizeof *nodes);
    hg_path_set **link = &c->slot[slot_of(c, u, v)];
    set->chain = *link;
    *link = set;
    link_newest(c, set);
    c->bytes += bytes;
    c->count++;
}

void hg_path_cache_close(hg_path_cache *c)
{
    while (c->oldest)
        forget_oldest(c);
    free(c->slot);
    *c = (hg_path_cache){0};
}
