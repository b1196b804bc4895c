/* Depthwise convolution of planes with 3x3 and 5x5 kernels, strides 1 and 2, which reads the input in place.
 *
 * Vectors run along an output row. Bands of seven output rows (most images have multiples of seven) are computed
 * together in registers: each vector of an input row is loaded once per column of the kernel for all rows that it
 * belongs to, and seven independent sums hide most of the latency of multiply-adds. With stride 2, two loads and two
 * shuffles give the even and the odd columns, that is two columns of the kernel.
 * With stride 2 the rows of wide planes are prefetched a band ahead, because a band has more rows than the hardware
 * follows.
 * Columns outside the input are masked, in the first vector of a row and in the last two. Rows outside the input are
 * read from a row of zeros. The last vector of a row ends where the row ends, and the last band where the plane ends,
 * so they compute some outputs twice.
 * Cost: pixels * taps / lanes multiply-adds of vectors. Nothing is copied.
 *
 * With AVX2; with AVX-512 only 5x5 kernels on rows of 14 and more, because shorter ones waste too many lanes, and 3x3
 * kernels have strips (conv_depthwise.c). Not with the baseline, which has no masked loads.
 */
#include "conv.h"

#define MOST_ROWS 7
#define MOST_SIZE 5                                 /* of the kernel */
#define MOST_READ ((MOST_ROWS - 1) * 2 + MOST_SIZE) /* input rows of a band */
#define PAGE_FLOATS 1024                            /* of a band of input rows that the hardware prefetches by itself */
#define SHORT_ROWS 4                                /* of bands where seven would waste more */

int ht_conv_square_fits(const ht_conv *c)
{
    const int64_t size = c->kernel[1], stride = c->stride[1];
    if (VF_LANES < 8 || (VF_LANES == 16 && (size != 5 || c->out[2] < 14)))
        return 0;
    if (c->in_channels != 1 || c->kernel[0] != 1 || c->in[0] != 1 || c->out[0] != 1 || c->pad[0] != 0)
        return 0;
    if ((size != 3 && size != 5) || c->kernel[2] != size || stride > 2 || c->stride[2] != stride ||
        c->dilation[1] != 1 || c->dilation[2] != 1)
        return 0;
    /* No window lies beside the input, so that only the vectors above are masked. Rows have half a vector of outputs or
     * more, so that a vector reaches no further than into the next row. */
    return c->in[2] <= HT_CONV_SCRATCH / 4 && 2 * c->out[2] >= VF_LANES && c->pad[2] < size &&
           (c->out[2] - 1) * stride + 1 - c->pad[2] <= c->in[2];
}

/* The rows of the band that begins at row y. */
static int64_t band_rows(int64_t y, int64_t rows)
{
    const int64_t left = rows - y;
    if (rows < SHORT_ROWS)
        return 1;
    return rows < MOST_ROWS || left == 2 * SHORT_ROWS || left <= SHORT_ROWS ? SHORT_ROWS : MOST_ROWS;
}

/* The constants were fitted to planes of 7 to 56 columns with AVX2, and for stride 2 to planes of 28 to 56 columns with
 * AVX-512, whose loads cross cache lines. */
double ht_conv_square_cost(const ht_conv *c)
{
    const double vectors = (double)ht_ceil_div(c->out[2], VF_LANES), taps = (double)c->taps;
    const double vector = c->stride[1] == 1 ? 0.65 * taps : 6 + (VF_LANES == 16 ? 1.7 : 0.9) * taps;
    return (double)c->out[1] * (8 + vectors * vector) * (c->out[1] < SHORT_ROWS ? 3 : 1);
}

/* What is the same for all planes. */
typedef struct {
    const ht_conv *conv;
    int64_t last; /* the first column of a row's last vector */
    int64_t lanes; /* of the last vector: VF_LANES, or the outputs of a row if these are fewer */
    vm first_inside[MOST_SIZE + 1], next_inside[MOST_SIZE + 1], last_inside[MOST_SIZE + 1];
} geometry;

/* Columns inside the input for the vector of outputs from column x on. Stride 1: `inside[k]` are those of column k of the
 * kernel. Stride 2: columns k and k + 1 of the kernel lie in two vectors, inside[k] and inside[k + 1]; k is even. */
