/* col2im: sums overlapping windows, the reverse of extracting windows. The second half of a transposed convolution.
 *
 * y[n][c][...] = bias[c] + the sum of all columns that fall on an element. Tap t of window p lies at p * stride - pad +
 * t * dilation, along each of up to three spatial axes; positions outside y are dropped.
 * Operands: in columns[n][c][taps][windows] (float32 or float64; taps and windows row-major), bias[c] or NULL; out
 * y[n][c][...] of rank 3 to 5. ints: triples (missing leading axes: 1) taps, windows, strides, pads before, dilations.
 * Cost: one addition per element of columns, along the innermost axis. Sums begin with the bias and run in the order of the
 * taps.
 *
 * col2im_lanes computes the same, bit for bit, from columns that have their channels innermost: columns[n][group][windows]
 * [taps][c / group], float32. Channels are in the lanes, so rows of any length are fast; y is transposed at the end. ints:
 * as col2im, and the number of groups. Scratch: a plane of y for each lane.
 */
#include "spatial.h"
#include "transpose.h"

typedef struct {
    int64_t taps[3], windows[3], stride[3], pad[3], dilation[3], out[3];
} layout;

#define DEFINE_PLANE(T)                                                                                               \
    /* One tap of one row: to[i * step] += from[i]. */                                                                \
    static void add_##T(const T *HT_RESTRICT from, T *HT_RESTRICT to, int64_t n, int64_t step)                        \
    {                                                                                                                 \
        if (step == 1)                                                                                                \
            HT_LONG_FOR (i, n)                                                                                        \
                to[i] += from[i];                                                                                     \
        else                                                                                                          \
            HT_LONG_FOR (i, n)                                                                                        \
                to[i * step] += from[i];                                                                              \
    }                                                                                                                 \
    static void plane_##T(const layout *w, const T *column, T *y)                                                     \
    {                                                                                                                 \
        const int64_t row = w->windows[2], size = w->windows[0] * w->windows[1] * row, step = w->stride[2];           \
        int64_t t[3], first[3], last[3], offset[3], left = HT_PACE;                                                   \
        for (t[0] = 0; t[0] < w->taps[0]; t[0]++)                                                                     \
            for (t[1] = 0; t[1] < w->taps[1]; t[1]++)                                                                 \
                for (t[2] = 0; t[2] < w->taps[2]; t[2]++, column += size) {                                           \
                    for (int i = 0; i < 3; i++) {                                                                     \
                        offset[i] = t[i] * w->dilation[i] - w->pad[i];                                                \
                        ht_valid_range(offset[i], w->stride[i], w->out[i], w->windows[i], &first[i], &last[i]);       \
                    }                                                                                                 \
                    if (last[2] == first[2])                                                                          \
                        continue;                                                                                     \
                    for (int64_t z = first[0]; z < last[0]; z++)                                                      \
                        for (int64_t line = first[1]; line < last[1]; line++) {                                       \
                            if (ht_paced_stop(&left, row))                                                            \
                                return;                                                                               \
                            const int64_t at_z = z * w->stride[0] + offset[0];                                        \
                            const int64_t at_y = line * w->stride[1] + offset[1];                                     \
                            const int64_t at = (at_z * w->out[1] + at_y) * w->out[2] + first[2] * step + offset[2];   \
                            add_##T(column + (z * w->windows[1] + line) * row + first[2], y + at, last[2] - first[2], \
                                    step);                                                                            \
                        }                                                                                             \
                }                                                                                                     \
    }                                                                                                                 \
    static void planes_##T(const ht_call *call, const layout *w, int64_t begin, int64_t end)                          \
    {                                                                                                                 \
        const T *bias = call->in[1] ? (const T *)call->in[1]->data : NULL;                                            \
        const int64_t c = call->out[0]->dims[1], size = w->out[0] * w->out[1] * w->out[2];                            \
        const int64_t windows = w->windows[0] * w->windows[1] * w->windows[2];                                        \
        const int64_t columns = w->taps[0] * w->taps[1] * w->taps[2] * windows;                                       \
        for (int64_t plane = begin; plane < end; plane++) {                                                           \
            T *y = (T *)call->out[0]->data + plane * size;                                                            \
            const T start = bias ? bias[plane % c] : 0;                                                               \
            HT_LONG_FOR (i, size)                                                                                     \
                y[i] = start;                                                                                         \
            plane_##T(w, (const T *)call->in[0]->data + plane * columns, y);                                          \
        }                                                                                                             \
    }
