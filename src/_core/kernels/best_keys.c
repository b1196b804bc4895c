/* The k best of n keys, in order: selection, then sorting. best_keys.h states the interface.
 *
 * Data: a *key* is an integer, the larger the better. Its *place* is its index. An *item* is a uint64_t: the key with its
 * sign bit flipped in the upper half, the complement of the place in the lower half. Comparing items as unsigned numbers
 * therefore compares keys, and of equal keys the lower place is better. A *bound* is a key value: keys above it are
 * chosen, and as many of those equal to it, lowest places first, as are still needed.
 *
 * Selection of the k best of n keys of 32 bits (ht_best_keys):
 *   1. Short inputs: n <= SHORT with k <= SHORT_BEST keeps the best so far in order (insertion); n <= SORTED_WHOLE
 *      sorts all keys.
 *   2. Fold (`fold`), if n is at least twice `groups`, 2 k rounded up to LANES: the keys are folded lane by lane into
 *      `groups` maxima. The k-th best of the maxima is a lower bound of the k-th best key, because the maxima are
 *      different keys. Only keys from this bound on remain candidates.
 *   3. Bisection (`bound_of`) over key values: each of at most 32 steps counts the candidates from a value on, in a
 *      plain vector loop.
 *   4. `take` collects the k chosen as items (key and place in 64 bits), `sort_items` orders them: insertion up to FEW
 *      items, else a stable radix sort by bytes, so that equal keys stay in the order of their places.
 * O(n + k), whatever the data.
 *
 * Keys of 64 bits (ht_best_wide_keys): the least key is subtracted, and the highest 32 bits in use (`upper`) are selected
 * as above. Keys whose upper bits equal the bound are then selected by their lower bits, and runs of items with equal
 * upper bits are sorted by their lower bits.
 *
 * Every loop over a long input may be left early because the run is to stop (HT_LONG_FOR): counts and places are then
 * meaningless, and is_stopping guards each use of one as an index.
 */
#include "best_keys.h"

#include "vec.h"

enum {
    LANES = 64,       /* maxima of a fold come in multiples of this: whole vectors in every instruction set */
    FEW = 40,         /* items; up to here insertion sort, beyond it the radix sort with its 4 kB of counts */
    SHORT = 160,      /* keys; up to here, and k up to SHORT_BEST, the best so far are kept in order */
    SHORT_BEST = 8,   /* bounds the insertions per key and the array of the best on the stack */
    SORTED_WHOLE = 20 /* keys; up to here all are sorted */
};
_Static_assert(SORTED_WHOLE >= SHORT_BEST && SORTED_WHOLE * 16 <= 320, "scratch memory stated in best_keys.h");

/* Whether the run must stop, checked after work on n keys. If it must, any loop below may have ended early, and its
 * counts and places must not be used. */
static int is_stopping(int64_t n) { return n > HT_PIECE && ht_stopping(); }

static int32_t count_from(const int32_t *keys, int32_t n, int32_t least)
{
    int32_t count = 0;
    HT_LONG_FOR (i, n)
        count += keys[i] >= least;
    return count;
}

static int32_t count_beyond(const int32_t *keys, int32_t n, int32_t bound)
{
    int32_t count = 0;
    HT_LONG_FOR (i, n)
        count += keys[i] > bound;
    return count;
}

/* A value such that exactly k keys are at least as large. If none exists, the largest value for which more than k are.
 * 0 < k <= n. */
