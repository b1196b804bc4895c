/* Policy `greedy`: growing one candidate (hg_greedy_grow), and making it one vertex (hg_greedy_contract).
 *
 * A candidate grows downwards, along edges, then upwards, against them, and again while that adds a node. Both sides
 * run the same code with `side`. Downwards the children of the candidate are looked at in topological order:
 *   - A child of another device or in a chosen subgraph is TAINTED. So is every vertex that a tainted one leads to: a
 *     path leaves the candidate there, and merging a vertex behind it would make the candidate not convex.
 *   - A child that is not tainted when its turn comes is merged.
 * So the candidate is convex at every moment, nothing is rolled back, and the result does not depend on the order among
 * vertices that do not reach each other.
 *
 * Taint spreads only as far as it is needed. `clean` queues the children to look at, `frontier` the tainted vertices
 * that were not explored, both by topological order. Whether a child is tainted is decided (may_merge)
 *   1. by its parents alone, for most: one is tainted; or all are merged or come before the whole candidate;
 *   2. by a forest that shows that a tainted vertex leads to the child (hg_greedy_plant): along a long edge, most
 *      often;
 *   3. by exploring the frontier up to the child, as long as that takes no more than explore_first + explore_each *
 *      size steps (nodes and edges) in all and on each side. A child behind more than that, or too far away for that,
 *      is rejected without proof: fewer nodes are merged, the result stays valid.
 *
 * Cost of a growth: the edges of its members, and the edges explored; a logarithm of the queue for each vertex. */
#include "greedy.h"

enum {
    LOOK = 32, /* parents; a vertex with more is decided by exploring alone, so that looking at them stays cheap */
    APART = 8, /* places in topological order that one step of exploring is expected to lead further, at most */
};

static inline int earlier(const hg_greedy_state *s, int side, int32_t x, int32_t y)
{
    return side == DOWN ? s->node[x].key < s->node[y].key : s->node[x].key > s->node[y].key;
}

static inline int state_of(const hg_greedy_state *s, int side, int32_t x)
{
    const uint32_t mark = s->node[x].mark[side];
    return mark >> 2 == s->growth ? (int)(mark & 3) : UNSEEN;
}

/* Moves added items into the heap. */
static inline void queue_order(const hg_greedy_state *s, int side, hg_greedy_queue *q)
{
    int32_t *heap = q->item;
    for (; q->ordered < q->count; q->ordered++) {
        int32_t at = q->ordered;
        const int32_t x = heap[at];
        for (; at > 0 && earlier(s, side, x, heap[(at - 1) / 2]); at = (at - 1) / 2)
            heap[at] = heap[(at - 1) / 2];
        heap[at] = x;
    }
}

/* The first of a queue that is a heap. */
static inline int32_t queue_pop(const hg_greedy_state *s, int side, hg_greedy_queue *q)
{
    int32_t *heap = q->item;
    const int32_t top = heap[0], count = --q->count, moved = heap[count];
    int32_t hole = 0;
    q->ordered = count;
    for (int32_t c; (c = 2 * hole + 1) < count; hole = c) {
        if (c + 1 < count && earlier(s, side, heap[c + 1], heap[c]))
            c++;
        if (!earlier(s, side, heap[c], moved))
            break;
        heap[hole] = heap[c];
    }
    heap[hole] = moved;
    return top;
}

static inline void queue_add(hg_greedy_queue *q, int32_t x)
{
    HT_ASSERT(q->count >= q->ordered && q->ordered >= 0);
    q->item[q->count++] = x;
}

static inline void taint(hg_greedy_state *s, int side, int32_t x)
{
    s->node[x].mark[side] = 4 * s->growth + TAINTED;
    queue_add(&s->frontier[side], x);
}

static int merge(hg_greedy_state *s, int32_t v)
{
    hg_greedy_node *node = s->node;
    const int32_t free = node[v].label;
    const uint32_t growth = s->growth;
    node[v].mark[DOWN] = node[v].mark[UP] = 4 * growth + MERGED;
    HT_ASSERT(free < 0 && s->size < s->g->n);
    s->stack[s->size++] = v;
    int64_t edges = 0;
    for (int side = 0; side < 2; side++) {
        if (earlier(s, side, v, s->end[side]))
            s->end[side] = v;
        int32_t count;
        const int32_t *row = hg_greedy_row(s, side, v, &count);
        for (int32_t j = 0; j < count; j++) {
            const int32_t y = node[row[j]].vertex;
            if (node[y].mark[side] >> 2 == growth)
                continue;
            if (node[y].label == free) {
                node[y].mark[side] = 4 * growth + CLEAN;
                queue_add(&s->clean[side], y);
            } else
                taint(s, side, y);
            if (!(~j & 0xFFFF) && hg_interrupted(s->watch, 1 << 19))
                return HG_INTERRUPTED;
        }
        edges += count;
    }
    s->steps += 1 + edges;
    return hg_interrupted(s->watch, 16 + 8 * edges) ? HG_INTERRUPTED : HG_OK;
}

