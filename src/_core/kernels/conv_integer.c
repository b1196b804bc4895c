/* Convolution of 8-bit integers with exact 32-bit sums, of 1 to 3 spatial dimensions: pack_pixels, pack_filters,
 * conv_integer.
 *
 * There is no im2col matrix. pack_pixels writes the image once, padded with its zero point, in *quads*: four channels of
 * a pixel lie together, so that a vector is a run of neighbouring pixels, and one tap of neighbouring outputs is such a
 * run, at a distance from the first that depends on the tap alone. Where the stride is s > 1, positions are split by
 * their remainder by s, as one tap of neighbouring outputs takes every s-th. Rows and planes follow each other: outputs
 * are numbered across all of them, and those at the ends of rows, whose windows do not exist, are computed and dropped.
 * A group of a single channel has its quads along the window's last axis instead, a copy of the image for every four taps.
 * Then tiles as in integer_micro.c: filters are broadcast against pixels. Cost: filters * pixels * taps * channels / 4
 * lanes of products, plus the image written once.
 *
 * All take ints: group, channels of a group, then triples (see spatial.h) kernel, strides, pads before, dilations, sizes
 * of the output.
 *
 * pack_pixels: in x[N][C][spatial] int8 or uint8; its zero point, one. out uint8 of N * group * quads * plane * 4 + 128
 *   elements, where with s / gcd(s, d) = period for an axis of stride s and dilation d, and phases = min(kernel, period):
 *   plane = product of phases * (out + (kernel - 1) * d / s), quads = ceil(channels / 4); but for one
 *   channel quads = 1, and the last axis has ceil(kernel / 4) phases of `out`.
 * pack_filters: in w[M][C / group][kernel] int8 or uint8; its zero point, one or M. out uint8 of
 *   (M + 1) * 4 * (steps + 2) elements: quads as signed bytes, their sum and the zero point as they are stored, int32;
 *   the last filter is of ones. steps = quads * product(kernel), or for one channel the kernel with its last size / 4,
 *   rounded up.
 * conv_integer: in x packed; w packed; x's zero point; bias[M] int32 or NULL; then, if y is int8 or uint8: scale
 *   float32, one or M, and y's zero point, one. out y[N][M][spatial] int32, or what requantize gives for it.
 *   scratch: 112 * steps bytes.
 */
#include "elements.h"
#include "integer_micro.h"
#include "requantize.h"
#include "spatial.h"

typedef struct {
    int64_t group, kernel[3], stride[3], pad[3], dilation[3], out[3];
    int64_t period[3], phases[3], length[3]; /* per axis: of the phases, and positions of each */
    int64_t channels;                        /* of a group */
    int thin;                                /* one: quads run along the last axis */
    int pointwise;                           /* each output reads its own place alone: the image is one long row */
    int64_t quads, taps, steps, plane;       /* plane: bytes of all phases of a quad */
    int64_t out_size;
} layout;

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* 0 if the parameters make no sense. */
static int layout_of(layout *l, const ht_call *call)
{
    if (call->num_ints != 17)
        return 0;
    l->group = call->ints[0];
    l->channels = call->ints[1];
    if (l->group < 1 || l->channels < 0)
        return 0;
    l->thin = l->channels == 1;
    l->taps = l->plane = l->out_size = 1;
    l->pointwise = 1;
    for (int d = 0; d < 3; d++) {
        const int64_t kernel = l->kernel[d] = call->ints[2 + d], stride = l->stride[d] = call->ints[5 + d];
        l->pad[d] = call->ints[8 + d];
        const int64_t dilation = l->dilation[d] = call->ints[11 + d], out = l->out[d] = call->ints[14 + d];
        if (kernel < 1 || stride < 1 || dilation < 1 || l->pad[d] < 0 || out < 0)
            return 0;
        if (l->thin && d == 2) {
            l->period[d] = l->phases[d] = ht_quads(kernel);
            l->length[d] = out;
        } else {
            l->period[d] = stride / gcd(stride, dilation);
            l->phases[d] = ht_min64(kernel, l->period[d]);
            l->length[d] = out + (kernel - 1) * dilation / stride;
        }
        l->pointwise = l->pointwise && kernel == 1 && stride == 1 && l->pad[d] == 0;
        l->taps *= l->thin && d == 2 ? ht_quads(kernel) : kernel;
        l->plane *= l->phases[d] * l->length[d];
        l->out_size *= out;
    }
    if (l->pointwise) {
        l->out[2] = l->length[2] = l->out_size;
        l->out[0] = l->out[1] = l->length[0] = l->length[1] = 1;
    }
    l->plane *= HT_QUAD;
    l->quads = ht_quads(l->channels);
    l->steps = l->quads * l->taps;
    return 1;
}

