/* Packs the operands of conv_integer.c: pack_pixels, pack_filters. That file explains the layouts and the parameters,
 * which are the same.
 *
 * pack_pixels: in x[N][C][spatial] int8 or uint8; its zero point, one. out uint8 of N * group * quads * plane * 4 + 128
 *   elements. For an axis of stride s and dilation d let period = s / gcd(s, d) and phases = min(kernel, period). Then
 *   plane = product of phases * (out + (kernel - 1) * d / s) and quads = ceil(channels / 4). Exception: for one channel
 *   quads = 1, and the last axis has ceil(kernel / 4) phases of `out`.
 * pack_filters: in w[M][C / group][kernel] int8 or uint8; its zero point, one or M. out uint8 of (M + 1) * 4 * (steps +
 *   2) elements: quads as signed bytes, their sum, int32, and the zero word (see integer_micro.h), both as stored; the
 *   last filter is all ones.
 *   steps = quads * product(kernel); for one channel, product(kernel) with the last size n replaced by ceil(n / 4).
 */
#include "integer_micro.h"
#include "spatial.h"

/* ---- pixels */

typedef struct {
    ht_quad_layout l;
    const uint8_t *x;
    int64_t in[3], in_size;
    uint8_t flip, blank;
    uint8_t *packed;
    int64_t units, parts;
} pixel_packing;

enum { LONGEST_BLOCK = 16 }; /* quads written at a time: 64 B, a cache line. For adjacent bytes see `interleave` */

static void store_quad(uint8_t *dst, uint32_t quad) { memcpy(dst, &quad, sizeof quad); } /* little-endian */

/* Byte j of a run with step `stride`. For stride 2, every second byte is the lower half of a word, which vectors read
 * faster; this also reads the byte after it. */
HT_INLINE uint32_t byte_of(const uint8_t *run, int64_t j, const int64_t stride)
{
    uint16_t both;
    if (stride != 2)
        return run[j * stride];
    memcpy(&both, run + 2 * j, sizeof both); /* little-endian, like all variants */
    return both & 0xffu;
}

HT_INLINE uint32_t quad_of(const uint8_t *a, const uint8_t *b, const uint8_t *c, const uint8_t *d, int64_t j,
                           const int64_t stride)
{
    return byte_of(a, j, stride) | byte_of(b, j, stride) << 8 | byte_of(c, j, stride) << 16 | byte_of(d, j, stride) << 24;
}

#if defined(__AVX2__)
enum { LONGEST_SHUFFLED = 32 }; /* quads */
HT_INLINE __m256i load_run(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }

/* 32 quads of adjacent bytes, in a seventh of the time of what GCC makes of the loop in pack_blocks. */
HT_INLINE void interleave(const uint8_t *a, const uint8_t *b, const uint8_t *c, const uint8_t *d, uint32_t flip, uint8_t *dst)
{
    const __m256i flips = _mm256_set1_epi32((int32_t)flip);
    const __m256i va = load_run(a), vb = load_run(b), vc = load_run(c), vd = load_run(d);
    const __m256i ab[2] = {_mm256_unpacklo_epi8(va, vb), _mm256_unpackhi_epi8(va, vb)};
    const __m256i cd[2] = {_mm256_unpacklo_epi8(vc, vd), _mm256_unpackhi_epi8(vc, vd)};
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) { /* unpacking is by 128 bits */
        const __m256i x = _mm256_xor_si256(_mm256_unpacklo_epi16(ab[i], cd[i]), flips);
        const __m256i y = _mm256_xor_si256(_mm256_unpackhi_epi16(ab[i], cd[i]), flips);
        _mm256_storeu_si256((__m256i *)(void *)(dst + 32 * i), _mm256_permute2x128_si256(x, y, 0x20));
        _mm256_storeu_si256((__m256i *)(void *)(dst + 64 + 32 * i), _mm256_permute2x128_si256(x, y, 0x31));
    }
}

HT_INLINE __m128i load_half(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)(const void *)p); }

