/* Between floats and small integers: quantize, dequantize, dynamic_quantize, requantize.
 *
 * quantize: y = saturate(round(x / scale) + zero), halves to even, in float32; NaN gives the smallest integer.
 *   in x, scale: float32; zero: y's type, or NULL (0). out y: int8, uint8, int16, uint16.
 * dequantize: y = (x - zero) * scale. in x: int8, uint8, int16, uint16, int32; scale: float32; zero: x's type, or NULL.
 *   out y: float32.
 * Both: ints outer, axis, inner, block of x[outer][axis][inner]: scale and zero are [axis] (block = 0) or
 * [outer][ceil(axis / block)][inner]. No ints: one scale for all.
 *
 * dynamic_quantize: scale and zero are derived from x's range, extended to contain 0. If that range contains only 0,
 *   the scale is 1. NaN in x makes the scale NaN. A zero point that is NaN (for a scale of 0, NaN or infinity) becomes
 *   255.
 *   in x float32; out y uint8, scale float32[], zero uint8[].
 * requantize: see requantize.h. in x int32, scale float32, zero of y's type, broadcast to y: int8 or uint8.
 */
#include "broadcast.h"
#include "requantize.h"
#include "rows.h"

#define BLOCK 64 /* elements at a time: as int32 between two loops they take 256 B on the stack */

/* The range of a type. */
static int range_of(int32_t dtype, float *low, float *high)
{
    switch (dtype) {
    case HT_INT8: *low = INT8_MIN, *high = INT8_MAX; return 1;
    case HT_UINT8: *low = 0, *high = UINT8_MAX; return 1;
    case HT_INT16: *low = INT16_MIN, *high = INT16_MAX; return 1;
    case HT_UINT16: *low = 0, *high = UINT16_MAX; return 1;
    default: return 0;
    }
}

static int32_t integer_at(const void *p, int32_t dtype, int64_t i)
{
    switch (dtype) {
    case HT_INT8: return ((const int8_t *)p)[i];
    case HT_UINT8: return ((const uint8_t *)p)[i];
    case HT_INT16: return ((const int16_t *)p)[i];
    case HT_UINT16: return ((const uint16_t *)p)[i];
    default: return ((const int32_t *)p)[i];
    }
}

HT_INLINE void narrow(const int32_t *x, void *y, int32_t dtype, int64_t at, int64_t n)
{
    switch (dtype) {
#define CASE(code, type)                             \
    case code:                                       \
        for (int64_t i = 0; i < n; i++)              \
            ((type *)y)[at + i] = (type)x[i];        \
        break;
    CASE(HT_INT8, int8_t)
    CASE(HT_UINT8, uint8_t)
    CASE(HT_INT16, int16_t)
    default:
    CASE(HT_UINT16, uint16_t)
#undef CASE
    }
}

/* Rounds `count` elements, at most BLOCK, to integers. zeros: their zero points, as floats. */
HT_INLINE void quantize_block(const float *x, const float *scale, const int64_t step, const float *zeros, float low,
                              float high, int64_t count, int32_t *whole)
{
    for (int64_t i = 0; i < count; i += VF_LANES) {
        const int64_t left = ht_min64(VF_LANES, count - i);
        const vf s = step ? vf_load_n(scale + i, left) : vf_set1(*scale);
        const vf z = vf_load(zeros + i), q = vf_round(vf_load_n(x + i, left) / s);
        const vf inside = vf_min(vf_max(q, vf_set1(low) - z), vf_set1(high) - z); /* in this order NaN is `low` */
        vf_store((float *)(void *)(whole + i), vi_as_float(vf_to_int(inside + z)));
    }
}

