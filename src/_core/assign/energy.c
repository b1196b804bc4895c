/* The cost of a labeling, added up node by node and value by value: O(nodes + values + readers). */
#include "assign.h"

int hg_energy_of(const hg_costs *costs, const int32_t *label, hg_energy *energy, hg_watch *watch)
{
    int64_t *seen = HG_NEW(int64_t, costs->k); /* by device: the last value, plus one, transferred to it */
    if (!seen)
        return HG_NO_MEMORY;
    memset(seen, 0, (size_t)costs->k * sizeof *seen);
    *energy = (hg_energy){0, 0, 0};
    int status = HG_OK;
    for (int32_t v = 0; v < costs->n && status == HG_OK; v++) {
        energy->work += costs->work[(int64_t)label[v] * costs->n + v];
        if (hg_interrupted_at(watch, v, 1))
            status = HG_INTERRUPTED;
    }
    for (int32_t i = 0; i < costs->num_values && status == HG_OK; i++) {
        const int from = label[costs->producer[i]];
        for (int32_t j = costs->indptr[i]; j < costs->indptr[i + 1]; j++) {
            const int to = label[costs->readers[j]];
            if (to != from && seen[to] != (int64_t)i + 1) {
                seen[to] = (int64_t)i + 1;
                energy->transfers += hg_transfer(costs, i, from, to);
                energy->num_transfers++;
            }
        }
        if (hg_interrupted(watch, 1 + costs->indptr[i + 1] - costs->indptr[i]))
            status = HG_INTERRUPTED;
    }
    free(seen);
    return status;
}
