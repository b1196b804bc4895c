/* Sweep: a partition grown from the sinks that closes a subgraph only when it must.
 *
 * A node is ready when each of its successors is in a closed subgraph or in an open one of the node's own device; it
 * then joins all those open ones into one, or starts one. A node of another device than one of its open successors'
 * waits until that one is closed. A subgraph that no waiting node of its device leads to cannot grow: it is closed
 * without loss. When only waiting nodes are left, the deepest of them gets its way: the foreign subgraphs it leads to
 * are closed, and lose the nodes that would have joined later.
 *
 * Reversed, the order of closing is a topological order of the quotient. What is absorbed between two forced closings
 * does not depend on the order of work, so the result depends on numbers only through ties of depth. O(n + m) but for
 * the inverse Ackermann factor of union-find. */
#include "coarse.h"

int hg_depth_order(const hg_graph *g, const uint8_t *device, int32_t *depth, int32_t *by_depth,
                   int64_t *foreign, int64_t *deeper, hg_arena *arena, hg_watch *watch)
{
    const int32_t n = g->n;
    int32_t most = 0;
    int64_t between_devices = 0, between_depths = 0;
    for (int32_t i = 0; i < n; i++) {
        const int32_t v = hg_nth(g, i);
        const uint8_t own = device[v];
        int32_t d = 0;
        for (int32_t j = g->pred_indptr[v]; j < g->pred_indptr[v + 1]; j++) {
            const int32_t u = g->pred_indices[j];
            const int32_t below = depth[u] + (device[u] != own);
            d = below > d ? below : d;
        }
        for (int32_t j = g->pred_indptr[v]; j < g->pred_indptr[v + 1]; j++) {
            const int32_t u = g->pred_indices[j];
            between_devices += device[u] != own;
            between_depths += depth[u] != d;
        }
        depth[v] = d;
        most = d > most ? d : most;
        if (!(i & 0xFFFF) && hg_interrupted(watch, 1 << 17))
            return HG_INTERRUPTED;
    }
    int32_t *start = HG_TAKE_ZEROED(arena, int32_t, (int64_t)most + 2);
    if (!start)
        return HG_NO_MEMORY;
    for (int32_t v = 0; v < n; v++)
        start[depth[v] + 1]++;
    for (int32_t d = 0; d <= most; d++)
        start[d + 1] += start[d];
    for (int32_t i = 0; i < n; i++) {
        const int32_t v = hg_nth(g, i);
        by_depth[start[depth[v]]++] = v;
    }
    *foreign = between_devices;
    *deeper = between_depths;
    return HG_OK;
}

typedef struct {
    const hg_graph *g;
    const uint8_t *device;
    int32_t *waiting;   /* successors that keep the node from being ready; -1: absorbed */
    int32_t *parent;    /* union-find over absorbed nodes */
    int32_t *potential; /* of a root: edges from waiting nodes of its own device */
    int32_t *closed_at; /* of a root: number of closings before its own, or -1: open */
    int32_t *foreign;   /* of a root: a member some other device leads to, or -1 */
    int32_t *next;      /* those members, in a circle */
    int32_t *ready, *complete;
    int32_t num_ready, num_complete, num_closed;
    int64_t lost;
    uint8_t *boundary;
} sweep;

static inline int32_t find(int32_t *parent, int32_t x)
{
    while (parent[x] != x) {
        parent[x] = parent[parent[x]];
        x = parent[x];
    }
    return x;
}

