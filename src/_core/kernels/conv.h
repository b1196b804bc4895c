/* One convolution of one image and group, and the algorithms that compute it; shared by the conv_*.c files. There are
 * always three spatial sizes (depth, height, width); missing leading ones are 1. */
#ifndef HETERO_CONV_H
#define HETERO_CONV_H

#include "gemm_micro.h"
#include "spatial.h"
#include "unary.h"

/* y = activation(conv + bias + addend) * after_scale + after_shift + late. */
typedef struct {
    const float *x;             /* in_channels planes of in[0] * in[1] * in[2] */
    const float *w;             /* packed panels of HT_PANEL output channels x depth_k; depthwise: as in ONNX */
    const char *plain;          /* winograd only: the float32 weights as in ONNX, at any address */
    const float *scale;         /* winograd only: a factor for the weights of each output channel, or NULL */
    const float *bias;          /* out_channels, or NULL */
    const float *addend;        /* shaped like y, or NULL */
    const float *after_scale, *after_shift; /* out_channels, or NULL */
    const float *late;          /* shaped like y, or NULL */
    float *y;                   /* out_channels planes of `pixels` */
    int64_t in_channels, out_channels;
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad[3];
    int64_t in_plane, pixels;
    int64_t taps, depth_k;      /* kernel positions; in_channels * taps */
    int finite;                 /* are all weights known to be finite? */
    int padded;                 /* does any tap of any output fall outside the input? */
    int tiled;                  /* wide: as products of bfloat16 (tiled_product.h) */
    int plain_weights;          /* with `tiled`: w is as in ONNX */
    int64_t tiled_k;            /* with `tiled`: the length of the blocks of k */
    int has_parts;              /* with `tiled`: w is packed by pack_parts */
    int activation;
    float p0, p1, low, high;
    float *scratch;
    const float *next;          /* direct: the packed weights that this thread probably reads next, or NULL; they are */
    int64_t next_panels;        /* prefetched: so many panels */
} ht_conv;

/* Are results final when they are stored as min(max(conv + bias + addend, low), high)? If not, each is passed to one of the
 * functions below afterwards. */
HT_INLINE int ht_conv_is_final(const ht_conv *c)
{
    return ht_unary_is_clip(c->activation) && !c->after_scale && !c->after_shift && !c->late;
}

/* Finishes y[at, at + count), which belong to one output channel. */
#define ht_conv_finish HT_SHARED(conv_finish)
void ht_conv_finish(const ht_conv *c, int64_t channel, int64_t at, int64_t count);
/* Finishes all of output channels [m0, m1). */
#define ht_conv_finish_channels HT_SHARED(conv_finish_channels)
void ht_conv_finish_channels(const ht_conv *c, int64_t m0, int64_t m1);

/* Is a 1x1 kernel's input read in place? */
HT_INLINE int ht_conv_flat(const ht_conv *c) { return c->taps == 1 && !c->padded && c->in_plane == c->pixels; }

/* Are the pixels that a 1x1 kernel reads copied one by one? Their rows are too short for vectors. */
HT_INLINE int ht_conv_points(const ht_conv *c)
{
    return c->taps == 1 && !c->padded && !ht_conv_flat(c) && c->out[2] < VF_LANES;
}

/* Some outputs with pixels in [begin, end), in this order: groups of HT_TILED_GROUP output channels, and within a group its
 * pixels. The first output is pixel p0 of the group that begins with channel m0; the last one precedes pixel p1 of the group
 * that begins with m1. All numbers are multiples of HT_TILED_GROUP. Exceptions: `end` may be the number of pixels, and m1 the
 * number of channels. */
typedef struct {
    int64_t begin, end, m0, p0, m1, p1;
} ht_conv_span;

/* Does wide load a vector of pixels at a time, also across the ends of rows? Only kernels of at most 32 positions along width,
 * and along height and depth together. */
#if defined(__AVX512F__)
#define HT_CONV_VECTORS 1
#else
#define HT_CONV_VECTORS 0
#endif

/* Computes output pixels [p0, p1) for any shape: at most HT_BLOCK_N. With c->tiled: a span, of at most as many.
 * Columns are output pixels: im2col blocks are packed as the B of a matrix product. */
