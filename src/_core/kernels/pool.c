/* Pooling over one to three spatial axes: max_pool, average_pool.
 *
 * Both: in x[n][c][...], float32 or float64; out y. ints: triples (see spatial.h) kernel, strides, pads before,
 * dilations; average_pool then pads after and count_padding (0: divide by the elements of x in the window; 1: by the
 * elements of the window within the padded x).
 * A window outside x gives -infinity (max_pool) or 0 (average_pool). max_pool propagates NaN.
 * float32: the rows of a window are first combined, in place, into one row with its padding; then that row's columns
 * are combined. So a k x k window costs about k / stride + k operations per output, and x is never copied. Every loop
 * runs along the innermost axis. Terms are added in the order of rows within a column, then of columns.
 * If rows are short or strides too long for vectors, channels are in the lanes instead (pool_lanes.c), provided that
 * the planner gives scratch memory: 64 * (size of a plane of x + of y + x's columns) + 24 * y's columns bytes.
 * Global pooling is average_pool or max_pool of the whole plane, or `reduce`.
 */
#include "pool.h"

static int window_of(const ht_call *call, int num_ints, ht_window *w)
{
    if (call->num_in != 1 || call->num_ints != num_ints)
        return HT_ERR_OPERAND;
    if (call->in[0]->dtype != HT_FLOAT32 && call->in[0]->dtype != HT_FLOAT64)
        return HT_ERR_DTYPE;
    return ht_pool_window(call, w);
}

/* ---- float32 */

#define ROW_FLOATS 8192 /* floats of the combined row on the stack: 32 kB; bounds kernels, strides and dilations */
#define LINES 32        /* output rows combined at a time, if ROW_FLOATS has room for them */

/* Output columns at a time, such that their inputs, read in whole vectors, fit the row buffer; 0 if one vector does not
 * fit. */
static int64_t block_columns(const ht_window *w)
{
    for (int i = 0; i < 3; i++)
        if (w->kernel[i] > ROW_FLOATS || w->dilation[i] > ROW_FLOATS || w->stride[i] > ROW_FLOATS)
            return 0;
    const int64_t reach = (w->kernel[2] - 1) * w->dilation[2] + 1, room = ROW_FLOATS - reach - 2 * VF_LANES;
    if (w->kernel[0] * w->kernel[1] > HT_POOL_TAPS || w->kernel[2] > HT_POOL_TAPS || room < 0)
        return 0;
    return ht_min64(w->out[2], room / w->stride[2] / VF_LANES * VF_LANES);
}

/* One tap of adjacent outputs. With strides of 2 and 4, up to stride - 1 floats after the last one are read: they are in the
 * row buffer. */
HT_INLINE vf load_tap(const float *p, const int64_t stride)
{
    if (stride == 1)
        return vf_load(p);
    if (stride == 2)
        return vf_even(vf_load(p), vf_load(p + VF_LANES));
    if (stride == 4)
        return vf_even(vf_even(vf_load(p), vf_load(p + VF_LANES)),
                       vf_even(vf_load(p + 2 * VF_LANES), vf_load(p + 3 * VF_LANES)));
    float lanes[VF_LANES];
    for (int i = 0; i < VF_LANES; i++)
        lanes[i] = p[i * stride];
    return vf_load(lanes);
}

/* Computes y[0, count) of one output row. `room`: floats from y on that may be overwritten, because later rows are
 * written later. */
HT_INLINE void combine_columns(const float *row, const int64_t stride, const int64_t dilation, const int64_t taps,
                               const float *counts, float count_rows, float *y, int64_t count, int64_t room,
                               const int average)
{
    for (int64_t i = 0; i < count; i += VF_LANES) {
        vf result = load_tap(row + i * stride, stride);
#pragma GCC unroll 4
        for (int64_t tap = 1; tap < taps; tap++)
            result = ht_combine(result, load_tap(row + i * stride + tap * dilation, stride), average);
        if (average) {
            const vf divisor = vf_load(counts + i) * vf_set1(count_rows);
            result = vf_select(vf_eq(divisor, vf_set1(0.0f)), vf_set1(0.0f), result / divisor);
        }
        if (HT_LIKELY(i + VF_LANES <= room))
            vf_store(y + i, result);
        else
            vf_store_n(y + i, ht_min64(VF_LANES, count - i), result);
    }
}

