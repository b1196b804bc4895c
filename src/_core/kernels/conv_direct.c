/* Direct convolution over packed weights.
 *
 * Uses the tile of gemm_micro.c: its columns are output channels, whose packed weights are the vectors, and its rows are
 * adjacent pixels of one output row, whose inputs are broadcast. Inputs are addressed by stepping from one (channel,
 * kernel position) to the next, so no im2col matrix is written (compare M. Dukhan, "The Indirect Convolution Algorithm",
 * 2019). If the kernel reaches outside the input, a few rows are first copied with zeros; a 1x1 kernel with strides copies
 * the pixels that it reads. The finished block, pixels x channels, is transposed when it is written.
 * Cost: 2 * pixels * K * ceil(M / 16) * 16 operations; padding copies each input row about kernel height / rows per
 * block times; the transposition moves each output once.
 */
#include "conv.h"

#define WIDTH HT_CONV_DIRECT_CHANNELS          /* output channels at a time */
#define BLOCK_PIXELS 384                       /* pixels per block: their sums take 48 kB, within the L2 cache */
#define SUMS ((BLOCK_PIXELS + VF_LANES) * WIDTH) /* the transposition reads whole vectors */
#define COPY_FLOATS (HT_CONV_SCRATCH / 4 - SUMS)
#define MAX_TAPS 1024                          /* kernel positions: bounds an array of steps on the stack (4 kB) */

static int64_t span(const ht_conv *c, int d, int64_t outputs)
{
    return (outputs - 1) * c->stride[d] + (c->kernel[d] - 1) * c->dilation[d] + 1;
}

static int is_flat(const ht_conv *c) { return c->taps == 1 && !c->padded && c->in_plane == c->pixels; }

int ht_conv_direct_copies(const ht_conv *c) { return !is_flat(c) && (c->taps == 1 || c->padded); }

/* Elements per channel that are copied for a block; with a 1x1 kernel only the pixels that it reads. */
static int64_t copied(const ht_conv *c, int64_t rows, int64_t columns)
{
    return c->taps == 1 ? rows * columns : c->kernel[0] * span(c, 1, rows) * span(c, 2, columns);
}

/* Chooses output rows and columns per block, so that the copy of the block's inputs fits the scratch memory. */
static int block_shape(const ht_conv *c, int64_t *rows, int64_t *columns)
{
    if (is_flat(c)) {
        *rows = 1;
        *columns = BLOCK_PIXELS;
        return 1;
    }
    const int64_t x_blocks = ht_ceil_div(c->out[2], BLOCK_PIXELS);
    *columns = ht_ceil_div(c->out[2], x_blocks);
    *rows = ht_min64(c->out[1], BLOCK_PIXELS / *columns);
    *rows = ht_ceil_div(c->out[1], ht_ceil_div(c->out[1], *rows));
    if (*columns < c->out[2])
        *rows = 1;
    if (c->taps > 1 && !c->padded)
        return 1;
    while (c->in_channels * copied(c, *rows, *columns) > COPY_FLOATS) {
        if (*rows > 1) {
            *rows = ht_ceil_div(*rows, 2);
        } else if (*columns > 24) {
            *columns = ht_ceil_div(*columns, 2);
        } else {
            return 0;
        }
    }
    return 1;
}

int ht_conv_direct_fits(const ht_conv *c)
{
    int64_t rows, columns;
    if (c->taps > MAX_TAPS || ht_max64(1, HT_BLOCK_K / c->taps) * c->in_plane > INT32_MAX / 2)
        return 0;
    for (int d = 0; d < 3; d++)
        if (c->dilation[d] > (1 << 20) || c->kernel[d] > MAX_TAPS || c->stride[d] > (1 << 20))
            return 0;
    if (c->taps > 1 && c->out[2] < 4 && c->pixels > c->out[2])
        return 0; /* tiles never span two output rows: short rows leave them nearly empty */
    return block_shape(c, &rows, &columns);
}

