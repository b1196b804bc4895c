/* A topological order as a linked list with 64-bit keys (Dietz and Sleator, "Two algorithms for maintaining order in a
 * list", STOC 1987): comparing two vertices is comparing keys, and moving a set of them behind a place touches nothing
 * else, until a gap is used up and all keys are numbered again. */
#ifndef HETERO_PARTITION_ORDER_LIST_H
#define HETERO_PARTITION_ORDER_LIST_H

#include <stdint.h>

typedef struct {
    int32_t head;             /* its next is the first vertex; the last one's next is the head */
    uint64_t *key;            /* of the vertices in the list, and 0 for the head */
    int32_t *next, *previous; /* [head + 1] */
} hg_order_list;

enum { HG_GAP_BITS = 31 };

static inline void hg_list_number(hg_order_list *s)
{
    uint64_t key = 0;
    s->key[s->head] = 0;
    for (int32_t x = s->next[s->head]; x != s->head; x = s->next[x])
        s->key[x] = key += (uint64_t)1 << HG_GAP_BITS;
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
    const uint64_t *key = s->key;
    if (count <= 24) {
        for (int32_t i = 1; i < count; i++) {
            const int32_t moved = x[i];
            int32_t j = i;
            for (; j > 0 && key[x[j - 1]] > key[moved]; j--)
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
            if (child + 1 < end && key[x[child + 1]] > key[x[child]])
                child++;
            if (key[x[child]] <= key[moved])
                break;
            x[hole] = x[child];
        }
        x[hole] = moved;
    }
}

/* Moves `count` vertices behind `place`, keeping their order. 1 when all keys had to be numbered again. */
static inline int hg_list_move_behind(hg_order_list *s, int32_t *moved, int32_t count, int32_t place)
{
    hg_list_sort(s, moved, count);
    for (int32_t i = 0; i < count; i++)
        hg_list_unlink(s, moved[i]);
    const uint64_t low = s->key[place];
    const int32_t after = s->next[place];
    const uint64_t high = after == s->head ? low + ((uint64_t)(count + 1) << HG_GAP_BITS) : s->key[after];
    const uint64_t step = (high - low) / ((uint64_t)count + 1);
    int32_t at = place;
    for (int32_t i = 0; i < count; i++) {
        hg_list_link(s, moved[i], at);
        at = moved[i];
        s->key[at] = low + step * (uint64_t)(i + 1);
    }
    if (step)
        return 0;
    hg_list_number(s);
    return 1;
}

#endif
