/* Pooling with windows of two or three columns that are adjacent, and strides of one or two columns. Rows are combined
 * first, then columns, as in pool.c, so the bits are the same; but a combined row stays in registers, where its columns
 * are shifted and split. Windows of 3 x 3 are pooled in strips of a vector's columns, from top to bottom: columns first. */
#include "pool.h"

/* Columns at .. at + VF_LANES - 1 of a row of windows, with `blank` outside [0, width). */
HT_INLINE vf combined(const float *const *rows, const int64_t taps, int64_t width, int64_t at, vf blank, const int average)
{
    vf result;
    if (HT_LIKELY(at >= 0 && at + VF_LANES <= width)) {
        result = vf_load(rows[0] + at);
#pragma GCC unroll 4
        for (int64_t tap = 1; tap < taps; tap++)
            result = ht_combine(result, vf_load(rows[tap] + at), average);
        return result;
    }
    if (at >= width || at + VF_LANES <= 0)
        return blank;
    const int64_t low = ht_max64(0, -at), high = ht_min64(VF_LANES, width - at);
    result = vf_load_or(rows[0] + at, low, high, blank);
#pragma GCC unroll 4
    for (int64_t tap = 1; tap < taps; tap++)
        result = ht_combine(result, vf_load_or(rows[tap] + at, low, high, blank), average);
    return result;
}

/* Stores outputs i and up. `room`: floats from y on that may be overwritten, as in pool.c. */
HT_INLINE void put(float *y, int64_t i, int64_t count, int64_t room, vf result, const float *counts, float count_rows,
                   const int average)
{
    if (average) {
        const vf divisor = vf_load(counts + i) * vf_set1(count_rows);
        result = vf_select(vf_eq(divisor, vf_set1(0.0f)), vf_set1(0.0f), result / divisor);
    }
    if (HT_LIKELY(i + VF_LANES <= room))
        vf_store(y + i, result);
    else
        vf_store_n(y + i, ht_min64(VF_LANES, count - i), result);
}

/* Computes y[0, count); the first window begins at column `at` of the rows. */
HT_INLINE void pool_line(const float *const *rows, const int64_t taps, int64_t width, int64_t at, const float *counts,
                         float count_rows, float *y, int64_t count, int64_t room, const int kernel, const int stride,
                         const int average)
{
    const vf blank = vf_set1(average ? 0.0f : -INFINITY);
#define ROW(column) combined(rows, taps, width, column, blank, average)
#define PUT(result) put(y, i, count, room, result, counts, count_rows, average)
    if (stride == 1) {
        vf a = ROW(at);
        for (int64_t i = 0; i < count; i += VF_LANES) {
            const vf b = count - i > VF_LANES - kernel + 1 ? ROW(at + i + VF_LANES) : blank;
            const vf two = ht_combine(a, vf_next(a, b), average);
            PUT(kernel == 2 ? two : ht_combine(two, vf_next_two(a, b), average));
            a = b;
        }
    } else if (kernel == 2) {
        for (int64_t i = 0; i < count; i += VF_LANES) {
            const vf a = ROW(at + 2 * i), b = ROW(at + 2 * i + VF_LANES);
            PUT(ht_combine(vf_even(a, b), vf_odd(a, b), average));
        }
    } else if (at % 2) { /* Pairs of columns begin at an even column in both cases, so that loads can be aligned. */
        vf before = blank; /* `at` is minus the padding before, so column `at` is padding */
        for (int64_t i = 0; i < count; i += VF_LANES) {
            const vf a = ROW(at + 1 + 2 * i), b = ROW(at + 1 + 2 * i + VF_LANES), odd = vf_odd(a, b);
            PUT(ht_combine(ht_combine(vf_previous(before, odd), vf_even(a, b), average), odd, average));
            before = odd;
        }
    } else {
        vf a = ROW(at), b = ROW(at + VF_LANES), even = vf_even(a, b);
        for (int64_t i = 0; i < count; i += VF_LANES) {
            const vf two = ht_combine(even, vf_odd(a, b), average), last = even;
            if (count - i > VF_LANES - 1) {
                a = ROW(at + 2 * (i + VF_LANES));
                b = ROW(at + 2 * (i + VF_LANES) + VF_LANES);
                even = vf_even(a, b);
            }
            PUT(ht_combine(two, vf_next(last, even), average));
        }
    }
#undef ROW
#undef PUT
}