/* y[channel][pixel] = epilogue(sums[pixel][channel]) for `count` pixels from `pixel` and `channels` from `channel`. */
static void store_transposed(const ht_conv *c, const float *sums, int64_t pixel, int64_t count, int64_t channel,
                             int64_t channels)
{
    const vf low = vf_set1(c->low), high = vf_set1(c->high);
    for (int64_t m = 0; m < channels; m += VF_LANES) {
        const int64_t lanes = ht_min64(VF_LANES, channels - m);
        for (int64_t p = 0; p < count; p += VF_LANES) {
            const int64_t left = ht_min64(VF_LANES, count - p);
            vf block[VF_LANES];
            for (int i = 0; i < VF_LANES; i++)
                block[i] = vf_load(sums + (p + i) * WIDTH + m);
            vf_transpose(block);
            for (int i = 0; i < lanes; i++) {
                const int64_t at = (channel + m + i) * c->pixels + pixel + p;
                vf v = block[i];
                if (c->bias)
                    v += vf_set1(c->bias[channel + m + i]);
                if (c->addend)
                    v += left == VF_LANES ? vf_load(c->addend + at) : vf_load_n(c->addend + at, left);
                v = vf_min(high, vf_max(low, v));
                if (left == VF_LANES)
                    vf_store(c->y + at, v);
                else
                    vf_store_n(c->y + at, left, v);
            }
        }
    }
    if (!ht_unary_is_clip(c->activation))
        for (int64_t m = channel; m < channel + channels; m++) {
            float *y = c->y + m * c->pixels + pixel;
            ht_unary_f32(c->activation, c->p0, c->p1, y, y, count);
        }
}

/* The inputs of a block: the position of its first pixel's first tap, and the strides of the array that holds it. */
typedef struct {
    const float *origin;
    int64_t channel, depth, row;
} source;

static source copy_padded(const ht_conv *c, int64_t z, int64_t y, int64_t x, int64_t rows, int64_t columns, float *dst)
{
    const int64_t height = span(c, 1, rows), width = span(c, 2, columns);
    const source s = {dst, c->kernel[0] * height * width, height * width, width};
    const int64_t in_y = y * c->stride[1] - c->pad[1], in_x = x * c->stride[2] - c->pad[2];
    for (int64_t channel = 0; channel < c->in_channels; channel++)
        for (int64_t kz = 0; kz < c->kernel[0]; kz++) {
            const int64_t iz = z * c->stride[0] - c->pad[0] + kz * c->dilation[0];
            for (int64_t r = 0; r < height; r++, dst += width) {
                const int64_t iy = in_y + r;
                const int inside = iz >= 0 && iz < c->in[0] && iy >= 0 && iy < c->in[1];
                ht_sample_row(inside ? c->x + ((channel * c->in[0] + iz) * c->in[1] + iy) * c->in[2] : NULL, c->in[2],
                              in_x, 1, width, dst);
            }
        }
    return s;
}

/* Copies the inputs of a 1x1 kernel with strides or padding, pixel by pixel: [channel][rows * columns]. */
static source copy_pixels(const ht_conv *c, int64_t z, int64_t y, int64_t x, int64_t rows, int64_t columns, float *dst)
{
    const source s = {dst, rows * columns, 0, 0};
    const int64_t iz = z * c->stride[0] - c->pad[0], in_x = x * c->stride[2] - c->pad[2];
    for (int64_t channel = 0; channel < c->in_channels; channel++)
        for (int64_t r = 0; r < rows; r++, dst += columns) {
            const int64_t iy = (y + r) * c->stride[1] - c->pad[1];
            const int inside = iz >= 0 && iz < c->in[0] && iy >= 0 && iy < c->in[1];
            ht_sample_row(inside ? c->x + ((channel * c->in[0] + iz) * c->in[1] + iy) * c->in[2] : NULL, c->in[2],
                          in_x, c->stride[2], columns, dst);
        }
    return s;
}