DEFINE_PLANE(float)
DEFINE_PLANE(double)

/* ---- sums in registers */

/* For float32, if the numbers below suffice: each vector of y adds up all of its taps. With a stride s along rows, a vector
 * has every s-th element: those of one phase, which is the position modulo s. */
enum {
    MOST_PHASES = 16,
    MOST_TAPS = 32,        /* along rows, and along the other axes together */
    MOST_PLANES = 8,       /* planes that are computed together, so that each row is found once */
    GROUP_FLOATS = 1 << 16 /* of their columns: they stay in the L2 cache */
};

/* The taps along a row. Tap t adds element i + at[t] of a row of columns to element i of its phase, for low[t] <= i <
 * high[t]; `at` counts from the row of the first tap. The taps of a phase are first[phase] and every `step`-th after it.
 * Elements inside[0] .. inside[1] - 1 get all taps of their phase. quotient, rest: the positions of the taps along the
 * other axes, divided by the strides. */
typedef struct {
    int64_t low[MOST_TAPS], high[MOST_TAPS], at[MOST_TAPS], first[MOST_PHASES], step, inside[2];
    int64_t quotient[2][MOST_TAPS], rest[2][MOST_TAPS];
} row_taps;

static int sums_in_registers(const layout *w)
{
    return w->stride[2] <= MOST_PHASES && w->taps[2] <= MOST_TAPS && w->taps[1] <= MOST_TAPS &&
           w->taps[0] * w->taps[1] <= MOST_TAPS;
}

static void find_taps(const layout *w, row_taps *r)
{
    const int64_t stride = w->stride[2];
    r->step = 1;
    while (r->step * w->dilation[2] % stride != 0)
        r->step++;
    for (int64_t phase = 0; phase < stride; phase++)
        r->first[phase] = w->taps[2];
    r->inside[0] = 0;
    r->inside[1] = w->out[2] / stride; /* the phases need not be equally long */
    for (int64_t t = w->taps[2] - 1; t >= 0; t--) {
        const int64_t offset = t * w->dilation[2] - w->pad[2], phase = (offset % stride + stride) % stride;
        int64_t first, last;
        ht_valid_range(offset, stride, w->out[2], w->windows[2], &first, &last);
        r->first[phase] = t;
        const int64_t shift = -((offset - phase) / stride); /* tap t adds window i + shift to element i of the phase */
        r->at[t] = t * w->windows[0] * w->windows[1] * w->windows[2] + shift;
        r->low[t] = first - shift;
        r->high[t] = last - shift;
        r->inside[0] = ht_max64(r->inside[0], r->low[t]);
        r->inside[1] = ht_min64(r->inside[1], r->high[t]);
    }
    for (int i = 0; i < 2; i++)
        for (int64_t t = 0; t < w->taps[i]; t++) {
            r->quotient[i][t] = t * w->dilation[i] / w->stride[i];
            r->rest[i][t] = t * w->dilation[i] % w->stride[i];
        }
}

/* Where the rows of the columns begin that fall on a row of y, for the first tap along rows, in the order of the taps. */
HT_INLINE int find_rows(const layout *w, const row_taps *r, int64_t z, int64_t y, int64_t *rows)
{
    const int64_t at[2] = {z + w->pad[0], y + w->pad[1]}, row = w->windows[2];
    const int64_t step = w->taps[2] * w->windows[0] * w->windows[1] * row; /* from a tap along columns to the next */
    int64_t quotient[2], rest[2], begin = 0;
    int count = 0;
    for (int i = 0; i < 2; i++) {
        quotient[i] = HT_LIKELY(w->stride[i] == 1) ? at[i] : at[i] / w->stride[i];
        rest[i] = at[i] - quotient[i] * w->stride[i];
    }
    for (int64_t tz = 0; tz < w->taps[0]; tz++, begin += w->taps[1] * step) {
        const int64_t at_z = quotient[0] - r->quotient[0][tz];
        if (rest[0] != r->rest[0][tz] || at_z < 0 || at_z >= w->windows[0])
            continue;
        for (int64_t ty = 0; ty < w->taps[1]; ty++) {
            const int64_t at_y = quotient[1] - r->quotient[1][ty];
            if (rest[1] == r->rest[1][ty] && at_y >= 0 && at_y < w->windows[1])
                rows[count++] = begin + ty * step + (at_z * w->windows[1] + at_y) * row;
        }
    }
    return count;
}

