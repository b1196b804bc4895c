/* Pooling cases that pool.c does not support: max_pool_any, lp_pool.
 *
 * max_pool_any: the largest element of each window, and its index. In x[n][c][...] (float32, float64, int8 or uint8);
 *   out y, then optionally indices (int64, y's dims): the index in all of x, of equal elements the first; -1 for a
 *   window outside x. ints: triples (see spatial.h) kernel, strides, pads before, dilations; column_major: indices
 *   within a plane count its first axis fastest. NaN is the largest.
 * lp_pool: (sum of |x|^p)^(1/p) over each window. In x (float32 or float64); out y. ints: the same triples, p >= 1. The
 *   sum is computed in float64.
 * Cost: one step per element of each window.
 */
#include "spatial.h"

static int window_of(const ht_call *call, ht_window *w)
{
    return call->num_in == 1 && call->num_ints == 13 ? ht_pool_window(call, w) : HT_ERR_OPERAND;
}

/* The taps of a window at output `o` that lie within the axis, and the position of tap 0. */
static int64_t taps_inside(const ht_window *w, int axis, int64_t o, int64_t *first, int64_t *last)
{
    const int64_t origin = o * w->stride[axis] - w->pad[axis];
    ht_valid_range(origin, w->dilation[axis], w->in[axis], w->kernel[axis], first, last);
    return origin;
}

/* Runs BODY for every element of x in every window: `at` is its place in the plane `from`; START before a window,
 * FINISH after it, with `out` the place of the window's result. */
#define FOR_WINDOWS(w, T, START, BODY, FINISH)                                                               \
    int64_t out = 0, a[3], b[3], o[3], t[3], origin[3], left = HT_PIECE;                                     \
    for (int64_t plane = 0; plane < (w)->n * (w)->c; plane++) {                                              \
        const T *from = (const T *)call->in[0]->data + plane * (w)->in_size;                                 \
        for (o[0] = 0; o[0] < (w)->out[0]; o[0]++) {                                                         \
            origin[0] = taps_inside(w, 0, o[0], &a[0], &b[0]);                                               \
            for (o[1] = 0; o[1] < (w)->out[1]; o[1]++) {                                                     \
                origin[1] = taps_inside(w, 1, o[1], &a[1], &b[1]);                                           \
                for (o[2] = 0; o[2] < (w)->out[2]; o[2]++, out++) {                                          \
                    origin[2] = taps_inside(w, 2, o[2], &a[2], &b[2]);                                       \
                    START;                                                                                   \
                    for (t[0] = a[0]; t[0] < b[0]; t[0]++)                                                   \
                        for (t[1] = a[1]; t[1] < b[1]; t[1]++) {                                             \
                            if (ht_paced_stop(&left, 16 * (b[2] - a[2])))                                    \
                                return;                                                                      \
                            for (t[2] = a[2]; t[2] < b[2]; t[2]++) {                                         \
                                const int64_t at =                                                           \
                                    ((origin[0] + t[0] * (w)->dilation[0]) * (w)->in[1] + origin[1] +        \
                                     t[1] * (w)->dilation[1]) * (w)->in[2] + origin[2] +                     \
                                    t[2] * (w)->dilation[2];                                                 \
                                BODY;                                                                        \
                            }                                                                                \
                        }                                                                                    \
                    FINISH;                                                                                  \
                }                                                                                            \
            }                                                                                                \
        }                                                                                                    \
    }

/* Index `at` of a plane, recounted with the first axis fastest. */
static int64_t column_major(const ht_window *w, int64_t at)
{
    const int64_t x = at % w->in[2], y = at / w->in[2] % w->in[1], z = at / w->in[2] / w->in[1];
    if (w->in[0] > 1)
        return z + (y + x * w->in[1]) * w->in[0];
    return y + x * w->in[1];
}

enum { WIDTH = 128 }; /* outputs of a row that are computed together, tap by tap */

