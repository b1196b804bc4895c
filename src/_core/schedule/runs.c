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
 * topological order; and no edge joins two components of a run. O(nodes + readers). */
#include "../union_find.h"
#include "schedule.h"

typedef struct {
    int32_t number;  /* of the open run, or -1 */
    double ready;    /* when its inputs are there, and the runs of its lane before it have ended */
    double work;     /* its launch and its nodes */
    double deadline; /* the earliest latest start of a reader on another device */
} open_run;

/* schedule->end -> the latest end of each place, in place. deadline [n]: the earliest latest start of a reader on another
 * device. latest_start [n] is scratch. */
static int latest_ends(const hg_machine *m, hg_node_schedule *schedule, double *deadline, double *latest_start,
                       hg_watch *watch)
{
    double lane_latest[HG_MOST_LANES];
    for (int lane = 0; lane < HG_MOST_LANES; lane++)
        lane_latest[lane] = schedule->makespan;
    int64_t units = 0;
    for (int32_t i = m->n - 1; i >= 0; i--) {
        const int32_t p = schedule->sequence[i], begin = schedule->next_start[p], end = schedule->next_start[p + 1];
        double *const lane = &lane_latest[m->lane[schedule->device[p]]];
        double latest = *lane, foreign = INFINITY;
        for (int32_t j = begin; j < end; j++) {
            const double start = latest_start[schedule->next[j] >> 1];
            latest = start < latest ? start : latest;
            foreign = schedule->next[j] & 1 && start < foreign ? start : foreign;
        }
        schedule->end[p] = latest;
        deadline[p] = foreign;
        *lane = latest_start[p] = latest - schedule->seconds[p];
        if (hg_interrupted_after(watch, &units, 4 + 2 * (int64_t)(end - begin)))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

/* The places on other devices that each place reads: start [n + 1], and the rows. */
static int foreign_reads(int32_t n, const hg_node_schedule *schedule, int32_t *start, int32_t **rows, hg_arena *arena,
                         hg_watch *watch)
{
    const int32_t edges = schedule->next_start[n];
    memset(start, 0, ((size_t)n + 1) * sizeof *start);
    for (int32_t j = 0; j < edges; j++)
        start[(schedule->next[j] >> 1) + 1] += schedule->next[j] & 1;
    if (hg_counts_to_starts(n, start, watch) != HG_OK || hg_interrupted(watch, 4 * (int64_t)edges))
        return HG_INTERRUPTED;
    int32_t *row = *rows = HG_TAKE(arena, int32_t, start[n]);
    if (!row)
        return HG_NO_MEMORY;
    for (int32_t p = 0; p < n; p++)
        for (int32_t j = schedule->next_start[p]; j < schedule->next_start[p + 1]; j++)
            if (schedule->next[j] & 1)
                row[start[schedule->next[j] >> 1]++] = p;
    memmove(start + 1, start, (size_t)n * sizeof *start); /* each start has moved to the end of its row */
    start[0] = 0;
    return hg_interrupted(watch, 4 * (int64_t)edges) ? HG_INTERRUPTED : HG_OK;
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
            const int32_t a = hg_find(parent, producer), b = hg_find(parent, reader);
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
        const int32_t root = hg_find(parent, v);
        label[v] = root == v ? (*count)++ : label[root];
        if (hg_interrupted_at(watch, v, 4))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

/* run [n]: the number of the run of each place. */
static int number_runs(const hg_machine *m, const hg_node_schedule *schedule, const double *deadline,
                       const int32_t *read_start, const int32_t *read, int32_t *run, hg_arena *arena, hg_watch *watch)
{
    const int32_t n = m->n;
    double *run_end = HG_TAKE(arena, double, n); /* of closed runs */
    open_run *open = HG_TAKE(arena, open_run, m->costs->k);
    if (!run_end || !open)
        return HG_NO_MEMORY;
    for (int d = 0; d < m->costs->k; d++)
        open[d].number = -1;
    double lane_free[HG_MOST_LANES] = {0}, late = 0;
    int32_t runs = 0;
    int64_t units = 0;
    for (int32_t i = 0; i < n; i++) {
        const int32_t p = schedule->sequence[i];
        const int own = schedule->device[p];
        open_run *mine = &open[own];
        double ready = 0;
        for (int32_t j = read_start[p]; j < read_start[p + 1]; j++) {
            const int from = schedule->device[read[j]];
            open_run *producer = &open[from];
            const int32_t number = run[read[j]];
            if (producer->number == number) {
                const double end = run_end[number] = producer->ready + producer->work;
                double *lane = &lane_free[m->lane[from]];
                *lane = end > *lane ? end : *lane;
                late = end - producer->deadline > late ? end - producer->deadline : late;
                producer->number = -1;
            }
            const double at = run_end[number] + m->hand_over;
            ready = at > ready ? at : ready;
        }
        const double work = schedule->work[p], launch = m->launch[own];
        if (mine->number >= 0) {
            const double end = mine->ready + mine->work;
            const double joined = (ready > mine->ready ? ready : mine->ready) + mine->work + work;
            const double apart = (ready > end ? ready : end) + launch + work;
            const double lateness = end - mine->deadline > late ? end - mine->deadline : late;
            if (joined <= mine->deadline + lateness + launch &&
                (joined <= apart || joined <= schedule->end[p] + lateness + launch)) {
                mine->ready = ready > mine->ready ? ready : mine->ready;
                mine->work += work;
                mine->deadline = deadline[p] < mine->deadline ? deadline[p] : mine->deadline;
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
            *mine = (open_run){runs++, ready > lane ? ready : lane, launch + work, deadline[p]};
        }
        run[p] = mine->number;
        if (hg_interrupted_after(watch, &units, 16 + 2 * (int64_t)(read_start[p + 1] - read_start[p])))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

int hg_runs(const hg_machine *m, const int32_t *device, int32_t *label, int32_t *count, hg_arena *arena,
            hg_watch *watch)
{
    const int32_t n = m->n;
    hg_node_schedule schedule;
    int status = hg_schedule_nodes(m, device, &schedule, arena, watch);
    if (status != HG_OK)
        return status;
    int32_t *run = HG_TAKE(arena, int32_t, n), *run_of_node = HG_TAKE(arena, int32_t, n);
    double *deadline = HG_TAKE(arena, double, n), *latest_start = HG_TAKE(arena, double, n);
    int32_t *read_start = HG_TAKE(arena, int32_t, (int64_t)n + 1), *read = NULL;
    if (!run || !run_of_node || !deadline || !latest_start || !read_start)
        return HG_NO_MEMORY;
    status = latest_ends(m, &schedule, deadline, latest_start, watch);
    if (status == HG_OK)
        status = foreign_reads(n, &schedule, read_start, &read, arena, watch);
    if (status == HG_OK)
        status = number_runs(m, &schedule, deadline, read_start, read, run, arena, watch);
    for (int32_t p = 0; p < n && status == HG_OK; p++) {
        run_of_node[schedule.node[p]] = run[p];
        if (hg_interrupted_at(watch, p, 4))
            status = HG_INTERRUPTED;
    }
    return status == HG_OK ? components(m, run_of_node, label, count, run, watch) : status;
}
