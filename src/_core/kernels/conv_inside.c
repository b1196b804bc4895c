/* Convolution without the products of padding, for kernels that reach far outside the input, such as 3x3 with dilation
 * 24 over 32x32.
 *
 * Along each axis, the outputs are split into segments with the same kernel positions inside the input; these positions
 * are adjacent. A region is the product of a segment of each axis. Its outputs are a sum over its own kernel positions
 * only: of each, the inputs of a block of channels are copied to [channel][pixel] and multiplied by the packed weights of
 * that position. Columns are output channels, as in conv_direct.c; the finished sums are transposed when they are written.
 * Cost: channels * M multiply-adds per output and kernel position inside; each such input is copied once for
 * HT_CONV_INSIDE_CHANNELS output channels, and each region reads the weights of its kernel positions.
 *
 * Condition: all weights are finite. A skipped product of padding would be 0; with an infinite weight or NaN it is NaN.
 */
#include "conv.h"

#define MAX_KERNEL 16   /* kernel positions of an axis: bounds the segments */
#define MAX_SEGMENTS (2 * MAX_KERNEL + 1)
#define MAX_REGIONS 512 /* each unit of work looks at all of them */
#define MAX_PIXELS 256  /* of a piece: some pixels of a region, multiplied at a time */

/* A row of `floats`, as an odd number of cache lines: adjacent rows then lie in different sets of the cache. */
#define ROW(floats) (((((floats) + 15) / 16) | 1) * 16)
#define COPY_FLOATS (HT_BLOCK_K * ROW(MAX_PIXELS) + 2 * VF_LANES * VF_LANES) /* a block of channels, or finished rows */
#define SUM_FLOATS (HT_CONV_SCRATCH / 4 - COPY_FLOATS)
_Static_assert(VF_LANES <= HT_BLOCK_K, "the finished rows fit the copy");

/* Outputs [begin, end) of an axis, for which the kernel positions [tap, tap_end) lie inside the input. */
typedef struct {
    int64_t begin, end, tap, tap_end;
} segment;

typedef struct {
    segment of[3][MAX_SEGMENTS];
    int64_t count[3];
} grid;

static void split_axis(const ht_conv *c, int d, segment *segments, int64_t *count)
{
    *count = 0;
    for (int64_t begin = 0, end; begin < c->out[d]; begin = end) {
        segment s = {begin, c->out[d], 0, 0};
        int any = 0;
        for (int64_t tap = 0; tap < c->kernel[d]; tap++) {
            int64_t first, last;
            ht_valid_range(tap * c->dilation[d] - c->pad[d], c->stride[d], c->in[d], c->out[d], &first, &last);
            if (first <= begin && begin < last) {
                s.tap = any ? s.tap : tap;
                s.tap_end = tap + 1;
                s.end = ht_min64(s.end, last);
                any = 1;
            } else if (begin < first && first < last) {
                s.end = ht_min64(s.end, first);
            }
        }
        end = s.end;
        HT_ASSERT(end > begin && *count < MAX_SEGMENTS);
        segments[(*count)++] = s;
    }
}

static void split(const ht_conv *c, grid *g)
{
    for (int d = 0; d < 3; d++)
        split_axis(c, d, g->of[d], &g->count[d]);
}

/* Products of an axis: kernel positions inside the input, summed over the outputs, or over the segments. */
static void count_products(const segment *segments, int64_t count, double *of_outputs, double *of_segments)
{
    *of_outputs = *of_segments = 0;
    for (int64_t i = 0; i < count; i++) {
        const double taps = (double)(segments[i].tap_end - segments[i].tap);
        *of_outputs += taps * (double)(segments[i].end - segments[i].begin);
        *of_segments += taps;
    }
}

int ht_conv_inside_fits(const ht_conv *c, double *products, double *weights)
{
    int64_t regions = 1;
    *products = *weights = 1;
    for (int d = 0; d < 3; d++) {
        const int64_t largest = 1 << 20;
        if (c->kernel[d] > MAX_KERNEL || c->dilation[d] > largest || c->stride[d] > largest || c->pad[d] > largest ||
            c->out[d] > largest)
            return 0;
        segment segments[MAX_SEGMENTS];
        int64_t count;
        double of_outputs, of_segments;
        split_axis(c, d, segments, &count);
        count_products(segments, count, &of_outputs, &of_segments);
        *products *= of_outputs;
        *weights *= of_segments;
        regions *= count;
    }
    return regions <= MAX_REGIONS;
}

static int64_t size_of(const segment *s) { return s->end - s->begin; }

