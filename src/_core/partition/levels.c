/* Moves nodes between levels (levels.h), by their slack as in scheduling: a node can have any level from its earliest
 * to its latest, and only these two can contain neighbors on its own device. A move is therefore decided in O(degree),
 * with one exception: the subgraph that the node leaves must stay connected. A search of at most SEARCH_LIMIT nodes
 * decides whether the node's neighbors there reach each other without it. Moves that do not change the cut are made if
 * they go in the direction of the pass, because they make other moves possible. The number of passes is fixed:
 * O(n + m). */
#include "../union_find.h"
#include "levels.h"

enum { SEARCH_LIMIT = 64 }; /* nodes of one search: bounds the work of a move and the queue on the stack */

typedef struct {
    const hg_dag *g;
    const int32_t *level;
    int32_t *seen; /* [n]: number of the search that saw the node */
    int32_t search;
} connectivity;

/* Of two neighbors: devices need not be compared, because levels differ along each edge between two devices. */
static inline int beside(const connectivity *c, int32_t v, int32_t u) { return c->level[u] == c->level[v]; }

/* Whether the `inside` neighbors of v within its subgraph, two or more, reach each other without v. Two of them are
 * searched from in turn, so that a small part that would fall off is soon known; more, only from one of them. */
static int stays_connected(connectivity *c, int32_t v, int32_t inside)
{
    const int32_t *const row[2] = {c->g->out, c->g->in}, *const start[2] = {c->g->out_start, c->g->in_start};
    /* Odd numbers mark neighbors of v that are not reached yet, and what is found from the second of two; even numbers
     * mark what the search has reached. */
    if (c->search > INT32_MAX - 4) { /* no numbers are left; unreached: after two billion searches */
        memset(c->seen, 0, (size_t)c->g->n * sizeof *c->seen);
        c->search = 0;
    }
    c->search += 2;
    int32_t queue[2][SEARCH_LIMIT], head[2] = {0, 0}, tail[2] = {1, 1}, left = inside - 1, found = 0;
    for (int side = 0; side < 2; side++)
        for (int32_t j = start[side][v]; j < start[side][v + 1]; j++)
            if (beside(c, v, row[side][j])) {
                c->seen[row[side][j]] = c->search + 1;
                queue[found++ > 0][0] = row[side][j];
            }
    c->seen[queue[0][0]] = c->search;
    for (int from = 0; head[from] < tail[from]; from ^= inside == 2) {
        const int32_t x = queue[from][head[from]++], own = c->search + from, other = own ^ 1;
        for (int side = 0; side < 2; side++)
            for (int32_t j = start[side][x]; j < start[side][x + 1]; j++) {
                const int32_t y = row[side][j];
                if (y == v || c->seen[y] == own || !beside(c, v, y))
                    continue;
                if (c->seen[y] == other && !--left)
                    return 1;
                c->seen[y] = own;
                if (tail[0] + tail[1] > SEARCH_LIMIT)
                    return 0;
                queue[from][tail[from]++] = y;
            }
    }
    return 0;
}

/* A node's earliest level, as its predecessors allow, and the edges from those that have it too. Only predecessors of its
 * device can: others allow only a later level. Or the same of successors, with the latest level negated. */
typedef struct {
    int32_t level;
    int32_t edges;
    double weight; /* of these edges */
} meeting;

/* side: 1 for predecessors, -1 for successors. No branch depends on a level, since it could not be predicted. */
static inline __attribute__((always_inline)) meeting met(const hg_dag *g, const int32_t *row, const float *weight,
                                                         int32_t begin, int32_t end, const int32_t *level, uint8_t own,
                                                         const int side)
{
    int32_t most = INT32_MIN, edges = 0;
    double sum = 0;
    for (int32_t j = begin; j < end; j++) {
        const int32_t u = row[j], at = side * level[u], foreign = g->device[u] != own, bound = at + foreign;
        const int32_t keeps = bound <= most, meets = (bound >= most) & !foreign;
        most = keeps ? most : bound;
        edges = (edges & -keeps) + meets;
        if (weight)
            sum = sum * keeps + (double)weight[j] * meets;
    }
    return (meeting){most, edges, weight ? sum : edges};
}

