/* Sums and products of two quantized tensors, with the roundings of onnxruntime's QLinearAdd and QLinearMul.
 *
 * quantized_add: y = saturate(round(fma(a, ra, fma(b, rb, fixed)))), where ra = a_scale / y_scale,
 *   rb = b_scale / y_scale, and fixed = y_zero - fma(ra, a_zero, rb * b_zero). If one operand is the same along a row,
 *   its product comes first.
 * quantized_mul: y = saturate(round((a - a_zero) * (b - b_zero) * (a_scale * b_scale / y_scale) + y_zero)).
 * Both: float32. Halves are rounded to even, and NaN gives the smallest integer, here and below. Scales are often multiples of
 * each other, so that many results are halves: the zero point is added before rounding, which decides where these go.
 *
 * If these scales leave the range of normal float32, or a step of an operand is more than MAX_RATIO steps of y, so that
 * `fixed` has few or no bits for the integers of y:
 * quantized_add: y = saturate(round((a_scale * (a - a_zero) + b_scale * (b - b_zero)) / y_scale + y_zero)).
 * quantized_mul: y = saturate(round((a - a_zero) * (b - b_zero) * (a_scale * b_scale) / y_scale + y_zero)).
 * Both: float64. This is the definition; onnxruntime returns the smallest integer in many of these cases.
 *
 * in a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero. a, b, y and the zero points: int8 or uint8, all the same; a
 * zero point may be NULL (0). Scales: float32. Scales and zero points have one element. a and b broadcast to y.
 * Results are bitwise equal in every instruction set.
 */
#include <float.h>

#include "broadcast.h"
#include "requantize.h"

/* a * b + c, rounded once also if the machine has no instruction for it. */
HT_INLINE vf fma_exact(vf a, vf b, vf c)
{
#if defined(__FMA__) || defined(__AVX512F__) || defined(__aarch64__)
    return vf_fma(a, b, c);
#else
    float x[VF_LANES], y[VF_LANES], z[VF_LANES];
    vf_store(x, a), vf_store(y, b), vf_store(z, c);
    for (int i = 0; i < VF_LANES; i++)
        z[i] = fmaf(x[i], y[i], z[i]);
    return vf_load(z);
#endif
}

#define MAX_RATIO 4096.0f /* `fixed` is below 2^21, whose rounding error of 2^-3 a result does not show */

typedef struct {
    float a_ratio, b_ratio, fixed; /* of a sum */
    float ratio, y_zero;           /* of a product */
    int32_t a_zero, b_zero;
    int is_sum, is_signed, is_wide;
    double a_scale, b_scale, y_scale; /* if `is_wide` */
} numbers;

/* The same as `combine_row` by the definition, in float64. Only the division, and a sum of operands of very different
 * sizes, are rounded before the end. */
static void combine_wide(const numbers *p, const uint8_t *a, int64_t a_step, const uint8_t *b, int64_t b_step, uint8_t *y,
                         int64_t n)
{
    const double low = p->is_signed ? INT8_MIN : 0, high = p->is_signed ? INT8_MAX : UINT8_MAX;
    for (int64_t i = 0; i < n; i++) {
        const uint8_t left = a[i * a_step], right = b[i * b_step];
        const double x = (p->is_signed ? (int8_t)left : left) - p->a_zero, z = (p->is_signed ? (int8_t)right : right) - p->b_zero;
        const double wide = p->is_sum ? p->a_scale * x + p->b_scale * z : x * z * (p->a_scale * p->b_scale);
        const double level = nearbyint(wide / p->y_scale + (double)p->y_zero);
        y[i] = (uint8_t)(int32_t)(level > low ? level < high ? level : high : low); /* NaN is `low` */
    }
}

/* n elements of y. Steps: 0 or 1. */
HT_INLINE void combine_row(const numbers *p, const uint8_t *a, int64_t a_step, const uint8_t *b, int64_t b_step,
                           const int is_signed, const int is_sum, uint8_t *y, int64_t n)
{
    const int a_first = a_step == 0 && b_step != 0;
    const vf a_zero = vf_set1(is_sum ? 0 : (float)p->a_zero), b_zero = vf_set1(is_sum ? 0 : (float)p->b_zero);
    const vf a_same = vf_set1((float)(is_signed ? (int8_t)*a : *a)), b_same = vf_set1((float)(is_signed ? (int8_t)*b : *b));
    uint8_t a_rest[HT_BYTES_TOGETHER], b_rest[HT_BYTES_TOGETHER], y_rest[HT_BYTES_TOGETHER];
    for (int64_t at = 0; at < n; at += HT_BYTES_TOGETHER) {
        const int64_t count = ht_min64(HT_BYTES_TOGETHER, n - at);
        const uint8_t *a_at = a_step ? a + at : a, *b_at = b_step ? b + at : b;
        vf v[4];
        if (HT_UNLIKELY(count < HT_BYTES_TOGETHER)) { /* copies of whole vectors */
            memset(a_rest, 0, sizeof a_rest), memset(b_rest, 0, sizeof b_rest);
            memcpy(a_rest, a_at, a_step ? (size_t)count : 1), memcpy(b_rest, b_at, b_step ? (size_t)count : 1);
            a_at = a_rest, b_at = b_rest;
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const vf left = (a_step ? ht_bytes_as_floats(a_at + i * VF_LANES, is_signed) : a_same) - a_zero;
            const vf right = (b_step ? ht_bytes_as_floats(b_at + i * VF_LANES, is_signed) : b_same) - b_zero;
            if (!is_sum)
                v[i] = left * right * vf_set1(p->ratio) + vf_set1(p->y_zero);
            else if (a_first)
                v[i] = fma_exact(right, vf_set1(p->b_ratio), fma_exact(left, vf_set1(p->a_ratio), vf_set1(p->fixed)));
            else
                v[i] = fma_exact(left, vf_set1(p->a_ratio), fma_exact(right, vf_set1(p->b_ratio), vf_set1(p->fixed)));
        }
        if (HT_LIKELY(count == HT_BYTES_TOGETHER))
            ht_round_to_bytes(v, 0, is_signed, y + at);
        else {
            ht_round_to_bytes(v, 0, is_signed, y_rest);
            memcpy(y + at, y_rest, (size_t)count);
        }
    }
}