/* ---- pixels */

typedef struct {
    layout l;
    const uint8_t *x;
    int64_t in[3], in_size;
    uint8_t flip, blank;
    uint8_t *packed;
    int64_t units, parts;
} pixel_packing;

static void store_quad(uint8_t *dst, uint32_t quad) { memcpy(dst, &quad, sizeof quad); } /* little-endian */

/* Byte j of a run that is read every `stride`. Every second byte is the lower half of every word, which vectors take
 * faster; `stride` = 2 reads the byte after as well. */
HT_INLINE uint32_t byte_of(const uint8_t *run, int64_t j, const int64_t stride)
{
    uint16_t both;
    if (stride != 2)
        return run[j * stride];
    memcpy(&both, run + 2 * j, sizeof both); /* little-endian, as all variants are */
    return both & 0xffu;
}

HT_INLINE uint32_t quad_of(const uint8_t *a, const uint8_t *b, const uint8_t *c, const uint8_t *d, int64_t j,
                           const int64_t stride)
{
    return byte_of(a, j, stride) | byte_of(b, j, stride) << 8 | byte_of(c, j, stride) << 16 | byte_of(d, j, stride) << 24;
}

/* n quads of four runs of bytes that are read every `stride`. */
HT_INLINE void pack_run(const uint8_t *a, const uint8_t *b, const uint8_t *c, const uint8_t *d, const int64_t stride,
                        uint32_t flip, int64_t n, uint8_t *dst)
{
    enum { BLOCK = 16 };
    for (int64_t i = 0; n >= BLOCK && i < n; i += BLOCK) {
        uint32_t quads[BLOCK];
        i = ht_min64(i, n - BLOCK); /* the last block overlaps the one before it */
        for (int64_t j = 0; j < BLOCK; j++)
            quads[j] = quad_of(a + i * stride, b + i * stride, c + i * stride, d + i * stride, j, stride) ^ flip;
        memcpy(dst + HT_QUAD * i, quads, sizeof quads);
    }
    for (int64_t i = 0; n < BLOCK && i < n; i++)
        store_quad(dst + HT_QUAD * i, quad_of(a, b, c, d, i, stride) ^ flip);
}

static void pack_runs(const uint8_t *const *from, int64_t stride, uint32_t flip, int64_t n, uint8_t *dst)
{
    const uint8_t *a = from[0], *b = from[1], *c = from[2], *d = from[3];
    if (stride == 1) {
        pack_run(a, b, c, d, 1, flip, n, dst);
    } else if (stride == 2) { /* the byte after the last may lie outside */
        pack_run(a, b, c, d, 2, flip, n - 1, dst);
        store_quad(dst + HT_QUAD * (n - 1), quad_of(a + 2 * n - 2, b + 2 * n - 2, c + 2 * n - 2, d + 2 * n - 2, 0, 1) ^ flip);
    } else {
        pack_run(a, b, c, d, stride, flip, n, dst);
    }
}

/* One row of quads: `length` positions, of which the first lies at column `at` of the input's row, the next `stride`
 * further. rows: of the four channels; NULL outside of the input. */
