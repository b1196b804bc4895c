/* Constants, codes and scratch sizes that both kernels and planners use, each defined once. The kernels include this
 * file. registry.c publishes HT_CONSTANTS and the unary codes as _kernels.constant(name). What planners need as a
 * function is in questions.h.
 *
 * The comments on sizes assume the L1 and L2 data caches that the kernels are written for: 32 kB and at least 1 MB per
 * core. */
#ifndef HETERO_CONSTANTS_H
#define HETERO_CONSTANTS_H

#include <math.h>
#include <stdint.h>

/* ---- Limits of tensors and memory */

#define HT_MAX_DIMS 8                   /* dimensions of a tensor; bounds the arrays of dims, loops and strides on the stack */
#define HT_MAX_BYTES ((int64_t)1 << 40) /* of a tensor; no current machine holds more, and sizes stay far from overflow */
#define HT_ALIGNMENT 64                 /* bytes, of arenas and all in them: a cache line, and the widest vector */
#define HT_MAX_WINDOW (1 << 30)         /* kernel sizes, strides, dilations and pads: sums of products do not overflow */

/* ---- Layouts of packed operands (layouts.h). They are the same for every instruction set, because exported models contain packed
 * constants. */

#define HT_PANEL 16 /* columns of a panel of floats: one vector of AVX-512, two of AVX2 */
#define HT_QUAD 4   /* bytes of a quad: the group that one lane of vpdpbusd multiplies and sums */

/* The version of all packed layouts together. Raise it if one changes: the import of an exported model with another
 * version packs the constants again. */
#define HT_PACKING_VERSION 5

/* ---- conv */

#define HT_CONV_SCRATCH (1 << 20)          /* bytes of scratch memory for every algorithm of conv except Winograd's */
#define HT_CONV_DEPTHWISE_MAPS 4           /* output channels per group; with more, a matrix product is faster */
#define HT_WINOGRAD_COLUMNS 48             /* tiles of a block: three panels, the widest tile of a product */
#define HT_WINOGRAD_REST 4                 /* tiles that the last block takes in addition rather than another block */
#define HT_WINOGRAD_MOST (HT_WINOGRAD_COLUMNS + HT_WINOGRAD_REST)
#define HT_WINOGRAD_INPUT_BYTES (4 << 20)  /* bytes of a block's transformed inputs, at most, unless it is one panel */
#define HT_WINOGRAD_WIDTH 8192             /* floats of the longest row; bounds a row of zeros in scratch (32 kB) */
#define HT_WINOGRAD_CHANNELS 66            /* output channels of P, and input channels that are split together */
#define HT_WINOGRAD_BUFFERS (1 << 16)      /* bytes of rows, zeros and margins next to the transformed blocks, at most */

/* For weights that conv packs itself: `maps` output channels per group, `depth` numbers each. Depthwise weights are
 * never packed. For them and for packed weights HT_CONV_SCRATCH suffices. */
static inline int64_t ht_scratch_conv_packing(int64_t group, int64_t maps, int64_t depth)
{
    return HT_CONV_SCRATCH + 4 * group * ((maps + HT_PANEL - 1) / HT_PANEL) * HT_PANEL * depth;
}

/* Tiles that are transformed together; m: 2 or 4. */
static inline int64_t ht_winograd_columns(int64_t in_channels, int64_t m)
{
    const int64_t panel = (m + 2) * (m + 2) * in_channels * HT_PANEL * 4, panels = HT_WINOGRAD_INPUT_BYTES / panel;
    return panels * HT_PANEL >= HT_WINOGRAD_COLUMNS ? HT_WINOGRAD_COLUMNS : panels > 1 ? panels * HT_PANEL : HT_PANEL;
}

/* Blocks of so many tiles; the last has the others. */
static inline int64_t ht_winograd_blocks(int64_t tiles, int64_t columns)
{
    const int64_t whole = tiles / columns, rest = tiles % columns;
    return whole > 0 && rest <= HT_WINOGRAD_REST ? whole : whole + 1;
}

