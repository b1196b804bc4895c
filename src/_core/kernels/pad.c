/* out = x with a border. Operands: in x, and for HT_PAD_CONSTANT optionally value (1 element of x's dtype; absent: zero bytes);
 * out of x's rank and dtype. Parameters: ints = mode, before[rank]; the pads at the end follow from out's dims.
 * Negative pads, at either end, first remove elements from x; no mode reads the removed elements.
 * mode: HT_PAD_*. REFLECT does not repeat the edge, and may bounce several times.
 * Modes other than CONSTANT give HT_ERR_OPERAND if an axis has no elements left, unless out is empty too. Elements are only moved,
 * so any dtype works.
 */
#include "elements.h"

#include <string.h>

enum { CONSTANT = HT_PAD_CONSTANT, REFLECT = HT_PAD_REFLECT, EDGE = HT_PAD_EDGE, WRAP = HT_PAD_WRAP };

/* Source of position i (may lie outside) on an axis of `size` >= 1; -1: the constant. */
static int64_t source(int64_t i, int64_t size, int64_t mode)
{
    if (i >= 0 && i < size)
        return i;
    if (mode == CONSTANT)
        return -1;
    if (mode == EDGE)
        return i < 0 ? 0 : size - 1;
    const int64_t period = mode == WRAP || size == 1 ? size : 2 * (size - 1);
    i %= period;
    if (i < 0)
        i += period;
    return i < size ? i : period - i;
}

/* The axes after merging: adjacent ones without pads are one. Per axis: the sizes of x and out, the first element of x that
 * negative pads keep, how many they keep, and where the first of them goes in out. The last axes, if they have no pads, are not
 * among these but a block, which is moved as if it were an element. */
typedef struct {
    int rank;
    int64_t x[HT_MAX_DIMS], out[HT_MAX_DIMS], first[HT_MAX_DIMS], size[HT_MAX_DIMS], before[HT_MAX_DIMS];
    int64_t block; /* elements */
} cropped;

/* Whether out has the whole axis and nothing else. */
static int is_whole(const cropped *c, int d) { return c->out[d] == c->x[d] && c->size[d] == c->x[d]; }

static void merge_unpadded(cropped *c, int64_t mode)
{
    int rank = 0;
    c->block = 1;
    for (int d = 0; d < c->rank; d++) {
        if (rank > 0 && is_whole(c, d) && is_whole(c, rank - 1)) {
            c->x[rank - 1] *= c->x[d];
            c->out[rank - 1] = c->size[rank - 1] = c->x[rank - 1];
            continue;
        }
        c->x[rank] = c->x[d], c->out[rank] = c->out[d], c->first[rank] = c->first[d], c->size[rank] = c->size[d];
        c->before[rank++] = c->before[d];
    }
    c->rank = rank;
    if (rank < 2 || !is_whole(c, rank - 1))
        return;
    const int64_t block = c->x[rank - 1];
    const int last = rank - 2;
    c->rank = rank - 1;
    if (mode != CONSTANT) { /* else a block of constants is a row of constants */
        c->block = block;
        return;
    }
    if (c->size[last] <= 0) /* products of pads, which may be huge, do not overflow */
        c->first[last] = c->size[last] = 0;
    if (c->before[last] > c->out[last])
        c->before[last] = c->out[last];
    c->x[last] *= block, c->out[last] *= block, c->first[last] *= block, c->size[last] *= block;
    c->before[last] *= block;
}

/* Elements [begin, end) of a row; x: its first kept element, NULL if the row is outside x. `bits`: the constant. `bytes`: of
 * an element. */
typedef void (*row_fn)(const void *x, void *out, int64_t begin, int64_t end, int64_t before, int64_t size, int64_t mode,
                       uint64_t bits, int64_t bytes);

#define DEFINE_ROW(T)                                                                                          \
    static void row_##T(const void *px, void *pout, int64_t begin, int64_t end, int64_t before, int64_t size,  \
                        int64_t mode, uint64_t bits, int64_t bytes)                                            \
    {                                                                                                          \
        const T *x = (const T *)px;                                                                            \
        T *out = (T *)pout, value;                                                                             \
        int64_t left = HT_PIECE;                                                                               \
        (void)bytes;                                                                                           \
        memcpy(&value, &bits, sizeof value);                                                                   \
        for (int64_t i = begin; i < end;) {                                                                    \
            const int64_t from = i - before;                                                                   \
            if (x != NULL && from >= 0 && from < size) { /* the inside: one copy */                            \
                const int64_t length = size - from < end - i ? size - from : end - i;                          \
                ht_long_copy(out + i, x + from, length * (int64_t)sizeof(T));                                  \
                i += length;                                                                                   \
            } else if (x == NULL || mode == CONSTANT) {                                                        \
                int64_t stop = x != NULL && from < 0 && before < end ? before : end;                           \
                stop = stop - i > HT_PIECE ? i + HT_PIECE : stop;                                              \
                if (ht_paced_stop(&left, stop - i))                                                            \
                    return;                                                                                    \
                for (; i < stop; i++)                                                                          \
                    out[i] = value;                                                                            \
            } else {                                                                                           \
                if (ht_paced_stop(&left, 0))                                                                   \
                    return;                                                                                    \
                out[i++] = x[source(from, size, mode)];                                                        \
            }                                                                                                  \
        }                                                                                                      \
    }