static void absorb(sweep *s, int32_t v)
{
    const hg_graph *g = s->g;
    const uint8_t own = s->device[v];
    int32_t root = v, potential = 0, others = 0;
    s->waiting[v] = -1;
    s->parent[v] = v;
    s->closed_at[v] = -1;
    for (int32_t j = g->pred_indptr[v]; j < g->pred_indptr[v + 1]; j++) {
        const int32_t p = g->pred_indices[j];
        if (s->device[p] != own) {
            others = 1;
            continue;
        }
        potential++;
        if (!--s->waiting[p])
            s->ready[s->num_ready++] = p;
    }
    s->foreign[v] = others ? v : -1;
    s->next[v] = v;
    for (int32_t j = g->indptr[v]; j < g->indptr[v + 1]; j++) {
        const int32_t t = g->indices[j];
        if (s->device[t] != own)
            continue;
        const int32_t c = find(s->parent, t);
        if (s->closed_at[c] >= 0) {
            s->lost++;
            s->boundary[v] = s->boundary[t] = 1;
            continue;
        }
        s->potential[c]--;
        if (c == root)
            continue;
        s->parent[root] = c;
        if (root != v) /* v itself adds its potential below */
            s->potential[c] += s->potential[root];
        if (s->foreign[c] < 0)
            s->foreign[c] = s->foreign[root];
        else if (s->foreign[root] >= 0) { /* two circles become one */
            const int32_t x = s->foreign[c], y = s->foreign[root], after = s->next[x];
            s->next[x] = s->next[y];
            s->next[y] = after;
        }
        root = c;
    }
    if (root == v)
        s->potential[v] = potential;
    else
        s->potential[root] += potential;
    if (!s->potential[root])
        s->complete[s->num_complete++] = root;
}

static void close_subgraph(sweep *s, int32_t root)
{
    const hg_graph *g = s->g;
    const uint8_t own = s->device[root];
    s->closed_at[root] = s->num_closed++;
    const int32_t first = s->foreign[root];
    if (first < 0)
        return;
    int32_t v = first;
    do {
        for (int32_t j = g->pred_indptr[v]; j < g->pred_indptr[v + 1]; j++) {
            const int32_t p = g->pred_indices[j];
            if (s->device[p] != own && !--s->waiting[p])
                s->ready[s->num_ready++] = p;
        }
        v = s->next[v];
    } while (v != first);
}

int hg_sweep(const hg_graph *g, const uint8_t *device, const int32_t *by_depth, hg_labels *result, uint8_t *boundary,
             int64_t *lost, hg_arena *arena, hg_watch *watch)
{
    const int32_t n = g->n;
    sweep s = {.g = g, .device = device, .boundary = boundary};
    s.waiting = HG_TAKE(arena, int32_t, n);
    s.parent = HG_TAKE(arena, int32_t, n);
    s.potential = HG_TAKE(arena, int32_t, n);
    s.closed_at = HG_TAKE(arena, int32_t, n);
    s.foreign = HG_TAKE(arena, int32_t, n);
    s.next = HG_TAKE(arena, int32_t, n);
    s.ready = HG_TAKE(arena, int32_t, n);
    s.complete = HG_TAKE(arena, int32_t, n);
    if (!s.waiting || !s.parent || !s.potential || !s.closed_at || !s.foreign || !s.next || !s.ready || !s.complete)
        return HG_NO_MEMORY;
    for (int32_t v = 0; v < n; v++)
        s.waiting[v] = g->indptr[v + 1] - g->indptr[v];
    for (int32_t v = 0; v < n; v++)
        if (!s.waiting[v])
            s.ready[s.num_ready++] = v;
    for (int32_t i = n; i-- > 0;) {
        for (;;) {
            if (s.num_ready) {
                absorb(&s, s.ready[--s.num_ready]);
                if (hg_interrupted(watch, 8))
                    return HG_INTERRUPTED;
            } else if (s.num_complete) {
                const int32_t root = s.complete[--s.num_complete];
                if (s.parent[root] == root && s.closed_at[root] < 0 && !s.potential[root])
                    close_subgraph(&s, root);
            } else
                break;
        }
        const int32_t v = by_depth[i];
        if (s.waiting[v] < 0)
            continue;
        for (int32_t j = g->indptr[v]; j < g->indptr[v + 1]; j++) {
            const int32_t t = g->indices[j];
            if (device[t] == device[v])
                continue;
            const int32_t c = find(s.parent, t);
            if (s.closed_at[c] < 0)
                close_subgraph(&s, c);
        }
        i++; /* v is ready now; look at it again, and stop when the last one is absorbed */
    }
    for (int32_t v = 0; v < n; v++)
        if (s.parent[v] == v && s.closed_at[v] < 0)
            s.closed_at[v] = s.num_closed++;
    for (int32_t v = 0; v < n; v++)
        result->label[v] = s.num_closed - 1 - s.closed_at[find(s.parent, v)];
    result->count = s.num_closed;
    *lost = s.lost;
    return HG_OK;
}
