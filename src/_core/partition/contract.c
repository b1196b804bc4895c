/* Contraction: merge the ends of a same-device edge while no other path joins them.
 *
 * As in TensorFlow's GraphCycles, after Pearce and Kelly, "A dynamic topological sort algorithm for directed acyclic
 * graphs", ACM JEA 11, 2007; but with the order as a linked list (order_list.h), so that only one side of an affected
 * region moves: a search forward from the source and one backward from the target take turns, and whichever ends first
 * is moved behind the target or before the source (as in Bender, Fineman, Gilbert, Tarjan, "A new approach to
 * incremental cycle detection", ACM TALG 12(2), 2016).
 *
 * That another path exists is mostly known at once, from the preorder intervals of one depth-first forest: descendants
 * in the forest are reachable, and contraction loses no path. Searches are counted in edges; when the budget is used
 * up the remaining edges stay. Rows of merged nodes are chained, not copied, and edges found inside a merged node are
 * deleted when met. */
#include <math.h>

#include "coarse.h"
#include "order_list.h"

typedef struct {
    int32_t k;
    hg_coarse *c;
    int32_t *parent;
    int32_t *out_end, *in_end;                       /* of a row: rows shrink */
    int32_t *next_out, *next_in;                     /* rows of a merged node, chained in a circle */
    hg_order_list order;                             /* of roots */
    int32_t *entered, *left;                         /* preorder interval in the depth-first forest, of coarse nodes */
    int32_t *seen_forward, *seen_backward;           /* number of the last search that saw a root */
    int32_t search;
    int32_t *forward, *backward; /* what the searches found, in order of discovery */
    int64_t work;
} contraction;

static inline int32_t find(int32_t *parent, int32_t x)
{
    while (parent[x] != x) {
        parent[x] = parent[parent[x]];
        x = parent[x];
    }
    return x;
}

static inline int reaches_in_forest(const contraction *s, int32_t x, int32_t y)
{
    return s->entered[x] <= s->entered[y] && s->entered[y] <= s->left[x];
}

/* One step of the search from a towards b: the unseen successors of x that come before b. 1: a path was found. */
static int expand_forward(contraction *s, int32_t x, int32_t a, int32_t b, int32_t *count)
{
    const uint64_t limit = s->order.key[b];
    int32_t row = x;
    do {
        const int32_t begin = s->c->out_start[row];
        for (int32_t j = begin; j < s->out_end[row]; j++) {
            const int32_t y = find(s->parent, s->c->out[j]);
            s->work--;
            if (y == x) { /* inside the merged node */
                const int32_t last = --s->out_end[row];
                s->c->out[j] = s->c->out[last];
                s->c->out_weight[j--] = s->c->out_weight[last];
                continue;
            }
            if (y == b) {
                if (x != a)
                    return 1;
                continue;
            }
            if (s->order.key[y] > limit || s->seen_forward[y] == s->search)
                continue;
            if (s->seen_backward[y] == s->search || reaches_in_forest(s, y, b))
                return 1;
            s->seen_forward[y] = s->search;
            s->forward[(*count)++] = y;
        }
        row = s->next_out[row];
    } while (row != x);
    return 0;
}

static int expand_backward(contraction *s, int32_t x, int32_t a, int32_t b, int32_t *count)
{
    const uint64_t limit = s->order.key[a];
    int32_t row = x;
    do {
        const int32_t begin = s->c->in_start[row];
        for (int32_t j = begin; j < s->in_end[row]; j++) {
            const int32_t y = find(s->parent, s->c->in[j]);
            s->work--;
            if (y == x) {
                s->c->in[j--] = s->c->in[--s->in_end[row]];
                continue;
            }
            if (y == a) {
                if (x != b)
                    return 1;
                continue;
            }
            if (s->order.key[y] < limit || s->seen_backward[y] == s->search)
                continue;
            if (s->seen_forward[y] == s->search || reaches_in_forest(s, a, y))
                return 1;
            s->seen_backward[y] = s->search;
            s->backward[(*count)++] = y;
        }
        row = s->next_in[row];
    } while (row != x);
    return 0;
}

static void move(contraction *s, int32_t *moved, int32_t count, int32_t place)
{
    if (hg_list_move_behind(&s->order, moved, count, place))
        s->work -= s->k;
}

