/* rotary: turns pairs of numbers of heads by the angles of their positions.
 *
 * in: x, float32: rows of `size` numbers, [batch][steps][heads] rows or, with heads_first, [batch][heads][steps];
 *   cosines and sines, float32[angles][half], 2 half <= size; positions int64, or NULL for 0, 1, 2, ...: the row of
 *   angles for each step, of `steps` positions for all sequences or of batch * steps. out: y, as x; y may be x.
 * ints: steps, heads, size, half, interleaved, heads_first.
 * A pair (a, b) becomes (cosine a - sine b, sine a + cosine b), each product and sum rounded. Pairs are numbers i and
 * half + i of a row, or with `interleaved` 2 i and 2 i + 1. Numbers from 2 half on stay.
 * HT_ERR_NOTED_INDEX if a position is outside [-angles, angles); negative ones count from the end. */
#include "indices.h"
#include "vec.h"

typedef struct {
    const ht_call *call;
    int64_t steps, heads, size, half, rows, each, parts; /* each: positions of a sequence, 0 if all have the same */
    int interleaved, heads_first;
    _Atomic int status;
} turning;

/* The pairs of the vectors a and b. */
#define TURN(a, b, c, s, real, imaginary) const vf real = c * a - s * b, imaginary = s * a + c * b

static void turn_halves(const turning *t, const float *x, const float *cosines, const float *sines, float *y)
{
    const int64_t half = t->half;
    int64_t i = 0;
    for (; i + VF_LANES <= half; i += VF_LANES) {
        const vf c = vf_load(cosines + i), s = vf_load(sines + i), a = vf_load(x + i), b = vf_load(x + half + i);
        TURN(a, b, c, s, real, imaginary);
        vf_store(y + i, real);
        vf_store(y + half + i, imaginary);
    }
    if (i < half) {
        const int64_t n = half - i;
        const vf c = vf_load_n(cosines + i, n), s = vf_load_n(sines + i, n);
        const vf a = vf_load_n(x + i, n), b = vf_load_n(x + half + i, n);
        TURN(a, b, c, s, real, imaginary);
        vf_store_n(y + i, n, real);
        vf_store_n(y + half + i, n, imaginary);
    }
}

static void turn_neighbors(const turning *t, const float *x, const float *cosines, const float *sines, float *y)
{
    int64_t i = 0;
    for (; i + VF_LANES <= t->half; i += VF_LANES) {
        const vf c = vf_load(cosines + i), s = vf_load(sines + i);
        const vf first = vf_load(x + 2 * i), second = vf_load(x + 2 * i + VF_LANES);
        TURN(vf_even(first, second), vf_odd(first, second), c, s, real, imaginary);
        vf_store(y + 2 * i, vf_zip_low(real, imaginary));
        vf_store(y + 2 * i + VF_LANES, vf_zip_high(real, imaginary));
    }
    for (; i < t->half; i++) {
        const float a = x[2 * i], b = x[2 * i + 1];
        y[2 * i] = cosines[i] * a - sines[i] * b;
        y[2 * i + 1] = sines[i] * a + cosines[i] * b;
    }
}

static void turn_part(void *context, int64_t part, int thread)
{
    turning *t = (turning *)context;
    const ht_tensor *positions = t->call->in[3];
    const float *x = t->call->in[0]->data, *cosines = t->call->in[1]->data, *sines = t->call->in[2]->data;
    const int64_t inner = t->heads_first ? t->steps : t->heads, outer = t->heads_first ? t->heads : t->steps;
    const int64_t begin = ht_part_begin(t->rows, t->parts, part), end = ht_part_begin(t->rows, t->parts, part + 1);
    const int64_t rest = t->size - 2 * t->half;
    float *y = t->call->out[0]->data;
    int64_t i = begin % inner, j = begin / inner % outer, sequence = begin / inner / outer, left = HT_PACE;
    (void)thread;
    for (int64_t row = begin; row < end && !ht_paced_stop(&left, t->size); row++) {
        const int64_t place = sequence * t->each + (t->heads_first ? i : j);
        const int64_t angle = positions ? ht_index_at(positions, place, t->call->in[1]->dims[0]) : place;
        const float *from = x + row * t->size;
        float *to = y + row * t->size;
        if (angle < 0) {
            t->status = HT_ERR_INDEX;
            return;
        }
        if (t->interleaved)
            turn_neighbors(t, from, cosines + angle * t->half, sines + angle * t->half, to);
        else
            turn_halves(t, from, cosines + angle * t->half, sines + angle * t->half, to);
        if (rest > 0 && to != from)
            memcpy(to + 2 * t->half, from + 2 * t->half, (size_t)rest * sizeof(float));
        if (++i == inner) {
            i = 0;
            if (++j == outer) {
                j = 0;
                sequence++;
            }
        }
    }
}

int HT_KERNEL(rotary)(const ht_call *call)
{
    if (call->num_in != 4 || call->num_out != 1 || call->num_ints != 6)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0], *cosines = call->in[1], *sines = call->in[2], *positions = call->in[3];
    turning t = {.call = call, .steps = call->ints[0], .heads = call->ints[1], .size = call->ints[2],
                 .half = call->ints[3], .interleaved = call->ints[4] != 0, .heads_first = call->ints[5] != 0};
    if (x->dtype != HT_FLOAT32 || cosines->dtype != HT_FLOAT32 || sines->dtype != HT_FLOAT32 ||
        call->out[0]->dtype != HT_FLOAT32 || (positions && positions->dtype != HT_INT64))
        return HT_ERR_DTYPE;
    if (call->out[0]->size != x->size || cosines->ndim != 2 || !ht_same_dims(cosines, sines) ||
        cosines->dims[1] != t.half || t.steps < 0 || t.heads < 0 || t.half < 0 || t.half > t.size / 2)
        return HT_ERR_OPERAND;
    if (x->size == 0)
        return HT_OK;
    const double sequence = (double)t.steps * (double)t.heads * (double)t.size;
    if (sequence < 1 || sequence > (double)x->size || x->size % (t.steps * t.heads * t.size))
        return HT_ERR_OPERAND;
    t.rows = x->size / t.size;
    const int64_t batch = t.rows / (t.steps * t.heads), places = positions ? positions->size : cosines->dims[0];
    if (places != t.steps && places != batch * t.steps)
        return HT_ERR_OPERAND;
    t.each = places == t.steps ? 0 : t.steps;
    t.parts = ht_parts(call, t.rows, 4 * (double)x->size);
    ht_parallel(call->team, t.parts, turn_part, &t);
    return t.status == HT_OK ? HT_OK : ht_index_failure(positions, cosines, 0, 1);
}