static int32_t bound_of(const int32_t *keys, int32_t n, int32_t k)
{
    int32_t low = INT32_MAX, high = INT32_MIN; /* at least k keys are >= low, fewer than k are > high */
    HT_LONG_FOR (i, n) {
        low = keys[i] < low ? keys[i] : low;
        high = keys[i] > high ? keys[i] : high;
    }
    if (k == n)
        return low;
    if (count_from(keys, n, high) >= k)
        return high;
    while (low < high && !is_stopping(n)) {
        const int32_t middle = (int32_t)(low + (((int64_t)high - low + 1) >> 1)), count = count_from(keys, n, middle);
        if (count == k)
            return middle;
        if (count > k)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Writes the places of all keys >= least in ascending order; returns their number. */
static int32_t places_from(const int32_t *keys, int32_t n, int32_t least, int32_t *places)
{
    enum { BLOCK = 32 }; /* keys compared without a branch before the search looks whether one matched */
    int32_t found = 0, i = 0;
    HT_LONG_STEPS(i, BLOCK, n) {
        int any = 0;
        for (int j = 0; j < BLOCK; j++)
            any |= keys[i + j] >= least;
        for (int j = 0; any && j < BLOCK; j++) {
            places[found] = i + j;
            found += keys[i + j] >= least;
        }
    }
    for (; i < n; i++) {
        places[found] = i;
        found += keys[i] >= least;
    }
    return found;
}

/* See the header: the larger item is the better one. */
HT_INLINE uint64_t item_of(int32_t key, int32_t place)
{
    return (uint64_t)((uint32_t)key ^ 0x80000000u) << 32 | (uint32_t)~place;
}

/* Sorts items, best first, in `items` or in `spare` (of the same size); returns the array that holds the result. Items
 * with equal keys must be in the order of their places. */
static uint64_t *sort_items(uint64_t *items, uint64_t *spare, int32_t n)
{
    enum { DIGITS = 4, VALUES = 256 }; /* bytes of a 32-bit key */
    if (n <= FEW) {
        for (int32_t i = 1; i < n; i++) {
            const uint64_t item = items[i];
            int32_t at = i;
            for (; at > 0 && items[at - 1] < item; at--)
                items[at] = items[at - 1];
            items[at] = item;
        }
        return items;
    }
    int32_t counts[DIGITS][VALUES] = {0}; /* least significant digit first; stable, so places stay in order */
    HT_LONG_FOR (i, n)
        for (int digit = 0; digit < DIGITS; digit++)
            counts[digit][items[i] >> (32 + 8 * digit) & (VALUES - 1)]++;
    for (int digit = 0; digit < DIGITS; digit++) {
        if (is_stopping(n)) /* the counts may be incomplete: do not scatter by them */
            break;
        int32_t *count = counts[digit], before = 0;
        if (count[items[0] >> (32 + 8 * digit) & (VALUES - 1)] == n)
            continue;
        for (int value = VALUES - 1; value >= 0; value--) {
            const int32_t here = count[value];
            count[value] = before;
            before += here;
        }
        HT_LONG_FOR (i, n)
            spare[count[items[i] >> (32 + 8 * digit) & (VALUES - 1)]++] = items[i];
        uint64_t *sorted = spare;
        spare = items;
        items = sorted;
    }
    return items;
}

/* Writes k items: all keys above `least`, which are at most k, and the first of those equal to it. places: the place of
 * each key; NULL if key i has place i. If the run must stop, some of the items are undefined. */
static int32_t take(const int32_t *keys, const int32_t *places, int32_t n, int32_t least, int32_t k, uint64_t *items)
{
    int32_t equal = k - count_beyond(keys, n, least), taken = 0;
    for (int32_t i = 0; taken < k && i < n && !ht_stops_at(i); i++) {
        const int takes = keys[i] > least || (keys[i] == least && equal > 0);
        items[taken] = item_of(keys[i], places ? places[i] : i);
        taken += takes;
        equal -= takes && keys[i] == least;
    }
    return k;
}

/* maxima[g] = the largest of keys[g], keys[g + groups], keys[g + 2 * groups], ... */
static void fold(const int32_t *keys, int32_t n, int64_t groups, int32_t *maxima)
{
    int64_t left = HT_PACE;
    ht_long_copy(maxima, keys, groups * (int64_t)sizeof *keys);
    for (int64_t i = groups; i < n; i += groups) {
        const int64_t count = ht_min64(groups, n - i);
        if (ht_paced_stop(&left, count))
            return;
        HT_LONG_FOR (j, count)
            maxima[j] = keys[i + j] > maxima[j] ? keys[i + j] : maxima[j];
    }
}

/* The number of maxima to fold n keys into for the k best; 0 if folding does not pay. */
static int64_t groups_of(int32_t n, int32_t k)
{
    const int64_t groups = (2 * (int64_t)k + LANES - 1) / LANES * LANES;
    return 2 * groups <= n ? groups : 0;
}

/* Scratch memory of a selection: items and a spare array for sorting k of them, and the candidates' places and keys. */
typedef struct {
    uint64_t *items, *spare;
    int32_t *places, *chosen;
} room;

static room room_of(int32_t n, int32_t k, void *scratch)
{
    const int32_t most = k > SORTED_WHOLE ? k : SORTED_WHOLE;
    uint64_t *items = (uint64_t *)scratch;
    int32_t *places = (int32_t *)(items + 2 * most);
    return (room){items, items + most, places, places + n};
}

/* Makes all keys >= bound candidates; returns their number. */
static int32_t choose_from(const int32_t *keys, int32_t n, int32_t bound, const room *r)
{
    const int32_t found = places_from(keys, n, bound, r->places);
    if (is_stopping(n))
        return 1; /* any valid count: the result is not used */
    HT_LONG_FOR (i, found)
        r->chosen[i] = keys[r->places[i]];
    return found;
}

static int32_t choose_all(const int32_t *keys, int32_t n, const room *r)
{
    ht_long_copy(r->chosen, keys, n * (int64_t)sizeof *keys);
    HT_LONG_FOR (i, n)
        r->places[i] = (int32_t)i;
    return n;
}

const uint64_t *ht_best_keys(const int32_t *keys, int32_t n, int32_t k, void *scratch)
{
    HT_ASSERT(0 < k && k <= n && ((uintptr_t)scratch & 7) == 0);
    const room r = room_of(n, k, scratch);
    uint64_t *items = r.items, *spare = r.spare;
    if (n <= SHORT && k <= SHORT_BEST) { /* insertion into the best so far */
        uint64_t best[SHORT_BEST] = {0};
        for (int32_t i = 0; i < k; i++)
            best[i] = item_of(keys[i], i);
        uint64_t *const sorted = sort_items(best, spare, k);
        int32_t worst = keys[(uint32_t)~sorted[k - 1]];
        for (int32_t i = k; i < n; i++) {
            if (keys[i] <= worst)
                continue;
            const uint64_t item = item_of(keys[i], i);
            int32_t at = k - 1;
            for (; at > 0 && best[at - 1] < item; at--)
                best[at] = best[at - 1];
            best[at] = item;
            worst = keys[(uint32_t)~best[k - 1]];
        }
        memcpy(items, best, sizeof best);
        return items;
    }
    if (n <= SORTED_WHOLE) {
        for (int32_t i = 0; i < n; i++)
            items[i] = item_of(keys[i], i);
        return sort_items(items, spare, n);
    }
    const int64_t groups = groups_of(n, k);
    int32_t found;
    if (groups) {
        fold(keys, n, groups, r.chosen); /* r.chosen is free until choose_from */
        const int32_t bound = bound_of(r.chosen, (int32_t)groups, k);
        if (count_from(keys, n, bound) > 4 * groups && count_beyond(keys, n, bound) < k) /* many keys equal the k-th best */
            return sort_items(items, spare, take(keys, NULL, n, bound, k, items));
        found = choose_from(keys, n, bound, &r);
    } else {
        found = choose_all(keys, n, &r);
    }
    return sort_items(items, spare, take(r.chosen, r.places, found, bound_of(r.chosen, found, k), k, items));
}

/* Insertion into the k best so far. k <= SHORT_BEST. */
static const uint64_t *best_of_short(const int64_t *keys, int32_t n, int32_t k, uint64_t *items)
{
    enum { BLOCK = 8 }; /* keys: a cache line, compared without a branch */
    int64_t best[SHORT_BEST];
    for (int32_t i = 0; i < n; i++) {
        if (i >= k) {
            const int64_t worst = best[k - 1];
            while (i + BLOCK <= n) {
                int any = 0;
                for (int j = 0; j < BLOCK; j++)
                    any |= keys[i + j] > worst;
                if (any)
                    break;
                i += BLOCK;
            }
            while (i < n && keys[i] <= worst)
                i++;
            if (i == n)
                break;
        }
        int32_t at = i < k ? i : k - 1;
        for (; at > 0 && best[at - 1] < keys[i]; at--) {
            best[at] = best[at - 1];
            items[at] = items[at - 1];
        }
        best[at] = keys[i];
        items[at] = item_of(0, i);
    }
    return items;
}

const uint64_t *ht_best_wide_keys(const int64_t *keys, int32_t n, int32_t k, void *scratch)
{
    HT_ASSERT(0 < k && k <= n && ((uintptr_t)scratch & 7) == 0);
    if (n <= SHORT && k <= SHORT_BEST)
        return best_of_short(keys, n, k, (uint64_t *)scratch);
    int64_t least = keys[0], most = keys[0];
    HT_LONG_FOR (i, n) {
        least = keys[i] < least ? keys[i] : least;
        most = keys[i] > most ? keys[i] : most;
    }
    const uint64_t origin = (uint64_t)least, range = (uint64_t)most - origin;
    const int shift = range >> 32 ? 32 - __builtin_clzll(range) : 0;
    int32_t *upper = (int32_t *)scratch;
    HT_LONG_FOR (i, n)
        upper[i] = (int32_t)((uint32_t)(((uint64_t)keys[i] - origin) >> shift) ^ 0x80000000u);
    void *rest = upper + ((int64_t)n + 1) / 2 * 2;
    if (shift == 0)
        return ht_best_keys(upper, n, k, rest);
#define LOWER(place) ((int32_t)((uint32_t)((uint64_t)keys[place] - origin) ^ 0x80000000u))

    const room r = room_of(n, k, rest);
    const int64_t groups = groups_of(n, k);
    int32_t found;
    if (groups) {
        fold(upper, n, groups, r.chosen); /* r.chosen is free until choose_from */
        found = choose_from(upper, n, bound_of(r.chosen, (int32_t)groups, k), &r);
    } else {
        found = choose_all(upper, n, &r);
    }
    const int32_t bound = bound_of(r.chosen, found, k), whole = count_from(r.chosen, found, bound) == k;
    int32_t taken = 0, equal = 0;
    if (is_stopping(n)) /* the bound is not valid: more than k keys may be above it */
        return r.items;
    HT_LONG_FOR (i, found) {
        const int32_t key = r.chosen[i], place = r.places[i];
        if (key > bound || (whole && key == bound))
            r.items[taken++] = item_of(key, place);
        else if (key == bound)
            r.places[equal++] = place;
    }
    if (is_stopping(n))
        return r.items;
    if (taken < k) {
        HT_LONG_FOR (i, equal)
            r.chosen[i] = LOWER(r.places[i]);
        const uint64_t *best = ht_best_keys(r.chosen, equal, k - taken, r.places + 2 * (int64_t)n);
        if (is_stopping(n))
            return r.items;
        for (int32_t i = 0; taken < k; i++)
            r.items[taken++] = item_of(bound, r.places[ht_place_of(best[i])]);
    }
    uint64_t *items = sort_items(r.items, r.spare, k), *spare = items == r.items ? r.spare : r.items;
    if (is_stopping(n))
        return items;
    for (int32_t begin = 0, end; begin < k; begin = end) { /* all runs but the last are in the order of places */
        for (end = begin + 1; end < k && items[end] >> 32 == items[begin] >> 32; end++)
            continue;
        if (end == begin + 1)
            continue;
        for (int32_t i = begin; i < end; i++) {
            const int32_t place = ht_place_of(items[i]);
            items[i] = item_of(LOWER(place), place);
        }
        const uint64_t *sorted = sort_items(items + begin, spare + begin, end - begin);
        if (sorted != items + begin)
            memcpy(items + begin, sorted, (size_t)(end - begin) * sizeof *items);
    }
    return items;
#undef LOWER
}
