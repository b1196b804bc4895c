/* Policies that make components of equal level: `linear` and `depth_height`. Valid by construction.
 *
 * depth(v) = max over predecessors u of depth(u) + [device(u) != device(v)]: the most changes of device on a path from
 * a source to v. height(v): the most on a path from v to a sink.
 *
 * `linear`: the level is the depth. An edge between equal levels joins nodes of one device, and every other edge leads
 * to a higher level. So levels rise along every edge of the quotient of the connected components of equal level: it has
 * no cycle, and the components are convex.
 *
 * `depth_height`: components of equal device, depth and height. Let the level be depth - height. Along an edge, depth
 * never falls and height never rises, so the level never falls, and it stays equal only if both stay equal. An edge
 * between two devices raises the depth. So the components of equal level are those of equal device, depth and height,
 * and the argument above applies. A branch and the join that reads it have different depths, a branch and the fork that
 * feeds it different heights, as far as another branch lies on another device. So the branches can run side by side.
 *
 * One pass computes depths, a second one heights. One pass joins components (union-find, the earlier node is the root)
 * and counts those of each level, and the last numbers them by (level, first node). O((n + m) a(n)) with the inverse
 * Ackermann function a, for union-find with path halving. */
#include "../union_find.h"
#include "graph.h"

/* Nodes are handled by rank, their position in topological order, so that a root precedes its members. */
/* level [n] of `depth_height`, from 0. *highest: the highest level. */
static int depth_minus_height(const hg_graph *g, const uint8_t *device, int32_t *level, int32_t *highest,
                              hg_watch *watch)
{
    const int32_t n = g->n;
    int32_t *height = HG_NEW(int32_t, n);
    if (!height)
        return HG_NO_MEMORY;
    int status = HG_INTERRUPTED;
    int32_t deepest = 0;
    int64_t work = 0;
    for (int32_t i = 0; i < n; i++) {
        const int32_t v = hg_nth(g, i), begin = g->pred_indptr[v], end = g->pred_indptr[v + 1];
        const uint8_t own = device[v];
        int32_t depth = 0;
        for (int32_t j = begin; j < end; j++) {
            const int32_t u = g->pred_indices[j], below = level[u] + (device[u] != own);
            depth = below > depth ? below : depth;
        }
        level[v] = depth;
        deepest = depth > deepest ? depth : deepest;
        if (hg_interrupted_after(watch, &work, 3 + 2 * (int64_t)(end - begin)))
            goto out;
    }
    if (deepest > INT32_MAX / 2 - 2) { /* unreached: the counts of so many levels would take 8 GB */
        status = HG_NO_MEMORY;
        goto out;
    }
    for (int32_t i = n; i-- > 0;) {
        const int32_t v = hg_nth(g, i), begin = g->indptr[v], end = g->indptr[v + 1];
        const uint8_t own = device[v];
        int32_t most = 0;
        for (int32_t j = begin; j < end; j++) {
            const int32_t w = g->indices[j], above = height[w] + (device[w] != own);
            most = above > most ? above : most;
        }
        height[v] = most;
        level[v] += deepest - most; /* the greatest height is the greatest depth */
        if (hg_interrupted_after(watch, &work, 3 + 2 * (int64_t)(end - begin)))
            goto out;
    }
    *highest = 2 * deepest;
    status = HG_OK;
out:
    free(height);
    return status;
}