/* Upper bound for a Winograd convolution without dilations. */
static inline int64_t ht_scratch_winograd(int64_t in_channels, int64_t m)
{
    const int64_t columns = ht_winograd_columns(in_channels, m) + HT_PANEL;
    return 4 * (m + 2) * (m + 2) * (in_channels + HT_WINOGRAD_CHANNELS + 4) * columns + HT_WINOGRAD_BUFFERS;
}

/* ---- gemm, matmul of float32 */

#define HT_GEMM_BLOCK_FLOATS (96 * 1024) /* floats of the largest block of B of any instruction set: see gemm.c */

/* For B[k][n] that is not packed, or is packed as 16-bit floats. */
static inline int64_t ht_scratch_gemm(int64_t k, int64_t n)
{
    const int64_t panels = (n + HT_PANEL - 1) / HT_PANEL, max_panels = HT_GEMM_BLOCK_FLOATS / HT_PANEL;
    return 4 * HT_PANEL * (panels > 0 && k > max_panels / panels ? max_panels : k * panels);
}

/* ---- Products of float32 as products of bfloat16 (tiled_product.c) */

#define HT_TILED_GROUP 32    /* rows or columns that are converted and multiplied together: two tiles */
#define HT_TILED_STEP 32     /* terms of a product of tiles */
#define HT_TILED_BYTES 6     /* of a converted element: three of bfloat16 */
#define HT_TILED_HELD 512    /* rows or columns that are held, at most: with 256 terms 768 kB of an L2 cache of 2 MB */
#define HT_TILED_K 256       /* terms of a block; of fewer rows or columns, more terms are held */
#define HT_TILED_MOST_K 768  /* at most HT_LONG_K, since rows that are not converted go through ht_gemm_rows */

/* Bytes of `held` converted rows or columns, of two groups of the other operand, and of two products of groups. */
#define HT_SCRATCH_TILED(held, k_step) \
    (HT_TILED_BYTES * (k_step) * ((held) + 2 * HT_TILED_GROUP) + 2 * 4 * HT_TILED_GROUP * HT_TILED_GROUP)

static inline int64_t ht_tiled_held(int64_t lanes) { return lanes < HT_TILED_HELD ? (lanes + 31) / 32 * 32 : HT_TILED_HELD; }

/* The most terms of a block that holds at most `lanes` rows or columns: as many as fit HT_SCRATCH_TILED(HT_TILED_HELD,
 * HT_TILED_K). */
static inline int64_t ht_tiled_most_k(int64_t lanes)
{
    const int64_t k = HT_TILED_K * (HT_TILED_HELD + 2 * HT_TILED_GROUP) / (ht_tiled_held(lanes) + 2 * HT_TILED_GROUP);
    return k < HT_TILED_MOST_K ? k / HT_TILED_STEP * HT_TILED_STEP : HT_TILED_MOST_K;
}

/* Whether gemm and matmul hold rows of A and not columns of B. Few rows are held, because they fit a cache and all of B
 * passes once. Many rows pass, because C is then written along its rows, which counts most if sums are short. */
static inline int ht_tiled_holds_rows(int64_t m, int64_t n, int64_t k)
{
    return m < n && m < (k <= 128 ? 160 : 320);
}

static inline int64_t ht_scratch_gemm_tiled(int64_t m, int64_t n, int64_t k)
{
    const int64_t held = ht_tiled_holds_rows(m, n, k) ? m : n, most = ht_tiled_most_k(held);
    return HT_SCRATCH_TILED(ht_tiled_held(held), k < most ? (k + HT_TILED_STEP - 1) / HT_TILED_STEP * HT_TILED_STEP : most);
}

/* What C[m][n] costs as products of bfloat16, for each k, in multiply-adds of float32: whole groups of 32 x 32, and the
 * conversion of each row and column, mostly done while tiles are multiplied. Fitted to measurements. */