/* Taints the successors (side UP: predecessors) of the tainted vertex t. */
static int explore(hg_greedy_state *s, int side, int32_t t)
{
    hg_greedy_node *node = s->node;
    int32_t v = t;
    do { /* all nodes of a chosen subgraph, or the one */
        int32_t count;
        const int32_t *row = hg_greedy_row(s, side, v, &count);
        for (int32_t j = 0; j < count; j++) {
            const int32_t y = node[row[j]].vertex;
            const int state = state_of(s, side, y);
            if (y != t && (state == UNSEEN || state == CLEAN))
                taint(s, side, y);
        }
        s->steps += 1 + count;
        if (hg_interrupted(s->watch, 16 + 8 * (int64_t)count))
            return HG_INTERRUPTED;
        v = node[v].next_member;
    } while (v != t);
    return HG_OK;
}

/* Steps that it takes to look at all neighbours of a vertex. */
static inline int64_t steps_of(const hg_greedy_state *s, int side, int32_t x)
{
    int32_t count;
    if (s->node[x].next_member != x)
        return s->degree[side][x];
    (void)hg_greedy_row(s, side, x, &count);
    return 1 + count;
}

/* Whether a forest shows that t leads to x. */
static inline int leads_to(const hg_greedy_state *s, int side, int32_t t, int32_t x)
{
    const int32_t *above = s->node[t].tree[side], *below = s->node[x].tree[side];
    return above[0] <= below[0] && below[1] <= above[1];
}

/* 1 if x, the first of the CLEAN ones, can be merged; 0 if not; negative if interrupted. */
static int may_merge(hg_greedy_state *s, int side, int32_t x)
{
    int32_t count;
    const int32_t *row = hg_greedy_row(s, !side, x, &count);
    if (count <= LOOK) {
        int all = 1;
        for (int32_t j = 0; j < count; j++) {
            const int32_t y = s->node[row[j]].vertex;
            const int state = state_of(s, side, y);
            if (state == TAINTED)
                return 0;
            all &= state == MERGED || earlier(s, side, y, s->end[side]);
        }
        s->steps += count;
        if (all)
            return 1;
    }
    hg_greedy_queue *frontier = &s->frontier[side];
    for (;;) {
        queue_order(s, side, frontier);
        if (!frontier->count || !earlier(s, side, frontier->item[0], x))
            return 1;
        const int32_t t = frontier->item[0];
        const int64_t steps = s->explored[side] + steps_of(s, side, t);
        const int64_t bound = s->bounds.explore_first + s->bounds.explore_each * s->size;
        const int64_t apart = (int64_t)s->node[x].rank - s->node[t].rank;
        if (steps > bound || llabs(apart) > APART * (bound - s->explored[side]) || leads_to(s, side, t, x))
            return 0;
        queue_pop(s, side, frontier);
        s->explored[side] = steps;
        if (explore(s, side, t) != HG_OK)
            return HG_INTERRUPTED;
        if (state_of(s, side, x) == TAINTED)
            return 0;
    }
}

int hg_greedy_grow(hg_greedy_state *s, int32_t root, int64_t max_covered)
{
    int64_t covered = 0;
    if (++s->growth == UINT32_MAX / 4) { /* numbers have run out */
        for (int32_t v = 0; v < s->g->n; v++)
            s->node[v].mark[DOWN] = s->node[v].mark[UP] = 0;
        s->growth = 1;
    }
    s->size = 0;
    for (int side = 0; side < 2; side++) {
        s->clean[side].ordered = s->clean[side].count = s->frontier[side].ordered = s->frontier[side].count = 0;
        s->explored[side] = 0;
        s->end[side] = root;
    }
    if (merge(s, root) != HG_OK)
        return HG_INTERRUPTED;
    for (int side = DOWN; s->clean[DOWN].count || s->clean[UP].count; side = !side)
        while (s->clean[side].count) {
            queue_order(s, side, &s->clean[side]);
            const int32_t x = queue_pop(s, side, &s->clean[side]);
            if (state_of(s, side, x) != CLEAN)
                continue;
            const int merged = may_merge(s, side, x);
            if (merged < 0)
                return HG_INTERRUPTED;
            if (!merged) {
                if (state_of(s, side, x) == CLEAN)
                    taint(s, side, x);
            } else if (merge(s, x) != HG_OK)
                return HG_INTERRUPTED;
            else if (s->node[x].owner >= 0 && s->node[x].owner != root && 2 * ++covered > max_covered + s->size)
                return HG_OK;
        }
    return HG_OK;
}

/* Makes the members one vertex with the number `place`, which is one of them. */
static void unite(hg_greedy_state *s, int32_t place)
{
    int64_t degree[2] = {0, 0};
    for (int32_t i = 0; i < s->size; i++) {
        const int32_t v = s->stack[i];
        degree[DOWN] += 1 + (int64_t)(s->node[v + 1].begin - s->node[v].middle);
        degree[UP] += 1 + (int64_t)(s->node[v].middle - s->node[v].begin);
        s->node[v].vertex = place;
        s->node[v].next_member = s->stack[i + 1 < s->size ? i + 1 : 0];
        if (v != place)
            hg_list_unlink(&s->order, v);
    }
    for (int side = 0; side < 2; side++)
        s->degree[side][place] = (int32_t)(degree[side] < INT32_MAX ? degree[side] : INT32_MAX);
}

