/* Conversion between element types. Operands: in x; out of the same size, any dtype. Parameters: none.
 *
 * Integers wrap when narrowed. Floats truncate to integers; if the integer type cannot hold the value, the result is
 * that of x86: the minimum of int32 or int64, cut to the width. To bool: x != 0. Half-precision types are converted
 * through float32 in blocks. The bits are the same in every instruction set.
 */
#include "elements.h"
#include "half_vec.h"

typedef void (*cast_fn)(const void *x, void *out, int64_t n);

/* A float that int64 cannot hold becomes INT64_MIN. NaN fails both comparisons. */
#define TO_INT64(x) ((x) >= -0x1p63 && (x) < 0x1p63 ? (int64_t)(x) : INT64_MIN)
#define F_i8(x) ((int8_t)(uint64_t)TO_INT64(x))
#define F_u8(x) ((uint8_t)(uint64_t)TO_INT64(x))
#define F_i16(x) ((int16_t)(uint64_t)TO_INT64(x))
#define F_u16(x) ((uint16_t)(uint64_t)TO_INT64(x))
#define F_i32(x) ((x) >= -0x1p31 && (x) < 0x1p31 ? (int32_t)(x) : INT32_MIN)
#define F_u32(x) ((uint32_t)(uint64_t)TO_INT64(x))
#define F_i64(x) TO_INT64(x)
#define F_u64(x) ((x) >= 0x1p63 && (x) < 0x1p64 ? (uint64_t)(x) : (uint64_t)TO_INT64(x))

#define CAST(from, S, to, T, EXPR)                                                             \
    static void from##_to_##to(const void *px, void *pout, int64_t n)                          \
    {                                                                                          \
        const S *HT_RESTRICT x = (const S *)px;                                                \
        T *HT_RESTRICT out = (T *)pout;                                                        \
        for (int64_t i = 0; i < n; i++) {                                                      \
            const S v = x[i];                                                                  \
            out[i] = EXPR;                                                                     \
        }                                                                                      \
    }
/* Casts from one type to all others. I: the conversion to an integer type. Casts to the same type are the kernel
 * `identity`. */