#define DEFINE_MAX(T, LEAST)                                                                                        \
    /* One tap of the outputs [first, last): `at` is the place of its element for output 0. */                      \
    HT_INLINE void max_tap_##T(const T *HT_RESTRICT from, int64_t at, const int64_t stride, int64_t first,           \
                               int64_t last, T *HT_RESTRICT best, int64_t *HT_RESTRICT place)                       \
    {                                                                                                               \
        for (int64_t o = first; o < last; o++) {                                                                    \
            const T v = from[at + o * stride];                                                                      \
            const int better = (place[o] < 0) | (v > best[o]) | ((v != v) & (best[o] == best[o]));                  \
            best[o] = better ? v : best[o];                                                                         \
            place[o] = better ? at + o * stride : place[o];                                                         \
        }                                                                                                           \
    }                                                                                                               \
    /* Outputs begin .. begin + width - 1 of the row (z, y) of a plane. Returns 0 if the run must stop. */           \
    static int max_row_##T(const ht_window *w, const T *from, int64_t z, int64_t y, int64_t begin, int64_t width,   \
                           T *best, int64_t *place, int64_t *left)                                                  \
    {                                                                                                               \
        const int64_t stride = w->stride[2], origin = begin * stride - w->pad[2];                                   \
        int64_t a[3], b[3], unused;                                                                                 \
        const int64_t at_z = taps_inside(w, 0, z, &a[0], &b[0]), at_y = taps_inside(w, 1, y, &a[1], &b[1]);         \
        taps_inside(w, 2, begin + width - 1, &a[2], &unused);                                                       \
        taps_inside(w, 2, begin, &unused, &b[2]);                                                                   \
        for (int64_t o = 0; o < width; o++) {                                                                       \
            best[o] = LEAST;                                                                                        \
            place[o] = -1;                                                                                          \
        }                                                                                                           \
        for (int64_t tz = a[0]; tz < b[0]; tz++)                                                                    \
            for (int64_t ty = a[1]; ty < b[1]; ty++) {                                                              \
                const int64_t row = ((at_z + tz * w->dilation[0]) * w->in[1] + at_y + ty * w->dilation[1]) * w->in[2]; \
                for (int64_t tx = a[2]; tx < b[2]; tx++) {                                                          \
                    const int64_t offset = origin + tx * w->dilation[2];                                            \
                    int64_t first, last;                                                                            \
                    if (ht_paced_stop(left, 4 * width))                                                             \
                        return 0;                                                                                   \
                    ht_valid_range(offset, stride, w->in[2], width, &first, &last);                                 \
                    if (stride == 1)                                                                                \
                        max_tap_##T(from, row + offset, 1, first, last, best, place);                               \
                    else if (stride == 2)                                                                           \
                        max_tap_##T(from, row + offset, 2, first, last, best, place);                               \
                    else                                                                                            \
                        max_tap_##T(from, row + offset, stride, first, last, best, place);                          \
                }                                                                                                   \
            }                                                                                                       \
        return 1;                                                                                                   \
    }                                                                                                               \
    static void max_##T(const ht_call *call, const ht_window *w)                                                    \
    {                                                                                                               \
        T *y = (T *)call->out[0]->data, best[WIDTH];                                                                \
        int64_t *indices = call->num_out == 2 ? (int64_t *)call->out[1]->data : NULL, place[WIDTH], left = HT_PACE;  \
        const int columns = call->ints[12] != 0;                                                                    \
        const int64_t lines = w->out[0] * w->out[1], rows = w->n * w->c * lines;                                    \
        for (int64_t row = 0, out = 0; row < rows; row++)                                                           \
            for (int64_t begin = 0; begin < w->out[2]; begin += WIDTH) {                                            \
                const int64_t plane = row / lines, line = row % lines, width = ht_min64(WIDTH, w->out[2] - begin);  \
                const T *from = (const T *)call->in[0]->data + plane * w->in_size;                                  \
                if (!max_row_##T(w, from, line / w->out[1], line % w->out[1], begin, width, best, place, &left))    \
                    return;                                                                                         \
                for (int64_t o = 0; o < width; o++, out++) {                                                        \
                    y[out] = best[o];                                                                               \
                    if (indices)                                                                                    \
                        indices[out] = place[o] < 0 ? -1                                                            \
                                                    : plane * w->in_size + (columns ? column_major(w, place[o]) : place[o]); \
                }                                                                                                   \
            }                                                                                                       \
    }
DEFINE_MAX(float, -INFINITY)
DEFINE_MAX(double, -INFINITY)
DEFINE_MAX(int8_t, INT8_MIN)
DEFINE_MAX(uint8_t, 0)

/* Bytes without dilations or indices. A block of x is copied, with the least number around it, and combined along its
 * whole length, by columns, then by rows: each window's result then lies where the window begins. So every loop is long,
 * also where the rows of x are short, and small planes share a block. */
enum {
    BLOCK = 1 << 13, /* bytes; two blocks are in the L1 cache */
    PIECE = 32,      /* loops and copies take whole pieces: what they write after their end is written again later */
    ROOM = BLOCK + 2 * PIECE
};

typedef struct {
    const ht_call *call;
    const ht_window *w;
    int is_signed;
    uint8_t least;
    int64_t lines, columns, planes; /* of results, at a time */
    int64_t rows, pitch;            /* of a plane in a block, and its columns */
    int in_pairs;                   /* results lie at even places of the whole block */
    int64_t all_planes, parts;
} byte_pool;

static int64_t whole_pieces(int64_t count) { return ht_ceil_div(count, PIECE) * PIECE; }

/* Copies `count` bytes, and the rest of the last piece if both have room for it. */
HT_INLINE void copy_pieces(const uint8_t *from, int64_t from_room, uint8_t *to, int64_t to_room, int64_t count)
{
    if (HT_UNLIKELY(whole_pieces(count) > ht_min64(from_room, to_room))) {
        memcpy(to, from, (size_t)count);
        return;
    }
    for (int64_t i = 0; i < count; i += PIECE)
        memcpy(to + i, from + i, PIECE);
}

HT_INLINE uint8_t larger_of(uint8_t a, uint8_t b, const int is_signed)
{
    return (is_signed ? (int8_t)a > (int8_t)b : a > b) ? a : b;
}

HT_INLINE void larger_of_two(const uint8_t *restrict a, const uint8_t *restrict b, uint8_t *restrict to, int64_t count,
                             const int is_signed)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = larger_of(a[i], b[i], is_signed);
}