/* y[at .. at + n) from x[at ..]; scale and zero begin at `from` and advance by `step`, 0 or 1. */
static void quantize_row(const float *x, const float *scale, const ht_tensor *zero, const ht_tensor *y, int64_t at,
                         int64_t from, int64_t step, int64_t n)
{
    float low = 0, high = 0, zeros[BLOCK];
    int32_t whole[BLOCK];
    range_of(y->dtype, &low, &high);
    zeros[0] = zero ? (float)integer_at(zero->data, y->dtype, from) : 0.0f;
    for (int i = 1; i < BLOCK; i++)
        zeros[i] = zeros[0];
    int64_t start = 0;
    if (!step && (y->dtype == HT_INT8 || y->dtype == HT_UINT8)) {
        const float s = scale[from], reciprocal = ht_reciprocal(s);
        for (; start + HT_BYTES_TOGETHER <= n; start += HT_BYTES_TOGETHER) {
            vf v[4];
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                v[i] = vf_load(x + at + start + i * VF_LANES);
            ht_quotients(v, s, reciprocal);
            ht_round_to_bytes(v, (int32_t)zeros[0], y->dtype == HT_INT8, (uint8_t *)y->data + at + start);
        }
    }
    for (; start < n; start += BLOCK) {
        const int64_t count = ht_min64(BLOCK, n - start);
        if (step && zero)
            for (int64_t i = 0; i < count; i++)
                zeros[i] = (float)integer_at(zero->data, y->dtype, from + start + i);
        if (count == BLOCK && !step) {
            quantize_block(x + at + start, scale + from, 0, zeros, low, high, BLOCK, whole);
            narrow(whole, y->data, y->dtype, at + start, BLOCK);
        } else {
            quantize_block(x + at + start, scale + from + step * start, step, zeros, low, high, count, whole);
            narrow(whole, y->data, y->dtype, at + start, count);
        }
    }
}

#define DEQUANTIZE(name, type, wide)                                                                                  \
    static void name(const type *x, const float *scale, const type *zero, int64_t step, float *y, int64_t n)          \
    {                                                                                                                 \
        if (step == 0) {                                                                                              \
            const wide z = zero ? *zero : 0;                                                                          \
            const float s = *scale;                                                                                   \
            for (int64_t i = 0; i < n; i++)                                                                           \
                y[i] = (float)(x[i] - z) * s;                                                                         \
        } else {                                                                                                      \
            for (int64_t i = 0; i < n; i++)                                                                           \
                y[i] = (float)(x[i] - (wide)(zero ? zero[i] : 0)) * scale[i];                                         \
        }                                                                                                             \
    }
DEQUANTIZE(dequantize_i8, int8_t, int32_t)
DEQUANTIZE(dequantize_u8, uint8_t, int32_t)
DEQUANTIZE(dequantize_i16, int16_t, int32_t)
DEQUANTIZE(dequantize_u16, uint16_t, int32_t)
DEQUANTIZE(dequantize_i32, int32_t, int64_t)

static void dequantize_row(const ht_tensor *x, const float *scale, const ht_tensor *zero, float *y, int64_t at,
                           int64_t from, int64_t step, int64_t n)
{
    switch (x->dtype) {
#define CASE(code, type, row)                                                                                         \
    case code:                                                                                                        \
        row((const type *)x->data + at, scale + from, zero ? (const type *)zero->data + from : NULL, step, y + at, n); \
        break;
    CASE(HT_INT8, int8_t, dequantize_i8)
    CASE(HT_UINT8, uint8_t, dequantize_u8)
    CASE(HT_INT16, int16_t, dequantize_i16)
    CASE(HT_UINT16, uint16_t, dequantize_u16)
    default:
    CASE(HT_INT32, int32_t, dequantize_i32)
#undef CASE
    }
}

/* Rows with one scale each, or with a scale per element, in chunks. */
typedef struct {
    const ht_call *call;
    int quantize;
    int64_t axis, inner, block, blocks;
    int64_t run, rows; /* elements of a row, at most; rows of an index of the outer axes */
    int64_t chunks, units, parts;
} row_job;

enum { CHUNK = 1 << 14 }; /* elements of a unit of work for threads; a multiple of BLOCK */

