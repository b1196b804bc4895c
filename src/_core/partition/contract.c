/* Contraction: merges the two ends of an edge within a device, unless another path joins them.
 *
 * The algorithm keeps a topological order, as TensorFlow's GraphCycles does (Pearce and Kelly, "A dynamic topological
 * sort algorithm for directed acyclic graphs", ACM JEA 11, 2007). Here the order is a linked list (order_list.h), so
 * that only one side of an affected region moves. A forward search from the source and a backward search from the
 * target take turns. The vertices of the search that ends first move behind the target or before the source (Bender,
 * Fineman, Gilbert, Tarjan, "A new approach to incremental cycle detection", ACM TALG 12(2), 2016). An attempt
 * therefore costs twice the cheaper side.
 *
 * Landmarks usually reveal another path without a search. They are the positions on one longest path of the graph: each
 * node has the first position that it reaches and the last position that reaches it. In a deep graph, this reveals
 * nearly every long detour, and it stays valid because contraction never removes a path.
 *
 * The budget counts the edges of searches. When it is used up, the remaining edges stay. Rows of merged nodes are
 * chained, not copied; edges inside a merged node are deleted when a search meets them. */
#include <math.h>

#include "coarse.h"

#define HG_KEY_STRIDE 3 /* keys are part of struct node */
#include "order_list.h"

enum { FORWARD = 0, BACKWARD = 1 };
enum { TURN = 8 }; /* edges that one search looks at before the other continues */

/* Steps of an attempt in the first round, at most. Each later round allows eight times as many, so that the budget is
 * spent first on edges that need few steps. */
enum { FIRST_LIMIT = 1024 };

typedef struct {
    int32_t source, target;
} edge;

/* One of the two searches: from the source over successors, or from the target over predecessors. */
typedef struct {
    int32_t *found; /* in order of discovery */
    int32_t count, next;
    int32_t node;      /* being expanded */
    int32_t row, edge; /* position in its rows: `row` is one of the nodes merged into it */
    int64_t looked_at;
} search;

/* What a search reads of a node that it meets, in one cache line. */
typedef struct {
    uint64_t key;         /* position in the order */
    int32_t seen;         /* 2 * number of the last search that saw it, + side */
    int32_t first, last;  /* positions on the landmark path: the first it reaches, the last that reaches it */
    int32_t parent;       /* union-find */
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
    search search[2];
    int64_t work;
} contraction;

static inline int32_t find(node *nodes, int32_t x)
{
    while (nodes[x].parent != x) {
        nodes[x].parent = nodes[nodes[x].parent].parent;
        x = nodes[x].parent;
    }
    return x;
}

static inline int reaches(const contraction *s, int32_t x, int32_t y)
{
    return s->node[x].first <= s->node[y].last;
}

enum { MORE, COMPLETE, PATH };

