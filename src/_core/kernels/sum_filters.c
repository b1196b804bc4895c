/* sum_filters: the weights of one convolution that computes the sum of several, scaled per output channel. Products and
 * sums are float64 and are rounded once, at the end.
 *
 * in, two per branch: its weights float32[M][C][kernel] as uint8, at any address, or absent for a kernel of one tap that
 *   returns input channel m % C; its scale float64[M].
 * ints: for each branch the sizes of its kernel (three axes) and its position in the first branch's kernel (three axes),
 *   which holds all others.
 * out: float32[M][C][kernel of the first branch]; bool[1]: whether all of these are finite.
 * Element by element, branches are added in their order.
 */
#include "elements.h"
#include "vec.h"

enum {
    BLOCK = 1024 /* numbers that are added up at a time, in float64: a part of the L1 cache */
};

typedef struct {
    const char *weights;
    const double *scale;
    int64_t kernel[3], taps;
    int64_t first; /* tap of the first branch's kernel at which this kernel begins */
} branch;

typedef struct {
    int64_t channels, row, plane, taps; /* taps of a row, a plane and all of the first branch's kernel */
} layout;

static double weight_at(const branch *b, int64_t i)
{
    float weight;
    memcpy(&weight, b->weights + 4 * i, sizeof weight);
    return (double)weight;
}

static void set_all(const branch *b, int64_t i, int64_t n, double scale, double *total)
{
    for (int64_t j = 0; j < n; j++)
        total[j] = weight_at(b, i + j) * scale;
}

static void add_all(const branch *b, int64_t i, int64_t n, double scale, double *total)
{
    for (int64_t j = 0; j < n; j++)
        total[j] += weight_at(b, i + j) * scale;
}

/* Adds n weights from weight i on to elements [at, at + n) of the row, as far as these are in [from, to). */
static void add_run(const branch *b, int64_t i, int64_t n, int64_t at, int64_t from, int64_t to, double scale, double *total)
{
    const int64_t begin = ht_max64(at, from), end = ht_min64(at + n, to);
    if (begin < end)
        add_all(b, i + begin - at, end - begin, scale, total + begin - from);
}

/* Adds row m of a branch to elements [from, to) of row m of the sum. */
static void add_branch(const branch *b, const layout *l, int64_t m, int64_t from, int64_t to, double *total)
{
    const double scale = b->scale[m];
    if (!b->weights) {
        const int64_t at = m % l->channels * l->taps + b->first;
        if (at >= from && at < to)
            total[at - from] += scale;
        return;
    }
    const int64_t row = m * l->channels;
    if (b->taps == l->taps) {
        add_all(b, row * l->taps + from, to - from, scale, total);
        return;
    }
    int64_t c = from / l->taps;
    if (b->taps == 1) {
        for (c += c * l->taps + b->first < from; c * l->taps + b->first < to; c++)
            total[c * l->taps + b->first - from] += weight_at(b, row + c) * scale;
        return;
    }
    for (; c * l->taps < to; c++)
        for (int64_t z = 0; z < b->kernel[0]; z++)
            for (int64_t y = 0; y < b->kernel[1]; y++)
                add_run(b, (row + c) * b->taps + (z * b->kernel[1] + y) * b->kernel[2], b->kernel[2],
                        c * l->taps + b->first + z * l->plane + y * l->row, from, to, scale, total);
}

/* out[0, n) := total. Returns whether all are finite. */
static int round_all(const double *total, int64_t n, float *out)
{
    uint32_t special = 0;
    for (int64_t j = 0; j < n; j++) {
        const float rounded = (float)total[j];
        uint32_t bits;
        memcpy(&bits, &rounded, sizeof bits);
        out[j] = rounded;
        special |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return !special;
}

static int read_branch(const ht_call *call, int number, const branch *whole, branch *b)
{
    const ht_tensor *weights = call->in[2 * number], *scale = call->in[2 * number + 1], *out = call->out[0];
    const int64_t *ints = call->ints + 6 * number, *held = whole ? whole->kernel : ints;
    *b = (branch){.taps = 1};
    for (int d = 0; d < 3; d++) {
        b->kernel[d] = ints[d];
        if (ints[d] < 1 || ints[d] > HT_MAX_WINDOW || ints[3 + d] < 0 || ints[3 + d] > held[d] - ints[d])
            return 0;
        b->taps *= ints[d]; /* of a kernel that is held: no more than the output's elements */
        b->first = b->first * held[d] + ints[3 + d];
    }
    if (!scale || scale->dtype != HT_FLOAT64 || scale->size != out->dims[0])
        return 0;
    b->scale = (const double *)scale->data;
    if (!weights)
        return whole && b->taps == 1 && out->dims[1] > 0;
    b->weights = (const char *)weights->data;
    return weights->dtype == HT_UINT8 && weights->size == 4 * out->dims[0] * out->dims[1] * b->taps;
}

int HT_KERNEL(sum_filters)(const ht_call *call)
{
    if (call->num_in < 2 || call->num_in % 2 || call->num_out != 2 || call->num_ints != 3 * call->num_in)
        return HT_ERR_OPERAND;
    const ht_tensor *out = call->out[0];
    if (out->dtype != HT_FLOAT32 || call->out[1]->dtype != HT_BOOL)
        return HT_ERR_DTYPE;
    if (out->ndim < 3 || out->ndim > 5 || call->out[1]->size != 1)
        return HT_ERR_OPERAND;
    branch whole, other;
    for (int axis = 0; axis < 3; axis++) /* before their product is computed */
        if (call->ints[axis] != (axis < 5 - out->ndim ? 1 : out->dims[out->ndim - 3 + axis]))
            return HT_ERR_OPERAND;
    for (int number = 0; number < call->num_in / 2; number++)
        if (!read_branch(call, number, number ? &whole : NULL, number ? &other : &whole))
            return HT_ERR_OPERAND;
    const layout l = {.channels = out->dims[1], .row = whole.kernel[2], .plane = whole.kernel[1] * whole.kernel[2],
                      .taps = whole.taps};
    const int64_t length = l.channels * l.taps;
    int finite = 1;
    double total[BLOCK];
    for (int64_t m = 0; m < out->dims[0]; m++)
        for (int64_t from = 0; from < length; from += BLOCK) {
            const int64_t to = ht_min64(from + BLOCK, length);
            set_all(&whole, m * length + from, to - from, whole.scale[m], total);
            for (int number = 1; number < call->num_in / 2; number++) {
                read_branch(call, number, &whole, &other);
                add_branch(&other, &l, m, from, to, total);
            }
            finite &= round_all(total, to - from, (float *)out->data + m * length + from);
        }
    *(uint8_t *)call->out[1]->data = (uint8_t)finite;
    return HT_OK;
}
