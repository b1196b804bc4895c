/* Maximality: is there a pair of adjacent subgraphs of one device that could be merged?
 *
 * Merging the ends of a quotient edge A -> B makes no cycle exactly when no other path leads from A to B. For each A one
 * depth-first search from its successors, never past the last position at which a same-device successor stands, finds
 * all of those that another path reaches. Worst case O(k * edges) for k subgraphs; the bound by position keeps it near
 * linear where the quotient is narrow. */
#include "graph.h"

int hg_first_mergeable(const hg_graph *g, const uint8_t *device, const int32_t *label, int32_t count,
                       hg_verdict *verdict, hg_watch *watch)
{
    const int32_t n = g->n;
    int status = HG_NO_MEMORY;
    int64_t edges = 0, unique = 0;
    double total;
    int32_t *src = NULL, *dst = NULL, *indptr = NULL, *indices = NULL, *slot = NULL, *order = NULL, *rank = NULL;
    int32_t *stack = NULL, *seen = NULL;
    int32_t done, cycle_length;
    uint8_t *device_of = NULL;
    int status_cut = hg_cut(g, label, NULL, &edges, &total, watch);
    if (status_cut != HG_OK)
        return status_cut;
    src = HG_NEW(int32_t, edges);
    dst = HG_NEW(int32_t, edges);
    indptr = HG_NEW(int32_t, (int64_t)count + 1);
    indices = HG_NEW(int32_t, edges);
    slot = HG_NEW(int32_t, edges);
    order = HG_NEW(int32_t, count);
    rank = HG_NEW(int32_t, count);
    stack = HG_NEW(int32_t, count);
    seen = (int32_t *)calloc((size_t)count + 1, sizeof *seen);
    device_of = HG_NEW(uint8_t, count);
    if (!src || !dst || !indptr || !indices || !slot || !order || !rank || !stack || !seen || !device_of)
        goto out;
    for (int32_t v = 0; v < n; v++)
        device_of[label[v]] = device[v];
    status = hg_quotient_edges(g, label, src, dst, watch);
    if (status == HG_OK)
        status = hg_build(count, edges, src, dst, indptr, indices, slot, &unique, watch);
    if (status == HG_OK)
        status = hg_kahn(count, indptr, indices, order, &done, stack, &cycle_length, watch);
    if (status != HG_OK)
        goto out;
    for (int32_t i = 0; i < count; i++)
        rank[order[i]] = i;

    for (int32_t a = 0; a < count; a++) {
        int32_t last = -1;
        for (int32_t j = indptr[a]; j < indptr[a + 1]; j++)
            if (device_of[indices[j]] == device_of[a] && rank[indices[j]] > last)
                last = rank[indices[j]];
        if (last < 0)
            continue;
        /* seen[x] == a + 1: some path of two or more edges leads from a to x */
        int32_t top = 0;
        int64_t work = 1;
        for (int32_t j = indptr[a]; j < indptr[a + 1]; j++) {
            if (seen[indices[j]] == a + 1 || rank[indices[j]] >= last)
                continue;
            stack[top++] = indices[j];
            while (top) {
                const int32_t x = stack[--top];
                for (int32_t i = indptr[x]; i < indptr[x + 1]; i++) {
                    const int32_t y = indices[i];
                    work++;
                    if (seen[y] == a + 1 || rank[y] > last)
                        continue;
                    seen[y] = a + 1;
                    stack[top++] = y;
                }
            }
        }
        for (int32_t j = indptr[a]; j < indptr[a + 1]; j++)
            if (device_of[indices[j]] == device_of[a] && seen[indices[j]] != a + 1) {
                for (int32_t u = 0; u < n; u++) /* the edge of the graph behind it */
                    for (int32_t i = g->indptr[u]; label[u] == a && i < g->indptr[u + 1]; i++)
                        if (label[g->indices[i]] == indices[j]) {
                            *verdict = (hg_verdict){HG_NOT_MAXIMAL, u, g->indices[i], 0};
                            goto out;
                        }
            }
        if (hg_interrupted(watch, 4 * work)) {
            status = HG_INTERRUPTED;
            goto out;
        }
    }
out:
    free(src);
    free(dst);
    free(indptr);
    free(indices);
    free(slot);
    free(order);
    free(rank);
    free(stack);
    free(seen);
    free(device_of);
    return status;
}
