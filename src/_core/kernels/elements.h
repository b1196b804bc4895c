/* Element sizes, and one list of the C types behind the dtypes, for kernels that are generated per type. */
#ifndef HETERO_ELEMENTS_H
#define HETERO_ELEMENTS_H

#include "kernel.h"

/* X(dtype, suffix, C type, type to compute in). Integers compute in an unsigned type of at least 32 bits: overflow
 * wraps, and narrow unsigned types are not promoted to a signed int that could overflow. */
#define HT_FLOAT_TYPES(X)               \
    X(HT_FLOAT32, f32, float, float)    \
    X(HT_FLOAT64, f64, double, double)
#define HT_SIGNED_TYPES(X)              \
    X(HT_INT8, i8, int8_t, uint32_t)    \
    X(HT_INT16, i16, int16_t, uint32_t) \
    X(HT_INT32, i32, int32_t, uint32_t) \
    X(HT_INT64, i64, int64_t, uint64_t)
#define HT_UNSIGNED_TYPES(X)              \
    X(HT_UINT8, u8, uint8_t, uint32_t)    \
    X(HT_UINT16, u16, uint16_t, uint32_t) \
    X(HT_UINT32, u32, uint32_t, uint32_t) \
    X(HT_UINT64, u64, uint64_t, uint64_t)
#define HT_INTEGER_TYPES(X) HT_SIGNED_TYPES(X) HT_UNSIGNED_TYPES(X)
#define HT_NUMERIC_TYPES(X) HT_FLOAT_TYPES(X) HT_INTEGER_TYPES(X)

/* The unsigned type as wide as an integer type; other types themselves. Sums, products and equality have the same bits in
 * both, so kernels need one loop for the two. */
static inline int32_t ht_unsigned(int32_t dtype)
{
    switch (dtype) {
    case HT_INT8: return HT_UINT8;
    case HT_INT16: return HT_UINT16;
    case HT_INT32: return HT_UINT32;
    case HT_INT64: return HT_UINT64;
    default: return dtype;
    }
}

/* Bytes per element; 0 for a dtype that kernels do not support. */
static inline int64_t ht_element_bytes(int32_t dtype)
{
    switch (dtype) {
    case HT_UINT8: case HT_INT8: case HT_BOOL: return 1;
    case HT_UINT16: case HT_INT16: case HT_FLOAT16: case HT_BFLOAT16: return 2;
    case HT_FLOAT32: case HT_INT32: case HT_UINT32: return 4;
    case HT_FLOAT64: case HT_INT64: case HT_UINT64: return 8;
    default: return 0;
    }
}

/* Product of dims[from:to]. */
static inline int64_t ht_product(const int64_t *dims, int from, int to)
{
    int64_t product = 1;
    for (int axis = from; axis < to; axis++)
        product *= dims[axis];
    return product;
}

static inline int ht_same_dims(const ht_tensor *a, const ht_tensor *b)
{
    if (a->ndim != b->ndim)
        return 0;
    for (int axis = 0; axis < a->ndim; axis++)
        if (a->dims[axis] != b->dims[axis])
            return 0;
    return 1;
}

/* Element i of a tensor of int32 or int64: indices, shapes, axes. */
static inline int64_t ht_integer_at(const ht_tensor *tensor, int64_t i)
{
    return tensor->dtype == HT_INT32 ? ((const int32_t *)tensor->data)[i] : ((const int64_t *)tensor->data)[i];
}

/* Element i of a tensor of int8 or uint8. */
static inline int32_t ht_byte_at(const ht_tensor *tensor, int64_t i)
{
    return tensor->dtype == HT_INT8 ? ((const int8_t *)tensor->data)[i] : ((const uint8_t *)tensor->data)[i];
}

static inline int ht_is_index_type(int32_t dtype) { return dtype == HT_INT32 || dtype == HT_INT64; }

#endif