#define ht_conv_wide HT_KERNEL(conv_wide)
void ht_conv_wide(const ht_conv *c, int64_t p0, int64_t p1);
/* Each sum has so many terms, of some consecutive k each, which are added in their order. ht_conv_wide_term computes one term of
 * all outputs, sums[out_channels][pixels], and ht_conv_wide_add the outputs of channels [m0, m1) from all terms, bit for bit as
 * ht_conv_wide does. At most HT_BLOCK_N pixels; without c->tiled. */
#define ht_conv_wide_terms HT_KERNEL(conv_wide_terms)
int64_t ht_conv_wide_terms(const ht_conv *c);
#define ht_conv_wide_term HT_KERNEL(conv_wide_term)
void ht_conv_wide_term(const ht_conv *c, int64_t term, float *sums);
#define ht_conv_wide_add HT_KERNEL(conv_wide_add)
void ht_conv_wide_add(const ht_conv *c, float *const *sums, int64_t terms, int64_t m0, int64_t m1);
#define ht_conv_wide_tiled HT_KERNEL(conv_wide_tiled)
void ht_conv_wide_tiled(const ht_conv *c, const ht_conv_span *span);

/* Columns are output channels. Reads the input in place, or a zero-padded copy of a few rows. */
#define ht_conv_direct_fits HT_SHARED(conv_direct_fits)
int ht_conv_direct_fits(const ht_conv *c);
#define ht_conv_direct HT_SHARED(conv_direct)
void ht_conv_direct(const ht_conv *c, int64_t block, int64_t m0, int64_t m1);
/* Whether each block copies its inputs first. */
#define ht_conv_direct_copies HT_SHARED(conv_direct_copies)
int ht_conv_direct_copies(const ht_conv *c);
/* The share of the products that it does not skip, if weights are finite. */
#define ht_conv_direct_kept HT_SHARED(conv_direct_kept)
double ht_conv_direct_kept(const ht_conv *c);
/* The number of blocks of pixels. Output channels [m0, m1) are split at multiples of HT_PANEL; fast in multiples of
 * HT_CONV_DIRECT_CHANNELS. */
#define ht_conv_direct_blocks HT_SHARED(conv_direct_blocks)
int64_t ht_conv_direct_blocks(const ht_conv *c);
#define HT_CONV_DIRECT_CHANNELS (HT_TILE_PANELS * HT_PANEL)

/* Columns are adjacent pixels of a row, read from a copy of some rows that is split by column. Computes block `block`
 * of `block_rows` output rows (see ht_conv_rows_block) for all output channels. */
#define ht_conv_rows_fits HT_SHARED(conv_rows_fits)
int ht_conv_rows_fits(const ht_conv *c);
/* What it moves for an image and group, in multiply-adds that take as long. */
#define ht_conv_rows_moved HT_SHARED(conv_rows_moved)
double ht_conv_rows_moved(const ht_conv *c);
#define ht_conv_rows_block HT_SHARED(conv_rows_block)
int64_t ht_conv_rows_block(const ht_conv *c, int64_t most_rows);
#define ht_conv_rows HT_SHARED(conv_rows)
void ht_conv_rows(const ht_conv *c, int64_t block_rows, int64_t block);

/* in_channels == 1. Computes groups [group0, group1) of one image; c's pointers are those of the first of them. */
#define ht_conv_depthwise_fits HT_SHARED(conv_depthwise_fits)
int ht_conv_depthwise_fits(const ht_conv *c);
#define ht_conv_depthwise HT_SHARED(conv_depthwise)
void ht_conv_depthwise(const ht_conv *c, int64_t group0, int64_t group1);
/* The estimated cost of a channel, in operations on vectors. */
#define ht_conv_depthwise_cost HT_SHARED(conv_depthwise_cost)
double ht_conv_depthwise_cost(const ht_conv *c);
/* The same for some square kernels, which it calls. */
#define ht_conv_square_fits HT_SHARED(conv_square_fits)
int ht_conv_square_fits(const ht_conv *c);
#define ht_conv_square HT_SHARED(conv_square)
void ht_conv_square(const ht_conv *c, int64_t group0, int64_t group1);
#define ht_conv_square_cost HT_SHARED(conv_square_cost)
double ht_conv_square_cost(const ht_conv *c);
/* The same for small planes; groups are split at multiples of VF_LANES. */
#define ht_conv_narrow_is_better HT_SHARED(conv_narrow_is_better)
int ht_conv_narrow_is_better(const ht_conv *c, int64_t groups);
#define ht_conv_narrow HT_SHARED(conv_narrow)
void ht_conv_narrow(const ht_conv *c, int64_t group0, int64_t group1);