/* The same for 16 quads. */
HT_INLINE void interleave_half(const uint8_t *a, const uint8_t *b, const uint8_t *c, const uint8_t *d, uint32_t flip,
                               uint8_t *dst)
{
    const __m128i flips = _mm_set1_epi32((int32_t)flip);
    const __m128i va = load_half(a), vb = load_half(b), vc = load_half(c), vd = load_half(d);
    const __m128i ab[2] = {_mm_unpacklo_epi8(va, vb), _mm_unpackhi_epi8(va, vb)};
    const __m128i cd[2] = {_mm_unpacklo_epi8(vc, vd), _mm_unpackhi_epi8(vc, vd)};
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        _mm_storeu_si128((__m128i *)(void *)(dst + 32 * i), _mm_xor_si128(_mm_unpacklo_epi16(ab[i], cd[i]), flips));
        _mm_storeu_si128((__m128i *)(void *)(dst + 32 * i + 16), _mm_xor_si128(_mm_unpackhi_epi16(ab[i], cd[i]), flips));
    }
}
#endif

/* Packs n quads of four runs of bytes with step `stride`, `block` at a time; the last block overlaps the one before it.
 * n >= block. */
HT_INLINE void pack_blocks(const uint8_t *a, const uint8_t *b, const uint8_t *c, const uint8_t *d,
                           const int64_t stride, uint32_t flip, int64_t n, uint8_t *dst, const int64_t block)
{
    for (int64_t i = 0; i < n; i += block) {
        uint32_t quads[LONGEST_BLOCK];
        i = ht_min64(i, n - block);
        for (int64_t j = 0; j < block; j++)
            quads[j] = quad_of(a + i * stride, b + i * stride, c + i * stride, d + i * stride, j, stride) ^ flip;
        memcpy(dst + HT_QUAD * i, quads, (size_t)(HT_QUAD * block));
    }
}

HT_INLINE void pack_run(const uint8_t *a, const uint8_t *b, const uint8_t *c, const uint8_t *d, const int64_t stride,
                        uint32_t flip, int64_t n, uint8_t *dst)
{
#if defined(__AVX2__)
    if (stride == 1 && n >= LONGEST_BLOCK) {
        int64_t i = 0;
        for (; i + LONGEST_SHUFFLED <= n; i += LONGEST_SHUFFLED)
            interleave(a + i, b + i, c + i, d + i, flip, dst + HT_QUAD * i);
        for (; i < n; i += LONGEST_BLOCK) { /* the last block overlaps the one before it */
            i = ht_min64(i, n - LONGEST_BLOCK);
            interleave_half(a + i, b + i, c + i, d + i, flip, dst + HT_QUAD * i);
        }
        return;
    }
#endif
    if (n >= LONGEST_BLOCK)
        pack_blocks(a, b, c, d, stride, flip, n, dst, LONGEST_BLOCK);
    else if (n >= 8)
        pack_blocks(a, b, c, d, stride, flip, n, dst, 8);
    else if (n >= 4)
        pack_blocks(a, b, c, d, stride, flip, n, dst, 4);
    else
        pack_blocks(a, b, c, d, stride, flip, n, dst, 1);
}

static void pack_runs(const uint8_t *const *from, int64_t stride, uint32_t flip, int64_t n, uint8_t *dst)
{
    const uint8_t *a = from[0], *b = from[1], *c = from[2], *d = from[3];
    if (stride == 1) {
        pack_run(a, b, c, d, 1, flip, n, dst);
    } else if (stride == 2) { /* the byte after the last may lie outside the row */
        pack_run(a, b, c, d, 2, flip, n - 1, dst);
        store_quad(dst + HT_QUAD * (n - 1), quad_of(a + 2 * n - 2, b + 2 * n - 2, c + 2 * n - 2, d + 2 * n - 2, 0, 1) ^ flip);
    } else {
        pack_run(a, b, c, d, stride, flip, n, dst);
    }
}

/* Source of a row of quads: `length` positions. The first lies at column `at` of the input's row, each next one
 * `stride` further; [low, high) are inside. */
typedef struct {
    int64_t at, stride, length, low, high;
} row_source;

/* rows: those of the four channels; NULL outside the input. */
static void pack_row(const pixel_packing *p, const uint8_t *const *rows, const row_source *s, uint8_t *dst)
{
    const uint32_t blank = p->blank * 0x01010101u;
    const int64_t low = rows[0] ? s->low : s->length, high = rows[0] ? s->high : s->length;
    for (int64_t i = 0; i < low; i++)
        store_quad(dst + HT_QUAD * i, blank);
    if (low < high) {
        const uint8_t *from[HT_QUAD];
        for (int i = 0; i < HT_QUAD; i++)
            from[i] = rows[i] + s->at + low * s->stride;
        pack_runs(from, s->stride, p->flip * 0x01010101u, high - low, dst + HT_QUAD * low);
    }
    for (int64_t i = high; i < s->length; i++)
        store_quad(dst + HT_QUAD * i, blank);
}

