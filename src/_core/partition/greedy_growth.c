/* Policy `greedy`: growing one candidate, and making it one vertex.
 *
 * A candidate grows downwards, then upwards, and again while that adds a node. Downwards its children are looked at in
 * topological order (upwards: parents against it). A child of another device or in a chosen subgraph is tainted, and so
 * is what a tainted vertex leads to; a child that is not tainted when its turn comes is merged. So the candidate is
 * convex at every moment, nothing is rolled back, and it does not depend on the order among vertices that do not reach
 * each other.
 *
 * Most children are decided by their parents alone: one is tainted, or all are merged or come before the whole
 * candidate. For the others what is tainted is explored up to the child, by a heap, as long as no more than
 * edges_first + edges_each * size edges are to be looked at; a child behind more than that is rejected.
 * Exploring is spared where a forest shows that something tainted leads to the child: along a long edge, most often.
 *
 * Cost of a growth: the edges of its members, and the edges explored; a logarithm of the queue for each vertex. */
#include "greedy.h"

enum { LOOK = 32 }; /* a vertex with more parents than this is decided by exploring alone */

static inline int earlier(const hg_greedy_state *s, int side, int32_t x, int32_t y)
{
    return side == DOWN ? s->order.key[x] < s->order.key[y] : s->order.key[x] > s->order.key[y];
}

static inline int state_of(const hg_greedy_state *s, int side, int32_t x)
{
    const uint32_t mark = s->node[x].mark[side];
    return mark >> 2 == s->growth ? (int)(mark & 3) : UNSEEN;
}

/* What was added becomes part of the heap. */
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

static inline void queue_add(hg_greedy_queue *q, int32_t x) { q->item[q->count++] = x; }

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
    s->stack[s->size++] = v;
    int64_t edges = 0;
    for (int side = 0; side < 2; side++) {
        if (earlier(s, side, v, s->end[side]))
            s->end[side] = v;
        const int32_t *row = s->row[side], begin = s->start[side][v], end = s->start[side][v + 1];
        for (int32_t j = begin; j < end; j++) {
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
        edges += end - begin;
    }
    s->steps += 1 + edges;
    return hg_interrupted(s->watch, 16 + 8 * edges) ? HG_INTERRUPTED : HG_OK;
}

/* Taints what the tainted vertex t leads to. */
static int explore(hg_greedy_state *s, int side, int32_t t)
{
    hg_greedy_node *node = s->node;
    const int32_t *row = s->row[side];
    int32_t v = t;
    do { /* all nodes of a chosen subgraph, or the one */
        const int32_t begin = s->start[side][v], end = s->start[side][v + 1];
        for (int32_t j = begin; j < end; j++) {
            const int32_t y = node[row[j]].vertex;
            const int state = state_of(s, side, y);
            if (y != t && (state == UNSEEN || state == CLEAN))
                taint(s, side, y);
        }
        s->steps += 1 + end - begin;
        if (hg_interrupted(s->watch, 16 + 8 * (int64_t)(end - begin)))
            return HG_INTERRUPTED;
        v = node[v].next_member;
    } while (v != t);
    return HG_OK;
}

static inline int64_t edges_of(const hg_greedy_state *s, int side, int32_t x)
{
    return s->node[x].next_member == x ? s->start[side][x + 1] - s->start[side][x] : s->degree[side][x];
}

/* Whether the tainted vertices before x have at most the edges that may be explored, t's among them. */
static int within_bound(hg_greedy_state *s, int side, int32_t x, int32_t t)
{
    const int64_t more = t >= 0 ? edges_of(s, side, t) : 0, bound = s->edges_first + s->edges_each * s->size - more;
    if (s->explored_edges[side] <= bound)
        return 1;
    int64_t edges = 0; /* some may lie behind x: explored for one before, which upward growth has made a member's child */
    for (int32_t i = 0; i < s->num_explored[side]; i++)
        if (earlier(s, side, s->explored[side][i], x))
            edges += edges_of(s, side, s->explored[side][i]);
    s->steps += s->num_explored[side];
    return edges <= bound;
}

/* Whether a forest shows that t leads to x. */
static inline int leads_to(const hg_greedy_state *s, int side, int32_t t, int32_t x)
{
    const int32_t *above = s->tree[side][t], *below = s->tree[side][x];
    return above[0] <= below[0] && below[1] <= above[1];
}

/* 1: x, the first of the CLEAN ones, can be merged; 0: not; negative: interrupted. */
static int may_merge(hg_greedy_state *s, int side, int32_t x)
{
    const int32_t *row = s->row[!side], begin = s->start[!side][x], end = s->start[!side][x + 1];
    if (end - begin <= LOOK) {
        int all = 1;
        for (int32_t j = begin; j < end; j++) {
            const int32_t y = s->node[row[j]].vertex;
            const int state = state_of(s, side, y);
            if (state == TAINTED)
                return 0;
            all &= state == MERGED || earlier(s, side, y, s->end[side]);
        }
        s->steps += end - begin;
        if (all)
            return 1;
    }
    hg_greedy_queue *frontier = &s->frontier[side];
    for (;;) {
        queue_order(s, side, frontier);
        if (!frontier->count || !earlier(s, side, frontier->item[0], x))
            return within_bound(s, side, x, -1);
        const int32_t t = frontier->item[0];
        if (leads_to(s, side, t, x) || !within_bound(s, side, x, t))
            return 0;
        queue_pop(s, side, frontier);
        s->explored[side][s->num_explored[side]++] = t;
        s->explored_edges[side] += edges_of(s, side, t);
        if (explore(s, side, t) != HG_OK)
            return HG_INTERRUPTED;
        if (state_of(s, side, x) == TAINTED)
            return 0;
    }
}

