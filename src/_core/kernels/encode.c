/* encode: y[i] is the value of the key that x[i] equals.
 * in x; keys, of x's type, increasing and without NaN; values: one for each key, then one for elements that equal no
 * key, then one for NaN.
 * out y, of the type of values. */
#include "elements.h"

typedef struct {
    const void *x, *keys, *values;
    void *y;
    int64_t n, count, parts;
    int32_t dtype;
    int64_t width; /* bytes of a value */
} job;

static inline void put(const job *j, int64_t i, int64_t key)
{
    switch (j->width) {
    case 1: ((uint8_t *)j->y)[i] = ((const uint8_t *)j->values)[key]; break;
    case 2: ((uint16_t *)j->y)[i] = ((const uint16_t *)j->values)[key]; break;
    case 4: ((uint32_t *)j->y)[i] = ((const uint32_t *)j->values)[key]; break;
    default: ((uint64_t *)j->y)[i] = ((const uint64_t *)j->values)[key];
    }
}

/* Without branches that depend on x, because the elements come in any order. */
#define ENCODE(code, suffix, type, wide)                                     \
    static void encode_##suffix(const job *j, int64_t i, int64_t end)        \
    {                                                                        \
        const type *x = j->x, *keys = j->keys;                               \
        for (; i < end; i++) {                                               \
            const type item = x[i];                                          \
            int64_t place = 0;                                               \
            for (int64_t left = j->count; left > 1;) {                       \
                const int64_t half = left / 2;                               \
                place += keys[place + half] <= item ? half : 0;              \
                left -= half;                                                \
            }                                                                \
            if (!j->count || keys[place] != item)                            \
                place = j->count + (item != item);                           \
            put(j, i, place);                                                \
        }                                                                    \
    }
HT_NUMERIC_TYPES(ENCODE)

static void encode_part(void *context, int64_t part, int thread)
{
    (void)thread;
    const job *j = (const job *)context;
    const int64_t end = ht_part_begin(j->n, j->parts, part + 1);
    enum { BLOCK = 4096 }; /* elements between two looks at the clock */
    int64_t left = HT_PACE;
    for (int64_t i = ht_part_begin(j->n, j->parts, part), next; i < end; i = next) {
        next = end - i < BLOCK ? end : i + BLOCK;
        switch (j->dtype) {
#define CASE(code, suffix, type, wide) case code: encode_##suffix(j, i, next); break;
            HT_NUMERIC_TYPES(CASE)
        }
        if (ht_paced_stop(&left, (next - i) * 64))
            return;
    }
}

static int is_numeric(int32_t dtype)
{
    switch (dtype) {
#define IS(code, suffix, type, wide) case code:
        HT_NUMERIC_TYPES(IS)
        return 1;
    default:
        return 0;
    }
}

int HT_KERNEL(encode)(const ht_call *call)
{
    if (call->num_in != 3 || call->num_out != 1)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0], *keys = call->in[1], *values = call->in[2], *y = call->out[0];
    if (!is_numeric(x->dtype) || keys->dtype != x->dtype || values->dtype != y->dtype || !is_numeric(y->dtype))
        return HT_ERR_DTYPE;
    if (values->size != keys->size + 2 || y->size != x->size)
        return HT_ERR_OPERAND;
    job j = {.x = x->data, .keys = keys->data, .values = values->data, .y = y->data, .n = x->size,
             .count = keys->size, .dtype = x->dtype, .width = ht_element_bytes(y->dtype)};
    j.parts = ht_parts(call, j.n, (double)j.n * 64);
    ht_parallel(call->team, j.parts, encode_part, &j);
    return HT_OK;
}
