/* Direct convolution over packed weights.
 *
 * Uses the tile of gemm_micro.c: its columns are output channels, whose packed weights are the vectors, and its rows are
 * adjacent pixels of a line of the output, whose inputs are broadcast. Inputs are addressed by stepping from one kernel
 * position to the next, so no im2col matrix is written (compare M. Dukhan, "The Indirect Convolution Algorithm", 2019).
 *
 * Lines run along an axis, usually x. If the kernel reaches outside the input along that axis, a few rows are first
 * copied with zeros; a 1x1 kernel with strides copies the pixels that it reads. Along the other axes, kernel positions
 * that lie in the padding for a whole line are skipped. This only changes the result if one of their weights is infinite
 * or NaN, since its product with the padding is NaN; blocks of weights that contain one skip nothing. So a kernel that
 * reaches outside along one axis only, such as 7x1, copies nothing if lines run along the other.
 *
 * The finished block, pixels x channels, is transposed when it is written.
 * Cost: 2 * pixels * K * ceil(M / 16) * 16 operations, less those skipped; copying moves each input row about kernel
 * height / rows per block times; the transposition moves each output once.
 */
#include "conv.h"

#define WIDTH HT_CONV_DIRECT_CHANNELS          /* output channels at a time */
#define BLOCK_PIXELS 384                       /* pixels per block: their sums take 48 kB, within the L2 cache */
#define SUMS ((BLOCK_PIXELS + VF_LANES) * WIDTH) /* the transposition reads whole vectors */
#define COPY_FLOATS (HT_CONV_SCRATCH / 4 - SUMS - VF_LANES) /* a copied row is written in whole vectors */
#define MAX_TAPS 1024                          /* kernel positions: bounds an array of steps on the stack (16 kB) */

static int64_t span(const ht_conv *c, int d, int64_t outputs)
{
    return (outputs - 1) * c->stride[d] + (c->kernel[d] - 1) * c->dilation[d] + 1;
}

/* Does the kernel reach outside the input along this axis? */
static int reaches_outside(const ht_conv *c, int d)
{
    return c->pad[d] > 0 || span(c, d, c->out[d]) - c->pad[d] > c->in[d];
}

static int block_shape(const ht_conv *c, int64_t *rows, int64_t *columns);

/* The axis along which the lines of a block run: usually 2 (x); 1 (y) if that makes the copy unnecessary and fills the
 * tiles, or if rows are too short for them. */
static int along(const ht_conv *c)
{
    int64_t rows, columns;
    if (c->taps == 1 || !block_shape(c, &rows, &columns))
        return 2;
    const int saves_copy = reaches_outside(c, 2) && !reaches_outside(c, 1) && rows >= HT_TILE_ROWS;
    return saves_copy || (columns < 4 && rows > columns) ? 1 : 2;
}

int ht_conv_direct_copies(const ht_conv *c)
{
    return !ht_conv_flat(c) && (c->taps == 1 || reaches_outside(c, along(c)));
}

/* Positions [first[d], last[d]) of the kernel along axis d lie inside the input for outputs at `at` along this axis. */
typedef struct {
    int64_t first[3], last[3];
} reach;

static void find_reach(const ht_conv *c, int d, int64_t at, reach *r)
{
    ht_valid_range(at * c->stride[d] - c->pad[d], c->dilation[d], c->in[d], c->kernel[d], &r->first[d], &r->last[d]);
}

double ht_conv_direct_kept(const ht_conv *c)
{
    double kept = 1;
    if (!c->padded || c->taps == 1)
        return kept;
    for (int d = 0, line = along(c); d < 3; d++) {
        int64_t inside = 0;
        reach r;
        if (d == line || !reaches_outside(c, d))
            continue;
        for (int64_t at = 0; at < c->out[d]; at++) {
            find_reach(c, d, at, &r);
            inside += r.last[d] - r.first[d];
        }
        kept *= (double)inside / (double)(c->out[d] * c->kernel[d]);
    }
    return kept;
}

/* Elements per channel that are copied for a block; with a 1x1 kernel only the pixels that it reads. */
static int64_t copied(const ht_conv *c, int64_t rows, int64_t columns)
{
    return c->taps == 1 ? rows * columns : c->kernel[0] * span(c, 1, rows) * span(c, 2, columns);
}

