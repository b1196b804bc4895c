/* Policy `greedy`: the documented loop with early rejection, for graphs of any size; the fast twin of
 * partition/reference.py.
 *
 * For each device in ascending order a candidate is grown from every free node that no candidate covers; the largest is
 * chosen, the earliest root among equals. A candidate grows downwards, then upwards, and again while that adds a node.
 * Downwards it takes, in topological order, each child all of whose ways from the candidate lead through the candidate;
 * a child with another way in is rejected on sight, as is what it leads to. So nothing is ever rolled back.
 *
 * Growth explores, in topological order by a heap, what the candidate reaches as long as a child may still be taken:
 * it stays local, and EDGES_FIRST + EDGES_EACH * size edges bound it (the rest is rejected). Sizes are kept in a heap
 * and looked at again when they come up, since choices shrink them: what is chosen was grown that moment, so it is
 * convex. Chosen subgraphs become single vertices of an order_list.h order; contracting one moves only what it reaches
 * before its last node, or what reaches it after its first. */
#include "arena.h"
#include "graph.h"
#include "order_list.h"

static const int64_t EDGES_FIRST = 512, EDGES_EACH = 16;

enum { DOWN = 0, UP = 1 };
enum { FEW = 64 };

/* What growth looks up of a node, in one cache line. */
typedef struct {
    int32_t vertex;      /* itself, or the node that stands for its chosen subgraph */
    int32_t next_member; /* of its chosen subgraph, in a circle */
    int32_t label;       /* its chosen subgraph, or -1 */
    int32_t device;
    uint32_t merged;     /* number of the last growth that merged it */
    uint32_t reached[2]; /* as a vertex: 2 * growth + tainted, below or above the candidate */
    int32_t owner;       /* root whose candidate covers it, or -1 */
} node;

typedef struct {
    const hg_graph *g;
    node *node;
    int32_t *rank;       /* of a node, in the graph's topological order */
    int64_t *degree[2];  /* of a vertex: edges out of and into its nodes */
    hg_order_list order; /* of vertices */
    int32_t *entered, *left; /* of a node: preorder interval in a depth-first forest */

    uint32_t growth;        /* number of the growth in progress */
    int32_t *heap[2];       /* vertices reached and not looked at yet, by key */
    int32_t heap_size[2];
    int32_t clean[2];       /* of those, how many may be merged */
    int32_t few[2][FEW];    /* the first of them */
    int32_t num_few[2];     /* how many there were in all */
    int32_t *stack;         /* the candidate */
    int32_t size;
    int64_t edges;          /* looked at in this growth */

    int32_t *owned, *next_owned; /* nodes by owner */
    int32_t *entry_size, *entry_root; /* heap of candidates: the largest first, then the earliest root */
    int32_t entries;
    int32_t *loose;         /* nodes that lost their owner */
    int32_t num_loose;
    int64_t *visited;       /* of a vertex: number of the last contraction that saw it, times two, plus direction */
    int64_t contraction;
    int32_t *found[2];
} greedy;

static inline int earlier(const greedy *s, int side, int32_t x, int32_t y)
{
    return side == DOWN ? s->order.key[x] < s->order.key[y] : s->order.key[x] > s->order.key[y];
}

