/* Direct convolution with pixels as columns.
 *
 * Uses the tile of gemm_micro.c: its rows are output channels, whose packed weights are broadcast, and its columns are
 * adjacent pixels of one output row. The input rows of a block of output rows are copied with zero padding and split by
 * column modulo the stride (spatial.h), so that every tap of adjacent pixels is contiguous. The tile steps from one
 * (channel, kernel position) to the next. Unlike conv_direct.c it wastes no lanes if output channels are few or do not
 * fill vectors, and it transposes nothing; rows should fill whole vectors.
 * Cost: 2 * rows * ceil(width / 16) * 16 * channels * K operations; the copy moves each input row about kernel height /
 * rows per block times.
 */
#include "conv.h"

#define COPY_FLOATS (HT_CONV_SCRATCH / 4)
#define BLOCK_FLOATS (COPY_FLOATS / 4) /* floats of a block's copy: 256 kB, within the L2 cache */
#define L2_BYTES (1 << 20)
#define DEPTH 512                      /* products summed before the next channels are copied; bounds taps */
#define STRIP_FLOATS 8192              /* floats of the copy that all output channels read in turn: 32 kB, L1 */

typedef struct {
    int64_t rows, height; /* output rows per block; rows per plane of the copy */
    int64_t channels;     /* copied and summed together */
    ht_split split;
} layout;

static int64_t rows_read(const ht_conv *c, int64_t rows)
{
    return (rows - 1) * c->stride[1] + (c->kernel[1] - 1) * c->dilation[1] + 1;
}

static int block_layout(const ht_conv *c, int64_t most_rows, layout *l)
{
    const int64_t outputs = ht_ceil_div(c->out[2], HT_PANEL) * HT_PANEL; /* loads are whole vectors */
    l->split = ht_split_for((outputs - 1) * c->stride[2] + (c->kernel[2] - 1) * c->dilation[2] + 1, c->stride[2]);
    /* The columns of a tile of the copied rows should stay in the L1 cache, like a block of k in a product.
     * Neighbors along x read the same lines, except that strides split a row into parts. */
    const int64_t parts = c->kernel[0] * c->kernel[1] * ht_min64(c->kernel[2], c->stride[2]);
    const int64_t depth = ht_min64(DEPTH / c->taps, HT_BLOCK_K / parts);
    const int64_t max_channels = ht_max64(1, ht_min64(c->in_channels, depth));
    l->channels = ht_ceil_div(c->in_channels, ht_ceil_div(c->in_channels, max_channels));
    const int64_t row = l->channels * c->kernel[0] * l->split.row;
    for (l->rows = most_rows; l->rows > 1 && rows_read(c, l->rows) * row > BLOCK_FLOATS;)
        l->rows = ht_ceil_div(l->rows, 2);
    l->height = rows_read(c, l->rows);
    return l->height * row <= COPY_FLOATS;
}

int ht_conv_rows_fits(const ht_conv *c)
{
    layout l;
    if (c->taps > DEPTH)
        return 0;
    for (int d = 0; d < 3; d++)
        if (c->dilation[d] > (1 << 20) || c->stride[d] > 16 || c->out[d] > (1 << 24))
            return 0;
    return block_layout(c, 1, &l);
}

double ht_conv_rows_moved(const ht_conv *c)
{
    layout l;
    block_layout(c, c->out[1], &l);
    const double copied = (double)(ht_ceil_div(c->out[1], l.rows) * l.height) *
                          (double)(c->out[0] * c->kernel[0] * l.split.row) * (double)c->in_channels;
    /* Sums are read and written again for each further block of channels. */
    const double sums = (double)c->out_channels * (double)c->pixels;
    const double block = (double)c->out_channels * (double)(l.rows * c->out[2]) * (double)sizeof(float);
    const double again = (double)(ht_ceil_div(c->in_channels, l.channels) - 1);
    return (c->stride[2] > 2 ? 16 : 3) * copied + (block > L2_BYTES ? 7 : 1) * again * sums;
}

int64_t ht_conv_rows_block(const ht_conv *c, int64_t most_rows)
{
    layout l;
    block_layout(c, most_rows, &l);
    return l.rows;
}

static void copy_rows(const ht_conv *c, const layout *l, int64_t channel, int64_t channels, int64_t z, int64_t y,
                      int64_t rows)
{
    const int64_t in_y = y * c->stride[1] - c->pad[1], height = rows_read(c, rows);
    float *dst = c->scratch;
    for (int64_t i = channel; i < channel + channels; i++)
        for (int64_t kz = 0; kz < c->kernel[0]; kz++, dst += l->height * l->split.row) {
            const int64_t iz = z * c->stride[0] - c->pad[0] + kz * c->dilation[0];
            const float *plane = c->x + i * c->in_plane + iz * c->in[1] * c->in[2];
            for (int64_t r = 0; r < height; r++) {
                const int64_t iy = in_y + r;
                const int inside = iz >= 0 && iz < c->in[0] && iy >= 0 && iy < c->in[1];
                ht_split_row(&l->split, inside ? plane + iy * c->in[2] : NULL, c->in[2], -c->pad[2], c->stride[2], 0.0f,
                             dst + r * l->split.row);
            }
        }
}