/* Chooses output rows and columns per block, so that the copy of the block's inputs fits the scratch memory. */
static int block_shape(const ht_conv *c, int64_t *rows, int64_t *columns)
{
    if (ht_conv_flat(c)) {
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
    if (c->taps > MAX_TAPS)
        return 0;
    for (int d = 0; d < 3; d++)
        if (c->dilation[d] > (1 << 20) || c->kernel[d] > MAX_TAPS || c->stride[d] > (1 << 20))
            return 0;
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
    for (int64_t m = channel; m < channel + channels && !ht_conv_is_final(c); m++)
        ht_conv_finish(c, m, m * c->pixels + pixel, count);
}

/* The inputs of a block: an array with strides, and the position in it of the first pixel's first kernel position, which
 * may lie outside it if that position is skipped. */
typedef struct {
    const float *origin;
    int64_t first, channel, depth, row;
    int64_t stride[3]; /* from one output to the next */
} source;

/* dst[i] = row[at + i] for i in [low, high), 0 for the others of `width`. Up to VF_LANES - 1 more are overwritten. */
HT_INLINE void copy_row(const float *row, int64_t at, int64_t low, int64_t high, int64_t width, float *dst)
{
    int64_t i = 0;
    for (; i < low; i++)
        dst[i] = 0.0f;
    for (; i + VF_LANES <= high; i += VF_LANES)
        vf_store(dst + i, vf_load(row + at + i));
    if (i < high) {
        vf_store(dst + i, vf_load_n(row + at + i, high - i));
        i += VF_LANES;
    }
    for (; i < width; i += VF_LANES)
        vf_store(dst + i, vf_set1(0.0f));
}

static source copy_padded(const ht_conv *c, int64_t z, int64_t y, int64_t x, int64_t rows, int64_t columns, float *dst)
{
    const int64_t height = span(c, 1, rows), width = span(c, 2, columns);
    const source s = {dst, 0, c->kernel[0] * height * width, height * width, width, {0, c->stride[1] * width, c->stride[2]}};
    const int64_t in_y = y * c->stride[1] - c->pad[1], in_x = x * c->stride[2] - c->pad[2];
    int64_t low, high; /* columns inside the input */
    ht_valid_range(in_x, 1, c->in[2], width, &low, &high);
    for (int64_t channel = 0; channel < c->in_channels; channel++)
        for (int64_t kz = 0; kz < c->kernel[0]; kz++) {
            const int64_t iz = z * c->stride[0] - c->pad[0] + kz * c->dilation[0];
            for (int64_t r = 0; r < height; r++, dst += width) {
                const int64_t iy = in_y + r;
                const int inside = iz >= 0 && iz < c->in[0] && iy >= 0 && iy < c->in[1];
                const int64_t row = inside ? ((channel * c->in[0] + iz) * c->in[1] + iy) * c->in[2] : 0;
                copy_row(c->x + row, in_x, low, inside ? high : low, width, dst);
            }
        }
    return s;
}

/* Copies the inputs of a 1x1 kernel with strides or padding, pixel by pixel: [channel][rows * columns]. */
static source copy_pixels(const ht_conv *c, int64_t z, int64_t y, int64_t x, int64_t rows, int64_t columns, float *dst)
{
    const source s = {.origin = dst, .channel = rows * columns, .stride = {0, 0, 1}};
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

/* The inputs where they are. */
static source in_place(const ht_conv *c, int64_t z, int64_t y, int64_t x)
{
    const int64_t row = c->in[2], depth = c->in[1] * row;
    const int64_t first = (z * c->stride[0] - c->pad[0]) * depth + (y * c->stride[1] - c->pad[1]) * row +
                          x * c->stride[2] - c->pad[2];
    return (source){c->x, first, c->in_plane, c->dilation[0] * depth, row, {0, c->stride[1] * row, c->stride[2]}};
}

/* The steps through the kernel positions of a channel within `r`, for `s`; the last leads to the first of the next
 * channel. Returns how many. The offsets of the first are *a from the kernel's first position and *b in the weights. */
static int64_t find_steps(const ht_conv *c, const source *s, const reach *r, ht_step *steps, int64_t *a, int64_t *b)
{
    int64_t k = 0, last_a = 0, last_b = 0;
    for (int64_t kz = r->first[0]; kz < r->last[0]; kz++)
        for (int64_t ky = r->first[1]; ky < r->last[1]; ky++)
            for (int64_t kx = r->first[2]; kx < r->last[2]; kx++, k++) {
                const int64_t at_a = kz * s->depth + ky * c->dilation[1] * s->row + kx * c->dilation[2];
                const int64_t at_b = ((kz * c->kernel[1] + ky) * c->kernel[2] + kx) * HT_PANEL;
                if (k > 0) {
                    steps[k - 1] = (ht_step){at_a - last_a, at_b - last_b};
                } else {
                    *a = at_a;
                    *b = at_b;
                }
                last_a = at_a;
                last_b = at_b;
            }
    if (k > 0)
        steps[k - 1] = (ht_step){s->channel + *a - last_a, c->taps * HT_PANEL + *b - last_b};
    return k;
}

/* The offsets in the packed weights of the kernel positions that are not in `always`. Returns how many. */
static int64_t find_skipped(const ht_conv *c, const reach *always, int32_t *offsets)
{
    int64_t num = 0, at = 0;
    for (int64_t kz = 0; kz < c->kernel[0]; kz++)
        for (int64_t ky = 0; ky < c->kernel[1]; ky++)
            for (int64_t kx = 0; kx < c->kernel[2]; kx++, at += HT_PANEL)
                if (kz < always->first[0] || kz >= always->last[0] || ky < always->first[1] || ky >= always->last[1] ||
                    kx < always->first[2] || kx >= always->last[2])
                    offsets[num++] = (int32_t)at;
    return num;
}

/* Are the weights at these offsets finite, for `depth` channels in each of some panels? */
static int all_finite(const ht_conv *c, const float *w, int64_t panels, int64_t depth, const int32_t *offsets, int64_t num)
{
    vi bits = vi_set1(0); /* of products with zero, which are zero or NaN */
    for (int64_t panel = 0; panel < panels; panel++)
        for (int64_t channel = 0; channel < depth; channel++) {
            const float *at = w + (panel * c->depth_k + channel * c->taps) * HT_PANEL;
            for (int64_t i = 0; i < num; i++)
                for (int v = 0; v < HT_PANEL; v += VF_LANES)
                    bits = vi_or(bits, vf_bits(vf_load(at + offsets[i] + v) * vf_set1(0.0f)));
        }
    return !vm_any(vf_isnan(vi_as_float(bits)));
}

/* The lines of a block: `count` adjacent ones of plane z, from `first` on, of `pixels` pixels each. Consecutive ones are
 * `sums` pixels apart in the block's sums, and the pixels of a line are sums_pixel apart. */
typedef struct {
    int along, across;
    int64_t z, first, count, pixels, sums, sums_pixel;
} lines;

/* The kernel positions that are not skipped for line l. */
static void find_inside(const ht_conv *c, const lines *b, int64_t l, reach *inside)
{
    *inside = (reach){.last = {c->kernel[0], c->kernel[1], c->kernel[2]}};
    find_reach(c, 0, b->z, inside);
    find_reach(c, b->across, b->first + l, inside);
}

/* The steps of lines: lines l .. l + merged - 1, which follow each other in memory and have the same steps, are computed as one. */
typedef struct {
    ht_step *steps;
    int64_t num_steps, taps, a, b, merged; /* taps: steps of a channel */
} route;

/* Room for the steps of a route: some positions of the kernel may be skipped. */
static int64_t most_steps(const ht_conv *c) { return c->taps + HT_MANY_STEPS - 1; }

static route find_route(const ht_conv *c, const lines *b, const source *s, int skip, int64_t l, ht_step *steps)
{
    reach inside = {.last = {c->kernel[0], c->kernel[1], c->kernel[2]}}, other;
    route r = {.steps = steps, .merged = 1};
    if (skip)
        find_inside(c, b, l, &inside);
    r.taps = find_steps(c, s, &inside, steps, &r.a, &r.b);
    r.num_steps = ht_repeat_steps(steps, r.taps);
    for (; l + r.merged < b->count && s->stride[b->across] == b->pixels * s->stride[b->along]; r.merged++) {
        if (skip)
            find_inside(c, b, l + r.merged, &other);
        if (skip && memcmp(&inside, &other, sizeof inside) != 0)
            break;
    }
    return r;
}

/* The routes of a block, if they are few enough to be kept from one block of weights to the next. */
#define MAX_ROUTES 32
typedef struct {
    ht_step steps[MAX_TAPS];
    route all[MAX_ROUTES]; /* by their first line */
    int kept, skip;        /* kept: 0 if there are too many */
} routes;

static void find_routes(const ht_conv *c, const lines *b, const source *s, int skip, routes *found)
{
    found->kept = c->taps > 1 && b->count <= MAX_ROUTES && b->count * most_steps(c) <= MAX_TAPS;
    found->skip = skip;
    for (int64_t l = 0; found->kept && l < b->count; l += found->all[l].merged)
        found->all[l] = find_route(c, b, s, skip, l, found->steps + l * most_steps(c));
}

/* Weights that are prefetched while others are in use: `panels` panels of `depth` vectors. */
typedef struct {
    const float *next;
    int64_t panels, depth, done;
} prefetch;

/* Computes or adds to the sums of a block over `depth` channels, for the output channels of `panels` panels. `whole`
 * describes weights and depth, with the inputs starting at channel c0. */
static void multiply_lines(const ht_conv *c, const lines *b, const source *s, const routes *known, int skip, int64_t c0,
                           int64_t depth, int panels, prefetch *fetch, const ht_tile *whole, float *sums)
{
    ht_step steps[MAX_TAPS];
    ht_tile t = *whole;
    const int64_t apart = s->stride[b->across];
    t.a_row = s->stride[b->along];
    t.c_row = b->sums_pixel * WIDTH;
    route r = {.merged = 1};
    for (int64_t l = 0; l < b->count; l += r.merged) {
        if (c->taps > 1) {
            r = known->kept ? known->all[l] : find_route(c, b, s, skip, l, steps);
            t.steps = r.steps;
            t.num_steps = r.num_steps;
            t.k = depth * r.taps;
        }
        const int64_t pixels = r.merged * b->pixels, tiles = ht_ceil_div(pixels, HT_TILE_ROWS);
        int64_t at = 0;
        t.b = whole->b + r.b;
        for (int64_t tile = 0; tile < tiles; tile++) {
            const int64_t height = pixels / tiles + (tile < pixels % tiles);
            t.a = s->origin + (s->first + r.a + c0 * s->channel + l * apart + at * t.a_row);
            t.c = sums + (l * b->sums + at * b->sums_pixel) * WIDTH;
            t.next = fetch->panels > 0 ? fetch->next + fetch->done * HT_PANEL : t.b;
            t.next_step = fetch->panels > 0 ? HT_PANEL : 0;
            (c->taps > 1 ? ht_stepped_tile_fns : ht_tile_fns)[height - 1][panels - 1](&t);
            fetch->done += t.k;
            if (fetch->done >= fetch->depth) {
                fetch->done = 0;
                fetch->next += t.b_panel;
                fetch->panels--;
            }
            at += height;
        }
    }
}

/* One block: rows x columns pixels of output plane z, from (y, x), of output channels [m0, m1). */
static void direct_block(const ht_conv *c, int64_t z, int64_t y, int64_t x, int64_t rows, int64_t columns, int64_t m0,
                         int64_t m1)
{
    float *sums = c->scratch;
    const int axis = along(c);
    int copied = !ht_conv_flat(c) && (c->taps == 1 || reaches_outside(c, axis));
    source s = ht_conv_flat(c)      ? (source){.origin = c->x + x, .channel = c->in_plane, .stride = {0, 0, 1}}
               : c->taps == 1 ? copy_pixels(c, z, y, x, rows, columns, sums + SUMS)
               : copied       ? copy_padded(c, z, y, x, rows, columns, sums + SUMS)
                              : in_place(c, z, y, x);
    const int64_t pixel = (z * c->out[1] + y) * c->out[2] + x, pixels = rows * columns;
    const lines b = c->taps == 1 ? (lines){2, 1, z, y, 1, pixels, 0, 1}
                    : axis == 1 ? (lines){1, 2, z, x, columns, rows, 1, columns}
                                : (lines){2, 1, z, y, rows, columns, columns, 1};
    int32_t skipped[MAX_TAPS];
    int64_t num_skipped = 0;
    if (c->padded && c->taps > 1) {
        reach always = {.last = {c->kernel[0], c->kernel[1], c->kernel[2]}}, inside;
        for (int64_t l = 0; l < b.count; l++) {
            find_inside(c, &b, l, &inside);
            for (int d = 0; d < 3; d++) {
                always.first[d] = ht_max64(always.first[d], inside.first[d]);
                always.last[d] = ht_min64(always.last[d], inside.last[d]);
            }
        }
        num_skipped = find_skipped(c, &always, skipped);
    }

    routes known;
    find_routes(c, &b, &s, num_skipped > 0, &known);
    const int64_t block_channels = ht_max64(1, HT_BLOCK_K / c->taps);
    const int64_t blocks = ht_ceil_div(c->in_channels, block_channels);
    const int64_t step = ht_ceil_div(c->in_channels, blocks);
    for (int64_t m = m0, channels; m < m1; m += channels) {
        channels = ht_next_columns(m1 - m, WIDTH);
        const int64_t panels = ht_ceil_div(channels, HT_PANEL);
        for (int64_t block = 0; block < blocks; block++) {
            const int64_t c0 = block * step, depth = ht_min64(step, c->in_channels - c0);
            const float *w = c->w + m * c->depth_k + c0 * c->taps * HT_PANEL;
            const ht_tile t = {.a_k = s.channel, .b = w, .b_k = HT_PANEL, .b_panel = c->depth_k * HT_PANEL, .k = depth,
                               .columns = WIDTH, .accumulate = block > 0};
            /* The next block of weights, or the first block of the next channels, which may be those of another call. */
            const int last = block + 1 == blocks, ends = last && m + channels >= m1;
            prefetch fetch = {ends ? c->next : last ? c->w + (m + channels) * c->depth_k : w + depth * c->taps * HT_PANEL,
                              ends ? c->next_panels : panels, step * c->taps, 0};
            const int skip = num_skipped > 0 && (c->finite || all_finite(c, w, panels, depth, skipped, num_skipped));
            if (num_skipped > 0 && !skip && !copied) {
                s = copy_padded(c, z, y, x, rows, columns, sums + SUMS);
                copied = 1;
                find_routes(c, &b, &s, skip, &known);
            } else if (skip != known.skip)
                find_routes(c, &b, &s, skip, &known);
            multiply_lines(c, &b, &s, &known, skip, c0, depth, (int)panels, &fetch, &t, sums);
        }
        store_transposed(c, sums, pixel, pixels, m, channels);
    }
}

int64_t ht_conv_direct_blocks(const ht_conv *c)
{
    int64_t rows, columns;
    block_shape(c, &rows, &columns);
    if (ht_conv_flat(c))
        return ht_ceil_div(c->pixels, columns);
    return c->out[0] * ht_ceil_div(c->out[1], rows) * ht_ceil_div(c->out[2], columns);
}

void ht_conv_direct(const ht_conv *c, int64_t block, int64_t m0, int64_t m1)
{
    int64_t rows, columns;
    block_shape(c, &rows, &columns);
    if (ht_conv_flat(c)) {
        const int64_t x = block * columns;
        direct_block(c, 0, 0, x, 1, ht_min64(columns, c->pixels - x), m0, m1);
        return;
    }
    const int64_t across = ht_ceil_div(c->out[2], columns), down = ht_ceil_div(c->out[1], rows);
    const int64_t x = block % across * columns, y = block / across % down * rows, z = block / across / down;
    direct_block(c, z, y, x, ht_min64(rows, c->out[1] - y), ht_min64(columns, c->out[2] - x), m0, m1);
}
