/* Pooling over one to three spatial axes: max_pool, average_pool.
 *
 * Both: in x[n][c][...], float32 or float64; out y. ints: triples (see spatial.h) kernel, strides, pads before,
 * dilations; average_pool then pads after and count_padding (0: divide by the elements of x in the window; 1: by the
 * elements of the window within the padded x).
 * A window outside x gives -infinity (max_pool) or 0 (average_pool). max_pool passes NaN.
 * float32: a window's rows are combined first, then its columns, so a k x k window costs about 2 k operations per
 * output; every loop runs along the innermost axis.
 * Global pooling is average_pool or max_pool of the whole plane, or `reduce`.
 */
#include "spatial.h"

static int window_of(const ht_call *call, int num_ints, ht_window *w)
{
    const ht_tensor *x = call->in[0], *y = call->out[0];
    if (call->num_in != 1 || call->num_ints != num_ints)
        return HT_ERR_OPERAND;
    if (x->dtype != y->dtype || (x->dtype != HT_FLOAT32 && x->dtype != HT_FLOAT64))
        return HT_ERR_DTYPE;
    if (!ht_window_shapes(w, x, y) || y->dims[0] != w->n || y->dims[1] != w->c)
        return HT_ERR_OPERAND;
    for (int i = 0; i < 3; i++) {
        w->kernel[i] = call->ints[i];
        w->stride[i] = call->ints[3 + i];
        w->pad[i] = call->ints[6 + i];
        w->dilation[i] = call->ints[9 + i];
        if (w->kernel[i] < 1 || w->stride[i] < 1 || w->dilation[i] < 1 || w->pad[i] < 0)
            return HT_ERR_OPERAND;
    }
    return HT_OK;
}

/* How many taps t in [0, kernel) have position + t * dilation in [low, high). */
static int64_t taps_within(int64_t position, int64_t kernel, int64_t dilation, int64_t low, int64_t high)
{
    int64_t first, last;
    if (dilation == 1)
        return ht_max64(0, ht_min64(position + kernel, high) - ht_max64(position, low));
    ht_valid_range(position - low, dilation, high - low, kernel, &first, &last);
    return last - first;
}

/* ---- float32: a block of rows is copied with its padding (see ht_split_row); then the rows of each window are combined
 * elementwise, then its columns. */

#define PADDED_FLOATS 10240
#define COMBINED_FLOATS 6144
#define MAX_TAPS 512
#define SPARE (4 * VF_LANES)    /* vectors may read past the last column */

typedef struct {
    int64_t columns, rows;      /* outputs per block; 0 columns if one window does not fit */
    ht_split split;
} blocking;

static int64_t span(const ht_window *w, int axis, int64_t outputs)
{
    return (outputs - 1) * w->stride[axis] + (w->kernel[axis] - 1) * w->dilation[axis] + 1;
}

static blocking choose_blocks(const ht_window *w)
{
    blocking b = {0, 0, {0, 0}};
    for (int i = 0; i < 3; i++)
        if (w->kernel[i] > PADDED_FLOATS || w->dilation[i] > PADDED_FLOATS || w->stride[i] > PADDED_FLOATS)
            return b;
    if (w->kernel[0] * w->kernel[1] > MAX_TAPS || w->kernel[2] > MAX_TAPS)
        return b;
    b.columns = ht_min64(w->out[2], PADDED_FLOATS);
    b.rows = ht_min64(w->out[1], PADDED_FLOATS);
    for (;;) {
        b.split = ht_split_for(span(w, 2, b.columns), w->stride[2]);
        if (w->kernel[0] * span(w, 1, b.rows) * b.split.row <= PADDED_FLOATS - SPARE &&
            b.rows * b.split.row <= COMBINED_FLOATS - SPARE)
            return b;
        if (b.rows > 1) {
            b.rows = ht_ceil_div(b.rows, 2);
        } else if (b.columns > 1) {
            b.columns = ht_ceil_div(b.columns, 2);
        } else {
            b.columns = 0;
            return b;
        }
    }
}

