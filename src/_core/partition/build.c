/* Edge arrays to compressed rows.
 *
 * Two stable counting sorts, by target and then by source, leave every row in ascending order with equal edges side by
 * side, so that merging duplicates is one more pass: O(n + m) time, 12 bytes of scratch per edge. */
#include <stdatomic.h>

#include "graph.h"

enum {
    CHUNK = 1 << 13, /* edges between two looks at the watch */
    SCATTER = 32,    /* units of work of a write to a random place: in fresh memory each may cost a page fault */
};

/* The clean case runs without an exit from the loop, which the compiler can vectorize. */
static int64_t first_outside(const int32_t *values, int64_t count, uint32_t bound)
{
    int bad = 0;
    for (int64_t i = 0; i < count; i++)
        bad |= (uint32_t)values[i] >= bound;
    for (int64_t i = 0; bad && i < count; i++)
        if ((uint32_t)values[i] >= bound)
            return i;
    return count;
}

int64_t hg_read_numbers(const void *values, int wide, int64_t count, int64_t limit, int32_t *out)
{
    if (wide) {
        const int64_t *from = (const int64_t *)values;
        for (int64_t i = 0; i < count; i++) {
            const int64_t value = from[i];
            out[i] = value == (int32_t)value ? (int32_t)value : -1;
        }
    } else
        memcpy(out, values, (size_t)count * sizeof *out);
    atomic_signal_fence(memory_order_seq_cst); /* check the copies below, never `values` a second time */
    const int64_t bad = first_outside(out, count, (uint32_t)limit);
    for (int64_t i = bad; i < count; i++)
        if ((uint32_t)out[i] >= (uint32_t)limit)
            out[i] = -1;
    return bad;
}

int64_t hg_read_devices(const void *values, int wide, int64_t count, uint8_t *out)
{
    if (wide) {
        const int64_t *from = (const int64_t *)values;
        for (int64_t i = 0; i < count; i++) {
            const int64_t value = from[i];
            out[i] = (uint64_t)value < 255 ? (uint8_t)value : 255;
        }
    } else {
        const int32_t *from = (const int32_t *)values;
        for (int64_t i = 0; i < count; i++) {
            const int32_t value = from[i];
            out[i] = (uint32_t)value < 255 ? (uint8_t)value : 255;
        }
    }
    atomic_signal_fence(memory_order_seq_cst);
    const uint8_t *bad = (const uint8_t *)memchr(out, 255, (size_t)count);
    return bad ? bad - out : count;
}

int64_t hg_add_weights(const double *given, int64_t count, const int32_t *slot, double *merged)
{
    for (int64_t i = 0; i < count; i++) {
        if (!(given[i] >= 0.0 && given[i] <= 1.7976931348623157e308))
            return i;
        merged[slot ? slot[i] : i] += given[i];
    }
    return count;
}

