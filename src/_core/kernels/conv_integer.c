/* Convolution of 8-bit integers with exact 32-bit sums, of 1 to 3 spatial dimensions: conv_integer, and what
 * pack_integer.c packs for it.
 *
 * There is no im2col matrix. pack_pixels writes the image once, padded with its zero point, in *quads* of four adjacent
 * channels of a pixel. A vector then holds adjacent pixels, and one tap of adjacent outputs is one such vector, at an
 * offset that depends only on the tap (find_steps). With a stride s > 1, one tap of adjacent outputs reads every s-th
 * pixel, so pixels are split into *phases*: positions with the same remainder modulo s are adjacent. Rows and planes are
 * stored one after another, and outputs are numbered across all of them; those beyond the end of a row, which have no
 * window, are computed and dropped (find_runs). If a group has a single channel, its quads are four adjacent pixels of
 * the last axis instead, with one copy of the image for every four taps along that axis.
 *
 * The product uses tiles as in integer_micro.c: filters are broadcast against pixels. Without VNNI, filters that are not
 * small are widened first. With AVX2 and at least 48 pixels, five filters at a time are expanded to vectors if at least three
 * quarters of all filters are small or nearly small: as tiny filters if all are small, else as small ones. Parts of quads that
 * are too large for this are taken out, and their products added afterwards. With AMX (integer_tiles.h), the quads of all steps
 * are first gathered for 32 pixels, and all filters are multiplied with this copy.
 * Cost: filters * pixels * taps * channels / 4 lanes of products, plus writing the image once.
 *
 * ints of all three kernels: group, channels of a group, then triples (see spatial.h) kernel, strides, pads before,
 * dilations, sizes of the output.
 *
 * conv_integer: in x packed; w packed; x's zero point; bias[M] int32 or NULL; then, if y is int8 or uint8: scale
 *   float32, one or M, and y's zero point, one, and the bias may be float32, in units of y. out y[N][M][spatial]
 *   int32, or the result of requantize. scratch: ht_scratch_filters bytes.
 */
#include "blocks.h"
#include "elements.h"
#include "integer_tiles.h"
#include "integer_vec.h"
#include "requantize.h"
#include "spatial.h"
#include "tiny_filters.h"

/* The whole call: a product of filters and pixels for each group of each image. */
typedef struct {
    const ht_call *call;
    ht_quad_layout l;
    int64_t maps, group_maps; /* filters in total, and per group */
    int64_t pixels;           /* numbered across rows and planes */
    uint8_t zero;             /* of x, as it is stored */
    int as_bytes;             /* whether tiles read the filters as they are: with VNNI, or if all are small */
    int expands;              /* whether tiles read most filters as vectors */
    ht_blocks blocks;         /* rows: filters; columns: pixels */
} conv;

/* The offset of each quad of a window in bytes, from the window's first quad. An odd number ends with a 0, for tiles that take
 * two at a time. */
static void find_steps(const ht_quad_layout *l, int64_t *steps)
{
    int64_t at[3];
    for (int64_t q = 0; q < l->quads; q++)
        for (int64_t z = 0; z < l->kernel[0]; z++)
            for (int64_t y = 0; y < l->kernel[1]; y++)
                for (int64_t x = 0; x < (l->thin ? l->phases[2] : l->kernel[2]); x++) {
                    const int64_t tap[3] = {z, y, x};
                    int64_t phase = 0, position = 0;
                    for (int d = 0; d < 3; d++) {
                        at[d] = l->thin && d == 2 ? 0 : tap[d] * l->dilation[d] / l->stride[d];
                        phase = phase * l->phases[d] + tap[d] % l->period[d];
                        position = position * l->length[d] + at[d];
                    }
                    *steps++ = q * l->plane + HT_QUAD * (phase * l->length[0] * l->length[1] * l->length[2] + position);
                }
    if (l->steps % 2)
        *steps = 0;
}

typedef struct {
    int64_t from, count, to; /* columns of a tile, and their position in an output's plane */
} run;

