/* Policy `linear`: components of equal depth.
 *
 * depth(v) = max over predecessors u of depth(u) + [device(u) != device(v)]. An edge between equal depths joins nodes
 * of one device, every other edge leads to a greater depth; so the connected components of equal depth are convex and
 * their quotient is acyclic. One pass computes depths, joins components (union-find, the earlier node is the root) and
 * counts those of each depth; one numbers them by (depth, first node) and hands the numbers down. O((n + m) a(n)) with
 * the inverse Ackermann function a, for union-find with path halving. */
#include "graph.h"

/* Nodes are handled by rank, their position in topological order, so that a root precedes its members. */
static inline int32_t find(int32_t *parent, int32_t x)
{
    while (parent[x] != x) {
        parent[x] = parent[parent[x]];
        x = parent[x];
    }
    return x;
}

int hg_linear(const hg_graph *g, const uint8_t *device, int32_t *subgraph_of, int32_t *device_of, int32_t *count,
              int64_t *cut, hg_watch *watch)
{
    const int32_t n = g->n;
    int status = HG_NO_MEMORY;
    int32_t *depth = HG_NEW(int32_t, n); /* by node */
    int32_t *parent = HG_NEW(int32_t, n); /* by rank */
    int32_t *rank = NULL;                 /* by node; NULL: the rank is the number */
    int32_t *next = (int32_t *)calloc((size_t)n + 2, sizeof *next); /* by depth: components, then where they begin */
    if (!depth || !parent || !next)
        goto out;
    if (g->order) {
        rank = HG_NEW(int32_t, n);
        if (!rank)
            goto out;
    }
    status = HG_INTERRUPTED;
    for (int32_t i = 0; rank && i < n; i++) {
        rank[g->order[i]] = i;
        if (hg_interrupted_at(watch, i, 2))
            goto out;
    }

    int32_t deepest = 0;
    int64_t work = 0, inside = 0; /* edges */
    for (int32_t i = 0; i < n; i++) {
        const int32_t v = hg_nth(g, i);
        const int32_t begin = g->pred_indptr[v], end = g->pred_indptr[v + 1];
        const uint8_t own = device[v];
        int32_t d = 0;
        for (int32_t j = begin; j < end; j++) {
            const int32_t u = g->pred_indices[j];
            const int32_t below = depth[u] + (device[u] != own);
            d = below > d ? below : d;
        }
        depth[v] = d;
        deepest = d > deepest ? d : deepest;
        int32_t root = i, components = 1;
        for (int32_t j = begin; j < end; j++) {
            const int32_t u = g->pred_indices[j];
            if (depth[u] != d || device[u] != own)
                continue;
            inside++;
            const int32_t other = find(parent, rank ? rank[u] : u);
            /* i is no one's parent yet, so the roots met so far hang below the smallest of them. */
            components -= other != root;
            if (other < root) {
                if (root != i)
                    parent[root] = other;
                root = other;
            } else if (other > root)
                parent[other] = root;
        }
        parent[i] = root;
        next[d + 1] += components;
        if (hg_interrupted_after(watch, &work, 3 + 2 * (int64_t)(end - begin)))
            goto out;
    }

    if (hg_counts_to_starts(deepest + 1, next, watch) != HG_OK)
        goto out;
    *count = n ? next[deepest + 1] : 0;
    *cut = g->m - inside;
    for (int32_t i = 0; i < n; i++) {
        const int32_t v = hg_nth(g, i);
        if (parent[i] == i) {
            const int32_t id = next[depth[v]]++;
            subgraph_of[v] = id;
            device_of[id] = device[v];
        } else
            subgraph_of[v] = subgraph_of[hg_nth(g, parent[i])];
        if (hg_interrupted_at(watch, i, 4))
            goto out;
    }
    status = HG_OK;
out:
    free(depth);
    free(parent);
    free(rank);
    free(next);
    return status;
}
