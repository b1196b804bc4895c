/* See vector_tape.h. Each operation has two functions: one for blocks of eight vectors, one for a vector or a part of it. */
#include "vector_tape.h"

#include "requantize.h"
#include "unary_vector.h"

#define L VF_LANES
#define BLOCK_ARGUMENTS \
    const ht_vector_op *op, int64_t i, vf a0, vf a1, vf a2, vf a3, vf a4, vf a5, vf a6, vf a7
#define NEXT_BLOCK op[1].block(op + 1, i, a0, a1, a2, a3, a4, a5, a6, a7)
#define NEXT_ONE op[1].one(op + 1, i, n, x)
#define EACH(X) X(a0, 0) X(a1, 1) X(a2, 2) X(a3, 3) X(a4, 4) X(a5, 5) X(a6, 6) X(a7, 7)

static void end_block(BLOCK_ARGUMENTS)
{
    (void)op, (void)i, (void)a0, (void)a1, (void)a2, (void)a3, (void)a4, (void)a5, (void)a6, (void)a7;
}
static void end_one(const ht_vector_op *op, int64_t i, int64_t n, vf x) { (void)op, (void)i, (void)n, (void)x; }

static void load_block(BLOCK_ARGUMENTS)
{
    const float *row = op->row + i;
#define LOAD(acc, k) acc = vf_load(row + k * L);
    EACH(LOAD)
    NEXT_BLOCK;
}
static void load_one(const ht_vector_op *op, int64_t i, int64_t n, vf x)
{
    x = vf_load_n(op->row + i, n);
    NEXT_ONE;
}
static void spread_block(BLOCK_ARGUMENTS)
{
    a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = vf_set1(*op->row);
    NEXT_BLOCK;
}
static void spread_one(const ht_vector_op *op, int64_t i, int64_t n, vf x)
{
    x = vf_set1(*op->row);
    NEXT_ONE;
}
static void store_block(BLOCK_ARGUMENTS)
{
    float *row = op->row + i;
#define STORE(acc, k) vf_store(row + k * L, acc);
    EACH(STORE)
    NEXT_BLOCK;
}
static void store_one(const ht_vector_op *op, int64_t i, int64_t n, vf x)
{
    vf_store_n(op->row + i, n, x);
    NEXT_ONE;
}

/* The binary operations of binary_arithmetic.c. */
HT_INLINE vf add(vf x, vf y) { return x + y; }
HT_INLINE vf sub(vf x, vf y) { return x - y; }
HT_INLINE vf mul(vf x, vf y) { return x * y; }
HT_INLINE vf quotient(vf x, vf y) { return x / y; }
HT_INLINE vf smaller(vf x, vf y) { return vf_select(vm_or(vf_lt(x, y), vf_isnan(x)), x, y); }
HT_INLINE vf larger(vf x, vf y) { return vf_select(vm_or(vf_lt(y, x), vf_isnan(x)), x, y); }
HT_INLINE vf prelu(vf x, vf y) { return vf_select(vf_lt(x, vf_set1(0.0f)), x * y, x); }
#define BINARY(X) X(add) X(sub) X(mul) X(quotient) X(smaller) X(larger) X(prelu)