/* Merges roots a -> b unless another path joins them. */
static int try_merge(contraction *s, int32_t a, int32_t b)
{
    int32_t forward = 0, backward = 0, next_forward = 0, next_backward = 0;
    s->search++;
    if (expand_forward(s, a, a, b, &forward))
        return 0;
    int place; /* what moves: 1 the forward set behind b, 0 the backward set before a */
    if (!forward)
        place = 1;
    else {
        if (expand_backward(s, b, a, b, &backward))
            return 0;
        for (;;) { /* the smaller frontier goes on */
            if (next_backward == backward) {
                place = 0;
                break;
            }
            if (next_forward == forward) {
                place = 1;
                break;
            }
            if (forward - next_forward <= backward - next_backward) {
                if (expand_forward(s, s->forward[next_forward++], a, b, &forward))
                    return 0;
            } else if (expand_backward(s, s->backward[next_backward++], a, b, &backward))
                return 0;
            if (s->work <= 0)
                return 0;
        }
    }
    const int32_t before_a = s->order.previous[a];
    if (place) { /* the merged node takes b's place, what a reaches follows */
        if (forward)
            move(s, s->forward, forward, b);
        hg_list_unlink(&s->order, a);
        s->order.key[a] = s->order.key[b];
        hg_list_link(&s->order, a, b);
        hg_list_unlink(&s->order, b);
    } else {
        if (backward)
            move(s, s->backward, backward, before_a);
        hg_list_unlink(&s->order, b);
    }
    s->parent[b] = a;
    s->c->size[a] += s->c->size[b];
    /* Chains are circles through their root: joining two circles swaps what follows. */
    const int32_t out = s->next_out[a], in = s->next_in[a];
    s->next_out[a] = s->next_out[b];
    s->next_out[b] = out;
    s->next_in[a] = s->next_in[b];
    s->next_in[b] = in;
    return 1;
}

int hg_contract(hg_coarse *coarse, float heavy, int thorough, int32_t max_size, int64_t *work, int32_t *merged,
                int32_t *count, int *maximal, hg_arena *arena, hg_watch *watch)
{
    const int32_t k = coarse->k;
    contraction s = {.k = k, .c = coarse, .work = *work};
    s.parent = HG_TAKE(arena, int32_t, k);
    s.out_end = HG_TAKE(arena, int32_t, k);
    s.in_end = HG_TAKE(arena, int32_t, k);
    s.next_out = HG_TAKE(arena, int32_t, k);
    s.next_in = HG_TAKE(arena, int32_t, k);
    s.order.key = HG_TAKE(arena, uint64_t, (int64_t)k + 1);
    s.order.next = HG_TAKE(arena, int32_t, (int64_t)k + 1);
    s.order.previous = HG_TAKE(arena, int32_t, (int64_t)k + 1);
    s.entered = HG_TAKE(arena, int32_t, k);
    s.left = HG_TAKE(arena, int32_t, k);
    s.seen_forward = HG_TAKE_ZEROED(arena, int32_t, k);
    s.seen_backward = HG_TAKE_ZEROED(arena, int32_t, k);
    s.forward = HG_TAKE(arena, int32_t, k);
    s.backward = HG_TAKE(arena, int32_t, k);
    if (!s.parent || !s.out_end || !s.in_end || !s.next_out || !s.next_in || !s.order.key || !s.order.next || !s.order.previous ||
        !s.entered || !s.left || !s.seen_forward || !s.seen_backward || !s.forward || !s.backward)
        return HG_NO_MEMORY;
    for (int32_t x = 0; x < k; x++) {
        s.parent[x] = s.next_out[x] = s.next_in[x] = x;
        s.out_end[x] = coarse->out_start[x + 1];
        s.in_end[x] = coarse->in_start[x + 1];
        s.order.next[x] = x + 1;
        s.order.previous[x] = x ? x - 1 : k;
    }
    s.order.next[k] = k ? 0 : k;
    s.order.previous[k] = k ? k - 1 : k;
    s.order.head = k;
    hg_list_number(&s.order);
    if (hg_forest(k, coarse->out_start, coarse->out, NULL, s.entered, s.left, s.forward, s.backward, watch) != HG_OK)
        return HG_INTERRUPTED;

    /* From the sinks, nearest successor first; heavy edges in a round of their own. */
    int changed = 1;
    for (int round = heavy < HUGE_VALF ? 0 : 1; round <= 1 || (thorough && changed); round++) {
        changed = 0;
        for (int32_t u = k; u-- > 0;) {
            for (int32_t j = coarse->out_start[u]; j < s.out_end[u]; j++) {
                if (round == 0 && coarse->out_weight[j] < heavy)
                    continue;
                const int32_t v = coarse->out[j];
                if (coarse->kind[v] != coarse->kind[u])
                    continue;
                const int32_t a = find(s.parent, u), b = find(s.parent, v);
                if (a == b || coarse->size[a] > max_size - coarse->size[b])
                    continue;
                const int64_t before = s.work;
                if (s.work <= 0) {
                    *maximal = 0;
                    goto done;
                }
                if (try_merge(&s, a, b))
                    changed = 1;
                if (hg_interrupted(watch, 8 + 4 * (before - s.work)))
                    return HG_INTERRUPTED;
                if (s.search == INT32_MAX) {
                    memset(s.seen_forward, 0, (size_t)k * sizeof(int32_t));
                    memset(s.seen_backward, 0, (size_t)k * sizeof(int32_t));
                    s.search = 0;
                }
            }
        }
    }
    *maximal = !changed;
done:;
    int32_t id = 0;
    for (int32_t x = s.order.next[k]; x != k; x = s.order.next[x])
        s.forward[x] = id++;
    for (int32_t x = 0; x < k; x++)
        merged[x] = s.forward[find(s.parent, x)];
    *count = id;
    *work = s.work;
    return HG_OK;
}
