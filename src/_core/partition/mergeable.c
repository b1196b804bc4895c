/* Maximality: is there a pair of adjacent subgraphs of one device that could be merged?
 *
 * Merging the ends of a quotient edge a -> b makes no cycle exactly when no other path leads from a to b: the edge is
 * in the transitive reduction, for which no linear algorithm is known. So each same-device edge is decided on its own,
 * by tests of rising cost, and the first edge that can be merged ends the search:
 *   1. no other edge leaves a, or none enters b, or the longest path to b is one edge longer than that to a: it can;
 *   2. a successor of a reaches b, or a predecessor of b is reached from a, in one of two depth-first forests, along
 *      successors and along predecessors: it cannot;
 *   3. searches forward from a and backward from b take turns, the smaller frontier first, within the topological
 *      positions and path lengths between a and b; they end when they meet or one of them is done.
 * Near-linear if other paths are short or lie in a forest, as measured on every kind of graph in bench/. O(e * e) at
 * worst for e quotient edges; there is no budget, so the verdict is always exact. */
#include "graph.h"

typedef struct {
    int32_t k;
    int32_t *out_start, *out, *in_start, *in;
    int32_t *order, *rank, *depth; /* topological, and edges of the longest path from a source */
    int32_t *entered, *left;       /* intervals of the forest along successors */
    int32_t *entered_in, *left_in; /* and along predecessors */
    int32_t *forward, *backward;   /* queues */
    int32_t *seen;                 /* 2 * number of the search (+ 1: backward) */
    int32_t search;
    int64_t work;
} quotient;

static inline int known_to_reach(const quotient *q, int32_t x, int32_t y)
{
    return (q->entered[x] <= q->entered[y] && q->entered[y] <= q->left[x]) ||
           (q->entered_in[y] <= q->entered_in[x] && q->entered_in[x] <= q->left_in[y]);
}

static inline int between(const quotient *q, int32_t x, int32_t a, int32_t b)
{
    return q->rank[x] > q->rank[a] && q->rank[x] < q->rank[b] && q->depth[x] > q->depth[a] && q->depth[x] < q->depth[b];
}

/* Unseen neighbors of x between a and b, onto a queue. 1: another path is found. */
static int expand(quotient *q, int32_t x, int32_t a, int32_t b, int down, int32_t *tail)
{
    const int32_t *start = down ? q->out_start : q->in_start, *row = down ? q->out : q->in;
    int32_t *queue = down ? q->forward : q->backward;
    const int32_t own = 2 * q->search + !down, other = 2 * q->search + down;
    q->work += 1 + start[x + 1] - start[x];
    for (int32_t j = start[x]; j < start[x + 1]; j++) {
        const int32_t y = row[j];
        if (q->seen[y] == own || !between(q, y, a, b))
            continue;
        if (q->seen[y] == other || (down ? known_to_reach(q, y, b) : known_to_reach(q, a, y)))
            return 1;
        q->seen[y] = own;
        queue[(*tail)++] = y;
    }
    return 0;
}

/* Whether no path but the edge leads from a to b; -1 when interrupted. */
static int can_merge(quotient *q, int32_t a, int32_t b, hg_watch *watch)
{
    if (q->depth[b] == q->depth[a] + 1 || q->out_start[a + 1] - q->out_start[a] == 1 ||
        q->in_start[b + 1] - q->in_start[b] == 1)
        return 1;
    int32_t forward = 0, backward = 0, next_forward = 0, next_backward = 0;
    if (++q->search == INT32_MAX / 2) { /* unreached: after a billion searches */
        memset(q->seen, 0, (size_t)q->k * sizeof *q->seen);
        q->search = 1;
    }
    const int fewer_out = q->out_start[a + 1] - q->out_start[a] <= q->in_start[b + 1] - q->in_start[b];
    if (expand(q, fewer_out ? a : b, a, b, fewer_out, fewer_out ? &forward : &backward))
        return 0;
    if (!(fewer_out ? forward : backward))
        return 1;
    if (expand(q, fewer_out ? b : a, a, b, !fewer_out, fewer_out ? &backward : &forward))
        return 0;
    while (next_forward < forward && next_backward < backward) {
        const int down = forward - next_forward <= backward - next_backward;
        const int64_t before = q->work;
        if (expand(q, down ? q->forward[next_forward++] : q->backward[next_backward++], a, b, down,
                   down ? &forward : &backward))
            return 0;
        if (hg_interrupted(watch, 4 * (q->work - before)))
            return -1;
    }
    return 1;
}

