/* Sizes of pointwise_depthwise.c, from which scratch.c computes its memory. */
#ifndef HETERO_POINTWISE_DEPTHWISE_H
#define HETERO_POINTWISE_DEPTHWISE_H

#include "layouts.h"

#define HT_POINTWISE_CHANNELS 16       /* computed at a time: a panel of weights */
#define HT_POINTWISE_LEAST_ROWS 4     /* output rows of a band, if there are as many */
#define HT_POINTWISE_BYTES (384 << 10) /* of a band, a part of the L2 cache; 384 to 768 kB are as fast on 2 MB */

/* Floats of a channel: an odd number of cache lines, so that adjacent channels lie in different sets of the cache. */
static inline int64_t ht_pointwise_plane(int64_t pixels)
{
    return ht_size_product(ht_size_quotient(pixels, 16) | 1, 16);
}

/* Bytes of a band of `pixels` pixels: its packed inputs, and the channels computed at a time. */
static inline int64_t ht_pointwise_bytes(int64_t channels, int64_t pixels)
{
    const int64_t computed = ht_size_product(HT_POINTWISE_CHANNELS, ht_pointwise_plane(pixels));
    const int64_t floats = ht_size_sum(ht_panel_floats(channels, pixels), computed);
    return ht_size_product(floats, (int64_t)sizeof(float));
}

/* Floats of a channel that a band keeps for the next: of the rows that they share, in whole cache lines. */
static inline int64_t ht_pointwise_kept(int64_t kernel, int64_t stride, int64_t width)
{
    const int64_t rows = kernel > stride ? kernel - stride : 0;
    return ht_size_product(ht_size_quotient(ht_size_product(rows, width), 16), 16);
}

/* The most input rows, of `in`, that so many output rows need. */
static inline int64_t ht_pointwise_rows_read(int64_t rows, int64_t kernel, int64_t stride, int64_t in)
{
    const int64_t read = ht_size_sum(ht_size_product(rows - 1, stride), kernel);
    return read < in ? read : in;
}

#endif
