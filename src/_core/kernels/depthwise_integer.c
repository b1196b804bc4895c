/* Depthwise convolution of 8-bit integers with exact 32-bit sums, of 1 or 2 spatial dimensions: pack_depthwise,
 * depthwise_integer. Every group has one input channel and `multiplier` = M / C output channels.
 *
 * Vector lanes hold channels. A block of 64 channels of a strip of rows is transposed, with its padding, so that the 64
 * bytes of a pixel are adjacent; one tap of a pixel is then one load, for any strides and dilations. If at most 32 or 16
 * channels are left for the last block, a vector holds two or four pixels of a row instead (lanes_of). Four taps are
 * interleaved into quads in registers and multiplied as in integer_micro.h. The sums of a pixel are converted to bytes,
 * and a strip of results is transposed back. Interleaving works within 128 bits: of the four vectors of quads, vector j
 * holds channels 16 l + 4 j to 16 l + 4 j + 3 in its 128-bit part l. Weights, initial sums and scales are stored in
 * this *vector order*.
 *
 * ints of both kernels: as in conv_integer.c, with C groups of one channel; sizes along the first axis are 1.
 * pack_depthwise: in w[M][1][kernel] int8 or uint8; their zero point, one or M, of the same type. out uint8 of
 *   multiplier * blocks * 256 * (2 * quads + 1) elements, blocks = ceil(C / 64), quads = ceil(product(kernel) / 4): for
 *   each quad of 64 channels the weights minus zero point, int16, elements 0, 2, 1, 3 of a channel; then the sums of
 *   their filters, int32; all in vector order.
 * depthwise_integer: in x[N][C][spatial] int8 or uint8; w packed; x's zero point, one; bias[M] int32 or NULL; then, if
 *   y is int8 or uint8: scale float32, one or M, and y's zero point, one, and the bias may be float32, in units of y.
 *   out y[N][M][spatial] int32, or the result of requantize. scratch: see room_of. Threads take blocks and strips of rows.
 */
#include "elements.h"
#include "integer_vec.h"
#include "layouts.h"
#include "requantize.h"
#include "spatial.h"
#include "transpose.h"

enum {
    BLOCK = HT_DEPTHWISE_CHANNELS,
    PART = 16,   /* bytes of 128 bits, the unit within which vectors interleave */
    NARROW = 24, /* columns; narrower rows are transposed all at once before they are padded */
    SLACK = 64   /* bytes after an array that whole vectors may read or write */
};

typedef ht_depthwise_layout layout;

/* The position of channel c of a block in vector order. */
HT_INLINE int64_t place_of(int64_t c) { return c % PART / HT_QUAD * PART + c / PART * HT_QUAD + c % HT_QUAD; }

static int64_t block_bytes_of(const layout *l) { return BLOCK * HT_QUAD * (2 * l->quads + 1); }

HT_INLINE int32_t number_at(const ht_tensor *bytes, int64_t i)
{
    return bytes->dtype == HT_INT8 ? ((const int8_t *)bytes->data)[i] : ((const uint8_t *)bytes->data)[i];
}