/* Finds the runs of existing pixels within [first, first + HT_INTEGER_WIDTH). */
static int64_t find_runs(const ht_quad_layout *l, int64_t first, int64_t pixels, run *runs)
{
    if (l->length[1] == l->out[1] && l->length[2] == l->out[2]) { /* rows have no ends to be dropped */
        *runs = (run){0, ht_min64(HT_INTEGER_WIDTH, pixels - first), first};
        return 1;
    }
    int64_t num = 0, x = first % l->length[2], y = first / l->length[2] % l->length[1];
    int64_t z = first / l->length[2] / l->length[1];
    const int64_t end = ht_min64(HT_INTEGER_WIDTH, pixels - first);
    for (int64_t at = 0; at < end;) {
        const int64_t count = ht_min64(end - at, l->length[2] - x), inside = ht_min64(count, l->out[2] - x);
        if (inside > 0 && y < l->out[1]) {
            const int64_t to = (z * l->out[1] + y) * l->out[2] + x;
            if (num > 0 && runs[num - 1].from + runs[num - 1].count == at && runs[num - 1].to + runs[num - 1].count == to)
                runs[num - 1].count += inside;
            else
                runs[num++] = (run){at, inside, to};
        }
        at += count;
        x = 0;
        if (++y == l->length[1]) {
            y = 0;
            z++;
        }
    }
    return num;
}

/* Two copies that may overlap replace a call of memcpy, which takes longer than so few bytes. 1 <= n <= 32. */
HT_INLINE void copy_short(uint8_t *to, const uint8_t *from, int64_t n)
{
    if (n >= 16) {
        memcpy(to, from, 16);
        memcpy(to + n - 16, from + n - 16, 16);
    } else if (n >= 8) {
        memcpy(to, from, 8);
        memcpy(to + n - 8, from + n - 8, 8);
    } else if (n >= 4) {
        memcpy(to, from, 4);
        memcpy(to + n - 4, from + n - 4, 4);
    } else {
        for (int64_t i = 0; i < n; i++)
            to[i] = from[i];
    }
}
_Static_assert(HT_INTEGER_WIDTH <= 32, "copy_short");

/* Pixels of a group that stay in a cache while its filters stream past: the L1 cache if the filters are read as they are,
 * a part of the L2 cache if they have to be widened or expanded again for each chunk. */
HT_INLINE int64_t chunk_pixels(const ht_quad_layout *l, int as_bytes)
{
    enum { LEAST = 64 }; /* pixels, of images with many channels: whole tiles */
    const int64_t chunk = as_bytes && !HT_TINY_TILES ? 1 << 15 : 1 << 18;
    const int64_t bytes = HT_QUAD * l->quads * l->phases[0] * l->phases[1] * l->phases[2];
    return ht_max64(LEAST, chunk / ht_max64(1, bytes) / HT_INTEGER_WIDTH * HT_INTEGER_WIDTH);
}

/* Sums of HT_INTEGER_WIDTH pixels for `rows` filters to bytes. scales: of the filters, scale_step apart; likewise offsets. */
HT_INLINE void requantize_rows(const int32_t *c, int64_t rows, const float *scales, int64_t scale_step, const float *offsets,
                               int64_t offset_step, int32_t zero, const int is_signed, uint8_t *y, int64_t y_row)
{
#if defined(__AVX2__) && !defined(__AVX512F__)
    _Static_assert(2 * HT_INTEGER_WIDTH == HT_BYTES_TOGETHER, "two rows");
    for (int64_t r = 0; r < rows; r += 2) {
        const int64_t row[2] = {r, r + 1 < rows ? r + 1 : r};
        uint8_t both[HT_BYTES_TOGETHER];
        vf v[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const vi sums = load((const uint8_t *)(c + row[i / 2] * HT_INTEGER_WIDTH + i % 2 * VF_LANES));
            v[i] = vf_fma(vi_to_float(sums), vf_set1(scales[row[i / 2] * scale_step]), vf_set1(offsets[row[i / 2] * offset_step]));
        }
        ht_round_to_bytes(v, zero, is_signed, both);
        memcpy(y + r * y_row, both, HT_INTEGER_WIDTH);
        memcpy(y + row[1] * y_row, both + HT_INTEGER_WIDTH, HT_INTEGER_WIDTH);
    }
#else
    for (int64_t r = 0; r < rows; r++)
        ht_requantize_row(c + r * HT_INTEGER_WIDTH, scales + r * scale_step, 0, offsets + r * offset_step, 0, zero, is_signed,
                          y + r * y_row, HT_INTEGER_WIDTH);
#endif
}

#if HT_TINY_TILES
/* Parts of quads that are taken out of the filters of a tile, so that the others are tiny or small. */
typedef struct {
    int64_t offset; /* of the quad of the image, as in `steps` */
    uint32_t quad;  /* small */
} left_quad;