DEFINE_ROW(uint8_t)
DEFINE_ROW(uint16_t)
DEFINE_ROW(uint32_t)
DEFINE_ROW(uint64_t)

/* Blocks of any size; not CONSTANT. */
static void row_blocks(const void *px, void *pout, int64_t begin, int64_t end, int64_t before, int64_t size, int64_t mode,
                       uint64_t bits, int64_t bytes)
{
    const char *x = (const char *)px;
    char *out = (char *)pout;
    int64_t left = HT_PACE;
    (void)bits;
    for (int64_t i = begin, run; i < end; i += run) {
        const int64_t from = i - before, inside = from >= 0 && from < size;
        run = !inside ? 1 : size - from < end - i ? size - from : end - i;
        if (ht_paced_stop(&left, run * bytes))
            return;
        ht_long_copy(out + i * bytes, x + source(from, size, mode) * bytes, run * bytes);
    }
}

typedef struct {
    const ht_tensor *x;
    ht_tensor *out;
    cropped c;
    int64_t mode, bytes; /* of an element or a block */
    uint64_t bits;
    row_fn row;
    ht_row_units rows;
} padding;

static void pad_part(void *context, int64_t part, int thread)
{
    const padding *job = (const padding *)context;
    const ht_tensor *x = job->x, *out = job->out;
    const cropped *c = &job->c;
    const int last = c->rank - 1;
    int64_t position[HT_MAX_DIMS], left = HT_PACE;
    ht_row_walk walk = ht_walk_rows(&job->rows, part);
    int64_t row = walk.row;
    (void)thread;
    for (int d = last - 1; d >= 0; row /= c->out[d], d--)
        position[d] = row % c->out[d];
    do {
        const int64_t begin = ht_walk_begin(&walk), end = ht_walk_end(&walk);
        if (ht_paced_stop(&left, end - begin))
            return;
        int64_t at = 0;
        for (int d = 0; d < last && at >= 0; d++) {
            const int64_t k = c->size[d] > 0 ? source(position[d] - c->before[d], c->size[d], job->mode) : -1;
            at = k < 0 ? -1 : at * c->x[d] + c->first[d] + k;
        }
        const char *from = at < 0 || c->size[last] <= 0
                               ? NULL
                               : (const char *)x->data + (at * c->x[last] + c->first[last]) * job->bytes;
        job->row(from, (char *)out->data + walk.row * job->rows.n * job->bytes, begin, end, c->before[last], c->size[last],
                 job->mode, job->bits, job->bytes);
        for (int d = last - 1; d >= 0 && ++position[d] == c->out[d]; d--)
            position[d] = 0;
    } while (ht_walk_next(&walk));
}

int HT_KERNEL(pad)(const ht_call *call)
{
    if (call->num_in < 1 || call->num_in > 2 || call->num_out != 1)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0], *value = call->num_in == 2 ? call->in[1] : NULL;
    ht_tensor *out = call->out[0];
    if (call->num_ints != 1 + x->ndim || x->ndim < 1 || out->ndim != x->ndim || out->dtype != x->dtype ||
        (value && (value->size != 1 || value->dtype != x->dtype)))
        return HT_ERR_OPERAND;
    const int64_t mode = call->ints[0];
    padding job = {.x = x, .out = out, .mode = mode, .bytes = ht_element_bytes(x->dtype)};
    if (mode < CONSTANT || mode > WRAP)
        return HT_ERR_OPERAND;
    if (out->size == 0)
        return HT_OK;
    cropped *c = &job.c;
    c->rank = x->ndim;
    for (int d = 0; d < x->ndim; d++) {
        const int64_t before = call->ints[1 + d];
        if (before < -((int64_t)1 << 60) || before > ((int64_t)1 << 60))
            return HT_ERR_OPERAND;
        const int64_t after = out->dims[d] - x->dims[d] - before;
        c->x[d] = x->dims[d], c->out[d] = out->dims[d];
        c->before[d] = before > 0 ? before : 0;
        c->first[d] = c->before[d] - before;
        c->size[d] = x->dims[d] - c->first[d] + (after < 0 ? after : 0);
        if (mode != CONSTANT && c->size[d] <= 0)
            return HT_ERR_OPERAND;
    }
    if (value)
        memcpy(&job.bits, value->data, (size_t)job.bytes);
    merge_unpadded(c, mode);
    switch (job.bytes) {
    case 1: job.row = row_uint8_t; break;
    case 2: job.row = row_uint16_t; break;
    case 4: job.row = row_uint32_t; break;
    case 8: job.row = row_uint64_t; break;
    default: return HT_ERR_DTYPE;
    }
    if (c->block > 1) {
        job.row = row_blocks;
        job.bytes *= c->block;
    }
    const int64_t n = c->out[c->rank - 1], blocks = out->size / c->block;
    job.rows = ht_divide_rows(call, blocks / n, n, 4 * (double)out->size);
    ht_parallel(call->team, job.rows.parts, pad_part, &job);
    return HT_OK;
}