/* The same for a single channel: four taps of each position, starting with tap `first`. */
static void pack_thin_row(const pixel_packing *p, const uint8_t *row, int64_t first, uint8_t *dst)
{
    const ht_quad_layout *l = &p->l;
    const int64_t dilation = l->dilation[2], stride = l->stride[2], length = l->length[2];
    const int64_t at = first * dilation - l->pad[2];
    int64_t low = length, high = length; /* range in which all four are adjacent and inside the row */
    if (row && dilation == 1)
        ht_valid_range(at, stride, ht_max64(0, p->in[2] - HT_QUAD + 1), length, &low, &high);
    if (low < high) {
        const uint8_t *start = row + at + low * stride, *const from[HT_QUAD] = {start, start + 1, start + 2, start + 3};
        pack_runs(from, stride, p->flip * 0x01010101u, high - low, dst + HT_QUAD * low);
    }
    for (int64_t i = low > 0 ? 0 : high; i < length; i = i + 1 == low ? high : i + 1)
        for (int64_t lane = 0; lane < HT_QUAD; lane++) {
            const int64_t column = at + i * stride + lane * dilation;
            dst[HT_QUAD * i + lane] = row && column >= 0 && column < p->in[2] ? row[column] ^ p->flip : p->blank;
        }
}

/* Packs quad `unit` of all images and groups. */
static void pack_plane(const pixel_packing *p, int64_t unit)
{
    const ht_quad_layout *l = &p->l;
    const int64_t first = unit % l->quads * HT_QUAD, image = unit / l->quads;
    const uint8_t *channel[HT_QUAD];
    for (int64_t i = 0; i < HT_QUAD; i++) /* absent channels meet weights of zero, so any row will do */
        channel[i] = p->x + (image * l->channels + (first + i < l->channels ? first + i : first)) * p->in_size;
    uint8_t *dst = p->packed + unit * l->plane;
    for (int64_t pz = 0; pz < l->phases[0]; pz++)
        for (int64_t py = 0; py < l->phases[1]; py++)
            for (int64_t px = 0; px < l->phases[2]; px++) {
                row_source source = {.at = px * l->dilation[2] % l->stride[2] - l->pad[2], .stride = l->stride[2],
                                     .length = l->length[2]};
                ht_valid_range(source.at, source.stride, p->in[2], source.length, &source.low, &source.high);
                for (int64_t z = 0; z < l->length[0]; z++)
                    for (int64_t y = 0; y < l->length[1]; y++, dst += HT_QUAD * l->length[2]) {
                        const int64_t iz = z * l->stride[0] + pz * l->dilation[0] % l->stride[0] - l->pad[0];
                        const int64_t iy = y * l->stride[1] + py * l->dilation[1] % l->stride[1] - l->pad[1];
                        const int inside = iz >= 0 && iz < p->in[0] && iy >= 0 && iy < p->in[1];
                        const uint8_t *rows[HT_QUAD] = {NULL, NULL, NULL, NULL};
                        for (int i = 0; inside && i < HT_QUAD; i++)
                            rows[i] = channel[i] + (iz * p->in[1] + iy) * p->in[2];
                        if (l->thin)
                            pack_thin_row(p, rows[0], HT_QUAD * px, dst);
                        else
                            pack_row(p, rows, &source, dst);
                    }
            }
}

static void pack_part(void *context, int64_t part, int thread)
{
    (void)thread;
    const pixel_packing *p = (const pixel_packing *)context;
    const int64_t end = ht_part_begin(p->units, p->parts, part + 1);
    for (int64_t unit = ht_part_begin(p->units, p->parts, part); unit < end; unit++)
        pack_plane(p, unit);
}