#define FORMS(f)                                                                       \
    static void f##_acc_row_block(BLOCK_ARGUMENTS)                                     \
    {                                                                                  \
        const float *row = op->row + i;                                                \
        a0 = f(a0, vf_load(row)), a1 = f(a1, vf_load(row + L));                        \
        a2 = f(a2, vf_load(row + 2 * L)), a3 = f(a3, vf_load(row + 3 * L));            \
        a4 = f(a4, vf_load(row + 4 * L)), a5 = f(a5, vf_load(row + 5 * L));            \
        a6 = f(a6, vf_load(row + 6 * L)), a7 = f(a7, vf_load(row + 7 * L));            \
        NEXT_BLOCK;                                                                    \
    }                                                                                  \
    static void f##_row_acc_block(BLOCK_ARGUMENTS)                                     \
    {                                                                                  \
        const float *row = op->row + i;                                                \
        a0 = f(vf_load(row), a0), a1 = f(vf_load(row + L), a1);                        \
        a2 = f(vf_load(row + 2 * L), a2), a3 = f(vf_load(row + 3 * L), a3);            \
        a4 = f(vf_load(row + 4 * L), a4), a5 = f(vf_load(row + 5 * L), a5);            \
        a6 = f(vf_load(row + 6 * L), a6), a7 = f(vf_load(row + 7 * L), a7);            \
        NEXT_BLOCK;                                                                    \
    }                                                                                  \
    static void f##_acc_spread_block(BLOCK_ARGUMENTS)                                  \
    {                                                                                  \
        const vf y = vf_set1(*op->row);                                                \
        a0 = f(a0, y), a1 = f(a1, y), a2 = f(a2, y), a3 = f(a3, y);                    \
        a4 = f(a4, y), a5 = f(a5, y), a6 = f(a6, y), a7 = f(a7, y);                    \
        NEXT_BLOCK;                                                                    \
    }                                                                                  \
    static void f##_spread_acc_block(BLOCK_ARGUMENTS)                                  \
    {                                                                                  \
        const vf y = vf_set1(*op->row);                                                \
        a0 = f(y, a0), a1 = f(y, a1), a2 = f(y, a2), a3 = f(y, a3);                    \
        a4 = f(y, a4), a5 = f(y, a5), a6 = f(y, a6), a7 = f(y, a7);                    \
        NEXT_BLOCK;                                                                    \
    }                                                                                  \
    static void f##_acc_acc_block(BLOCK_ARGUMENTS)                                     \
    {                                                                                  \
        a0 = f(a0, a0), a1 = f(a1, a1), a2 = f(a2, a2), a3 = f(a3, a3);                \
        a4 = f(a4, a4), a5 = f(a5, a5), a6 = f(a6, a6), a7 = f(a7, a7);                \
        NEXT_BLOCK;                                                                    \
    }                                                                                  \
    static void f##_acc_row_one(const ht_vector_op *op, int64_t i, int64_t n, vf x)    \
    {                                                                                  \
        x = f(x, vf_load_n(op->row + i, n));                                           \
        NEXT_ONE;                                                                      \
    }                                                                                  \
    static void f##_row_acc_one(const ht_vector_op *op, int64_t i, int64_t n, vf x)    \
    {                                                                                  \
        x = f(vf_load_n(op->row + i, n), x);                                           \
        NEXT_ONE;                                                                      \
    }                                                                                  \
    static void f##_acc_spread_one(const ht_vector_op *op, int64_t i, int64_t n, vf x) \
    {                                                                                  \
        x = f(x, vf_set1(*op->row));                                                   \
        NEXT_ONE;                                                                      \
    }                                                                                  \
    static void f##_spread_acc_one(const ht_vector_op *op, int64_t i, int64_t n, vf x) \
    {                                                                                  \
        x = f(vf_set1(*op->row), x);                                                   \
        NEXT_ONE;                                                                      \
    }                                                                                  \
    static void f##_acc_acc_one(const ht_vector_op *op, int64_t i, int64_t n, vf x)    \
    {                                                                                  \
        x = f(x, x);                                                                   \
        NEXT_ONE;                                                                      \
    }
BINARY(FORMS)

/* An inline function on one vector, so that its eight uses in a block share the vectors of parameters. */
#define UNARY(name, ...)                                                                                     \
    HT_INLINE vf unary_##name(vf v, vf a, vf b)                                                              \
    {                                                                                                        \
        (void)a, (void)b;                                                                                    \
        return __VA_ARGS__;                                                                                  \
    }                                                                                                        \
    static void name##_block(BLOCK_ARGUMENTS)                                                                \
    {                                                                                                        \
        const vf a = vf_set1(op->p0), b = vf_set1(op->p1);                                                   \
        a0 = unary_##name(a0, a, b), a1 = unary_##name(a1, a, b), a2 = unary_##name(a2, a, b);               \
        a3 = unary_##name(a3, a, b), a4 = unary_##name(a4, a, b), a5 = unary_##name(a5, a, b);               \
        a6 = unary_##name(a6, a, b), a7 = unary_##name(a7, a, b);                                            \
        NEXT_BLOCK;                                                                                          \
    }                                                                                                        \
    static void name##_one(const ht_vector_op *op, int64_t i, int64_t n, vf x)                               \
    {                                                                                                        \
        x = unary_##name(x, vf_set1(op->p0), vf_set1(op->p1));                                               \
        NEXT_ONE;                                                                                            \
    }