typedef struct {
    left_quad *quads;
    int64_t begin[HT_TINY_ROWS + 1]; /* of each filter */
} left_quads;

enum {
    STEPS_PER_LEFT = 16,       /* with more than one left quad for so many steps, small tiles are faster than tiny ones */
    LEAST_EXPANDED_PIXELS = 48 /* that pay for writing the filters as vectors */
};
_Static_assert(sizeof(left_quad) == 16 && STEPS_PER_LEFT >= HT_NEARLY && HT_NEARLY == 6, "ht_left_bytes");

/* Adjacent bytes, of two quads and within each of them, whose positive or negative numbers add up to too much: bits of pairs. */
HT_INLINE int find_large(const uint8_t *quads, const int of_two)
{
    const __m128i v = _mm_loadl_epi64((const __m128i *)(const void *)quads), none = _mm_setzero_si128(), ones = _mm_set1_epi8(1);
    __m128i above = _mm_maddubs_epi16(_mm_max_epi8(v, none), ones), below = _mm_maddubs_epi16(ones, _mm_min_epi8(v, none));
    if (of_two) { /* in the lower two words */
        above = _mm_add_epi16(above, _mm_srli_epi64(above, 32));
        below = _mm_add_epi16(below, _mm_srli_epi64(below, 32));
    }
    const __m128i most = _mm_set1_epi16(128), least = _mm_set1_epi16(-128);
    const int large = _mm_movemask_epi8(_mm_or_si128(_mm_cmpgt_epi16(above, most), _mm_cmpgt_epi16(least, below)));
    return large & (of_two ? 0x0f : 0xff);
}

/* Writes the quads of `rows` filters, `filter` bytes apart, as ht_expanded_window_tiles read them: for every two quads, those of
 * each filter as vectors. tiny: the filters are small; odd quads that are too large beside an even one are left. Otherwise, two
 * bytes of quads that are not small are left. Returns 0 if too many would be left. */
static int expand(const uint8_t *w, int64_t filter, int64_t rows, const int64_t *steps, int64_t count, const int tiny, vi *to,
                  left_quads *left)
{
    const int64_t most = rows * count / (tiny ? STEPS_PER_LEFT : HT_NEARLY);
    int64_t found = 0;
    for (int64_t r = 0; r < rows; r++, w += filter) {
        int32_t word;
        memcpy(&word, w + filter - HT_QUAD, sizeof word);
        const int checked = !(word & (tiny ? HT_IS_TINY : HT_IS_SMALL));
        left->begin[r] = found;
        for (int64_t q = 0; q < count; q += 2) {
            vi *pair = to + q * rows + 2 * r;
            if (HT_LIKELY(q + 1 < count) && (!checked || !find_large(w + HT_QUAD * q, tiny))) {
                pair[0] = everywhere(w + HT_QUAD * q);
                pair[1] = everywhere(w + HT_QUAD * (q + 1));
                continue;
            }
            uint32_t quads[2] = {0, 0};
            memcpy(quads, w + HT_QUAD * q, (size_t)(HT_QUAD * ht_min64(2, count - q)));
            const int large = checked ? find_large((const uint8_t *)quads, tiny) : 0;
            for (int i = 0; large && i < 2; i++) {
                const uint32_t taken = tiny ? (i == 1 ? UINT32_MAX : 0) : (large >> (4 * i) & 0x0f) ? 0xff00ff00u : 0;
                if (!taken)
                    continue;
                if (found == most)
                    return 0;
                left->quads[found].offset = steps[q + i];
                left->quads[found++].quad = quads[i] & taken;
                quads[i] &= ~taken;
            }
            pair[0] = vi_set1((int32_t)quads[0]);
            pair[1] = vi_set1((int32_t)quads[1]);
        }
    }
    left->begin[rows] = found;
    return 1;
}

/* Adds the products of left quads [begin, end) to the sums of a filter. */
static void add_left(const left_quad *quads, int64_t begin, int64_t end, const uint8_t *x, int32_t *c)
{
    vi acc[2] = {load((const uint8_t *)c), load((const uint8_t *)(c + VF_LANES))};
    _Static_assert(HT_INTEGER_WIDTH == 2 * VF_LANES, "two vectors");
    for (int64_t i = begin; i < end; i++)
        for (int j = 0; j < 2; j++)
            acc[j] = multiply_quads(acc[j], load(x + quads[i].offset + j * VECTOR_BYTES), vi_set1((int32_t)quads[i].quad));
    for (int j = 0; j < 2; j++)
        vf_store((float *)(void *)(c + j * VF_LANES), vi_as_float(acc[j]));
}
#endif