/* For the members to become one vertex, the vertices between them in the order must move out. A search down from the
 * members, as far as the last member's position, and one up, as far as the first's, take turns; the next turn goes to
 * the one with fewer steps after it. Once one is complete, the vertices that it found move past the members. So the
 * cost is at most twice the cheaper search. */
int hg_greedy_contract(hg_greedy_state *s)
{
    hg_greedy_node *node = s->node;
    const uint32_t seen = 4 * s->growth; /* UNSEEN with the number of this growth: found here */
    int32_t *found[2] = {s->frontier[DOWN].item, s->frontier[UP].item};
    int32_t num_found[2] = {0, 0}, next[2] = {0, 0}, member[2] = {0, 0}; /* members come before what was found */
    int64_t cost[2] = {0, 0};
    int side;
    for (;;) {
        int32_t vertex[2];
        int64_t total[2];
        for (int i = 0; i < 2; i++) {
            vertex[i] = member[i] < s->size ? s->stack[member[i]] : next[i] < num_found[i] ? found[i][next[i]] : -1;
            total[i] = cost[i] + (vertex[i] >= 0 ? steps_of(s, i, vertex[i]) : 0);
        }
        side = total[DOWN] <= total[UP] ? DOWN : UP;
        const int32_t x = vertex[side];
        if (x < 0)
            break;
        cost[side] = total[side];
        member[side] < s->size ? member[side]++ : next[side]++;
        const int32_t far_end = s->end[!side];
        int32_t v = x;
        int64_t edges = 0;
        do {
            int32_t count;
            const int32_t *row = hg_greedy_row(s, side, v, &count);
            for (int32_t j = 0; j < count; j++) {
                const int32_t y = node[row[j]].vertex;
                const uint32_t mark = node[y].mark[side];
                if (y == x || mark == seen || mark == seen + MERGED || earlier(s, side, far_end, y))
                    continue;
                node[y].mark[side] = seen;
                found[side][num_found[side]++] = y;
            }
            edges += 1 + count;
            v = node[v].next_member;
        } while (v != x && (edges < 1 << 16 || !hg_interrupted(s->watch, 1 << 10)));
        if (v != x || hg_interrupted(s->watch, 8 * edges))
            return HG_INTERRUPTED;
    }
    const int32_t first = s->end[DOWN], last = s->end[UP];
    s->steps += cost[DOWN] + cost[UP] + s->size;
    if (num_found[side])
        s->steps += hg_list_move_behind(&s->order, found[side], num_found[side],
                                        side == DOWN ? last : s->order.previous[first]);
    unite(s, side == DOWN ? last : first);
    return hg_interrupted(s->watch, 16 * (int64_t)s->size + 32 * (int64_t)num_found[side]) ? HG_INTERRUPTED : HG_OK;
}

int hg_greedy_plant(hg_greedy_state *s, int32_t *parent)
{
    const hg_graph *g = s->g;
    hg_greedy_node *node = s->node;
    const int32_t n = g->n;
    for (int side = 0; side < 2; side++) {
        /* From the leaves: tree[1] counts the nodes below. */
        for (int32_t v = 0; v < n; v++) {
            node[v].tree[side][1] = 1;
            if (!(~v & 0xFFFF) && hg_interrupted(s->watch, 1 << 18))
                return HG_INTERRUPTED;
        }
        for (int32_t i = 0; i < n; i++) {
            const int32_t v = hg_nth(g, side == DOWN ? n - 1 - i : i);
            int32_t nearest = -1, count;
            const int32_t *row = hg_greedy_row(s, !side, v, &count);
            if (!g->order && count) /* rows ascend by rank */
                nearest = row[side == DOWN ? count - 1 : 0];
            else
                for (int32_t j = 0; j < count; j++)
                    if (nearest < 0 || (node[row[j]].rank > node[nearest].rank) == (side == DOWN))
                        nearest = row[j];
            parent[v] = nearest;
            if (nearest >= 0)
                node[nearest].tree[side][1] += node[v].tree[side][1];
            if (!(~i & 0xFFFF) && hg_interrupted(s->watch, 1 << 20))
                return HG_INTERRUPTED;
        }
        /* From the roots: tree[0] is v's place, tree[1] the next free place for its children, at last the end of the
         * interval. */
        int32_t next = 0;
        for (int32_t i = 0; i < n; i++) {
            const int32_t v = hg_nth(g, side == DOWN ? i : n - 1 - i), below = node[v].tree[side][1];
            int32_t *place = parent[v] >= 0 ? &node[parent[v]].tree[side][1] : &next;
            node[v].tree[side][0] = *place;
            *place += below;
            node[v].tree[side][1] = node[v].tree[side][0] + 1;
            if (!(~i & 0xFFFF) && hg_interrupted(s->watch, 1 << 20))
                return HG_INTERRUPTED;
        }
    }
    return HG_OK;
}