HT_INLINE void pool_planes(const ht_window *w, const float *x, float *y, const int64_t *pad_after, int count_padding,
                           const int kernel, const int stride, const int average)
{
    float counts[HT_POOL_SMALL_COLUMNS + VF_LANES];
    const int64_t columns = w->out[2], size = w->n * w->c * w->out_size;
    for (int64_t i = 0; average && i < columns + VF_LANES; i++)
        counts[i] = (float)ht_counted(w, 2, i * stride - w->pad[2], pad_after, count_padding);
    int64_t left = HT_PACE, at = 0;
    for (int64_t plane = 0; plane < w->n * w->c; plane++)
        for (int64_t z = 0; z < w->out[0]; z++)
            for (int64_t line = 0; line < w->out[1]; line++, at += columns) {
                const int64_t at_z = z * w->stride[0] - w->pad[0], at_y = line * w->stride[1] - w->pad[1];
                const float *rows[HT_POOL_TAPS];
                int64_t taps = 0, first, last;
                if (ht_paced_stop(&left, columns * (w->kernel[0] * w->kernel[1] + kernel)))
                    return;
                ht_valid_range(at_y, w->dilation[1], w->in[1], w->kernel[1], &first, &last);
                for (int64_t kz = 0; kz < w->kernel[0]; kz++) {
                    const int64_t iz = at_z + kz * w->dilation[0];
                    for (int64_t ky = first; iz >= 0 && iz < w->in[0] && ky < last; ky++)
                        rows[taps++] = x + plane * w->in_size + (iz * w->in[1] + at_y + ky * w->dilation[1]) * w->in[2];
                }
                if (taps == 0) {
                    for (int64_t i = 0; i < columns; i++)
                        y[at + i] = average ? 0.0f : -INFINITY;
                    continue;
                }
                float count_rows = 0;
                if (average)
                    count_rows = (float)(ht_counted(w, 0, at_z, pad_after, count_padding) *
                                         ht_counted(w, 1, at_y, pad_after, count_padding));
                HT_BY_TAPS(taps, pool_line(rows, TAPS, w->in[2], -w->pad[2], counts, count_rows, y + at, columns, size - at,
                                           kernel, stride, average))
            }
}

/* The columns of one row of 3 x 3 windows, combined. inside: which lanes of the vectors at p + 0, 1, 2, and with stride 2 at
 * p + 0, VF_LANES, 2, VF_LANES + 2, are inside the row. */
HT_INLINE vf three_columns(const float *p, const vm *inside, vf blank, const int stride, const int edge, const int average)
{
    vf v[4];
#pragma GCC unroll 4
    for (int i = 0; i < 2 + stride; i++) {
        const float *from = p + (stride == 1 ? i : i / 2 * 2 + i % 2 * VF_LANES);
        v[i] = edge ? vf_load_where(from, inside[i]) : vf_load(from);
        if (edge && !average) /* `blank` of sums is zero */
            v[i] = vf_select(inside[i], v[i], blank);
    }
    if (stride == 1)
        return ht_combine(ht_combine(v[0], v[1], average), v[2], average);
    return ht_combine(ht_combine(vf_even(v[0], v[1]), vf_odd(v[0], v[1]), average), vf_even(v[2], v[3]), average);
}

/* Columns i and up of all lines of a plane: each row's columns are combined once for all lines that use them. */
HT_INLINE void pool_3x3_strip(const ht_window *w, const float *x, float *y, int64_t i, int64_t room, const float *counts,
                              const int64_t *pad_after, int count_padding, const int stride, const int edge,
                              const int average)
{
    const int64_t columns = w->out[2], lines = w->out[1], height = w->in[1], width = w->in[2], pad = w->pad[1];
    const int64_t at = i * stride - w->pad[2], count = ht_min64(VF_LANES, columns - i);
    const vf blank = vf_set1(average ? 0.0f : -INFINITY);
    vm inside[4];
#pragma GCC unroll 4
    for (int v = 0; v < 2 + stride; v++) {
        const int64_t from = at + (stride == 1 ? v : v / 2 * 2 + v % 2 * VF_LANES);
        const int64_t low = ht_min64(VF_LANES, ht_max64(0, -from));
        inside[v] = vm_range(low, ht_max64(low, ht_min64(VF_LANES, width - from)));
    }
    const float *p = x + at - pad * width;
#define ROW(p, row) \
    (HT_LIKELY((row) >= 0 && (row) < height) ? three_columns(p, inside, blank, stride, edge, average) : blank)
    vf a = ROW(p, -pad), b = ROW(p + width, 1 - pad), divisor = a;
    float rows = -1;
    for (int64_t line = 0, to = i; line < lines; line++, to += columns) {
        const int64_t first = line * stride - pad;
        if (stride == 2 && line > 0)
            b = ROW(p + width, first + 1);
        const vf c = ROW(p + 2 * width, first + 2);
        p += stride * width;
        vf result = ht_combine(ht_combine(a, b, average), c, average);
        if (average) {
            const float counted = (float)ht_counted(w, 1, first, pad_after, count_padding);
            if (counted != rows)
                divisor = vf_max(vf_load(counts + i) * vf_set1(counted), vf_set1(1.0f)); /* of no elements: 0 / 1 */
            rows = counted;
            result = result / divisor;
        }
        if (HT_LIKELY(to + VF_LANES <= room))
            vf_store(y + to, result); /* later lines, and strips to the left, are written later */
        else
            vf_store_n(y + to, count, result);
        a = stride == 1 ? b : c;
        b = c;
    }
#undef ROW
}

