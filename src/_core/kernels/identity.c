/* identity: out[0] = in[0]; same size and dtype, dims may differ (also serves reshapes).
 * bitcast: the same bits under another dtype of the same size. */
#include "elements.h"

#include <string.h>

static int copy(const ht_call *call, int cast)
{
    if (call->num_in != 1 || call->num_out != 1)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0];
    const int64_t bytes = ht_element_bytes(x->dtype);
    if (bytes == 0)
        return HT_ERR_DTYPE;
    if (call->out[0]->size != x->size || (!cast && call->out[0]->dtype != x->dtype) ||
        ht_element_bytes(call->out[0]->dtype) != bytes)
        return HT_ERR_OPERAND;
    if (x->size > 0)
        ht_long_copy(call->out[0]->data, x->data, x->size * bytes);
    return HT_OK;
}

int HT_KERNEL(identity)(const ht_call *call) { return copy(call, 0); }
int HT_KERNEL(bitcast)(const ht_call *call) { return copy(call, 1); }