static void pack_row(const pixel_packing *p, const uint8_t *const *rows, int64_t at, int64_t stride, int64_t length,
                     uint8_t *dst)
{
    const uint32_t blank = p->blank * 0x01010101u;
    int64_t low = length, high = length;
    if (rows[0])
        ht_valid_range(at, stride, p->in[2], length, &low, &high);
    for (int64_t i = 0; i < low; i++)
        store_quad(dst + HT_QUAD * i, blank);
    if (low < high) {
        const uint8_t *from[HT_QUAD];
        for (int i = 0; i < HT_QUAD; i++)
            from[i] = rows[i] + at + low * stride;
        pack_runs(from, stride, p->flip * 0x01010101u, high - low, dst + HT_QUAD * low);
    }
    for (int64_t i = high; i < length; i++)
        store_quad(dst + HT_QUAD * i, blank);
}

/* The same for a single channel: four taps of each position, from tap `first` on. */
static void pack_thin_row(const pixel_packing *p, const uint8_t *row, int64_t first, uint8_t *dst)
{
    const layout *l = &p->l;
    const int64_t dilation = l->dilation[2], stride = l->stride[2], length = l->length[2];
    const int64_t at = first * dilation - l->pad[2];
    int64_t low = length, high = length; /* where all four lie next to each other inside the row */
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

/* Quad `unit` of all images and groups. */
static void pack_plane(const pixel_packing *p, int64_t unit)
{
    const layout *l = &p->l;
    const int64_t first = unit % l->quads * HT_QUAD, image = unit / l->quads;
    const uint8_t *channel[HT_QUAD];
    for (int64_t i = 0; i < HT_QUAD; i++) /* those that do not exist meet weights of zero: any will do */
        channel[i] = p->x + (image * l->channels + (first + i < l->channels ? first + i : first)) * p->in_size;
    uint8_t *dst = p->packed + unit * l->plane;
    for (int64_t pz = 0; pz < l->phases[0]; pz++)
        for (int64_t py = 0; py < l->phases[1]; py++)
            for (int64_t px = 0; px < l->phases[2]; px++)
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
                            pack_row(p, rows, px * l->dilation[2] % l->stride[2] - l->pad[2], l->stride[2],
                                     l->length[2], dst);
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

enum { SLACK = HT_PANEL_BYTES * 2 }; /* vectors may read past the last pixel */

int HT_KERNEL(pack_pixels)(const ht_call *call)
{
    if (call->num_in != 2)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0], *zero = call->in[1], *packed = call->out[0];
    ht_window shape;
    if ((x->dtype != HT_INT8 && x->dtype != HT_UINT8) || zero->dtype != x->dtype || packed->dtype != HT_UINT8)
        return HT_ERR_DTYPE;
    pixel_packing p = {.x = x->data, .packed = packed->data, .flip = x->dtype == HT_UINT8 ? 0 : 0x80};
    if (!ht_window_shapes(&shape, x, x) || zero->size != 1 || !layout_of(&p.l, call) ||
        shape.c != p.l.group * p.l.channels)
        return HT_ERR_OPERAND;
    p.units = shape.n * p.l.group * p.l.quads;
    if (packed->size != p.units * p.l.plane + SLACK)
        return HT_ERR_OPERAND;
    for (int d = 0; d < 3; d++)
        p.in[d] = shape.in[d];
    p.in_size = shape.in_size;
    if (p.l.pointwise) {
        if (p.in_size != p.l.out_size)
            return HT_ERR_OPERAND;
        p.in[0] = p.in[1] = 1;
        p.in[2] = p.in_size;
    }
    p.blank = *(const uint8_t *)zero->data ^ p.flip;
    memset(p.packed + packed->size - SLACK, 0, SLACK);
    if (x->size > 0 || p.units == 0) {
        p.parts = ht_parts(call, p.units, (double)packed->size / 2);
        ht_parallel(call->team, p.parts, pack_part, &p);
    } else {
        memset(p.packed, p.blank, (size_t)packed->size);
    }
    return HT_OK;
}

/* ---- filters */

int HT_KERNEL(pack_filters)(const ht_call *call)
{
    layout l;
    if (call->num_in != 2 || call->in[0]->ndim < 3)
        return HT_ERR_OPERAND;
    const ht_tensor *w = call->in[0], *zero = call->in[1], *packed = call->out[0];
    const int64_t maps = w->dims[0];
    if ((w->dtype != HT_INT8 && w->dtype != HT_UINT8) || zero->dtype != w->dtype || packed->dtype != HT_UINT8)
        return HT_ERR_DTYPE;
    if (!layout_of(&l, call))
        return HT_ERR_OPERAND;
    const int64_t area = l.kernel[0] * l.kernel[1], row = l.kernel[2], taps = area * row;
    if (w->size != maps * l.channels * taps || (zero->size != 1 && zero->size != maps) ||
        packed->size != (maps + 1) * HT_QUAD * (l.steps + 2))
        return HT_ERR_OPERAND;
    const uint8_t flip = w->dtype == HT_INT8 ? 0 : 0x80;
    memset(packed->data, 0, (size_t)packed->size);
    for (int64_t m = 0; m <= maps; m++) {
        uint8_t *to = (uint8_t *)packed->data + m * HT_QUAD * (l.steps + 2);
        const uint8_t *from = (const uint8_t *)w->data + m * l.channels * taps;
        int32_t of_filter[2] = {0, 0};
        for (int64_t c = 0; c < l.channels; c++)
            for (int64_t tap = 0; tap < taps; tap++) {
                const int64_t step = l.thin ? tap / row * ht_quads(row) + tap % row / HT_QUAD : c / HT_QUAD * taps + tap;
                const int64_t lane = l.thin ? tap % row % HT_QUAD : c % HT_QUAD;
                const uint8_t byte = m < maps ? from[c * taps + tap] ^ flip : 1;
                to[HT_QUAD * step + lane] = byte;
                of_filter[0] = (int32_t)((uint32_t)of_filter[0] + (uint32_t)(int8_t)byte);
            }
        if (m < maps)
            of_filter[1] = (int8_t)(((const uint8_t *)zero->data)[zero->size == 1 ? 0 : m] ^ flip);
        memcpy(to + HT_QUAD * l.steps, of_filter, sizeof of_filter);
    }
    return HT_OK;
}

/* ---- convolution */

/* The whole call, as units: blocks of pixels times blocks of filters, of each group of each image. */
typedef struct {
    const ht_call *call;
    layout l;
    int64_t maps, group_maps; /* filters in all, and of a group */
    int64_t pixels;           /* numbered across rows and planes */
    uint8_t zero;             /* of x, as it is stored */
    int64_t pixel_blocks, map_blocks, block_pixels, block_maps, units, parts;
} conv;

/* Where each quad of a window lies, in bytes from its first. */
static void find_steps(const layout *l, int64_t *steps)
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
}