static void row_part(void *context, int64_t part, int thread)
{
    (void)thread;
    const row_job *job = (const row_job *)context;
    const ht_tensor *x = job->call->in[0], *scale = job->call->in[1], *zero = job->call->in[2], *y = job->call->out[0];
    const int64_t inner = job->inner, end = ht_part_begin(job->units, job->parts, part + 1);
    for (int64_t unit = ht_part_begin(job->units, job->parts, part); unit < end; unit++) {
        const int64_t chunk = unit % job->chunks * CHUNK, row = unit / job->chunks % job->rows;
        const int64_t o = unit / job->chunks / job->rows, a = inner > 1 ? row : row * job->run;
        const int64_t length = inner > 1 ? inner : ht_min64(job->run, job->axis - a);
        const int64_t step = job->block ? inner > 1 : inner == 1, skip = step * chunk;
        const int64_t from = (job->block ? (o * job->blocks + a / job->block) * inner : a) + skip;
        const int64_t at = (o * job->axis + a) * inner + chunk, n = ht_min64(CHUNK, length - chunk);
        if (n <= 0)
            continue;
        if (job->quantize)
            quantize_row(x->data, scale->data, zero, y, at, from, step, n);
        else
            dequantize_row(x, scale->data, zero, y->data, at, from, step, n);
    }
}

static int each_row(const ht_call *call, const int quantize)
{
    const ht_tensor *x = call->in[0], *scale = call->in[1], *zero = call->in[2], *y = call->out[0];
    const int64_t one_scale[] = {1, 1, x->size, 0}, *ints = call->num_ints ? call->ints : one_scale;
    const int64_t outer = ints[0], axis = ints[1], inner = ints[2], block = ints[3];
    if (outer < 0 || axis < 0 || inner < 0 || block < 0 || x->size != outer * axis * inner || y->size != x->size)
        return HT_ERR_OPERAND;
    if (x->size == 0)
        return HT_OK;
    const int64_t blocks = block ? ht_ceil_div(axis, block) : axis, scales = block ? outer * blocks * inner : axis;
    if (scale->size != scales || (zero && zero->size != scales))
        return HT_ERR_OPERAND;
    if (scale->size == 1 && x->size <= CHUNK) { /* a tile of a chain: without the divisions that find a unit's place */
        if (quantize)
            quantize_row(x->data, scale->data, zero, y, 0, 0, 0, x->size);
        else
            dequantize_row(x, scale->data, zero, y->data, 0, 0, 0, x->size);
        return HT_OK;
    }
    row_job job = {.call = call, .quantize = quantize, .axis = axis, .inner = inner, .block = block, .blocks = blocks};
    job.run = inner > 1 ? inner : block ? ht_min64(block, axis) : axis;
    job.rows = inner > 1 ? axis : ht_ceil_div(axis, job.run);
    job.chunks = ht_ceil_div(job.run, CHUNK);
    job.units = outer * job.rows * job.chunks;
    job.parts = ht_parts(call, job.units, 8 * (double)x->size);
    ht_parallel(call->team, job.parts, row_part, &job);
    return HT_OK;
}

int HT_KERNEL(quantize)(const ht_call *call)
{
    float low, high;
    if (call->num_in != 3 || (call->num_ints != 0 && call->num_ints != 4))
        return HT_ERR_OPERAND;
    const int32_t dtype = call->out[0]->dtype;
    if (call->in[0]->dtype != HT_FLOAT32 || call->in[1]->dtype != HT_FLOAT32 || !range_of(dtype, &low, &high) ||
        (call->in[2] && call->in[2]->dtype != dtype))
        return HT_ERR_DTYPE;
    return each_row(call, 1);
}

int HT_KERNEL(dequantize)(const ht_call *call)
{
    float low, high;
    if (call->num_in != 3 || (call->num_ints != 0 && call->num_ints != 4))
        return HT_ERR_OPERAND;
    const int32_t dtype = call->in[0]->dtype;
    if ((dtype != HT_INT32 && !range_of(dtype, &low, &high)) || call->in[1]->dtype != HT_FLOAT32 ||
        (call->in[2] && call->in[2]->dtype != dtype) || call->out[0]->dtype != HT_FLOAT32)
        return HT_ERR_DTYPE;
    return each_row(call, 0);
}