/* The segments of region `number`. */
static void region_at(const grid *g, int64_t number, const segment *axes[3])
{
    axes[2] = &g->of[2][number % g->count[2]];
    axes[1] = &g->of[1][number / g->count[2] % g->count[1]];
    axes[0] = &g->of[0][number / g->count[2] / g->count[1]];
}

/* Sums of `channels` output channels and as many pixels fit the scratch memory; the transposition reads whole vectors. */
int64_t ht_conv_inside_pixels(int64_t channels) { return SUM_FLOATS / ROW(channels) - VF_LANES; }

/* Some pixels of a region, by rows. */
typedef struct {
    const segment *axes[3];
    float *sums;
    int64_t pixels, num_runs;
    ht_run runs[MAX_PIXELS];
} piece;

/* Pixels [from, to) of the region. */
static void find_runs(const ht_conv *c, piece *p, int64_t from, int64_t to)
{
    const int64_t width = size_of(p->axes[2]), height = size_of(p->axes[1]);
    p->pixels = to - from;
    p->num_runs = 0;
    for (int64_t at = from; at < to;) {
        const int64_t x = p->axes[2]->begin + at % width, y = p->axes[1]->begin + at / width % height;
        const int64_t z = p->axes[0]->begin + at / width / height;
        const int64_t in_z = z * c->stride[0] - c->pad[0], in_y = y * c->stride[1] - c->pad[1];
        const ht_run r = {(in_z * c->in[1] + in_y) * c->in[2] + x * c->stride[2] - c->pad[2],
                       (z * c->out[1] + y) * c->out[2] + x, ht_min64(to - at, width - at % width)};
        ht_run *last = p->num_runs > 0 ? &p->runs[p->num_runs - 1] : NULL;
        if (last && c->stride[2] == 1 && last->in + last->count == r.in && last->out + last->count == r.out)
            last->count += r.count;
        else
            p->runs[p->num_runs++] = r;
        at += r.count;
    }
}

/* The inputs of a kernel position `offset` elements from position 0: [channel][pixel]. Writes up to a vector more. */
static void copy_inputs(const ht_conv *c, const piece *p, int64_t channel, int64_t channels, int64_t offset, float *dst,
                        int64_t dst_row)
{
    for (int64_t i = channel; i < channel + channels; i++, dst += dst_row) {
        const float *plane = c->x + i * c->in_plane;
        const int room = i + 1 < c->in_channels && c->in_plane >= VF_LANES; /* to read a vector beyond the plane */
        const int64_t ahead = ht_min64(8, channel + channels - 1 - i) * c->in_plane;
        float *to = dst;
        for (int64_t r = 0; r < p->num_runs; r++) {
            const float *from = plane + (p->runs[r].in + offset);
            const int64_t count = p->runs[r].count;
            __builtin_prefetch(from + ahead, 0, 3);
            __builtin_prefetch(from + ahead + count - 1, 0, 3);
            if (c->stride[2] != 1)
                ht_sample_row(from, (count - 1) * c->stride[2] + 1, 0, c->stride[2], count, to);
            else if (room)
                for (int64_t x = 0; x < count; x += VF_LANES)
                    vf_store(to + x, vf_load(from + x));
            else
                for (int64_t x = 0; x < count; x += VF_LANES)
                    vf_store(to + x, vf_load_n(from + x, ht_min64(VF_LANES, count - x)));
            to += count;
        }
    }
}

/* Adds bias and addend, finishes and writes output channel `channel`. */
static void store_channel(const ht_conv *c, const ht_run *runs, int64_t num_runs, int64_t channel, const float *row)
{
    const vf bias = vf_set1(c->bias ? c->bias[channel] : 0.0f), low = vf_set1(c->low), high = vf_set1(c->high);
    for (int64_t r = 0; r < num_runs; row += runs[r].count, r++) {
        const int64_t at = channel * c->pixels + runs[r].out, count = runs[r].count;
        for (int64_t i = 0; i < count; i += VF_LANES) {
            const int64_t lanes = ht_min64(VF_LANES, count - i);
            const int full = lanes == VF_LANES;
            vf v = vf_load(row + i);
            if (c->bias)
                v += bias;
            if (c->addend)
                v += full ? vf_load(c->addend + at + i) : vf_load_n(c->addend + at + i, lanes);
            v = vf_min(high, vf_max(low, v));
            if (full)
                vf_store(c->y + at + i, v);
            else
                vf_store_n(c->y + at + i, lanes, v);
        }
        if (!ht_conv_is_final(c))
            ht_conv_finish(c, channel, at, count);
    }
}