/* given: level holds levels from 0 to highest. Otherwise the pass that joins components computes depths. */
static inline __attribute__((always_inline)) int components(const hg_graph *g, const uint8_t *device, int32_t *level,
                                                            const int given, int32_t highest, int32_t *subgraph_of,
                                                            int32_t *device_of, int32_t *count, int64_t *cut,
                                                            hg_watch *watch)
{
    const int32_t n = g->n;
    int status = HG_NO_MEMORY;
    int32_t *parent = HG_NEW(int32_t, n); /* by rank */
    int32_t *rank = NULL;                 /* by node; NULL: the rank is the number */
    int32_t *next = (int32_t *)calloc((size_t)(given ? highest : n) + 2, sizeof *next); /* by level: components, then
                                                                                          where they begin */
    if (!parent || !next)
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

    int64_t work = 0, inside = 0; /* edges */
    for (int32_t i = 0; i < n; i++) {
        const int32_t v = hg_nth(g, i);
        const int32_t begin = g->pred_indptr[v], end = g->pred_indptr[v + 1];
        int32_t own = given ? level[v] : 0;
        if (end - begin == 1) { /* without branches on the device or the level, which could not be predicted */
            const int32_t u = g->pred_indices[begin], other = hg_find(parent, rank ? rank[u] : u);
            own = given ? own : level[u] + (device[u] != device[v]);
            const int joins = level[u] == own;
            level[v] = own;
            highest = own > highest ? own : highest;
            inside += joins;
            parent[i] = joins ? other : i;
            next[own + 1] += !joins;
            if (hg_interrupted_after(watch, &work, 5))
                goto out;
            continue;
        }
        for (int32_t j = begin; j < end && !given; j++) {
            const int32_t u = g->pred_indices[j];
            const int32_t below = level[u] + (device[u] != device[v]);
            own = below > own ? below : own;
        }
        level[v] = own;
        highest = own > highest ? own : highest;
        int32_t root = i, parts = 1;
        for (int32_t j = begin; j < end; j++) {
            const int32_t u = g->pred_indices[j];
            if (level[u] != own) /* between two nodes of one level no edge changes the device */
                continue;
            inside++;
            const int32_t other = hg_find(parent, rank ? rank[u] : u);
            /* i is no one's parent yet, so the roots met so far hang below the smallest of them. */
            parts -= other != root;
            const int32_t later = other < root ? root : other;
            root = other < root ? other : root;
            parent[later] = root;
        }
        parent[i] = root;
        next[own + 1] += parts;
        if (hg_interrupted_after(watch, &work, 3 + 2 * (int64_t)(end - begin)))
            goto out;
    }

    if (hg_counts_to_starts(highest + 1, next, watch) != HG_OK)
        goto out;
    *count = n ? next[highest + 1] : 0;
    *cut = g->m - inside;
    for (int32_t i = 0; i < n; i++) {
        const int32_t v = hg_nth(g, i), is_root = parent[i] == i; /* not a branch: it could not be predicted */
        const int32_t fresh = next[level[v]], of_root = subgraph_of[hg_nth(g, parent[i])];
        const int32_t id = is_root ? fresh : of_root;
        next[level[v]] = fresh + is_root;
        subgraph_of[v] = id;
        device_of[id] = device[v];
        if (hg_interrupted_at(watch, i, 4))
            goto out;
    }
    status = HG_OK;
out:
    free(parent);
    free(rank);
    free(next);
    return status;
}

int hg_linear(const hg_graph *g, const uint8_t *device, int32_t *subgraph_of, int32_t *device_of, int32_t *count,
              int64_t *cut, hg_watch *watch)
{
    int32_t *level = HG_NEW(int32_t, g->n);
    const int status =
        level ? components(g, device, level, 0, 0, subgraph_of, device_of, count, cut, watch) : HG_NO_MEMORY;
    free(level);
    return status;
}

int hg_depth_height(const hg_graph *g, const uint8_t *device, int32_t *subgraph_of, int32_t *device_of, int32_t *count,
                    int64_t *cut, hg_watch *watch)
{
    int32_t *level = HG_NEW(int32_t, g->n), highest = 0;
    int status = level ? depth_minus_height(g, device, level, &highest, watch) : HG_NO_MEMORY;
    if (status == HG_OK)
        status = components(g, device, level, 1, highest, subgraph_of, device_of, count, cut, watch);
    free(level);
    return status;
}