static inline double ht_tiled_cost(int64_t m, int64_t n, double row, double column)
{
    const double tall = (double)((m + 31) / 32 * 32), wide = (double)((n + 31) / 32 * 32);
    return 0.5 * tall * wide + row * tall + column * wide;
}

#define HT_TILED_ROW 26.0    /* converting a row of a matrix */
#define HT_TILED_COLUMN 24.0 /* converting a column */
#define HT_TILED_PARTS 10.0  /* reading a column that is converted already, from memory */

static inline int ht_tiled_pays_with(int64_t m, int64_t n, int64_t k, double column)
{
    const double stores = 16; /* of an element of C, beside that of a float32 product */
    return k >= HT_TILED_STEP && ht_tiled_cost(m, n, HT_TILED_ROW, column) < (double)m * (double)n * (1 - stores / (double)k);
}

/* Whether that is cheaper for a matrix product with sums of k products. */
static inline int ht_tiled_pays(int64_t m, int64_t n, int64_t k) { return ht_tiled_pays_with(m, n, k, HT_TILED_COLUMN); }

/* Whether it is if B is constant and is converted once. */
static inline int ht_tiled_pays_parts(int64_t m, int64_t n, int64_t k)
{
    return ht_tiled_pays_with(m, n, k, HT_TILED_PARTS);
}

/* ht_tiled_cost's `row` and `column` for a convolution. Weights may be converted already, but then they are longer, and they
 * are rarely in a cache. Pixels are copied from a plane first, unless they are read in place. */
static inline double ht_conv_tiled_map(int has_parts) { return has_parts ? 22 : 26; }
static inline double ht_conv_tiled_pixel(int in_place) { return in_place ? 26 : 36; }

static inline double ht_conv_tiled_cost(int64_t maps, int64_t in_pixels, int64_t pixels, int64_t taps, int has_parts)
{
    return ht_tiled_cost(maps, pixels, ht_conv_tiled_map(has_parts), ht_conv_tiled_pixel(taps == 1 && in_pixels == pixels));
}

#define HT_CONV_KEPT 1024 /* parts of all products */

/* How many of all products are not of padding. Each argument: one number per spatial axis. */
static inline int64_t ht_conv_kept(const int64_t in[3], const int64_t out[3], const int64_t kernel[3],
                                   const int64_t stride[3], const int64_t pad[3], const int64_t dilation[3])
{
    double kept = HT_CONV_KEPT;
    for (int d = 0; d < 3; d++) {
        double inside = 0;
        for (int64_t tap = 0; tap < kernel[d]; tap++) {
            /* Outputs o with 0 <= o * stride + from < in. */
            const double from = (double)tap * (double)dilation[d] - (double)pad[d], step = (double)stride[d];
            const double first = fmax(0, ceil(-from / step)), end = fmin((double)out[d], ceil(((double)in[d] - from) / step));
            inside += fmax(0, end - first);
        }
        kept *= inside / ((double)out[d] * (double)kernel[d]);
    }
    return (int64_t)kept;
}

/* What the others cost as float32 (conv_inside.c), beside all products. */
static inline double ht_conv_kept_cost(int64_t kept) { return fmin(1, 1.6 * (double)kept / HT_CONV_KEPT); }

static inline int ht_conv_fits_tiles(int64_t maps, int64_t pixels, int64_t in_channels, int64_t taps)
{
    return in_channels * taps >= 2 * HT_TILED_STEP && maps <= HT_MAX_BYTES && pixels <= HT_MAX_BYTES;
}

/* Whether a convolution multiplies weights, plain or packed, by pixels as products of bfloat16. Else plain weights are
 * packed in each call, which planners avoid where weights are constant. In doubt it is 1: tiles are not slowed down by
 * denormal numbers. maps: output channels of a group; in_pixels, pixels:
 * of a plane of x and y; taps: of the kernel; kept: ht_conv_kept if weights are finite, else HT_CONV_KEPT. */
