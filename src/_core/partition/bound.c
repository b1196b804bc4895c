/* A lower bound on the number of subgraphs of any valid partition, in near-linear time.
 *
 * A subgraph is connected by edges within its device, so it lies in one component of these edges. Let `group` be a
 * partition of the nodes such that each valid subgraph lies in one group. At first, the groups are these components.
 *
 * 1. Forced cuts. Let an edge lead from u to v of one group. If a path from u to v passes through another group, no
 *    subgraph contains both, because it would have to contain that path. So the edge can be deleted, and the connected
 *    components of what remains are finer groups. This repeats as long as it deletes edges, at most ROUNDS times. A
 *    path is proved by its nodes: by landmarks, positions on one path for each part of the graph, and by the neighbors
 *    of u and v. What is not proved is not deleted.
 * 2. Returns. If a path visits a group, leaves it and visits it again, its visits lie in different subgraphs, because a
 *    subgraph is convex; the same holds for the two ends of a deleted edge. So the group has at least as many subgraphs
 *    as a path can have visits. The most visits are found by dynamic programming between the first and the last node of
 *    the group, larger groups first. If this would take more than WORK_PER_EDGE steps for each node and edge, the
 *    remaining groups count as one subgraph each.
 *
 * The bound is the sum over groups. It is at least the number of device changes along any path plus one: each stretch
 * of the path on one device is a visit of a group. */
#include "../union_find.h"
#include "arena.h"
#include "graph.h"

enum {
    ROUNDS = 4,
    WORK_PER_EDGE = 8, /* steps of the returns: keeps the bound linear */
    NEAR = 16,         /* neighbors of an edge's ends that are looked at: keeps a round linear */
};

typedef struct {
    const hg_graph *g;
    const uint8_t *device;
    int32_t *rank;             /* position of a node in topological order; NULL: its number */
    int32_t *group;            /* [n]: its node of lowest rank, as a rank */
    uint8_t *cut;              /* [m], by successor rows: 1 for a forced cut */
    int32_t *first, *last;     /* landmarks: the first place on the path that the node reaches, the last that reaches it */
    int32_t *place_group, *onward; /* by place: its group, and the next place of another group */
    hg_arena *arena;
    hg_watch *watch;
} bounds;

static inline int32_t unite(int32_t *parent, int32_t x, int32_t y)
{
    x = hg_find(parent, x);
    y = hg_find(parent, y);
    if (x < y)
        parent[y] = x;
    else
        parent[x] = y;
    return x < y ? x : y;
}

static inline int32_t rank_of(const bounds *b, int32_t v) { return b->rank ? b->rank[v] : v; }

/* Groups: the components of edges within a device that are not cut. *count of them. */
static int make_groups(bounds *b, int32_t *parent, int32_t *count)
{
    const hg_graph *g = b->g;
    int32_t roots = 0;
    for (int32_t i = 0; i < g->n; i++)
        parent[i] = i;
    for (int32_t v = 0; v < g->n; v++) {
        const int32_t x = rank_of(b, v);
        for (int32_t j = g->indptr[v]; j < g->indptr[v + 1]; j++)
            if (!b->cut[j] && b->device[g->indices[j]] == b->device[v])
                unite(parent, x, rank_of(b, g->indices[j]));
        if (hg_interrupted(b->watch, 4 + 4 * (int64_t)(g->indptr[v + 1] - g->indptr[v])))
            return HG_INTERRUPTED;
    }
    for (int32_t v = 0; v < g->n; v++) {
        const int32_t x = rank_of(b, v);
        b->group[v] = hg_find(parent, x);
        roots += b->group[v] == x;
        if (hg_interrupted(b->watch, 4))
            return HG_INTERRUPTED;
    }
    *count = roots;
    return HG_OK;
}

/* One path for each weakly connected part of the graph: one with the most changes of device, and of these a longest.
 * first and last of every node, for the path of its part. */
