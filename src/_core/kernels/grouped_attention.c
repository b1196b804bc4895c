/* Attention of queries to a cache of keys and values, in which groups of heads share keys: append_cache,
 * grouped_attention.
 *
 * Both: ends int32[batch], the last position of each sequence, or any with `prompt`. A sequence's new positions are the
 *   `steps` ones that end there; with `prompt`, 0 to steps - 1.
 * append_cache: in past[batch][heads][capacity][size] or NULL; new[batch][steps], rows of `row` floats, of which heads *
 *   size from `offset` on are read; ends. out present[batch][heads][length][size]: the past before the new positions,
 *   the new ones, then zeros. HT_ERR_INDEX if the new positions or the past before them do not fit.
 *   ints: batch, steps, heads, capacity, length, size, offset, row, prompt.
 * grouped_attention: in queries[batch][steps], rows of `row` floats that begin with heads * size; keys, values
 *   [batch][groups][length][size]; ends; bias or NULL; sinks[heads] or NULL. out y[batch][steps][heads * size].
 *   y = softmax(scores) values over the keys up to the query's position, the last `window` ones (0: all).
 *   scores = scale * queries keys', then cap * tanh(scores / cap) unless cap is 0, then + bias. A sink is one more score
 *   without a value.
 *   ints: batch, steps, heads, groups, length, size, row, prompt, window, then the strides of the bias: of a batch, of a
 *   head (0 broadcasts), of a step, which is how many keys have a bias. floats: scale, cap. HT_ERR_INDEX if a position
 *   has no key, or no bias.
 *   scratch: ht_scratch_grouped_attention.
 * All float32. Cost: reading the cache once for each step and group. Results do not depend on the split. */
#include "kernel.h"
#include "softmax.h"
#include "vec.h"
#include "vmath.h"

enum { KEYS = 32 /* keys at a time, which all heads of a group use from the L1 cache */ };

/* Whether `count` ints from `first` on are sizes whose products stay far from overflow. */
static int are_sizes(const ht_call *call, int first, int count)
{
    for (int i = first; i < first + count; i++)
        if (call->ints[i] < 0 || call->ints[i] > HT_MAX_BYTES)
            return 0;
    return 1;
}

static int has_size(const ht_tensor *x, int32_t dtype, double size)
{
    return x && x->dtype == dtype && (double)x->size == size;
}

/* The number of positions before the new ones of a sequence; -1 if the new ones do not fit `length`. */
static int64_t past_of(const int32_t *ends, int64_t sequence, int64_t steps, int64_t length, int prompt)
{
    const int64_t past = prompt ? 0 : (int64_t)ends[sequence] + 1 - steps;
    return past < 0 || past + steps > length ? -1 : past;
}

int HT_KERNEL(append_cache)(const ht_call *call)
{
    if (call->num_ints != 9 || call->num_in != 3 || call->num_out != 1 || !are_sizes(call, 0, 8))
        return HT_ERR_OPERAND;
    const int64_t batch = call->ints[0], steps = call->ints[1], heads = call->ints[2], capacity = call->ints[3];
    const int64_t length = call->ints[4], size = call->ints[5], offset = call->ints[6], row = call->ints[7];
    const int prompt = call->ints[8] != 0;
    const ht_tensor *past = call->in[0], *new = call->in[1], *ends = call->in[2], *y = call->out[0];
    if (!has_size(new, HT_FLOAT32, (double)batch * (double)steps * (double)row) || !has_size(ends, HT_INT32, (double)batch) ||
        !has_size(y, HT_FLOAT32, (double)batch * (double)heads * (double)length * (double)size) ||
        (past && !has_size(past, HT_FLOAT32, (double)batch * (double)heads * (double)capacity * (double)size)) ||
        (double)offset + (double)heads * (double)size > (double)row)
        return HT_ERR_OPERAND;
    const float *from = past ? past->data : NULL, *added = new->data;
    float *to = y->data;
    for (int64_t b = 0; b < batch; b++) {
        const int64_t before = past_of(ends->data, b, steps, length, prompt);
        if (before < 0 || before > (past ? capacity : 0))
            return HT_ERR_INDEX;
        for (int64_t h = 0; h < heads && !ht_stopping(); h++, to += length * size) {
            if (before)
                ht_long_copy(to, from + (b * heads + h) * capacity * size, before * size * 4);
            for (int64_t s = 0; s < steps; s++)
                memcpy(to + (before + s) * size, added + (b * steps + s) * row + offset + h * size, (size_t)size * 4);
            memset(to + (before + steps) * size, 0, (size_t)((length - before - steps) * size * 4));
        }
    }
    return HT_OK;
}

