/* Rows of values by producer and by reader: counting sorts, O(nodes + values + readers). */
#include "schedule.h"

int hg_rows_of(int32_t rows, int64_t count, const int32_t *number, int32_t *start, int32_t *entry, hg_watch *watch)
{
    memset(start, 0, ((size_t)rows + 1) * sizeof *start);
    for (int64_t i = 0; i < count; i++)
        start[number[i] + 1]++;
    if (hg_counts_to_starts(rows, start, watch) != HG_OK || hg_interrupted(watch, count))
        return HG_INTERRUPTED;
    /* start[r] moves to the end of row r while it is filled, which is where row r + 1 begins. */
    for (int64_t i = 0; i < count; i++)
        entry[start[number[i]]++] = (int32_t)i;
    memmove(start + 1, start, (size_t)rows * sizeof *start);
    start[0] = 0;
    return hg_interrupted(watch, 4 * count) ? HG_INTERRUPTED : HG_OK;
}

int hg_values_by_reader(const hg_costs *costs, int32_t *read_start, int32_t *read, hg_watch *watch)
{
    const int64_t count = costs->indptr[costs->num_values];
    memset(read_start, 0, ((size_t)costs->n + 1) * sizeof *read_start);
    for (int64_t i = 0; i < count; i++)
        read_start[costs->readers[i] + 1]++;
    if (hg_counts_to_starts(costs->n, read_start, watch) != HG_OK || hg_interrupted(watch, count))
        return HG_INTERRUPTED;
    for (int32_t value = 0; value < costs->num_values; value++)
        for (int32_t i = costs->indptr[value]; i < costs->indptr[value + 1]; i++)
            read[read_start[costs->readers[i]]++] = value;
    memmove(read_start + 1, read_start, (size_t)costs->n * sizeof *read_start);
    read_start[0] = 0;
    return hg_interrupted(watch, 4 * count) ? HG_INTERRUPTED : HG_OK;
}
