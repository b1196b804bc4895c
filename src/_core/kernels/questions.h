/* What planners ask the kernels: sizes of packed operands, and which algorithm suits a call. A question is a function of
 * integers, which is the same for every instruction set. Answers may be computed again whenever sizes change. */
#ifndef HETERO_QUESTIONS_H
#define HETERO_QUESTIONS_H

#include <stdint.h>

#define HT_MAX_ARGUMENTS 20

/* X(name, number of arguments). `ints` stands for those of a convolution of 8-bit integers: see layouts.h. Sizes are
 * INT64_MAX if they exceed 63 bits, and -1 if the ints are invalid. */
#define HT_QUESTIONS(X)                                                                                               \
    X(panel_floats, 2)     /* k, n: floats of B[k][n] packed by pack_b */                                             \
    X(parts_floats, 2)     /* k, n: floats of k elements of each of n rows or columns packed by pack_parts */         \
    X(gemm_parts, 3)       /* m, n, k: whether gemm and matmul should get a constant B packed by pack_parts if the */ \
                           /* instruction set has tiles (0 or 1) */                                                   \
    X(quad_bytes, 2)       /* k, n: bytes of B[k][n] packed by pack_quads */                                          \
    X(nbits_bytes, 5)      /* k, n, bits, block, has_zeros: bytes of B[k][n] packed by pack_nbits */                   \
    X(pixel_bytes, 18)     /* images, ints: bytes of what pack_pixels writes */                                       \
    X(filter_bytes, 18)    /* maps, ints: bytes of what pack_filters writes */                                        \
    X(depthwise_bytes, 18) /* maps, ints: bytes of what pack_depthwise writes */                                      \
    X(depthwise_pays, 19)  /* height and width of x, ints: whether depthwise_integer suits the convolution (0 or 1) */ \
    X(integer_columns, 17) /* ints: sums that conv_integer computes per map of the output, unused ones included */    \
    X(winograd_floats, 3)  /* in channels, out channels of a group, m: floats of its weights packed by pack_winograd */ \
    X(winograd_tile, 20)   /* the m with which pack_winograd should pack the weights of a convolution, 2 or 4; 0 for */ \
                           /* another algorithm. Arguments: in channels and out channels of a group; three sizes of */ \
                           /* x and of y; kernel, strides, pads before, dilations, three each. With dilations, m */  \
                           /* is for the convolution of the phases of x (phases.c) */                                 \
    X(conv_kept, 18)       /* three sizes of x and of y; kernel, strides, pads before, dilations, three each: how */  \
                           /* many of 1024 products are not of padding */                                             \
    X(conv_tiled, 6)       /* out channels of a group, pixels of x and y, in channels of a group, taps of the */      \
                           /* kernel, conv_kept if weights are finite, else 1024: whether conv multiplies with */     \
                           /* tiles, if the instruction set has them, and should get plain weights (0 or 1) */        \
    X(conv_parts, 6)       /* the same: whether it should rather get constant ones packed by pack_parts (0 or 1) */   \
    X(phase_length, 5)     /* sizes of x and of y along an axis, dilation, pad before, m: how long the phases of x */ \
                           /* are, so that none reaches what a convolution with 3 taps reads of the next one */       \
    X(dft_points, 1)       /* length: rows of the table of roots of the kernel dft; more than length for the chirp */ \
                           /* transform */

int ht_num_questions(void);
const char *ht_question_name(int question);
int ht_question_arguments(int question); /* how many it takes */

/* The answer to a question. Arguments that count something must not be negative. */
int64_t ht_ask(int question, const int64_t *arguments);

/* The answer to dft_points. */
int64_t ht_dft_points(int64_t length);

/* Whether conv_winograd.c computes a convolution of these triples, or of the phases of its input. */
int ht_winograd_supports(int64_t in_channels, const int64_t *in, const int64_t *out, const int64_t *kernel,
                         const int64_t *stride, const int64_t *pad, const int64_t *dilation);

#endif
