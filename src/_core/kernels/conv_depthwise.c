/* Depthwise convolution: each output channel depends on one input channel.
 *
 * Vectors run along an output row. The input rows of a block of output rows are first copied with zero padding and
 * split by column modulo the stride, so that every tap of a vector of outputs is one contiguous load for any stride.
 * Four output rows are computed together, so that each vector of input serves every row whose kernel reaches it: 3x3
 * takes 4.5 loads for 9 multiply-adds, 5x5 takes 10 for 25. The copy of a block is small enough to stay in the L1
 * cache. For planes narrower than a vector, vectors run across channels instead: see conv_narrow.c.
 * With AVX-512, 3x3 kernels with strides 1 and 2, and also with AVX2 1x1 kernels with stride 2, read the input in place.
 * Each strip of columns is computed from top to bottom, so that it reads every row once. With stride 2, permutations of
 * two vectors give the even and the odd columns.
 * Cost: pixels * taps multiply-adds; the copy moves every input once, and kernel height - 1 rows per block again.
 */
#include "conv.h"

#define COPY_FLOATS (HT_CONV_SCRATCH / 4)
#define BLOCK_FLOATS 6144 /* floats of a block's copy: 24 kB, three quarters of the L1 cache */
#define MAX_TAPS 1024     /* kernel positions: bounds an array of offsets on the stack (4 kB) */
#define ROWS 4            /* output rows computed together: their sums are independent */

typedef struct {
    int64_t rows, height;       /* output rows per block; rows per plane of the copy */
    ht_split split;
    int together;               /* ROWS, or 1: rows are computed one by one */
    int64_t copies;             /* floats of a block's copy */
} layout;

static int64_t rows_read(const ht_conv *c, int64_t rows)
{
    return (rows - 1) * c->stride[1] + (c->kernel[1] - 1) * c->dilation[1] + 1;
}

/* Is there a function that computes ROWS rows at once for this kernel height? */
static int has_body(const ht_conv *c)
{
    const int64_t k = c->kernel[1], s = c->stride[1];
    return !HT_FALLBACK && c->dilation[1] == 1 && c->out[1] >= 2 && (k == 3 || k == 5 || k == 7 || k == 9) && s <= 2;
}

/* Is the input read in place? 3x3 only with AVX-512, whose 32 registers hold the weights, the sums and the taps: with AVX2
 * stride 1 takes longer than with a copy, and stride 2 hardly less. */
static int in_place(const ht_conv *c)
{
    const int64_t k = c->kernel[1], s = c->stride[1];
    const int fast = (k == 1 && s == 2 && VF_LANES >= 8) || (k == 3 && s <= 2 && VF_LANES == 16);
    return fast && c->kernel[0] == 1 && c->in[0] == 1 && c->out[0] == 1 && c->pad[0] == 0 && c->kernel[2] == k &&
           c->stride[2] == s && c->dilation[1] == 1 && c->dilation[2] == 1 && c->in[2] <= COPY_FLOATS;
}

static int block_layout(const ht_conv *c, layout *l)
{
    /* Outputs are computed in whole vectors, so the rows of the copy must cover all inputs that these read. */
    const int64_t outputs = ht_ceil_div(c->out[2], VF_LANES) * VF_LANES;
    l->split = ht_split_for((outputs - 1) * c->stride[2] + (c->kernel[2] - 1) * c->dilation[2] + 1, c->stride[2]);
    l->together = has_body(c) ? ROWS : 1;
    const int64_t plane = c->kernel[0] * l->split.row;
    int64_t fitting = BLOCK_FLOATS / plane - rows_read(c, 1);
    fitting = fitting < 0 ? 0 : fitting / c->stride[1];
    l->rows = ht_ceil_div(ht_max64(1, ht_min64(fitting, c->out[1])), l->together) * l->together;
    l->height = rows_read(c, l->rows);
    l->copies = l->height * plane;
    return l->copies <= COPY_FLOATS;
}

int ht_conv_depthwise_fits(const ht_conv *c)
{
    layout l;
    if (c->in_channels != 1 || c->taps > MAX_TAPS)
        return 0;
    for (int d = 0; d < 3; d++)
        if (c->dilation[d] > (1 << 20) || c->stride[d] > (1 << 20) || c->out[d] > (1 << 30))
            return 0;
    return block_layout(c, &l);
}