typedef struct {
    const ht_call *call;
    const float *queries, *keys, *values, *bias, *sinks;
    const int32_t *ends;
    float *y, scale, cap;
    int64_t batch, steps, heads, groups, length, size, row, window, bias_batch, bias_head, bias_step, parts;
    int prompt;
} attention;

HT_INLINE float dot(const float *a, const float *b, int64_t n)
{
    vf s0 = vf_set1(0.0f), s1 = s0;
    int64_t i = 0;
    for (; i + 2 * VF_LANES <= n; i += 2 * VF_LANES) {
        s0 = vf_fma(vf_load(a + i), vf_load(b + i), s0);
        s1 = vf_fma(vf_load(a + i + VF_LANES), vf_load(b + i + VF_LANES), s1);
    }
    for (; i < n; i += VF_LANES) {
        const int64_t left = ht_min64(VF_LANES, n - i);
        s0 = vf_fma(vf_load_n(a + i, left), vf_load_n(b + i, left), s0);
    }
    return vf_hsum(s0 + s1);
}

/* y += factors[0 .. count) times rows of `size` floats. */
HT_INLINE void add_rows(const float *factors, const float *rows, int64_t count, int64_t size, float *y)
{
    for (int64_t i = 0; i < size; i += VF_LANES) {
        const int64_t left = ht_min64(VF_LANES, size - i);
        vf sum = vf_load_n(y + i, left), other = vf_set1(0.0f);
        int64_t j = 0;
        for (; j + 2 <= count; j += 2) {
            sum = vf_fma(vf_set1(factors[j]), vf_load_n(rows + j * size + i, left), sum);
            other = vf_fma(vf_set1(factors[j + 1]), vf_load_n(rows + (j + 1) * size + i, left), other);
        }
        if (j < count)
            sum = vf_fma(vf_set1(factors[j]), vf_load_n(rows + j * size + i, left), sum);
        vf_store_n(y + i, left, sum + other);
    }
}

/* One step of one sequence, for the heads of a group. */
static void attend(const attention *p, int64_t sequence, int64_t step, int64_t group, float *scores)
{
    const int64_t shared = p->heads / p->groups, first_head = group * shared, size = p->size;
    const int64_t until = past_of(p->ends, sequence, p->steps, p->length, p->prompt) + step + 1;
    const int64_t from = p->window && until > p->window ? until - p->window : 0, count = until - from, row = p->length + 1;
    const float *q = p->queries + (sequence * p->steps + step) * p->row + first_head * size;
    const int64_t at = ((sequence * p->groups + group) * p->length + from) * size;
    float *y = p->y + ((sequence * p->steps + step) * p->heads + first_head) * size;
    for (int64_t j = 0; j < count; j += KEYS)
        for (int64_t h = 0; h < shared; h++)
            for (int64_t k = j; k < ht_min64(count, j + KEYS); k++)
                scores[h * row + k] = p->scale * dot(q + h * size, p->keys + at + k * size, size);
    for (int64_t h = 0; h < shared; h++) {
        float *own = scores + h * row;
        if (p->cap != 0.0f)
            for (int64_t k = 0; k < count; k += VF_LANES) {
                const int64_t left = ht_min64(VF_LANES, count - k);
                vf_store_n(own + k, left, vf_set1(p->cap) * vf_tanh(vf_load_n(own + k, left) / vf_set1(p->cap)));
            }
        if (p->bias) {
            const float *bias =
                p->bias + sequence * p->bias_batch + (first_head + h) * p->bias_head + step * p->bias_step + from;
            for (int64_t k = 0; k < count; k++)
                own[k] += bias[k];
        }
        own[count] = p->sinks ? p->sinks[first_head + h] : 0.0f;
        ht_softmax_rows(own, own, 1, count + (p->sinks ? 1 : 0));
    }
    memset(y, 0, (size_t)(shared * size) * 4);
    for (int64_t j = 0; j < count; j += KEYS)
        for (int64_t h = 0; h < shared; h++)
            add_rows(scores + h * row + j, p->values + at + j * size, ht_min64(KEYS, count - j), size, y + h * size);
}

