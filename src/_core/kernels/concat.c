/* out = the inputs one after another along an axis. Operands: in any number (at least 1) of tensors of out's dtype and
 * rank, with equal sizes except along the axis. Parameters: ints = axis. Any dtype.
 */
#include "elements.h"

#include <string.h>

int HT_KERNEL(concat)(const ht_call *call)
{
    if (call->num_in < 1 || call->num_out != 1 || call->num_ints != 1)
        return HT_ERR_OPERAND;
    ht_tensor *out = call->out[0];
    const int64_t axis = call->ints[0], bytes = ht_element_bytes(out->dtype);
    if (bytes == 0)
        return HT_ERR_DTYPE;
    if (axis < 0 || axis >= out->ndim)
        return HT_ERR_OPERAND;
    int64_t length = 0;
    for (int k = 0; k < call->num_in; k++) {
        const ht_tensor *x = call->in[k];
        if (x->ndim != out->ndim || x->dtype != out->dtype)
            return HT_ERR_OPERAND;
        for (int d = 0; d < out->ndim; d++)
            if (d != axis && x->dims[d] != out->dims[d])
                return HT_ERR_OPERAND;
        length += x->dims[axis];
    }
    if (length != out->dims[axis])
        return HT_ERR_OPERAND;
    const int64_t outer = ht_product(out->dims, 0, (int)axis);
    const int64_t inner_bytes = ht_product(out->dims, (int)axis + 1, out->ndim) * bytes;
    const int64_t out_row = length * inner_bytes;
    char *start = (char *)out->data;
    int64_t left = HT_PACE;
    for (int k = 0; k < call->num_in; k++) {
        const int64_t row = call->in[k]->dims[axis] * inner_bytes;
        const char *from = (const char *)call->in[k]->data;
        if (row > 0)
            for (int64_t o = 0; o < outer; o++) {
                if (ht_paced_stop(&left, row))
                    return HT_OK;
                ht_long_copy(start + o * out_row, from + o * row, row);
            }
        start += row;
    }
    return HT_OK;
}
