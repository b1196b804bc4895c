/* Limits on the size of subgraphs.
 *
 * Subgraphs that are too small move, whole, to the next device that may have all their nodes. Each round handles the
 * first device that has such subgraphs, because moving them makes subgraphs of later devices larger. O(nodes *
 * devices).
 *
 * Subgraphs that are too large are split into single nodes, which contraction (contract.c) merges again as far as the
 * limit allows, heavy edges first. Other subgraphs stay as they are. Near-linear, like contraction. */
#include <math.h>

#include "coarse.h"

enum { WORK_PER_EDGE = 16 }; /* steps of contraction's searches for each node and edge: keeps the limit linear */

int hg_limit(const hg_graph *g, const uint8_t *device, const double *weight, int32_t max_nodes, int across,
             int32_t *label, int32_t *device_of, int32_t *count, hg_watch *watch)
{
    const int32_t n = g->n;
    hg_arena arena;
    if (!hg_arena_open(&arena, (size_t)n * 48 + 4096))
        return HG_NO_MEMORY;
    int status = HG_NO_MEMORY;
    int32_t *start = HG_TAKE(&arena, int32_t, (int64_t)*count + 1);
    int32_t *member = HG_TAKE(&arena, int32_t, n);
    int32_t *pieces = HG_TAKE(&arena, int32_t, n);
    int32_t *origin = HG_TAKE(&arena, int32_t, n);
    int32_t *merged = HG_TAKE(&arena, int32_t, n);
    if (arena.failed)
        goto out;
    if ((status = hg_members(n, label, g->order, *count, start, member, watch)) != HG_OK)
        goto out;
    int32_t used = 0;
    int finished;
    status = HG_INTERRUPTED;
    for (int32_t s = 0; s < *count; s++) { /* members come in topological order: so do the pieces */
        const int split = start[s + 1] - start[s] > max_nodes;
        for (int32_t i = start[s]; i < start[s + 1]; i++) {
            pieces[member[i]] = used;
            origin[used] = s;
            used += split;
            if (hg_interrupted(watch, 2))
                goto out;
        }
        used += !split;
    }
    status = HG_OK;
    if (used > *count) {
        hg_coarse coarse;
        const int64_t work = WORK_PER_EDGE * ((int64_t)n + g->m);
        const float *scaled = weight ? hg_scaled(g, weight, &arena) : NULL;
        status = weight && !scaled ? HG_NO_MEMORY
                                   : hg_coarsen(g, device, scaled, pieces, used, 1, 1, &coarse, &arena, watch);
        if (status != HG_OK)
            goto out;
        for (int32_t s = 0; s < used && !across; s++)
            coarse.kind[s] = origin[s];
        double total = 0;
        for (int64_t j = 0; j < coarse.edges; j++)
            total += coarse.out_weight[j];
        const float heavy = coarse.edges ? (float)(2 * total / (double)coarse.edges) : HUGE_VALF;
        hg_open_edges open = {HG_TAKE(&arena, hg_open_edge, coarse.edges), 0};
        status = HG_NO_MEMORY;
        if (open.edge)
            status = hg_contract(&coarse, heavy, max_nodes, work, &open, merged, count, &finished, &arena, watch);
        for (int32_t v = 0; v < n && status == HG_OK; v++)
            label[v] = merged[pieces[v]];
    }
    for (int32_t v = 0; v < n && status == HG_OK; v++)
        device_of[label[v]] = device[v];
out:
    hg_arena_close(&arena);
    return status;
}

/* The next device that may take all nodes, or 0. */
static int taker(const int32_t *member, int32_t size, int own, int devices, const uint8_t *allowed)
{
    for (int number = own + 1; number < devices; number++) {
        int32_t i = 0;
        while (i < size && allowed[(size_t)member[i] * (size_t)devices + (size_t)number])
            i++;
        if (i == size)
            return number;
    }
    return 0;
}

int hg_fall_back(int32_t n, const int32_t *label, int32_t count, const int64_t *min_nodes, int devices,
                 const uint8_t *allowed, uint8_t *device, int *moved, hg_watch *watch)
{
    int status = HG_NO_MEMORY;
    int32_t *start = HG_NEW(int32_t, (int64_t)count + 1), *member = HG_NEW(int32_t, n);
    uint8_t *target = HG_NEW(uint8_t, count);
    if (!start || !member || !target || (status = hg_members(n, label, NULL, count, start, member, watch)) != HG_OK)
        goto out;
    status = HG_INTERRUPTED;
    int first = devices;
    for (int32_t s = 0; s < count; s++) {
        const int32_t size = start[s + 1] - start[s];
        const int own = device[member[start[s]]];
        target[s] = 0;
        if (own <= first && size < min_nodes[own])
            target[s] = (uint8_t)taker(member + start[s], size, own, devices, allowed);
        if (target[s])
            first = own;
        if (hg_interrupted(watch, 4 + (size < min_nodes[own] ? (int64_t)size * devices : 0)))
            goto out;
    }
    *moved = first < devices;
    for (int32_t v = 0; v < n && *moved; v++) {
        if (target[label[v]] && device[v] == first)
            device[v] = target[label[v]];
        if (hg_interrupted_at(watch, v, 2))
            goto out;
    }
    status = HG_OK;
out:
    free(start);
    free(member);
    free(target);
    return status;
}