static void columns_inside(const ht_conv *c, int64_t x, vm *inside)
{
    for (int64_t k = 0; k <= c->kernel[2]; k++) {
        const int64_t at = x * c->stride[2] - c->pad[2] + (c->stride[2] == 2 && k % 2 ? k - 1 + VF_LANES : k);
        const int64_t low = ht_min64(VF_LANES, ht_max64(0, -at));
        inside[k] = vm_range(low, ht_max64(low, ht_min64(VF_LANES, c->in[2] - at)));
    }
}

/* The sums of `rows` output rows by VF_LANES columns. read: input rows; at: the first column that is read; inside: the
 * columns inside the input, if `masked`. The lanes of sums with stride 2 are those of vf_evens. */
HT_INLINE void sum_tile(const float *const *read, int64_t at, const vm *inside, const float *w, float bias, vf *sums,
                        const int masked, const int size, const int stride, const int rows)
{
#define LOAD(p, column) (masked ? vf_load_where(p, inside[column]) : vf_load(p))
#pragma GCC unroll 7
    for (int r = 0; r < rows; r++)
        sums[r] = vf_set1(bias);
#pragma GCC unroll 5
    for (int k = 0; k < size; k += stride) {
        const int taps = stride == 2 && k + 1 < size ? 2 : 1;
        vf weight[2][MOST_SIZE];
#pragma GCC unroll 5
        for (int i = 0; i < size; i++) {
            weight[0][i] = vf_keep(vf_set1(w[i * size + k]));
            if (taps == 2)
                weight[1][i] = vf_set1(w[i * size + k + 1]);
        }
#pragma GCC unroll 17
        for (int j = 0; j < (rows - 1) * stride + size; j++) {
            const float *p = read[j] + at + k;
            vf x[2];
            if (stride == 1) {
                x[0] = vf_keep(LOAD(p, k));
            } else {
                const vf a = LOAD(p, k);
                const vf b = LOAD(p + VF_LANES, k + 1);
                x[0] = vf_evens(a, b);
                x[1] = vf_odds(a, b);
            }
#pragma GCC unroll 2
            for (int t = 0; t < taps; t++)
#pragma GCC unroll 7
                for (int r = 0; r < rows; r++)
                    if (j - r * stride >= 0 && j - r * stride < size)
                        sums[r] = vf_fma(weight[t][j - r * stride], x[t], sums[r]);
        }
    }
#undef LOAD
}

/* Output rows [y, y + rows) by columns [x, x + VF_LANES) of channel `map`. */
HT_INLINE void tile(const geometry *g, const float *const *read, const vm *inside, int64_t map, int64_t y, int64_t x,
                    const int masked, const int size, const int stride, const int rows)
{
    const ht_conv *c = g->conv;
    vf sums[MOST_ROWS];
    sum_tile(read, x * stride - c->pad[2], inside, c->w + map * size * size, c->bias ? c->bias[map] : 0.0f, sums,
             masked, size, stride, rows);
    const vf low = vf_set1(c->low), high = vf_set1(c->high);
    const int64_t width = c->out[2], at = map * c->pixels + y * width + x;
    /* What a row shorter than a vector stores too much is overwritten by the next row; nothing follows the last one. */
    const int short_last = g->lanes < VF_LANES && y + rows == c->out[1];
#pragma GCC unroll 7
    for (int r = 0; r < rows; r++) {
        vf sum = stride == 2 ? vf_ordered(sums[r]) : sums[r];
        if (HT_UNLIKELY(c->addend))
            sum += vf_load_n(c->addend + at + r * width, g->lanes);
        sum = vf_min(high, vf_max(low, sum));
        if (r == rows - 1 && HT_UNLIKELY(short_last))
            vf_store_n(c->y + at + r * width, g->lanes, sum);
        else
            vf_store(c->y + at + r * width, sum);
    }
}

