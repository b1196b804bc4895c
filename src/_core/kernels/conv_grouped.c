/* Direct convolution of few channels, as in groups of 16 or 32.
 *
 * As in conv_direct.c, a tile has output channels in its columns, whose packed weights are the vectors, and adjacent pixels
 * of an output row in its rows, whose inputs are broadcast. Few channels need no blocks of channels and no table of steps:
 * the tile itself loops over channels and kernel positions, and it has more rows. Some rows of the input are copied with
 * zeros for the padding. Kernel rows outside the input are skipped if all weights are known to be finite.
 * Cost: 2 * pixels * K * ceil(M / 16) * 16 operations, less those skipped; the copy moves each input row about kernel
 * height / rows per block times; the transposition moves each output once.
 */
#include "conv.h"

#define MAX_CHANNELS 64  /* of the output: wider products gain from the blocks of conv_direct.c */
#define MAX_DEPTH 640    /* products of a sum: their weights, 40 kB for a panel, are read again for each tile */
#define BLOCK_PIXELS 384 /* per block, if rows are shorter: their sums take at most 96 kB */
#define BLOCK_FLOATS (48 * 1024) /* of the copy of a block, if it has several rows: 192 kB, within the L2 cache */
#define SUM_FLOATS (HT_CONV_SCRATCH / 8)
#define COPY_FLOATS (HT_CONV_SCRATCH / 8)
#define VECTORS (HT_PANEL / VF_LANES)
#define MASKED_VECTORS 16 /* of a row up to which its masks are made once */

/* Accumulators fill the register file: 28 of 32, 12 of 16. */
#if defined(__AVX512F__)
#define ROWS 14
#define PANELS 2
#elif defined(__AVX2__) || defined(__aarch64__)
#define ROWS 6
#define PANELS 1
#else
#define ROWS 3
#define PANELS 1
#endif

typedef struct {
    const float *a;          /* the first pixel's input of the first channel and kernel position */
    int64_t a_channel, a_row; /* from one channel, one pixel to the next */
    const int32_t *offsets;  /* of the inputs of `taps` kernel positions */
    int64_t channels, taps;
    const float *w;          /* the same of the weights */
    int64_t w_channel, w_panel;
    float *sums;
    int64_t sums_row;
} tile;

/* Rows i = 0, 1, 2 are addressed from one pointer, and so on: see gemm_micro.c. */
#define A_AT(i) ((i) < 3 ? a0 : (i) < 6 ? a3 : (i) < 9 ? a6 : (i) < 12 ? a9 : a12)[((i) % 3) * a_row]

HT_INLINE void tile_body(const tile *t, const int rows, const int panels)
{
    vf acc[ROWS][PANELS * VECTORS];
    const int vectors = panels * VECTORS;
    const int64_t a_row = t->a_row, w_panel = t->w_panel, taps = t->taps;
    const int32_t *offsets = t->offsets;
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            acc[i][j] = vf_set1(0.0f);
    for (int64_t channel = 0; channel < t->channels; channel++) {
        const float *w = t->w + channel * t->w_channel, *first = t->a + channel * t->a_channel;
        for (int64_t tap = 0; tap < taps; tap++, w += HT_PANEL) {
            const float *a0 = first + offsets[tap], *a3 = a0 + a_row * 3, *a6 = a3 + a_row * 3, *a9 = a6 + a_row * 3;
            const float *a12 = a9 + a_row * 3;
            vf b[PANELS * VECTORS];
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++)
                b[j] = vf_load(w + (j / VECTORS) * w_panel + (j % VECTORS) * VF_LANES);
#pragma GCC unroll 14
            for (int i = 0; i < rows; i++) {
                const vf a = vf_set1(A_AT(i));
#pragma GCC unroll 4
                for (int j = 0; j < vectors; j++)
                    acc[i][j] = vf_fma(a, b[j], acc[i][j]);
            }
        }
    }
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            vf_store(t->sums + i * t->sums_row + j * VF_LANES, acc[i][j]);
}