HT_UNARY_VECTORS(UNARY)

/* The conversions of quantize.c. p0: the scale, p1: the zero point. */
HT_INLINE vf dequantized(const uint8_t *bytes, const int is_signed, vf zeros, vf scales)
{
    return (ht_bytes_as_floats(bytes, is_signed) - zeros) * scales;
}

/* Four vectors after rounding to bytes and back. Adding 0 makes -0 the 0 that it is as a byte. */
HT_INLINE void requantize(const ht_vector_op *op, const int is_signed, vf v[4])
{
    const vf scales = vf_set1(op->p0);
    const vf low = vf_set1((float)(is_signed ? INT8_MIN : 0) - op->p1);
    const vf high = vf_set1((float)(is_signed ? INT8_MAX : UINT8_MAX) - op->p1);
    ht_quotients(v, op->p0, op->reciprocal);
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) /* in this order NaN is `low` */
        v[k] = (vf_min(vf_max(vf_round(v[k]), low), high) + vf_set1(0.0f)) * scales;
}

HT_INLINE void quantize(const ht_vector_op *op, const int is_signed, vf v[4], uint8_t *bytes)
{
    ht_quotients(v, op->p0, op->reciprocal);
    ht_round_to_bytes(v, (int32_t)op->p1, is_signed, bytes);
}