static inline void begin(contraction *s, int side, int32_t x)
{
    search *t = &s->search[side];
    t->node = t->row = x;
    t->edge = s->row[side][x].start;
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
        turn--;
        t->looked_at++;
        if (y == t->node) { /* inside the merged node */
            entry[t->edge] = entry[--rows[t->row].end];
            continue;
        }
        t->edge++;
        if (y == to) {
            if (t->node != from)
                return PATH;
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
            if (length[c->out[j]] >= length[x]) {
                length[x] = length[c->out[j]] + 1;
                best[x] = c->out[j];
            }
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

int hg_contract(const hg_coarse *coarse, float heavy, int32_t max_size, int64_t work, int32_t *merged,
                int32_t *count, int *finished, hg_arena *arena, hg_watch *watch)
{
    const int32_t k = coarse->k;
    contraction s = {.k = k, .c = coarse, .work = work};
    s.node = HG_TAKE(arena, node, (int64_t)k + 1); /* the last one is the head of the order */
    s.order.next = HG_TAKE(arena, int32_t, (int64_t)k + 1);
    s.order.previous = HG_TAKE(arena, int32_t, (int64_t)k + 1);
    for (int side = 0; side < 2; side++) {
        s.row[side] = HG_TAKE(arena, edge_row, k);
        s.search[side].found = HG_TAKE(arena, int32_t, k);
        s.refused[side] = HG_TAKE(arena, int32_t, k);
        if (!s.refused[side] || !s.row[side] || !s.search[side].found)
            return HG_NO_MEMORY;
    }
    s.entry[FORWARD] = HG_TAKE(arena, int32_t, coarse->edges);
    s.entry[BACKWARD] = coarse->in;
    edge *tried = HG_TAKE(arena, edge, coarse->edges);
    if (!s.node || !s.order.next || !s.order.previous || !s.entry[FORWARD] || !tried)
        return HG_NO_MEMORY;
    s.order.key = &s.node->key;
    memcpy(s.entry[FORWARD], coarse->out, (size_t)coarse->edges * sizeof(int32_t));
    if (set_landmarks(&s, s.search[FORWARD].found, s.search[BACKWARD].found, watch) != HG_OK)
        return HG_INTERRUPTED;
    for (int32_t x = 0; x < k; x++) {
        s.node[x].parent = x;
        s.node[x].seen = 0;
        s.refused[FORWARD][x] = s.refused[BACKWARD][x] = -1;
        s.row[FORWARD][x] = (edge_row){coarse->out_start[x], coarse->out_start[x + 1], x};
        s.row[BACKWARD][x] = (edge_row){coarse->in_start[x], coarse->in_start[x + 1], x};
        s.order.next[x] = x + 1;
        s.order.previous[x] = x ? x - 1 : k;
        if (hg_interrupted(watch, 16))
            return HG_INTERRUPTED;
    }
    s.order.next[k] = k ? 0 : k;
    s.order.previous[k] = k ? k - 1 : k;
    s.order.head = k;
    hg_list_number(&s.order, k);

    /* Edges to try: heavy ones before the others; each from the sinks on, nearest successor first. An edge that is not
     * merged stays in the list if it may be merged later: the search ran out of steps, or one of its ends may absorb
     * the other path. */
    int64_t tries = 0;
    for (int pass = heavy < HUGE_VALF ? 0 : 1; pass <= 1; pass++)
        for (int32_t u = k; u-- > 0;) {
            for (int32_t j = coarse->out_start[u]; j < coarse->out_start[u + 1]; j++)
                if (coarse->kind[u] == coarse->kind[coarse->out[j]] &&
                    (pass == 0 ? coarse->out_weight[j] >= heavy : coarse->out_weight[j] < heavy))
                    tried[tries++] = (edge){u, coarse->out[j]};
            if (hg_interrupted(watch, 4 + coarse->out_start[u + 1] - coarse->out_start[u]))
                return HG_INTERRUPTED;
        }
    int open = 1; /* an edge was merged or left undecided */
    for (int64_t limit = FIRST_LIMIT; tries && s.work > 0 && open; limit = limit < s.work ? 8 * limit : limit) {
        int64_t kept = 0;
        open = 0;
        for (int64_t i = 0; i < tries; i++) {
            const int32_t a = find(s.node, tried[i].source), b = find(s.node, tried[i].target);
            const int64_t before = s.work;
            int outcome = 0;
            if (a == b || s.refused[FORWARD][a] == b || s.refused[BACKWARD][b] == a)
                continue;
            if (s.work > 0 && coarse->size[a] <= max_size - coarse->size[b])
                outcome = try_merge(&s, a, b, limit < s.work ? limit : s.work);
            open |= outcome != 0;
            if (outcome <= 0 && s.refused[FORWARD][a] != b)
                tried[kept++] = tried[i];
            if (hg_interrupted(watch, 8 + 4 * (before - s.work)))
                return HG_INTERRUPTED;
            if (s.attempt == INT32_MAX / 2 - 1) {
                for (int32_t x = 0; x < k; x++)
                    s.node[x].seen = 0;
                s.attempt = 0;
            }
        }
        tries = kept;
    }
    int32_t id = 0, *new_id = s.search[FORWARD].found;
    for (int32_t x = s.order.next[k]; x != k; x = s.order.next[x])
        new_id[x] = id++;
    for (int32_t x = 0; x < k; x++)
        merged[x] = new_id[find(s.node, x)];
    *count = id;
    *finished = s.work > 0; /* an edge is skipped or left undecided only after the last step */
    return HG_OK;
}