#define TILE(rows) \
    static void tile_##rows##x1(const tile *t) { tile_body(t, rows, 1); }                                              \
    static void tile_##rows##x##2(const tile *t) { tile_body(t, rows, PANELS); }
#define ENTRY(rows) {tile_##rows##x1, tile_##rows##x2},

#if ROWS == 14
#define EACH_HEIGHT(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#elif ROWS == 6
#define EACH_HEIGHT(X) X(1) X(2) X(3) X(4) X(5) X(6)
#else
#define EACH_HEIGHT(X) X(1) X(2) X(3)
#endif
EACH_HEIGHT(TILE)
static void (*const tile_fns[ROWS][2])(const tile *) = {EACH_HEIGHT(ENTRY)}; /* [rows - 1][panels - 1] */

/* Kernels of three columns, strides 1 and 2, up to 16 output channels: an input that several pixels use is broadcast once, and a
 * panel of up to 8 channels is one vector. The products of a sum and their order are the same. */
#if VF_LANES == 8
#define HAS_THREES 1
#define ONE_VECTOR 8 /* pixels of a tile of one vector: 8 sums, 3 weights */
#define TWO_VECTORS 4 /* of two: 8 sums, 6 weights */

HT_INLINE void three_body(const tile *t, const int pixels, const int vectors, const int stride)
{
    vf acc[ONE_VECTOR][2];
#pragma GCC unroll 8
    for (int i = 0; i < pixels; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            acc[i][j] = vf_set1(0.0f);
    const int32_t *const end = t->offsets + t->taps;
    for (int64_t channel = 0; channel < t->channels; channel++) {
        const float *w = t->w + channel * t->w_channel, *first = t->a + channel * t->a_channel;
        for (const int32_t *offset = t->offsets; offset < end; offset += 3, w += 3 * HT_PANEL) {
            const float *a = first + *offset;
            vf b[3][2];
#pragma GCC unroll 3
            for (int k = 0; k < 3; k++)
#pragma GCC unroll 2
                for (int j = 0; j < vectors; j++)
                    b[k][j] = vf_load(w + k * HT_PANEL + j * VF_LANES);
#pragma GCC unroll 17
            for (int column = 0; column < (pixels - 1) * stride + 3; column++) {
                const vf x = vf_set1(a[column]);
#pragma GCC unroll 3
                for (int k = 0; k < 3; k++) {
                    const int i = (column - k) / stride;
                    if (column < k || (column - k) % stride != 0 || i >= pixels)
                        continue;
#pragma GCC unroll 2
                    for (int j = 0; j < vectors; j++)
                        acc[i][j] = vf_fma(x, b[k][j], acc[i][j]);
                }
            }
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < pixels; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            vf_store(t->sums + i * t->sums_row + j * VF_LANES, acc[i][j]);
}

#define THREE(pixels, vectors)                                                                                         \
    static void three_##pixels##_##vectors##_1(const tile *t) { three_body(t, pixels, vectors, 1); }                   \
    static void three_##pixels##_##vectors##_2(const tile *t) { three_body(t, pixels, vectors, 2); }
#define THREES(pixels) {three_##pixels##_1_1, three_##pixels##_1_2},
#define THREES_OF_TWO(pixels) {three_##pixels##_2_1, three_##pixels##_2_2},
THREE(1, 1) THREE(2, 1) THREE(3, 1) THREE(4, 1) THREE(5, 1) THREE(6, 1) THREE(7, 1) THREE(8, 1)
THREE(1, 2) THREE(2, 2) THREE(3, 2) THREE(4, 2)
/* [vectors - 1][pixels - 1][stride - 1] */
static void (*const threes[2][ONE_VECTOR][2])(const tile *) = {
    {THREES(1) THREES(2) THREES(3) THREES(4) THREES(5) THREES(6) THREES(7) THREES(8)},
    {THREES_OF_TWO(1) THREES_OF_TWO(2) THREES_OF_TWO(3) THREES_OF_TWO(4)}};
#else
#define HAS_THREES 0
#endif

static int is_three(const ht_conv *c)
{
    return HAS_THREES && c->kernel[2] == 3 && c->dilation[2] == 1 && c->stride[2] <= 2;
}

int64_t ht_conv_grouped_columns(const ht_conv *c)
{
    const int64_t grain = is_three(c) ? VF_LANES : HT_PANEL;
    return ht_ceil_div(c->out_channels, grain) * grain;
}

/* The pixels of a row, of `panels` panels from output channel m on. t: the first pixel. */
static void compute_row(const ht_conv *c, tile t, int64_t m, int64_t panels)
{
#if HAS_THREES
    if (is_three(c)) {
        const int64_t vectors = c->out_channels - m <= VF_LANES ? 1 : 2;
        const int64_t tiles = ht_ceil_div(c->out[2], vectors == 1 ? ONE_VECTOR : TWO_VECTORS);
        for (int64_t i = 0; i < tiles; i++) {
            const int64_t pixels = c->out[2] / tiles + (i < c->out[2] % tiles);
            threes[vectors - 1][pixels - 1][c->stride[2] - 1](&t);
            t.a += pixels * t.a_row;
            t.sums += pixels * t.sums_row;
        }
        return;
    }
#else
    (void)m;
#endif
    const int64_t tiles = ht_ceil_div(c->out[2], ROWS);
    for (int64_t i = 0; i < tiles; i++) {
        const int64_t pixels = c->out[2] / tiles + (i < c->out[2] % tiles);
        tile_fns[pixels - 1][panels - 1](&t);
        t.a += pixels * t.a_row;
        t.sums += pixels * t.sums_row;
    }
}

static int64_t span(const ht_conv *c, int d, int64_t outputs)
{
    return (outputs - 1) * c->stride[d] + (c->kernel[d] - 1) * c->dilation[d] + 1;
}

/* Floats of a copied row: whole vectors. */
static int64_t copied_row(const ht_conv *c) { return ht_ceil_div(span(c, 2, c->out[2]), VF_LANES) * VF_LANES; }

static int64_t copied(const ht_conv *c, int64_t rows) { return c->in_channels * span(c, 1, rows) * copied_row(c); }

static int64_t columns_of(const ht_conv *c) { return ht_ceil_div(c->out_channels, HT_PANEL) * HT_PANEL; }

int ht_conv_grouped_fits(const ht_conv *c)
{
    if (c->in[0] != 1 || c->out[0] != 1 || c->kernel[0] != 1 || c->pad[0] != 0 || c->taps == 1 ||
        c->depth_k > MAX_DEPTH || c->out_channels > MAX_CHANNELS)
        return 0;
    for (int d = 1; d < 3; d++)
        if (c->dilation[d] > COPY_FLOATS || c->stride[d] > COPY_FLOATS || c->out[d] > COPY_FLOATS)
            return 0; /* then products of two of them, and of 64 channels, do not overflow */
    return span(c, 1, 1) <= COPY_FLOATS && span(c, 2, c->out[2]) <= COPY_FLOATS && copied(c, 1) <= COPY_FLOATS &&
           (c->out[2] + VF_LANES) * columns_of(c) <= SUM_FLOATS;
}

int64_t ht_conv_grouped_rows(const ht_conv *c, int64_t most_rows)
{
    int64_t rows = ht_max64(1, ht_min64(most_rows, BLOCK_PIXELS / c->out[2]));
    while (rows > 1 && copied(c, rows) > BLOCK_FLOATS)
        rows = ht_ceil_div(rows, 2);
    return ht_ceil_div(c->out[1], ht_ceil_div(c->out[1], rows));
}

double ht_conv_grouped_moved(const ht_conv *c)
{
    const int64_t rows = ht_conv_grouped_rows(c, c->out[1]);
    return 3 * (double)ht_ceil_div(c->out[1], rows) * (double)copied(c, rows);
}

/* The inputs of output rows [y, y + rows): [channel][row][column]. A row that begins and ends inside x with its padding is
 * read whole, and masked. */
static void copy_inputs(const ht_conv *c, int64_t y, int64_t rows, float *dst)
{
    const int64_t height = span(c, 1, rows), width = copied_row(c), top = y * c->stride[1] - c->pad[1];
    const int maskable = width <= MASKED_VECTORS * VF_LANES;
    float masks[MASKED_VECTORS * VF_LANES]; /* all bits or none */
    for (int64_t i = 0; i < width && maskable; i++)
        memset(masks + i, i >= c->pad[2] && i - c->pad[2] < c->in[2] ? 255 : 0, sizeof *masks);
    const vf zero = vf_set1(0.0f);
    for (int64_t channel = 0; channel < c->in_channels; channel++)
        for (int64_t r = top; r < top + height; r++, dst += width) {
            const int inside = r >= 0 && r < c->in[1];
            const int64_t row = channel * c->in_plane + r * c->in[2], at = row - c->pad[2];
            if (HT_LIKELY(maskable && inside && at >= 0 && at + width <= c->in_channels * c->in_plane)) {
                for (int64_t i = 0; i < width; i += VF_LANES) {
                    __builtin_prefetch(c->x + row + c->in_plane + i); /* of the next channel */
                    vf_store(dst + i, vi_as_float(vi_and(vf_bits(vf_load(c->x + at + i)), vf_bits(vf_load(masks + i)))));
                }
                continue;
            }
            for (int64_t i = 0; i < width; i += VF_LANES) {
                __builtin_prefetch(c->x + row + c->in_plane + i);
                vf_store(dst + i, inside ? ht_load_inside(c->x + row, c->in[2], i - c->pad[2], zero) : zero);
            }
        }
}

void ht_conv_grouped(const ht_conv *c, int64_t block_rows, int64_t block)
{
    const int64_t y = block * block_rows, rows = ht_min64(block_rows, c->out[1] - y);
    const int64_t height = span(c, 1, rows), width = copied_row(c), columns = columns_of(c);
    float *sums = c->scratch, *copy = sums + SUM_FLOATS;
    copy_inputs(c, y, rows, copy);
    int32_t offsets[MAX_DEPTH]; /* within a channel of the copy, which fits the scratch memory */
    for (int64_t tap = 0; tap < c->taps; tap++)
        offsets[tap] = (int32_t)(tap / c->kernel[2] * c->dilation[1] * width + tap % c->kernel[2] * c->dilation[2]);
    tile t = {.a_channel = height * width, .a_row = c->stride[2], .channels = c->in_channels,
              .w_channel = c->taps * HT_PANEL, .w_panel = c->depth_k * HT_PANEL, .sums_row = columns};
    for (int64_t m = 0; m < columns; m += PANELS * HT_PANEL) {
        const int64_t panels = ht_min64(PANELS, (columns - m) / HT_PANEL);
        for (int64_t r = 0; r < rows; r++) {
            int64_t first = 0, last = c->kernel[1]; /* kernel rows */
            if (c->finite)
                ht_valid_range((y + r) * c->stride[1] - c->pad[1], c->dilation[1], c->in[1], c->kernel[1], &first, &last);
            t.taps = (last - first) * c->kernel[2];
            t.offsets = offsets + first * c->kernel[2];
            t.w = c->w + m * c->depth_k + first * c->kernel[2] * HT_PANEL;
            t.a = copy + r * c->stride[1] * width;
            t.sums = sums + r * c->out[2] * columns + m;
            compute_row(c, t, m, panels);
        }
    }
    const ht_run run = {0, y * c->out[2], rows * c->out[2]};
    ht_conv_store_sums(c, &run, 1, sums, columns, 0, c->out_channels, copy);
}