/* Filters [map, map + maps) of group g of image n, pixels [p0, p1). */
static void convolve_block(const conv *job, int64_t n, int64_t g, int64_t map, int64_t maps, int64_t p0, int64_t p1,
                           const int64_t *steps, uint8_t *scratch)
{
    const ht_tensor *const *in = job->call->in, *y = job->call->out[0];
    const ht_quad_layout *l = &job->l;
    const int64_t filter = HT_QUAD * (l->steps + 2), depth = l->channels * l->kernel[0] * l->kernel[1] * l->kernel[2];
    const uint8_t *x = (const uint8_t *)in[0]->data + (n * l->group + g) * l->quads * l->plane;
    const uint8_t *w = (const uint8_t *)in[1]->data;
    const int32_t *bias = ht_bias_of(in[3]);
    int64_t height = HT_INTEGER_ROWS;
#if HT_TINY_TILES
    height = job->expands ? HT_TINY_ROWS : height;
#endif
    const int64_t tiles = ht_ceil_div(maps, height); /* of nearly equal height */
    for (int64_t tile = 0; tile < tiles; tile++) {
        const int64_t m0 = map + ht_part_begin(maps, tiles, tile), first = g * job->group_maps + m0;
        const int64_t rows = map + ht_part_begin(maps, tiles, tile + 1) - m0;
        int32_t start[HT_INTEGER_ROWS], zeros[HT_INTEGER_ROWS], any_zero = 0;
        ht_integer_tile t = {.a = w + first * filter, .a_row = filter, .b_panel = HT_PANEL_BYTES, .steps = steps,
                             .quads = l->steps};
        for (int64_t r = 0; r < rows; r++) {
            uint32_t of_filter[2];
            memcpy(of_filter, w + (first + r) * filter + HT_QUAD * l->steps, sizeof of_filter);
            zeros[r] = ht_zero_point((int32_t)of_filter[1]);
            start[r] = (int32_t)((bias ? (uint32_t)bias[first + r] : 0u) - job->zero * of_filter[0] +
                                 (uint32_t)depth * job->zero * (uint32_t)zeros[r]);
            any_zero |= zeros[r];
        }
        int as_bytes = job->as_bytes;
#if HT_TINY_TILES
        int expanded = 0, tiny = 0;
        left_quads left = {.quads = (left_quad *)(void *)scratch};
        if (job->expands && p1 - p0 >= LEAST_EXPANDED_PIXELS) {
            vi *vectors = (vi *)(void *)(scratch + ht_left_bytes(l->steps));
            tiny = job->as_bytes && expand(t.a, filter, rows, steps, l->steps, 1, vectors, &left);
            expanded = tiny || expand(t.a, filter, rows, steps, l->steps, 0, vectors, &left);
            t.a = expanded ? (const uint8_t *)vectors : t.a;
            as_bytes |= expanded;
        }
#endif
        if (!as_bytes) {
            int16_t *widened = (int16_t *)(void *)scratch, *ones = widened + HT_INTEGER_ROWS * l->steps * HT_QUAD;
            if (any_zero) /* in 16 bits, filters can include their zero points: a filter of ones says where there are weights */
                (void)ht_prepare_quads(w + job->maps * filter, HT_QUAD * l->steps, 0, 1, 0, (uint8_t *)ones);
            for (int64_t r = 0; r < rows; r++) {
                int16_t *row = widened + r * l->steps * HT_QUAD;
                (void)ht_prepare_quads(w + (first + r) * filter, HT_QUAD * l->steps, 0, 1, 0, (uint8_t *)row);
                for (int64_t i = 0; zeros[r] && i < l->steps * HT_QUAD; i++)
                    row[i] = (int16_t)(row[i] - zeros[r] * ones[i]);
            }
            any_zero = 0;
            t.a = scratch;
            t.a_row = l->steps * HT_A_QUAD;
        }
        for (int64_t p = p0; p < p1; p += HT_INTEGER_WIDTH) {
            const int64_t columns = ht_min64(HT_INTEGER_WIDTH, p1 - p);
            int32_t c[HT_INTEGER_ROWS * HT_INTEGER_WIDTH];
            run runs[HT_INTEGER_WIDTH];
            const int64_t num_runs = find_runs(l, p, p1, runs);
            if (num_runs == 0)
                continue; /* the chunk contains only ends of rows */
            t.start = start;
            t.b = x + HT_QUAD * p;
            if (HT_UNLIKELY(any_zero)) { /* a filter of ones gives the sum over each window */
                int32_t sums[HT_INTEGER_WIDTH] = {0};
                ht_integer_tile ones = t;
                t.start = ones.start = NULL;
                ones.a = w + job->maps * filter;
                ones.c = sums;
                ht_integer_rows(ht_tiles_for(1, as_bytes), &ones, 1, columns);
                for (int64_t r = 0; r < rows; r++)
                    for (int64_t j = 0; j < HT_INTEGER_WIDTH; j++)
                        c[r * HT_INTEGER_WIDTH + j] = (int32_t)((uint32_t)start[r] - (uint32_t)zeros[r] * (uint32_t)sums[j]);
            }
            t.c = c;
#if HT_TINY_TILES
            if (expanded) {
                ht_expanded_window_tiles[tiny][rows - 1](&t);
                for (int64_t r = 0; r < rows; r++)
                    if (left.begin[r] < left.begin[r + 1])
                        add_left(left.quads, left.begin[r], left.begin[r + 1], t.b, c + r * HT_INTEGER_WIDTH);
            } else
#endif
                ht_integer_rows(ht_tiles_for(1, as_bytes), &t, rows, columns);
            const int64_t plane = (n * job->maps + first) * l->out_size;
            if (y->dtype == HT_INT32) {
                for (int64_t r = 0; r < rows; r++)
                    for (int64_t i = 0; i < num_runs; i++)
                        memcpy((int32_t *)y->data + plane + r * l->out_size + runs[i].to, c + r * HT_INTEGER_WIDTH + runs[i].from,
                               (size_t)runs[i].count * sizeof *c);
                continue;
            }
            uint8_t bytes[HT_INTEGER_ROWS * HT_INTEGER_WIDTH], *to = (uint8_t *)y->data + plane;
            const int whole = runs[0].count == HT_INTEGER_WIDTH;
            const int64_t scale_step = in[4]->size != 1;
            int64_t offset_step;
            const float *offsets = ht_offset_of(in[3], first, &offset_step);
            requantize_rows(c, rows, (const float *)in[4]->data + first * scale_step, scale_step, offsets, offset_step,
                            ht_byte_at(in[5], 0), y->dtype == HT_INT8, whole ? to + runs[0].to : bytes,
                            whole ? l->out_size : HT_INTEGER_WIDTH);
            for (int64_t r = 0; !whole && r < rows; r++, to += l->out_size)
                for (int64_t i = 0; i < num_runs; i++)
                    copy_short(to + runs[i].to, bytes + r * HT_INTEGER_WIDTH + runs[i].from, runs[i].count);
        }
    }
}

