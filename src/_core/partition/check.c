/* The verifier of partitions: the rules of a valid partition, each with a witness, in linear time.
 *
 * 1 one device per subgraph, 2 connected (union-find over the edges inside), 3 convex, 4 acyclic quotient (Kahn's
 * algorithm over subgraphs). Rule 3 follows from rule 4, so convexity is searched for only when the quotient has a
 * cycle, to name the simpler fault: a breadth-first search out of a subgraph on the cycle, for at most CONVEX_TRIES
 * of them. Maximality, on request, is the search of mergeable.c over the quotient. */
#include "../union_find.h"
#include "graph.h"

enum { CONVEX_TRIES = 8 }; /* searches, each O(n + m): keeps the check linear */

/* A path from a node of subgraph s through nodes outside back into s: its nodes, and their number; 0 where there is none. */
static int32_t path_out_and_back(const hg_graph *g, const int32_t *label, int32_t s, int32_t *came_from,
                                 int32_t *queue, int32_t *path, hg_watch *watch)
{
    int32_t tail = 0;
    if (hg_fill(came_from, 0xFF, (int64_t)g->n * (int64_t)sizeof *came_from, watch) != HG_OK) /* -1: not seen */
        return HG_INTERRUPTED;
    for (int32_t v = 0; v < g->n; v++) {
        if (hg_interrupted_at(watch, v, 2))
            return HG_INTERRUPTED;
        if (label[v] != s)
            continue;
        for (int32_t j = g->indptr[v]; j < g->indptr[v + 1]; j++) {
            const int32_t w = g->indices[j];
            if (label[w] != s && came_from[w] < 0) {
                came_from[w] = v;
                queue[tail++] = w;
            }
        }
    }
    for (int32_t head = 0; head < tail; head++) {
        const int32_t v = queue[head];
        if (hg_interrupted(watch, 4 + 2 * (int64_t)(g->indptr[v + 1] - g->indptr[v])))
            return HG_INTERRUPTED;
        for (int32_t j = g->indptr[v]; j < g->indptr[v + 1]; j++) {
            const int32_t w = g->indices[j];
            if (label[w] != s) {
                if (came_from[w] < 0) {
                    came_from[w] = v;
                    queue[tail++] = w;
                }
                continue;
            }
            int32_t length = 2;
            for (int32_t u = v; label[u] != s; u = came_from[u])
                length++;
            int32_t i = length;
            path[--i] = w;
            for (int32_t u = v; i > 0; u = came_from[u])
                path[--i] = u;
            return length;
        }
    }
    return 0;
}

/* Rules 3 and 4 once some edge leads from a greater id to a smaller. */
static int check_acyclic(const hg_graph *g, const int32_t *label, int32_t count, hg_verdict *verdict, int32_t *witness,
                         hg_watch *watch)
{
    const int32_t n = g->n;
    int status = HG_NO_MEMORY;
    int32_t *start = HG_NEW(int32_t, (int64_t)count + 1);
    int32_t *waiting = (int32_t *)calloc((size_t)count + 1, sizeof *waiting);
    int32_t *member = HG_NEW(int32_t, n);
    int32_t *queue = HG_NEW(int32_t, n);
    int32_t *edge_from = HG_NEW(int32_t, count); /* one cut edge into each subgraph on or behind a cycle */
    int32_t *edge_to = HG_NEW(int32_t, count);
    if (!start || !waiting || !member || !queue || !edge_from || !edge_to)
        goto out;
    status = HG_INTERRUPTED;
    int32_t tail = 0;
    if (hg_members(n, label, NULL, count, start, member, watch) != HG_OK ||
        hg_sources(g, label, count, waiting, queue, &tail, watch) != HG_OK)
        goto out;
    for (int32_t head = 0; head < tail; head++) {
        const int32_t s = queue[head];
        for (int32_t i = start[s]; i < start[s + 1]; i++) {
            const int32_t begin = g->indptr[member[i]], end = g->indptr[member[i] + 1];
            for (int32_t j = begin; j < end; j++) {
                const int32_t t = label[g->indices[j]];
                if (t != s && !--waiting[t])
                    queue[tail++] = t;
            }
            if (hg_interrupted(watch, 4 + 2 * (int64_t)(end - begin)))
                goto out;
        }
    }
    if (tail == count) {
        status = HG_OK;
        goto out;
    }

    int32_t s = -1;
    for (int32_t u = n - 1; u >= 0; u--) {
        if (hg_interrupted(watch, 2 + g->indptr[u + 1] - g->indptr[u]))
            goto out;
        if (waiting[label[u]] <= 0)
            continue;
        s = label[u];
        for (int32_t j = g->indptr[u]; j < g->indptr[u + 1]; j++) {
            const int32_t v = g->indices[j], t = label[v];
            if (t != label[u] && waiting[t] > 0) {
                edge_from[t] = u;
                edge_to[t] = v;
            }
        }
    }
    for (int32_t i = 0; i < count; i++) {
        s = label[edge_from[s]];
        if (hg_interrupted_at(watch, i, 8))
            goto out;
    }
    status = HG_OK;
    int32_t length = 0, t = s;
    do {
        length++;
        t = label[edge_from[t]];
    } while (t != s);
    for (int32_t tries = 0; tries < length && tries < CONVEX_TRIES; tries++) {
        /* edge arrays of the cycle stay intact: member and queue are free by now */
        const int32_t found = path_out_and_back(g, label, t, member, queue, witness, watch);
        if (found < 0) {
            status = found;
            goto out;
        }
        if (found) {
            verdict->rule = HG_NOT_CONVEX;
            verdict->length = found;
            goto out;
        }
        t = label[edge_from[t]];
    }
    t = s;
    for (int32_t i = length; i-- > 0;) {
        witness[2 * i] = edge_from[t];
        witness[2 * i + 1] = edge_to[t];
        t = label[edge_from[t]];
    }
    verdict->rule = HG_CYCLIC;
    verdict->length = 2 * length;
out:
    free(start);
    free(waiting);
    free(member);
    free(queue);
    free(edge_from);
    free(edge_to);
    return status;
}