static inline int ht_conv_tiled(int64_t maps, int64_t in_pixels, int64_t pixels, int64_t in_channels, int64_t taps,
                                int64_t kept)
{
    return ht_conv_fits_tiles(maps, pixels, in_channels, taps) &&
           ht_conv_tiled_cost(maps, in_pixels, pixels, taps, 0) <
               (double)maps * (double)pixels * ht_conv_kept_cost(kept);
}

/* Whether it pays to convert constant weights once. The vectors of float32 products are not filled either. Over fewer than 64
 * pixels, reading the converted weights from memory takes longer than converting them, because they are longer. */
static inline int ht_conv_pays_parts(int64_t maps, int64_t in_pixels, int64_t pixels, int64_t in_channels, int64_t taps,
                                     int64_t kept)
{
    const double floats = (double)maps * (double)((pixels + HT_PANEL - 1) / HT_PANEL * HT_PANEL) * ht_conv_kept_cost(kept);
    return ht_conv_fits_tiles(maps, pixels, in_channels, taps) && pixels >= 64 &&
           ht_conv_tiled_cost(maps, in_pixels, pixels, taps, 1) < floats;
}

/* ---- matmul_integer */

#define HT_MATMUL_INTEGER_LEAST_ROWS 12 /* rows of A that the kernel prepares at a time: one tile of the tallest */
#define HT_MATMUL_INTEGER_MOST_ROWS 132 /* the same, at most: eleven such tiles, or eight of AMX; they stay in L2 while B passes */

/* Per row: at most k bytes as quads of int16, 32 sums of a tile, and the row's sum and zero point. */
static inline int64_t ht_scratch_matmul_integer_row(int64_t k)
{
    return 8 * ((k + HT_QUAD - 1) / HT_QUAD) + 4 * 2 * HT_PANEL + 8;
}

/* ---- matmul_nbits, matmul_nbits_bytes */

#define HT_NBITS_MAX_BLOCK (1 << 20) /* elements of a block: products of sizes stay far from overflow */
#define HT_NBITS_MAX_BYTES_BLOCK 256 /* of matmul_nbits_bytes: sums of 255 * 127 * 256 are exact in float32 */

/* Bytes of a row that matmul_nbits_bytes rounds to bytes: these, and two floats for each block. */
static inline int64_t ht_scratch_nbits_row(int64_t k, int64_t block) { return (k + block - 1) / block * (block + 8); }

/* ---- depthwise_integer */

#define HT_DEPTHWISE_CHANNELS 64 /* channels of a block: bytes of the widest vector, and of a cache line */

/* ---- lstm, gru, rnn */

/* Codes of their activations, in this order from 0. */
#define HT_RECURRENT_ACTIVATIONS(X)                         \
    X(RELU)                                                 \
    X(TANH)                                                 \
    X(SIGMOID)                                              \
    X(AFFINE)           /* p0 * x + p1 */                   \
    X(LEAKY_RELU)       /* x < 0 ? p0 * x : x */            \
    X(THRESHOLDED_RELU) /* x > p0 ? x : 0 */                \
    X(SCALED_TANH)      /* p0 * tanh(p1 * x) */             \
    X(HARD_SIGMOID)     /* min(max(p0 * x + p1, 0), 1) */   \
    X(ELU)              /* x < 0 ? p0 * (exp(x) - 1) : x */ \
    X(SOFTSIGN)                                             \
    X(SOFTPLUS)

/* Floats per sequence, in whole panels: the gates' sums, the state, and the state after gru's reset gate. */
static inline int64_t ht_scratch_recurrent(int64_t batch, int64_t gates, int64_t hidden)
{
    return 4 * batch * (gates + 2) * ((hidden + HT_PANEL - 1) / HT_PANEL * HT_PANEL);
}

/* ---- attention, grouped_attention */

