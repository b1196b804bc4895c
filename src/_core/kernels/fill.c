/* Tensors made from scalars.
 *
 *   fill    in value (1 element); out of its dtype, any dims: every element = value
 *   range   in start, delta (1 element each, one numeric dtype); out: start + i * delta. Integers wrap.
 */
#include "elements.h"

int HT_KERNEL(fill)(const ht_call *call)
{
    if (call->num_in != 1 || call->num_out != 1 || call->in[0]->size != 1 || call->in[0]->dtype != call->out[0]->dtype)
        return HT_ERR_OPERAND;
    const void *value = call->in[0]->data;
    const int64_t n = call->out[0]->size;
#define FILL(T)                               \
    {                                         \
        const T v = *(const T *)value;        \
        T *out = (T *)call->out[0]->data;     \
        HT_LONG_FOR (i, n)                    \
            out[i] = v;                       \
        return HT_OK;                         \
    }
    switch (ht_element_bytes(call->out[0]->dtype)) {
    case 1: FILL(uint8_t)
    case 2: FILL(uint16_t)
    case 4: FILL(uint32_t)
    case 8: FILL(uint64_t)
    default: return HT_ERR_DTYPE;
    }
}

int HT_KERNEL(range)(const ht_call *call)
{
    if (call->num_in != 2 || call->num_out != 1 || call->in[0]->size != 1 || call->in[1]->size != 1 ||
        call->in[0]->dtype != call->out[0]->dtype || call->in[1]->dtype != call->out[0]->dtype)
        return HT_ERR_OPERAND;
    const int64_t n = call->out[0]->size;
    switch (call->out[0]->dtype) {
#define CASE(D, s, T, U)                                                           \
    case D: {                                                                      \
        const U start = (U)*(const T *)call->in[0]->data;                          \
        const U delta = (U)*(const T *)call->in[1]->data;                          \
        T *out = (T *)call->out[0]->data;                                          \
        HT_LONG_FOR (i, n)                                                         \
            out[i] = (T)(start + (U)i * delta);                                    \
        return HT_OK;                                                              \
    }
        HT_NUMERIC_TYPES(CASE)
    default: return HT_ERR_DTYPE;
    }
}