HT_INLINE void largest_of_three(const uint8_t *restrict a, const uint8_t *restrict b, const uint8_t *restrict c,
                                uint8_t *restrict to, int64_t count, const int is_signed)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = larger_of(larger_of(a[i], b[i], is_signed), c[i], is_signed);
}

HT_INLINE void swap(uint8_t **a, uint8_t **b)
{
    uint8_t *const first = *a;
    *a = *b;
    *b = first;
}

/* The largest of `taps` elements of *from, `step` apart, from each on. Swaps *from and *to; the result is *from. Returns
 * how many results there are. */
HT_INLINE int64_t combine(uint8_t **from, uint8_t **to, int64_t size, int64_t taps, int64_t step, const int is_signed)
{
    for (int64_t done = 1, more; done < taps; done += more) {
        more = taps == 3 ? 2 : ht_min64(done, taps - done);
        size -= more * step;
        if (taps == 3)
            largest_of_three(*from, *from + step, *from + 2 * step, *to, whole_pieces(size), is_signed);
        else
            larger_of_two(*from, *from + more * step, *to, whole_pieces(size), is_signed);
        swap(from, to);
    }
    return size;
}

/* The rows of each row of windows of the block *from, combined. Swaps *from and *to, and returns how many results there are.
 * Sets *step to the bytes between the results of adjacent rows of windows: if strides are long, only these are computed. */
HT_INLINE int64_t combine_rows(const byte_pool *job, uint8_t **from, uint8_t **to, int64_t size, int64_t *step,
                               const int is_signed)
{
    const int64_t taps = job->w->kernel[1], stride = job->w->stride[1], pitch = job->pitch;
    *step = stride * pitch;
    if (stride == 1 || taps < 2 || taps > 3 || pitch < PIECE)
        return combine(from, to, size, taps, pitch, is_signed);
    *step = pitch;
    const int64_t lines = (size / pitch - taps) / stride + 1;
    for (int64_t line = 0; line < lines; line++) {
        const uint8_t *row = *from + line * stride * pitch;
        if (taps == 2)
            larger_of_two(row, row + pitch, *to + line * pitch, whole_pieces(pitch), is_signed);
        else
            largest_of_three(row, row + pitch, row + 2 * pitch, *to + line * pitch, whole_pieces(pitch), is_signed);
    }
    swap(from, to);
    return lines * pitch;
}

/* Copies the rows and columns from `at` on of the plane x, with the least number around it, into the block; each row is the
 * largest of the rows with which it shares a window of depth z. x has `room` bytes. */
