/* Conversion between element types. Operands: in x; out of the same size, any dtype. Parameters: none.
 *
 * Integers wrap when narrowed. Floats truncate to integers; if the integer type cannot hold the value, the result is
 * that of x86: the minimum of int32 or int64, cut to the width. To bool: x != 0. Half-precision types are converted
 * through float32, and rare integer types through int64, in blocks: each pair of types costs compile time. The bits are
 * the same in every instruction set.
 */
#include "elements.h"
#include "half_vec.h"

typedef void (*cast_fn)(const void *x, void *out, int64_t n);

/* A float that int64 cannot hold becomes INT64_MIN. NaN fails both comparisons. */
#define TO_INT64(x) ((x) >= -0x1p63 && (x) < 0x1p63 ? (int64_t)(x) : INT64_MIN)
#define TO_INT32(x) ((x) >= -0x1p31 && (x) < 0x1p31 ? (int32_t)(x) : INT32_MIN)
#define TO_UINT64(x) ((x) >= 0x1p63 && (x) < 0x1p64 ? (uint64_t)(x) : (uint64_t)TO_INT64(x))

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
/* w8, w16, w32, w64: signed or unsigned integers of this width, which a cast writes alike. A cast to the same or a
 * smaller width also reads them alike. */
CAST(f32, float, f64, double, v)
CAST(f32, float, b, uint8_t, v != 0)
CAST(f32, float, w8, uint8_t, (uint8_t)(uint64_t)TO_INT64(v))
CAST(f32, float, i32, int32_t, TO_INT32(v))
CAST(f32, float, i64, int64_t, TO_INT64(v))
CAST(f32, float, u64, uint64_t, TO_UINT64(v))
CAST(f64, double, f32, float, (float)v)
CAST(f64, double, b, uint8_t, v != 0)
CAST(f64, double, i32, int32_t, TO_INT32(v))
CAST(f64, double, i64, int64_t, TO_INT64(v))
CAST(f64, double, u64, uint64_t, TO_UINT64(v))
CAST(u8, uint8_t, f32, float, v)
CAST(u8, uint8_t, b, uint8_t, v != 0)
CAST(u8, uint8_t, w32, uint32_t, v)
CAST(u8, uint8_t, w64, uint64_t, v)
CAST(i8, int8_t, f32, float, v)
CAST(i8, int8_t, w32, uint32_t, (uint32_t)v)
CAST(i8, int8_t, w64, uint64_t, (uint64_t)v)
CAST(w16, uint16_t, b, uint8_t, v != 0)
CAST(w16, uint16_t, w8, uint8_t, (uint8_t)v)
CAST(u16, uint16_t, f32, float, v)
CAST(u16, uint16_t, w64, uint64_t, v)
CAST(i16, int16_t, f32, float, v)
CAST(i16, int16_t, w64, uint64_t, (uint64_t)v)
CAST(i32, int32_t, f32, float, (float)v)
CAST(i32, int32_t, w64, uint64_t, (uint64_t)v)
CAST(w32, uint32_t, b, uint8_t, v != 0)
CAST(w32, uint32_t, w8, uint8_t, (uint8_t)v)
CAST(u32, uint32_t, w64, uint64_t, v)
CAST(i64, int64_t, f32, float, (float)v)
CAST(i64, int64_t, f64, double, (double)v)
CAST(u64, uint64_t, f32, float, (float)v)
CAST(u64, uint64_t, f64, double, (double)v)
CAST(w64, uint64_t, b, uint8_t, v != 0)
CAST(w64, uint64_t, w8, uint8_t, (uint8_t)v)
CAST(w64, uint64_t, w16, uint16_t, (uint16_t)v)
CAST(w64, uint64_t, w32, uint32_t, (uint32_t)v)
static void w8_to_w8(const void *x, void *out, int64_t n) { memcpy(out, x, (size_t)n); }
static void w16_to_w16(const void *x, void *out, int64_t n) { memcpy(out, x, (size_t)n * 2); }
static void w32_to_w32(const void *x, void *out, int64_t n) { memcpy(out, x, (size_t)n * 4); }
static void w64_to_w64(const void *x, void *out, int64_t n) { memcpy(out, x, (size_t)n * 8); }
static void f16_to_f32(const void *x, void *out, int64_t n) { ht_widen(x, HT_FLOAT16, out, n); }
static void bf16_to_f32(const void *x, void *out, int64_t n) { ht_widen(x, HT_BFLOAT16, out, n); }
static void f32_to_f16(const void *x, void *out, int64_t n) { ht_round_to_half(x, out, n); }
CAST(f32, float, bf16, uint16_t, ht_bfloat16_of_float(v))

/* The function that reads a type, chosen by the type that it writes. */
static cast_fn from_float32(int32_t to)
{
    switch (to) {
    case HT_FLOAT16: return f32_to_f16;
    case HT_BFLOAT16: return f32_to_bf16;
    case HT_FLOAT64: return f32_to_f64;
    case HT_BOOL: return f32_to_b;
    case HT_INT8: case HT_UINT8: return f32_to_w8;
    case HT_INT32: return f32_to_i32;
    case HT_INT64: return f32_to_i64;
    case HT_UINT64: return f32_to_u64;
    default: return NULL;
    }
}

static cast_fn from_float64(int32_t to)
{
    switch (to) {
    case HT_FLOAT32: return f64_to_f32;
    case HT_BOOL: return f64_to_b;
    case HT_INT32: return f64_to_i32;
    case HT_INT64: return f64_to_i64;
    case HT_UINT64: return f64_to_u64;
    default: return NULL;
    }
}