/* `columns`: output columns at a time. `stride`: w's stride along columns, a compile-time constant for speed. */
HT_INLINE void pool_f32(const ht_window *w, int64_t columns, const float *x, float *y, const int64_t stride,
                        const int average, const int64_t *pad_after, int count_padding)
{
    float combined[ROW_FLOATS], counts[ROW_FLOATS + VF_LANES];
    const float blank = average ? 0.0f : -INFINITY;
    const int64_t size = w->n * w->c * w->out_size;
    for (int64_t column = 0; column < w->out[2]; column += columns) {
        const int64_t count = ht_min64(columns, w->out[2] - column), at_x = column * stride - w->pad[2];
        const int64_t vectors = ht_ceil_div(count, VF_LANES) * VF_LANES, reach = (w->kernel[2] - 1) * w->dilation[2] + 1;
        const int64_t span = (count - 1) * stride + reach;
        const int64_t low = ht_min64(span, ht_max64(0, -at_x)), high = ht_max64(low, ht_min64(span, w->in[2] - at_x));
        /* Several rows are combined at a time, so that loads do not wait for the stores just before them. */
        const int64_t pitch = ht_ceil_div((vectors - 1) * stride + reach + VF_LANES, VF_LANES) * VF_LANES;
        const int64_t lines = ht_max64(1, ht_min64(LINES, ROW_FLOATS / pitch));
        for (int64_t i = 0; average && i < vectors; i++)
            counts[i] = (float)ht_counted(w, 2, at_x + i * stride, pad_after, count_padding);
        int64_t left = HT_PACE;
        for (int64_t i = 0; i < ROW_FLOATS; i++)
            combined[i] = blank; /* from now on only [low, high) of each row is written */
        for (int64_t plane = 0; plane < w->n * w->c; plane++)
            for (int64_t z = 0; z < w->out[0]; z++)
                for (int64_t top = 0; top < w->out[1]; top += lines) {
                    if (ht_paced_stop(&left, lines * count * (w->kernel[0] * w->kernel[1] + w->kernel[2])))
                        return;
                    const int64_t bottom = ht_min64(top + lines, w->out[1]), at_z = z * w->stride[0] - w->pad[0];
                    for (int64_t line = top; line < bottom; line++) {
                        const int64_t at_y = line * w->stride[1] - w->pad[1];
                        const float *rows[HT_POOL_TAPS];
                        float *dst = combined + (line - top) * pitch + low;
                        int64_t taps = 0, first, last;
                        ht_valid_range(at_y, w->dilation[1], w->in[1], w->kernel[1], &first, &last);
                        for (int64_t kz = 0; kz < w->kernel[0]; kz++) {
                            const int64_t iz = at_z + kz * w->dilation[0];
                            for (int64_t ky = first; iz >= 0 && iz < w->in[0] && ky < last; ky++)
                                rows[taps++] = x + plane * w->in_size +
                                               (iz * w->in[1] + at_y + ky * w->dilation[1]) * w->in[2] + at_x + low;
                        }
                        if (taps == 0)
                            for (int64_t i = 0; i < high - low; i++)
                                dst[i] = blank;
                        else
                            HT_BY_TAPS(taps, ht_combine_rows(rows, TAPS, high - low, dst, average))
                    }
                    for (int64_t line = top; line < bottom; line++) {
                        const int64_t at = plane * w->out_size + (z * w->out[1] + line) * w->out[2] + column;
                        float counted_rows = 0;
                        if (average)
                            counted_rows = (float)(ht_counted(w, 0, at_z, pad_after, count_padding) *
                                                   ht_counted(w, 1, line * w->stride[1] - w->pad[1], pad_after,
                                                           count_padding));
                        HT_BY_TAPS(w->kernel[2],
                                combine_columns(combined + (line - top) * pitch, stride, w->dilation[2], TAPS, counts,
                                                counted_rows, y + at, count,
                                                columns >= w->out[2] ? size - at : count, average))
                    }
                }
    }
}