HT_INLINE void band(const geometry *g, const float *plane, int64_t map, int64_t y, const int size, const int stride,
                    const int rows)
{
    const ht_conv *c = g->conv;
    const float *read[MOST_READ];
    for (int64_t j = 0; j < (rows - 1) * stride + size; j++) {
        const int64_t in_y = y * stride - c->pad[1] + j;
        read[j] = in_y >= 0 && in_y < c->in[1] ? plane + in_y * c->in[2] : c->scratch;
    }
    int64_t x = VF_LANES;
    /* A vector reads up to `size - 1` columns after those of its first column of the kernel. */
    const int64_t end = ht_min64(g->last - 1, (c->in[2] + c->pad[2] - size + 1 - VF_LANES * stride) / stride);
    const int fetches = stride == 2 && rows * stride * c->in[2] > PAGE_FLOATS;
    for (; x <= end; x += VF_LANES) {
        if (fetches) {
            const float *next = plane + ((y + rows) * stride - c->pad[1]) * c->in[2] + x * stride;
            for (int j = 0; j < rows * stride; j++, next += c->in[2])
                __builtin_prefetch(next, 0, 3);
        }
        tile(g, read, NULL, map, y, x, 0, size, stride, rows);
    }
    HT_ASSERT(x + VF_LANES >= g->last);
    /* The first vector and the last two are masked: by one copy of the code. */
    const vm *const inside[3] = {g->first_inside, g->next_inside, g->last_inside};
    const int64_t at[3] = {0, x, g->last};
    for (int i = 0; i < 3; i++)
        if (i == 0 || (i == 1 ? x < g->last : g->last > 0))
            tile(g, read, inside[i], map, y, at[i], 1, size, stride, rows);
}

/* A function for each number of rows, because GCC takes longer for one that contains all. */
#define BAND(size, stride, name, rows)                                                                                \
    static __attribute__((noinline)) void name##_##size##_##stride(const geometry *g, const float *plane, int64_t map, \
                                                                   int64_t y)                                         \
    {                                                                                                                 \
        band(g, plane, map, y, size, stride, rows);                                                                   \
    }
#define BANDS(size, stride)                                                                                           \
    BAND(size, stride, long_band, MOST_ROWS)                                                                          \
    BAND(size, stride, short_band, SHORT_ROWS)                                                                        \
    BAND(size, stride, row_band, 1)                                                                                   \
    static void band_##size##_##stride(const geometry *g, const float *plane, int64_t map, int64_t y, int64_t rows)   \
    {                                                                                                                 \
        if (rows == MOST_ROWS)                                                                                        \
            long_band_##size##_##stride(g, plane, map, y);                                                            \
        else if (rows == SHORT_ROWS)                                                                                  \
            short_band_##size##_##stride(g, plane, map, y);                                                           \
        else                                                                                                          \
            row_band_##size##_##stride(g, plane, map, y);                                                             \
    }
#if defined(__AVX512F__) /* ht_conv_square_fits says no to 3x3 */
#define band_3_1 NULL
#define band_3_2 NULL
#else
BANDS(3, 1) BANDS(3, 2)
#endif
BANDS(5, 1) BANDS(5, 2)

void ht_conv_square(const ht_conv *c, int64_t group0, int64_t group1)
{
    if (VF_LANES < 8) /* ht_conv_square_fits says no, and the bands take long to compile */
        return;
    const int64_t width = c->out[2], rows = c->out[1];
    geometry g = {.conv = c, .last = ht_max64(0, width - VF_LANES), .lanes = ht_min64(width, VF_LANES)};
    columns_inside(c, 0, g.first_inside);
    columns_inside(c, ht_max64(0, (g.last - 1) / VF_LANES * VF_LANES), g.next_inside);
    columns_inside(c, g.last, g.last_inside);
    memset(c->scratch, 0, (size_t)c->in[2] * sizeof(float));
    void (*const bands[2][2])(const geometry *, const float *, int64_t, int64_t, int64_t) = {{band_3_1, band_3_2},
                                                                                             {band_5_1, band_5_2}};
    void (*const compute)(const geometry *, const float *, int64_t, int64_t, int64_t) =
        bands[c->kernel[1] == 5][c->stride[1] - 1];
    int64_t left = HT_PACE;
    for (int64_t map = group0 * c->out_channels; map < group1 * c->out_channels; map++)
        for (int64_t y = 0, count; y < rows; y += count) {
            count = band_rows(y, rows);
            y = ht_min64(y, rows - count);
            if (ht_paced_stop(&left, count * width * c->taps))
                return;
            compute(&g, c->x + map / c->out_channels * c->in_plane, map, y, count);
            if (!ht_conv_is_final(c))
                ht_conv_finish(c, map, map * c->pixels + y * width, count * width);
        }
}
