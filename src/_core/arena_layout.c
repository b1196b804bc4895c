/* Best fit in order of first use, as a run-time allocator would do it. The buffers come sorted by first use. Before one
 * is placed, buffers past their last use are released; then it takes the smallest gap that is large enough. Cost: O(n *
 * (log n + gaps)). */
#include "arena_layout.h"

#include "invariant.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t offset, bytes; /* free memory between buffers; the unbounded gap after the last buffer is not listed */
} gap;

/* `bytes` must be at most INT64_MAX - HT_ALIGNMENT. */
static int64_t padded(int64_t bytes) { return (bytes + HT_ALIGNMENT - 1) & -(int64_t)HT_ALIGNMENT; }

/* Binary min-heap of live buffers by last use, so that expired ones are found without a search. */
static void heap_push(int64_t *heap, int64_t *num, const int64_t *last, int64_t item)
{
    int64_t at = (*num)++;
    for (; at > 0 && last[heap[(at - 1) / 2]] > last[item]; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = item;
}

static int64_t heap_pop(int64_t *heap, int64_t *num, const int64_t *last)
{
    const int64_t top = heap[0], item = heap[--*num];
    int64_t at = 0;
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= *num)
            break;
        if (child + 1 < *num && last[heap[child + 1]] < last[heap[child]])
            child++;
        if (last[heap[child]] >= last[item])
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = item;
    return top;
}

/* Releases [offset, offset + bytes). Gaps stay sorted and never touch. `end` is where the unbounded gap begins. */
static void release(gap *gaps, int64_t *num, int64_t *end, int64_t offset, int64_t bytes)
{
    int64_t low = 0, high = *num;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (gaps[middle].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    const int joins_before = low > 0 && gaps[low - 1].offset + gaps[low - 1].bytes == offset;
    const int joins_after = low < *num && offset + bytes == gaps[low].offset;
    if (joins_before && joins_after) {
        gaps[low - 1].bytes += bytes + gaps[low].bytes;
        memmove(gaps + low, gaps + low + 1, (size_t)(--*num - low) * sizeof *gaps);
    } else if (joins_before) {
        gaps[low - 1].bytes += bytes;
    } else if (joins_after) {
        gaps[low].offset = offset;
        gaps[low].bytes += bytes;
    } else {
        memmove(gaps + low + 1, gaps + low, (size_t)((*num)++ - low) * sizeof *gaps);
        gaps[low] = (gap){offset, bytes};
    }
    if (*num > 0 && gaps[*num - 1].offset + gaps[*num - 1].bytes == *end)
        *end = gaps[--*num].offset;
}

int64_t ht_arena_layout(int64_t num, const int64_t *first, const int64_t *last, const int64_t *bytes,
                        int64_t *offset)
{
    int64_t num_gaps = 0, num_live = 0, end = 0, most = 0;
    gap *gaps = calloc((size_t)num + 1, sizeof *gaps);
    int64_t *live = calloc((size_t)num + 1, sizeof *live);
    if (!gaps || !live) {
        free(gaps);
        free(live);
        return -1;
    }
    for (int64_t b = 0; b < num; b++) {
        if (bytes[b] < 0 || bytes[b] > INT64_MAX - HT_ALIGNMENT) {
            most = -1;
            break;
        }
        while (num_live > 0 && last[live[0]] < first[b]) {
            const int64_t dead = heap_pop(live, &num_live, last);
            if (bytes[dead] > 0)
                release(gaps, &num_gaps, &end, offset[dead], padded(bytes[dead]));
        }
        const int64_t wanted = padded(bytes[b]);
        int64_t best = -1;
        for (int64_t g = 0; g < num_gaps && wanted > 0; g++)
            if (gaps[g].bytes >= wanted && (best < 0 || gaps[g].bytes < gaps[best].bytes)) {
                best = g;
                if (gaps[g].bytes == wanted)
                    break;
            }
        if (best >= 0) {
            offset[b] = gaps[best].offset;
            gaps[best].offset += wanted;
            gaps[best].bytes -= wanted;
            if (gaps[best].bytes == 0)
                memmove(gaps + best, gaps + best + 1, (size_t)(--num_gaps - best) * sizeof *gaps);
        } else {
            offset[b] = end;
            if (__builtin_add_overflow(end, wanted, &end)) {
                most = -1;
                break;
            }
            most = end > most ? end : most;
        }
        HT_ASSERT(offset[b] >= 0 && offset[b] % HT_ALIGNMENT == 0 && (wanted == 0 || offset[b] + wanted <= most));
        heap_push(live, &num_live, last, b);
    }
    free(gaps);
    free(live);
    return most;
}
