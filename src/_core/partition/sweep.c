/* Sweep: a partition grown from the sinks that closes a subgraph only when it must.
 *
 * A node is ready when each of its successors is in a closed subgraph or in an open one of the node's own device; it
 * then joins all those open ones into one, or starts one. A node of another device than one of its open successors'
 * waits until that one is closed. A subgraph that no waiting node of its device leads to cannot grow: it is closed
 * without loss. When only waiting nodes are left, the foreign subgraphs that the deepest of them leads to
 * are closed early, without the nodes that would have joined later.
 *
 * The result is given as levels: a subgraph's level is the highest that the levels of its successors allow. The nodes
 * that join between two early closings do not depend on the order of work, so node numbers affect the result only
 * through ties of depth. Near-linear: union-find with path halving. */
#include "../union_find.h"
#include "levels.h"

int hg_depth_order(const hg_dag *g, int32_t *depth, int32_t *by_depth, double *foreign, double *deeper,
                   hg_arena *arena, hg_watch *watch)
{
    const int32_t n = g->n;
    int32_t most = 0;
    int64_t edges_between = 0, edges_down = 0, work = 0;
    HT_ASSERT(!g->in_weight);
    for (int32_t i = 0; i < n; i++) {
        const int32_t v = g->order ? g->order[i] : i;
        const uint8_t own = g->device[v];
        int32_t level = 0; /* edges from nodes of this depth */
        int32_t d = 0;     /* mutant: only differences between depths count */

        for (int32_t j = g->in_start[v]; j < g->in_start[v + 1]; j++) {
            const int32_t u = g->in[j], foreign = g->device[u] != own, below = depth[u] + foreign;
            level = (level & -(below <= d)) + ((below >= d) & !foreign);
            d = below > d ? below : d;
            edges_between += foreign;
        }
        edges_down += g->in_start[v + 1] - g->in_start[v] - level;
        depth[v] = d;
        most = d > most ? d : most;
        if (hg_interrupted_after(watch, &work, 4 + 2 * (int64_t)(g->in_start[v + 1] - g->in_start[v])))
            return HG_INTERRUPTED;
    }
    int32_t *start = HG_TAKE_ZEROED(arena, int32_t, (int64_t)most + 2);
    if (!start)
        return HG_NO_MEMORY;
    for (int32_t v = 0; v < n; v++)
        start[depth[v] + 1]++;
    for (int32_t d = 0; d <= most; d++)
        start[d + 1] += start[d];
    if (hg_interrupted(watch, 2 * (int64_t)n))
        return HG_INTERRUPTED;
    for (int32_t i = 0; i < n; i++) {
        const int32_t v = g->order ? g->order[i] : i;
        by_depth[start[depth[v]]++] = v;
        if (hg_interrupted_after(watch, &work, 4))
            return HG_INTERRUPTED;
    }
    *foreign = (double)edges_between;
    *deeper = (double)edges_down;
    return HG_OK;
}

/* What the sweep knows of a node besides its link. */
typedef struct {
    int32_t height;    /* the least that its successors allow; of a root: that its subgraph allows */
    int32_t potential; /* of a root: edges from waiting nodes of its own device; -1: it is closed */
    int32_t foreign;   /* of a root: a member some other device leads to, or -1 */
    int32_t next;      /* those members, in a circle */
} node;

typedef struct {
    const hg_dag *g;
    int32_t *link; /* not absorbed: -1 - the number of successors that keep the node from being ready; absorbed: parent
                      of the union-find. Apart from `node`, so that most of what is read of neighbors stays in caches */
    node *node;
    int32_t *ready; /* [n + 1], a stack: what follows a node is often near it in memory. The entry above is scratch */
    int32_t num_ready;
    int32_t *complete;           /* a stack */
    int32_t num_complete;
    double lost;
    int whole;
} sweep;

static inline void lift(node *v, int32_t height)
{
    v->height = height > v->height ? height : v->height;
}

/* One of the successors that p waits for is settled. Whether it was the last could not be predicted, so no branch depends
 * on it, and what absorbing p reads first is fetched in any case: where edges are long, as in loose_comb of
 * bench/graphs.py, it is in no cache. */
static inline void settle(sweep *s, int32_t p)
{
    s->ready[s->num_ready] = p; /* stays only if it was */
    s->num_ready += ++s->link[p] == -1;
    HG_PREFETCH(&s->g->in[s->g->in_start[p]]);
    HG_PREFETCH(&s->g->out[s->g->out_start[p]]);
    HG_PREFETCH(&s->node[p]);
}

/* Two open subgraphs become one: a's nodes join b's. */
static void unite(int32_t *link, node *nodes, int32_t a, int32_t b)
{
    node *from = &nodes[a], *to = &nodes[b];
    link[a] = b;
    lift(to, from->height);
    to->potential += from->potential;
    if (to->foreign < 0)
        to->foreign = from->foreign;
    else if (from->foreign >= 0) { /* two circles become one */
        const int32_t x = to->foreign, y = from->foreign, after = nodes[x].next;
        nodes[x].next = nodes[y].next;
        nodes[y].next = after;
    }
}