#define FROM_INTEGER(from, to_f32, to_f64, to_b, to_w8, to_w16, to_w32, to_w64)                            \
    static cast_fn from_##from(int32_t to)                                                                     \
    {                                                                                                          \
        switch (to) {                                                                                          \
        case HT_FLOAT32: return to_f32;                                                                        \
        case HT_FLOAT64: return to_f64;                                                                        \
        case HT_BOOL: return to_b;                                                                             \
        case HT_INT8: case HT_UINT8: return to_w8;                                                             \
        case HT_INT16: case HT_UINT16: return to_w16;                                                          \
        case HT_INT32: case HT_UINT32: return to_w32;                                                          \
        case HT_INT64: case HT_UINT64: return to_w64;                                                          \
        default: return NULL;                                                                                  \
        }                                                                                                      \
    }
FROM_INTEGER(u8, u8_to_f32, NULL, u8_to_b, w8_to_w8, NULL, u8_to_w32, u8_to_w64)
FROM_INTEGER(i8, i8_to_f32, NULL, u8_to_b, w8_to_w8, NULL, i8_to_w32, i8_to_w64)
FROM_INTEGER(u16, u16_to_f32, NULL, w16_to_b, w16_to_w8, w16_to_w16, NULL, u16_to_w64)
FROM_INTEGER(i16, i16_to_f32, NULL, w16_to_b, w16_to_w8, w16_to_w16, NULL, i16_to_w64)
FROM_INTEGER(u32, NULL, NULL, w32_to_b, w32_to_w8, NULL, w32_to_w32, u32_to_w64)
FROM_INTEGER(i32, i32_to_f32, NULL, w32_to_b, w32_to_w8, NULL, w32_to_w32, i32_to_w64)
FROM_INTEGER(u64, u64_to_f32, u64_to_f64, w64_to_b, w64_to_w8, w64_to_w16, w64_to_w32, w64_to_w64)
FROM_INTEGER(i64, i64_to_f32, i64_to_f64, w64_to_b, w64_to_w8, w64_to_w16, w64_to_w32, w64_to_w64)

/* The single step from one dtype to another, or NULL. */
static cast_fn single(int32_t from, int32_t to)
{
    switch (from) {
    case HT_FLOAT16: return to == HT_FLOAT32 ? f16_to_f32 : NULL;
    case HT_BFLOAT16: return to == HT_FLOAT32 ? bf16_to_f32 : NULL;
    case HT_FLOAT32: return from_float32(to);
    case HT_FLOAT64: return from_float64(to);
    case HT_BOOL: case HT_UINT8: return from_u8(to);
    case HT_INT8: return from_i8(to);
    case HT_UINT16: return from_u16(to);
    case HT_INT16: return from_i16(to);
    case HT_UINT32: return from_u32(to);
    case HT_INT32: return from_i32(to);
    case HT_UINT64: return from_u64(to);
    case HT_INT64: return from_i64(to);
    default: return NULL;
    }
}

enum {
    BLOCK = 256, /* elements per block of a cast in several steps: two blocks of 64-bit elements take 4 kB on the stack */
    MOST_STEPS = 3
};

static int is_half(int32_t dtype) { return dtype == HT_FLOAT16 || dtype == HT_BFLOAT16; }

/* Writes the steps from one dtype to another and returns their number; 0 if there are none. */
static int find_steps(int32_t from, int32_t to, cast_fn steps[MOST_STEPS])
{
    int num = 0;
    if (is_half(from) && to != HT_FLOAT32) {
        steps[num++] = single(from, HT_FLOAT32);
        from = HT_FLOAT32;
    }
    const int32_t end = is_half(to) && from != HT_FLOAT32 ? HT_FLOAT32 : to;
    if ((steps[num] = single(from, end)))
        num++;
    else {
        steps[num] = single(from, HT_INT64);
        steps[num + 1] = single(HT_INT64, end);
        if (!steps[num] || !steps[num + 1])
            return 0;
        num += 2;
    }
    if (end != to)
        steps[num++] = single(end, to);
    return num;
}

typedef struct {
    cast_fn steps[MOST_STEPS];
    int num_steps;
    const char *x;
    char *out;
    int64_t from_bytes, to_bytes, size, parts;
} conversion;

static void convert_part(void *context, int64_t part, int thread)
{
    (void)thread;
    const conversion *c = (const conversion *)context;
    const int64_t begin = ht_part_begin(c->size, c->parts, part), end = ht_part_begin(c->size, c->parts, part + 1);
    const int last = c->num_steps - 1;
    if (last == 0) {
        c->steps[0](c->x + begin * c->from_bytes, c->out + begin * c->to_bytes, end - begin);
        return;
    }
    uint64_t blocks[2][BLOCK];
    for (int64_t i = begin; i < end; i += BLOCK) {
        const int64_t n = ht_min64(BLOCK, end - i);
        c->steps[0](c->x + i * c->from_bytes, blocks[0], n);
        if (last == 2)
            c->steps[1](blocks[0], blocks[1], n);
        c->steps[last](blocks[last - 1], c->out + i * c->to_bytes, n);
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
    c.num_steps = find_steps(x->dtype, out->dtype, c.steps);
    if (c.num_steps == 0)
        return HT_ERR_DTYPE;
    c.parts = ht_parts(call, c.size, 4 * (double)c.size);
    ht_parallel(call->team, c.parts, convert_part, &c);
    return HT_OK;
}