int hg_check(const hg_graph *g, const uint8_t *device, const int32_t *label, int flags, hg_verdict *verdict,
             int32_t *witness, hg_watch *watch)
{
    const int32_t n = g->n;
    int status = HG_NO_MEMORY;
    int32_t *first = NULL;
    int32_t *parent = HG_NEW(int32_t, n);
    *verdict = (hg_verdict){HG_VALID, 0, 0, 0};
    if (!parent)
        goto out;
    status = HG_OK;

    int32_t count = 0;
    for (int32_t v = 0; v < n; v++) {
        if (hg_interrupted_at(watch, v, 1))
            goto interrupted;
        if (label[v] < 0 || label[v] >= n) {
            *verdict = (hg_verdict){HG_BAD_ID, v, 0, 0};
            goto out;
        }
        count = label[v] >= count ? label[v] + 1 : count;
    }
    first = HG_NEW(int32_t, count);
    if (!first) {
        status = HG_NO_MEMORY;
        goto out;
    }
    if (hg_fill(first, 0xFF, (int64_t)count * (int64_t)sizeof *first, watch) != HG_OK)
        goto interrupted;
    for (int32_t v = 0; v < n; v++) {
        if (hg_interrupted_at(watch, v, 3))
            goto interrupted;
        parent[v] = v;
        if (first[label[v]] < 0)
            first[label[v]] = v;
        else if (device[first[label[v]]] != device[v]) {
            *verdict = (hg_verdict){HG_MIXED_DEVICES, first[label[v]], v, 0};
            goto out;
        }
    }
    for (int32_t s = 0; s < count; s++)
        if (first[s] < 0) {
            *verdict = (hg_verdict){HG_UNUSED_ID, s, 0, 0};
            goto out;
        }

    int ascending = 1;
    for (int32_t u = 0; u < n; u++) {
        const int32_t own = label[u];
        for (int32_t j = g->indptr[u]; j < g->indptr[u + 1]; j++) {
            const int32_t v = g->indices[j];
            if (label[v] != own) {
                if (label[v] < own && ascending) {
                    ascending = 0;
                    verdict->a = u;
                    verdict->b = v;
                }
                continue;
            }
            const int32_t x = hg_find(parent, u), y = hg_find(parent, v);
            if (x < y)
                parent[y] = x;
            else
                parent[x] = y;
        }
        if (hg_interrupted(watch, 2 + 2 * (int64_t)(g->indptr[u + 1] - g->indptr[u])))
            goto interrupted;
    }
    for (int32_t v = 0; v < n; v++) {
        if (hg_find(parent, v) != first[label[v]]) { /* the first node is the root of its component */
            *verdict = (hg_verdict){HG_DISCONNECTED, first[label[v]], v, 0};
            goto out;
        }
        if (hg_interrupted_at(watch, v, 4))
            goto interrupted;
    }
    if (!ascending) {
        status = check_acyclic(g, label, count, verdict, witness, watch);
        if (status == HG_OK && verdict->rule == HG_VALID && (flags & HG_CHECK_ORDERED))
            verdict->rule = HG_UNORDERED; /* a and b were set above */
        if (status != HG_OK || verdict->rule != HG_VALID)
            goto out;
    }
    if (flags & HG_CHECK_MAXIMAL)
        status = hg_first_mergeable(g, device, label, count, verdict, watch);
    goto out;
interrupted:
    status = HG_INTERRUPTED;
out:
    free(first);
    free(parent);
    return status;
}