#define HT_ATTENTION_SCORES 8192      /* floats of a block of scores: 32 kB, in the cache between the products */
#define HT_ATTENTION_MIN_ROWS 24      /* rows of a block, at least: two of the tallest tiles of a product */
#define HT_ATTENTION_MAX_DIM (1 << 24) /* of m, n, d, e: products of two of them stay far from overflow */

static inline int64_t ht_attention_rows(int64_t m, int64_t n)
{
    const int64_t rows = m < HT_ATTENTION_SCORES / n ? m : HT_ATTENTION_SCORES / n;
    return rows > HT_ATTENTION_MIN_ROWS ? rows : HT_ATTENTION_MIN_ROWS;
}

/* Q[m][d], K[n][d], V[n][e]: K and V in panels, plus a block of scores. n > 0. */
static inline int64_t ht_scratch_attention(int64_t m, int64_t n, int64_t d, int64_t e)
{
    const int64_t keys = (n + HT_PANEL - 1) / HT_PANEL * HT_PANEL * d;
    const int64_t values = (e + HT_PANEL - 1) / HT_PANEL * HT_PANEL * n;
    return 4 * (keys + values + ht_attention_rows(m, n) * n);
}

/* Scores of the heads that share keys, and a sink each. */
static inline int64_t ht_scratch_grouped_attention(int64_t shared, int64_t length) { return 4 * shared * (length + 1); }

/* ---- pad, scatter_elements, scatter_nd, grid_sample, resize_tables.c: codes of their modes. The header of each kernel explains them. */

enum {
    HT_PAD_CONSTANT, HT_PAD_REFLECT, HT_PAD_EDGE, HT_PAD_WRAP,
    HT_SCATTER_NONE = 0, HT_SCATTER_ADD, HT_SCATTER_MUL, HT_SCATTER_MAX, HT_SCATTER_MIN,
    HT_SAMPLE_NEAREST = 0, HT_SAMPLE_LINEAR, HT_SAMPLE_CUBIC,
    HT_OUTSIDE_ZEROS = 0, HT_OUTSIDE_BORDER, HT_OUTSIDE_REFLECTION,
    HT_RESIZE_HALF_PIXEL = 0, HT_RESIZE_HALF_PIXEL_SYMMETRIC, HT_RESIZE_PYTORCH_HALF_PIXEL, HT_RESIZE_ALIGN_CORNERS,
    HT_RESIZE_ASYMMETRIC, HT_RESIZE_TF_HALF_PIXEL, HT_RESIZE_TF_CROP,
    HT_RESIZE_PREFER_FLOOR = 0, HT_RESIZE_PREFER_CEIL, HT_RESIZE_FLOOR, HT_RESIZE_CEIL
};

/* ---- chain */

#define HT_CHAIN_OPERANDS 16    /* operands, at most: bounds an array of offsets on the stack */
#define HT_CHAIN_STEP_INTS 7    /* ints of a step of the program */
#define HT_CHAIN_STEP_BYTES 128 /* bytes of scratch memory of a step: at least its call with three operands */
#define HT_CHAIN_SLOT_BYTES 96  /* bytes of scratch memory of a slot: at least an ht_tensor */
#define HT_CHAIN_LINE 64        /* bytes to which parts of the scratch memory are rounded up: a cache line */

/* Operations on the accumulator of vector_tape.h. Codes below VECTOR_LOAD are those of unary operations. */
enum {
    HT_VECTOR_LOAD = 64,   /* acc = row */
    HT_VECTOR_STORE = 65,  /* row = acc */
    HT_VECTOR_BINARY = 66, /* + 3 * operation + form */
    /* operations */
    HT_VECTOR_ADD = 0, HT_VECTOR_SUB, HT_VECTOR_MUL, HT_VECTOR_DIV, HT_VECTOR_MIN, HT_VECTOR_MAX, HT_VECTOR_PRELU,
    HT_VECTOR_OPERATIONS,
    /* forms: whether each operand is the accumulator or the row */
    HT_VECTOR_ACC_ROW = 0, HT_VECTOR_ROW_ACC = 1, HT_VECTOR_ACC_ACC = 2, HT_VECTOR_FORMS = 3,
    /* between bytes and floats, with a scale and a zero point as parameters; + 1 if the bytes are signed */
    HT_VECTOR_DEQUANTIZE = HT_VECTOR_BINARY + HT_VECTOR_FORMS * HT_VECTOR_OPERATIONS, /* acc = row of bytes */
    HT_VECTOR_QUANTIZE = HT_VECTOR_DEQUANTIZE + 2,                                    /* row of bytes = acc */
    HT_VECTOR_REQUANTIZE = HT_VECTOR_QUANTIZE + 2,                                    /* both, without a row */
    HT_VECTOR_END = HT_VECTOR_REQUANTIZE + 2
};