int HT_KERNEL(pack_depthwise)(const ht_call *call)
{
    layout l;
    const int64_t none[2] = {1, 1};
    if (call->num_in != 2 || call->in[0]->ndim < 3 || !ht_depthwise_layout_of(&l, call->ints, call->num_ints, none))
        return HT_ERR_OPERAND;
    const ht_tensor *w = call->in[0], *zero = call->in[1], *packed = call->out[0];
    if ((w->dtype != HT_INT8 && w->dtype != HT_UINT8) || zero->dtype != w->dtype || packed->dtype != HT_UINT8)
        return HT_ERR_DTYPE;
    const int64_t multiplier = w->dims[0] / l.channels, maps = multiplier * l.channels;
    const int64_t block_bytes = block_bytes_of(&l);
    if (w->size != maps * l.taps || (zero->size != 1 && zero->size != maps) ||
        packed->size != ht_depthwise_bytes(&l, multiplier))
        return HT_ERR_OPERAND;
    memset(packed->data, 0, (size_t)packed->size);
    for (int64_t m = 0; m < maps; m++) {
        const int64_t channel = m / multiplier, c = channel % BLOCK;
        uint8_t *block = (uint8_t *)packed->data + (m % multiplier * l.blocks + channel / BLOCK) * block_bytes;
        const int32_t middle = number_at(zero, zero->size == 1 ? 0 : m);
        int32_t sum = 0;
        for (int64_t tap = 0; tap < l.taps; tap++) {
            static const int64_t places[HT_QUAD] = {0, 2, 1, 3};
            const int64_t quad = tap / HT_QUAD * BLOCK + place_of(c);
            const int16_t number = (int16_t)(number_at(w, m * l.taps + tap) - middle);
            memcpy(block + 2 * (HT_QUAD * quad + places[tap % HT_QUAD]), &number, sizeof number);
            sum = (int32_t)((uint32_t)sum + (uint32_t)number);
        }
        memcpy(block + HT_QUAD * (2 * l.quads * BLOCK + place_of(c)), &sum, sizeof sum);
    }
    return HT_OK;
}

/* ---- convolution */

#if defined(__AVX512F__)
#define UNPACK(a, b, half, bits) half ? _mm512_unpackhi_epi##bits(a, b) : _mm512_unpacklo_epi##bits(a, b)
#elif defined(__AVX2__)
#define UNPACK(a, b, half, bits) half ? _mm256_unpackhi_epi##bits(a, b) : _mm256_unpacklo_epi##bits(a, b)
#else
typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef uint16_t words8 __attribute__((vector_size(16)));
#define LOW_8 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_8 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define LOW_16 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_16 4, 12, 5, 13, 6, 14, 7, 15
#define TYPE_8 bytes16
#define TYPE_16 words8
#define UNPACK(a, b, half, bits)                                                   \
    (vi)(half ? HT_SHUFFLE(TYPE_##bits, (TYPE_##bits)(a), (TYPE_##bits)(b), HIGH_##bits) \
              : HT_SHUFFLE(TYPE_##bits, (TYPE_##bits)(a), (TYPE_##bits)(b), LOW_##bits))
#endif

/* The form in which weights are multiplied. With VNNI: bytes, in the order of the packed weights; a number that does not
 * fit a byte is the sum of up to MAX_TERMS bytes, each with a quad of its own. Without: int16, elements 0 and 2 of every
 * quad of a vector, then 1 and 3. */
enum {
    MAX_TERMS = HT_VNNI ? 3 : 1,                   /* -255 to 255 */
    WEIGHT_BYTES = HT_VNNI ? HT_QUAD : 2 * HT_QUAD, /* of a channel's quad */
    ROOM_TERMS = 3 /* in the scratch memory, whose size does not depend on the instruction set: see scratch.c */
};
_Static_assert(MAX_TERMS * WEIGHT_BYTES <= ROOM_TERMS * HT_QUAD && MAX_TERMS <= ROOM_TERMS, "the weights fit");

#if HT_VNNI
HT_INLINE __m128i nearest_bytes(__m256i numbers)
{
    return _mm_packs_epi16(_mm256_castsi256_si128(numbers), _mm256_extracti128_si256(numbers, 1));
}

/* The bytes of term `term` of the weights; returns whether they need another term. */
HT_INLINE int spread_term(const uint8_t *packed, int64_t quads, int64_t lanes, const int term, uint8_t *to)
{
    __m256i beyond = _mm256_setzero_si256();
    for (int64_t part = 0; part < quads * BLOCK / HT_QUAD; part++) {
        const uint8_t *from = packed + 2 * PART * (part & (lanes / PART - 1 - HT_QUAD));
        __m256i rest = _mm256_loadu_si256((const void *)from);
        for (int before = 0; before < term; before++)
            rest = _mm256_sub_epi16(rest, _mm256_cvtepi8_epi16(nearest_bytes(rest)));
        const __m128i bytes = nearest_bytes(rest);
        _mm_storeu_si128((void *)(to + PART * part), bytes);
        beyond = _mm256_or_si256(beyond, _mm256_xor_si256(rest, _mm256_cvtepi8_epi16(bytes)));
    }
    return !_mm256_testz_si256(beyond, beyond);
}
#endif

/* Writes weights for vectors of BLOCK / lanes pixels: each holds the first `lanes` channels. Returns the number of quads
 * that are multiplied. */
static int64_t spread(const uint8_t *packed, int64_t quads, int64_t lanes, uint8_t *to)
{
#if HT_VNNI
    const int64_t bytes = quads * BLOCK * HT_QUAD;
    _Static_assert(MAX_TERMS == 3, "the calls below");
    if (!spread_term(packed, quads, lanes, 0, to))
        return quads;
    if (!spread_term(packed, quads, lanes, 1, to + bytes))
        return 2 * quads;
    (void)spread_term(packed, quads, lanes, 2, to + 2 * bytes);
    return 3 * quads;
#else
    enum { PARTS = VECTOR_BYTES / PART };
    for (int64_t part = 0; part < quads * BLOCK / HT_QUAD; part++) {
        const uint8_t *from = packed + 2 * PART * (part & (lanes / PART - 1 - HT_QUAD));
        for (int half = 0; half < 2; half++)
            for (int64_t channel = 0; channel < PART / HT_QUAD; channel++)
                memcpy(to + part / PARTS * 2 * VECTOR_BYTES + half * VECTOR_BYTES + part % PARTS * PART + HT_QUAD * channel,
                       from + 2 * HT_QUAD * channel + HT_QUAD * half, HT_QUAD);
    }
    return quads;
#endif
}

/* A vector that begins with 16 bytes number `first` of the 64 that `pixels` pixels hold. Pixels lie `step` bytes apart. */
HT_INLINE vi load_pixels(const uint8_t *x, int64_t first, int64_t step, const int pixels)
{
    if (pixels == 1)
        return load(x + first * PART);
#if defined(__AVX512F__)
    if (pixels == 2)
        return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const void *)x)),
                                  _mm256_loadu_si256((const void *)(x + step)), 1);
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)x)),
                                                _mm_loadu_si128((const void *)(x + step)), 1);
    const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)(x + 2 * step))),
                                                 _mm_loadu_si128((const void *)(x + 3 * step)), 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
