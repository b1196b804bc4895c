/* Scores of an ensemble of decision trees.
 *
 * in x[rows][features], float32 or float64 (T); nodes int64[slots][2]; roots, depths int32[trees];
 * starts int32[slots + 1]; ids int32[entries]; weights T[entries]; base T[targets] or absent. out T[rows][targets].
 * ints: aggregate (HT_TREE_*), flags, dense. flags: 0 if no node has flags, 1 if some have HT_TREE_NAN_FIRST, 2 for any.
 *
 * A slot is a node of 16 bytes (struct node). A row at a slot goes to slot `child` if x[feature] <= value, else to the
 * slot after it, so the two children of a node are neighbors. A node with several parents has a copy next to each
 * sibling; the copies share their children. HT_TREE_EQUAL replaces <= by ==, and HT_TREE_NAN_FIRST sends NaN to `child`;
 * rows without NaN take the faster path without the latter. A leaf has value NaN, feature 0 and leads to itself, so that
 * all rows of a group take the same number of steps.
 *
 * A leaf's entries [starts[slot], starts[slot + 1]) add weights to targets `ids`. With `dense`, there is one target, every
 * leaf has one weight, weights[slot], and starts and ids are not read. Trees are added in order, in T, so that results
 * do not depend on how the rows are split. HT_TREE_MIN and HT_TREE_MAX: the extreme weight, 0 for a target without one; NaN
 * is not a valid weight. HT_TREE_AVERAGE: the sum over the number of trees. `base` is added last.
 *
 * The planner checks that slots, features and targets are in range. Eight rows, or eight trees of one row, go down
 * together, because each step waits for memory. */
#include "elements.h"
#include "vec.h"

#include <math.h>

enum { LANES = 8, BLOCK = 128 /* rows that a tree serves while it is in the L1 cache */, STEPS = 4 };

typedef struct {
    union {
        float f32;
        double f64;
    } value;
    uint32_t feature; /* and flags */
    int32_t child;
} node;

/* Which flags matter to the rows of a part: none; HT_TREE_EQUAL, since no row holds NaN; HT_TREE_NAN_FIRST, since no node
 * has the other; all. */
enum { PLAIN, NUMBERS, GAPS, ANY };

#define FEATURE(n) ((n).feature & (HT_TREE_EQUAL - 1))

typedef struct {
    const ht_call *call;
    const node *nodes;
    const int32_t *roots, *depths, *starts, *ids;
    int64_t rows, features, trees, targets, parts;
    int aggregate, flags, dense;
} ensemble;