int HT_KERNEL(pack_pixels)(const ht_call *call)
{
    if (call->num_in != 2)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0], *zero = call->in[1], *packed = call->out[0];
    ht_window shape;
    if ((x->dtype != HT_INT8 && x->dtype != HT_UINT8) || zero->dtype != x->dtype || packed->dtype != HT_UINT8)
        return HT_ERR_DTYPE;
    pixel_packing p = {.x = x->data, .packed = packed->data, .flip = x->dtype == HT_UINT8 ? 0 : 0x80};
    if (!ht_window_shapes(&shape, x, x) || zero->size != 1 || !ht_quad_layout_of(&p.l, call->ints, call->num_ints) ||
        shape.c != p.l.group * p.l.channels)
        return HT_ERR_OPERAND;
    p.units = shape.n * p.l.group * p.l.quads;
    if (packed->size != ht_pixel_bytes(&p.l, shape.n))
        return HT_ERR_OPERAND;
    int padded = 0; /* at either end of any axis */
    for (int d = 0; d < 3; d++) {
        p.in[d] = shape.in[d];
        padded |= p.l.pad[d] != 0 || p.in[d] != p.l.out[d];
    }
    p.in_size = shape.in_size;
    if (p.l.pointwise && !padded) { /* the packed image has the input's shape: treat it as one long row */
        ht_as_one_row(&p.l);
        p.in[0] = p.in[1] = 1;
        p.in[2] = p.in_size;
    }
    p.blank = *(const uint8_t *)zero->data ^ p.flip;
    memset(p.packed + packed->size - HT_PIXEL_SLACK, 0, HT_PIXEL_SLACK);
    if (x->size > 0 || p.units == 0) {
        p.parts = ht_parts(call, p.units, (double)packed->size / 2);
        ht_parallel(call->team, p.parts, pack_part, &p);
    } else {
        memset(p.packed, p.blank, (size_t)packed->size);
    }
    return HT_OK;
}

/* ---- filters */

/* The number that is subtracted from the stored bytes of a filter: its stored zero point if all differences fit a byte, else 0. */
static int32_t taken_off(const uint8_t *from, int64_t n, uint8_t flip, uint8_t zero)
{
    const int32_t stored = (int8_t)(zero ^ flip);
    for (int64_t i = 0; i < n; i++) {
        const int32_t number = (int8_t)(from[i] ^ flip) - stored;
        if (number > INT8_MAX || number < INT8_MIN)
            return 0;
    }
    return stored;
}

int HT_KERNEL(pack_filters)(const ht_call *call)
{
    ht_quad_layout l;
    if (call->num_in != 2 || call->in[0]->ndim < 3)
        return HT_ERR_OPERAND;
    const ht_tensor *w = call->in[0], *zero = call->in[1], *packed = call->out[0];
    const int64_t maps = w->dims[0];
    if ((w->dtype != HT_INT8 && w->dtype != HT_UINT8) || zero->dtype != w->dtype || packed->dtype != HT_UINT8)
        return HT_ERR_DTYPE;
    if (!ht_quad_layout_of(&l, call->ints, call->num_ints))
        return HT_ERR_OPERAND;
    const int64_t area = l.kernel[0] * l.kernel[1], row = l.kernel[2], taps = area * row;
    if (w->size != maps * l.channels * taps || (zero->size != 1 && zero->size != maps) ||
        packed->size != ht_filter_bytes(&l, maps))
        return HT_ERR_OPERAND;
    const uint8_t flip = w->dtype == HT_INT8 ? 0 : 0x80;
    memset(packed->data, 0, (size_t)packed->size);
    for (int64_t m = 0; m <= maps; m++) {
        uint8_t *to = (uint8_t *)packed->data + m * HT_QUAD * (l.steps + 2);
        const uint8_t *from = (const uint8_t *)w->data + m * l.channels * taps;
        const int64_t number = zero->size == 1 ? 0 : m;
        const int32_t taken = m < maps ? taken_off(from, l.channels * taps, flip, ((const uint8_t *)zero->data)[number]) : 0;
        int32_t of_filter[2] = {0, 0};
        for (int64_t c = 0; c < l.channels; c++)
            for (int64_t tap = 0; tap < taps; tap++) {
                const int64_t step = l.thin ? tap / row * ht_quads(row) + tap % row / HT_QUAD : c / HT_QUAD * taps + tap;
                const int64_t lane = l.thin ? tap % row % HT_QUAD : c % HT_QUAD;
                const uint8_t byte = m < maps ? (uint8_t)((from[c * taps + tap] ^ flip) - taken) : 1;
                to[HT_QUAD * step + lane] = byte;
                of_filter[0] = (int32_t)((uint32_t)of_filter[0] + (uint32_t)(int8_t)byte);
            }
        const int32_t left = m < maps ? (int8_t)(((const uint8_t *)zero->data)[number] ^ flip) - taken : 0;
        const int is_small = ht_is_small(to, HT_QUAD * l.steps);
        of_filter[1] = ht_zero_word(left, is_small ? is_small | ht_is_tiny(to, l.steps) : ht_is_nearly_small(to, l.steps));
        memcpy(to + HT_QUAD * l.steps, of_filter, sizeof of_filter);
    }
    return HT_OK;
}
