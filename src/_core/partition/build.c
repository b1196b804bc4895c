/* Edge arrays to compressed rows.
 *
 * Two stable counting sorts, by target and then by source, leave every row in ascending order with equal edges side by
 * side, so that merging duplicates is one more pass: O(n + m) time, 12 bytes of scratch per edge. */
#include "graph.h"

enum { CHUNK = 1 << 16 }; /* work between two looks at the watch */

int64_t hg_first_outside32(const int32_t *values, int64_t count, int64_t limit)
{
    /* The clean case runs without an exit from the loop, which the compiler can vectorise. */
    const uint32_t bound = (uint32_t)limit;
    int bad = 0;
    for (int64_t i = 0; i < count; i++)
        bad |= (uint32_t)values[i] >= bound;
    if (!bad)
        return count;
    for (int64_t i = 0; i < count; i++)
        if ((uint32_t)values[i] >= bound)
            return i;
    return count;
}

int64_t hg_narrow64(const int64_t *values, int64_t count, int64_t limit, int32_t *narrow)
{
    const uint64_t bound = (uint64_t)limit;
    int bad = 0;
    for (int64_t i = 0; i < count; i++) {
        bad |= (uint64_t)values[i] >= bound;
        narrow[i] = (int32_t)values[i];
    }
    if (!bad)
        return count;
    for (int64_t i = 0; i < count; i++)
        if ((uint64_t)values[i] >= bound)
            return i;
    return count;
}

int64_t hg_devices32(const int32_t *values, int64_t count, uint8_t *narrow)
{
    int bad = 0;
    for (int64_t i = 0; i < count; i++) {
        bad |= (uint32_t)values[i] > 254;
        narrow[i] = (uint8_t)values[i];
    }
    return bad ? hg_first_outside32(values, count, 255) : count;
}

int64_t hg_devices64(const int64_t *values, int64_t count, uint8_t *narrow)
{
    int bad = 0;
    for (int64_t i = 0; i < count; i++) {
        bad |= (uint64_t)values[i] > 254;
        narrow[i] = (uint8_t)values[i];
    }
    for (int64_t i = 0; bad && i < count; i++)
        if ((uint64_t)values[i] > 254)
            return i;
    return count;
}

int64_t hg_sum_weights(const double *given, int64_t count, const int32_t *slot, double *merged)
{
    for (int64_t i = 0; i < count; i++) {
        if (!(given[i] >= 0.0 && given[i] <= 1.7976931348623157e308))
            return i;
        merged[slot ? slot[i] : i] += given[i];
    }
    return count;
}

int64_t hg_first_self_loop(const int32_t *src, const int32_t *dst, int64_t m)
{
    int bad = 0;
    for (int64_t i = 0; i < m; i++)
        bad |= src[i] == dst[i];
    if (!bad)
        return m;
    for (int64_t i = 0; i < m; i++)
        if (src[i] == dst[i])
            return i;
    return m;
}

/* counts[v + 1] counts of v -> start[v] of row v, start[n] = m. */
static void counts_to_starts(int32_t n, int32_t *start)
{
    for (int32_t v = 0; v < n; v++)
        start[v + 1] += start[v];
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

    memset(by_dst, 0, ((size_t)n + 1) * sizeof *by_dst);
    memset(indptr, 0, ((size_t)n + 1) * sizeof *indptr);
    for (int64_t base = 0; base < m; base += CHUNK) {
        if (hg_interrupted(watch, CHUNK))
            goto out;
        const int64_t end = base + CHUNK < m ? base + CHUNK : m;
        for (int64_t i = base; i < end; i++) {
            by_dst[dst[i] + 1]++;
            indptr[src[i] + 1]++;
        }
    }
    counts_to_starts(n, by_dst);
    counts_to_starts(n, indptr);
    for (int64_t base = 0; base < m; base += CHUNK) {
        if (hg_interrupted(watch, CHUNK))
            goto out;
        const int64_t end = base + CHUNK < m ? base + CHUNK : m;
        for (int64_t i = base; i < end; i++)
            edge[by_dst[dst[i]]++] = (int32_t)i;
    }
    for (int64_t base = 0; base < m; base += CHUNK) {
        if (hg_interrupted(watch, 2 * CHUNK))
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
        if (!(v & (CHUNK - 1)) && hg_interrupted(watch, 4 * CHUNK))
            goto out;
    }
    indptr[n] = kept;
    *unique = kept;
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
    memset(pred_indptr, 0, ((size_t)n + 1) * sizeof *pred_indptr);
    for (int64_t base = 0; base < m; base += CHUNK) {
        if (hg_interrupted(watch, CHUNK))
            return HG_INTERRUPTED;
        const int64_t end = base + CHUNK < m ? base + CHUNK : m;
        for (int64_t j = base; j < end; j++)
            pred_indptr[indices[j] + 1]++;
    }
    counts_to_starts(n, pred_indptr);
    for (int32_t v = 0; v < n; v++) {
        for (int32_t j = indptr[v]; j < indptr[v + 1]; j++)
            pred_indices[pred_indptr[indices[j]]++] = v;
        if (!(v & (CHUNK - 1)) && hg_interrupted(watch, 4 * CHUNK))
            return HG_INTERRUPTED;
    }
    ends_to_starts(n, pred_indptr);
    return HG_OK;
}

int hg_indptr_valid(int32_t n, int64_t m, const int32_t *indptr, int64_t *where)
{
    *where = 0;
    if (indptr[0] != 0)
        return 0;
    for (int32_t v = 0; v < n; v++)
        if (indptr[v + 1] < indptr[v]) {
            *where = (int64_t)v + 1;
            return 0;
        }
    *where = n;
    return indptr[n] == m;
}

int32_t hg_first_self_row(int32_t n, const int32_t *indptr, const int32_t *indices)
{
    for (int32_t v = 0; v < n; v++)
        for (int32_t j = indptr[v]; j < indptr[v + 1]; j++)
            if (indices[j] == v)
                return v;
    return n;
}

int hg_rows_ascend(int32_t n, const int32_t *indptr, const int32_t *indices)
{
    for (int32_t v = 0; v < n; v++)
        for (int32_t j = indptr[v] + 1; j < indptr[v + 1]; j++)
            if (indices[j - 1] >= indices[j])
                return 0;
    return 1;
}

void hg_row_of_entry(int32_t n, const int32_t *indptr, int32_t *src)
{
    for (int32_t v = 0; v < n; v++)
        for (int32_t j = indptr[v]; j < indptr[v + 1]; j++)
            src[j] = v;
}
