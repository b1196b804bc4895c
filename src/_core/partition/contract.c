/* Contraction: merges the two ends of an edge within a device, unless another path joins them.
 *
 * The algorithm keeps a topological order, as TensorFlow's GraphCycles does (Pearce and Kelly, "A dynamic topological
 * sort algorithm for directed acyclic graphs", ACM JEA 11, 2007). Here the order is a linked list (order_list.h), so
 * that only one side of an affected region moves. A forward search from the source and a backward search from the
 * target take turns. The vertices of the search that ends first move behind the target or before the source (Bender,
 * Fineman, Gilbert, Tarjan, "A new approach to incremental cycle detection", ACM TALG 12(2), 2016). An attempt
 * therefore costs twice the cheaper side.
 *
 * The first order is depth first (reverse postorder). In it, most edges span few vertices, and a search that stays
 * between two ends meets few others. In an order by levels, every level between them would lie there.
 *
 * Landmarks usually reveal another path without a search. They are the positions on one path of the graph, of those the
 * one that the most edges leave: each node has the first position that it reaches and the last position that reaches
 * it. In a deep graph, this reveals nearly every long detour, and it stays valid because contraction never removes a
 * path. A spanning forest does the same in graphs of many long paths side by side: a node reaches all others of its
 * subtree, which preorder intervals tell.
 *
 * An edge that another path refuses keeps a node of that path, its witness. The edge is searched again only when the
 * witness has been merged into one of its ends, because until then the path still leads through a third node.
 *
 * The budget counts the edges of searches. When it is used up, the remaining edges stay. Rows of merged nodes are
 * chained, not copied; edges inside a merged node are deleted when a search meets them. */
#include <math.h>

#include "coarse.h"

#define HG_KEY_STRIDE 4 /* keys are part of struct node */
#include "order_list.h"

enum { FORWARD = 0, BACKWARD = 1 };
enum { TURN = 8 }; /* edges that one search looks at before the other continues */

enum {
    /* Steps of an attempt in the first round, at most. Each later round allows eight times as many, so that the budget is
     * spent first on edges that need few steps. */
    FIRST_LIMIT = 256,
    FAIR_SHARES = 8, /* of the steps left: what an attempt may use of them when they are scarce */
};

/* One of the two searches: from the source over successors, or from the target over predecessors. */
typedef struct {
    int32_t *found; /* in order of discovery */
    int32_t count, next;
    int32_t node;      /* being expanded */
    int32_t row, edge; /* position in its rows: `row` is one of the nodes merged into it */
    int64_t looked_at;
} search;

/* What a search reads of a node that it meets, in half a cache line. */
typedef struct {
    uint64_t key;          /* position in the order */
    int32_t seen;          /* 2 * number of the last search that saw it, + side */
    int32_t first, last;   /* positions on the landmark path: the first it reaches, the last that reaches it */
    int32_t entered, left; /* preorder interval in the forest */
    int32_t parent;        /* union-find */
} node;

/* What a search reads of a node that it expands: a row of edges, and the next of the rows of a merged node, which are
 * chained in a circle. */
typedef struct {
    int32_t start, end; /* rows shrink */
    int32_t next;
} edge_row;

typedef struct {
    int32_t k;
    const hg_coarse *c;
    node *node;
    int32_t *refused[2];     /* per root, as source and as target: the last root with which it can never merge */
    edge_row *row[2];        /* successors, predecessors */
    int32_t *entry[2];
    hg_order_list order;     /* of roots */
    int32_t attempt;
    int32_t witness; /* a node on the path that the last attempt found */
    search search[2];
    int64_t budget, work; /* steps: all, and those left */
} contraction;

static inline int32_t find(node *nodes, int32_t x)
{
    int32_t above = nodes[x].parent;
    for (int32_t next; (next = nodes[above].parent) != above; above = nodes[x].parent) {
        nodes[x].parent = next;
        x = next;
    }
    return above;
}

static inline int reaches(const contraction *s, int32_t x, int32_t y)
{
    const node *from = &s->node[x], *to = &s->node[y];
    return from->first <= to->last || (from->entered <= to->entered && to->entered <= from->left);
}

enum { MORE, COMPLETE, PATH };

static inline void begin(contraction *s, int side, int32_t x)
{
    search *t = &s->search[side];
    t->node = t->row = x;
    t->edge = s->row[side][x].start;
    const int32_t *next = t->found + t->next, *entry = s->entry[side];
    if (t->count - t->next < 2)
        return;
    HG_PREFETCH(&entry[s->row[side][next[1]].start]);
    const edge_row row = s->row[side][next[0]];
    for (int32_t j = row.start; j < row.end && j < row.start + 4; j++)
        HG_PREFETCH(&s->node[entry[j]]);
}

