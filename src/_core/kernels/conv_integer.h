/* The layouts that pack_integer.c writes and conv_integer.c reads: images and filters of 8-bit integers in quads. */
#ifndef HETERO_CONV_INTEGER_H
#define HETERO_CONV_INTEGER_H

#include "integer_micro.h"
#include "spatial.h"

typedef struct {
    int64_t group, kernel[3], stride[3], pad[3], dilation[3], out[3];
    int64_t period[3], phases[3], length[3]; /* per axis: period, number of phases, positions of each phase */
    int64_t channels;                        /* of a group */
    int thin;                                /* one channel: quads run along the last axis */
    int pointwise;                           /* one tap, no strides: the output has the shape of the padded image */
    int64_t quads, taps, steps, plane;       /* plane: bytes of all phases of a quad */
    int64_t out_size;
} ht_quad_layout;

enum { HT_PIXEL_SLACK = HT_PANEL_BYTES * 2 }; /* bytes after the last pixel that vectors may read */

/* Reads the layout from the ints of a call; returns 0 if they are invalid. */
#define ht_quad_layout_of HT_KERNEL(quad_layout_of)
int ht_quad_layout_of(ht_quad_layout *l, const ht_call *call);

/* Treats the image as one long row. Only valid if `pointwise`: no window then reaches beyond the end of a row. */
#define ht_as_one_row HT_KERNEL(as_one_row)
void ht_as_one_row(ht_quad_layout *l);

#endif
