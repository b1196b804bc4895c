/* out[0] = in[0]; same size and dtype, dims may differ (also serves reshapes). */
#include "kernel.h"

#include <string.h>

static int64_t element_bytes(int32_t dtype)
{
    switch (dtype) {
    case HT_UINT8: case HT_INT8: case HT_BOOL: return 1;
    case HT_UINT16: case HT_INT16: case HT_FLOAT16: case HT_BFLOAT16: return 2;
    case HT_FLOAT32: case HT_INT32: case HT_UINT32: return 4;
    case HT_FLOAT64: case HT_INT64: case HT_UINT64: return 8;
    default: return 0;
    }
}

int HT_KERNEL(identity)(const ht_call *call)
{
    const ht_tensor *x = call->in[0];
    const int64_t bytes = element_bytes(x->dtype);
    if (bytes == 0)
        return HT_ERR_DTYPE;
    if (x->size > 0)
        memcpy(call->out[0]->data, x->data, (size_t)(x->size * bytes));
    return HT_OK;
}