/* ---- topk */

#define HT_TOPK_COLUMNS 8           /* rows side by side whose keys are computed together: a line of 8-byte elements */
#define HT_TOPK_MOST_KEYS (1 << 30) /* of a row; longer ones go through a heap, since places are int32 */

/* Memory for the keys of rows of n elements of `bytes` bytes, `inner` rows side by side. A heap needs 8 * k. */
static inline int64_t ht_scratch_topk(int64_t n, int64_t k, int64_t inner, int64_t bytes)
{
    const int64_t columns = inner < HT_TOPK_COLUMNS ? inner : HT_TOPK_COLUMNS;
    if (n > HT_TOPK_MOST_KEYS)
        return 8 * k;
    return bytes == 8 ? (8 * columns + 20) * n + 32 * k + 1024 : (4 * columns + 8) * n + 16 * k + 512;
}

/* ---- max_pool, average_pool */

/* With channels in the lanes: elements of a plane of x and of y, columns of x and of y. */
static inline int64_t ht_scratch_pool_lanes(int64_t in_size, int64_t out_size, int64_t in_columns, int64_t out_columns)
{
    return 4 * HT_PANEL * (in_size + out_size + in_columns) + 24 * out_columns;
}

/* ---- col2im_lanes */

/* `size`: elements of a plane of y. */
static inline int64_t ht_scratch_col2im_lanes(int64_t size) { return 4 * HT_PANEL * size; }

/* ---- dft */

#define HT_DFT_LINES 8           /* lines transformed side by side: one vector of float64 of AVX-512 */
#define HT_DFT_LARGEST_FACTOR 61 /* largest prime factor for which a length is transformed by factors; see dft.c */

/* For `lanes` lines of m numbers side by side: each line and a spare, with real and imaginary parts in float64. */
static inline int64_t ht_scratch_dft(int64_t lanes, int64_t m) { return 32 * lanes * m; }

/* ---- nms, unique, det */

static inline int64_t ht_scratch_nms(int64_t boxes) { return 28 * boxes; }

static inline int64_t ht_scratch_unique(int64_t items) { return 16 * items; }

static inline int64_t ht_scratch_det(int64_t n) { return 8 * n * n; } /* a matrix of float64 */

/* ---- conv_integer */

#define HT_WINDOW_PIXELS 32           /* pixels of a block of windows: two panels */
#define HT_WINDOW_BYTES ((int64_t)256 << 10) /* of the windows gathered at a time: a part of the L2 cache */

/* Bytes of a block of windows of `steps` quads, in whole tiles of 16 quads, and of a sum for each pixel. */
static inline int64_t ht_window_block(int64_t steps) { return ((steps + 15) / 16 * 16 + 1) * 4 * HT_WINDOW_PIXELS; }

/* For filters of `steps` quads and `pixels` numbered pixels: offsets of the quads, and, for AMX, blocks of windows. Without
 * VNNI, up to 13 filters in 16 bits take the place of the windows. */
static inline int64_t ht_scratch_conv_integer(int64_t steps, int64_t pixels)
{
    const int64_t block = ht_window_block(steps), all = (pixels + HT_WINDOW_PIXELS - 1) / HT_WINDOW_PIXELS;
    const int64_t most = HT_WINDOW_BYTES / block > 1 ? HT_WINDOW_BYTES / block : 1, blocks = all < most ? all : most;
    const int64_t offsets = (8 * steps + 63) / 64 * 64;
    return offsets + (blocks > 0 ? blocks : 1) * block;
}