#define DEFINE(D, s, T, U)                                                                                             \
    HT_INLINE int32_t next_##s(const node *n, const T *x, const int kind)                                              \
    {                                                                                                                  \
        const T v = x[FEATURE(*n)], t = n->value.s;                                                                    \
        if (kind == PLAIN)                                                                                             \
            return n->child + !(v <= t);                                                                               \
        if (kind == GAPS)                                                                                              \
            return n->child + !((v <= t) | ((v != v) & ((n->feature & HT_TREE_NAN_FIRST) != 0)));                      \
        const int equal = (n->feature & HT_TREE_EQUAL) != 0, first = (n->feature & HT_TREE_NAN_FIRST) != 0;            \
        if (kind == NUMBERS)                                                                                           \
            return n->child + ((!(v <= t)) | ((v < t) & equal));                                                       \
        const int test = (v == t) | ((v < t) & !equal) | ((v != v) & first);                                           \
        return n->child + !test;                                                                                       \
    }                                                                                                                  \
                                                                                                                       \
    /* Moves each lane from its slot to its leaf. Lane i goes down for the row rows[i]. */                             \
    HT_INLINE void descend_##s(const node *nodes, const T *const rows[LANES], int32_t at[LANES], int32_t depth,        \
                               const int kind)                                                                         \
    {                                                                                                                  \
        for (int32_t step = 0; step < depth; step += STEPS) {                                                          \
            int32_t before[LANES];                                                                                     \
            for (int j = 0; j < STEPS; j++)                                                                            \
                _Pragma("GCC unroll 8") for (int i = 0; i < LANES; i++)                                                \
                {                                                                                                      \
                    before[i] = at[i];                                                                                 \
                    at[i] = next_##s(nodes + at[i], rows[i], kind);                                                    \
                }                                                                                                      \
            int32_t moved = 0;                                                                                         \
            for (int i = 0; i < LANES; i++)                                                                            \
                moved |= at[i] ^ before[i];                                                                            \
            if (!moved)                                                                                                \
                break;                                                                                                 \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    HT_INLINE void collect_##s(const ensemble *e, const T *weights, int32_t slot, T *out)                              \
    {                                                                                                                  \
        for (int32_t k = e->starts[slot]; k < e->starts[slot + 1]; k++) {                                              \
            T *score = out + e->ids[k];                                                                                \
            const T w = weights[k];                                                                                    \
            switch (e->aggregate) {                                                                                    \
            case HT_TREE_MIN: *score = *score <= w ? *score : w; break; /* NaN: no score yet */                        \
            case HT_TREE_MAX: *score = *score >= w ? *score : w; break;                                                \
            default: *score += w; break;                                                                               \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    HT_INLINE void add_##s(const ensemble *e, const T *weights, const int32_t *at, int lanes, T *out, int64_t step)    \
    {                                                                                                                  \
        for (int i = 0; i < lanes; i++)                                                                                \
            if (e->dense)                                                                                              \
                out[i * step] += weights[at[i]];                                                                       \
            else                                                                                                       \
                collect_##s(e, weights, at[i], out + i * step);                                                        \
    }                                                                                                                  \
                                                                                                                       \
    HT_INLINE void rows_##s(const ensemble *e, int64_t begin, int64_t end, const int kind)                             \
    {                                                                                                                  \
        const T *x = (const T *)e->call->in[0]->data, *weights = (const T *)e->call->in[6]->data;                      \
        T *out = (T *)e->call->out[0]->data;                                                                           \
        int64_t left = HT_PACE;                                                                                        \
        const int64_t whole = begin + (end - begin) / LANES * LANES;                                                   \
        for (int64_t block = begin; block < whole; block += BLOCK)                                                     \
            for (int64_t tree = 0; tree < e->trees; tree++) {                                                          \
                const int64_t stop = ht_min64(block + BLOCK, whole);                                                   \
                if (ht_paced_stop(&left, BLOCK * (int64_t)e->depths[tree]))                                            \
                    return;                                                                                            \
                for (int64_t row = block; row < stop; row += LANES) {                                                  \
                    const T *group[LANES];                                                                             \
                    int32_t at[LANES];                                                                                 \
                    for (int i = 0; i < LANES; i++) {                                                                  \
                        group[i] = x + (row + i) * e->features;                                                        \
                        at[i] = e->roots[tree];                                                                        \
                    }                                                                                                  \
                    descend_##s(e->nodes, group, at, e->depths[tree], kind);                                           \
                    add_##s(e, weights, at, LANES, out + row * e->targets, e->targets);                                \
                }                                                                                                      \
            }                                                                                                          \
        for (int64_t row = whole; row < end; row++)                                                                    \
            for (int64_t tree = 0; tree < e->trees; tree += LANES) {                                                   \
                const int lanes = (int)ht_min64(LANES, e->trees - tree);                                               \
                const T *group[LANES];                                                                                 \
                int32_t at[LANES], depth = 0;                                                                          \
                for (int i = 0; i < LANES; i++) {                                                                      \
                    const int64_t other = tree + (i < lanes ? i : 0);                                                  \
                    group[i] = x + row * e->features;                                                                  \
                    at[i] = e->roots[other];                                                                           \
                    depth = e->depths[other] > depth ? e->depths[other] : depth;                                       \
                }                                                                                                      \
                if (ht_paced_stop(&left, LANES * (int64_t)depth))                                                      \
                    return;                                                                                            \
                descend_##s(e->nodes, group, at, depth, kind);                                                         \
                add_##s(e, weights, at, lanes, out + row * e->targets, 0);                                             \
            }                                                                                                          \
    }                                                                                                                  \
                                                                                                                       \
    HT_INLINE int any_nan_##s(const T *x, int64_t n)                                                                   \
    {                                                                                                                  \
        int any = 0;                                                                                                   \
        HT_LONG_FOR (i, n)                                                                                             \
            any |= x[i] != x[i];                                                                                       \
        return any;                                                                                                    \
    }                                                                                                                  \
                                                                                                                       \
    /* Functions of their own, because GCC takes longer for one that contains all. */                                  \
    static __attribute__((noinline)) void plain_rows_##s(const ensemble *e, int64_t begin, int64_t end)                \
    {                                                                                                                  \
        rows_##s(e, begin, end, PLAIN);                                                                                \
    }                                                                                                                  \
    static __attribute__((noinline)) void numbers_rows_##s(const ensemble *e, int64_t begin, int64_t end)              \
    {                                                                                                                  \
        rows_##s(e, begin, end, NUMBERS);                                                                              \
    }                                                                                                                  \
    static __attribute__((noinline)) void gaps_rows_##s(const ensemble *e, int64_t begin, int64_t end)                 \
    {                                                                                                                  \
        rows_##s(e, begin, end, GAPS);                                                                                 \
    }                                                                                                                  \
    static __attribute__((noinline)) void any_rows_##s(const ensemble *e, int64_t begin, int64_t end)                  \
    {                                                                                                                  \
        rows_##s(e, begin, end, ANY);                                                                                  \
    }                                                                                                                  \
                                                                                                                       \
    static void part_##s(void *context, int64_t part, int thread)                                                      \
    {                                                                                                                  \
        const ensemble *e = (const ensemble *)context;                                                                 \
        const int64_t begin = ht_part_begin(e->rows, e->parts, part), end = ht_part_begin(e->rows, e->parts, part + 1);\
        const int extreme = e->aggregate == HT_TREE_MIN || e->aggregate == HT_TREE_MAX;                                \
        const T *base = e->call->in[7] ? (const T *)e->call->in[7]->data : NULL;                                       \
        T *out = (T *)e->call->out[0]->data + begin * e->targets;                                                      \
        (void)thread;                                                                                                  \
        for (int64_t i = 0; i < (end - begin) * e->targets; i++)                                                       \
            out[i] = extreme ? (T)NAN : (T)0;                                                                          \
        int nan = 0;                                                                                                   \
        if (e->flags)                                                                                                  \
            for (int64_t row = begin; row < end && !nan; row++)                                                        \
                nan = any_nan_##s((const T *)e->call->in[0]->data + row * e->features, e->features);                   \
        if (nan && e->flags == 1)                                                                                      \
            gaps_rows_##s(e, begin, end);                                                                              \
        else if (nan)                                                                                                  \
            any_rows_##s(e, begin, end);                                                                               \
        else if (e->flags > 1)                                                                                         \
            numbers_rows_##s(e, begin, end);                                                                           \
        else                                                                                                           \
            plain_rows_##s(e, begin, end);                                                                             \
        for (int64_t row = begin; row < end; row++)                                                                    \
            for (int64_t target = 0; target < e->targets; target++, out++) {                                           \
                if (extreme && *out != *out)                                                                           \
                    *out = 0;                                                                                          \
                if (e->aggregate == HT_TREE_AVERAGE)                                                                   \
                    *out /= (T)e->trees;                                                                               \
                if (base)                                                                                              \
                    *out += base[target];                                                                              \
            }                                                                                                          \
    }
HT_FLOAT_TYPES(DEFINE)

int HT_KERNEL(tree_ensemble)(const ht_call *call)
{
    if (call->num_in != 8 || call->num_out != 1 || call->num_ints != 3)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0], *nodes = call->in[1], *roots = call->in[2], *depths = call->in[3];
    const ht_tensor *starts = call->in[4], *ids = call->in[5], *weights = call->in[6], *base = call->in[7];
    const ht_tensor *out = call->out[0];
    if (x->ndim != 2 || out->ndim != 2 || x->dims[0] != out->dims[0] || nodes->dtype != HT_INT64 ||
        roots->dtype != HT_INT32 || depths->dtype != HT_INT32 || starts->dtype != HT_INT32 || ids->dtype != HT_INT32 ||
        weights->dtype != x->dtype || out->dtype != x->dtype || roots->size != depths->size || x->dims[1] < 1)
        return HT_ERR_OPERAND;
    ensemble e = {.call = call, .nodes = nodes->data, .roots = roots->data, .depths = depths->data,
                  .starts = starts->data, .ids = ids->data, .rows = x->dims[0], .features = x->dims[1],
                  .trees = roots->size, .targets = out->dims[1], .aggregate = (int)call->ints[0],
                  .flags = (int)call->ints[1], .dense = call->ints[2] != 0};
    const int64_t slots = nodes->size / 2;
    if (e.dense ? e.targets != 1 || weights->size != slots || e.aggregate == HT_TREE_MIN || e.aggregate == HT_TREE_MAX
                : starts->size != slots + 1 || ids->size != weights->size)
        return HT_ERR_OPERAND;
    if (base && (base->dtype != x->dtype || base->size != e.targets))
        return HT_ERR_OPERAND;
    if (out->size == 0)
        return HT_OK;
    double steps = (double)e.targets;
    for (int64_t tree = 0; tree < e.trees; tree++)
        steps += 4.0 + e.depths[tree];
    e.parts = ht_parts(call, e.rows, (double)e.rows * steps);
    switch (x->dtype) {
#define CASE(D, s, T, U) case D: ht_parallel(call->team, e.parts, part_##s, &e); return HT_OK;
        HT_FLOAT_TYPES(CASE)
    default: return HT_ERR_DTYPE;
    }
}