static inline __attribute__((always_inline)) int pass(const hg_dag *g, const float *out_weight, const float *in_weight,
                                                      int32_t *level, int upwards, connectivity *c,
                                                      double *gained, hg_watch *watch)
{
    double total = 0;
    int64_t work = 0;
    for (int32_t i = 0; i < g->n; i++) {
        const int32_t place = upwards ? g->n - 1 - i : i, v = g->order ? g->order[place] : place;
        const int32_t in = g->in_start[v], in_end = g->in_start[v + 1];
        const int32_t out = g->out_start[v], out_end = g->out_start[v + 1];
        const uint8_t own = g->device[v];
        if (hg_interrupted_after(watch, &work, 4 + in_end - in + out_end - out))
            return HG_INTERRUPTED;
        const meeting before = met(g, g->in, in_weight, in, in_end, level, own, 1);
        const meeting after = met(g, g->out, out_weight, out, out_end, level, own, -1);
        const int32_t low = before.level, high = out == out_end ? INT32_MAX : -after.level, here = level[v];
        int32_t target;
        if (low == high)
            continue;
        const int32_t inside = (here == low ? before.edges : 0) + (here == high ? after.edges : 0);
        const double held = (here == low ? before.weight : 0) + (here == high ? after.weight : 0);
        if (upwards)
            target = before.weight > after.weight ? low : high;
        else
            target = after.weight > before.weight ? high : low;
        if (target == here || target == INT32_MIN || target == INT32_MAX)
            continue;
        const double gain = (target == low ? before.weight : after.weight) - held;
        if (gain < 0 || (gain == 0 && target != (upwards ? high : low)))
            continue;
        if (inside > 1 && !stays_connected(c, v, inside))
            continue;
        total += gain;
        level[v] = target;
    }
    *gained += total;
    return HG_OK;
}

int hg_move_levels(const hg_dag *g, int32_t *level, int passes, double *gained, hg_arena *arena, hg_watch *watch)
{
    connectivity c = {g, level, HG_TAKE_ZEROED(arena, int32_t, g->n), 0};
    int status = c.seen ? HG_OK : HG_NO_MEMORY;
    *gained = 0;
    while (passes-- > 0 && status == HG_OK)
        status = g->out_weight ? pass(g, g->out_weight, g->in_weight, level, passes & 1, &c, gained, watch)
                               : pass(g, NULL, NULL, level, passes & 1, &c, gained, watch);
    return status;
}

/* Stable counting sort of from[0, count) into `to`, by keys between `min` and `max`. */
static int sort_by(const int32_t *key, int32_t min, int32_t max, const int32_t *from, int32_t count, int32_t *to,
                   hg_arena *arena)
{
    int32_t *next = HG_TAKE_ZEROED(arena, int32_t, (int64_t)max - min + 2);
    if (!next)
        return HG_NO_MEMORY;
    for (int32_t i = 0; i < count; i++)
        next[key[from[i]] - min + 1]++;
    for (int64_t k = 0; k <= (int64_t)max - min; k++)
        next[k + 1] += next[k];
    for (int32_t i = 0; i < count; i++)
        to[next[key[from[i]] - min]++] = from[i];
    return HG_OK;
}

static void span(const int32_t *key, int32_t n, int32_t *min, int32_t *max)
{
    *min = *max = n ? key[0] : 0;
    for (int32_t v = 1; v < n; v++) {
        *min = key[v] < *min ? key[v] : *min;
        *max = key[v] > *max ? key[v] : *max;
    }
}