HT_INLINE void pool_3x3(const ht_window *w, const float *x, float *y, const int64_t *pad_after, int count_padding,
                        const int kernel, const int stride, const int average)
{
    (void)kernel;
    float counts[HT_POOL_SMALL_COLUMNS + VF_LANES];
    const int64_t planes = w->n * w->c * w->out[0], plane = w->out[1] * w->out[2], last = w->out[2] - 1;
    int64_t left = HT_PACE;
    for (int64_t i = 0; average && i < w->out[2] + VF_LANES; i++)
        counts[i] = (float)ht_counted(w, 2, i * stride - w->pad[2], pad_after, count_padding);
    for (int64_t p = 0; p < planes && !ht_paced_stop(&left, 6 * plane); p++, x += w->in[1] * w->in[2])
        for (int64_t i = last - last % VF_LANES; i >= 0; i -= VF_LANES) {
            const int64_t at = i * stride - w->pad[2], room = (planes - p) * plane;
            if (at < 0 || at + 2 + stride * VF_LANES > w->in[2])
                pool_3x3_strip(w, x, y + p * plane, i, room, counts, pad_after, count_padding, stride, 1, average);
            else
                pool_3x3_strip(w, x, y + p * plane, i, room, counts, pad_after, count_padding, stride, 0, average);
        }
}

/* Not inlined: as one function, their loops would share registers badly. */
#define POOLS(POOL)                                                                                                 \
    POOL(pool_2_1, pool_planes, 2, 1, 0)                                                                               \
    POOL(pool_3_1, pool_planes, 3, 1, 0)                                                                               \
    POOL(pool_2_2, pool_planes, 2, 2, 0)                                                                               \
    POOL(pool_3_2, pool_planes, 3, 2, 0)                                                                               \
    POOL(pool_strips_1, pool_3x3, 3, 1, 1)                                                                             \
    POOL(pool_strips_2, pool_3x3, 3, 2, 1)
#define DEFINE(name, pool, kernel, stride, in_strips)                                                                     \
    static __attribute__((noinline)) void name##_max(const ht_window *w, const float *x, float *y)                  \
    {                                                                                                               \
        pool(w, x, y, NULL, 0, kernel, stride, 0);                                                                  \
    }                                                                                                               \
    static __attribute__((noinline)) void name##_average(const ht_window *w, const float *x, float *y,              \
                                                         const int64_t *pad_after, int count_padding)               \
    {                                                                                                               \
        pool(w, x, y, pad_after, count_padding, kernel, stride, 1);                                                 \
    }
POOLS(DEFINE)

void HT_KERNEL(pool_small)(const ht_window *w, const float *x, float *y, int average, const int64_t *pad_after,
                           int count_padding)
{
    if (HT_FALLBACK) /* ht_pool_is_small says no */
        return;
    const int strips = ht_pool_is_3x3(w);
#define CALL(name, pool, columns, step, in_strips)                                                                   \
    if (w->kernel[2] == columns && w->stride[2] == step && strips == in_strips) {                                   \
        if (average)                                                                                                \
            name##_average(w, x, y, pad_after, count_padding);                                                      \
        else                                                                                                        \
            name##_max(w, x, y);                                                                                    \
    }
    POOLS(CALL)
}