#elif defined(__AVX2__)
    if (pixels == 2)
        return load(x + first / 2 * step);
    return (vi)_mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)(x + first * step))),
                                       _mm_loadu_si128((const void *)(x + (first + 1) * step)), 1);
#else
    return load(pixels == 2 ? x + first / 2 * step + first % 2 * PART : x + first * step);
#endif
}

/* The sums of 64 channels of `pixels` pixels in all, in vector order. taps: the offset of each tap in bytes from x. */
HT_INLINE void sum_pixels(const uint8_t *x, int64_t step, const int pixels, const int64_t *taps, int64_t quads,
                          const uint8_t *w, const int32_t *start, int32_t *sums)
{
    enum { PARTS = VECTOR_BYTES / PART }; /* of 16 bytes each */
    for (int64_t first = 0; first < BLOCK / PART; first += PARTS) {
        vi acc[HT_QUAD];
        for (int j = 0; j < HT_QUAD; j++)
            acc[j] = load((const uint8_t *)(start + (j * HT_QUAD + first) * HT_QUAD));
        for (int64_t q = 0; q < quads; q++) {
            const int64_t *tap = taps + HT_QUAD * q;
            const vi a = load_pixels(x + tap[0], first, step, pixels), b = load_pixels(x + tap[1], first, step, pixels);
            const vi c = load_pixels(x + tap[2], first, step, pixels), d = load_pixels(x + tap[3], first, step, pixels);
            const vi ab[2] = {UNPACK(a, b, 0, 8), UNPACK(a, b, 1, 8)}, cd[2] = {UNPACK(c, d, 0, 8), UNPACK(c, d, 1, 8)};
            const vi quad[HT_QUAD] = {UNPACK(ab[0], cd[0], 0, 16), UNPACK(ab[0], cd[0], 1, 16),
                                      UNPACK(ab[1], cd[1], 0, 16), UNPACK(ab[1], cd[1], 1, 16)};
#pragma GCC unroll 4
            for (int j = 0; j < HT_QUAD; j++) {
                const uint8_t *weights = w + (q * BLOCK + (j * HT_QUAD + first) * HT_QUAD) * WEIGHT_BYTES;
#if HT_VNNI
                acc[j] = multiply_quads(acc[j], quad[j], load(weights));
#else
                acc[j] = add_products(acc[j], pairs_of(quad[j], 0, 0), load(weights));
                acc[j] = add_products(acc[j], pairs_of(quad[j], 1, 0), load(weights + VECTOR_BYTES));
#endif
            }
        }
        for (int j = 0; j < HT_QUAD; j++)
            vf_store((float *)(void *)(sums + (j * HT_QUAD + first) * HT_QUAD), vi_as_float(acc[j]));
    }
}

