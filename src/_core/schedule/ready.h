/* Internal to schedule/: sets of numbers first .. first + count - 1 from which the smallest is taken.
 *
 * A tree of bits: a bit of a word says whether the number is in the set, a bit of a word above whether a word below has
 * any. Adding and taking touch one word per level, four levels for a million numbers. */
#ifndef HETERO_SCHEDULE_READY_H
#define HETERO_SCHEDULE_READY_H

#include "../partition/arena.h"

enum { HG_READY_LEVELS = 6 }; /* 64^6 numbers: more than int32 has */

typedef struct {
    int32_t first;
    int levels;
    uint64_t *word[HG_READY_LEVELS]; /* one word at the highest level */
} hg_ready;

/* An empty set; 0 if out of memory. */
static inline int hg_ready_open(hg_ready *set, int32_t first, int32_t count, hg_arena *arena)
{
    *set = (hg_ready){.first = first};
    int64_t words = count;
    do {
        words = words > 64 ? (words + 63) / 64 : 1;
        if (!(set->word[set->levels++] = HG_TAKE_ZEROED(arena, uint64_t, words)))
            return 0;
    } while (words > 1);
    return 1;
}

static inline int hg_ready_none(const hg_ready *set) { return !set->word[set->levels - 1][0]; }

static inline void hg_ready_add(hg_ready *set, int32_t number)
{
    uint32_t i = (uint32_t)(number - set->first);
    for (int level = 0; level < set->levels; level++, i /= 64) {
        const uint64_t before = set->word[level][i / 64];
        set->word[level][i / 64] = before | (uint64_t)1 << i % 64;
        if (before)
            break;
    }
}

/* Takes the smallest number of a set that is not empty. */
static inline int32_t hg_ready_first(hg_ready *set)
{
    uint32_t i = 0;
    for (int level = set->levels; level-- > 0;)
        i = 64 * i + (uint32_t)__builtin_ctzll(set->word[level][i]);
    const int32_t number = set->first + (int32_t)i;
    for (int level = 0; level < set->levels; level++, i /= 64)
        if (set->word[level][i / 64] &= ~((uint64_t)1 << i % 64))
            break;
    return number;
}

#endif