static void heap_push(greedy *s, int side, int32_t x)
{
    int32_t *heap = s->heap[side], at = s->heap_size[side]++;
    for (; at > 0 && earlier(s, side, x, heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = x;
}

static int32_t heap_pop(greedy *s, int side)
{
    int32_t *heap = s->heap[side];
    const int32_t top = heap[0], size = --s->heap_size[side], moved = heap[size];
    int32_t hole = 0;
    for (int32_t c; (c = 2 * hole + 1) < size; hole = c) {
        if (c + 1 < size && earlier(s, side, heap[c + 1], heap[c]))
            c++;
        if (!earlier(s, side, heap[c], moved))
            break;
        heap[hole] = heap[c];
    }
    heap[hole] = moved;
    return top;
}

/* x is a neighbour of the candidate (tainted = 0) or of something outside it that the candidate reaches (1). */
static inline void reach(greedy *s, int side, int32_t x, int tainted, int32_t device)
{
    const uint32_t clean_mark = 2 * s->growth, tainted_mark = clean_mark + 1;
    if (s->node[x].merged == s->growth || s->node[x].reached[side] == tainted_mark)
        return;
    const int can_merge = s->node[x].label < 0 && s->node[x].device == device;
    if (s->node[x].reached[side] == clean_mark) {
        if (tainted) { /* not looked at yet: topological order */
            s->node[x].reached[side] = tainted_mark;
            s->clean[side]--;
        }
        return;
    }
    s->node[x].reached[side] = can_merge && !tainted ? clean_mark : tainted_mark;
    if (can_merge && !tainted) {
        s->clean[side]++;
        if (s->num_few[side] < FEW)
            s->few[side][s->num_few[side]] = x;
        s->num_few[side]++;
    }
    heap_push(s, side, x);
}

static void reach_neighbours(greedy *s, int side, int32_t x, int tainted, int32_t device)
{
    const hg_graph *g = s->g;
    const int32_t *start = side == DOWN ? g->indptr : g->pred_indptr, *row = side == DOWN ? g->indices : g->pred_indices;
    int32_t v = x;
    do { /* all nodes of a chosen subgraph, or the one */
        for (int32_t j = start[v]; j < start[v + 1]; j++) {
            const int32_t y = s->node[row[j]].vertex;
            if (y != x)
                reach(s, side, y, tainted, device);
        }
        s->edges += start[v + 1] - start[v];
        v = s->node[v].next_member;
    } while (v != x);
}

static void merge(greedy *s, int32_t v)
{
    s->node[v].merged = s->growth;
    s->stack[s->size++] = v;
    reach_neighbours(s, DOWN, v, 0, s->node[v].device);
    reach_neighbours(s, UP, v, 0, s->node[v].device);
}

/* x is outside the candidate: what may still be merged is tainted where the forest shows a way through x. This spares
 * walks along everything between the ends of a long edge. */
static void taint_by_forest(greedy *s, int side, int32_t x)
{
    if (s->num_few[side] > FEW)
        return; /* not all are listed */
    for (int32_t i = 0; i < s->num_few[side]; i++) {
        const int32_t y = s->few[side][i], above = side == DOWN ? x : y, below = side == DOWN ? y : x;
        if (s->node[y].reached[side] != 2 * s->growth || s->node[y].merged == s->growth)
            continue;
        if (s->entered[above] <= s->entered[below] && s->entered[below] <= s->left[above]) {
            s->node[y].reached[side]++;
            s->clean[side]--;
        }
    }
}

static int grow(greedy *s, int32_t root, hg_watch *watch)
{
    s->growth++;
    s->size = 0;
    s->edges = 0;
    for (int side = 0; side < 2; side++)
        s->heap_size[side] = s->clean[side] = s->num_few[side] = 0;
    merge(s, root);
    while (s->clean[DOWN] || s->clean[UP]) {
        const int side = s->clean[DOWN] ? DOWN : UP;
        const int32_t x = heap_pop(s, side);
        if (s->node[x].reached[side] == 2 * s->growth) {
            s->clean[side]--;
            merge(s, x);
            continue;
        }
        taint_by_forest(s, side, x);
        if (!s->clean[side]) {
            heap_push(s, side, x); /* to be gone through should more be merged */
            continue;
        }
        if (s->edges + s->degree[side][x] > EDGES_FIRST + EDGES_EACH * s->size)
            break;
        reach_neighbours(s, side, x, 1, s->node[root].device);
    }
    return hg_interrupted(watch, 16 * (int64_t)s->size + 8 * s->edges) ? HG_INTERRUPTED : HG_OK;
}

/* Makes the candidate on the stack one vertex. */
static int64_t contract(greedy *s)
{
    const hg_graph *g = s->g;
    hg_order_list *order = &s->order;
    int32_t first = s->stack[0], last = s->stack[0];
    int64_t degree[2] = {0, 0};
    for (int32_t i = 0; i < s->size; i++) {
        const int32_t v = s->stack[i];
        first = order->key[v] < order->key[first] ? v : first;
        last = order->key[v] > order->key[last] ? v : last;
        degree[DOWN] += s->degree[DOWN][v];
        degree[UP] += s->degree[UP][v];
    }
    const uint64_t low = order->key[first], high = order->key[last];
    /* Members were found by growth: merged[v] == growth tells them. Two searches take turns by what they cost. */
    s->contraction++;
    int32_t found[2] = {0, 0}, next[2] = {0, 0}, member[2] = {0, 0};
    int64_t cost[2] = {0, 0};
    int side = DOWN;
    for (;;) {
        side = cost[DOWN] <= cost[UP] ? DOWN : UP;
        int32_t x;
        if (member[side] < s->size)
            x = s->stack[member[side]++];
        else if (next[side] < found[side])
            x = s->found[side][next[side]++];
        else
            break; /* this side is complete */
        const int32_t *start = side == DOWN ? g->indptr : g->pred_indptr;
        const int32_t *row = side == DOWN ? g->indices : g->pred_indices;
        const int64_t mark = 2 * s->contraction + side;
        int32_t v = x;
        do {
            for (int32_t j = start[v]; j < start[v + 1]; j++) {
                const int32_t y = s->node[row[j]].vertex;
                if (y == x || s->node[y].merged == s->growth || s->visited[y] == mark ||
                    (side == DOWN ? order->key[y] > high : order->key[y] < low))
                    continue;
                s->visited[y] = mark;
                s->found[side][found[side]++] = y;
            }
            cost[side] += 1 + start[v + 1] - start[v];
            v = s->node[v].next_member;
        } while (v != x);
    }
    const int32_t place = side == DOWN ? last : first;
    int64_t work = cost[DOWN] + cost[UP];
    if (found[side])
        work += hg_list_move_behind(order, s->found[side], found[side], side == DOWN ? last : order->previous[first]);
    for (int32_t i = 0; i < s->size; i++) {
        const int32_t v = s->stack[i];
        s->node[v].vertex = place;
        s->node[v].next_member = s->stack[i + 1 < s->size ? i + 1 : 0];
        if (v != place)
            hg_list_unlink(order, v);
    }
    s->degree[DOWN][place] = degree[DOWN];
    s->degree[UP][place] = degree[UP];
    return work;
}

static inline int larger(const greedy *s, int32_t size, int32_t root, int32_t other_size, int32_t other_root)
{
    return size > other_size || (size == other_size && s->rank[root] < s->rank[other_root]);
}

static void push_entry(greedy *s, int32_t size, int32_t root)
{
    int32_t at = s->entries++;
    for (int32_t up; at > 0; at = up) {
        up = (at - 1) / 2;
        if (!larger(s, size, root, s->entry_size[up], s->entry_root[up]))
            break;
        s->entry_size[at] = s->entry_size[up];
        s->entry_root[at] = s->entry_root[up];
    }
    s->entry_size[at] = size;
    s->entry_root[at] = root;
}

static void pop_entry(greedy *s)
{
    const int32_t count = --s->entries, size = s->entry_size[count], root = s->entry_root[count];
    int32_t hole = 0;
    for (int32_t c; (c = 2 * hole + 1) < count; hole = c) {
        if (c + 1 < count && larger(s, s->entry_size[c + 1], s->entry_root[c + 1], s->entry_size[c], s->entry_root[c]))
            c++;
        if (!larger(s, s->entry_size[c], s->entry_root[c], size, root))
            break;
        s->entry_size[hole] = s->entry_size[c];
        s->entry_root[hole] = s->entry_root[c];
    }
    s->entry_size[hole] = size;
    s->entry_root[hole] = root;
}

/* The candidate on the stack covers those of its nodes that no other does. */
static void cover(greedy *s, int32_t root)
{
    for (int32_t i = 0; i < s->size; i++) {
        const int32_t v = s->stack[i];
        if (s->node[v].owner >= 0)
            continue;
        s->node[v].owner = root;
        s->next_owned[v] = s->owned[root];
        s->owned[root] = v;
    }
}

/* Free nodes of root's old candidate that the one on the stack (if it is root's) lacks become loose. */
static void uncover(greedy *s, int32_t root, int regrown)
{
    int32_t kept = -1;
    for (int32_t v = s->owned[root], next; v >= 0; v = next) {
        next = s->next_owned[v];
        if (s->node[v].label >= 0)
            continue;
        if (regrown && s->node[v].merged == s->growth) {
            s->next_owned[v] = kept;
            kept = v;
        } else {
            s->node[v].owner = -1;
            s->loose[s->num_loose++] = v;
        }
    }
    s->owned[root] = kept;
}

/* Candidates for the loose nodes, in topological order. */
static int cover_loose(greedy *s, hg_watch *watch)
{
    int32_t *loose = s->loose;
    const int32_t count = s->num_loose;
    s->num_loose = 0;
    for (int32_t gap = count / 2; gap > 0; gap = gap == 2 ? 1 : (int32_t)((int64_t)gap * 5 / 11)) /* Shell sort */
        for (int32_t i = gap; i < count; i++) {
            const int32_t moved = loose[i];
            int32_t j = i;
            for (; j >= gap && s->rank[loose[j - gap]] > s->rank[moved]; j -= gap)
                loose[j] = loose[j - gap];
            loose[j] = moved;
        }
    for (int32_t i = 0; i < count; i++) {
        const int32_t root = loose[i];
        if (s->node[root].owner >= 0)
            continue;
        if (grow(s, root, watch) != HG_OK)
            return HG_INTERRUPTED;
        s->owned[root] = -1;
        cover(s, root);
        push_entry(s, s->size, root);
    }
    return HG_OK;
}

static int run(greedy *s, int32_t *count, hg_watch *watch)
{
    const int32_t n = s->g->n;
    int present[256] = {0};
    int32_t subgraphs = 0;
    for (int32_t v = 0; v < n; v++)
        present[s->node[v].device] = 1;
    for (int device = 0; device < 256; device++) {
        if (!present[device])
            continue;
        for (int32_t i = 0; i < n; i++) {
            const int32_t root = hg_nth(s->g, i);
            if (s->node[root].device != device || s->node[root].owner >= 0)
                continue;
            if (grow(s, root, watch) != HG_OK)
                return HG_INTERRUPTED;
            s->owned[root] = -1;
            cover(s, root);
            push_entry(s, s->size, root);
        }
        while (s->entries) {
            const int32_t root = s->entry_root[0], size = s->entry_size[0];
            pop_entry(s);
            if (s->node[root].label >= 0) {
                uncover(s, root, 0);
            } else {
                if (grow(s, root, watch) != HG_OK)
                    return HG_INTERRUPTED;
                const int still_largest =
                    s->size >= size || !s->entries || larger(s, s->size, root, s->entry_size[0], s->entry_root[0]);
                if (still_largest) {
                    const int64_t work = contract(s);
                    for (int32_t i = 0; i < s->size; i++)
                        s->node[s->stack[i]].label = subgraphs;
                    subgraphs++;
                    uncover(s, root, 0);
                    if (hg_interrupted(watch, 4 * work))
                        return HG_INTERRUPTED;
                } else {
                    uncover(s, root, 1);
                    cover(s, root);
                    push_entry(s, s->size, root);
                }
            }
            if (cover_loose(s, watch) != HG_OK)
                return HG_INTERRUPTED;
        }
    }
    *count = subgraphs;
    return HG_OK;
}

int hg_greedy(const hg_graph *g, const uint8_t *device, int32_t *label, int32_t *count, hg_watch *watch)
{
    const int32_t n = g->n;
    int status = HG_NO_MEMORY;
    hg_arena arena;
    if (!hg_arena_open(&arena, (size_t)n * 136 + 4096))
        return status;
    greedy s = {.g = g};
    int32_t **narrow[] = {&s.rank,    &s.order.next, &s.order.previous, &s.heap[0],    &s.heap[1],
                          &s.stack,   &s.owned,      &s.next_owned,     &s.entry_size, &s.entry_root,
                          &s.loose,   &s.found[0],   &s.found[1],       &s.entered,    &s.left};
    int64_t **wide[] = {&s.degree[0], &s.degree[1], &s.visited};
    int taken = (s.order.key = HG_TAKE(&arena, uint64_t, (int64_t)n + 1)) != NULL &&
                (s.node = HG_TAKE_ZEROED(&arena, node, n)) != NULL;
    for (size_t i = 0; i < sizeof narrow / sizeof *narrow && taken; i++)
        taken = (*narrow[i] = HG_TAKE(&arena, int32_t, (int64_t)n + 1)) != NULL;
    for (size_t i = 0; i < sizeof wide / sizeof *wide && taken; i++)
        taken = (*wide[i] = HG_TAKE_ZEROED(&arena, int64_t, n)) != NULL;
    if (taken) {
        s.order.head = n;
        int32_t at = n;
        for (int32_t i = 0; i < n; i++) {
            const int32_t v = hg_nth(g, i);
            s.rank[v] = i;
            s.order.next[at] = v;
            s.order.previous[v] = at;
            at = v;
        }
        s.order.next[at] = n;
        s.order.previous[n] = at;
        hg_list_number(&s.order, n);
        status = hg_forest(n, g->indptr, g->indices, g->order, s.entered, s.left, s.stack, s.owned, watch);
        for (int32_t v = 0; v < n; v++) {
            s.node[v] = (node){.vertex = v, .next_member = v, .label = -1, .device = device[v], .owner = -1};
            s.owned[v] = -1;
            s.degree[DOWN][v] = g->indptr[v + 1] - g->indptr[v];
            s.degree[UP][v] = g->pred_indptr[v + 1] - g->pred_indptr[v];
        }
        if (status == HG_OK)
            status = run(&s, count, watch);
        for (int32_t v = 0; v < n; v++)
            label[v] = s.node[v].label;
    }
    hg_arena_close(&arena);
    return status;
}