#if HT_TILES
_Static_assert(HT_WINDOW_PIXELS == HT_INTEGER_WIDTH && HT_TILE_QUADS == 16, "what ht_window_block counts");

/* Gathers the windows of 32 pixels, of which `columns` exist: the quads of each step side by side, then zeros to the end of
 * the last tile, then, if `ones` (a packed filter), the sum over each window. */
static void gather_windows(const uint8_t *x, const int64_t *steps, int64_t count, int64_t columns, const uint8_t *ones,
                           uint8_t *to)
{
    enum { ROW = HT_WINDOW_PIXELS * HT_QUAD };
    const int64_t padded = ht_ceil_div(count, HT_TILE_QUADS) * HT_TILE_QUADS;
    vi sums[2][2] = {{vi_set1(0), vi_set1(0)}, {vi_set1(0), vi_set1(0)}};
    const int64_t second = columns > HT_PANEL ? HT_PANEL_BYTES : 0; /* no panel is read that has no pixel */
    for (int64_t q = 0; q < count; q++) {
        const vi v0 = load(x + steps[q]), v1 = load(x + steps[q] + second);
        _mm512_storeu_si512(to + q * ROW, v0);
        _mm512_storeu_si512(to + q * ROW + HT_PANEL_BYTES, v1);
        if (ones) {
            const vi weights = everywhere(ones + HT_QUAD * q);
            sums[q & 1][0] = multiply_quads(sums[q & 1][0], v0, weights);
            sums[q & 1][1] = multiply_quads(sums[q & 1][1], v1, weights);
        }
    }
    memset(to + count * ROW, 0, (size_t)((padded - count) * ROW));
    for (int v = 0; ones && v < 2; v++)
        _mm512_storeu_si512(to + padded * ROW + v * HT_PANEL_BYTES, vi_add(sums[0][v], sums[1][v]));
}