/* The constants were fitted to 3x3 to 9x9 kernels with strides 1 to 3 on planes of 5 to 56 columns, with AVX2 and
 * AVX-512. */
double ht_conv_depthwise_cost(const ht_conv *c)
{
    const double vectors = (double)ht_ceil_div(c->out[2], VF_LANES), planes = (double)(c->out[0] * c->kernel[0]);
    const double read = planes * (double)rows_read(c, c->out[1]), taps = (double)c->taps;
    if (ht_conv_square_fits(c))
        return ht_conv_square_cost(c);
    if (in_place(c)) /* fitted to planes of 7 to 40 columns */
        return (double)c->out[1] * (c->stride[1] == 1 ? 4 + vectors * 13 : 12 + vectors * (2 + 1.5 * taps));
    /* A row alone has up to four independent sums, too few to hide the latency of multiply-adds. */
    const double rows = (double)c->out[0] * (double)(has_body(c) ? ht_ceil_div(c->out[1], ROWS) * ROWS : c->out[1]);
    const double tap = has_body(c) ? 1 : vectors < 4 ? 5 / vectors : 1.25;
    const double copied = c->stride[2] == 1   ? fmax(20, 2 * vectors)
                          : c->stride[2] == 2 ? 30
                                              : 3 * (double)((c->out[2] - 1) * c->stride[2] + c->kernel[2]);
    return rows * vectors * (taps * tap + 8) + read * copied;
}

/* One output channel. */
typedef struct {
    const ht_conv *conv;
    const layout *layout;
    const int32_t *offsets; /* of the taps in the copy; if rows are computed together, only of the first kernel row */
    const float *w;
    float bias;
} channel;

HT_INLINE void finish(const ht_conv *c, vf sum, int64_t at, int64_t left)
{
    if (c->addend)
        sum += left >= VF_LANES ? vf_load(c->addend + at) : vf_load_n(c->addend + at, left);
    sum = vf_min(vf_set1(c->high), vf_max(vf_set1(c->low), sum));
    if (left >= VF_LANES)
        vf_store(c->y + at, sum);
    else
        vf_store_n(c->y + at, left, sum);
}

/* Up to ROWS output rows by vectors * VF_LANES columns. `at`: y's index of the first output; `left`: remaining
 * columns. */
HT_INLINE void tile(const channel *m, const float *src, int64_t rows, int64_t at, int64_t left, const int height,
                    const int stride, const int square, const int vectors)
{
    const ht_conv *c = m->conv;
    const int64_t row = m->layout->split.row, plane = m->layout->height * row, taps = square ? height : c->kernel[2];
    vf acc[ROWS][2];
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            acc[r][v] = vf_set1(m->bias);
    for (int64_t kz = 0; kz < c->kernel[0]; kz++)
#pragma GCC unroll 5
        for (int64_t kx = 0; kx < taps; kx++) {
            const float *p = src + kz * plane + m->offsets[kx], *w = m->w + kz * height * taps + kx;
            vf weight[9];
#pragma GCC unroll 9
            for (int ky = 0; ky < height; ky++)
                weight[ky] = vf_set1(w[ky * taps]);
#pragma GCC unroll 15
            for (int j = 0; j < (ROWS - 1) * stride + height; j++, p += row)
#pragma GCC unroll 2
                for (int v = 0; v < vectors; v++) {
                    const vf x = vf_keep(vf_load(p + v * VF_LANES));
#pragma GCC unroll 4
                    for (int r = 0; r < ROWS; r++)
                        if (j - r * stride >= 0 && j - r * stride < height)
                            acc[r][v] = vf_fma(weight[j - r * stride], x, acc[r][v]);
                }
        }
    if (HT_LIKELY(!c->addend && rows == ROWS && left >= vectors * VF_LANES)) {
        const vf low = vf_set1(c->low), high = vf_set1(c->high);
        float *y = c->y + at;
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++, y += c->out[2])
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++)
                vf_store(y + v * VF_LANES, vf_min(high, vf_max(low, acc[r][v])));
        return;
    }
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++)
        if (r < rows)
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++)
                finish(c, acc[r][v], at + r * c->out[2] + v * VF_LANES, left - v * VF_LANES);
}

