/* Binary heaps of numbers by key, the smallest key first, of equal keys the smallest number. */
#ifndef HETERO_HEAP_H
#define HETERO_HEAP_H

#include <stdint.h>

typedef struct {
    double key;
    int32_t number;
} hg_entry;
typedef struct {
    hg_entry *entry; /* room for all that it ever holds at the same time */
    int32_t count;
} hg_heap;

static inline int hg_before(hg_entry a, hg_entry b)
{
    return a.key < b.key || (a.key == b.key && a.number < b.number);
}

static inline void hg_push(hg_heap *heap, double key, int32_t number)
{
    const hg_entry new = {key, number};
    int32_t i = heap->count++;
    while (i && hg_before(new, heap->entry[(i - 1) / 2])) {
        heap->entry[i] = heap->entry[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap->entry[i] = new;
}

static inline int32_t hg_pop(hg_heap *heap)
{
    const int32_t first = heap->entry[0].number;
    const hg_entry last = heap->entry[--heap->count];
    int32_t i = 0;
    for (;;) {
        int32_t child = 2 * i + 1;
        if (child >= heap->count)
            break;
        child += child + 1 < heap->count && hg_before(heap->entry[child + 1], heap->entry[child]);
        if (!hg_before(heap->entry[child], last))
            break;
        heap->entry[i] = heap->entry[child];
        i = child;
    }
    heap->entry[i] = last;
    return first;
}

#endif