/* The smallest and the largest element; NaN for both if there is one. An empty x has the range of inf to -inf. */
static void find_range(const float *x, int64_t n, float *lowest, float *highest)
{
    vf low[2] = {vf_set1(INFINITY), vf_set1(INFINITY)}, high[2] = {vf_set1(-INFINITY), vf_set1(-INFINITY)};
    vf sum[2] = {vf_set1(0.0f), vf_set1(0.0f)};
    int64_t i = 0;
    HT_LONG_STEPS(i, 2 * VF_LANES, n)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            const vf v = vf_load(x + i + j * VF_LANES);
            low[j] = vf_min(v, low[j]), high[j] = vf_max(v, high[j]); /* ignore NaN */
            sum[j] = vf_fma(v, vf_set1(0.0f), sum[j]);                /* NaN if v is NaN or infinite */
        }
    for (; i < n; i += VF_LANES) {
        const vf v = vf_load_or(x + i, 0, ht_min64(VF_LANES, n - i), vf_set1(x[0]));
        low[0] = vf_min(v, low[0]), high[0] = vf_max(v, high[0]);
        sum[0] = vf_fma(v, vf_set1(0.0f), sum[0]);
    }
    *lowest = vf_hmin(vf_min(low[0], low[1])), *highest = vf_hmax(vf_max(high[0], high[1]));
    if (HT_UNLIKELY(vm_any(vf_isnan(sum[0] + sum[1]))))
        *lowest = ht_row_min(x, n), *highest = ht_row_max(x, n, 1);
}

int HT_KERNEL(dynamic_quantize)(const ht_call *call)
{
    if (call->num_in != 1 || call->num_out != 3)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0], *y = call->out[0], *scale = call->out[1], *zero = call->out[2];
    if (x->dtype != HT_FLOAT32 || y->dtype != HT_UINT8 || scale->dtype != HT_FLOAT32 || zero->dtype != HT_UINT8)
        return HT_ERR_DTYPE;
    if (y->size != x->size || scale->size != 1 || zero->size != 1)
        return HT_ERR_OPERAND;
    float low, high;
    find_range(x->data, x->size, &low, &high);
    high = high < 0 ? 0 : high;
    low = low > 0 ? 0 : low;
    const float step = high == low ? 1.0f : (high - low) / 255.0f, start = -low / step;
    float *out_scale = scale->data;
    uint8_t *out_zero = zero->data;
    *out_scale = step;
    *out_zero = (uint8_t)(start < 255 ? start > 0 ? rintf(start) : 0 : 255); /* NaN: 255 */
    const ht_tensor *const operands[] = {x, scale, zero};
    ht_call rows = *call;
    rows.in = operands;
    rows.num_in = 3;
    rows.num_ints = 0;
    return each_row(&rows, 1);
}

int HT_KERNEL(requantize)(const ht_call *call)
{
    ht_broadcast loops;
    if (call->num_in != 3 || call->num_out != 1)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0], *scale = call->in[1], *zero = call->in[2], *y = call->out[0];
    if (x->dtype != HT_INT32 || scale->dtype != HT_FLOAT32 || zero->dtype != y->dtype ||
        (y->dtype != HT_INT8 && y->dtype != HT_UINT8))
        return HT_ERR_DTYPE;
    if (ht_broadcast_loops(&loops, call->in, 3, y) != HT_OK)
        return HT_ERR_OPERAND;
    if (y->size == 0)
        return HT_OK;
    int64_t index[HT_MAX_DIMS + 1] = {0}, offset[HT_MAX_BROADCAST] = {0}, at = 0, n = loops.count[0];
    const int64_t *step = loops.step[0];
    const int is_signed = y->dtype == HT_INT8;
    const int32_t low = is_signed ? INT8_MIN : 0, high = is_signed ? INT8_MAX : UINT8_MAX;
    int64_t offset_step;
    const float *no_offset = ht_offset_of(NULL, 0, &offset_step);
    do {
        const int32_t *values = (const int32_t *)x->data + offset[0];
        const float *scales = (const float *)scale->data + offset[1];
        uint8_t *to = (uint8_t *)y->data + at;
        if (step[0] == 1 && step[2] == 0)
            ht_requantize_row(values, scales, step[1], no_offset, offset_step, ht_byte_at(zero, offset[2]), is_signed, to, n);
        else
            for (int64_t i = 0; i < n; i++)
                to[i] = (uint8_t)ht_requantize_one(values[i * step[0]], scales[i * step[1]],
                                                   ht_byte_at(zero, offset[2] + i * step[2]), low, high);
        at += n;
    } while (ht_broadcast_next(&loops, 3, index, offset));
    return HT_OK;
}