/* ---- tree_ensemble: how leaves combine, and flags of a node above the number of its feature */

enum {
    HT_TREE_SUM, HT_TREE_AVERAGE, HT_TREE_MIN, HT_TREE_MAX,
    HT_TREE_EQUAL = 1 << 29,    /* the test is ==, else <= */
    HT_TREE_NAN_FIRST = 1 << 30 /* NaN goes to the first child, else to the second */
};

/* ---- svm: classes at most, and bytes of its matrices of pairs */

enum { HT_SVM_MAX_CLASSES = 1024 };
static inline int64_t ht_scratch_svm_votes(int64_t classes) { return 8 * classes * classes + 8 * classes; }

/* ---- reduce */

/* Codes of its operations, in this order from 0. */
#define HT_REDUCTIONS(X) X(SUM) X(MEAN) X(MAX) X(MIN) X(PRODUCT) X(SQUARES) X(MAGNITUDES) X(ROOT) X(LOGARITHM)

/* ---- Published constants: X(NAME) for HT_<NAME> */

#define HT_CONSTANTS(X)                                                                                 \
    X(MAX_DIMS) X(MAX_BYTES) X(ALIGNMENT) X(MAX_WINDOW) X(MAX_THREADS) X(SVM_MAX_CLASSES)                               \
    X(PANEL) X(PACKING_VERSION) X(NBITS_MAX_BLOCK) X(NBITS_MAX_BYTES_BLOCK)                             \
    X(CONV_DEPTHWISE_MAPS)                                                                              \
    X(CONV_KEPT)                                                                                        \
    X(ATTENTION_MAX_DIM)                                                                                \
    X(PAD_CONSTANT) X(PAD_REFLECT) X(PAD_EDGE) X(PAD_WRAP)                                              \
    X(SCATTER_NONE) X(SCATTER_ADD) X(SCATTER_MUL) X(SCATTER_MAX) X(SCATTER_MIN)                         \
    X(SAMPLE_NEAREST) X(SAMPLE_LINEAR) X(SAMPLE_CUBIC)                                                  \
    X(OUTSIDE_ZEROS) X(OUTSIDE_BORDER) X(OUTSIDE_REFLECTION)                                            \
    X(RESIZE_HALF_PIXEL) X(RESIZE_HALF_PIXEL_SYMMETRIC) X(RESIZE_PYTORCH_HALF_PIXEL)                    \
    X(RESIZE_ALIGN_CORNERS) X(RESIZE_ASYMMETRIC) X(RESIZE_TF_HALF_PIXEL) X(RESIZE_TF_CROP)              \
    X(RESIZE_PREFER_FLOOR) X(RESIZE_PREFER_CEIL) X(RESIZE_FLOOR) X(RESIZE_CEIL)                         \
    X(CHAIN_OPERANDS) X(CHAIN_LINE)                                                                     \
    X(VECTOR_LOAD) X(VECTOR_STORE) X(VECTOR_BINARY) X(VECTOR_FORMS)                                     \
    X(VECTOR_ADD) X(VECTOR_SUB) X(VECTOR_MUL) X(VECTOR_DIV) X(VECTOR_MIN) X(VECTOR_MAX) X(VECTOR_PRELU) \
    X(VECTOR_ACC_ROW) X(VECTOR_ROW_ACC) X(VECTOR_ACC_ACC)                                               \
    X(VECTOR_DEQUANTIZE) X(VECTOR_QUANTIZE) X(VECTOR_REQUANTIZE)                                        \
    X(TREE_SUM) X(TREE_AVERAGE) X(TREE_MIN) X(TREE_MAX) X(TREE_EQUAL) X(TREE_NAN_FIRST)

#endif