int hg_greedy_grow(hg_greedy_state *s, int32_t root)
{
    if (++s->growth == UINT32_MAX / 4) { /* numbers have run out */
        for (int32_t v = 0; v < s->g->n; v++)
            s->node[v].mark[DOWN] = s->node[v].mark[UP] = 0;
        s->growth = 1;
    }
    s->size = 0;
    for (int side = 0; side < 2; side++) {
        s->clean[side].ordered = s->clean[side].count = s->frontier[side].ordered = s->frontier[side].count = 0;
        s->num_explored[side] = 0;
        s->explored_edges[side] = 0;
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
        }
    return HG_OK;
}

/* The members become the vertex `place`, which is one of them. */
static void unite(hg_greedy_state *s, int32_t place)
{
    int32_t degree[2] = {0, 0};
    for (int32_t i = 0; i < s->size; i++) {
        const int32_t v = s->stack[i];
        for (int side = 0; side < 2; side++)
            degree[side] += s->start[side][v + 1] - s->start[side][v];
        s->node[v].vertex = place;
        s->node[v].next_member = s->stack[i + 1 < s->size ? i + 1 : 0];
        if (v != place)
            hg_list_unlink(&s->order, v);
    }
    s->degree[DOWN][place] = degree[DOWN];
    s->degree[UP][place] = degree[UP];
}

/* Searches down to the last member and up to the first take turns, the one that has looked at fewer edges first; when
 * one is complete, what it found moves past the members. */
int hg_greedy_contract(hg_greedy_state *s)
{
    hg_greedy_node *node = s->node;
    const uint32_t seen = 4 * s->growth; /* UNSEEN with the number of this growth: found here */
    int32_t *found[2] = {s->frontier[DOWN].item, s->frontier[UP].item};
    int32_t num_found[2] = {0, 0}, next[2] = {0, 0}, member[2] = {0, 0};
    int64_t cost[2] = {0, 0};
    int side;
    for (;;) {
        side = cost[DOWN] <= cost[UP] ? DOWN : UP;
        int32_t x;
        if (member[side] < s->size)
            x = s->stack[member[side]++];
        else if (next[side] < num_found[side])
            x = found[side][next[side]++];
        else
            break;
        const int32_t far_end = s->end[!side], *row = s->row[side];
        int32_t v = x;
        int64_t edges = 0;
        do {
            const int32_t begin = s->start[side][v], end = s->start[side][v + 1];
            for (int32_t j = begin; j < end; j++) {
                const int32_t y = node[row[j]].vertex;
                const uint32_t mark = node[y].mark[side];
                if (y == x || mark == seen || mark == seen + MERGED || earlier(s, side, far_end, y))
                    continue;
                node[y].mark[side] = seen;
                found[side][num_found[side]++] = y;
            }
            edges += 1 + end - begin;
            v = node[v].next_member;
        } while (v != x && (edges < 1 << 16 || !hg_interrupted(s->watch, 1 << 10)));
        cost[side] += edges;
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
    const int32_t n = s->g->n;
    for (int side = 0; side < 2; side++) {
        int32_t(*tree)[2] = s->tree[side];
        const int32_t *start = s->start[!side], *row = s->row[!side];
        /* From the leaves: tree[v][1] counts the nodes below v. */
        for (int32_t v = 0; v < n; v++) {
            tree[v][1] = 1;
            if (!(~v & 0xFFFF) && hg_interrupted(s->watch, 1 << 17))
                return HG_INTERRUPTED;
        }
        for (int32_t i = 0; i < n; i++) {
            const int32_t v = hg_nth(s->g, side == DOWN ? n - 1 - i : i);
            int32_t nearest = -1;
            if (!s->g->order && start[v] < start[v + 1]) /* rows ascend by rank */
                nearest = row[side == DOWN ? start[v + 1] - 1 : start[v]];
            else
                for (int32_t j = start[v]; j < start[v + 1]; j++)
                    if (nearest < 0 || (s->node[row[j]].rank > s->node[nearest].rank) == (side == DOWN))
                        nearest = row[j];
            parent[v] = nearest;
            if (nearest >= 0)
                tree[nearest][1] += tree[v][1];
            if (!(~i & 0xFFFF) && hg_interrupted(s->watch, 1 << 19))
                return HG_INTERRUPTED;
        }
        /* From the roots: tree[v][0] takes v's place, tree[v][1] the next free place of its children, at last the end
         * of the interval. */
        int32_t next = 0;
        for (int32_t i = 0; i < n; i++) {
            const int32_t v = hg_nth(s->g, side == DOWN ? i : n - 1 - i), below = tree[v][1];
            int32_t *place = parent[v] >= 0 ? &tree[parent[v]][1] : &next;
            tree[v][0] = *place;
            *place += below;
            tree[v][1] = tree[v][0] + 1;
            if (!(~i & 0xFFFF) && hg_interrupted(s->watch, 1 << 19))
                return HG_INTERRUPTED;
        }
    }
    return HG_OK;
}