enum { CHUNK = 1 << 14 }; /* elements of a row that a unit of work for threads computes, at most; whole vectors */

typedef struct {
    const ht_call *call;
    numbers numbers;
    ht_broadcast loops;
    int64_t chunks, units, parts;
} job;

static void combine_part(void *context, int64_t part, int thread)
{
    (void)thread;
    const job *j = (const job *)context;
    const int64_t n = j->loops.count[0], *step = j->loops.step[0];
    const int64_t end = ht_part_begin(j->units, j->parts, part + 1);
    for (int64_t unit = ht_part_begin(j->units, j->parts, part); unit < end; unit++) {
        int64_t index[HT_MAX_DIMS + 1] = {0}, offset[HT_MAX_BROADCAST] = {0};
        const int64_t row = unit / j->chunks, from = unit % j->chunks * CHUNK, count = ht_min64(CHUNK, n - from);
        ht_broadcast_seek(&j->loops, 2, row, index, offset);
        const uint8_t *a = (const uint8_t *)j->call->in[0]->data + offset[0] + from * step[0];
        const uint8_t *b = (const uint8_t *)j->call->in[3]->data + offset[1] + from * step[1];
        uint8_t *y = (uint8_t *)j->call->out[0]->data + row * n + from;
        const numbers *p = &j->numbers;
        if (HT_UNLIKELY(p->is_wide))
            combine_wide(p, a, step[0], b, step[1], y, count);
        else if (p->is_signed && p->is_sum)
            combine_row(p, a, step[0], b, step[1], 1, 1, y, count);
        else if (p->is_signed)
            combine_row(p, a, step[0], b, step[1], 1, 0, y, count);
        else if (p->is_sum)
            combine_row(p, a, step[0], b, step[1], 0, 1, y, count);
        else
            combine_row(p, a, step[0], b, step[1], 0, 0, y, count);
    }
}

static int combine(const ht_call *call, int is_sum)
{
    if (call->num_in != 8 || call->num_out != 1)
        return HT_ERR_OPERAND;
    const ht_tensor *const *in = call->in, *y = call->out[0];
    if (y->dtype != HT_INT8 && y->dtype != HT_UINT8)
        return HT_ERR_DTYPE;
    static const int bytes[] = {0, 2, 3, 5, 7}, scales[] = {1, 4, 6};
    for (int i = 0; i < 5; i++) {
        const ht_tensor *x = in[bytes[i]];
        if (x && x->dtype != y->dtype)
            return HT_ERR_DTYPE;
        if (x && bytes[i] != 0 && bytes[i] != 3 && x->size != 1)
            return HT_ERR_OPERAND;
    }
    float scale[3];
    for (int i = 0; i < 3; i++) {
        if (in[scales[i]]->dtype != HT_FLOAT32)
            return HT_ERR_DTYPE;
        if (in[scales[i]]->size != 1)
            return HT_ERR_OPERAND;
        scale[i] = *(const float *)in[scales[i]]->data;
    }
    const ht_tensor *const operands[] = {in[0], in[3]};
    job j = {.call = call};
    if (ht_broadcast_loops(&j.loops, operands, 2, y) != HT_OK)
        return HT_ERR_OPERAND;
    if (y->size == 0)
        return HT_OK;
    numbers *p = &j.numbers;
    const int32_t y_zero = in[7] ? ht_byte_at(in[7], 0) : 0;
    p->is_sum = is_sum, p->is_signed = y->dtype == HT_INT8, p->y_zero = (float)y_zero;
    p->a_zero = in[2] ? ht_byte_at(in[2], 0) : 0, p->b_zero = in[5] ? ht_byte_at(in[5], 0) : 0;
    const float product = scale[0] * scale[1];
    p->ratio = product / scale[2];
    p->a_ratio = scale[0] / scale[2], p->b_ratio = scale[1] / scale[2];
    p->fixed = (float)y_zero - fmaf(p->a_ratio, (float)p->a_zero, p->b_ratio * (float)p->b_zero);
    p->a_scale = (double)scale[0], p->b_scale = (double)scale[1], p->y_scale = (double)scale[2];
    p->is_wide = is_sum ? !(fabsf(p->a_ratio) <= MAX_RATIO && fabsf(p->b_ratio) <= MAX_RATIO)
                        : !(fabsf(product) >= FLT_MIN && fabsf(product) <= FLT_MAX && fabsf(p->ratio) <= FLT_MAX);
    j.chunks = ht_ceil_div(j.loops.count[0], CHUNK);
    j.units = y->size / j.loops.count[0] * j.chunks;
    j.parts = ht_parts(call, j.units, 4 * (double)y->size);
    ht_parallel(call->team, j.parts, combine_part, &j);
    return HT_OK;
}

int HT_KERNEL(quantized_add)(const ht_call *call)
{
    return combine(call, 1);
}

int HT_KERNEL(quantized_mul)(const ht_call *call)
{
    return combine(call, 0);
}