HT_INLINE void rows_of(const channel *m, const float *src, int64_t rows, int64_t at, const int height, const int stride,
                       const int square)
{
    const int64_t count = m->conv->out[2];
    int64_t x = 0;
    for (; x + VF_LANES < count; x += 2 * VF_LANES)
        tile(m, src + x, rows, at + x, count - x, height, stride, square, 2);
    if (x < count)
        tile(m, src + x, rows, at + x, count - x, height, stride, square, 1);
}

HT_INLINE void rows_together(const channel *m, const float *src, int64_t rows, int64_t at, const int height,
                             const int stride)
{
    if (HT_FALLBACK) /* has_body says no */
        return;
    if (height <= 5 && stride == 1 && m->conv->kernel[2] == height)
        rows_of(m, src, rows, at, height, stride, 1);
    else
        rows_of(m, src, rows, at, height, stride, 0);
}

#define BODY(height, stride)                                                                                          \
    static void body_##height##_##stride(const channel *m, const float *src, int64_t rows, int64_t at)               \
    {                                                                                                                 \
        rows_together(m, src, rows, at, height, stride);                                                              \
    }
BODY(3, 1) BODY(3, 2) BODY(5, 1) BODY(5, 2) BODY(7, 1) BODY(7, 2) BODY(9, 1) BODY(9, 2)

typedef void (*body)(const channel *m, const float *src, int64_t rows, int64_t at);
static const body bodies[4][2] = {
    {body_3_1, body_3_2}, {body_5_1, body_5_2}, {body_7_1, body_7_2}, {body_9_1, body_9_2}};

HT_INLINE void row_vectors(const channel *m, const float *src, int64_t at, int64_t left, const int vectors)
{
    const ht_conv *c = m->conv;
    vf acc[4];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++)
        acc[v] = vf_set1(m->bias);
    for (int64_t t = 0; t < c->taps; t++) {
        const vf weight = vf_set1(m->w[t]);
        const float *p = src + m->offsets[t];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            acc[v] = vf_fma(weight, vf_load(p + v * VF_LANES), acc[v]);
    }
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++)
        finish(c, acc[v], at + v * VF_LANES, left - v * VF_LANES);
}

/* One output row by itself. */
static void row_alone(const channel *m, const float *src, int64_t at)
{
    const int64_t count = m->conv->out[2];
    int64_t x = 0;
    for (; x + 3 * VF_LANES < count; x += 4 * VF_LANES)
        row_vectors(m, src + x, at + x, count - x, 4);
    for (; x + VF_LANES < count; x += 2 * VF_LANES)
        row_vectors(m, src + x, at + x, count - x, 2);
    if (x < count)
        row_vectors(m, src + x, at + x, count - x, 1);
}

/* Copies one input row into a row of the copy whose margins are zero; strides 1 and 2. */
HT_INLINE void copy_row(const float *src, int64_t size, const ht_split *split, int64_t pad, const int stride, float *dst)
{
    const int64_t count = ht_min64(size, split->row - pad);
    if (stride == 1) {
        dst += pad;
        int64_t i = 0;
        for (; i + VF_LANES <= count; i += VF_LANES)
            vf_store(dst + i, vf_load(src + i));
        if (i < count && count >= VF_LANES)
            vf_store(dst + count - VF_LANES, vf_load(src + count - VF_LANES));
        else if (i < count)
            vf_store_n(dst, count, vf_load_n(src, count));
        return;
    }
    float *even = dst + (pad & 1) * split->phase + pad / 2, *odd = dst + (~pad & 1) * split->phase + (pad + 1) / 2;
    int64_t i = 0;
    for (; 2 * i + 2 * VF_LANES <= count; i += VF_LANES) {
        const vf a = vf_load(src + 2 * i), b = vf_load(src + 2 * i + VF_LANES);
        vf_store(even + i, vf_even(a, b));
        vf_store(odd + i, vf_odd(a, b));
    }
    const int64_t left = count - 2 * i;
    if (left > 0 && count >= 2 * VF_LANES) { /* the last vectors overlap: masked stores are slow on some processors */
        const int64_t last = (count - 2 * VF_LANES) / 2;
        const vf a = vf_load(src + 2 * last), b = vf_load(src + 2 * last + VF_LANES);
        vf_store(even + last, vf_even(a, b));
        vf_store(odd + last, vf_odd(a, b));
        if (count % 2)
            even[count / 2] = src[count - 1];
    } else if (left > 0) {
        const vf a = vf_load_n(src, ht_min64(left, VF_LANES));
        const vf b = left > VF_LANES ? vf_load_n(src + VF_LANES, left - VF_LANES) : vf_set1(0.0f);
        vf_store_n(even, (left + 1) / 2, vf_even(a, b));
        vf_store_n(odd, left / 2, vf_odd(a, b));
    }
}