/* y[i * phases + phase] = sums[phase][i], for n elements of y. */
HT_INLINE void spread(const float *sums, int64_t phases, int64_t n, float *y)
{
    if (phases == 1 || phases == 2) {
        const vf a = vf_load(sums), b = phases == 1 ? a : vf_load(sums + VF_LANES);
        const vf parts[2] = {phases == 1 ? a : vf_zip_low(a, b), vf_zip_high(a, b)};
        for (int i = 0; i < phases && n > 0; i++, n -= VF_LANES, y += VF_LANES)
            if (HT_LIKELY(n >= VF_LANES))
                vf_store(y, parts[i]);
            else
                vf_store_n(y, n, parts[i]);
        return;
    }
    for (int64_t i = 0; n > 0; i++, n -= phases, y += phases)
        for (int64_t phase = 0; phase < ht_min64(phases, n); phase++)
            y[phase] = sums[phase * VF_LANES + i];
}

/* `count` planes that follow each other, and the number that a sum of each starts with. */
typedef struct {
    const float *column;
    float *y, start[MOST_PLANES];
    int64_t count;
} group;

/* Elements begin .. end - 1 of all phases of all rows of some planes: whole vectors, row after row, so that columns and y are
 * read and written in long runs. `inside`: they have all taps; otherwise one vector. Adding -0 changes no number. */
HT_INLINE int vectors(const layout *w, const row_taps *r, const group *g, int64_t begin, int64_t end, const int inside,
                      int64_t *left)
{
    const int64_t phases = w->stride[2], size = w->windows[0] * w->windows[1] * w->windows[2];
    const int64_t width = ht_min64(VF_LANES * phases, w->out[2] - begin * phases), taps = w->taps[2];
    const int64_t columns = w->taps[0] * w->taps[1] * taps * size, plane_size = w->out[0] * w->out[1] * w->out[2];
    float *y = g->y;
    int8_t low[MOST_TAPS], high[MOST_TAPS];
    float sums[MOST_PHASES * VF_LANES];
    HT_ASSERT(inside || end == begin + VF_LANES);
    if (!inside)
        for (int64_t t = 0; t < taps; t++) {
            low[t] = (int8_t)ht_min64(ht_max64(r->low[t] - begin, 0), VF_LANES);
            high[t] = (int8_t)ht_max64(low[t], ht_min64(r->high[t] - begin, VF_LANES));
        }
    for (int64_t z = 0; z < w->out[0]; z++)
        for (int64_t line = 0; line < w->out[1]; line++, y += w->out[2]) {
            int64_t rows[MOST_TAPS];
            const int count = find_rows(w, r, z, line, rows);
            if (ht_paced_stop(left, g->count * (1 + count) * (end - begin) * taps))
                return 0;
            for (int64_t plane = 0; plane < g->count; plane++)
                for (int64_t i = begin; i < end; i += VF_LANES) {
                    const float *column = g->column + plane * columns + i;
                    for (int64_t phase = 0; phase < phases; phase++) {
                        vf sum = vf_set1(g->start[plane]);
                        for (int k = 0; k < count; k++) {
                            const float *from = column + rows[k];
                            for (int64_t t = r->first[phase]; t < taps; t += r->step)
                                sum += inside ? vf_load(from + r->at[t])
                                              : vf_load_or(from + r->at[t], low[t], high[t], vf_set1(-0.0f));
                        }
                        vf_store(sums + phase * VF_LANES, sum);
                    }
                    spread(sums, phases, width, y + plane * plane_size + i * phases);
                }
        }
    return 1;
}