/* One search looks at its next few edges. It collects unseen neighbors that lie between a and b in the order. */
static inline __attribute__((always_inline)) int take_turn(contraction *s, const int side, int32_t a, int32_t b)
{
    search *t = &s->search[side];
    const int32_t from = side == FORWARD ? a : b, to = side == FORWARD ? b : a;
    const uint64_t limit = s->node[to].key;
    const int32_t mark = 2 * s->attempt + side, other = mark ^ 1;
    int32_t *entry = s->entry[side];
    edge_row *rows = s->row[side];
    for (int turn = TURN; turn > 0;) {
        if (t->edge == rows[t->row].end) {
            t->row = rows[t->row].next;
            if (t->row != t->node)
                t->edge = rows[t->row].start;
            else if (t->next < t->count)
                begin(s, side, t->found[t->next++]);
            else
                return COMPLETE;
            turn--;
            t->looked_at++;
            continue;
        }
        const int32_t y = find(s->node, entry[t->edge]);
        entry[t->edge] = y;
        turn--;
        t->looked_at++;
        if (y == t->node) { /* inside the merged node */
            entry[t->edge] = entry[--rows[t->row].end];
            continue;
        }
        t->edge++;
        if (y == to) {
            if (t->node != from) {
                s->witness = t->node;
                return PATH;
            }
            continue;
        }
        node *n = &s->node[y];
        if (n->seen == mark)
            continue;
        if (n->seen == other || (side == FORWARD ? reaches(s, y, b) : reaches(s, a, y))) {
            /* A path through a node of another kind never disappears, because no merge absorbs that node. */
            if (s->c->kind[y] != s->c->kind[a] || s->c->kind[t->node] != s->c->kind[a]) {
                s->refused[FORWARD][a] = b;
                s->refused[BACKWARD][b] = a;
            }
            s->witness = y;
            return PATH;
        }
        if (side == FORWARD ? n->key > limit : n->key < limit)
            continue;
        n->seen = mark;
        HG_PREFETCH(&rows[y]);
        t->found[t->count++] = y;
    }
    return MORE;
}

static void move(contraction *s, const search *t, int32_t place)
{
    if (t->count)
        s->work -= hg_list_move_behind(&s->order, t->found, t->count, place);
}

/* Merges root b into root a. Returns 1 if it did, 0 if another path joins them, -1 if `limit` steps do not decide. */
static int try_merge(contraction *s, int32_t a, int32_t b, int64_t limit)
{
    search *forward = &s->search[FORWARD], *backward = &s->search[BACKWARD];
    s->attempt++;
    forward->count = forward->next = backward->count = backward->next = 0;
    forward->looked_at = backward->looked_at = 0;
    begin(s, FORWARD, a);
    begin(s, BACKWARD, b);
    int state, side;
    do {
        side = forward->looked_at <= backward->looked_at ? FORWARD : BACKWARD;
        state = side == FORWARD ? take_turn(s, FORWARD, a, b) : take_turn(s, BACKWARD, a, b);
    } while (state == MORE && forward->looked_at + backward->looked_at < limit);
    s->work -= forward->looked_at + backward->looked_at;
    if (state != COMPLETE)
        return state == PATH ? 0 : -1;
    const int32_t before_a = s->order.previous[a];
    if (side == FORWARD) { /* the merged node takes b's place, followed by what a reaches */
        move(s, forward, b);
        hg_list_unlink(&s->order, a);
        s->node[a].key = s->node[b].key;
        hg_list_link(&s->order, a, b);
        hg_list_unlink(&s->order, b);
    } else {
        move(s, backward, before_a);
        hg_list_unlink(&s->order, b);
    }
    node *into = &s->node[a], *from = &s->node[b];
    from->parent = a;
    into->first = from->first < into->first ? from->first : into->first;
    into->last = from->last > into->last ? from->last : into->last;
    if (from->left - from->entered > into->left - into->entered) {
        into->entered = from->entered;
        into->left = from->left;
    }
    s->c->size[a] += s->c->size[b];
    for (side = 0; side < 2; side++) { /* chains are circles: swapping the successors joins two of them */
        const int32_t next = s->row[side][a].next;
        s->row[side][a].next = s->row[side][b].next;
        s->row[side][b].next = next;
    }
    return 1;
}