/* Copies the inputs of `rows` output rows from (z, y), and zeros for the rest of the block. The copy's margins are zero
 * and stay zero. */
static void copy_rows(const ht_conv *c, const layout *l, const float *plane, int64_t z, int64_t y, int64_t rows,
                      float *copy)
{
    const int64_t in_y = y * c->stride[1] - c->pad[1], read = rows_read(c, rows), pad = c->pad[2], size = c->in[2];
    for (int64_t kz = 0; kz < c->kernel[0]; kz++) {
        const int64_t iz = z * c->stride[0] - c->pad[0] + kz * c->dilation[0];
        const int64_t inside = iz >= 0 && iz < c->in[0] && pad < l->split.row ? read : 0;
        const int64_t low = ht_min64(inside, ht_max64(0, -in_y));
        const int64_t high = ht_max64(low, ht_min64(inside, c->in[1] - in_y));
        float *dst = copy + kz * l->height * l->split.row;
        for (int64_t i = 0; i < low * l->split.row; i += VF_LANES)
            vf_store(dst + i, vf_set1(0.0f));
        const float *src = plane + (iz * c->in[1] + in_y + low) * size;
        for (int64_t r = low; r < high; r++, src += size)
            if (c->stride[2] == 1)
                copy_row(src, size, &l->split, pad, 1, dst + r * l->split.row);
            else if (c->stride[2] == 2)
                copy_row(src, size, &l->split, pad, 2, dst + r * l->split.row);
            else
                ht_split_row(&l->split, src, size, -pad, c->stride[2], 0.0f, dst + r * l->split.row);
        for (int64_t i = high * l->split.row; i < l->height * l->split.row; i += VF_LANES)
            vf_store(dst + i, vf_set1(0.0f));
    }
}

/* Rows [y, y + rows) of plane z of group g's outputs. */
static void compute_rows(const ht_conv *c, const layout *l, const int32_t *offsets, const float *copy, int64_t g,
                         int64_t z, int64_t y, int64_t rows)
{
    const int64_t step = c->stride[1] * l->split.row, width = c->out[2];
    for (int64_t i = g * c->out_channels; i < (g + 1) * c->out_channels; i++) {
        const channel m = {c, l, offsets, c->w + i * c->taps, c->bias ? c->bias[i] : 0.0f};
        const int64_t at = i * c->pixels + (z * c->out[1] + y) * width;
        if (l->together == 1) {
            for (int64_t r = 0; r < rows; r++)
                row_alone(&m, copy + r * step, at + r * width);
        } else {
            const body run = bodies[(c->kernel[1] - 3) / 2][c->stride[1] - 1];
            for (int64_t r = 0; r < rows; r += ROWS)
                run(&m, copy + r * step, ht_min64(ROWS, rows - r), at + r * width);
        }
        if (!ht_conv_is_final(c))
            ht_conv_finish(c, i, at, rows * width);
    }
}

/* A vector of input columns: lanes [low, high) lie inside the row, the others are zero. */
typedef struct {
    int64_t at, low, high;
} columns;

/* The first `lanes` lanes from column `at` of a row of `size` columns on. */
HT_INLINE columns columns_at(int64_t at, int64_t lanes, int64_t size)
{
    const int64_t low = ht_min64(lanes, ht_max64(0, -at));
    return (columns){at, low, ht_max64(low, ht_min64(lanes, size - at))};
}

HT_INLINE vf read_columns(const float *row, columns k)
{
    return vf_load_or(row + k.at, k.low, k.high, vf_set1(0.0f));
}

/* Kernel positions (ky, 0 .. size - 1) of vectors * VF_LANES outputs, stride 2: tap 0 is the even columns, tap 1 the odd
 * ones, and tap 2 the even ones from the next on. */
HT_INLINE void read_taps(const float *row, const columns *from, vf taps[2][3], const int size, const int vectors)
{
    vf even[3];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) {
        const vf left = read_columns(row, from[2 * v]), right = read_columns(row, from[2 * v + 1]);
        even[v] = taps[v][0] = vf_even(left, right);
        if (size == 3)
            taps[v][1] = vf_odd(left, right);
    }
    if (size == 3) {
        even[vectors] = read_columns(row, from[2 * vectors]);
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            taps[v][2] = vf_next(even[v], even[v + 1]);
    }
}