/* Sums of 32 pixels for `rows` filters, plus a start value each, to bytes. scales: of the filters, scale_step apart;
 * likewise offsets. */
static void requantize_filters(const int32_t *c, int64_t rows, const int32_t *start, const float *scales, int64_t scale_step,
                               const float *offsets, int64_t offset_step, int32_t zero, int is_signed, uint8_t *y,
                               int64_t y_row)
{
    const __m512 highest = _mm512_set1_ps((float)((is_signed ? INT8_MAX : UINT8_MAX) - zero));
    const __m512i zeros = _mm512_set1_epi16((int16_t)zero);
    for (int64_t r = 0; r < rows; r += 2) {
        const int64_t row[2] = {r, r + 1 < rows ? r + 1 : r};
        __m512 v[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const __m512i sums = _mm512_loadu_si512(c + row[i / 2] * HT_INTEGER_WIDTH + i % 2 * HT_PANEL);
            v[i] = vf_fma(_mm512_cvtepi32_ps(vi_add(sums, vi_set1(start[row[i / 2]]))),
                          _mm512_set1_ps(scales[row[i / 2] * scale_step]), _mm512_set1_ps(offsets[row[i / 2] * offset_step]));
        }
        const __m512i bytes = ht_requantize_pair(v, highest, zeros, is_signed);
        _mm256_storeu_si256((__m256i *)(void *)(y + r * y_row), _mm512_castsi512_si256(bytes));
        _mm256_storeu_si256((__m256i *)(void *)(y + row[1] * y_row), _mm512_extracti64x4_epi64(bytes, 1));
    }
}

