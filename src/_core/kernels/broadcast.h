/* NumPy broadcasting of up to three operands as a short nest of loops.
 *
 * Dimensions of size 1 are dropped, and adjacent dimensions are merged if every operand can walk them as one. For most
 * real shapes, one or two loops remain. A row kernel then runs over the innermost loop, in which every operand's step
 * is 0 or 1. Cost: O(rank) per call, plus the rows.
 */
#ifndef HETERO_BROADCAST_H
#define HETERO_BROADCAST_H

#include "elements.h"

#define HT_MAX_BROADCAST 3 /* operands of a kernel that broadcast, at most: `where` has three */

typedef struct {
    int num_loops;                                  /* at least 1; loop 0 is the innermost */
    int64_t count[HT_MAX_DIMS + 1];
    int64_t step[HT_MAX_DIMS + 1][HT_MAX_BROADCAST]; /* in elements of the operand */
} ht_broadcast;

/* Builds the loops of `num` operands over the dims of `out`; HT_ERR_OPERAND if one does not broadcast to it. */
static inline int ht_broadcast_loops(ht_broadcast *loops, const ht_tensor *const *operand, int num,
                                     const ht_tensor *out)
{
    int64_t walked[HT_MAX_BROADCAST] = {1, 1, 1};
    int last = 0;
    loops->count[0] = 1;
    for (int k = 0; k < num; k++) {
        if (operand[k]->ndim > out->ndim)
            return HT_ERR_OPERAND;
        loops->step[0][k] = 0;
    }
    for (int back = 1; back <= out->ndim; back++) {
        const int64_t count = out->dims[out->ndim - back];
        int64_t step[HT_MAX_BROADCAST];
        int merges = 1;
        for (int k = 0; k < num; k++) {
            const int axis = operand[k]->ndim - back;
            const int64_t size = axis >= 0 ? operand[k]->dims[axis] : 1;
            if (size != count && size != 1)
                return HT_ERR_OPERAND;
            step[k] = size == 1 ? 0 : walked[k];
            walked[k] *= size;
            merges = merges && step[k] == loops->step[last][k] * loops->count[last];
        }
        if (count == 1)
            continue;
        if (loops->count[last] == 1) {
            loops->count[last] = count;
            for (int k = 0; k < num; k++)
                loops->step[last][k] = step[k];
        } else if (merges) {
            loops->count[last] *= count;
        } else {
            last++;
            loops->count[last] = count;
            for (int k = 0; k < num; k++)
                loops->step[last][k] = step[k];
        }
    }
    loops->num_loops = last + 1;
    return HT_OK;
}

/* Sets `index` and `offset` for ht_broadcast_next to a row, counted in the order of `out`. */
static inline void ht_broadcast_seek(const ht_broadcast *loops, int num, int64_t row, int64_t *index, int64_t *offset)
{
    for (int k = 0; k < num; k++)
        offset[k] = 0;
    for (int loop = 1; loop < loops->num_loops; loop++) {
        index[loop] = row % loops->count[loop];
        row /= loops->count[loop];
        for (int k = 0; k < num; k++)
            offset[k] += index[loop] * loops->step[loop][k];
    }
}

/* Advances `offset` (elements per operand) to the next row; 0 when all rows are done. `index` starts as zeros. */
static inline int ht_broadcast_next(const ht_broadcast *loops, int num, int64_t *index, int64_t *offset)
{
    for (int loop = 1; loop < loops->num_loops; loop++) {
        for (int k = 0; k < num; k++)
            offset[k] += loops->step[loop][k];
        if (++index[loop] < loops->count[loop])
            return 1;
        for (int k = 0; k < num; k++)
            offset[k] -= loops->step[loop][k] * loops->count[loop];
        index[loop] = 0;
    }
    return 0;
}

#endif