/* sum + the products of kernel row ky. */
HT_INLINE vf add_taps(vf sum, const vf *weight, const vf taps[3], int ky, const int size)
{
#pragma GCC unroll 3
    for (int kx = 0; kx < size; kx++)
        sum = vf_fma(weight[ky * size + kx], taps[kx], sum);
    return sum;
}

/* vectors * VF_LANES columns from x on of output rows [y0, y1) of channel `map`, stride 2. Each input row is read once:
 * the last row of a window is the first row of the next one. */
HT_INLINE void strip(const ht_conv *c, const float *plane, int64_t map, int64_t y0, int64_t y1, int64_t x,
                     const int size, const int vectors)
{
    const float *zeros = c->scratch, *w = c->w + map * size * size;
    const vf bias = vf_set1(c->bias ? c->bias[map] : 0.0f);
    vf weight[9], taps[2][3], acc[2];
    columns from[5];
#pragma GCC unroll 9
    for (int t = 0; t < size * size; t++)
        weight[t] = vf_set1(w[t]);
#pragma GCC unroll 5
    for (int v = 0; v < 2 * vectors + 1; v++) /* the last vector needs only its first column */
        from[v] = columns_at(2 * x - c->pad[2] + v * VF_LANES, v < 2 * vectors ? VF_LANES : 1, c->in[2]);
    int64_t iy = 2 * y0 - c->pad[1];
#define ROW (iy >= 0 && iy < c->in[1] ? plane + iy * c->in[2] : zeros)
    read_taps(ROW, from, taps, size, vectors);
    for (int64_t y = y0; y < y1; y++) {
        const int64_t at = map * c->pixels + y * c->out[2] + x;
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            acc[v] = add_taps(bias, weight, taps[v], 0, size);
        for (int ky = 1; ky < 3; ky++) {
            iy++;
            if (size == 3 || (ky == 2 && y + 1 < y1))
                read_taps(ROW, from, taps, size, vectors);
            if (size == 3)
#pragma GCC unroll 2
                for (int v = 0; v < vectors; v++)
                    acc[v] = add_taps(acc[v], weight, taps[v], ky, size);
        }
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            finish(c, acc[v], at + v * VF_LANES, c->out[2] - x - v * VF_LANES);
    }
#undef ROW
}

/* The same for a 3x3 kernel with stride 1: a row belongs to three output rows. */
HT_INLINE void strip_stride_1(const ht_conv *c, const float *plane, int64_t map, int64_t y0, int64_t y1, int64_t x,
                              const int vectors)
{
    const float *zeros = c->scratch, *w = c->w + map * 9;
    const vf bias = vf_set1(c->bias ? c->bias[map] : 0.0f);
    vf weight[9], first[2], second[2]; /* sums of the next two output rows */
    columns from[2][3];
#pragma GCC unroll 9
    for (int t = 0; t < 9; t++)
        weight[t] = vf_set1(w[t]);
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) {
#pragma GCC unroll 3
        for (int kx = 0; kx < 3; kx++)
            from[v][kx] = columns_at(x - c->pad[2] + v * VF_LANES + kx, VF_LANES, c->in[2]);
        first[v] = second[v] = bias;
    }
    for (int64_t y = y0 - 2; y < y1; y++) {
        const int64_t iy = y + 2 - c->pad[1], at = map * c->pixels + y * c->out[2] + x;
        const float *row = iy >= 0 && iy < c->in[1] ? plane + iy * c->in[2] : zeros;
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            vf taps[3];
#pragma GCC unroll 3
            for (int kx = 0; kx < 3; kx++)
                taps[kx] = vf_keep(read_columns(row, from[v][kx]));
            const vf sum = add_taps(first[v], weight, taps, 2, 3);
            first[v] = add_taps(second[v], weight, taps, 1, 3);
            second[v] = add_taps(bias, weight, taps, 0, 3);
            if (y >= y0)
                finish(c, sum, at + v * VF_LANES, c->out[2] - x - v * VF_LANES);
        }
    }
}