typedef struct {
    int64_t from, count, to; /* columns of a tile, and where they go in an output's plane */
} run;

/* What of the pixels [first, first + HT_INTEGER_WIDTH) exists. */
static int64_t find_runs(const layout *l, int64_t first, int64_t pixels, run *runs)
{
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

/* Pixels of a group that stay in the L1 cache while its filters pass. */
HT_INLINE int64_t chunk_pixels(const layout *l)
{
    enum { CHUNK_BYTES = 1 << 15, LEAST = 64 };
    const int64_t bytes = HT_QUAD * l->quads * l->phases[0] * l->phases[1] * l->phases[2];
    return ht_max64(LEAST, CHUNK_BYTES / ht_max64(1, bytes) / HT_INTEGER_WIDTH * HT_INTEGER_WIDTH);
}

/* Filters [map, map + maps) of group g of image n, pixels [p0, p1). */
static void convolve_block(const conv *job, int64_t n, int64_t g, int64_t map, int64_t maps, int64_t p0, int64_t p1,
                           const int64_t *steps, uint8_t *scratch)
{
    const ht_tensor *const *in = job->call->in, *y = job->call->out[0];
    const layout *l = &job->l;
    const int64_t filter = HT_QUAD * (l->steps + 2), depth = l->channels * l->kernel[0] * l->kernel[1] * l->kernel[2];
    const uint8_t *x = (const uint8_t *)in[0]->data + (n * l->group + g) * l->quads * l->plane;
    const uint8_t *w = (const uint8_t *)in[1]->data;
    const int32_t *bias = in[3] ? in[3]->data : NULL;
    for (int64_t m0 = map; m0 < map + maps; m0 += HT_TILE_ROWS) {
        const int64_t rows = ht_min64(HT_TILE_ROWS, map + maps - m0), first = g * job->group_maps + m0;
        int32_t start[HT_TILE_ROWS], zeros[HT_TILE_ROWS], any_zero = 0;
        ht_integer_tile t = {.a = w + first * filter, .a_row = filter, .b_panel = HT_PANEL_BYTES, .steps = steps,
                             .quads = l->steps};
        for (int64_t r = 0; r < rows; r++) {
            uint32_t of_filter[2];
            memcpy(of_filter, w + (first + r) * filter + HT_QUAD * l->steps, sizeof of_filter);
            start[r] = (int32_t)((bias ? (uint32_t)bias[first + r] : 0u) - job->zero * of_filter[0] +
                                 (uint32_t)depth * job->zero * of_filter[1]);
            zeros[r] = (int32_t)of_filter[1];
            any_zero |= zeros[r];
        }
#if HT_VNNI
        (void)scratch; /* filters lie as the tiles read them */
#else
        for (int64_t r = 0; r < rows; r++)
            (void)ht_prepare_quads(w + (first + r) * filter, HT_QUAD * l->steps, 0, 1, scratch + r * l->steps * HT_A_QUAD);
        t.a = scratch;
        t.a_row = l->steps * HT_A_QUAD;
#endif
        for (int64_t p = p0; p < p1; p += HT_INTEGER_WIDTH) {
            const int64_t columns = ht_min64(HT_INTEGER_WIDTH, p1 - p);
            int32_t c[HT_TILE_ROWS * HT_INTEGER_WIDTH];
            run runs[HT_INTEGER_WIDTH];
            const int64_t num_runs = find_runs(l, p, p1, runs);
            if (num_runs == 0)
                continue; /* the ends of rows only */
            t.start = start;
            t.b = x + HT_QUAD * p;
            if (HT_UNLIKELY(any_zero)) { /* the sum over each window is what a filter of ones gives */
                int32_t sums[HT_INTEGER_WIDTH] = {0};
                ht_integer_tile ones = t;
                t.start = ones.start = NULL;
                ones.a = w + job->maps * filter;
                ones.c = sums;
#if !HT_VNNI
                uint8_t *widened = scratch + HT_TILE_ROWS * t.a_row;
                (void)ht_prepare_quads(ones.a, HT_QUAD * l->steps, 0, 1, widened);
                ones.a = widened;
#endif
                ht_integer_rows(ht_window_tiles, &ones, 1, columns);
                for (int64_t r = 0; r < rows; r++)
                    for (int64_t j = 0; j < HT_INTEGER_WIDTH; j++)
                        c[r * HT_INTEGER_WIDTH + j] = (int32_t)((uint32_t)start[r] - (uint32_t)zeros[r] * (uint32_t)sums[j]);
            }
            t.c = c;
            ht_integer_rows(ht_window_tiles, &t, rows, columns);
            for (int64_t r = 0; r < rows; r++) {
                const int32_t *row = c + r * HT_INTEGER_WIDTH;
                const int64_t plane = (n * job->maps + first + r) * l->out_size;
                if (y->dtype == HT_INT32) {
                    for (int64_t i = 0; i < num_runs; i++)
                        memcpy((int32_t *)y->data + plane + runs[i].to, row + runs[i].from,
                               (size_t)runs[i].count * sizeof *row);
                } else {
                    uint8_t bytes[HT_INTEGER_WIDTH], *to = (uint8_t *)y->data + plane + runs[0].to;
                    const int whole = runs[0].count == HT_INTEGER_WIDTH;
                    ht_requantize_row(row, (const float *)in[4]->data + (in[4]->size == 1 ? 0 : first + r), 0,
                                      ht_byte_at(in[5], 0), y->dtype == HT_INT8, whole ? to : bytes, HT_INTEGER_WIDTH);
                    for (int64_t i = whole; i < num_runs; i++)
                        memcpy((uint8_t *)y->data + plane + runs[i].to, bytes + runs[i].from, (size_t)runs[i].count);
                }
            }
        }
    }
}

static void convolve_part(void *context, int64_t part, int thread)
{
    const conv *job = (const conv *)context;
    int64_t *steps = ht_scratch(job->call, thread);
    find_steps(&job->l, steps);
    const int64_t end = ht_part_begin(job->units, job->parts, part + 1);
    for (int64_t unit = ht_part_begin(job->units, job->parts, part); unit < end; unit++) {
        const int64_t pixel = unit % job->pixel_blocks * job->block_pixels;
        const int64_t map = unit / job->pixel_blocks % job->map_blocks * job->block_maps;
        const int64_t image = unit / job->pixel_blocks / job->map_blocks, chunk = chunk_pixels(&job->l);
        const int64_t last = ht_min64(pixel + job->block_pixels, job->pixels);
        for (int64_t p = pixel; p < last; p += chunk)
            convolve_block(job, image / job->l.group, image % job->l.group, map,
                           ht_min64(job->block_maps, job->group_maps - map), p, ht_min64(p + chunk, last), steps,
                           (uint8_t *)(steps + job->l.steps));
    }
}

int HT_KERNEL(conv_integer)(const ht_call *call)
{
    conv job = {.call = call};
    if ((call->num_in != 4 && call->num_in != 6) || call->num_out != 1 || !layout_of(&job.l, call))
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0], *w = call->in[1], *zero = call->in[2], *bias = call->in[3], *y = call->out[0];
    const layout *l = &job.l;
    ht_window shape;
    if (x->dtype != HT_UINT8 || w->dtype != HT_UINT8 || (zero->dtype != HT_INT8 && zero->dtype != HT_UINT8) ||
        (bias && bias->dtype != HT_INT32))
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
    if (x->size != shape.n * l->group * l->quads * l->plane + SLACK ||
        w->size != (job.maps + 1) * HT_QUAD * (l->steps + 2) || (bias && bias->size != job.maps) ||
        call->scratch_bytes < 112 * l->steps)
        return HT_ERR_OPERAND;
    job.zero = *(const uint8_t *)zero->data ^ (zero->dtype == HT_UINT8 ? 0 : 0x80);
    job.pixels = ((l->out[0] - 1) * l->length[1] + l->out[1] - 1) * l->length[2] + l->out[2];
    /* Blocks of pixels first, then of filters. */
    const double cost = (double)shape.n * (double)job.maps * (double)job.pixels * (double)l->steps;
    const int64_t images = shape.n * l->group, wanted = ht_ceil_div(ht_parts(call, INT64_MAX, cost), images);
    const int64_t wide = ht_ceil_div(job.pixels, HT_INTEGER_WIDTH), tall = ht_ceil_div(job.group_maps, HT_TILE_ROWS);
    job.block_pixels = ht_ceil_div(wide, ht_min64(wide, wanted)) * HT_INTEGER_WIDTH;
    job.pixel_blocks = ht_ceil_div(job.pixels, job.block_pixels);
    job.block_maps = ht_ceil_div(tall, ht_min64(tall, ht_ceil_div(wanted, job.pixel_blocks))) * HT_TILE_ROWS;
    job.map_blocks = ht_ceil_div(job.group_maps, job.block_maps);
    job.units = images * job.pixel_blocks * job.map_blocks;
    job.parts = ht_parts(call, job.units, cost);
    ht_parallel(call->team, job.parts, convolve_part, &job);
    return HT_OK;
}