#define CASTS(from, S, I)                   \
    CAST(from, S, f32, float, (float)v)     \
    CAST(from, S, f64, double, (double)v)   \
    CAST(from, S, b, uint8_t, v != 0)       \
    CAST(from, S, i8, int8_t, I##i8(v))     \
    CAST(from, S, u8, uint8_t, I##u8(v))    \
    CAST(from, S, i16, int16_t, I##i16(v))  \
    CAST(from, S, u16, uint16_t, I##u16(v)) \
    CAST(from, S, i32, int32_t, I##i32(v))  \
    CAST(from, S, u32, uint32_t, I##u32(v)) \
    CAST(from, S, i64, int64_t, I##i64(v))  \
    CAST(from, S, u64, uint64_t, I##u64(v))
#define N_i8(x) ((int8_t)(x))
#define N_u8(x) ((uint8_t)(x))
#define N_i16(x) ((int16_t)(x))
#define N_u16(x) ((uint16_t)(x))
#define N_i32(x) ((int32_t)(x))
#define N_u32(x) ((uint32_t)(x))
#define N_i64(x) ((int64_t)(x))
#define N_u64(x) ((uint64_t)(x))
CASTS(f32, float, F_)
CASTS(f64, double, F_)
CASTS(b, uint8_t, N_)
CASTS(i8, int8_t, N_)
CASTS(u8, uint8_t, N_)
CASTS(i16, int16_t, N_)
CASTS(u16, uint16_t, N_)
CASTS(i32, int32_t, N_)
CASTS(u32, uint32_t, N_)
CASTS(i64, int64_t, N_)
CASTS(u64, uint64_t, N_)
static void f16_to_f32(const void *x, void *out, int64_t n) { ht_widen(x, HT_FLOAT16, out, n); }
static void bf16_to_f32(const void *x, void *out, int64_t n) { ht_widen(x, HT_BFLOAT16, out, n); }
static void f32_to_f16(const void *x, void *out, int64_t n) { ht_round_to_half(x, out, n); }
CAST(f32, float, bf16, uint16_t, ht_bfloat16_of_float(v))

#define TO(from)                                  \
    switch (to) {                                 \
    case HT_FLOAT32: return from##_to_f32;        \
    case HT_FLOAT64: return from##_to_f64;        \
    case HT_BOOL: return from##_to_b;             \
    case HT_INT8: return from##_to_i8;            \
    case HT_UINT8: return from##_to_u8;           \
    case HT_INT16: return from##_to_i16;          \
    case HT_UINT16: return from##_to_u16;         \
    case HT_INT32: return from##_to_i32;          \
    case HT_UINT32: return from##_to_u32;         \
    case HT_INT64: return from##_to_i64;          \
    case HT_UINT64: return from##_to_u64;         \
    default: return NULL;                         \
    }

/* The loop from one dtype to another; NULL if no single step does this. */
static cast_fn choose(int32_t from, int32_t to)
{
    if (from == HT_FLOAT16)
        return to == HT_FLOAT32 ? f16_to_f32 : NULL;
    if (from == HT_BFLOAT16)
        return to == HT_FLOAT32 ? bf16_to_f32 : NULL;
    if (from == HT_FLOAT32 && to == HT_FLOAT16)
        return f32_to_f16;
    if (from == HT_FLOAT32 && to == HT_BFLOAT16)
        return f32_to_bf16;
    switch (from) {
    case HT_FLOAT32: TO(f32)
    case HT_FLOAT64: TO(f64)
    case HT_BOOL: TO(b)
    case HT_INT8: TO(i8)
    case HT_UINT8: TO(u8)
    case HT_INT16: TO(i16)
    case HT_UINT16: TO(u16)
    case HT_INT32: TO(i32)
    case HT_UINT32: TO(u32)
    case HT_INT64: TO(i64)
    case HT_UINT64: TO(u64)
    default: return NULL;
    }
}

#define BLOCK 256 /* elements per block of a two-step cast: the float32 between the steps takes 1 kB on the stack */

typedef struct {
    cast_fn first, second; /* through float32 in blocks; a single step if second is NULL */
    const char *x;
    char *out;
    int64_t from_bytes, to_bytes, size, parts;
} conversion;

static void convert_part(void *context, int64_t part, int thread)
{
    (void)thread;
    const conversion *c = (const conversion *)context;
    const int64_t begin = ht_part_begin(c->size, c->parts, part), end = ht_part_begin(c->size, c->parts, part + 1);
    if (!c->second) {
        c->first(c->x + begin * c->from_bytes, c->out + begin * c->to_bytes, end - begin);
        return;
    }
    float block[BLOCK];
    for (int64_t i = begin; i < end; i += BLOCK) {
        const int64_t n = ht_min64(BLOCK, end - i);
        c->first(c->x + i * c->from_bytes, block, n);
        c->second(block, c->out + i * c->to_bytes, n);
    }
}

int HT_KERNEL(cast)(const ht_call *call)
{
    if (call->num_in != 1 || call->num_out != 1 || call->in[0]->size != call->out[0]->size)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0];
    ht_tensor *out = call->out[0];
    conversion c = {.x = x->data, .out = out->data, .size = x->size, .from_bytes = ht_element_bytes(x->dtype),
                    .to_bytes = ht_element_bytes(out->dtype)};
    if (x->size == 0)
        return HT_OK;
    if (x->dtype == out->dtype && c.from_bytes) {
        ht_long_copy(out->data, x->data, x->size * c.from_bytes);
        return HT_OK;
    }
    c.first = choose(x->dtype, out->dtype);
    if (!c.first) {
        c.first = choose(x->dtype, HT_FLOAT32);
        c.second = choose(HT_FLOAT32, out->dtype);
        if (!c.first || !c.second)
            return HT_ERR_DTYPE;
    }
    c.parts = ht_parts(call, c.size, 4 * (double)c.size);
    ht_parallel(call->team, c.parts, convert_part, &c);
    return HT_OK;
}