static void pool_rows(const ht_window *w, int64_t columns, const float *x, float *y, const int64_t *pad_after,
                      int average, int count_padding)
{
    if (average && w->stride[2] == 1)
        pool_f32(w, columns, x, y, 1, 1, pad_after, count_padding);
    else if (average && w->stride[2] == 2)
        pool_f32(w, columns, x, y, 2, 1, pad_after, count_padding);
    else if (average && w->stride[2] == 4)
        pool_f32(w, columns, x, y, 4, 1, pad_after, count_padding);
    else if (average)
        pool_f32(w, columns, x, y, w->stride[2], 1, pad_after, count_padding);
    else if (w->stride[2] == 1)
        pool_f32(w, columns, x, y, 1, 0, pad_after, 0);
    else if (w->stride[2] == 2)
        pool_f32(w, columns, x, y, 2, 0, pad_after, 0);
    else if (w->stride[2] == 4)
        pool_f32(w, columns, x, y, 4, 0, pad_after, 0);
    else
        pool_f32(w, columns, x, y, w->stride[2], 0, pad_after, 0);
}

/* ---- float64, and float32 windows too large for the buffers: tap by tap along each output row. */

#define POOL(type)                                                                                                    \
    static void pool_##type(const ht_window *w, const type *x, type *y, int average, const int64_t *pad_after,        \
                            int count_padding)                                                                        \
    {                                                                                                                 \
        int64_t left = HT_PACE;                                                                                       \
        for (int64_t plane = 0; plane < w->n * w->c; plane++, x += w->in_size)                                        \
            for (int64_t z = 0; z < w->out[0]; z++)                                                                   \
                for (int64_t line = 0; line < w->out[1]; line++, y += w->out[2]) {                                    \
                    const int64_t from[2] = {z * w->stride[0] - w->pad[0], line * w->stride[1] - w->pad[1]};          \
                    for (int64_t i = 0; i < w->out[2]; i++)                                                           \
                        y[i] = average ? 0 : -(type)INFINITY;                                                         \
                    for (int64_t kz = 0; kz < w->kernel[0]; kz++) {                                                   \
                        const int64_t at_z = from[0] + kz * w->dilation[0];                                           \
                        if (at_z < 0 || at_z >= w->in[0])                                                             \
                            continue;                                                                                 \
                        for (int64_t ky = 0; ky < w->kernel[1]; ky++) {                                               \
                            const int64_t at_y = from[1] + ky * w->dilation[1];                                       \
                            if (at_y < 0 || at_y >= w->in[1])                                                         \
                                continue;                                                                             \
                            const type *row = x + (at_z * w->in[1] + at_y) * w->in[2];                                \
                            for (int64_t kx = 0; kx < w->kernel[2]; kx++) {                                           \
                                if (ht_paced_stop(&left, w->out[2]))                                                  \
                                    return;                                                                           \
                                const int64_t offset = kx * w->dilation[2] - w->pad[2], stride = w->stride[2];        \
                                int64_t first, last;                                                                  \
                                ht_valid_range(offset, stride, w->in[2], w->out[2], &first, &last);                   \
                                if (average)                                                                          \
                                    for (int64_t i = first; i < last; i++)                                            \
                                        y[i] += row[i * stride + offset];                                             \
                                else if (stride == 1)                                                                 \
                                    for (int64_t i = first; i < last; i++)                                            \
                                        y[i] = row[i + offset] > y[i] || row[i + offset] != row[i + offset]           \
                                                   ? row[i + offset] : y[i];                                          \
                                else                                                                                  \
                                    for (int64_t i = first; i < last; i++) {                                          \
                                        const type value = row[i * stride + offset];                                  \
                                        y[i] = value > y[i] || value != value ? value : y[i];                         \
                                    }                                                                                 \
                            }                                                                                         \
                        }                                                                                             \
                    }                                                                                                 \
                    if (!average)                                                                                     \
                        continue;                                                                                     \
                    int64_t taps[2];                                                                                  \
                    for (int i = 0; i < 2; i++)                                                                       \
                        taps[i] = ht_taps_within(from[i], w->kernel[i], w->dilation[i], count_padding ? -w->pad[i] : 0,  \
                                              w->in[i] + (count_padding ? pad_after[i] : 0));                         \
                    for (int64_t i = 0; i < w->out[2]; i++) {                                                         \
                        const int64_t width =                                                                         \
                            ht_taps_within(i * w->stride[2] - w->pad[2], w->kernel[2], w->dilation[2],                   \
                                        count_padding ? -w->pad[2] : 0, w->in[2] + (count_padding ? pad_after[2] : 0)); \
                        const int64_t count = taps[0] * taps[1] * width;                                              \
                        y[i] = count ? y[i] / (type)count : 0;                                                        \
                    }                                                                                                 \
                }                                                                                                     \
    }