/* Fills in the landmarks; length and best [k] are scratch. Ids are topological. */
static int set_landmarks(contraction *s, int32_t *length, int32_t *best, hg_watch *watch)
{
    const hg_coarse *c = s->c;
    int32_t head = -1;
    for (int32_t x = s->k; x-- > 0;) {
        length[x] = 0;
        best[x] = -1;
        for (int32_t j = c->out_start[x]; j < c->out_start[x + 1]; j++)
            if (best[x] < 0 || length[c->out[j]] >= length[x]) {
                length[x] = length[c->out[j]];
                best[x] = c->out[j];
            }
        length[x] += c->out_start[x + 1] - c->out_start[x];
        s->node[x].first = INT32_MAX;
        s->node[x].last = -1;
        if (head < 0 || length[x] >= length[head])
            head = x;
        if (hg_interrupted(watch, 4 + 2 * (int64_t)(c->out_start[x + 1] - c->out_start[x])))
            return HG_INTERRUPTED;
    }
    int32_t place = 0;
    for (int32_t x = head; x >= 0; x = best[x])
        s->node[x].first = s->node[x].last = place++;
    for (int32_t x = s->k; x-- > 0;) {
        for (int32_t j = c->out_start[x]; j < c->out_start[x + 1] && s->node[x].last < 0; j++) {
            const int32_t first = s->node[c->out[j]].first;
            if (first < s->node[x].first)
                s->node[x].first = first;
        }
        if (hg_interrupted(watch, 4 + 2 * (int64_t)(c->out_start[x + 1] - c->out_start[x])))
            return HG_INTERRUPTED;
    }
    for (int32_t x = 0; x < s->k; x++) {
        for (int32_t j = c->in_start[x]; j < c->in_start[x + 1]; j++) {
            const int32_t last = s->node[c->in[j]].last;
            if (last > s->node[x].last)
                s->node[x].last = last;
        }
        if (hg_interrupted(watch, 4 + 2 * (int64_t)(c->in_start[x + 1] - c->in_start[x])))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

/* Fills in the preorder intervals and the order; the arrays [k] are scratch. */
static int grow_forest(contraction *s, int32_t *entered, int32_t *left, int32_t *stack, int32_t *cursor,
                       hg_watch *watch)
{
    const int32_t k = s->k;
    int32_t *next = s->order.next, *previous = s->order.previous, *finished = previous; /* until `next` is made of it */
    if (hg_forest(k, s->c->out_start, s->c->out, NULL, entered, left, finished, stack, cursor, watch) != HG_OK)
        return HG_INTERRUPTED;
    int32_t after = k; /* the head */
    for (int32_t x = 0; x < k; x++) {
        s->node[x].entered = entered[x];
        s->node[x].left = left[x];
        next[finished[x]] = after;
        after = finished[x];
    }
    next[k] = after;
    for (int32_t x = k, i = 0; i <= k; i++, x = next[x])
        previous[next[x]] = x;
    s->order.head = k;
    hg_list_number(&s->order, k);
    return hg_interrupted(watch, 32 * (int64_t)k) ? HG_INTERRUPTED : HG_OK;
}

/* Edges to try: heavy ones before the others; each from the sinks on, nearest successor first. */
static int list_edges(const hg_coarse *c, float heavy, hg_open_edges *open, hg_watch *watch)
{
    const int by_weight = heavy < HUGE_VALF;
    for (int pass = by_weight ? 0 : 1; pass <= 1; pass++)
        for (int32_t u = c->k; u-- > 0;) {
            for (int32_t j = c->out_start[u]; j < c->out_start[u + 1]; j++)
                if (c->kind[u] == c->kind[c->out[j]] && (!by_weight || (c->out_weight[j] >= heavy) == (pass == 0)))
                    open->edge[open->count++] = (hg_open_edge){u, c->out[j], -1};
            if (hg_interrupted(watch, 4 + c->out_start[u + 1] - c->out_start[u]))
                return HG_INTERRUPTED;
        }
    return HG_OK;
}

/* The steps of an attempt when so many edges are left in a round. In the first round, once half of the
 * budget is used up, a few long searches cannot use up the steps of the other edges. */
static int64_t steps_of(const contraction *s, int64_t limit, int64_t left)
{
    if (limit == FIRST_LIMIT && s->work < s->budget / 2) {
        const int64_t share = FAIR_SHARES * (s->work / left) + 1;
        limit = limit < share ? limit : share;
    }
    return limit < s->work ? limit : s->work;
}

/* Tries the edges of the list until none can be merged. Those that stay may be merged later: the search ran out of
 * steps, or one of the ends may absorb the witness. */
static int try_edges(contraction *s, int32_t max_size, hg_open_edges *open, hg_watch *watch)
{
    int again = 1; /* an edge was merged or left undecided */
    for (int64_t limit = FIRST_LIMIT; open->count && s->work > 0 && again;
         limit = limit < s->work ? 8 * limit : limit) {
        int64_t kept = 0;
        again = 0;
        for (int64_t i = 0; i < open->count; i++) {
            hg_open_edge e = open->edge[i];
            const hg_open_edge *later = &open->edge[i + HG_LEAD < open->count ? i + HG_LEAD : i];
            HG_PREFETCH(&s->node[later->source]);
            HG_PREFETCH(&s->node[later->target]);
            const int32_t a = find(s->node, e.source), b = find(s->node, e.target);
            const int64_t before = s->work;
            int outcome = 0;
            if (a == b || s->refused[FORWARD][a] == b || s->refused[BACKWARD][b] == a)
                continue;
            const int32_t w = e.witness < 0 ? a : find(s->node, e.witness);
            if (w == a || w == b) {
                s->witness = -1;
                if (s->work > 0 && s->c->size[a] <= max_size - s->c->size[b])
                    outcome = try_merge(s, a, b, steps_of(s, limit, open->count - i));
                e.witness = outcome == 0 ? s->witness : -1;
            }
            again |= outcome != 0;
            if (outcome <= 0 && s->refused[FORWARD][a] != b)
                open->edge[kept++] = e;
            if (hg_interrupted(watch, 8 + 4 * (before - s->work)))
                return HG_INTERRUPTED;
            if (s->attempt == INT32_MAX / 2 - 1) { /* unreached: after a billion attempts */
                for (int32_t x = 0; x < s->k; x++)
                    s->node[x].seen = 0;
                s->attempt = 0;
            }
        }
        open->count = kept;
    }
    return HG_OK;
}

int hg_contract(const hg_coarse *coarse, float heavy, int32_t max_size, int64_t work, hg_open_edges *open,
                int32_t *merged, int32_t *count, int *finished, hg_arena *arena, hg_watch *watch)
{
    const int32_t k = coarse->k;
    contraction s = {.k = k, .c = coarse, .budget = work, .work = work};
    s.node = HG_TAKE(arena, node, (int64_t)k + 1); /* the last one is the head of the order */
    s.order.next = HG_TAKE(arena, int32_t, (int64_t)k + 1);
    s.order.previous = HG_TAKE(arena, int32_t, (int64_t)k + 1);
    for (int side = 0; side < 2; side++) {
        s.row[side] = HG_TAKE(arena, edge_row, k);
        s.search[side].found = HG_TAKE(arena, int32_t, k);
        s.refused[side] = HG_TAKE(arena, int32_t, k);
    }
    s.entry[FORWARD] = HG_TAKE(arena, int32_t, coarse->edges);
    s.entry[BACKWARD] = coarse->in;
    if (arena->failed)
        return HG_NO_MEMORY;
    s.order.key = &s.node->key;
    memcpy(s.entry[FORWARD], coarse->out, (size_t)coarse->edges * sizeof(int32_t));
    if (set_landmarks(&s, s.search[FORWARD].found, s.search[BACKWARD].found, watch) != HG_OK ||
        grow_forest(&s, s.refused[FORWARD], s.refused[BACKWARD], s.search[FORWARD].found, s.search[BACKWARD].found,
                    watch) != HG_OK)
        return HG_INTERRUPTED;
    for (int32_t x = 0; x < k; x++) {
        s.node[x].parent = x;
        s.node[x].seen = 0;
        s.refused[FORWARD][x] = s.refused[BACKWARD][x] = -1;
        s.row[FORWARD][x] = (edge_row){coarse->out_start[x], coarse->out_start[x + 1], x};
        s.row[BACKWARD][x] = (edge_row){coarse->in_start[x], coarse->in_start[x + 1], x};
        if (hg_interrupted(watch, 16))
            return HG_INTERRUPTED;
    }
    if ((!open->count && list_edges(coarse, heavy, open, watch) != HG_OK) ||
        try_edges(&s, max_size, open, watch) != HG_OK)
        return HG_INTERRUPTED;
    int32_t id = 0, *new_id = s.search[FORWARD].found;
    for (int32_t x = s.order.next[k]; x != k; x = s.order.next[x])
        new_id[x] = id++;
    for (int32_t x = 0; x < k; x++)
        merged[x] = new_id[find(s.node, x)];
    for (int64_t i = 0; i < open->count; i++) {
        hg_open_edge *e = &open->edge[i];
        *e = (hg_open_edge){merged[e->source], merged[e->target], e->witness < 0 ? -1 : merged[e->witness]};
    }
    *count = id;
    *finished = s.work > 0; /* an edge is skipped or left undecided only after the last step */
    return HG_OK;
}