/* convolve_block for at least HT_TILES_LEAST_ROWS filters, with room for all windows of the pixels in `windows`. */
static void convolve_tiles(const conv *job, int64_t n, int64_t g, int64_t map, int64_t maps, int64_t p0, int64_t p1,
                           const int64_t *steps, uint8_t *windows)
{
    const ht_tensor *const *in = job->call->in, *y = job->call->out[0];
    const ht_quad_layout *l = &job->l;
    const int64_t filter = HT_QUAD * (l->steps + 2), depth = l->channels * l->kernel[0] * l->kernel[1] * l->kernel[2];
    const int64_t tiles = ht_ceil_div(l->steps, HT_TILE_QUADS), block = ht_window_block(l->steps);
    const uint8_t *x = (const uint8_t *)in[0]->data + (n * l->group + g) * l->quads * l->plane;
    const uint8_t *w = (const uint8_t *)in[1]->data, *first_filter = w + (g * job->group_maps + map) * filter;
    const int32_t *bias = ht_bias_of(in[3]);
    const int to_bytes = y->dtype != HT_INT32;
    const int in_place = l->steps >= HT_TILE_QUADS; /* else a row's tile may extend past the filter of ones after the last */
    int32_t any_zero = 0;
    for (int64_t r = 0; r < maps; r++) {
        int32_t zero;
        memcpy(&zero, first_filter + r * filter + HT_QUAD * (l->steps + 1), sizeof zero);
        any_zero |= ht_zero_point(zero);
    }
    run runs[HT_INTEGER_WIDTH];
    for (int64_t p = p0; p < p1; p += HT_WINDOW_PIXELS)
        if (find_runs(l, p, p1, runs) > 0)
            gather_windows(x + HT_QUAD * p, steps, l->steps, p1 - p, any_zero ? w + job->maps * filter : NULL,
                           windows + (p - p0) / HT_WINDOW_PIXELS * block);
    ht_integer_tiles_begin(maps);
    for (int64_t r = 0, rows; r < maps; r += rows) {
        rows = ht_next_tile_rows(maps - r);
        const int64_t first = g * job->group_maps + map + r;
        const uint8_t *a = w + first * filter;
        int32_t start[HT_TILE_PAIR], zeros[HT_TILE_PAIR], c[HT_TILE_PAIR * HT_INTEGER_WIDTH] __attribute__((aligned(64)));
        uint8_t copied[HT_TILE_PAIR * HT_TILE_K] __attribute__((aligned(64)));
        for (int64_t i = 0; i < rows; i++) {
            uint32_t of_filter[2];
            memcpy(of_filter, a + i * filter + HT_QUAD * l->steps, sizeof of_filter);
            zeros[i] = ht_zero_point((int32_t)of_filter[1]);
            start[i] = (int32_t)((bias ? (uint32_t)bias[first + i] : 0u) - job->zero * of_filter[0] +
                                 (uint32_t)depth * job->zero * (uint32_t)zeros[i]);
            if (!in_place) { /* zeros after the quads are as good as what lies there */
                memset(copied + i * HT_TILE_K, 0, HT_TILE_K);
                memcpy(copied + i * HT_TILE_K, a + i * filter, (size_t)(HT_QUAD * l->steps));
            }
        }
        ht_tile_product t = {.a = in_place ? a : copied, .a_row = in_place ? filter : HT_TILE_K, .a_step = HT_TILE_K,
                             .b_row = 2 * HT_PANEL_BYTES, .b_step = 2 * HT_TILE_BYTES, .tiles = tiles, .c = c,
                             .c_row = HT_INTEGER_WIDTH * (int64_t)sizeof *c};
        for (int64_t p = p0; p < p1; p += HT_WINDOW_PIXELS) {
            const int64_t num_runs = find_runs(l, p, p1, runs);
            if (num_runs == 0)
                continue; /* the block contains only ends of rows */
            const uint8_t *b = windows + (p - p0) / HT_WINDOW_PIXELS * block;
            for (int v = 0; v < 2; v++) {
                t.b[v] = b + v * HT_PANEL_BYTES;
                t.last[v] = t.b[v] + (tiles - 1) * 2 * HT_TILE_BYTES;
            }
            ht_tiles_multiply(&t, rows, p1 - p > HT_PANEL, 1);
            const int32_t *sums = (const int32_t *)(const void *)(b + tiles * 2 * HT_TILE_BYTES);
            for (int64_t i = 0; any_zero && i < rows; i++)
                for (int64_t j = 0; j < HT_INTEGER_WIDTH; j++)
                    c[i * HT_INTEGER_WIDTH + j] =
                        (int32_t)((uint32_t)c[i * HT_INTEGER_WIDTH + j] - (uint32_t)zeros[i] * (uint32_t)sums[j]);
            const int64_t plane = (n * job->maps + first) * l->out_size;
            if (!to_bytes) {
                for (int64_t i = 0; i < rows; i++)
                    for (int64_t k = 0; k < num_runs; k++) {
                        const uint32_t *from = (const uint32_t *)c + i * HT_INTEGER_WIDTH + runs[k].from;
                        uint32_t *to = (uint32_t *)y->data + plane + i * l->out_size + runs[k].to;
                        for (int64_t j = 0; j < runs[k].count; j++)
                            to[j] = from[j] + (uint32_t)start[i];
                    }
                continue;
            }
            uint8_t bytes[HT_TILE_PAIR * HT_INTEGER_WIDTH], *to = (uint8_t *)y->data + plane;
            const int whole = runs[0].count == HT_INTEGER_WIDTH;
            const int64_t scale_step = in[4]->size != 1;
            int64_t offset_step;
            const float *offsets = ht_offset_of(in[3], first, &offset_step);
            requantize_filters(c, rows, start, (const float *)in[4]->data + first * scale_step, scale_step, offsets,
                               offset_step, ht_byte_at(in[5], 0), y->dtype == HT_INT8, whole ? to + runs[0].to : bytes,
                               whole ? l->out_size : HT_INTEGER_WIDTH);
            for (int64_t i = 0; !whole && i < rows; i++, to += l->out_size)
                for (int64_t k = 0; k < num_runs; k++)
                    copy_short(to + runs[k].to, bytes + i * HT_INTEGER_WIDTH + runs[k].from, runs[k].count);
        }
    }
    ht_tiles_end();
}
#endif