static void gather(const byte_pool *job, const uint8_t *x, int64_t room, int64_t z, const int64_t at[2], uint8_t *block)
{
    const ht_window *w = job->w;
    const int64_t rows = job->rows, pitch = job->pitch;
    int64_t a, b, first, last, low, high;
    const int64_t at_z = taps_inside(w, 0, z, &a, &b);
    ht_valid_range(at[0], 1, w->in[1], rows, &first, &last);
    ht_valid_range(at[1], 1, w->in[2], pitch, &low, &high);
    if (a >= b || first >= last || low >= high) {
        memset(block, job->least, (size_t)(rows * pitch));
        return;
    }
    const int64_t width = high - low, between = pitch - width;
    const uint8_t *from = x + ((at_z + a) * w->in[1] + at[0] + first) * w->in[2] + at[1] + low;
    uint8_t *to = block + first * pitch + low;
    if (b - a == 1 && between == 0 && width == w->in[2] && last - first == rows) {
        memcpy(block, from, (size_t)(rows * pitch));
        return;
    }
    memset(block, job->least, (size_t)(first * pitch + low));
    for (int64_t row = first; row < last; row++, from += w->in[2], to += pitch) {
        copy_pieces(from, x + room - from, to, ROOM, width);
        for (int64_t tap = a + 1; tap < b; tap++)
            for (int64_t i = 0; i < width; i++)
                to[i] = larger_of(to[i], from[(tap - a) * w->in[1] * w->in[2] + i], job->is_signed);
        for (int64_t i = 0; i < between; i += PIECE)
            memset(to + width + i, job->least, PIECE);
    }
    uint8_t *const end = to - pitch + width;
    memset(end, job->least, (size_t)(block + rows * pitch - end));
}

/* Pools `count` planes. x has `room` bytes. memory: two blocks. */
HT_INLINE void pool_bytes(const byte_pool *job, const uint8_t *x, int64_t room, uint8_t *y, int64_t count,
                          uint8_t *memory, const int is_signed)
{
    const ht_window *w = job->w;
    const int64_t stride = w->stride[2], pitch = job->pitch, plane = job->rows * pitch;
    for (int64_t z = 0; z < w->out[0]; z++)
        for (int64_t top = 0; top < w->out[1]; top += job->lines)
            for (int64_t left = 0; left < w->out[2]; left += job->columns) {
                const int64_t at[2] = {top * w->stride[1] - w->pad[1], left * stride - w->pad[2]};
                const int64_t lines = ht_min64(job->lines, w->out[1] - top), width = ht_min64(job->columns, w->out[2] - left);
                uint8_t *from = memory, *to = memory + ROOM;
                if (ht_stopping())
                    return;
                for (int64_t i = 0; i < count; i++)
                    gather(job, x + i * w->in_size, room - i * w->in_size, z, at, from + i * plane);
                int64_t step, size = combine_rows(job, &from, &to, count * plane, &step, is_signed);
                size = combine(&from, &to, size, w->kernel[2], 1, is_signed);
                if (job->in_pairs) {
                    const int64_t pairs = whole_pieces(ht_ceil_div(size, 2));
                    for (int64_t i = 0; i < pairs; i++)
                        to[i] = from[2 * i];
                    from = to;
                }
                for (int64_t i = 0; i < count; i++)
                    for (int64_t line = 0; line < lines; line++) {
                        const int64_t place = (i * (job->rows / w->stride[1]) + line) * step;
                        const uint8_t *made = from + (job->in_pairs ? place / 2 : place);
                        const int64_t row = ((z * w->out[1]) + top + line) * w->out[2] + left;
                        uint8_t *restrict results = y + i * w->out_size + row;
                        if (stride == 1 || job->in_pairs)
                            /* The columns to the left are already written. */
                            copy_pieces(made, ROOM, results, left ? 0 : w->out_size - row, width);
                        else
                            for (int64_t o = 0; o < width; o++)
                                results[o] = made[o * stride];
                    }
            }
}

static void max_bytes_part(void *context, int64_t part, int thread)
{
    (void)thread;
    const byte_pool *job = (const byte_pool *)context;
    const ht_window *w = job->w;
    uint8_t memory[2 * ROOM] = {0}; /* whole pieces are read where nothing was written */
    const int64_t end = ht_part_begin(job->all_planes, job->parts, part + 1);
    for (int64_t plane = ht_part_begin(job->all_planes, job->parts, part); plane < end; plane += job->planes) {
        const int64_t count = ht_min64(job->planes, end - plane), room = (job->all_planes - plane) * w->in_size;
        const uint8_t *x = (const uint8_t *)job->call->in[0]->data + plane * w->in_size;
        uint8_t *y = (uint8_t *)job->call->out[0]->data + plane * w->out_size;
        if (job->is_signed)
            pool_bytes(job, x, room, y, count, memory, 1);
        else
            pool_bytes(job, x, room, y, count, memory, 0);
    }
}

/* The outputs along an axis whose windows fit `room`, at least 1. */
static int64_t outputs_within(const ht_window *w, int axis, int64_t room)
{
    return ht_min64(w->out[axis], (room - w->kernel[axis]) / w->stride[axis] + 1);
}