#define CONVERSIONS(form, is_signed)                                                                  \
    static void dequantize_##form##_block(BLOCK_ARGUMENTS)                                            \
    {                                                                                                 \
        const uint8_t *row = op->bytes + i;                                                           \
        const vf scales = vf_set1(op->p0), zeros = vf_set1(op->p1);                                   \
        EACH(DEQUANTIZE_##form)                                                                       \
        NEXT_BLOCK;                                                                                   \
    }                                                                                                 \
    static void dequantize_##form##_one(const ht_vector_op *op, int64_t i, int64_t n, vf x)           \
    {                                                                                                 \
        uint8_t bytes[L] = {0};                                                                       \
        memcpy(bytes, op->bytes + i, (size_t)n);                                                      \
        x = dequantized(bytes, is_signed, vf_set1(op->p1), vf_set1(op->p0));                          \
        NEXT_ONE;                                                                                     \
    }                                                                                                 \
    static void quantize_##form##_block(BLOCK_ARGUMENTS)                                              \
    {                                                                                                 \
        vf first[4] = {a0, a1, a2, a3}, second[4] = {a4, a5, a6, a7};                                 \
        quantize(op, is_signed, first, op->bytes + i);                                                \
        quantize(op, is_signed, second, op->bytes + i + 4 * L);                                       \
        NEXT_BLOCK;                                                                                   \
    }                                                                                                 \
    static void quantize_##form##_one(const ht_vector_op *op, int64_t i, int64_t n, vf x)             \
    {                                                                                                 \
        uint8_t bytes[4 * L];                                                                         \
        vf v[4] = {x, x, x, x};                                                                       \
        quantize(op, is_signed, v, bytes);                                                            \
        memcpy(op->bytes + i, bytes, (size_t)n);                                                      \
        NEXT_ONE;                                                                                     \
    }                                                                                                 \
    static void requantize_##form##_block(BLOCK_ARGUMENTS)                                            \
    {                                                                                                 \
        vf first[4] = {a0, a1, a2, a3}, second[4] = {a4, a5, a6, a7};                                 \
        requantize(op, is_signed, first);                                                             \
        requantize(op, is_signed, second);                                                            \
        a0 = first[0], a1 = first[1], a2 = first[2], a3 = first[3];                                   \
        a4 = second[0], a5 = second[1], a6 = second[2], a7 = second[3];                               \
        NEXT_BLOCK;                                                                                   \
    }                                                                                                 \
    static void requantize_##form##_one(const ht_vector_op *op, int64_t i, int64_t n, vf x)           \
    {                                                                                                 \
        vf v[4] = {x, x, x, x};                                                                       \
        requantize(op, is_signed, v);                                                                 \
        x = v[0];                                                                                     \
        NEXT_ONE;                                                                                     \
    }
#define DEQUANTIZE_unsigned(acc, k) acc = dequantized(row + k * L, 0, zeros, scales);
#define DEQUANTIZE_signed(acc, k) acc = dequantized(row + k * L, 1, zeros, scales);
CONVERSIONS(unsigned, 0)
CONVERSIONS(signed, 1)

typedef struct {
    ht_vector_block_fn block;
    ht_vector_one_fn one;
} pair;

static const pair unary[HT_VECTOR_LOAD] = {
#define UNARY_ENTRY(name, ...) [HT_UNARY_##name] = {name##_block, name##_one},
    HT_UNARY_VECTORS(UNARY_ENTRY)
};
#define UNARY_COUNT(name, ...) +(HT_UNARY_##name < HT_UNARY_VECTOR_END)
_Static_assert(0 HT_UNARY_VECTORS(UNARY_COUNT) == HT_UNARY_VECTOR_END - 1, "all codes below VECTOR_END, and no others");

/* [operation][form]; forms 3 and 4 are ACC_ROW and ROW_ACC with a row that repeats */
static const pair binary[HT_VECTOR_OPERATIONS][5] = {
#define BINARY_ENTRY(f)                                                                         \
    {{f##_acc_row_block, f##_acc_row_one}, {f##_row_acc_block, f##_row_acc_one},                \
     {f##_acc_acc_block, f##_acc_acc_one}, {f##_acc_spread_block, f##_acc_spread_one},          \
     {f##_spread_acc_block, f##_spread_acc_one}},
    BINARY(BINARY_ENTRY)
};

#define CONVERSION_ENTRY(f) {f##_unsigned_block, f##_unsigned_one}, {f##_signed_block, f##_signed_one},
static const pair conversion[] = {CONVERSION_ENTRY(dequantize) CONVERSION_ENTRY(quantize) CONVERSION_ENTRY(requantize)};
_Static_assert(sizeof conversion / sizeof(pair) == HT_VECTOR_END - HT_VECTOR_DEQUANTIZE, "a pair for each code");

int ht_vector_op_set(ht_vector_op *op, int64_t code, int repeats, float p0, float p1)
{
    pair chosen = {NULL, NULL};
    if (code == HT_VECTOR_LOAD) {
        chosen = repeats ? (pair){spread_block, spread_one} : (pair){load_block, load_one};
    } else if (code == HT_VECTOR_STORE && !repeats) {
        chosen = (pair){store_block, store_one};
    } else if (code == HT_VECTOR_END) {
        chosen = (pair){end_block, end_one};
    } else if (code >= HT_VECTOR_DEQUANTIZE && code < HT_VECTOR_END) {
        chosen = conversion[code - HT_VECTOR_DEQUANTIZE];
    } else if (code >= HT_VECTOR_BINARY && code < HT_VECTOR_DEQUANTIZE) {
        const int64_t form = (code - HT_VECTOR_BINARY) % HT_VECTOR_FORMS;
        chosen = binary[(code - HT_VECTOR_BINARY) / HT_VECTOR_FORMS][form < HT_VECTOR_ACC_ACC && repeats ? 3 + form : form];
    } else if (code > 0 && code < HT_VECTOR_LOAD) {
        chosen = unary[code];
    }
    *op = (ht_vector_op){.block = chosen.block, .one = chosen.one, .p0 = p0, .p1 = p1, .reciprocal = ht_reciprocal(p0),
                         .is_bytes = ht_vector_has_bytes(code)};
    return chosen.block ? HT_OK : HT_ERR_OPERAND;
}

void ht_vector_run(const ht_vector_op *tape, int64_t n)
{
    const vf none = vf_set1(0.0f);
    int64_t i = 0;
    for (; i + HT_VECTOR_BLOCK * L <= n; i += HT_VECTOR_BLOCK * L)
        tape->block(tape, i, none, none, none, none, none, none, none, none);
    for (; i < n; i += L)
        tape->one(tape, i, ht_min64(L, n - i), none);
}