/* The quotient in rows of both directions, its order, depths and forests. */
static int open_quotient(quotient *q, const hg_graph *g, const int32_t *label, int32_t count, hg_watch *watch)
{
    int64_t edges = 0, unique = 0;
    double total;
    int status = hg_cut(g, label, NULL, &edges, &total, watch);
    if (status != HG_OK)
        return status;
    int32_t *src = HG_NEW(int32_t, edges), *dst = HG_NEW(int32_t, edges), *slot = HG_NEW(int32_t, edges);
    int32_t **of_vertices[] = {&q->out_start,  &q->in_start, &q->order,    &q->rank,    &q->depth,    &q->entered,
                               &q->left, &q->entered_in, &q->left_in, &q->forward, &q->backward, &q->seen};
    int taken = src && dst && slot && (q->out = HG_NEW(int32_t, edges)) && (q->in = HG_NEW(int32_t, edges));
    for (size_t i = 0; i < sizeof of_vertices / sizeof *of_vertices; i++)
        taken &= (*of_vertices[i] = HG_NEW(int32_t, (int64_t)count + 1)) != NULL;
    q->k = count;
    int32_t done, cycle_length;
    status = taken ? hg_quotient_edges(g, label, src, dst, watch) : HG_NO_MEMORY;
    if (status == HG_OK)
        status = hg_build(count, edges, src, dst, q->out_start, q->out, slot, &unique, watch);
    free(src);
    free(dst);
    free(slot);
    if (status == HG_OK)
        status = hg_transpose(count, unique, q->out_start, q->out, q->in_start, q->in, watch);
    if (status == HG_OK)
        status = hg_kahn(count, q->out_start, q->out, q->order, &done, q->seen, &cycle_length, watch);
    if (status == HG_OK)
        status = hg_forest(count, q->out_start, q->out, q->order, q->entered, q->left, NULL, q->forward, q->backward,
                           watch);
    for (int32_t i = 0; i < count && status == HG_OK; i++) { /* roots of the other forest: from the sinks */
        q->rank[q->order[i]] = i;
        q->depth[count - 1 - i] = q->order[i];
        if (hg_interrupted(watch, 4))
            status = HG_INTERRUPTED;
    }
    if (status == HG_OK)
        status = hg_forest(count, q->in_start, q->in, q->depth, q->entered_in, q->left_in, NULL, q->forward,
                           q->backward, watch);
    for (int32_t i = 0; i < count && status == HG_OK; i++) {
        const int32_t x = q->order[i];
        q->depth[x] = 0;
        for (int32_t j = q->in_start[x]; j < q->in_start[x + 1]; j++)
            if (q->depth[q->in[j]] >= q->depth[x])
                q->depth[x] = q->depth[q->in[j]] + 1;
        q->seen[x] = 0;
        if (hg_interrupted(watch, 4 + q->in_start[x + 1] - q->in_start[x]))
            status = HG_INTERRUPTED;
    }
    return status;
}

static void close_quotient(quotient *q)
{
    int32_t *arrays[] = {q->out_start, q->out,        q->in_start, q->in,      q->order,    q->rank, q->depth,
                         q->entered,   q->entered_in, q->left,     q->left_in, q->forward, q->backward, q->seen};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free(arrays[i]);
}

/* An edge of the graph from subgraph a to subgraph b. */
static void edge_behind(const hg_graph *g, const int32_t *label, int32_t a, int32_t b, hg_verdict *verdict)
{
    for (int32_t u = 0; u < g->n; u++)
        for (int32_t i = g->indptr[u]; label[u] == a && i < g->indptr[u + 1]; i++)
            if (label[g->indices[i]] == b) {
                *verdict = (hg_verdict){HG_NOT_MAXIMAL, u, g->indices[i], 0};
                return;
            }
}

int hg_first_mergeable(const hg_graph *g, const uint8_t *device, const int32_t *label, int32_t count,
                       hg_verdict *verdict, hg_watch *watch)
{
    quotient q = {0};
    uint8_t *device_of = HG_NEW(uint8_t, count);
    int status = device_of ? open_quotient(&q, g, label, count, watch) : HG_NO_MEMORY;
    for (int32_t v = 0; v < g->n && status == HG_OK; v++) {
        device_of[label[v]] = device[v];
        if (hg_interrupted(watch, 2))
            status = HG_INTERRUPTED;
    }
    for (int32_t a = 0; a < count && status == HG_OK; a++)
        for (int32_t j = q.out_start[a]; j < q.out_start[a + 1]; j++) {
            if (device_of[q.out[j]] != device_of[a])
                continue;
            const int64_t before = q.work;
            const int verdict_of_edge = can_merge(&q, a, q.out[j], watch);
            if (verdict_of_edge < 0 || hg_interrupted(watch, 4 + 2 * (q.work - before))) {
                status = HG_INTERRUPTED;
                break;
            }
            if (verdict_of_edge) {
                edge_behind(g, label, a, q.out[j], verdict);
                goto out;
            }
        }
out:
    close_quotient(&q);
    free(device_of);
    return status;
}
