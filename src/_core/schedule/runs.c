/* The cut into runs: subgraphs that keep the devices as busy as a schedule of single nodes does.
 *
 * 1. A list schedule of the nodes on their devices, and the latest end of each node that delays neither the last node,
 *    nor a reader, nor the next node of its lane.
 * 2. One pass over the nodes in the order in which they start. A node joins the open run of its device unless the run
 *    would then end too late for a reader of one of its nodes on another device, or, because it would have to wait for
 *    the node's inputs, too late for the nodes after it; a launch later than the schedule says is not too late, and
 *    neither is what the runs before were late by. A run that a node of another device reads closes before that node.
 * 3. The connected components of the runs.
 *
 * The quotient is acyclic: a run closes before a run that reads it gets the reading node, so runs close in a
 * topological order; and no edge joins two components of a run. O((nodes + readers) log nodes), for step 1. */
#include "schedule.h"

typedef struct {
    int32_t number;  /* of the open run, or -1 */
    double ready;    /* when its inputs are there, and the runs of its lane before it have ended */
    double work;     /* its launch and its nodes */
    double deadline; /* the earliest latest start of a reader on another device */
} open_run;

/* end of each node -> its latest end, in place. */
static int latest_ends(const hg_machine *m, const int32_t *device, hg_node_schedule *schedule, hg_watch *watch)
{
    const hg_costs *costs = m->costs;
    double lane_latest[HG_MOST_LANES];
    for (int lane = 0; lane < HG_MOST_LANES; lane++)
        lane_latest[lane] = schedule->makespan;
    int64_t units = 0;
    for (int32_t i = m->n - 1; i >= 0; i--) {
        const int32_t v = schedule->sequence[i];
        double latest = lane_latest[m->lane[device[v]]];
        for (int32_t j = m->made_start[v]; j < m->made_start[v + 1]; j++) {
            const int32_t value = m->made[j];
            for (int32_t r = costs->indptr[value]; r < costs->indptr[value + 1]; r++) {
                const int32_t reader = costs->readers[r];
                if (reader >= m->n || reader == v)
                    continue;
                const double start = schedule->end[reader] - schedule->seconds[reader];
                latest = start < latest ? start : latest;
            }
            units += 2 + costs->indptr[value + 1] - costs->indptr[value];
        }
        schedule->end[v] = latest;
        lane_latest[m->lane[device[v]]] = latest - schedule->seconds[v];
        if (hg_interrupted_after(watch, &units, 4))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

static double latest_start_of_foreign_reader(const hg_machine *m, const int32_t *device,
                                             const hg_node_schedule *schedule, int32_t v)
{
    double earliest = INFINITY;
    for (int32_t j = m->made_start[v]; j < m->made_start[v + 1]; j++) {
        const int32_t value = m->made[j];
        for (int32_t r = m->costs->indptr[value]; r < m->costs->indptr[value + 1]; r++) {
            const int32_t reader = m->costs->readers[r];
            if (reader >= m->n || device[reader] == device[v])
                continue;
            const double start = schedule->end[reader] - schedule->seconds[reader];
            earliest = start < earliest ? start : earliest;
        }
    }
    return earliest;
}

static inline int32_t find(int32_t *parent, int32_t x)
{
    while (parent[x] != x) {
        parent[x] = parent[parent[x]];
        x = parent[x];
    }
    return x;
}

/* run [n] -> label [n]: the components of runs. parent [n] is scratch. */
static int components(const hg_machine *m, const int32_t *run, int32_t *label, int32_t *count, int32_t *parent,
                      hg_watch *watch)
{
    const hg_costs *costs = m->costs;
    for (int32_t v = 0; v < m->n; v++)
        parent[v] = v;
    for (int32_t value = 0; value < costs->num_values; value++) {
        const int32_t producer = costs->producer[value];
        if (producer >= m->n)
            continue;
        for (int32_t r = costs->indptr[value]; r < costs->indptr[value + 1]; r++) {
            const int32_t reader = costs->readers[r];
            if (reader >= m->n || run[reader] != run[producer])
                continue;
            const int32_t a = find(parent, producer), b = find(parent, reader);
            if (a < b)
                parent[b] = a;
            else
                parent[a] = b;
        }
        if (hg_interrupted(watch, 2 + 4 * (costs->indptr[value + 1] - costs->indptr[value])))
            return HG_INTERRUPTED;
    }
    *count = 0;
    for (int32_t v = 0; v < m->n; v++) { /* the root is the smallest node */
        const int32_t root = find(parent, v);
        label[v] = root == v ? (*count)++ : label[root];
        if (hg_interrupted_at(watch, v, 4))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

int hg_runs(const hg_machine *m, const int32_t *device, int32_t *label, int32_t *count, hg_arena *arena,
            hg_watch *watch)
{
    const hg_costs *costs = m->costs;
    const int32_t n = m->n;
    hg_node_schedule schedule;
    int status = hg_schedule_nodes(m, device, &schedule, arena, watch);
    if (status == HG_OK)
        status = latest_ends(m, device, &schedule, watch);
    if (status != HG_OK)
        return status;
    int32_t *run = HG_TAKE(arena, int32_t, n), *parent = HG_TAKE(arena, int32_t, n);
    double *run_end = HG_TAKE(arena, double, n); /* of closed runs */
    open_run *open = HG_TAKE(arena, open_run, costs->k);
    if (!run || !run_end || !open || !parent)
        return HG_NO_MEMORY;
    for (int d = 0; d < costs->k; d++)
        open[d].number = -1;
    double lane_free[HG_MOST_LANES] = {0}, late = 0;
    int32_t runs = 0;
    int64_t units = 0;
    for (int32_t i = 0; i < n; i++) {
        const int32_t v = schedule.sequence[i];
        const int own = device[v];
        open_run *mine = &open[own];
        double ready = 0;
        for (int32_t j = m->read_start[v]; j < m->read_start[v + 1]; j++) {
            const int32_t producer = costs->producer[m->read[j]];
            if (producer >= n || device[producer] == own)
                continue;
            open_run *read = &open[device[producer]];
            const int32_t number = run[producer];
            if (read->number == number) {
                const double end = run_end[number] = read->ready + read->work;
                double *lane = &lane_free[m->lane[device[producer]]];
                *lane = end > *lane ? end : *lane;
                late = end - read->deadline > late ? end - read->deadline : late;
                read->number = -1;
            }
            const double at = run_end[number] + m->hand_over;
            ready = at > ready ? at : ready;
        }
        const double deadline = latest_start_of_foreign_reader(m, device, &schedule, v), launch = m->launch[own];
        if (mine->number >= 0) {
            const double end = mine->ready + mine->work;
            const double joined = (ready > mine->ready ? ready : mine->ready) + mine->work + schedule.work[v];
            const double apart = (ready > end ? ready : end) + launch + schedule.work[v];
            const double own_latest = schedule.end[v] < deadline ? schedule.end[v] : deadline;
            const double lateness = end - mine->deadline > late ? end - mine->deadline : late;
            if (joined <= mine->deadline + lateness + launch &&
                (joined <= apart || joined <= own_latest + lateness + launch)) {
                mine->ready = ready > mine->ready ? ready : mine->ready;
                mine->work += schedule.work[v];
                mine->deadline = deadline < mine->deadline ? deadline : mine->deadline;
            } else {
                double *lane = &lane_free[m->lane[own]];
                run_end[mine->number] = end;
                *lane = end > *lane ? end : *lane;
                late = lateness;
                mine->number = -1;
            }
        }
        if (mine->number < 0) {
            const double lane = lane_free[m->lane[own]];
            *mine = (open_run){runs++, ready > lane ? ready : lane, launch + schedule.work[v], deadline};
        }
        run[v] = mine->number;
        units += 2 * (m->read_start[v + 1] - m->read_start[v]) + 2 * (m->made_start[v + 1] - m->made_start[v]);
        if (hg_interrupted_after(watch, &units, 16))
            return HG_INTERRUPTED;
    }
    return components(m, run, label, count, parent, watch);
}