void ht_conv_store_sums(const ht_conv *c, const ht_run *runs, int64_t num_runs, const float *sums, int64_t sums_row,
                        int64_t m0, int64_t m1, float *rows)
{
    int64_t pixels = 0;
    for (int64_t r = 0; r < num_runs; r++)
        pixels += runs[r].count;
    const int64_t row = (ht_ceil_div(pixels, VF_LANES) + 1) * VF_LANES;
    for (int64_t m = m0; m < m1; m += VF_LANES) {
        for (int64_t at = 0; at < pixels; at += VF_LANES) {
            vf block[VF_LANES];
            for (int i = 0; i < VF_LANES; i++)
                block[i] = vf_load(sums + (at + i) * sums_row + m - m0);
            vf_transpose(block);
            for (int i = 0; i < VF_LANES; i++)
                vf_store(rows + i * row + at, block[i]);
        }
        for (int64_t i = 0; i < ht_min64(VF_LANES, m1 - m); i++)
            store_channel(c, runs, num_runs, m + i, rows + i * row);
    }
}

/* Adds the products of a block of channels; `first`: it is the first one. */
static void multiply(const ht_conv *c, const piece *p, int64_t channel, int64_t channels, int first, int64_t m0, int64_t m1,
                     float *copy)
{
    const segment *const *axes = p->axes;
    const int64_t copy_row = ROW(p->pixels), sums_row = ROW(m1 - m0);
    ht_tile t = {.a = copy, .a_row = 1, .a_k = copy_row, .b_k = c->taps * HT_PANEL, .b_panel = c->depth_k * HT_PANEL,
                 .c = p->sums, .c_row = sums_row, .k = channels, .accumulate = !first, .next_step = c->taps * HT_PANEL};
    for (int64_t z = axes[0]->tap; z < axes[0]->tap_end; z++)
        for (int64_t y = axes[1]->tap; y < axes[1]->tap_end; y++)
            for (int64_t x = axes[2]->tap; x < axes[2]->tap_end; x++, t.accumulate = 1) {
                const int64_t tap = (z * c->kernel[1] + y) * c->kernel[2] + x;
                const int64_t at = (z * c->dilation[0] * c->in[1] + y * c->dilation[1]) * c->in[2] + x * c->dilation[2];
                copy_inputs(c, p, channel, channels, at, copy, copy_row);
                t.b = c->w + m0 * c->depth_k + (channel * c->taps + tap) * HT_PANEL;
                ht_gemm_block(&t, 0, p->pixels, m1 - m0);
            }
    if (!t.accumulate) /* no kernel position is inside */
        for (int64_t i = 0; i < p->pixels * sums_row; i += VF_LANES)
            vf_store(p->sums + i, vf_set1(0.0f));
}

void ht_conv_inside(const ht_conv *c, int64_t p0, int64_t p1, int64_t m0, int64_t m1)
{
    grid g;
    split(c, &g);
    float *copy = c->scratch;
    const int64_t sums_row = ROW(m1 - m0);
    const int64_t blocks = ht_ceil_div(c->in_channels, HT_BLOCK_K), step = ht_ceil_div(c->in_channels, blocks);
    for (int64_t block = 0; block < blocks && !ht_stopping(); block++) {
        const int64_t channel = block * step, channels = ht_min64(step, c->in_channels - channel);
        piece p = {.sums = copy + COPY_FLOATS};
        int64_t end = 0; /* of the regions so far, in pixels */
        for (int64_t number = 0; number < g.count[0] * g.count[1] * g.count[2]; number++) {
            region_at(&g, number, p.axes);
            const int64_t begin = end;
            end += size_of(p.axes[0]) * size_of(p.axes[1]) * size_of(p.axes[2]);
            const int64_t from = ht_max64(p0, begin) - begin, to = ht_min64(p1, end) - begin;
            const int64_t pieces = to > from ? ht_ceil_div(to - from, MAX_PIXELS) : 0;
            for (int64_t i = 0; i < pieces; i++) {
                find_runs(c, &p, from + ht_part_begin(to - from, pieces, i), from + ht_part_begin(to - from, pieces, i + 1));
                multiply(c, &p, channel, channels, block == 0, m0, m1, copy);
                if (block == blocks - 1)
                    ht_conv_store_sums(c, p.runs, p.num_runs, p.sums, sums_row, m0, m1, copy);
                p.sums += p.pixels * sums_row;
            }
        }
    }
}