/* A 3x3 kernel without strides or dilations, tiles of m x m outputs (2 or 4); w is packed by pack_winograd. Computes
 * block `block` of tiles for all output channels. */
#define HT_WINOGRAD_EXTREME 8192.0f /* inputs and weights up to this magnitude never count as extreme */
#define ht_conv_winograd_fits HT_SHARED(conv_winograd_fits)
int ht_conv_winograd_fits(const ht_conv *c, int64_t m, int64_t scratch_bytes);
#define ht_conv_winograd HT_SHARED(conv_winograd)
void ht_conv_winograd(const ht_conv *c, int64_t m, int64_t block);
#define ht_conv_winograd_blocks HT_SHARED(conv_winograd_blocks)
int64_t ht_conv_winograd_blocks(const ht_conv *c, int64_t m);

/* The same block in three steps. Threads can share each step, and finish it before the next begins. v: the beginning of
 * some thread's scratch memory, which holds the block's transformed inputs until the second step ends; NULL for this
 * thread's own.
 *   1. Input channels [c0, c1), which are split at multiples of HT_CONV_WINOGRAD_TOGETHER. Returns 0 if one of them may
 *      have an input that is extreme or not finite.
 *   2. Output channels [m0, m1), which are split at multiples of HT_PANEL. Fast in multiples of ht_conv_winograd_width.
 *   3. Output channels [m0, m1). Needed if a call of the first step returned 0 (then `ordinary` is 0), or if there are
 *      extreme weights. It uses the beginning of this thread's scratch memory. */
#define HT_CONV_WINOGRAD_TOGETHER 2
#define ht_conv_winograd_transform HT_SHARED(conv_winograd_transform)
int ht_conv_winograd_transform(const ht_conv *c, int64_t m, int64_t block, int64_t c0, int64_t c1, float *v);
#define ht_conv_winograd_multiply HT_SHARED(conv_winograd_multiply)
void ht_conv_winograd_multiply(const ht_conv *c, int64_t m, int64_t block, int64_t m0, int64_t m1, float *v);
#define ht_conv_winograd_repair HT_SHARED(conv_winograd_repair)
void ht_conv_winograd_repair(const ht_conv *c, int64_t m, int64_t block, int64_t m0, int64_t m1, int ordinary);
#define ht_conv_winograd_has_extreme HT_SHARED(conv_winograd_has_extreme)
int ht_conv_winograd_has_extreme(const ht_conv *c, int64_t m); /* weights */
#define ht_conv_winograd_width HT_SHARED(conv_winograd_width)
int64_t ht_conv_winograd_width(const ht_conv *c, int64_t m, int64_t block);

/* The same with dilations and the same packed weights. Computes the outputs of phase `number` of dilation[1] *
 * dilation[2]. */

/* Without the products of padding; only for finite weights. Computes pixels [p0, p1), numbered by region, for output
 * channels [m0, m1): at most HT_CONV_INSIDE_CHANNELS, split at multiples of HT_CONV_DIRECT_CHANNELS.
 * ht_conv_inside_fits also counts `products`, pairs of an output pixel and a kernel position inside the input, and
 * `weights`, the kernel positions of all regions. ht_conv_inside_pixels: the most pixels for some output channels. */