#define STRIPS(size)                                                                                                  \
    static void strips_##size(const ht_conv *c, const float *plane, int64_t map, int64_t y0, int64_t y1)              \
    {                                                                                                                 \
        int64_t x = 0;                                                                                                \
        for (; x + VF_LANES < c->out[2]; x += 2 * VF_LANES)                                                           \
            strip(c, plane, map, y0, y1, x, size, 2);                                                                 \
        if (x < c->out[2])                                                                                            \
            strip(c, plane, map, y0, y1, x, size, 1);                                                                 \
    }
#if defined(__AVX512F__) /* in_place: 3x3 */
STRIPS(3)

static void strips_stride_1(const ht_conv *c, const float *plane, int64_t map, int64_t y0, int64_t y1)
{
    int64_t x = 0;
    for (; x + VF_LANES < c->out[2]; x += 2 * VF_LANES)
        strip_stride_1(c, plane, map, y0, y1, x, 2);
    if (x < c->out[2])
        strip_stride_1(c, plane, map, y0, y1, x, 1);
}

#else
#define strips_3 NULL
#define strips_stride_1 NULL
#endif
#if defined(__AVX2__) /* in_place: 1x1 */
STRIPS(1)
#else
#define strips_1 NULL
#endif

static void depthwise_in_place(const ht_conv *c, int64_t group0, int64_t group1)
{
    enum { OUTPUTS = 1024 }; /* of a block: many rows read once, few enough for the L1 cache */
    const int64_t width = c->out[2], block = ht_ceil_div(OUTPUTS, width);
    memset(c->scratch, 0, (size_t)c->in[2] * sizeof(float)); /* what rows outside the input hold */
    int64_t left = HT_PACE;
    void (*const strips)(const ht_conv *, const float *, int64_t, int64_t, int64_t) =
        c->stride[1] == 1 ? strips_stride_1 : c->kernel[2] == 1 ? strips_1 : strips_3;
    for (int64_t g = group0; g < group1; g++)
        for (int64_t y0 = 0; y0 < c->out[1]; y0 += block) {
            const int64_t y1 = ht_min64(y0 + block, c->out[1]);
            if (ht_paced_stop(&left, (y1 - y0) * width * c->taps))
                return;
            for (int64_t i = g * c->out_channels; i < (g + 1) * c->out_channels; i++) {
                strips(c, c->x + g * c->in_plane, i, y0, y1);
                if (!ht_conv_is_final(c))
                    ht_conv_finish(c, i, i * c->pixels + y0 * width, (y1 - y0) * width);
            }
        }
}

void ht_conv_depthwise(const ht_conv *c, int64_t group0, int64_t group1)
{
    if (ht_conv_square_fits(c)) {
        ht_conv_square(c, group0, group1);
        return;
    }
    if (in_place(c)) {
        depthwise_in_place(c, group0, group1);
        return;
    }
    layout l;
    int32_t offsets[MAX_TAPS];
    block_layout(c, &l);
    int64_t tap = 0;
    for (int64_t kz = 0; kz < c->kernel[0]; kz++)
        for (int64_t ky = 0; ky < c->kernel[1]; ky++)
            for (int64_t kx = 0; kx < c->kernel[2]; kx++)
                offsets[tap++] = (int32_t)((kz * l.height + ky * c->dilation[1]) * l.split.row +
                                           ht_split_at(&l.split, kx * c->dilation[2], c->stride[2]));
    /* Several groups are copied before the first is computed, because a load that spans two vectors just stored waits
     * until both reach the cache. */
    const int64_t batch = ht_min64(group1 - group0, ht_max64(1, BLOCK_FLOATS / l.copies));
    for (int64_t i = 0; i < batch * l.copies; i += VF_LANES)
        vf_store(c->scratch + i, vf_set1(0.0f));
    int64_t left = HT_PACE;
    for (int64_t first = group0; first < group1; first += batch) {
        const int64_t last = ht_min64(first + batch, group1);
        for (int64_t z = 0; z < c->out[0]; z++)
            for (int64_t y = 0; y < c->out[1]; y += l.rows) {
                const int64_t rows = ht_min64(l.rows, c->out[1] - y);
                if (ht_paced_stop(&left, (last - first) * rows * c->out[2] * c->taps))
                    return;
                for (int64_t g = first; g < last; g++)
                    copy_rows(c, &l, c->x + g * c->in_plane, z, y, rows, c->scratch + (g - first) * l.copies);
                for (int64_t g = first; g < last; g++)
                    compute_rows(c, &l, offsets, c->scratch + (g - first) * l.copies, g, z, y, rows);
            }
    }
}