/* Puts groups of 4 bytes from the order of vectors into that of channels: a 4 x 4 transpose. No load is wider than a store
 * of ht_requantize_row, so the processor can forward what was just stored. */
HT_INLINE void in_order(const uint8_t *bytes, uint8_t *dst)
{
#if defined(__AVX512F__)
    const __m512i order = _mm512_setr_epi32(0, 4, 16, 20, 1, 5, 17, 21, 2, 6, 18, 22, 3, 7, 19, 23);
    const __m512i low = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)bytes));
    const __m512i high = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)(bytes + 32)));
    _mm512_storeu_si512(dst, _mm512_permutex2var_epi32(low, order, high));
#else
    typedef uint32_t four __attribute__((vector_size(16)));
    four r[4];
    memcpy(r, bytes, sizeof r);
    const four a = HT_SHUFFLE(four, r[0], r[2], 0, 4, 1, 5), b = HT_SHUFFLE(four, r[0], r[2], 2, 6, 3, 7);
    const four c = HT_SHUFFLE(four, r[1], r[3], 0, 4, 1, 5), d = HT_SHUFFLE(four, r[1], r[3], 2, 6, 3, 7);
    r[0] = HT_SHUFFLE(four, a, c, 0, 4, 1, 5);
    r[1] = HT_SHUFFLE(four, a, c, 2, 6, 3, 7);
    r[2] = HT_SHUFFLE(four, b, d, 0, 4, 1, 5);
    r[3] = HT_SHUFFLE(four, b, d, 2, 6, 3, 7);
    for (int i = 0; i < 4; i++)
        memcpy(dst + PART * i, r + i, PART);
#endif
}

/* The channels of a pixel that lie in a vector of 64 bytes: the smallest power of two that holds those of the block, so
 * that vectors of narrow blocks hold several pixels of a row. */
static int64_t lanes_of(const layout *l, int64_t channels)
{
    int64_t lanes = PART;
    while (lanes < channels || BLOCK / lanes > l->out[1])
        lanes *= 2;
    return lanes;
}

typedef struct {
    const ht_call *call;
    layout l;
    uint8_t flip, blank; /* mask for bytes of x; its zero point as stored */
    int64_t strips, strip_rows, units, parts;
} job;

/* The scratch memory of a thread. */
typedef struct {
    uint8_t *pixels;       /* [strip][width][64], padded */
    uint8_t *turned;       /* the same without padding, for narrow rows; or results, [rows][out width][64] */
    uint8_t *weights;
    int64_t *taps;
    int32_t *sums;         /* for int32 results, layout as `turned` */
} room;

/* Where each part of the scratch memory begins: at[part]; at[PARTS] is their size. It is the same for every instruction
 * set, because scratch.c asks the baseline's: room for weights as ROOM_TERMS bytes also holds them as int16. */