/* One block: rows x columns pixels of output plane z, from (y, x), of output channels [m0, m1). */
static void direct_block(const ht_conv *c, int64_t z, int64_t y, int64_t x, int64_t rows, int64_t columns, int64_t m0,
                         int64_t m1)
{
    float *sums = c->scratch;
    int32_t steps[MAX_TAPS];
    source s = {c->x, c->in_plane, c->dilation[0] * c->in[1] * c->in[2], c->in[2]};
    int64_t a_row = c->stride[2];
    if (is_flat(c)) {
        s.origin += x;
        a_row = 1; /* with only one pixel along this axis, its stride may be above 1 */
    } else if (c->taps == 1) {
        s = copy_pixels(c, z, y, x, rows, columns, sums + SUMS);
        a_row = 1;
        columns *= rows;
        rows = 1;
    } else if (c->padded)
        s = copy_padded(c, z, y, x, rows, columns, sums + SUMS);
    else
        s.origin += ((z * c->stride[0] * c->in[1]) + y * c->stride[1]) * c->in[2] + x * c->stride[2];

    const int64_t block_channels = ht_max64(1, HT_BLOCK_K / c->taps);
    const int64_t blocks = ht_ceil_div(c->in_channels, block_channels);
    const int64_t step = ht_ceil_div(c->in_channels, blocks);
    if (c->taps > 1) {
        int64_t k = 0, last = 0;
        for (int64_t channel = 0; channel < step; channel++)
            for (int64_t kz = 0; kz < c->kernel[0]; kz++)
                for (int64_t ky = 0; ky < c->kernel[1]; ky++)
                    for (int64_t kx = 0; kx < c->kernel[2]; kx++, k++) {
                        const int64_t at = channel * s.channel + kz * s.depth + ky * c->dilation[1] * s.row +
                                           kx * c->dilation[2];
                        if (k > 0)
                            steps[k - 1] = (int32_t)(at - last);
                        last = at;
                    }
        steps[k - 1] = 0;
    }
    const int64_t tiles = ht_ceil_div(columns, HT_TILE_ROWS);
    const int64_t pixel = (z * c->out[1] + y) * c->out[2] + x;
    for (int64_t m = m0; m < m1; m += WIDTH) {
        const int64_t channels = ht_min64(WIDTH, m1 - m);
        const int panels = (int)ht_ceil_div(channels, HT_PANEL);
        for (int64_t block = 0; block < blocks; block++) {
            const int64_t c0 = block * step, depth = ht_min64(step, c->in_channels - c0);
            ht_tile t = {.a_row = a_row, .a_k = s.channel, .steps = steps,
                         .b = c->w + m * c->depth_k + c0 * c->taps * HT_PANEL, .b_k = HT_PANEL,
                         .b_panel = c->depth_k * HT_PANEL, .c_row = WIDTH, .k = depth * c->taps, .columns = WIDTH,
                         .accumulate = block > 0};
            /* The first tiles prefetch the next block of weights, or the first block of the next channels. */
            const float *next = block + 1 < blocks ? t.b + depth * c->taps * HT_PANEL : c->w + (m + WIDTH) * c->depth_k;
            int fetched = block + 1 < blocks || m + WIDTH < m1 ? 0 : panels;
            for (int64_t r = 0; r < rows; r++) {
                int64_t column = 0;
                for (int64_t tile = 0; tile < tiles; tile++) {
                    t.next = fetched < panels ? next + fetched * t.b_panel : t.b;
                    t.next_step = fetched < panels ? HT_PANEL : 0;
                    fetched++;
                    const int64_t height = columns / tiles + (tile < columns % tiles);
                    t.a = s.origin + c0 * s.channel + r * c->stride[1] * s.row + column * a_row;
                    t.c = sums + (r * columns + column) * WIDTH;
                    (c->taps > 1 ? ht_indirect_tile_fns : ht_tile_fns)[height - 1][panels - 1](&t);
                    column += height;
                }
            }
        }
        store_transposed(c, sums, pixel, rows * columns, m, channels);
    }
}

int64_t ht_conv_direct_blocks(const ht_conv *c)
{
    int64_t rows, columns;
    block_shape(c, &rows, &columns);
    if (is_flat(c))
        return ht_ceil_div(c->pixels, columns);
    return c->out[0] * ht_ceil_div(c->out[1], rows) * ht_ceil_div(c->out[2], columns);
}

void ht_conv_direct(const ht_conv *c, int64_t block, int64_t m0, int64_t m1)
{
    int64_t rows, columns;
    block_shape(c, &rows, &columns);
    if (is_flat(c)) {
        const int64_t x = block * columns;
        direct_block(c, 0, 0, x, 1, ht_min64(columns, c->pixels - x), m0, m1);
        return;
    }
    const int64_t across = ht_ceil_div(c->out[2], columns), down = ht_ceil_div(c->out[1], rows);
    const int64_t x = block % across * columns, y = block / across % down * rows, z = block / across / down;
    direct_block(c, z, y, x, ht_min64(rows, c->out[1] - y), ht_min64(columns, c->out[2] - x), m0, m1);
}