/* How much is pooled at a time. */
static void choose_block(byte_pool *job)
{
    const ht_window *w = job->w;
    const int64_t stride = w->stride[2];
    job->columns = outputs_within(w, 2, BLOCK / w->kernel[1]);
    job->pitch = (job->columns - 1) * stride + w->kernel[2];
    if (stride == 2 && job->pitch % 2 == 1 && (job->pitch + 1) * w->kernel[1] <= BLOCK)
        job->pitch++;
    job->in_pairs = stride == 2 && job->pitch % 2 == 0;
    job->lines = outputs_within(w, 1, BLOCK / job->pitch);
    job->rows = (job->lines - 1) * w->stride[1] + w->kernel[1];
    const int whole = job->lines == w->out[1] && job->columns == w->out[2];
    const int64_t strides = ht_ceil_div(job->rows, w->stride[1]) * w->stride[1];
    job->planes = whole ? ht_max64(1, BLOCK / (strides * job->pitch)) : 1;
    if (job->planes > 1)
        job->rows = strides; /* so that the rows of windows of all planes lie at equal distances */
}

/* Whether the windows are of bytes, and ran. */
static int max_bytes(const ht_call *call, const ht_window *w)
{
    const int32_t dtype = call->in[0]->dtype;
    if ((dtype != HT_INT8 && dtype != HT_UINT8) || call->num_out != 1 || w->kernel[0] > 1 << 10 ||
        w->kernel[1] > BLOCK || w->kernel[2] > BLOCK || w->kernel[1] * w->kernel[2] > BLOCK)
        return 0;
    for (int axis = 0; axis < 3; axis++)
        if (w->dilation[axis] != 1)
            return 0;
    const int is_signed = dtype == HT_INT8;
    byte_pool job = {.call = call, .w = w, .is_signed = is_signed, .least = is_signed ? 0x80 : 0,
                     .all_planes = w->n * w->c};
    choose_block(&job);
    const double cost = (double)call->out[0]->size * (double)(w->kernel[0] * w->kernel[1] + w->kernel[2]);
    job.parts = ht_parts(call, job.all_planes, cost);
    ht_parallel(call->team, job.parts, max_bytes_part, &job);
    return 1;
}

int HT_KERNEL(max_pool_any)(const ht_call *call)
{
    ht_window w;
    if (call->num_out < 1 || call->num_out > 2)
        return HT_ERR_OPERAND;
    const int status = window_of(call, &w);
    if (status != HT_OK)
        return status;
    if (call->num_out == 2 && (call->out[1]->dtype != HT_INT64 || call->out[1]->size != call->out[0]->size))
        return HT_ERR_OPERAND;
    if (max_bytes(call, &w))
        return HT_OK;
    switch (call->in[0]->dtype) {
    case HT_FLOAT32: max_float(call, &w); return HT_OK;
    case HT_FLOAT64: max_double(call, &w); return HT_OK;
    case HT_INT8: max_int8_t(call, &w); return HT_OK;
    case HT_UINT8: max_uint8_t(call, &w); return HT_OK;
    default: return HT_ERR_DTYPE;
    }
}

static double power(double v, int64_t p) { return p == 1 ? v : p == 2 ? v * v : pow(v, (double)p); }
static double root(double v, int64_t p) { return p == 1 ? v : p == 2 ? sqrt(v) : pow(v, 1.0 / (double)p); }

#define DEFINE_LP(T)                                                                                        \
    static void lp_##T(const ht_call *call, const ht_window *w, int64_t p)                                  \
    {                                                                                                       \
        T *y = (T *)call->out[0]->data;                                                                     \
        double sum;                                                                                         \
        FOR_WINDOWS(w, T, sum = 0, sum += power(fabs((double)from[at]), p), y[out] = (T)root(sum, p))       \
    }
DEFINE_LP(float)
DEFINE_LP(double)

int HT_KERNEL(lp_pool)(const ht_call *call)
{
    ht_window w;
    if (call->num_out != 1)
        return HT_ERR_OPERAND;
    const int status = window_of(call, &w);
    if (status != HT_OK)
        return status;
    const int64_t p = call->ints[12];
    if (p < 1)
        return HT_ERR_OPERAND;
    if (call->in[0]->dtype == HT_FLOAT32)
        lp_float(call, &w, p);
    else if (call->in[0]->dtype == HT_FLOAT64)
        lp_double(call, &w, p);
    else
        return HT_ERR_DTYPE;
    return HT_OK;
}