int hg_level_components(const hg_dag *g, const int32_t *level, const int32_t *other, int32_t *label, int32_t *count,
                        hg_arena *arena, hg_watch *watch)
{
    const int32_t n = g->n;
    int32_t *parent = HG_TAKE(arena, int32_t, n);
    int32_t *root = HG_TAKE(arena, int32_t, (int64_t)n + 1); /* the entry after the last is scratch */
    int64_t work = 0;
    if (arena->failed)
        return HG_NO_MEMORY;
    for (int32_t i = 0; i < n; i++) {
        const int32_t v = g->order ? g->order[i] : i, at = level[v];
        int32_t root = v;
        parent[v] = v;
        for (int32_t j = g->in_start[v]; j < g->in_start[v + 1]; j++) {
            const int32_t u = g->in[j]; /* an edge within a level joins nodes of one device */
            if (level[u] != at || (other && other[u] != other[v]))
                continue;
            const int32_t x = hg_find(parent, u);
            /* v has no children yet, so the roots found so far can hang below the first of them. */
            if (root == v)
                root = x;
            else if (x != root)
                parent[x] = root;
        }
        parent[v] = root;
        if (hg_interrupted_after(watch, &work, 4 + 2 * (int64_t)(g->in_start[v + 1] - g->in_start[v])))
            return HG_INTERRUPTED;
    }
    int32_t roots = 0, min, max;
    span(level, n, &min, &max);
    for (int32_t v = 0; v < n; v++) {
        root[roots] = v;
        roots += parent[v] == v;
        if (hg_interrupted_after(watch, &work, 2))
            return HG_INTERRUPTED;
    }
    int32_t *sorted = HG_TAKE(arena, int32_t, roots);
    if (!sorted)
        return HG_NO_MEMORY;
    int status = roots ? sort_by(level, min, max, root, roots, sorted, arena) : HG_OK;
    if (status == HG_OK && other) { /* by `other`, then by level: neither decreases along an edge */
        int32_t *twice = root;
        span(other, n, &min, &max);
        status = sort_by(other, min, max, sorted, roots, twice, arena);
        sorted = twice;
    }
    if (status != HG_OK)
        return status;
    for (int32_t i = 0; i < roots; i++)
        label[sorted[i]] = i;
    if (hg_interrupted(watch, 16 * (int64_t)roots))
        return HG_INTERRUPTED;
    for (int32_t v = 0; v < n; v++) {
        label[v] = label[hg_find(parent, v)];
        if (hg_interrupted_after(watch, &work, 4))
            return HG_INTERRUPTED;
    }
    *count = roots;
    return HG_OK;
}

int hg_levels_of(const hg_dag *g, const int32_t *label, int32_t count, int32_t *level, hg_arena *arena,
                 hg_watch *watch)
{
    int32_t *start = HG_TAKE(arena, int32_t, (int64_t)count + 1), *member = HG_TAKE(arena, int32_t, g->n);
    int32_t *level_of = HG_TAKE_ZEROED(arena, int32_t, count);
    if (arena->failed)
        return HG_NO_MEMORY;
    int status = hg_members(g->n, label, NULL, count, start, member, watch);
    for (int32_t s = count; s-- > 0 && status == HG_OK;) {
        int32_t latest = 0;
        for (int32_t i = start[s]; i < start[s + 1]; i++) {
            const int32_t v = member[i];
            for (int32_t j = g->out_start[v]; j < g->out_start[v + 1]; j++) {
                const int32_t t = g->out[j], limit = level_of[label[t]] - (g->device[t] != g->device[v]);
                if (label[t] != s && limit < latest)
                    latest = limit;
            }
        }
        level_of[s] = latest;
        if (hg_interrupted(watch, 16 * (int64_t)(start[s + 1] - start[s])))
            status = HG_INTERRUPTED;
    }
    for (int32_t v = 0; v < g->n && status == HG_OK; v++)
        level[v] = level_of[label[v]];
    return status;
}

int hg_weight_between(const hg_dag *g, const int32_t *label, double *cut, hg_watch *watch)
{
    double weight = 0;
    int64_t edges = 0;
    for (int32_t u = 0; u < g->n; u++) {
        const int32_t own = label[u];
        for (int32_t j = g->out_start[u]; j < g->out_start[u + 1]; j++) {
            const int across = label[g->out[j]] != own;
            edges += across;
            if (g->out_weight)
                weight += across ? (double)g->out_weight[j] : 0.0;
        }
        if (!(u & 0xFFFF) && hg_interrupted(watch, 1 << 18))
            return HG_INTERRUPTED;
    }
    *cut = g->out_weight ? weight : (double)edges;
    return HG_OK;
}