HT_INLINE vf combine(vf a, vf b, const int average)
{
    if (average)
        return a + b;
    return vf_max_nan(a, b);
}

/* How many elements a window counts along one axis. */
static int64_t counted(const ht_window *w, int axis, int64_t position, const int64_t *pad_after, int count_padding)
{
    return taps_within(position, w->kernel[axis], w->dilation[axis], count_padding ? -w->pad[axis] : 0,
                       w->in[axis] + (count_padding ? pad_after[axis] : 0));
}

/* The taps of one vector of outputs; `count` taps known to the compiler in the common cases. */
HT_INLINE vf combine_taps(const float *p, const int32_t *offsets, const int64_t count, const int average)
{
    vf result = vf_load(p + offsets[0]);
#pragma GCC unroll 4
    for (int64_t tap = 1; tap < count; tap++)
        result = combine(result, vf_load(p + offsets[tap]), average);
    return result;
}

/* combined[0, width) = the rows of one row of windows, combined. */
HT_INLINE void combine_rows(const float *padded, const int32_t *offsets, const int64_t taps, int64_t width,
                            float *combined, const int average)
{
    for (int64_t i = 0; i < width; i += VF_LANES)
        vf_store(combined + i, combine_taps(padded + i, offsets, taps, average));
}

/* y[0, count) of one output row. `room`: how many floats from y on may be overwritten; later rows come later. */
HT_INLINE void combine_columns(const float *row, const int32_t *offsets, const int64_t taps, const float *counts,
                               float count_rows, float *y, int64_t count, int64_t room, const int average)
{
    for (int64_t i = 0; i < count; i += VF_LANES) {
        vf result = combine_taps(row + i, offsets, taps, average);
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

#define BY_TAPS(taps, call)                                                                                           \
    switch (taps) {                                                                                                   \
    case 2: { enum { TAPS = 2 }; call; break; }                                                                       \
    case 3: { enum { TAPS = 3 }; call; break; }                                                                       \
    default: { const int64_t TAPS = taps; call; break; }                                                              \
    }

HT_INLINE void pool_f32(const ht_window *w, const blocking *b, const float *x, float *y, const int average,
                        const int64_t *pad_after, int count_padding)
{
    float padded[PADDED_FLOATS], combined[COMBINED_FLOATS], counts[COMBINED_FLOATS];
    int32_t row_taps[MAX_TAPS], column_taps[MAX_TAPS];
    const ht_split *s = &b->split;
    const int64_t size = w->n * w->c * w->out_size;
    for (int64_t kx = 0; kx < w->kernel[2]; kx++)
        column_taps[kx] = (int32_t)ht_split_at(s, kx * w->dilation[2], w->stride[2]);
    for (int64_t column = 0; column < w->out[2]; column += b->columns) {
        const int64_t count = ht_min64(b->columns, w->out[2] - column), at_x = column * w->stride[2] - w->pad[2];
        for (int64_t i = 0; average && i < ht_ceil_div(count, VF_LANES) * VF_LANES; i++)
            counts[i] = (float)counted(w, 2, at_x + i * w->stride[2], pad_after, count_padding);
        for (int64_t plane = 0; plane < w->n * w->c; plane++)
            for (int64_t z = 0; z < w->out[0]; z++)
                for (int64_t line = 0; line < w->out[1]; line += b->rows) {
                    const int64_t rows = ht_min64(b->rows, w->out[1] - line), height = span(w, 1, rows);
                    const int64_t at_z = z * w->stride[0] - w->pad[0], at_y = line * w->stride[1] - w->pad[1];
                    float *dst = padded;
                    for (int64_t kz = 0, tap = 0; kz < w->kernel[0]; kz++)
                        for (int64_t ky = 0; ky < w->kernel[1]; ky++)
                            row_taps[tap++] = (int32_t)((kz * height + ky * w->dilation[1]) * s->row);
                    for (int64_t kz = 0; kz < w->kernel[0]; kz++) {
                        const int64_t iz = at_z + kz * w->dilation[0];
                        for (int64_t iy = at_y; iy < at_y + height; iy++, dst += s->row) {
                            const int inside = iz >= 0 && iz < w->in[0] && iy >= 0 && iy < w->in[1];
                            const float *row = x + plane * w->in_size;
                            ht_split_row(s, inside ? row + (iz * w->in[1] + iy) * w->in[2] : NULL, w->in[2], at_x,
                                         w->stride[2], average ? 0.0f : -INFINITY, dst);
                        }
                    }
                    for (int64_t row = 0; row < rows; row++)
                        BY_TAPS(w->kernel[0] * w->kernel[1],
                                combine_rows(padded + row * w->stride[1] * s->row, row_taps, TAPS, s->row,
                                             combined + row * s->row, average))
                    const int64_t depth = average ? counted(w, 0, at_z, pad_after, count_padding) : 0;
                    for (int64_t row = 0; row < rows; row++) {
                        const int64_t at = plane * w->out_size + (z * w->out[1] + line + row) * w->out[2] + column;
                        int64_t counted_rows = depth;
                        if (average)
                            counted_rows *= counted(w, 1, at_y + row * w->stride[1], pad_after, count_padding);
                        BY_TAPS(w->kernel[2],
                                combine_columns(combined + row * s->row, column_taps, TAPS, counts,
                                                (float)counted_rows, y + at, count,
                                                b->columns >= w->out[2] ? size - at : count, average))
                    }
                }
    }
}

/* ---- float64, and float32 windows too large for the buffers: tap by tap along each output row. */

#define POOL(type)                                                                                                    \
    static void pool_##type(const ht_window *w, const type *x, type *y, int average, const int64_t *pad_after,        \
                            int count_padding)                                                                        \
    {                                                                                                                 \
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
                        taps[i] = taps_within(from[i], w->kernel[i], w->dilation[i], count_padding ? -w->pad[i] : 0,  \
                                              w->in[i] + (count_padding ? pad_after[i] : 0));                         \
                    for (int64_t i = 0; i < w->out[2]; i++) {                                                         \
                        const int64_t width =                                                                         \
                            taps_within(i * w->stride[2] - w->pad[2], w->kernel[2], w->dilation[2],                   \
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
    blocking blocks;
    int average, count_padding;
    int64_t pad_after[3];
    int64_t parts;
} pooling;

static void pool_part(void *context, int64_t part, int thread)
{
    const pooling *job = (const pooling *)context;
    const int64_t planes = job->window.n * job->window.c;
    const int64_t begin = ht_part_begin(planes, job->parts, part), end = ht_part_begin(planes, job->parts, part + 1);
    ht_window w = job->window;
    w.n = 1;
    w.c = end - begin;
    const void *x = job->call->in[0]->data;
    void *y = job->call->out[0]->data;
    const int64_t x_at = begin * w.in_size, y_at = begin * w.out_size;
    (void)thread;
    if (job->call->in[0]->dtype == HT_FLOAT64)
        pool_double(&w, (const double *)x + x_at, (double *)y + y_at, job->average, job->pad_after, job->count_padding);
    else if (!job->blocks.columns)
        pool_float(&w, (const float *)x + x_at, (float *)y + y_at, job->average, job->pad_after, job->count_padding);
    else if (job->average)
        pool_f32(&w, &job->blocks, (const float *)x + x_at, (float *)y + y_at, 1, job->pad_after, job->count_padding);
    else
        pool_f32(&w, &job->blocks, (const float *)x + x_at, (float *)y + y_at, 0, job->pad_after, 0);
}

static int pool(pooling *job, int num_ints)
{
    const int status = window_of(job->call, num_ints, &job->window);
    if (status != HT_OK)
        return status;
    const ht_window *w = &job->window;
    job->blocks = choose_blocks(w);
    const double taps = (double)w->kernel[0] * (double)(w->kernel[1] + w->kernel[2]);
    job->parts = ht_parts(job->call, w->n * w->c, 2 * taps * (double)job->call->out[0]->size);
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
