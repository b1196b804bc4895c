/* nonzero: the indices of nonzero elements. Operands: in x (numeric or bool); out places[size][rank] (int64, large
 * enough for every result; a scalar has rank 1), count (int64, 1 element): the number of rows filled, in row-major
 * order of x. The remaining rows are zero.
 */
#include "elements.h"

#include <string.h>

int HT_KERNEL(nonzero)(const ht_call *call)
{
    if (call->num_in != 1 || call->num_out != 2)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0];
    ht_tensor *places = call->out[0], *count = call->out[1];
    const int64_t rank = x->ndim > 0 ? x->ndim : 1;
    if (places->dtype != HT_INT64 || places->size != x->size * rank || count->dtype != HT_INT64 || count->size != 1)
        return HT_ERR_OPERAND;
    int64_t position[HT_MAX_DIMS] = {0}, number = 0;
    int64_t *out = (int64_t *)places->data;
    switch (x->dtype) {
#define CASE(D, s, T, U)                                                                          \
    case D:                                                                                       \
        HT_LONG_FOR (i, x->size) {                                                                \
            if (((const T *)x->data)[i] != 0) {                                                   \
                for (int64_t d = 0; d < rank; d++)                                                \
                    out[number * rank + d] = position[d];                                         \
                number++;                                                                         \
            }                                                                                     \
            for (int d = x->ndim - 1; d >= 0 && ++position[d] == x->dims[d]; d--)                 \
                position[d] = 0;                                                                  \
        }                                                                                         \
        break;
        HT_NUMERIC_TYPES(CASE)
        CASE(HT_BOOL, b, uint8_t, uint32_t)
    default: return HT_ERR_DTYPE;
    }
    *(int64_t *)count->data = number;
    const int64_t behind = (x->size - number) * rank;
    out += number * rank;
    HT_LONG_FOR (i, behind)
        out[i] = 0;
    return HT_OK;
}