int hg_first_self_loop(const int32_t *src, const int32_t *dst, int64_t m, int64_t *first, hg_watch *watch)
{
    *first = m;
    for (int64_t base = 0; base < m; base += CHUNK) {
        const int64_t end = base + CHUNK < m ? base + CHUNK : m;
        int bad = 0;
        for (int64_t i = base; i < end; i++)
            bad |= src[i] == dst[i];
        for (int64_t i = base; bad && i < end; i++)
            if (src[i] == dst[i]) {
                *first = i;
                return HG_OK;
            }
        if (hg_interrupted(watch, CHUNK / 4))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

int hg_counts_to_starts(int32_t n, int32_t *start, hg_watch *watch)
{
    for (int32_t v = 0; v < n; v++) {
        start[v + 1] += start[v];
        if (!(v & (CHUNK - 1)) && hg_interrupted(watch, CHUNK / 4))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

/* After a scatter that advanced start[v] to the end of row v: shift back to the starts. */
static void ends_to_starts(int32_t n, int32_t *start)
{
    memmove(start + 1, start, (size_t)n * sizeof *start);
    start[0] = 0;
}

int hg_build(int32_t n, int64_t m, const int32_t *src, const int32_t *dst, int32_t *indptr, int32_t *indices,
             int32_t *slot, int64_t *unique, hg_watch *watch)
{
    int status = HG_NO_MEMORY;
    int32_t *by_dst = HG_NEW(int32_t, (int64_t)n + 1);
    int32_t *edge = HG_NEW(int32_t, m);   /* edges sorted by target */
    int32_t *given = HG_NEW(int32_t, m);  /* edge number of each entry of indices */
    if (!by_dst || !edge || !given)
        goto out;
    status = HG_INTERRUPTED;

    const int64_t pointer_bytes = ((int64_t)n + 1) * (int64_t)sizeof(int32_t);
    if (hg_fill(by_dst, 0, pointer_bytes, watch) != HG_OK || hg_fill(indptr, 0, pointer_bytes, watch) != HG_OK)
        goto out;
    for (int64_t base = 0; base < m; base += CHUNK) {
        if (hg_interrupted(watch, SCATTER * CHUNK))
            goto out;
        const int64_t end = base + CHUNK < m ? base + CHUNK : m;
        for (int64_t i = base; i < end; i++) {
            by_dst[dst[i] + 1]++;
            indptr[src[i] + 1]++;
        }
    }
    if (hg_counts_to_starts(n, by_dst, watch) != HG_OK || hg_counts_to_starts(n, indptr, watch) != HG_OK)
        goto out;
    for (int64_t base = 0; base < m; base += CHUNK) {
        if (hg_interrupted(watch, SCATTER * CHUNK))
            goto out;
        const int64_t end = base + CHUNK < m ? base + CHUNK : m;
        for (int64_t i = base; i < end; i++)
            edge[by_dst[dst[i]]++] = (int32_t)i;
    }
    for (int64_t base = 0; base < m; base += CHUNK) {
        if (hg_interrupted(watch, SCATTER * CHUNK))
            goto out;
        const int64_t end = base + CHUNK < m ? base + CHUNK : m;
        for (int64_t j = base; j < end; j++) {
            const int32_t i = edge[j];
            const int32_t position = indptr[src[i]]++;
            indices[position] = dst[i];
            given[position] = i;
        }
    }
    ends_to_starts(n, indptr);

    int32_t kept = 0;
    for (int32_t v = 0; v < n; v++) {
        const int32_t begin = indptr[v], end = indptr[v + 1];
        indptr[v] = kept;
        for (int32_t j = begin; j < end; j++) {
            if (j == begin || indices[j] != indices[kept - 1])
                indices[kept++] = indices[j];
            slot[given[j]] = kept - 1;
        }
        if (hg_interrupted(watch, 2 + SCATTER * (int64_t)(end - begin)))
            goto out;
    }
    indptr[n] = kept;
    *unique = kept;
    HT_ASSERT(hg_rises(n, indptr, *unique));
    status = HG_OK;
out:
    free(by_dst);
    free(edge);
    free(given);
    return status;
}

int hg_transpose(int32_t n, int64_t m, const int32_t *indptr, const int32_t *indices, int32_t *pred_indptr,
                 int32_t *pred_indices, hg_watch *watch)
{
    if (hg_fill(pred_indptr, 0, ((int64_t)n + 1) * (int64_t)sizeof *pred_indptr, watch) != HG_OK)
        return HG_INTERRUPTED;
    for (int64_t base = 0; base < m; base += CHUNK) {
        if (hg_interrupted(watch, SCATTER * CHUNK))
            return HG_INTERRUPTED;
        const int64_t end = base + CHUNK < m ? base + CHUNK : m;
        for (int64_t j = base; j < end; j++)
            pred_indptr[indices[j] + 1]++;
    }
    if (hg_counts_to_starts(n, pred_indptr, watch) != HG_OK)
        return HG_INTERRUPTED;
    for (int32_t v = 0; v < n; v++) {
        for (int32_t j = indptr[v]; j < indptr[v + 1]; j++)
            pred_indices[pred_indptr[indices[j]]++] = v;
        if (hg_interrupted(watch, 1 + SCATTER * (int64_t)(indptr[v + 1] - indptr[v])))
            return HG_INTERRUPTED;
    }
    ends_to_starts(n, pred_indptr);
    HT_ASSERT(hg_rises(n, pred_indptr, m));
    return HG_OK;
}

int hg_check_rows(int32_t n, int64_t m, const int32_t *indptr, const int32_t *indices, int64_t *bad_pointer,
                  int32_t *self_loop, int *ascending, hg_watch *watch)
{
    if (indptr[0] != 0) {
        *bad_pointer = 0;
        return HG_OK;
    }
    for (int32_t v = 0; v < n; v++) {
        if (indptr[v + 1] < indptr[v]) {
            *bad_pointer = (int64_t)v + 1;
            return HG_OK;
        }
        if (!(v & (CHUNK - 1)) && hg_interrupted(watch, CHUNK / 4))
            return HG_INTERRUPTED;
    }
    if (indptr[n] != m) {
        *bad_pointer = n;
        return HG_OK;
    }
    *ascending = 1;
    for (int32_t v = 0; v < n; v++) {
        for (int32_t j = indptr[v]; j < indptr[v + 1]; j++) {
            if (indices[j] == v) {
                *self_loop = v;
                return HG_OK;
            }
            *ascending &= j == indptr[v] || indices[j - 1] < indices[j];
        }
        if (hg_interrupted(watch, 1 + indptr[v + 1] - indptr[v]))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

int hg_row_of_entry(int32_t n, const int32_t *indptr, int32_t *src, hg_watch *watch)
{
    for (int32_t v = 0; v < n; v++) {
        for (int32_t j = indptr[v]; j < indptr[v + 1]; j++)
            src[j] = v;
        if (hg_interrupted(watch, 1 + indptr[v + 1] - indptr[v]))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}