static void planes_in_registers(const ht_call *call, const layout *w, int64_t begin, int64_t end)
{
    const float *bias = call->in[1] ? (const float *)call->in[1]->data : NULL;
    const int64_t c = call->out[0]->dims[1], size = w->out[0] * w->out[1] * w->out[2], phases = w->stride[2];
    const int64_t columns = w->taps[0] * w->taps[1] * w->taps[2] * w->windows[0] * w->windows[1] * w->windows[2];
    const int64_t most = ht_min64(MOST_PLANES, ht_max64(1, GROUP_FLOATS / ht_max64(1, columns)));
    int64_t left = HT_PACE;
    row_taps r;
    find_taps(w, &r);
    for (int64_t plane = begin; plane < end; plane += most) {
        group g = {.column = (const float *)call->in[0]->data + plane * columns, .count = ht_min64(most, end - plane)};
        g.y = (float *)call->out[0]->data + plane * size;
        for (int64_t k = 0; k < g.count; k++)
            g.start[k] = bias ? bias[(plane + k) % c] : 0;
        for (int64_t i = 0, next; i * phases < w->out[2]; i = next) {
            const int64_t whole = i >= r.inside[0] ? (r.inside[1] - i) / VF_LANES : 0;
            next = i + ht_max64(1, whole) * VF_LANES;
            if (!(whole > 0 ? vectors(w, &r, &g, i, next, 1, &left) : vectors(w, &r, &g, i, next, 0, &left)))
                return;
        }
    }
}

typedef struct {
    const ht_call *call;
    const layout *w;
    int64_t planes, parts;
} job;

static void col2im_part(void *context, int64_t part, int thread)
{
    const job *j = (const job *)context;
    const int64_t begin = ht_part_begin(j->planes, j->parts, part), end = ht_part_begin(j->planes, j->parts, part + 1);
    (void)thread;
    if (j->call->out[0]->dtype == HT_FLOAT32 && sums_in_registers(j->w))
        planes_in_registers(j->call, j->w, begin, end);
    else if (j->call->out[0]->dtype == HT_FLOAT32)
        planes_float(j->call, j->w, begin, end);
    else
        planes_double(j->call, j->w, begin, end);
}

/* Fills w from the ints and dims of a call. Returns 0 if the operands do not fit them. */
static int find_layout(const ht_call *call, layout *w)
{
    const ht_tensor *columns = call->in[0], *bias = call->in[1], *y = call->out[0];
    const int rank = y->ndim - 2;
    if (rank < 1 || rank > 3 || columns->dtype != y->dtype || (bias && (bias->dtype != y->dtype || bias->size != y->dims[1])))
        return 0;
    int64_t expected = y->dims[0] * y->dims[1];
    for (int i = 0; i < 3; i++) {
        w->taps[i] = call->ints[i];
        w->windows[i] = call->ints[3 + i];
        w->stride[i] = call->ints[6 + i];
        w->pad[i] = call->ints[9 + i];
        w->dilation[i] = call->ints[12 + i];
        w->out[i] = i < 3 - rank ? 1 : y->dims[rank - 1 + i];
        if (w->taps[i] < 1 || w->windows[i] < 0 || w->stride[i] < 1 || w->dilation[i] < 1 || w->taps[i] > HT_MAX_WINDOW ||
            w->stride[i] > HT_MAX_WINDOW || w->dilation[i] > HT_MAX_WINDOW || w->pad[i] < 0)
            return 0;
        expected *= w->taps[i] * w->windows[i];
    }
    return columns->size == expected;
}

int HT_KERNEL(col2im)(const ht_call *call)
{
    layout w;
    if (call->num_in != 2 || call->num_out != 1 || call->num_ints != 15 || !find_layout(call, &w))
        return HT_ERR_OPERAND;
    const ht_tensor *y = call->out[0];
    if (y->dtype != HT_FLOAT32 && y->dtype != HT_FLOAT64)
        return HT_ERR_DTYPE;
    const int64_t planes = y->dims[0] * y->dims[1];
    job j = {call, &w, planes, ht_parts(call, planes, 4 * ((double)call->in[0]->size + (double)y->size))};
    ht_parallel(call->team, j.parts, col2im_part, &j);
    return HT_OK;
}

/* ---- channels in the lanes */

enum { CHANNELS = HT_PANEL };

typedef struct {
    const ht_call *call;
    const layout *w;
    int64_t group, channels; /* channels: of one group */
    int64_t blocks, parts;   /* blocks: of up to CHANNELS channels of a group of a sample, in all */
} lanes_job;

