/* Coarse graphs: quotients with merged, weighted edges. Linear. */
#include "coarse.h"

float *hg_scaled(const hg_graph *g, const double *weight, hg_arena *arena)
{
    float *scaled = HG_TAKE(arena, float, g->m);
    double most = 0;
    if (!scaled)
        return NULL;
    for (int64_t j = 0; j < g->m; j++)
        most = weight[j] > most ? weight[j] : most;
    for (int64_t j = 0; j < g->m; j++)
        scaled[j] = most > 0 ? (float)(weight[j] / most) : 0.0f;
    return scaled;
}

static inline __attribute__((always_inline)) int coarsen(const hg_graph *g, const uint8_t *device, const float *weight,
                                                         const int32_t *label, int32_t count, const int weighted,
                                                         const int ascending, hg_coarse *coarse, hg_arena *arena,
                                                         hg_watch *watch)
{
    const int32_t n = g->n;
    int32_t *start = HG_TAKE(arena, int32_t, (int64_t)count + 1);
    int32_t *member = HG_TAKE(arena, int32_t, (int64_t)n + HG_LEAD);
    int32_t *slot = HG_TAKE(arena, int32_t, count); /* of a target: where the current row holds it */
    int32_t *row_start = HG_TAKE(arena, int32_t, (int64_t)count + 1);
    *coarse = (hg_coarse){.k = count};
    coarse->in_start = HG_TAKE_ZEROED(arena, int32_t, (int64_t)count + 1);
    coarse->out_start = HG_TAKE_ZEROED(arena, int32_t, (int64_t)count + 1);
    coarse->kind = HG_TAKE(arena, int32_t, count);
    coarse->size = HG_TAKE(arena, int32_t, count);
    int32_t *target = HG_TAKE(arena, int32_t, g->m); /* as many as there may be */
    float *sum = weighted ? HG_TAKE(arena, float, g->m) : NULL;
    if (arena->failed)
        return HG_NO_MEMORY;
    if (hg_members(n, label, NULL, count, start, member, watch) != HG_OK)
        return HG_INTERRUPTED;
    memset(member + n, 0, HG_LEAD * sizeof *member); /* what the last members prefetch */
    memset(slot, 0xFF, (size_t)count * sizeof *slot); /* -1 lies before every row */
    int32_t edges = 0;
    int64_t work = 0;
    for (int32_t s = 0; s < count; s++) {
        const int32_t begin = edges;
        row_start[s] = begin;
        slot[s] = INT32_MAX; /* edges within s write only where the next one will */
        coarse->kind[s] = device[member[start[s]]];
        coarse->size[s] = start[s + 1] - start[s];
        for (int32_t i = start[s]; i < start[s + 1]; i++) {
            const int32_t v = member[i];
            HG_PREFETCH(&g->indptr[member[i + HG_LEAD]]);
            HG_PREFETCH(&g->indices[g->indptr[member[i + HG_LEAD / 2]]]);
            for (int32_t j = g->indptr[v]; j < g->indptr[v + 1]; j++) {
                const int32_t t = label[g->indices[j]];
                /* No branches, since the processor could not predict them. The entry at `edges` is written in any case,
                 * and kept only for the first edge from s to t. */
                const int32_t is_new = slot[t] < begin;
                slot[t] ^= (slot[t] ^ edges) & -is_new;
                target[edges] = t;
                if (weighted) {
                    sum[edges] = 0;
                    sum[slot[t] < edges ? slot[t] : edges] += weight ? weight[j] : 1.0f;
                }
                edges += is_new;
                coarse->in_start[t + 1] += is_new;
            }
        }
        if (hg_interrupted_after(watch, &work, 8 * (int64_t)(start[s + 1] - start[s])))
            return HG_INTERRUPTED;
    }
    row_start[count] = edges;
    coarse->edges = edges;
    hg_shrink(arena, target, edges, sizeof *target); /* what follows uses memory that is mapped already */
    if (weighted) {
        float *moved = HG_TAKE(arena, float, edges);
        if (!moved)
            return HG_NO_MEMORY;
        sum = (float *)memmove(moved, sum, (size_t)edges * sizeof *sum);
    }

    /* A transposition leaves ascending rows. The second one writes over the rows as found. */
    coarse->in = HG_TAKE(arena, int32_t, edges);
    coarse->out = target;
    coarse->in_weight = weighted ? HG_TAKE(arena, float, edges) : NULL;
    coarse->out_weight = sum;
    if (arena->failed)
        return HG_NO_MEMORY;
    for (int32_t s = 0; s < count; s++) {
        coarse->in_start[s + 1] += coarse->in_start[s];
        coarse->out_start[s + 1] = row_start[s + 1];
    }
    for (int32_t s = 0; s < count; s++) {
        for (int32_t j = row_start[s]; j < row_start[s + 1]; j++) {
            const int32_t position = coarse->in_start[target[j]]++;
            coarse->in[position] = s;
            if (weighted)
                coarse->in_weight[position] = sum[j];
        }
        if (!(s & 0xFFFF) && hg_interrupted(watch, 1 << 18))
            return HG_INTERRUPTED;
    }
    memmove(coarse->in_start + 1, coarse->in_start, (size_t)count * sizeof(int32_t));
    coarse->in_start[0] = 0;
    if (!ascending)
        return HG_OK;
    for (int32_t t = 0; t < count; t++) {
        for (int32_t j = coarse->in_start[t]; j < coarse->in_start[t + 1]; j++) {
            const int32_t position = row_start[coarse->in[j]]++;
            coarse->out[position] = t;
            if (weighted)
                coarse->out_weight[position] = coarse->in_weight[j];
        }
        if (!(t & 0xFFFF) && hg_interrupted(watch, 1 << 18))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

int hg_coarsen(const hg_graph *g, const uint8_t *device, const float *weight, const int32_t *label, int32_t count,
               int weighted, int ascending, hg_coarse *coarse, hg_arena *arena, hg_watch *watch)
{
    return weighted ? coarsen(g, device, weight, label, count, 1, ascending, coarse, arena, watch)
                    : coarsen(g, device, weight, label, count, 0, ascending, coarse, arena, watch);
}
