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

/* Per axis: the first element of x that negative pads keep, how many they keep, and where the first of them goes in
 * out. */
typedef struct {
    int64_t first[HT_MAX_DIMS], size[HT_MAX_DIMS], before[HT_MAX_DIMS];
} cropped;

/* Elements [begin, end) of a row; x: its first kept element, NULL if the row is outside x. `bits`: the constant. */
typedef void (*row_fn)(const void *x, void *out, int64_t begin, int64_t end, int64_t before, int64_t size, int64_t mode,
                       uint64_t bits);

#define DEFINE_ROW(T)                                                                                          \
    static void row_##T(const void *px, void *pout, int64_t begin, int64_t end, int64_t before, int64_t size,  \
                        int64_t mode, uint64_t bits)                                                           \
    {                                                                                                          \
        const T *x = (const T *)px;                                                                            \
        T *out = (T *)pout, value;                                                                             \
        int64_t left = HT_PIECE;                                                                               \
        memcpy(&value, &bits, sizeof value);                                                                   \
        for (int64_t i = begin; i < end;) {                                                                    \
            if (ht_paced_stop(&left, 0))                                                                       \
                return;                                                                                        \
            const int64_t from = i - before;                                                                   \
            if (x != NULL && from >= 0 && from < size) { /* the inside: one copy */                            \
                const int64_t length = size - from < end - i ? size - from : end - i;                          \
                ht_long_copy(out + i, x + from, length * (int64_t)sizeof(T));                                  \
                i += length;                                                                                   \
                continue;                                                                                      \
            }                                                                                                  \
            const int64_t k = x == NULL ? -1 : source(from, size, mode);                                       \
            out[i++] = k < 0 ? value : x[k];                                                                   \
        }                                                                                                      \
    }
DEFINE_ROW(uint8_t)
DEFINE_ROW(uint16_t)
DEFINE_ROW(uint32_t)
DEFINE_ROW(uint64_t)

typedef struct {
    const ht_tensor *x;
    ht_tensor *out;
    cropped c;
    int64_t mode, bytes;
    uint64_t bits;
    row_fn row;
    ht_row_units rows;
} padding;

static void pad_part(void *context, int64_t part, int thread)
{
    const padding *job = (const padding *)context;
    const ht_tensor *x = job->x, *out = job->out;
    const cropped *c = &job->c;
    const int last = out->ndim - 1;
    int64_t position[HT_MAX_DIMS], left = HT_PACE;
    ht_row_walk walk = ht_walk_rows(&job->rows, part);
    int64_t row = walk.row;
    (void)thread;
    for (int d = last - 1; d >= 0; row /= out->dims[d], d--)
        position[d] = row % out->dims[d];
    do {
        const int64_t begin = ht_walk_begin(&walk), end = ht_walk_end(&walk);
        if (ht_paced_stop(&left, end - begin))
            return;
        int64_t at = 0;
        for (int d = 0; d < last && at >= 0; d++) {
            const int64_t k = c->size[d] > 0 ? source(position[d] - c->before[d], c->size[d], job->mode) : -1;
            at = k < 0 ? -1 : at * x->dims[d] + c->first[d] + k;
        }
        const char *from = at < 0 || c->size[last] <= 0
                               ? NULL
                               : (const char *)x->data + (at * x->dims[last] + c->first[last]) * job->bytes;
        job->row(from, (char *)out->data + walk.row * job->rows.n * job->bytes, begin, end, c->before[last], c->size[last],
                 job->mode, job->bits);
        for (int d = last - 1; d >= 0 && ++position[d] == out->dims[d]; d--)
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
    const int64_t mode = call->ints[0], n = out->dims[out->ndim - 1];
    padding job = {.x = x, .out = out, .mode = mode, .bytes = ht_element_bytes(x->dtype)};
    if (mode < CONSTANT || mode > WRAP)
        return HT_ERR_OPERAND;
    if (out->size == 0)
        return HT_OK;
    cropped *c = &job.c;
    for (int d = 0; d < x->ndim; d++) {
        const int64_t before = call->ints[1 + d];
        if (before < -((int64_t)1 << 60) || before > ((int64_t)1 << 60))
            return HT_ERR_OPERAND;
        const int64_t after = out->dims[d] - x->dims[d] - before;
        c->before[d] = before > 0 ? before : 0;
        c->first[d] = c->before[d] - before;
        c->size[d] = x->dims[d] - c->first[d] + (after < 0 ? after : 0);
        if (mode != CONSTANT && c->size[d] <= 0)
            return HT_ERR_OPERAND;
    }
    if (value)
        memcpy(&job.bits, value->data, (size_t)job.bytes);
    switch (job.bytes) {
    case 1: job.row = row_uint8_t; break;
    case 2: job.row = row_uint16_t; break;
    case 4: job.row = row_uint32_t; break;
    case 8: job.row = row_uint64_t; break;
    default: return HT_ERR_DTYPE;
    }
    job.rows = ht_divide_rows(call, out->size / n, n, 4 * (double)out->size);
    ht_parallel(call->team, job.rows.parts, pad_part, &job);
    return HT_OK;
}