enum { PARTS = 4 };
static void find_parts(const layout *l, int to_bytes, int64_t at[PARTS + 1])
{
    const int64_t results = l->rows * l->out[1] * BLOCK, image = l->strip * l->in[1] * BLOCK;
    const int64_t sizes[PARTS] = {l->strip * l->width * BLOCK + SLACK, ht_max64(to_bytes ? results : 4 * results, image) + SLACK,
                                  ROOM_TERMS * l->quads * BLOCK * HT_QUAD,
                                  ROOM_TERMS * l->quads * HT_QUAD * (int64_t)sizeof(int64_t)};
    at[0] = 0;
    for (int i = 0; i < PARTS; i++)
        at[i + 1] = at[i] + (sizes[i] + 63) / 64 * 64;
}

static int64_t room_of(const layout *l, int to_bytes, uint8_t *scratch, room *r)
{
    int64_t at[PARTS + 1];
    uint8_t *parts[PARTS];
    find_parts(l, to_bytes, at);
    for (int i = 0; i < PARTS; i++)
        parts[i] = scratch + at[i];
    *r = (room){.pixels = parts[0], .turned = parts[1], .weights = parts[2], .taps = (int64_t *)(void *)parts[3],
                .sums = (int32_t *)(void *)parts[1]};
    return at[PARTS];
}

/* See scratch.h. */
int64_t HT_KERNEL(depthwise_integer_scratch)(const ht_call *call)
{
    layout l;
    int64_t at[PARTS + 1];
    ht_window shape;
    if (call->num_in < 1 || !call->in[0] || call->num_out != 1 || !ht_window_shapes(&shape, call->in[0], call->in[0]) ||
        !ht_depthwise_layout_of(&l, call->ints, call->num_ints, shape.in + 1))
        return 0;
    find_parts(&l, call->out[0]->dtype != HT_INT32, at);
    return at[PARTS];
}

/* Transposes rows [top, top + rows) of a block's channels, which may lie outside the image, to padded pixels. */
static void turn_rows(const job *j, const uint8_t *x, int64_t channels, int64_t lanes, int64_t top, int64_t rows,
                      const room *r)
{
    const layout *l = &j->l;
    const int64_t in_size = l->in[0] * l->in[1], left = ht_min64(l->pad[1], l->width);
    const int64_t inside = ht_max64(0, ht_min64(l->in[1], l->width - left)), row_bytes = l->width * lanes;
    const int64_t first = ht_min64(ht_max64(top, 0), l->in[0]), last = ht_max64(first, ht_min64(top + rows, l->in[0]));
    const int whole = l->in[1] < NARROW || j->flip; /* transpose all rows at once first, then place them row by row */
    if (whole)
        HT_SHARED(transpose)(1, (const char *)x + first * l->in[1], in_size, (char *)r->turned, lanes,
                             (last - first) * l->in[1], channels);
    for (int64_t i = 0; i < rows; i++) {
        uint8_t *to = r->pixels + i * row_bytes;
        const int64_t row = top + i;
        if (row < first || row >= last) {
            memset(to, j->blank, (size_t)row_bytes);
            continue;
        }
        memset(to, j->blank, (size_t)(left * lanes));
        memset(to + (left + inside) * lanes, j->blank, (size_t)((l->width - left - inside) * lanes));
        to += left * lanes;
        const uint8_t *from = r->turned + (row - first) * l->in[1] * lanes;
        if (!whole)
            HT_SHARED(transpose)(1, (const char *)x + row * l->in[1], in_size, (char *)to, lanes, inside, channels);
        else if (j->flip)
            for (int64_t k = 0; k < inside * lanes; k++)
                to[k] = from[k] ^ 0x80;
        else
            memcpy(to, from, (size_t)(inside * lanes));
    }
}

