/* A lower bound for the time of one inference, whatever the assignment and the partition.
 *
 * 1. The longest path, with each node on its fastest device.
 * 2. Work over speed: for weights y >= 0 of lanes with sum 1, each lane is busy for at most the makespan, so the
 *    makespan is at least the sum over nodes of the least y[lane] * work. If the speeds of the devices have the same
 *    ratio at all nodes, the weights 1 / (work of all nodes) give total work over total speed; otherwise,
 *    multiplicative updates improve the weights.
 * 3. For each lane, the nodes that only this lane takes: they run one after the other. The first of them starts after the
 *    shortest path to one of them, and the shortest path from one of them remains after the last.
 * All plus the cheapest launch. Transfers are left out. O(readers + nodes * devices * rounds). */
#include "schedule.h"

enum { ROUNDS = 24 };
static const double COST_PER_BOUND = 6.4e7; /* nodes * devices * rounds: about 0.1 s */
static const double LEAST_WORK = 1e-300;    /* seconds of a lane, so that its weight is finite */

/* The nodes that only one lane takes, all that remains after each of them, and all that comes before it. */
typedef struct {
    double work, head, tail; /* seconds; head, tail: the least over the nodes */
} only_here;

static double weighted_work(const hg_machine *m, const double *weight, double *load)
{
    const hg_costs *costs = m->costs;
    double sum = 0;
    memset(load, 0, HG_MOST_LANES * sizeof *load);
    for (int32_t v = 0; v < m->n; v++) {
        double least = INFINITY, seconds = 0;
        int on = 0;
        for (int d = 0; d < costs->k; d++) {
            const double w = costs->work[(int64_t)d * costs->n + v];
            if (isfinite(w) && weight[m->lane[d]] * w < least) {
                least = weight[m->lane[d]] * w;
                seconds = w;
                on = m->lane[d];
            }
        }
        sum += least;
        load[on] += seconds;
    }
    return sum;
}

int hg_makespan_bound(const hg_machine *m, double *bound, hg_arena *arena, hg_watch *watch)
{
    const hg_costs *costs = m->costs;
    *bound = 0;
    double *after = HG_TAKE(arena, double, m->n), *least_of = HG_TAKE(arena, double, m->n);
    int16_t *only_lane = HG_TAKE(arena, int16_t, m->n); /* -1: several lanes take the node */
    if (!after || !least_of || !only_lane)
        return HG_NO_MEMORY;
    only_here only[HG_MOST_LANES];
    for (int lane = 0; lane < HG_MOST_LANES; lane++)
        only[lane] = (only_here){0, INFINITY, INFINITY};
    uint8_t is_used[HG_MOST_LANES] = {0};
    double lane_work[HG_MOST_LANES] = {0}, path = 0, launch = INFINITY;
    int64_t units = 0;
    for (int32_t i = m->n - 1; i >= 0; i--) {
        const int32_t v = hg_node_at(m, i);
        double longest = 0, least = INFINITY;
        int lane = -1, takers = 0;
        for (int32_t j = m->made_start[v]; j < m->made_start[v + 1]; j++) {
            const int32_t value = m->made[j];
            for (int32_t r = costs->indptr[value]; r < costs->indptr[value + 1]; r++) {
                const int32_t reader = costs->readers[r];
                if (reader < m->n && reader != v && after[reader] > longest)
                    longest = after[reader];
            }
            units += 2 + costs->indptr[value + 1] - costs->indptr[value];
        }
        for (int d = 0; d < costs->k; d++) {
            const double w = costs->work[(int64_t)d * costs->n + v];
            least = w < least ? w : least;
            if (isfinite(w)) {
                lane = !takers++ || lane == m->lane[d] ? m->lane[d] : -1;
                is_used[m->lane[d]] = 1;
                lane_work[m->lane[d]] += w;
                launch = m->launch[d] < launch ? m->launch[d] : launch;
            }
        }
        after[v] = longest + least;
        path = after[v] > path ? after[v] : path;
        least_of[v] = least;
        only_lane[v] = (int16_t)lane;
        if (lane >= 0) {
            only[lane].work += least;
            only[lane].tail = longest < only[lane].tail ? longest : only[lane].tail;
        }
        if (hg_interrupted_after(watch, &units, 4 + 2 * costs->k))
            return HG_INTERRUPTED;
    }
    if (!m->n)
        return HG_OK;
    double *ready = after; /* when the inputs of each node are there, at the earliest */
    for (int32_t i = 0; i < m->n; i++) {
        const int32_t v = hg_node_at(m, i);
        double at = 0;
        for (int32_t j = m->read_start[v]; j < m->read_start[v + 1]; j++) {
            const int32_t u = costs->producer[m->read[j]];
            if (u < m->n && u != v && ready[u] + least_of[u] > at)
                at = ready[u] + least_of[u];
        }
        ready[v] = at;
        if (only_lane[v] >= 0 && at < only[only_lane[v]].head)
            only[only_lane[v]].head = at;
        if (hg_interrupted_after(watch, &units, 4 + 2 * (int64_t)(m->read_start[v + 1] - m->read_start[v])))
            return HG_INTERRUPTED;
    }
    for (int lane = 0; lane < HG_MOST_LANES; lane++)
        if (only[lane].head + only[lane].work + only[lane].tail > path && isfinite(only[lane].head))
            path = only[lane].head + only[lane].work + only[lane].tail;
    double weight[HG_MOST_LANES] = {0}, load[HG_MOST_LANES], best = 0, sum = 0;
    for (int lane = 0; lane < HG_MOST_LANES; lane++)
        if (is_used[lane])
            sum += weight[lane] = 1 / (lane_work[lane] > LEAST_WORK ? lane_work[lane] : LEAST_WORK);
    const double affordable = COST_PER_BOUND / ((double)m->n * costs->k);
    /* unreached: fewer than 2, for 32 million pairs of node and device */
    const int rounds = affordable < 2 ? 2 : affordable > ROUNDS ? ROUNDS : (int)affordable;
    for (int round = 0; round < rounds; round++) {
        for (int lane = 0; lane < HG_MOST_LANES; lane++)
            weight[lane] /= sum;
        const double value = weighted_work(m, weight, load);
        best = value > best ? value : best;
        double greatest = 0;
        for (int lane = 0; lane < HG_MOST_LANES; lane++)
            greatest = load[lane] > greatest ? load[lane] : greatest;
        if (greatest <= 0)
            break;
        sum = 0;
        for (int lane = 0; lane < HG_MOST_LANES; lane++)
            if (is_used[lane])
                sum += weight[lane] *= exp((load[lane] / greatest - 0.5) * 2 / (2 + round));
        if (hg_interrupted(watch, 2 * (int64_t)m->n * costs->k))
            return HG_INTERRUPTED;
    }
    *bound = (path > best ? path : best) + launch;
    return HG_OK;
}