/* Steps from each kernel position of the copy to the next, and from the last to the first of the next channel. */
static void find_steps(const ht_conv *c, const layout *l, ht_step *steps)
{
    int64_t k = 0, last = 0;
    for (int64_t kz = 0; kz < c->kernel[0]; kz++)
        for (int64_t ky = 0; ky < c->kernel[1]; ky++)
            for (int64_t kx = 0; kx < c->kernel[2]; kx++, k++) {
                const int64_t at = (kz * l->height + ky * c->dilation[1]) * l->split.row +
                                   ht_split_at(&l->split, kx * c->dilation[2], c->stride[2]);
                if (k > 0)
                    steps[k - 1] = (ht_step){HT_PANEL, at - last};
                last = at;
            }
    steps[k - 1] = (ht_step){HT_PANEL, c->kernel[0] * l->height * l->split.row - last};
}

/* Computes channels [m, m + height) of columns [x0, x1) of an output row. */
static void multiply_tiles(const ht_conv *c, const ht_tile *row, const ht_epilogue *epilogue, int64_t m, int64_t height,
                           int64_t x0, int64_t x1, int64_t at)
{
    ht_tile t = *row;
    t.a += m / HT_PANEL * HT_PANEL * c->depth_k + m % HT_PANEL;
    t.epilogue = epilogue;
    t.row = m;
    for (int64_t x = x0; x < x1; x += t.columns) {
        t.b = t.next = row->b + x;
        t.column = at + x;
        t.c = c->y + m * c->pixels + t.column;
        t.columns = ht_next_columns(x1 - x, HT_TILE_PANELS * HT_PANEL);
        (c->taps > 1 ? ht_stepped_tile_fns : ht_tile_fns)[height - 1][(t.columns - 1) / HT_PANEL](&t);
    }
}

/* Computes one output row for all output channels, over the channels in the copy. A short sum leaves room in the L1
 * cache for more columns, so y is written in longer runs. */
static void multiply_row(const ht_conv *c, const ht_tile *row, const ht_epilogue *epilogue, int64_t at)
{
    const int64_t step = HT_TILE_PANELS * HT_PANEL, strip = ht_max64(1, STRIP_FLOATS / (row->k * step)) * step;
    for (int64_t x = 0, columns; x < c->out[2]; x += columns) {
        columns = ht_next_columns(c->out[2] - x, strip);
        for (int64_t panel = 0; panel < c->out_channels; panel += HT_PANEL) {
            const int64_t channels = ht_min64(HT_PANEL, c->out_channels - panel);
            const int64_t tiles = ht_ceil_div(channels, HT_TILE_ROWS);
            int64_t m = panel;
            for (int64_t tile = 0; tile < tiles; tile++) {
                const int64_t height = channels / tiles + (tile < channels % tiles);
                multiply_tiles(c, row, epilogue, m, height, x, x + columns, at);
                m += height;
            }
        }
    }
}

void ht_conv_rows(const ht_conv *c, int64_t block_rows, int64_t block)
{
    layout l;
    ht_step steps[DEPTH];
    block_layout(c, block_rows, &l);
    const int64_t down = ht_ceil_div(c->out[1], l.rows), z = block / down, y = block % down * l.rows;
    const int64_t rows = ht_min64(l.rows, c->out[1] - y), first = (z * c->out[1] + y) * c->out[2];
    find_steps(c, &l, steps);
    const int64_t num_steps = ht_repeat_steps(steps, c->taps);
    const ht_epilogue epilogue = {.bias = c->bias, .bias_row = 1, .addend = c->addend, .addend_row = c->pixels,
                                  .alpha = 1, .beta = 1, .low = c->low, .high = c->high};
    for (int64_t channel = 0; channel < c->in_channels; channel += l.channels) {
        const int64_t channels = ht_min64(l.channels, c->in_channels - channel);
        copy_rows(c, &l, channel, channels, z, y, rows);
        ht_tile t = {.a = c->w + channel * c->taps * HT_PANEL, .a_row = 1, .a_k = HT_PANEL, .steps = steps, .num_steps = num_steps,
                           .b_k = l.height * l.split.row, .b_panel = HT_PANEL, .c_row = c->pixels, .k = channels * c->taps,
                           .accumulate = channel > 0};
        const ht_epilogue *e = channel + channels == c->in_channels ? &epilogue : NULL;
        for (int64_t r = 0; r < rows; r++) {
            t.b = c->scratch + r * c->stride[1] * l.split.row;
            multiply_row(c, &t, e, first + r * c->out[2]);
        }
    }
    for (int64_t m = 0; m < c->out_channels && !ht_conv_is_final(c); m++)
        ht_conv_finish(c, m, m * c->pixels + first, rows * c->out[2]);
}