/* Computes output `m` of every channel of a block, rows [y0, y1). The pixels begin with the first input row of y0. */
static void convolve(const job *j, int64_t image, int64_t block, int64_t m, int64_t y0, int64_t y1, int64_t lanes,
                     const room *r)
{
    const layout *l = &j->l;
    const ht_tensor *const *in = j->call->in, *y = j->call->out[0];
    const int64_t block_bytes = block_bytes_of(l), channels = ht_min64(BLOCK, l->channels - block * BLOCK);
    const uint8_t *w = (const uint8_t *)in[1]->data + (m * l->blocks + block) * block_bytes;
    const int64_t out_size = l->out[0] * l->out[1], pixels = (y1 - y0) * l->out[1];
    const int64_t map = block * BLOCK * l->multiplier + m; /* of channel 0; channel c adds c * multiplier */
    const int32_t *bias = ht_bias_of(in[3]);
    int64_t offset_step;
    const float *offsets = ht_offset_of(in[3], 0, &offset_step);
    const int to_bytes = y->dtype != HT_INT32;
    int32_t packed_sums[BLOCK], start[BLOCK], sums[BLOCK];
    float scale[BLOCK], offset[BLOCK];
    memcpy(packed_sums, w + 2 * l->quads * BLOCK * HT_QUAD, sizeof packed_sums);
    for (int64_t i = 0; i < BLOCK; i++) {
        const int64_t c = i & (lanes - 1), at = place_of(i), of = map + ht_min64(c, channels - 1) * l->multiplier;
        start[at] = (int32_t)((bias ? (uint32_t)bias[of] : 0u) - j->blank * (uint32_t)packed_sums[place_of(c)]);
        if (to_bytes)
            scale[at] = ((const float *)in[4]->data)[in[4]->size == 1 ? 0 : of];
        offset[at] = offsets[of * offset_step];
    }
    const int64_t quads = spread(w, l->quads, lanes, r->weights), step = l->stride[1] * lanes, together = BLOCK / lanes;
    for (int64_t row = 0; row < y1 - y0; row++)
        for (int64_t next = 0; next < l->out[1]; next += together) {
            const int64_t column = ht_min64(next, l->out[1] - together);
            const uint8_t *x = r->pixels + row * l->stride[0] * l->width * lanes + column * step;
            const int64_t at = (row * l->out[1] + column) * lanes;
            if (step == lanes || together == 1)
                sum_pixels(x, step, 1, r->taps, quads, r->weights, start, sums);
            else if (together == 2)
                sum_pixels(x, step, 2, r->taps, quads, r->weights, start, sums);
            else
                sum_pixels(x, step, 4, r->taps, quads, r->weights, start, sums);
            if (to_bytes) {
                uint8_t bytes[BLOCK];
                ht_requantize_row(sums, scale, 1, offset, 1, ht_byte_at(in[5], 0), y->dtype == HT_INT8, bytes, BLOCK);
                in_order(bytes, r->turned + at);
            } else {
                for (int64_t i = 0; i < BLOCK; i++)
                    r->sums[at + i] = sums[place_of(i)];
            }
        }
    const int64_t bytes = to_bytes ? 1 : 4, to = (image * l->channels * l->multiplier + map) * out_size + y0 * l->out[1];
    HT_SHARED(transpose)(bytes, (const char *)r->turned, lanes * bytes, (char *)y->data + to * bytes,
                         l->multiplier * out_size * bytes, channels, pixels);
}

/* The offsets of taps in bytes, in the order of the spread weights; taps past the last weigh zero. */
static void find_taps(const layout *l, int64_t lanes, int64_t *taps)
{
    static const int64_t places[HT_QUAD] = {0, HT_VNNI ? 2 : 1, HT_VNNI ? 1 : 2, 3};
    for (int64_t i = 0; i < MAX_TERMS * l->quads * HT_QUAD; i++) {
        const int64_t tap = i / HT_QUAD % l->quads * HT_QUAD + places[i % HT_QUAD], ky = tap / l->kernel[1], kx = tap % l->kernel[1];
        taps[i] = tap < l->taps ? (ky * l->dilation[0] * l->width + kx * l->dilation[1]) * lanes : 0;
    }
}

