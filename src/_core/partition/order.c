/* Topological orders.
 *
 * A. B. Kahn, "Topological sorting of large networks", Communications of the ACM 5(11), 1962: take vertices without
 * unordered predecessors one after the other. O(n + m). What is left when none remains contains a cycle, found by
 * walking from predecessor to predecessor among the rest until a vertex repeats. */
#include "graph.h"

int hg_is_ordered(int32_t n, const int32_t *indptr, const int32_t *indices, int *ordered, hg_watch *watch)
{
    *ordered = 0;
    for (int32_t v = 0; v < n; v++) {
        if (indptr[v] < indptr[v + 1] && indices[indptr[v]] <= v) /* rows ascend: the first entry is the smallest */
            return HG_OK;
        if (!(v & 0xFFFF) && hg_interrupted(watch, 1 << 17))
            return HG_INTERRUPTED;
    }
    *ordered = 1;
    return HG_OK;
}

/* A cycle among the vertices with degree > 0. Walking against edges is always possible there: such a vertex still has
 * an unordered predecessor. `pred` takes one such predecessor per vertex. */
static int find_cycle(int32_t n, const int32_t *indptr, const int32_t *indices, const int32_t *degree, int32_t *pred,
                      int32_t *cycle, int32_t *cycle_length, hg_watch *watch)
{
    int32_t start = -1;
    for (int32_t v = n - 1; v >= 0; v--) { /* the smallest predecessor wins */
        if (hg_interrupted(watch, 1 + indptr[v + 1] - indptr[v]))
            return HG_INTERRUPTED;
        if (degree[v] <= 0)
            continue;
        start = v;
        for (int32_t j = indptr[v]; j < indptr[v + 1]; j++)
            if (degree[indices[j]] > 0)
                pred[indices[j]] = v;
    }
    /* After n steps backwards the walk is on a cycle. */
    int32_t v = start;
    for (int32_t i = 0; i < n; i++) {
        v = pred[v];
        if (hg_interrupted_at(watch, i, 4))
            return HG_INTERRUPTED;
    }
    int32_t length = 0, u = v, smallest = v;
    do {
        length++;
        if (u < smallest)
            smallest = u;
        u = pred[u];
        if (hg_interrupted_at(watch, length, 4))
            return HG_INTERRUPTED;
    } while (u != v);
    /* Written forwards from its smallest vertex. */
    u = smallest;
    for (int32_t i = length; i-- > 0;) {
        cycle[(i + 1) % length] = u;
        u = pred[u];
        if (hg_interrupted_at(watch, i, 4))
            return HG_INTERRUPTED;
    }
    *cycle_length = length;
    return HG_OK;
}

int hg_kahn(int32_t n, const int32_t *indptr, const int32_t *indices, int32_t *order, int32_t *done, int32_t *cycle,
            int32_t *cycle_length, hg_watch *watch)
{
    int32_t *degree = (int32_t *)calloc((size_t)n + 1, sizeof *degree); /* pages come as they are touched */
    if (!degree)
        return HG_NO_MEMORY;
    int status = HG_INTERRUPTED;
    const int64_t m = indptr[n];
    for (int64_t base = 0; base < m; base += 1 << 14) {
        if (hg_interrupted(watch, 1 << 17))
            goto out;
        const int64_t end = base + (1 << 14) < m ? base + (1 << 14) : m;
        for (int64_t j = base; j < end; j++)
            degree[indices[j]]++;
    }
    int32_t tail = 0;
    for (int32_t v = 0; v < n; v++) {
        if (!degree[v])
            order[tail++] = v;
        if (hg_interrupted_at(watch, v, 1))
            goto out;
    }
    int64_t work = 0;
    for (int32_t head = 0; head < tail; head++) {
        const int32_t v = order[head], begin = indptr[v], end = indptr[v + 1];
        for (int32_t j = begin; j < end; j++)
            if (!--degree[indices[j]])
                order[tail++] = indices[j];
        if (hg_interrupted_after(watch, &work, 3 + 2 * (int64_t)(end - begin)))
            goto out;
    }
    *done = tail;
    status = HG_OK;
    if (tail < n) {
        int32_t *pred = HG_NEW(int32_t, n);
        if (!pred) {
            status = HG_NO_MEMORY;
            goto out;
        }
        status = find_cycle(n, indptr, indices, degree, pred, cycle, cycle_length, watch);
        free(pred);
    }
out:
    free(degree);
    return status;
}

int hg_forest(int32_t n, const int32_t *indptr, const int32_t *indices, const int32_t *order, int32_t *entered,
              int32_t *left, int32_t *finished, int32_t *stack, int32_t *cursor, hg_watch *watch)
{
    int32_t clock = 0, done = 0;
    for (int32_t v = 0; v < n; v++) {
        entered[v] = -1;
        cursor[v] = indptr[v];
        if (hg_interrupted_at(watch, v, 2))
            return HG_INTERRUPTED;
    }
    for (int32_t i = 0; i < n; i++) {
        const int32_t root = order ? order[i] : i;
        if (hg_interrupted_at(watch, i, 2))
            return HG_INTERRUPTED;
        if (entered[root] >= 0)
            continue;
        int32_t top = 0;
        stack[top++] = root;
        entered[root] = clock++;
        while (top) {
            const int32_t v = stack[top - 1];
            if (cursor[v] == indptr[v + 1]) {
                left[v] = clock - 1;
                if (finished)
                    finished[done++] = v;
                top--;
                continue;
            }
            const int32_t w = indices[cursor[v]++];
            if (entered[w] < 0) {
                entered[w] = clock++;
                stack[top++] = w;
                if (!(clock & 0xFFFF) && hg_interrupted(watch, 1 << 18))
                    return HG_INTERRUPTED;
            }
        }
    }
    return HG_OK;
}
