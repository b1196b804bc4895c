/* Shared by the algorithms for pooling float32: pool.c, pool_lanes.c, pool_small.c. */
#ifndef HETERO_POOL_H
#define HETERO_POOL_H

#include "spatial.h"

#define HT_POOL_TAPS 512 /* rows of a window, at most: bounds an array of row pointers on the stack (4 kB) */

/* The number of taps t in [0, kernel) with position + t * dilation in [low, high). */
HT_INLINE int64_t ht_taps_within(int64_t position, int64_t kernel, int64_t dilation, int64_t low, int64_t high)
{
    int64_t first, last;
    if (dilation == 1)
        return ht_max64(0, ht_min64(position + kernel, high) - ht_max64(position, low));
    ht_valid_range(position - low, dilation, high - low, kernel, &first, &last);
    return last - first;
}

/* The number of elements of a window that count along one axis. */
HT_INLINE int64_t ht_counted(const ht_window *w, int axis, int64_t position, const int64_t *pad_after, int count_padding)
{
    return ht_taps_within(position, w->kernel[axis], w->dilation[axis], count_padding ? -w->pad[axis] : 0,
                          w->in[axis] + (count_padding ? pad_after[axis] : 0));
}

HT_INLINE vf ht_combine(vf a, vf b, const int average)
{
    if (average)
        return a + b;
    return vf_max_nan(a, b);
}

/* dst[0, width) = the rows of one row of windows, combined. Rows are not read beyond `width`. */
HT_INLINE void ht_combine_rows(const float *const *rows, const int64_t taps, int64_t width, float *dst, const int average)
{
    for (int64_t i = 0; i < width; i += VF_LANES) {
        const int64_t lanes = width - i;
        if (HT_LIKELY(lanes >= VF_LANES)) {
            vf result = vf_load(rows[0] + i);
#pragma GCC unroll 4
            for (int64_t tap = 1; tap < taps; tap++)
                result = ht_combine(result, vf_load(rows[tap] + i), average);
            vf_store(dst + i, result);
        } else {
            vf result = vf_load_n(rows[0] + i, lanes);
#pragma GCC unroll 4
            for (int64_t tap = 1; tap < taps; tap++)
                result = ht_combine(result, vf_load_n(rows[tap] + i, lanes), average);
            vf_store_n(dst + i, lanes, result);
        }
    }
}

#define HT_BY_TAPS(taps, call)                                                                                        \
    switch (taps) {                                                                                                   \
    case 2: { enum { TAPS = 2 }; call; break; }                                                                       \
    case 3: { enum { TAPS = 3 }; call; break; }                                                                       \
    default: { const int64_t TAPS = taps; call; break; }                                                              \
    }

/* Pools all planes of w, with channels in the lanes. turned: ht_pool_lanes_bytes(w) bytes. */
void HT_KERNEL(pool_lanes)(const ht_window *w, const float *x, float *y, int average, const int64_t *pad_after,
                           int count_padding, void *turned);
HT_INLINE int64_t ht_pool_lanes_bytes(const ht_window *w)
{
    return ht_scratch_pool_lanes(w->in_size, w->out_size, w->in[2], w->out[2]);
}

/* Whether `pool_small` can pool w. */
#define HT_POOL_SMALL_COLUMNS 8192 /* output columns, at most: bounds an array of counts on the stack (32 kB) */
HT_INLINE int ht_pool_is_small(const ht_window *w)
{
    return !HT_FALLBACK && (w->kernel[2] == 2 || w->kernel[2] == 3) && w->stride[2] <= 2 && w->dilation[2] == 1 &&
           w->out[2] <= HT_POOL_SMALL_COLUMNS && w->kernel[0] <= HT_POOL_TAPS && w->kernel[1] <= HT_POOL_TAPS &&
           w->kernel[0] * w->kernel[1] <= HT_POOL_TAPS;
}
/* Whether it pools planes with windows of 3 x 3 and equal strides, which it does in strips, and not line by line. A plane
 * stays in the L2 cache, or with strides of 2 in the L1 cache; whether the run is to end is asked between planes. */
HT_INLINE int ht_pool_is_3x3(const ht_window *w)
{
    return ht_pool_is_small(w) && w->kernel[0] == 1 && w->stride[0] == 1 && w->pad[0] == 0 && w->in[0] == w->out[0] &&
           w->kernel[1] == 3 && w->kernel[2] == 3 && w->dilation[1] == 1 && w->stride[1] == w->stride[2] &&
           w->in[1] * w->in[2] <= (w->stride[1] == 1 ? 1 << 16 : 1 << 12);
}
void HT_KERNEL(pool_small)(const ht_window *w, const float *x, float *y, int average, const int64_t *pad_after,
                           int count_padding);

#endif