static void attend_part(void *context, int64_t part, int thread)
{
    const attention *p = context;
    const int64_t units = p->batch * p->steps * p->groups, end = ht_part_begin(units, p->parts, part + 1);
    int64_t left = HT_PACE;
    for (int64_t unit = ht_part_begin(units, p->parts, part); unit < end; unit++) {
        if (ht_paced_stop(&left, p->heads / p->groups * p->length * p->size))
            return;
        const int64_t group = unit % p->groups, step = unit / p->groups % p->steps;
        attend(p, unit / p->groups / p->steps, step, group, ht_scratch(p->call, thread));
    }
}

int HT_KERNEL(grouped_attention)(const ht_call *call)
{
    if (call->num_ints != 12 || call->num_floats != 2 || call->num_in != 6 || call->num_out != 1 || !are_sizes(call, 0, 12))
        return HT_ERR_OPERAND;
    const int64_t *ints = call->ints;
    attention p = {.call = call, .batch = ints[0], .steps = ints[1], .heads = ints[2], .groups = ints[3], .length = ints[4],
                   .size = ints[5], .row = ints[6], .prompt = ints[7] != 0, .window = ints[8], .bias_batch = ints[9],
                   .bias_head = ints[10], .bias_step = ints[11], .scale = (float)call->floats[0],
                   .cap = (float)call->floats[1]};
    const ht_tensor *q = call->in[0], *keys = call->in[1], *values = call->in[2], *ends = call->in[3], *bias = call->in[4];
    const ht_tensor *sinks = call->in[5], *y = call->out[0];
    const double cache = (double)p.batch * (double)p.groups * (double)p.length * (double)p.size;
    if (p.groups < 1 || p.heads % p.groups || (double)p.heads * (double)p.size > (double)p.row ||
        !has_size(q, HT_FLOAT32, (double)p.batch * (double)p.steps * (double)p.row) || !has_size(keys, HT_FLOAT32, cache) ||
        !has_size(values, HT_FLOAT32, cache) || !has_size(ends, HT_INT32, (double)p.batch) ||
        (sinks && !has_size(sinks, HT_FLOAT32, (double)p.heads)) ||
        !has_size(y, HT_FLOAT32, (double)p.batch * (double)p.steps * (double)p.heads * (double)p.size))
        return HT_ERR_OPERAND;
    if (y->size == 0)
        return HT_OK;
    const int64_t reach = bias ? ht_min64(p.length, p.bias_step) : p.length; /* the keys that have a bias */
    if (bias && (bias->dtype != HT_FLOAT32 ||
                 (double)(p.batch - 1) * (double)p.bias_batch + (double)(p.heads - 1) * (double)p.bias_head +
                         (double)(p.steps - 1) * (double)p.bias_step + (double)reach > (double)bias->size))
        return HT_ERR_OPERAND;
    if (call->scratch_bytes < ht_scratch_grouped_attention(p.heads / p.groups, p.length))
        return HT_ERR_OPERAND;
    p.queries = q->data;
    p.keys = keys->data;
    p.values = values->data;
    p.ends = ends->data;
    p.bias = bias ? bias->data : NULL;
    p.sinks = sinks ? sinks->data : NULL;
    p.y = y->data;
    for (int64_t b = 0; b < p.batch; b++)
        if (past_of(p.ends, b, p.steps, reach, p.prompt) < 0)
            return HT_ERR_INDEX;
    const int64_t units = p.batch * p.steps * p.groups;
    p.parts = ht_parts(call, units, 2.0 * (double)y->size * (double)p.length);
    ht_parallel(call->team, p.parts, attend_part, &p);
    return HT_OK;
}
