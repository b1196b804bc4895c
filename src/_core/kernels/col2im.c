/* col2im: sums overlapping windows, the reverse of extracting windows. The second half of a transposed convolution.
 *
 * y[n][c][...] = bias[c] + the sum of all columns that fall on an element. Tap t of window p lies at p * stride - pad +
 * t * dilation, along each of up to three spatial axes; positions outside y are dropped.
 * Operands: in columns[n][c][taps][windows] (float32 or float64; taps and windows row-major), bias[c] or NULL; out
 * y[n][c][...] of rank 3 to 5. ints: triples (missing leading axes: 1) taps, windows, strides, pads before, dilations.
 * Cost: one addition per element of columns, along the innermost axis. Sums run in the order of the taps.
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

/* One tap of one row: to[i * step] += from[i]. With step 2 the next tap falls in between, so pairs of taps share a loop
 * that writes a whole row and vectorizes. */
#define DEFINE_PLANE(T)                                                                                               \
    static void add_##T(const T *HT_RESTRICT from, T *HT_RESTRICT to, int64_t n, int64_t step)                        \
    {                                                                                                                 \
        if (step == 1)                                                                                                \
            HT_LONG_FOR (i, n)                                                                                        \
                to[i] += from[i];                                                                                     \
        else                                                                                                          \
            HT_LONG_FOR (i, n)                                                                                        \
                to[i * step] += from[i];                                                                              \
    }                                                                                                                 \
    static void add_pair_##T(const T *HT_RESTRICT even, const T *HT_RESTRICT odd, T *HT_RESTRICT to, int64_t n)       \
    {                                                                                                                 \
        HT_LONG_FOR (i, n) {                                                                                          \
            to[2 * i] += even[i];                                                                                     \
            to[2 * i + 1] += odd[i];                                                                                  \
        }                                                                                                             \
    }                                                                                                                 \
    /* Tap t of the innermost axis, and t + 1 if `pair`, along one row of windows. */                                 \
    static void row_##T(const layout *w, const T *from, int64_t size, int64_t t, int pair, T *to)                     \
    {                                                                                                                 \
        const int64_t step = w->stride[2], offset = t * w->dilation[2] - w->pad[2];                                   \
        int64_t first, last, first_odd, last_odd;                                                                     \
        ht_valid_range(offset, step, w->out[2], w->windows[2], &first, &last);                                        \
        if (!pair) {                                                                                                  \
            if (last > first)                                                                                         \
                add_##T(from + first, to + first * step + offset, last - first, step);                                \
            return;                                                                                                   \
        }                                                                                                             \
        const T *odd = from + size;                                                                                   \
        ht_valid_range(offset + 1, step, w->out[2], w->windows[2], &first_odd, &last_odd);                            \
        const int64_t low = ht_max64(first, first_odd), high = ht_max64(low, ht_min64(last, last_odd));               \
        for (int64_t i = first; i < ht_min64(low, last); i++)                                                         \
            to[i * 2 + offset] += from[i];                                                                            \
        for (int64_t i = first_odd; i < ht_min64(low, last_odd); i++)                                                 \
            to[i * 2 + offset + 1] += odd[i];                                                                         \
        if (high > low)                                                                                               \
            add_pair_##T(from + low, odd + low, to + low * 2 + offset, high - low);                                   \
        for (int64_t i = high; i < last; i++)                                                                         \
            to[i * 2 + offset] += from[i];                                                                            \
        for (int64_t i = high; i < last_odd; i++)                                                                     \
            to[i * 2 + offset + 1] += odd[i];                                                                         \
    }                                                                                                                 \
    static void plane_##T(const layout *w, const T *column, T *y)                                                     \
    {                                                                                                                 \
        const int64_t row = w->windows[2], size = w->windows[0] * w->windows[1] * row;                                \
        const int pairs = w->stride[2] == 2 && w->dilation[2] == 1;                                                   \
        int64_t t[3], first[2], last[2], offset[2], left = HT_PACE;                                                   \
        for (t[0] = 0; t[0] < w->taps[0]; t[0]++)                                                                     \
            for (t[1] = 0; t[1] < w->taps[1]; t[1]++) {                                                               \
                for (int i = 0; i < 2; i++) {                                                                         \
                    offset[i] = t[i] * w->dilation[i] - w->pad[i];                                                    \
                    ht_valid_range(offset[i], w->stride[i], w->out[i], w->windows[i], &first[i], &last[i]);           \
                }                                                                                                     \
                for (t[2] = 0; t[2] < w->taps[2];) {                                                                  \
                    const int pair = pairs && t[2] + 1 < w->taps[2];                                                  \
                    for (int64_t z = first[0]; z < last[0]; z++)                                                      \
                        for (int64_t line = first[1]; line < last[1]; line++) {                                       \
                            if (ht_paced_stop(&left, (1 + pair) * row))                                               \
                                return;                                                                               \
                            const int64_t at_z = z * w->stride[0] + offset[0];                                        \
                            const int64_t at_y = line * w->stride[1] + offset[1];                                     \
                            row_##T(w, column + (z * w->windows[1] + line) * row, size, t[2], pair,                   \
                                    y + (at_z * w->out[1] + at_y) * w->out[2]);                                       \
                        }                                                                                             \
                    column += (1 + pair) * size;                                                                      \
                    t[2] += 1 + pair;                                                                                 \
                }                                                                                                     \
            }                                                                                                         \
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
    if (j->call->out[0]->dtype == HT_FLOAT32)
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