#define HT_CONV_INSIDE_CHANNELS 384
#define ht_conv_inside_fits HT_SHARED(conv_inside_fits)
int ht_conv_inside_fits(const ht_conv *c, double *products, double *weights);
#define ht_conv_inside_pixels HT_SHARED(conv_inside_pixels)
int64_t ht_conv_inside_pixels(int64_t channels);
#define ht_conv_inside HT_SHARED(conv_inside)
void ht_conv_inside(const ht_conv *c, int64_t p0, int64_t p1, int64_t m0, int64_t m1);

/* Adjacent pixels of a row: where the inputs of kernel position 0 begin within a plane of x, possibly outside (of
 * conv_inside.c only); where the outputs begin within a plane of y. */
typedef struct {
    int64_t in, out, count;
} ht_run;

/* Stores finished sums[pixel][channel - m0] of output channels [m0, m1) of the pixels of all runs: transposes them, adds
 * bias and addend, and applies the activation. `rows`: scratch memory for VF_LANES rows of as many pixels and up to two
 * vectors. Whole vectors of sums are read: up to VF_LANES more pixels. */
#define ht_conv_store_sums HT_SHARED(conv_store_sums)
void ht_conv_store_sums(const ht_conv *c, const ht_run *runs, int64_t num_runs, const float *sums, int64_t sums_row,
                        int64_t m0, int64_t m1, float *rows);

/* Few channels of 1 or 2 dimensions. Computes block `block` of `block_rows` output rows (see ht_conv_grouped_rows) for all
 * output channels. */
#define ht_conv_grouped_fits HT_SHARED(conv_grouped_fits)
int ht_conv_grouped_fits(const ht_conv *c);
#define ht_conv_grouped_rows HT_SHARED(conv_grouped_rows)
int64_t ht_conv_grouped_rows(const ht_conv *c, int64_t most_rows);
/* The number of output channels that it computes: rounded up to whole panels, or to whole vectors for some kernels. */
#define ht_conv_grouped_columns HT_SHARED(conv_grouped_columns)
int64_t ht_conv_grouped_columns(const ht_conv *c);
/* What it copies for an image and group, in multiply-adds that take as long. */
#define ht_conv_grouped_moved HT_SHARED(conv_grouped_moved)
double ht_conv_grouped_moved(const ht_conv *c);
#define ht_conv_grouped HT_SHARED(conv_grouped)
void ht_conv_grouped(const ht_conv *c, int64_t block_rows, int64_t block);

/* dst[i] = row[at + i * stride] for i in [low, high), and zero for the others of [0, count). Up to VF_LANES - 1 more are
 * overwritten. */
HT_INLINE void ht_sample_within(const float *row, int64_t at, int64_t stride, int64_t low, int64_t high, int64_t count,
                                float *dst)
{
    int64_t i = 0;
    for (; i < low; i++)
        dst[i] = 0.0f;
    if (stride == 1) {
        for (; i + VF_LANES <= high; i += VF_LANES)
            vf_store(dst + i, vf_load(row + at + i));
        if (i < high)
            vf_store(dst + i, vf_load_n(row + at + i, high - i));
    } else if (stride == 2) {
        for (; i + VF_LANES < high; i += VF_LANES)
            vf_store(dst + i, vf_even(vf_load(row + at + 2 * i), vf_load(row + at + 2 * i + VF_LANES)));
        if (i < high) { /* the last element is read alone: the row may end with it */
            const int64_t span = 2 * (high - i) - 1;
            const float *from = row + at + 2 * i;
            const vf second = span > VF_LANES ? vf_load_n(from + VF_LANES, span - VF_LANES) : vf_set1(0.0f);
            vf_store(dst + i, vf_even(vf_load_n(from, ht_min64(span, VF_LANES)), second));
        }
    } else {
        for (; i < high; i++)
            dst[i] = row[at + i * stride];
    }
    for (i = high; i < count; i++)
        dst[i] = 0.0f;
}

/* The same with zeros where row[at + i * stride] lies outside [0, size), or `row` is NULL. */
HT_INLINE void ht_sample_row(const float *row, int64_t size, int64_t at, int64_t stride, int64_t count, float *dst)
{
    int64_t low = count, high = count;
    if (row)
        ht_valid_range(at, stride, size, count, &low, &high);
    ht_sample_within(row, at, stride, low, high, count, dst);
}

#endif
