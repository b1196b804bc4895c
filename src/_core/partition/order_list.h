/* A topological order as a linked list with keys: comparing two vertices is comparing keys, and moving a set of
 * them behind a place touches nothing else. When no gap is left there, the smallest aligned range of keys around it that
 * is sparse enough is spread evenly: Bender, Cole, Demaine, Farach-Colton, Zito, "Two simplified algorithms for
 * maintaining order in a list", ESA 2002; O(log n) keys amortized for each vertex moved. */
#ifndef HETERO_PARTITION_ORDER_LIST_H
#define HETERO_PARTITION_ORDER_LIST_H

#include <stdint.h>

#ifndef HG_KEY_STRIDE
#define HG_KEY_STRIDE 1 /* more where keys are part of a record; define it before including this */
#endif

typedef struct {
    int32_t head;             /* its next is the first vertex; the last one's next is the head */
    uint64_t *key;            /* of the vertices in the list, and 0 for the head: see hg_key */
    int32_t *next, *previous; /* [head + 1] */
} hg_order_list;

#ifdef NDEBUG
enum { HG_KEY_BITS = 62 };
#else
enum { HG_KEY_BITS = 28 }; /* so that small graphs run out of gaps, too; enough for millions of vertices */
#endif
static const uint64_t HG_KEY_END = (uint64_t)1 << HG_KEY_BITS;

static inline uint64_t *hg_key(const hg_order_list *s, int32_t x) { return &s->key[(int64_t)x * HG_KEY_STRIDE]; }

/* Keys for the vertices in the list, count of them, as it is linked. */
static inline void hg_list_number(hg_order_list *s, int32_t count)
{
    const uint64_t step = HG_KEY_END / ((uint64_t)count + 1);
    uint64_t key = 0;
    *hg_key(s, s->head) = 0;
    for (int32_t x = s->next[s->head]; x != s->head; x = s->next[x])
        *hg_key(s, x) = key += step;
}

static inline void hg_list_unlink(hg_order_list *s, int32_t x)
{
    s->next[s->previous[x]] = s->next[x];
    s->previous[s->next[x]] = s->previous[x];
}

static inline void hg_list_link(hg_order_list *s, int32_t x, int32_t place)
{
    const int32_t after = s->next[place];
    s->next[place] = x;
    s->previous[x] = place;
    s->next[x] = after;
    s->previous[after] = x;
}

/* Sorts vertices by key: insertion for the usual few, otherwise heap sort (no recursion, no memory). */
static inline void hg_list_sort(const hg_order_list *s, int32_t *x, int32_t count)
{
    if (count <= 24) {
        for (int32_t i = 1; i < count; i++) {
            const int32_t moved = x[i];
            int32_t j = i;
            for (; j > 0 && *hg_key(s, x[j - 1]) > *hg_key(s, moved); j--)
                x[j] = x[j - 1];
            x[j] = moved;
        }
        return;
    }
    for (int32_t end = count, from = count / 2; end > 1;) {
        int32_t moved;
        if (from > 0)
            moved = x[--from];
        else {
            moved = x[--end];
            x[end] = x[0];
        }
        int32_t hole = from;
        for (int32_t child; (child = 2 * hole + 1) < end; hole = child) {
            if (child + 1 < end && *hg_key(s, x[child + 1]) > *hg_key(s, x[child]))
                child++;
            if (*hg_key(s, x[child]) <= *hg_key(s, moved))
                break;
            x[hole] = x[child];
        }
        x[hole] = moved;
    }
}

/* Spreads keys around `place` so that `count` more fit behind it. Number of keys changed. */
static inline int64_t hg_list_make_room(hg_order_list *s, int32_t place, int32_t count)
{
    int32_t first = place, after = s->next[place]; /* the range found so far: first to before `after` */
    int64_t inside = place != s->head;
    for (int bits = 2;; bits += 2) {
        const uint64_t width = (uint64_t)1 << bits, base = *hg_key(s, place) & ~(width - 1);
        while (first != s->head && s->previous[first] != s->head && *hg_key(s, s->previous[first]) >= base) {
            first = s->previous[first];
            inside++;
        }
        while (after != s->head && *hg_key(s, after) - base < width) {
            after = s->next[after];
            inside++;
        }
        /* A range of 2^bits keys is sparse enough with at most 2^(bits / 2) in it; all keys always are. */
        if (bits < HG_KEY_BITS && inside + count >= (int64_t)1 << bits / 2)
            continue;
        const uint64_t step = width / ((uint64_t)(inside + count) + 1);
        uint64_t key = base;
        if (place == s->head) { /* its key stays 0 */
            key += step * (uint64_t)count;
            first = s->next[first];
        }
        for (int32_t x = first; x != after; x = s->next[x]) {
            *hg_key(s, x) = key += step;
            if (x == place)
                key += step * (uint64_t)count;
        }
        return inside;
    }
}

/* Moves `count` vertices behind `place`, keeping their order. Number of keys changed. */
static inline int64_t hg_list_move_behind(hg_order_list *s, int32_t *moved, int32_t count, int32_t place)
{
    int64_t changed = count;
    hg_list_sort(s, moved, count);
    for (int32_t i = 0; i < count; i++)
        hg_list_unlink(s, moved[i]);
    uint64_t step = 0;
    for (int spread = 0; !step; spread = 1) {
        if (spread)
            changed += hg_list_make_room(s, place, count);
        const int32_t after = s->next[place];
        const uint64_t low = *hg_key(s, place), high = after == s->head ? HG_KEY_END : *hg_key(s, after);
        step = (high - low) / ((uint64_t)count + 1);
    }
    /* Near the end keep what room there is for what comes later. */
    const uint64_t most = (uint64_t)1 << HG_KEY_BITS / 2;
    if (s->next[place] == s->head && step > most)
        step = most;
    uint64_t key = *hg_key(s, place);
    for (int32_t i = 0, at = place; i < count; at = moved[i++]) {
        hg_list_link(s, moved[i], at);
        *hg_key(s, moved[i]) = key += step;
    }
    return changed;
}

#endif
