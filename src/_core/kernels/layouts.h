/* Layouts of packed operands: where their elements lie, and how many there are. They are the same for every instruction
 * set, because exported models contain packed constants; see HT_PACKING_VERSION. */
#ifndef HETERO_LAYOUTS_H
#define HETERO_LAYOUTS_H

#include "kernel.h"

/* Sums and products of sizes, none negative; INT64_MAX if a result is larger. Planners refuse such a size. */
static inline int64_t ht_size_sum(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

static inline int64_t ht_size_product(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

static inline int64_t ht_size_quotient(int64_t a, int64_t b) { return a / b + (a % b != 0); } /* rounded up */

static inline int64_t ht_quads(int64_t k) { return ht_size_quotient(k, HT_QUAD); }

/* Columns in whole panels. */
static inline int64_t ht_panel_columns(int64_t n) { return ht_size_product(ht_size_quotient(n, HT_PANEL), HT_PANEL); }

/* Floats of B[k][n] packed by pack_b. */
static inline int64_t ht_panel_floats(int64_t k, int64_t n) { return ht_size_product(ht_panel_columns(n), k); }

/* Floats of k elements of each of n rows or columns packed by pack_parts: whole groups of whole steps (tiled_product.c). */
static inline int64_t ht_parts_floats(int64_t k, int64_t n)
{
    const int64_t steps = ht_size_quotient(k, HT_TILED_STEP), groups = ht_size_quotient(n, HT_TILED_GROUP);
    return ht_size_product(ht_size_product(steps, groups), HT_TILED_BYTES * HT_TILED_STEP * HT_TILED_GROUP / 4);
}

/* Bytes of B[k][n] packed by pack_quads: per column its quads, their sum and the zero point. */
static inline int64_t ht_quad_bytes(int64_t k, int64_t n)
{
    return ht_size_product(ht_panel_columns(n), HT_QUAD * (ht_quads(k) + 2));
}

/* Bytes of a block of a panel packed by pack_nbits (nbits.h), and of B[k][n]. */
static inline int64_t ht_nbits_block_bytes(int64_t bits, int64_t block, int has_zeros)
{
    return HT_PANEL * (4 + (has_zeros ? 1 : 0) + block * bits / 8);
}

static inline int64_t ht_nbits_bytes(int64_t k, int64_t n, int64_t bits, int64_t block, int has_zeros)
{
    const int64_t panel = ht_size_product(ht_size_quotient(k, block), ht_nbits_block_bytes(bits, block, has_zeros));
    return ht_size_product(ht_size_quotient(n, HT_PANEL), panel);
}

/* Floats of a group's weights packed by pack_winograd: the transformed filters, and a mark for each. m: 2 or 4. */
static inline int64_t ht_winograd_floats(int64_t in_channels, int64_t out_channels, int64_t m)
{
    return ht_size_product(ht_panel_columns(out_channels), ht_size_sum(ht_size_product((m + 2) * (m + 2), in_channels), 1));
}

/* ---- Convolutions of 8-bit integers. Their kernels take the same ints: group, channels of a group, then triples (see
 * spatial.h) kernel, strides, pads before, dilations, sizes of the output. */

#define HT_CONV_INTEGER_INTS 17

/* What pack_pixels and pack_filters write and conv_integer reads: images and filters in quads. conv_integer.c explains
 * it. */
typedef struct {
    int64_t group, kernel[3], stride[3], pad[3], dilation[3], out[3];
    int64_t period[3], phases[3], length[3]; /* per axis: period, number of phases, positions of each phase */
    int64_t channels;                        /* of a group */
    int thin;                                /* one channel: quads run along the last axis */
    int pointwise;                           /* one tap, no strides: the output has the shape of the padded image */
    int64_t quads, taps, steps, plane;       /* plane: bytes of all phases of a quad */
    int64_t out_size;
} ht_quad_layout;

#define HT_PIXEL_SLACK (2 * HT_PANEL * HT_QUAD) /* bytes after the last pixel that vectors may read */

/* Reads the layout from `count` ints; returns 0 if they are invalid. */
int ht_quad_layout_of(ht_quad_layout *l, const int64_t *ints, int32_t count);

/* Treats the image as one long row. Only valid if `pointwise`: no window then reaches beyond the end of a row. */
void ht_as_one_row(ht_quad_layout *l);

int64_t ht_pixel_bytes(const ht_quad_layout *l, int64_t images); /* of packed images */
int64_t ht_filter_bytes(const ht_quad_layout *l, int64_t maps);  /* of packed filters */

/* The pixels that conv_integer numbers in a map of the output: they include the ends of rows, which it drops. */
int64_t ht_numbered_pixels(const ht_quad_layout *l);

/* What pack_depthwise writes and depthwise_integer reads; depthwise_integer.c explains it. */
typedef struct {
    int64_t channels, multiplier, kernel[2], stride[2], pad[2], dilation[2], in[2], out[2];
    int64_t taps, quads;
    int64_t blocks, width; /* of a padded row, in pixels */
    int64_t rows, strip;   /* rows of the output at a time, at most, and the input rows that they need */
} ht_depthwise_layout;

/* Reads the layout of an image of in[0] x in[1], except the multiplier; returns 0 if the ints are invalid. */
int ht_depthwise_layout_of(ht_depthwise_layout *l, const int64_t *ints, int32_t count, const int64_t in[2]);

int64_t ht_depthwise_bytes(const ht_depthwise_layout *l, int64_t multiplier); /* of packed weights */

/* Whether depthwise_integer uses its lanes well and its strip of rows takes a moderate amount of memory. */
int ht_depthwise_pays(const ht_depthwise_layout *l);

#endif