static void convolve_part(void *context, int64_t part, int thread)
{
    const job *j = (const job *)context;
    const layout *l = &j->l;
    room r;
    room_of(l, j->call->out[0]->dtype != HT_INT32, ht_scratch(j->call, thread), &r);
    int64_t lanes = 0;
    const int64_t end = ht_part_begin(j->units, j->parts, part + 1);
    for (int64_t unit = ht_part_begin(j->units, j->parts, part); unit < end && !ht_stopping(); unit++) {
        const int64_t y0 = unit % j->strips * j->strip_rows, y1 = ht_min64(y0 + j->strip_rows, l->out[0]);
        const int64_t block = unit / j->strips % l->blocks, image = unit / j->strips / l->blocks;
        const int64_t rows = (y1 - y0 - 1) * l->stride[0] + (l->kernel[0] - 1) * l->dilation[0] + 1;
        const uint8_t *x = (const uint8_t *)j->call->in[0]->data +
                           (image * l->channels + block * BLOCK) * l->in[0] * l->in[1];
        const int64_t channels = ht_min64(BLOCK, l->channels - block * BLOCK);
        if (lanes != lanes_of(l, channels)) {
            lanes = lanes_of(l, channels);
            find_taps(l, lanes, r.taps);
        }
        turn_rows(j, x, channels, lanes, y0 * l->stride[0] - l->pad[0], rows, &r);
        for (int64_t m = 0; m < l->multiplier; m++)
            convolve(j, image, block, m, y0, y1, lanes, &r);
    }
}

int HT_KERNEL(depthwise_integer)(const ht_call *call)
{
    job j = {.call = call};
    if ((call->num_in != 4 && call->num_in != 6) || call->num_out != 1)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0], *w = call->in[1], *zero = call->in[2], *bias = call->in[3], *y = call->out[0];
    ht_window shape;
    if ((x->dtype != HT_INT8 && x->dtype != HT_UINT8) || zero->dtype != x->dtype || w->dtype != HT_UINT8 ||
        !ht_bias_fits(bias, call->num_in == 6))
        return HT_ERR_DTYPE;
    if (call->num_in == 4 ? y->dtype != HT_INT32 : (y->dtype != HT_INT8 && y->dtype != HT_UINT8))
        return HT_ERR_DTYPE;
    if (!ht_window_shapes(&shape, x, x) || shape.in[0] != 1 ||
        !ht_depthwise_layout_of(&j.l, call->ints, call->num_ints, shape.in + 1) || shape.c != j.l.channels ||
        zero->size != 1)
        return HT_ERR_OPERAND;
    const int64_t images = shape.n;
    layout *l = &j.l;
    if (!ht_window_shapes(&shape, y, y) || shape.n != images || shape.c % l->channels || shape.in[0] != 1 ||
        shape.in[1] != l->out[0] || shape.in[2] != l->out[1])
        return HT_ERR_OPERAND;
    l->multiplier = shape.c / l->channels;
    if (call->num_in == 6) {
        const ht_tensor *scale = call->in[4], *y_zero = call->in[5];
        if (scale->dtype != HT_FLOAT32 || y_zero->dtype != y->dtype)
            return HT_ERR_DTYPE;
        if ((scale->size != 1 && scale->size != shape.c) || y_zero->size != 1)
            return HT_ERR_OPERAND;
    }
    if (y->size == 0)
        return HT_OK;
    room r;
    if (w->size != ht_depthwise_bytes(l, l->multiplier) || (bias && bias->size != shape.c) ||
        call->scratch_bytes < room_of(l, y->dtype != HT_INT32, (uint8_t *)call->scratch, &r))
        return HT_ERR_OPERAND;
    j.flip = x->dtype == HT_INT8 ? 0x80 : 0;
    j.blank = *(const uint8_t *)zero->data ^ j.flip;
    /* Strips are as high as the scratch memory allows, or lower so that every thread gets some. */
    const double cost = (double)y->size * (double)l->taps / 8;
    const int64_t parts = ht_ceil_div(ht_wanted(call, cost), images * l->blocks);
    j.strip_rows = ht_min64(l->rows, ht_ceil_div(l->out[0], ht_min64(parts, l->out[0])));
    j.strips = ht_ceil_div(l->out[0], j.strip_rows);
    j.units = images * l->blocks * j.strips;
    j.parts = ht_parts(call, j.units, cost);
    ht_parallel(call->team, j.parts, convolve_part, &j);
    return HT_OK;
}
