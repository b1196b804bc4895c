/* The graph of subgraphs: cut, canonical numbers, edges. All linear. */
#include "graph.h"

int hg_cut(const hg_graph *g, const int32_t *label, const double *weight, int64_t *edges, double *total,
           hg_watch *watch)
{
    int64_t count = 0, work = 0;
    double sum = 0;
    for (int32_t v = 0; v < g->n; v++) {
        const int32_t own = label[v];
        if (weight)
            for (int32_t j = g->indptr[v]; j < g->indptr[v + 1]; j++) {
                const int cut = label[g->indices[j]] != own;
                count += cut;
                sum += cut ? weight[j] : 0.0;
            }
        else
            for (int32_t j = g->indptr[v]; j < g->indptr[v + 1]; j++)
                count += label[g->indices[j]] != own;
        if (hg_interrupted_after(watch, &work, 1 + g->indptr[v + 1] - g->indptr[v]))
            return HG_INTERRUPTED;
    }
    *edges = count;
    *total = weight ? sum : (double)count;
    return HG_OK;
}

int hg_members(int32_t n, const int32_t *label, const int32_t *order, int32_t count, int32_t *start, int32_t *member,
               hg_watch *watch)
{
    if (hg_fill(start, 0, ((int64_t)count + 1) * (int64_t)sizeof *start, watch) != HG_OK)
        return HG_INTERRUPTED;
    for (int32_t v = 0; v < n; v++) {
        HT_ASSERT(label[v] >= 0 && label[v] < count);
        start[label[v]]++;
        if (hg_interrupted_at(watch, v, 2))
            return HG_INTERRUPTED;
    }
    for (int32_t s = 0, sum = 0; s <= count; s++) { /* counts to ends; the scatter from the back makes them starts */
        sum += s < count ? start[s] : 0;
        start[s] = sum;
        if (hg_interrupted_at(watch, s, 1))
            return HG_INTERRUPTED;
    }
    for (int32_t i = n; i-- > 0;) {
        const int32_t v = order ? order[i] : i;
        member[--start[label[v]]] = v;
        if (hg_interrupted_at(watch, i, 4))
            return HG_INTERRUPTED;
    }
    HT_ASSERT(hg_rises(count, start, n));
    return HG_OK;
}

int hg_quotient_edges(const hg_graph *g, const int32_t *label, int32_t *src, int32_t *dst, hg_watch *watch)
{
    int64_t count = 0;
    for (int32_t v = 0; v < g->n; v++) {
        for (int32_t j = g->indptr[v]; j < g->indptr[v + 1]; j++)
            if (label[g->indices[j]] != label[v]) {
                src[count] = label[v];
                dst[count++] = label[g->indices[j]];
            }
        if (hg_interrupted(watch, 2 + g->indptr[v + 1] - g->indptr[v]))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

int hg_sources(const hg_graph *g, const int32_t *label, int32_t count, int32_t *waiting, int32_t *queue, int32_t *found,
               hg_watch *watch)
{
    for (int32_t v = 0; v < g->n; v++) {
        for (int32_t j = g->pred_indptr[v]; j < g->pred_indptr[v + 1]; j++)
            waiting[label[v]] += label[g->pred_indices[j]] != label[v];
        if (hg_interrupted(watch, 2 + 2 * (int64_t)(g->pred_indptr[v + 1] - g->pred_indptr[v])))
            return HG_INTERRUPTED;
    }
    *found = 0;
    for (int32_t s = 0; s < count; s++) {
        if (!waiting[s])
            queue[(*found)++] = s;
        if (hg_interrupted_at(watch, s, 1))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

int hg_number(const hg_graph *g, const uint8_t *device, int32_t count, int32_t *label, int32_t *device_of,
              hg_watch *watch)
{
    /* Kahn's algorithm over subgraphs without building the quotient: members of a subgraph are listed together, and a
     * subgraph is ready when none of its incoming cut edges is left. */
    const int32_t n = g->n;
    int status = HG_NO_MEMORY;
    int32_t *start = HG_NEW(int32_t, (int64_t)count + 1);
    int32_t *member = HG_NEW(int32_t, n);
    int32_t *waiting = (int32_t *)calloc((size_t)count + 1, sizeof *waiting);
    int32_t *level = (int32_t *)calloc((size_t)count + 1, sizeof *level);
    int32_t *queue = HG_NEW(int32_t, count);
    int32_t *id = HG_NEW(int32_t, count);
    int32_t *next = NULL;
    if (!start || !member || !waiting || !level || !queue || !id)
        goto out;
    status = HG_INTERRUPTED;
    int32_t tail = 0, deepest = 0;
    if (hg_members(n, label, g->order, count, start, member, watch) != HG_OK ||
        hg_sources(g, label, count, waiting, queue, &tail, watch) != HG_OK)
        goto out;
    for (int32_t head = 0; head < tail; head++) {
        const int32_t s = queue[head];
        deepest = level[s] > deepest ? level[s] : deepest;
        for (int32_t i = start[s]; i < start[s + 1]; i++) {
            const int32_t v = member[i];
            for (int32_t j = g->indptr[v]; j < g->indptr[v + 1]; j++) {
                const int32_t t = label[g->indices[j]];
                if (t == s)
                    continue;
                if (level[t] <= level[s])
                    level[t] = level[s] + 1;
                if (!--waiting[t])
                    queue[tail++] = t;
            }
            if (hg_interrupted(watch, 4 + 2 * (int64_t)(g->indptr[v + 1] - g->indptr[v])))
                goto out;
        }
    }
    /* Counting sort by level; within a level subgraphs are met in the order of their first nodes. */
    next = (int32_t *)calloc((size_t)deepest + 2, sizeof *next);
    if (!next) {
        status = HG_NO_MEMORY;
        goto out;
    }
    status = HG_INTERRUPTED;
    for (int32_t s = 0; s < count; s++) {
        next[level[s] + 1]++;
        if (hg_interrupted_at(watch, s, 2))
            goto out;
    }
    if (hg_counts_to_starts(deepest + 1, next, watch) != HG_OK)
        goto out;
    for (int32_t i = 0; i < n; i++) {
        const int32_t v = hg_nth(g, i);
        const int32_t s = label[v];
        if (member[start[s]] == v) {
            id[s] = next[level[s]]++;
            device_of[id[s]] = device[v];
        }
        if (hg_interrupted_at(watch, i, 4))
            goto out;
    }
    for (int32_t v = 0; v < n; v++) {
        label[v] = id[label[v]];
        if (hg_interrupted_at(watch, v, 2))
            goto out;
    }
    status = HG_OK;
out:
    free(start);
    free(member);
    free(waiting);
    free(level);
    free(queue);
    free(id);
    free(next);
    return status;
}