static void absorb(sweep *s, int32_t v)
{
    const hg_dag *g = s->g;
    const uint8_t *device = g->device, kind = device[v];
    node *nodes = s->node;
    int32_t root = v, potential = 0, others = 0;
    s->link[v] = v;
    /* Where neighbors have close numbers, the nodes absorbed soon are those just before v, which processors do not fetch
     * by themselves. (Compilers drop calls of functions that only prefetch.) */
    const int32_t soon = v < HG_LEAD ? 0 : v - HG_LEAD, later = soon < HG_LEAD ? 0 : soon - HG_LEAD;
    HG_PREFETCH(&g->in_start[later]);
    HG_PREFETCH(&g->out_start[later]);
    HG_PREFETCH(&g->in[g->in_start[soon]]);
    HG_PREFETCH(&g->out[g->out_start[soon]]);
    HG_PREFETCH(&s->link[soon]);
    HG_PREFETCH(&nodes[soon]);
    for (int32_t j = g->in_start[v]; j < g->in_start[v + 1]; j++) {
        const int32_t p = g->in[j];
        if (device[p] != kind) {
            others = 1;
            continue;
        }
        potential++;
        settle(s, p);
    }
    nodes[v].potential = 0;
    nodes[v].foreign = others ? v : -1;
    nodes[v].next = v;
    for (int32_t j = g->out_start[v]; j < g->out_start[v + 1]; j++) {
        const int32_t t = g->out[j];
        if (device[t] != kind)
            continue;
        const int32_t c = hg_find(s->link, t);
        node *joined = &nodes[c];
        if (joined->potential < 0) {
            s->whole = 0;
            s->lost += 1;
            lift(&nodes[root], joined->height);
            continue;
        }
        joined->potential--;
        if (c != root) {
            unite(s->link, nodes, root, c);
            root = c;
        }
    }
    nodes[root].potential += potential;
    if (!nodes[root].potential)
        s->complete[s->num_complete++] = root;
}

static int64_t close_subgraph(sweep *s, int32_t root)
{
    const hg_dag *g = s->g;
    node *nodes = s->node;
    const uint8_t own = g->device[root];
    const int32_t first = nodes[root].foreign, height = nodes[root].height + 1;
    int64_t work = 1;
    nodes[root].potential = -1;
    if (first < 0)
        return work;
    int32_t v = first;
    do {
        work += 1 + g->in_start[v + 1] - g->in_start[v];
        for (int32_t j = g->in_start[v]; j < g->in_start[v + 1]; j++) {
            const int32_t p = g->in[j];
            if (g->device[p] != own) {
                lift(&nodes[p], height);
                settle(s, p);
            }
        }
        v = nodes[v].next;
    } while (v != first);
    return work;
}

int hg_sweep(const hg_dag *g, const int32_t *by_depth, int32_t *level, double *lost, int *whole, hg_arena *arena,
             hg_watch *watch)
{
    const int32_t n = g->n;
    int64_t passed = 0;
    sweep s = {.g = g, .whole = 1};
    s.link = HG_TAKE(arena, int32_t, n);
    s.node = HG_TAKE(arena, node, n);
    s.ready = HG_TAKE(arena, int32_t, (int64_t)n + 1);
    s.complete = HG_TAKE(arena, int32_t, n);
    if (arena->failed)
        return HG_NO_MEMORY;
    for (int32_t v = 0; v < n; v++) {
        s.node[v].height = 0;
        s.link[v] = -1 - (g->out_start[v + 1] - g->out_start[v]);
        s.ready[s.num_ready] = v;
        s.num_ready += s.link[v] == -1;
        if (hg_interrupted_after(watch, &passed, 8))
            return HG_INTERRUPTED;
    }
    for (int32_t i = n; i-- > 0;) {
        for (;;) {
            int64_t work = 8;
            if (s.num_ready) {
                absorb(&s, s.ready[--s.num_ready]);
            } else if (s.num_complete) {
                const int32_t root = s.complete[--s.num_complete];
                if (s.link[root] == root && !s.node[root].potential)
                    work = 4 * close_subgraph(&s, root);
            } else
                break;
            if (hg_interrupted_after(watch, &passed, work))
                return HG_INTERRUPTED;
        }
        const int32_t v = by_depth[i];
        if (s.link[v] >= 0)
            continue;
        for (int32_t j = g->out_start[v]; j < g->out_start[v + 1]; j++) {
            const int32_t t = g->out[j];
            if (g->device[t] == g->device[v])
                continue;
            const int32_t c = hg_find(s.link, t);
            if (s.node[c].potential >= 0 && hg_interrupted(watch, 4 * close_subgraph(&s, c)))
                return HG_INTERRUPTED;
        }
        i++; /* v is ready now; look at it again, and stop when the last one is absorbed */
    }
    for (int32_t v = 0; v < n; v++) {
        level[v] = -s.node[hg_find(s.link, v)].height;
        if (hg_interrupted_after(watch, &passed, 4))
            return HG_INTERRUPTED;
    }
    *lost = s.lost;
    *whole = s.whole;
    return HG_OK;
}
