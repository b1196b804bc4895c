/* Sorting nodes by key, the highest rank first.
 *
 * Keys are minus ranks. A radix sort of the ranks as 32-bit floats, which round without changing the order, takes three
 * passes over eight bytes per node; then the few that became equal are sorted by the whole key. Linear, unless
 * many keys differ by less than a 32-bit float can hold. */
#include "../heap.h"
#include "schedule.h"

enum { BITS = 11, DIGITS = 1 << BITS, PASSES = 3, SMALL = 64 /* sorted by insertion: fewer steps than to clear counts */ };

typedef struct {
    uint32_t code; /* rises as the rank falls */
    int32_t node;
} entry;

static int is_sorted(const double *key, const int32_t *node, int32_t count)
{
    for (int32_t i = 1; i < count; i++)
        if (key[node[i]] < key[node[i - 1]])
            return 0;
    return 1;
}

static void sort_by_insertion(const double *key, int32_t *node, int32_t count)
{
    for (int32_t i = 1; i < count; i++) {
        const int32_t moved = node[i];
        const double own = key[moved];
        int32_t j = i;
        for (; j > 0 && key[node[j - 1]] > own; j--)
            node[j] = node[j - 1];
        node[j] = moved;
    }
}

/* room: for as many entries, and as many numbers behind. */
static void sort_by_heap(const double *key, int32_t *node, int32_t count, hg_entry *room)
{
    int32_t *before = (int32_t *)(room + count);
    hg_heap heap = {room, 0};
    memcpy(before, node, (size_t)count * sizeof *node);
    for (int32_t i = 0; i < count; i++)
        hg_push(&heap, key[node[i]], i);
    for (int32_t i = 0; i < count; i++)
        node[i] = before[hg_pop(&heap)];
}

static uint32_t code_of(double key)
{
    const float rank = (float)(0 - key); /* never -0 */
    uint32_t bits;
    memcpy(&bits, &rank, sizeof bits);
    return ~bits; /* the bits of floats of one sign are in the order of the floats */
}

int hg_sort_by_key(const double *key, int32_t *node, int32_t count, hg_arena *arena, hg_watch *watch)
{
    if (count <= SMALL) {
        sort_by_insertion(key, node, count);
        return HG_OK;
    }
    if (hg_interrupted(watch, 16 * (int64_t)count))
        return HG_INTERRUPTED;
    if (is_sorted(key, node, count))
        return HG_OK;
    const hg_mark mark = hg_arena_mark(arena);
    entry *from = HG_TAKE(arena, entry, count), *to = HG_TAKE(arena, entry, count);
    int32_t(*at)[DIGITS] = (int32_t(*)[DIGITS])HG_TAKE_ZEROED(arena, int32_t, PASSES * DIGITS);
    if (!from || !to || !at)
        return HG_NO_MEMORY;
    for (int32_t i = 0; i < count; i++) {
        from[i] = (entry){code_of(key[node[i]]), node[i]};
        for (int pass = 0; pass < PASSES; pass++)
            at[pass][from[i].code >> pass * BITS & (DIGITS - 1)]++;
    }
    for (int pass = 0; pass < PASSES; pass++) {
        int32_t sum = 0;
        for (int digit = 0; digit < DIGITS; digit++) {
            const int32_t own = at[pass][digit];
            at[pass][digit] = sum;
            sum += own;
        }
        for (int32_t i = 0; i < count; i++)
            to[at[pass][from[i].code >> pass * BITS & (DIGITS - 1)]++] = from[i];
        entry *const sorted = to;
        to = from;
        from = sorted;
        if (hg_interrupted(watch, 8 * (int64_t)count))
            return HG_INTERRUPTED;
    }
    for (int32_t i = 0; i < count; i++)
        node[i] = from[i].node;
    hg_entry *room = NULL;
    for (int32_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && from[end].code == from[first].code;)
            end++;
        if (end - first <= SMALL)
            sort_by_insertion(key, node + first, end - first);
        else if (!is_sorted(key, node + first, end - first)) {
            if (!room && !(room = (hg_entry *)hg_take(arena, count, sizeof *room + sizeof *node)))
                return HG_NO_MEMORY;
            sort_by_heap(key, node + first, end - first, room);
        }
    }
    hg_arena_release(arena, mark);
    return hg_interrupted(watch, 8 * (int64_t)count) ? HG_INTERRUPTED : HG_OK;
}