POOL(float)
POOL(double)

/* The planes of a call. */
typedef struct {
    const ht_call *call;
    ht_window window;
    int lanes;       /* channels in the lanes */
    int64_t step;    /* planes that are pooled together */
    int64_t columns; /* float32: at a time; 0: tap by tap */
    int average, count_padding;
    int64_t pad_after[3];
    int64_t parts;
} pooling;

static void pool_part(void *context, int64_t part, int thread)
{
    const pooling *job = (const pooling *)context;
    const int64_t planes = job->window.n * job->window.c, steps = ht_ceil_div(planes, job->step);
    const int64_t begin = ht_part_begin(steps, job->parts, part) * job->step;
    const int64_t end = ht_min64(planes, ht_part_begin(steps, job->parts, part + 1) * job->step);
    ht_window w = job->window;
    w.n = 1;
    w.c = end - begin;
    const void *x = job->call->in[0]->data;
    void *y = job->call->out[0]->data;
    const int64_t x_at = begin * w.in_size, y_at = begin * w.out_size;
    if (job->call->in[0]->dtype == HT_FLOAT64)
        pool_double(&w, (const double *)x + x_at, (double *)y + y_at, job->average, job->pad_after, job->count_padding);
    else if (job->lanes)
        HT_KERNEL(pool_lanes)(&w, (const float *)x + x_at, (float *)y + y_at, job->average, job->pad_after,
                              job->count_padding, ht_scratch(job->call, thread));
    else if (ht_pool_is_small(&w))
        HT_KERNEL(pool_small)(&w, (const float *)x + x_at, (float *)y + y_at, job->average, job->pad_after,
                              job->count_padding);
    else if (!job->columns)
        pool_float(&w, (const float *)x + x_at, (float *)y + y_at, job->average, job->pad_after, job->count_padding);
    else
        pool_rows(&w, job->columns, (const float *)x + x_at, (float *)y + y_at, job->pad_after, job->average,
                  job->count_padding);
}

static int pool(pooling *job, int num_ints)
{
    const int status = window_of(job->call, num_ints, &job->window);
    if (status != HT_OK)
        return status;
    const ht_window *w = &job->window;
    job->columns = block_columns(w);
    job->lanes = job->call->in[0]->dtype == HT_FLOAT32 && w->kernel[0] <= HT_POOL_TAPS &&
                 w->kernel[1] <= HT_POOL_TAPS && w->kernel[0] * w->kernel[1] <= HT_POOL_TAPS &&
                 job->call->scratch_bytes > 0 && job->call->scratch_bytes >= ht_pool_lanes_bytes(w);
    /* Strips with strides 1, and rows that read two vectors or more, are faster by pool_small. */
    if (ht_pool_is_small(w) && ((ht_pool_is_3x3(w) && w->stride[2] == 1) || w->out[2] * w->stride[2] >= 2 * VF_LANES))
        job->lanes = 0;
    const double taps = (double)w->kernel[0] * (double)(w->kernel[1] + w->kernel[2]);
    job->step = job->lanes ? VF_LANES : 1;
    job->parts = ht_parts(job->call, ht_ceil_div(w->n * w->c, job->step), 2 * taps * (double)job->call->out[0]->size);
    ht_parallel(job->call->team, job->parts, pool_part, job);
    return HT_OK;
}

int HT_KERNEL(max_pool)(const ht_call *call)
{
    pooling job = {.call = call};
    return pool(&job, 12);
}

int HT_KERNEL(average_pool)(const ht_call *call)
{
    pooling job = {.call = call, .average = 1};
    if (call->num_ints != 16)
        return HT_ERR_OPERAND;
    for (int i = 0; i < 3; i++)
        job.pad_after[i] = call->ints[12 + i];
    job.count_padding = (int)call->ints[15];
    return pool(&job, 16);
}