/* sums[z][y][x][CHANNELS] += what one window contributes to `count` channels, from its columns. */
static void add_window(const layout *w, const int64_t *window, const float *column, int64_t channels, int64_t count,
                       float *sums)
{
    int64_t base[3], first[3], last[3];
    for (int i = 0; i < 3; i++) {
        base[i] = window[i] * w->stride[i] - w->pad[i];
        ht_valid_range(base[i], w->dilation[i], w->out[i], w->taps[i], &first[i], &last[i]);
    }
    for (int64_t z = first[0]; z < last[0]; z++)
        for (int64_t y = first[1]; y < last[1]; y++) {
            const float *from = column + ((z * w->taps[1] + y) * w->taps[2] + first[2]) * channels;
            const int64_t row = (base[0] + z * w->dilation[0]) * w->out[1] + base[1] + y * w->dilation[1];
            float *to = sums + (row * w->out[2] + base[2] + first[2] * w->dilation[2]) * CHANNELS;
            for (int64_t x = first[2]; x < last[2]; x++, from += channels, to += w->dilation[2] * CHANNELS)
                for (int lane = 0; lane < CHANNELS; lane += VF_LANES) {
                    if (HT_LIKELY(lane + VF_LANES <= count))
                        vf_store(to + lane, vf_load(to + lane) + vf_load(from + lane));
                    else if (lane < count)
                        vf_store(to + lane, vf_load(to + lane) + vf_load_n(from + lane, count - lane));
                }
        }
}

static void lanes_part(void *context, int64_t part, int thread)
{
    const lanes_job *j = (const lanes_job *)context;
    const layout *w = j->w;
    const float *bias = j->call->in[1] ? (const float *)j->call->in[1]->data : NULL;
    const int64_t size = w->out[0] * w->out[1] * w->out[2], taps = w->taps[0] * w->taps[1] * w->taps[2];
    const int64_t columns = w->windows[0] * w->windows[1] * w->windows[2] * taps * j->channels;
    const int64_t blocks = ht_ceil_div(j->channels, CHANNELS), end = ht_part_begin(j->blocks, j->parts, part + 1);
    float *sums = (float *)ht_scratch(j->call, thread);
    int64_t left = HT_PACE;
    for (int64_t block = ht_part_begin(j->blocks, j->parts, part); block < end; block++) {
        const int64_t matrix = block / blocks, begin = block % blocks * CHANNELS; /* matrix: of a group of a sample */
        const int64_t count = ht_min64(CHANNELS, j->channels - begin), channel = matrix % j->group * j->channels + begin;
        for (int64_t i = 0; i < size; i++)
            for (int64_t lane = 0; lane < CHANNELS; lane++)
                sums[i * CHANNELS + lane] = bias && lane < count ? bias[channel + lane] : 0;
        /* The windows in descending order: then an element gets its taps in ascending order. */
        const float *column = (const float *)j->call->in[0]->data + (matrix + 1) * columns + begin;
        int64_t window[3];
        for (window[0] = w->windows[0] - 1; window[0] >= 0; window[0]--)
            for (window[1] = w->windows[1] - 1; window[1] >= 0; window[1]--)
                for (window[2] = w->windows[2] - 1; window[2] >= 0; window[2]--) {
                    if (ht_paced_stop(&left, taps * CHANNELS))
                        return;
                    column -= taps * j->channels;
                    add_window(w, window, column, j->channels, count, sums);
                }
        float *y = (float *)j->call->out[0]->data + (matrix * j->channels + begin) * size;
        HT_SHARED(transpose)(4, (const char *)sums, 4 * CHANNELS, (char *)y, 4 * size, count, size);
    }
}

int HT_KERNEL(col2im_lanes)(const ht_call *call)
{
    layout w;
    if (call->num_in != 2 || call->num_out != 1 || call->num_ints != 16 || !find_layout(call, &w))
        return HT_ERR_OPERAND;
    const ht_tensor *y = call->out[0];
    const int64_t group = call->ints[15];
    if (y->dtype != HT_FLOAT32)
        return HT_ERR_DTYPE;
    if (group < 1 || y->dims[1] % group != 0 ||
        call->scratch_bytes < ht_scratch_col2im_lanes(w.out[0] * w.out[1] * w.out[2]))
        return HT_ERR_OPERAND;
    if (y->size == 0)
        return HT_OK;
    lanes_job j = {.call = call, .w = &w, .group = group, .channels = y->dims[1] / group};
    j.blocks = y->dims[0] * group * ht_ceil_div(j.channels, CHANNELS);
    j.parts = ht_parts(call, j.blocks, 4 * ((double)call->in[0]->size + (double)y->size));
    ht_parallel(call->team, j.parts, lanes_part, &j);
    return HT_OK;
}