static void convolve_part(void *context, int64_t part, int thread)
{
    const conv *job = (const conv *)context;
    int64_t *steps = ht_scratch(job->call, thread);
    find_steps(&job->l, steps);
    const ht_blocks *blocks = &job->blocks;
    const int64_t end = ht_part_begin(blocks->units, blocks->parts, part + 1);
    uint8_t *rest = (uint8_t *)steps + ht_offset_bytes(job->l.steps);
#if HT_TILES
    const int64_t room = (job->call->scratch_bytes - ht_offset_bytes(job->l.steps)) / ht_window_block(job->l.steps);
#endif
    for (int64_t unit = ht_part_begin(blocks->units, blocks->parts, part); unit < end; unit++) {
        const ht_block b = ht_block_of(blocks, unit);
        const int64_t last = b.column + b.columns;
        const int64_t n = b.matrix / job->l.group, g = b.matrix % job->l.group;
#if HT_TILES
        if (b.rows >= HT_TILES_LEAST_ROWS && job->l.steps > 0) {
            const int64_t chunk = room * HT_WINDOW_PIXELS;
            for (int64_t p = b.column; p < last && !ht_stopping(); p += chunk)
                convolve_tiles(job, n, g, b.row, b.rows, p, ht_min64(p + chunk, last), steps, rest);
            continue;
        }
#endif
        const int64_t chunk = chunk_pixels(&job->l, job->as_bytes);
        for (int64_t p = b.column; p < last && !ht_stopping(); p += chunk)
            convolve_block(job, n, g, b.row, b.rows, p, ht_min64(p + chunk, last), steps, rest);
    }
}

int HT_KERNEL(conv_integer)(const ht_call *call)
{
    conv job = {.call = call};
    if ((call->num_in != 4 && call->num_in != 6) || call->num_out != 1 ||
        !ht_quad_layout_of(&job.l, call->ints, call->num_ints))
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0], *w = call->in[1], *zero = call->in[2], *bias = call->in[3], *y = call->out[0];
    const ht_quad_layout *l = &job.l;
    ht_window shape;
    if (x->dtype != HT_UINT8 || w->dtype != HT_UINT8 || (zero->dtype != HT_INT8 && zero->dtype != HT_UINT8) ||
        !ht_bias_fits(bias, call->num_in == 6))
        return HT_ERR_DTYPE;
    if (call->num_in == 4 ? y->dtype != HT_INT32 : (y->dtype != HT_INT8 && y->dtype != HT_UINT8))
        return HT_ERR_DTYPE;
    if (!ht_window_shapes(&shape, y, y) || shape.c % l->group || zero->size != 1)
        return HT_ERR_OPERAND;
    job.maps = shape.c;
    job.group_maps = job.maps / l->group;
    for (int d = 0; d < 3; d++)
        if (shape.in[d] != call->ints[14 + d])
            return HT_ERR_OPERAND;
    if (call->num_in == 6) {
        const ht_tensor *scale = call->in[4], *y_zero = call->in[5];
        if (scale->dtype != HT_FLOAT32 || y_zero->dtype != y->dtype)
            return HT_ERR_DTYPE;
        if ((scale->size != 1 && scale->size != job.maps) || y_zero->size != 1)
            return HT_ERR_OPERAND;
    }
    if (y->size == 0)
        return HT_OK;
    if (x->size != ht_pixel_bytes(l, shape.n) || w->size != ht_filter_bytes(l, job.maps) ||
        (bias && bias->size != job.maps) ||
        call->scratch_bytes < ht_scratch_filters(l->steps, ht_numbered_pixels(l)))
        return HT_ERR_OPERAND;
    if (l->pointwise)
        ht_as_one_row(&job.l);
    job.zero = *(const uint8_t *)zero->data ^ (zero->dtype == HT_UINT8 ? 0 : 0x80);
    job.pixels = ht_numbered_pixels(l);
    const int64_t filter = HT_QUAD * (l->steps + 2);
    job.as_bytes = HT_VNNI || ht_all_small((const uint8_t *)w->data + filter - HT_QUAD, job.maps, filter);
#if HT_TINY_TILES
    int64_t nearly = 0;
    for (int64_t m = 0; m < job.maps; m++) {
        int32_t word;
        memcpy(&word, (const uint8_t *)w->data + (m + 1) * filter - HT_QUAD, sizeof word);
        nearly += (word & (HT_IS_SMALL | HT_IS_NEARLY_SMALL)) != 0;
    }
    job.expands = 4 * nearly >= 3 * job.maps; /* else most tiles would have fewer rows than they could */
#endif
    const double cost = (double)shape.n * (double)job.maps * (double)job.pixels * (double)l->steps;
    job.blocks = ht_divide(call, shape.n * l->group, job.group_maps, job.pixels, HT_TILES ? 16 : HT_INTEGER_ROWS, HT_INTEGER_WIDTH,
                           INT64_MAX, cost, 0);
    ht_parallel(call->team, job.blocks.parts, convolve_part, &job);
    return HT_OK;
}