static int set_landmarks(bounds *b, int32_t *parent)
{
    const hg_graph *g = b->g;
    const int32_t n = g->n;
    int64_t *length = HG_TAKE(b->arena, int64_t, n); /* changes * 2^32 + edges to the end */
    int32_t *best = HG_TAKE(b->arena, int32_t, n), *head = HG_TAKE(b->arena, int32_t, n);
    if (b->arena->failed)
        return HG_NO_MEMORY;
    for (int32_t i = 0; i < n; i++) {
        parent[i] = i;
        head[i] = -1;
    }
    for (int32_t i = n; i-- > 0;) {
        const int32_t v = hg_nth(g, i);
        length[v] = 0;
        best[v] = -1;
        for (int32_t j = g->indptr[v]; j < g->indptr[v + 1]; j++) {
            const int32_t w = g->indices[j];
            const int64_t onward = length[w] + 1 + ((int64_t)(b->device[w] != b->device[v]) << 32);
            unite(parent, v, w);
            if (onward > length[v]) {
                length[v] = onward;
                best[v] = w;
            }
        }
        b->first[v] = INT32_MAX;
        b->last[v] = -1;
        if (hg_interrupted(b->watch, 8 + 8 * (int64_t)(g->indptr[v + 1] - g->indptr[v])))
            return HG_INTERRUPTED;
    }
    for (int32_t i = 0; i < n; i++) {
        const int32_t v = hg_nth(g, i), part = hg_find(parent, v);
        if (head[part] < 0 || length[v] > length[head[part]])
            head[part] = v;
    }
    int32_t place = 0;
    for (int32_t part = 0; part < n; part++) {
        for (int32_t v = head[part]; v >= 0; v = best[v]) {
            b->first[v] = b->last[v] = place;
            b->place_group[place++] = v; /* the node, until set_places */
        }
        if (hg_interrupted(b->watch, 4))
            return HG_INTERRUPTED;
    }
    b->place_group[place] = -1;
    for (int32_t i = n; i-- > 0;) {
        const int32_t v = hg_nth(g, i);
        for (int32_t j = g->indptr[v]; j < g->indptr[v + 1] && b->last[v] < 0; j++)
            b->first[v] = b->first[g->indices[j]] < b->first[v] ? b->first[g->indices[j]] : b->first[v];
        if (hg_interrupted(b->watch, 4 + 2 * (int64_t)(g->indptr[v + 1] - g->indptr[v])))
            return HG_INTERRUPTED;
    }
    for (int32_t i = 0; i < n; i++) {
        const int32_t v = hg_nth(g, i);
        for (int32_t j = g->pred_indptr[v]; j < g->pred_indptr[v + 1]; j++)
            b->last[v] = b->last[g->pred_indices[j]] > b->last[v] ? b->last[g->pred_indices[j]] : b->last[v];
        if (hg_interrupted(b->watch, 4 + 2 * (int64_t)(g->pred_indptr[v + 1] - g->pred_indptr[v])))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

/* place_node [n + 1]: the node at each place, -1 behind the last. */
static int set_places(bounds *b, const int32_t *place_node)
{
    int32_t places = 0;
    while (place_node[places] >= 0)
        b->place_group[places] = b->group[place_node[places]], places++;
    for (int32_t i = places; i-- > 0;)
        b->onward[i] = i + 1 < places && b->place_group[i + 1] == b->place_group[i] ? b->onward[i + 1] : i + 1;
    return hg_interrupted(b->watch, 8 * (int64_t)places) ? HG_INTERRUPTED : HG_OK;
}

/* Whether a path from x to y passes through another group than `group`, by the landmarks. x may be a member or not; what
 * lies on the landmark path from the first place that x reaches to the last that reaches y is on one. */
static inline int leaves_between(const bounds *b, int32_t x, int32_t y, int32_t group)
{
    const int32_t from = b->first[x], to = b->last[y];
    return from <= to && (b->place_group[from] != group || b->onward[from] <= to);
}

/* Whether a path from u to v, of one group, is known to pass through another one. */
static int is_forced(const bounds *b, int32_t u, int32_t v)
{
    const hg_graph *g = b->g;
    const int32_t group = b->group[u];
    if (leaves_between(b, u, v, group))
        return 1;
    /* A neighbor x of u outside the group that reaches v: it is a predecessor of v, or the landmarks tell. */
    const int32_t out = g->indptr[u], out_end = g->indptr[u + 1] - out > NEAR ? out + NEAR : g->indptr[u + 1];
    const int32_t in = g->pred_indptr[v], in_end = g->pred_indptr[v + 1] - in > NEAR ? in + NEAR : g->pred_indptr[v + 1];
    for (int32_t j = out; j < out_end; j++) {
        const int32_t x = g->indices[j];
        if (b->group[x] != group && b->first[x] <= b->last[v])
            return 1;
    }
    for (int32_t j = in; j < in_end; j++) {
        const int32_t x = g->pred_indices[j];
        if (b->group[x] != group && b->first[u] <= b->last[x])
            return 1;
    }
    for (int32_t i = out, j = in; i < out_end && j < in_end;) { /* both rows ascend */
        const int32_t x = g->indices[i], y = g->pred_indices[j];
        if (x == y && b->group[x] != group)
            return 1;
        i += x <= y;
        j += y <= x;
    }
    return 0;
}

/* Marks the forced cuts; *found of them are new. */
static int cut_forced(bounds *b, int64_t *found)
{
    const hg_graph *g = b->g;
    *found = 0;
    for (int32_t u = 0; u < g->n; u++) {
        int64_t work = 4;
        for (int32_t j = g->indptr[u]; j < g->indptr[u + 1]; j++) {
            const int32_t v = g->indices[j];
            if (b->cut[j] || b->group[u] != b->group[v])
                continue;
            b->cut[j] = (uint8_t)is_forced(b, u, v);
            *found += b->cut[j];
            work += 4 * NEAR;
        }
        if (hg_interrupted(b->watch, work))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

/* The most visits of a group by one path. visits [n]: by rank, scratch; low, high: ranks of its first and last node. */
static int32_t most_visits(const bounds *b, int32_t group, int32_t low, int32_t high, const uint8_t *cut_in,
                           int32_t *visits)
{
    const hg_graph *g = b->g;
    int32_t most = 1;
    for (int32_t i = low; i <= high; i++) {
        const int32_t v = hg_nth(g, i);
        const int inside = b->group[v] == group;
        int32_t own = inside;
        for (int32_t j = g->pred_indptr[v]; j < g->pred_indptr[v + 1]; j++) {
            const int32_t u = g->pred_indices[j], x = rank_of(b, u);
            if (x < low)
                continue;
            const int32_t more = visits[x] + (inside && (b->group[u] != group || cut_in[j]));
            own = more > own ? more : own;
        }
        visits[i] = own;
        most = own > most ? own : most;
    }
    return most;
}

/* Adds to *bound what the groups need beyond one subgraph each. */
static int add_returns(bounds *b, int32_t *bound)
{
    const hg_graph *g = b->g;
    const int32_t n = g->n;
    int32_t *high = HG_TAKE(b->arena, int32_t, n), *size = HG_TAKE_ZEROED(b->arena, int32_t, n);
    int32_t *start = HG_TAKE_ZEROED(b->arena, int32_t, (int64_t)n + 2), *by_size = HG_TAKE(b->arena, int32_t, n);
    int32_t *visits = HG_TAKE(b->arena, int32_t, n), *next = HG_TAKE(b->arena, int32_t, n);
    int64_t *steps = HG_TAKE(b->arena, int64_t, (int64_t)n + 1); /* to the nodes before a rank */
    uint8_t *cut_in = HG_TAKE(b->arena, uint8_t, g->m); /* cut, by predecessor rows */
    if (b->arena->failed)
        return HG_NO_MEMORY;
    steps[0] = 0;
    for (int32_t i = 0; i < n; i++) {
        const int32_t v = hg_nth(g, i), group = b->group[v];
        steps[i + 1] = steps[i] + 1 + g->pred_indptr[v + 1] - g->pred_indptr[v];
        size[group]++;
        high[group] = i;
        next[v] = g->pred_indptr[v];
        if (hg_interrupted(b->watch, 8))
            return HG_INTERRUPTED;
    }
    for (int32_t u = 0; u < n; u++) {
        for (int32_t j = g->indptr[u]; j < g->indptr[u + 1]; j++)
            cut_in[next[g->indices[j]]++] = b->cut[j];
        if (hg_interrupted(b->watch, 4 + 4 * (int64_t)(g->indptr[u + 1] - g->indptr[u])))
            return HG_INTERRUPTED;
    }
    for (int32_t i = 0; i < n; i++)
        start[n - size[i] + 1]++; /* descending */
    if (hg_counts_to_starts(n + 1, start, b->watch) != HG_OK)
        return HG_INTERRUPTED;
    for (int32_t i = 0; i < n; i++)
        by_size[start[n - size[i]]++] = i;
    int64_t left = WORK_PER_EDGE * ((int64_t)n + g->m);
    for (int32_t i = 0; i < n && size[by_size[i]] > 1 && left > 0; i++) {
        const int32_t group = by_size[i];
        const int64_t work = steps[high[group] + 1] - steps[group]; /* mutant: only an estimate */
        if (work > left)
            continue;
        left -= work;
        *bound += most_visits(b, group, group, high[group], cut_in, visits) - 1;
        if (hg_interrupted(b->watch, 4 * work))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

static int find_bound(bounds *b, int32_t *bound)
{
    const int32_t n = b->g->n;
    int32_t *parent = HG_TAKE(b->arena, int32_t, n), *place_node = HG_TAKE(b->arena, int32_t, (int64_t)n + 1);
    if (b->arena->failed)
        return HG_NO_MEMORY;
    b->place_group = place_node;
    int status = make_groups(b, parent, bound);
    const hg_mark mark = hg_arena_mark(b->arena);
    if (status == HG_OK)
        status = set_landmarks(b, parent);
    hg_arena_release(b->arena, mark);
    b->place_group = HG_TAKE(b->arena, int32_t, n);
    b->onward = HG_TAKE(b->arena, int32_t, n);
    if (status == HG_OK && b->arena->failed)
        status = HG_NO_MEMORY;
    int64_t found = 1;
    for (int i = 0; i < ROUNDS && status == HG_OK && found; i++) {
        if ((status = set_places(b, place_node)) == HG_OK)
            status = cut_forced(b, &found);
        if (status == HG_OK && found)
            status = make_groups(b, parent, bound);
    }
    return status == HG_OK ? add_returns(b, bound) : status;
}

int hg_lower_bound(const hg_graph *g, const uint8_t *device, int32_t *bound, hg_watch *watch)
{
    hg_arena arena;
    if (!hg_arena_open(&arena, (size_t)g->n * 32 + (size_t)g->m + 4096))
        return HG_NO_MEMORY;
    bounds b = {.g = g, .device = device, .arena = &arena, .watch = watch};
    b.group = HG_TAKE(&arena, int32_t, g->n);
    b.first = HG_TAKE(&arena, int32_t, g->n);
    b.last = HG_TAKE(&arena, int32_t, g->n);
    b.cut = HG_TAKE_ZEROED(&arena, uint8_t, g->m);
    b.rank = g->order ? HG_TAKE(&arena, int32_t, g->n) : NULL;
    int status = arena.failed ? HG_NO_MEMORY : HG_OK;
    for (int32_t i = 0; i < g->n && g->order && status == HG_OK; i++)
        b.rank[g->order[i]] = i;
    *bound = 0;
    if (status == HG_OK && g->n)
        status = find_bound(&b, bound);
    hg_arena_close(&arena);
    return status;
}
