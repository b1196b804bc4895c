/* Contraction: merge the ends of a same-device edge while no other path joins them.
 *
 * As in TensorFlow's GraphCycles, after Pearce and Kelly, "A dynamic topological sort algorithm for directed acyclic
 * graphs", ACM JEA 11, 2007; but with the order as a linked list with 64-bit keys (Dietz and Sleator), so that only
 * one side of an affected region moves: a search forward from the source and one backward from the target take turns,
 * and whichever ends first is moved behind the target or before the source (as in Bender, Fineman, Gilbert, Tarjan,
 * "A new approach to incremental cycle detection", ACM TALG 12(2), 2016).
 *
 * That another path exists is mostly known at once, from the preorder intervals of one depth-first forest: descendants
 * in the forest are reachable, and contraction loses no path. Searches are counted in edges; when the budget is used
 * up the remaining edges stay. Rows of merged nodes are chained, not copied, and edges found inside a merged node are
 * deleted when met. */
#include <math.h>

#include "coarse.h"

typedef struct {
    int32_t k;
    hg_coarse *c;
    int32_t *parent;
    int32_t *out_end, *in_end;                       /* of a row: rows shrink */
    int32_t *next_out, *next_in;                     /* rows of a merged node, chained in a circle */
    uint64_t *key;                                   /* position in the order, of roots */
    int32_t *next, *previous;                        /* the order as a list, of roots; k is its head */
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

enum { GAP_BITS = 31 };

static void number_order(contraction *s)
{
    uint64_t key = 0;
    for (int32_t x = s->next[s->k]; x != s->k; x = s->next[x])
        s->key[x] = key += (uint64_t)1 << GAP_BITS;
    s->key[s->k] = 0; /* the head comes first; as a successor it stands for the end */
}

static inline void unlink_node(contraction *s, int32_t x)
{
    s->next[s->previous[x]] = s->next[x];
    s->previous[s->next[x]] = s->previous[x];
}

static inline void link_after(contraction *s, int32_t x, int32_t place)
{
    const int32_t after = s->next[place];
    s->next[place] = x;
    s->previous[x] = place;
    s->next[x] = after;
    s->previous[after] = x;
}

/* Sorts roots by key: insertion for the usual few, otherwise heap sort (no recursion, no memory). */
static void sort_by_key(const uint64_t *key, int32_t *x, int32_t count)
{
    if (count <= 24) {
        for (int32_t i = 1; i < count; i++) {
            const int32_t moved = x[i];
            int32_t j = i;
            for (; j > 0 && key[x[j - 1]] > key[moved]; j--)
                x[j] = x[j - 1];
            x[j] = moved;
        }
        return;
    }
    for (int32_t end = count, from = count / 2; end > 1;) {
        int32_t moved;
        if (from > 0)
            moved = x[--from];
        else {
            moved = x[--end];
            x[end] = x[0];
        }
        int32_t hole = from;
        for (int32_t child; (child = 2 * hole + 1) < end; hole = child) {
            if (child + 1 < end && key[x[child + 1]] > key[x[child]])
                child++;
            if (key[x[child]] <= key[moved])
                break;
            x[hole] = x[child];
        }
        x[hole] = moved;
    }
}

/* Moves `count` roots behind `place` (or before what follows it, which is the same), keeping their order. */
static void move_behind(contraction *s, int32_t *moved, int32_t count, int32_t place)
{
    sort_by_key(s->key, moved, count);
    for (int32_t i = 0; i < count; i++)
        unlink_node(s, moved[i]);
    const uint64_t low = s->key[place];
    const int32_t after = s->next[place];
    const uint64_t high = after == s->k ? low + ((uint64_t)(count + 1) << GAP_BITS) : s->key[after];
    const uint64_t step = (high - low) / ((uint64_t)count + 1);
    int32_t at = place;
    for (int32_t i = 0; i < count; i++) {
        link_after(s, moved[i], at);
        at = moved[i];
        s->key[at] = low + step * (uint64_t)(i + 1);
    }
    if (!step) {
        number_order(s);
        s->work -= s->k;
    }
}

static inline int reaches_in_forest(const contraction *s, int32_t x, int32_t y)
{
    return s->entered[x] <= s->entered[y] && s->entered[y] <= s->left[x];
}

/* One step of the search from a towards b: the unseen successors of x that come before b. 1: a path was found. */
static int expand_forward(contraction *s, int32_t x, int32_t a, int32_t b, int32_t *count)
{
    const uint64_t limit = s->key[b];
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
            if (s->key[y] > limit || s->seen_forward[y] == s->search)
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
    const uint64_t limit = s->key[a];
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
            if (s->key[y] < limit || s->seen_backward[y] == s->search)
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
    const int32_t before_a = s->previous[a];
    if (place) { /* the merged node takes b's place, what a reaches follows */
        if (forward)
            move_behind(s, s->forward, forward, b);
        unlink_node(s, a);
        s->key[a] = s->key[b];
        link_after(s, a, b);
        unlink_node(s, b);
    } else {
        if (backward)
            move_behind(s, s->backward, backward, before_a);
        unlink_node(s, b);
    }
    s->parent[b] = a;
    /* Chains are circles through their root: joining two circles swaps what follows. */
    const int32_t out = s->next_out[a], in = s->next_in[a];
    s->next_out[a] = s->next_out[b];
    s->next_out[b] = out;
    s->next_in[a] = s->next_in[b];
    s->next_in[b] = in;
    return 1;
}

/* Preorder intervals of a depth-first forest, nearest successor first. */
static void number_forest(contraction *s, int32_t *stack, int32_t *cursor)
{
    const hg_coarse *c = s->c;
    int32_t clock = 0;
    for (int32_t x = 0; x < s->k; x++) {
        s->entered[x] = -1;
        cursor[x] = c->out_start[x];
    }
    for (int32_t root = 0; root < s->k; root++) {
        if (s->entered[root] >= 0)
            continue;
        int32_t top = 0;
        stack[top++] = root;
        s->entered[root] = clock++;
        while (top) {
            const int32_t x = stack[top - 1];
            if (cursor[x] == c->out_start[x + 1]) {
                s->left[x] = clock - 1;
                top--;
                continue;
            }
            const int32_t y = c->out[cursor[x]++];
            if (s->entered[y] < 0) {
                s->entered[y] = clock++;
                stack[top++] = y;
            }
        }
    }
}

int hg_contract(hg_coarse *coarse, float heavy, int thorough, int64_t *work, int32_t *merged, int32_t *count,
                int *maximal, hg_arena *arena, hg_watch *watch)
{
    const int32_t k = coarse->k;
    contraction s = {.k = k, .c = coarse, .work = *work};
    s.parent = HG_TAKE(arena, int32_t, k);
    s.out_end = HG_TAKE(arena, int32_t, k);
    s.in_end = HG_TAKE(arena, int32_t, k);
    s.next_out = HG_TAKE(arena, int32_t, k);
    s.next_in = HG_TAKE(arena, int32_t, k);
    s.key = HG_TAKE(arena, uint64_t, (int64_t)k + 1);
    s.next = HG_TAKE(arena, int32_t, (int64_t)k + 1);
    s.previous = HG_TAKE(arena, int32_t, (int64_t)k + 1);
    s.entered = HG_TAKE(arena, int32_t, k);
    s.left = HG_TAKE(arena, int32_t, k);
    s.seen_forward = HG_TAKE_ZEROED(arena, int32_t, k);
    s.seen_backward = HG_TAKE_ZEROED(arena, int32_t, k);
    s.forward = HG_TAKE(arena, int32_t, k);
    s.backward = HG_TAKE(arena, int32_t, k);
    if (!s.parent || !s.out_end || !s.in_end || !s.next_out || !s.next_in || !s.key || !s.next || !s.previous ||
        !s.entered || !s.left || !s.seen_forward || !s.seen_backward || !s.forward || !s.backward)
        return HG_NO_MEMORY;
    for (int32_t x = 0; x < k; x++) {
        s.parent[x] = s.next_out[x] = s.next_in[x] = x;
        s.out_end[x] = coarse->out_start[x + 1];
        s.in_end[x] = coarse->in_start[x + 1];
        s.next[x] = x + 1;
        s.previous[x] = x ? x - 1 : k;
    }
    s.next[k] = k ? 0 : k;
    s.previous[k] = k ? k - 1 : k;
    number_order(&s);
    number_forest(&s, s.forward, s.backward);

    /* From the sinks, nearest successor first; heavy edges in a round of their own. */
    int changed = 1;
    for (int round = heavy < HUGE_VALF ? 0 : 1; round <= 1 || (thorough && changed); round++) {
        changed = 0;
        for (int32_t u = k; u-- > 0;) {
            for (int32_t j = coarse->out_start[u]; j < s.out_end[u]; j++) {
                if (round == 0 && coarse->out_weight[j] < heavy)
                    continue;
                const int32_t v = coarse->out[j];
                if (coarse->device[v] != coarse->device[u])
                    continue;
                const int32_t a = find(s.parent, u), b = find(s.parent, v);
                if (a == b)
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
    for (int32_t x = s.next[k]; x != k; x = s.next[x])
        s.forward[x] = id++;
    for (int32_t x = 0; x < k; x++)
        merged[x] = s.forward[find(s.parent, x)];
    *count = id;
    *work = s.work;
    return HG_OK;
}
