/* List scheduling of single nodes by upward rank, the longest time from the start of a node to the end of the last.
 *
 * On given devices: events. A lane that is free starts its ready node of highest rank (a heap per lane). With devices
 * to choose: H. Topcuoglu, S. Hariri and M.-Y. Wu, "Performance-effective and low-complexity task scheduling for
 * heterogeneous computing", IEEE TPDS 13(3), 2002 (HEFT), without insertion into gaps: the ready node of highest mean
 * rank goes to the device on which it ends first.
 *
 * A node pays for the transfers of values that no node of its device has fetched, and, if it reads a value of a node on
 * another device, for a launch, because a subgraph has to begin there.
 * O((nodes + readers) log nodes), with devices to choose O(nodes log nodes + readers * devices). */
#include "heap.h"
#include "schedule.h"

/* work [n], and whether each node reads a value that a node of another device makes. */
static int node_times(const hg_machine *m, const int32_t *device, double *work, uint8_t *is_foreign, hg_arena *arena,
                      hg_watch *watch)
{
    const hg_costs *costs = m->costs;
    int32_t *seen = HG_TAKE_ZEROED(arena, int32_t, costs->k); /* by device: the last value, plus one, fetched there */
    if (!seen)
        return HG_NO_MEMORY;
    for (int32_t v = 0; v < m->n; v++) {
        work[v] = costs->work[(int64_t)device[v] * costs->n + v];
        is_foreign[v] = 0;
        if (hg_interrupted_at(watch, v, 2))
            return HG_INTERRUPTED;
    }
    for (int32_t value = 0; value < costs->num_values; value++) {
        const int32_t producer = costs->producer[value];
        const int32_t from = producer < m->n ? device[producer] : m->host_device[producer - m->n];
        int32_t result_on = -1;
        for (int32_t i = costs->indptr[value]; i < costs->indptr[value + 1]; i++) {
            const int32_t reader = costs->readers[i];
            if (reader >= m->n) {
                result_on = m->host_device[reader - m->n];
                continue;
            }
            const int32_t to = device[reader];
            if (to == from)
                continue;
            is_foreign[reader] |= producer < m->n;
            if (seen[to] != value + 1) {
                seen[to] = value + 1;
                work[reader] += hg_transfer(costs, value, from, to);
            }
        }
        if (result_on >= 0 && result_on != from && seen[result_on] != value + 1 && producer < m->n)
            work[producer] += hg_transfer(costs, value, from, result_on);
        if (hg_interrupted(watch, 2 + costs->indptr[value + 1] - costs->indptr[value]))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

/* key [n]: minus the rank. crossing [values]: added between a producer and its readers, or NULL. */
static int node_keys(const hg_machine *m, const double *seconds, const double *crossing, double *key, hg_watch *watch)
{
    const hg_costs *costs = m->costs;
    int64_t work = 0;
    for (int32_t i = m->n - 1; i >= 0; i--) {
        const int32_t v = hg_node_at(m, i);
        double after = 0;
        for (int32_t j = m->made_start[v]; j < m->made_start[v + 1]; j++) {
            const int32_t value = m->made[j];
            const double extra = crossing ? crossing[value] : 0;
            for (int32_t r = costs->indptr[value]; r < costs->indptr[value + 1]; r++) {
                const int32_t reader = costs->readers[r];
                if (reader < m->n && key[reader] - extra < after)
                    after = key[reader] - extra;
            }
            work += 2 + costs->indptr[value + 1] - costs->indptr[value];
        }
        key[v] = after - seconds[v];
        if (hg_interrupted_after(watch, &work, 4))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

/* waits [n]: the number of values that each node reads from other nodes of the graph. */
static void count_waits(const hg_machine *m, int32_t *waits)
{
    for (int32_t v = 0; v < m->n; v++) {
        waits[v] = 0;
        for (int32_t i = m->read_start[v]; i < m->read_start[v + 1]; i++) {
            const int32_t producer = m->costs->producer[m->read[i]];
            waits[v] += producer < m->n && producer != v;
        }
    }
}

int hg_schedule_nodes(const hg_machine *m, const int32_t *device, hg_node_schedule *schedule, hg_arena *arena,
                      hg_watch *watch)
{
    const hg_costs *costs = m->costs;
    const int32_t n = m->n;
    double *work = HG_TAKE(arena, double, n), *seconds = HG_TAKE(arena, double, n), *end = HG_TAKE(arena, double, n);
    int32_t *sequence = HG_TAKE(arena, int32_t, n);
    if (!work || !seconds || !end || !sequence)
        return HG_NO_MEMORY;
    const hg_mark mark = hg_arena_mark(arena);
    double *key = HG_TAKE(arena, double, n);
    uint8_t *is_foreign = HG_TAKE(arena, uint8_t, n);
    int32_t *waits = HG_TAKE(arena, int32_t, n);
    hg_entry *entries = HG_TAKE(arena, hg_entry, n);
    if (!key || !is_foreign || !waits || !entries)
        return HG_NO_MEMORY;
    int status = node_times(m, device, work, is_foreign, arena, watch);
    if (status != HG_OK)
        return status;
    int32_t of_lane[HG_MOST_LANES + 1] = {0};
    for (int32_t v = 0; v < n; v++) {
        seconds[v] = work[v] + (is_foreign[v] ? m->launch[device[v]] : 0);
        of_lane[m->lane[device[v]] + 1]++;
        if (hg_interrupted_at(watch, v, 2))
            return HG_INTERRUPTED;
    }
    status = node_keys(m, seconds, NULL, key, watch);
    if (status != HG_OK)
        return status;
    hg_heap ready[HG_MOST_LANES] = {{0}};
    for (int lane = 0; lane < HG_MOST_LANES; lane++) {
        of_lane[lane + 1] += of_lane[lane];
        ready[lane].entry = entries + of_lane[lane];
    }
    count_waits(m, waits);
    if (hg_interrupted(watch, 4 * (int64_t)n))
        return HG_INTERRUPTED;
    uint8_t is_busy[HG_MOST_LANES] = {0}, is_touched[HG_MOST_LANES] = {0}, touched[HG_MOST_LANES];
    int num_touched = 0;
    for (int32_t v = 0; v < n; v++)
        if (!waits[v])
            hg_push(&ready[m->lane[device[v]]], key[v], v);
    for (int lane = 0; lane < HG_MOST_LANES; lane++)
        touched[num_touched++] = (uint8_t)lane;
    int32_t at_work[HG_MOST_LANES], num_at_work = 0, started = 0;
    double now = 0;
    int64_t units = 0;
    for (;;) {
        for (int i = 0; i < num_touched; i++) {
            const int lane = touched[i];
            is_touched[lane] = 0;
            if (is_busy[lane] || !ready[lane].count)
                continue;
            const int32_t v = hg_pop(&ready[lane]);
            is_busy[lane] = 1;
            end[v] = now + seconds[v];
            at_work[num_at_work++] = v;
            sequence[started++] = v;
        }
        if (!num_at_work)
            break;
        int next = 0;
        for (int i = 1; i < num_at_work; i++)
            if (end[at_work[i]] < end[at_work[next]])
                next = i;
        const int32_t v = at_work[next];
        at_work[next] = at_work[--num_at_work];
        now = end[v];
        num_touched = 0;
        const int own = m->lane[device[v]];
        is_busy[own] = 0;
        is_touched[own] = 1;
        touched[num_touched++] = (uint8_t)own;
        for (int32_t j = m->made_start[v]; j < m->made_start[v + 1]; j++) {
            const int32_t value = m->made[j];
            for (int32_t r = costs->indptr[value]; r < costs->indptr[value + 1]; r++) {
                const int32_t reader = costs->readers[r];
                if (reader >= n || reader == v || --waits[reader])
                    continue;
                const int lane = m->lane[device[reader]];
                hg_push(&ready[lane], key[reader], reader);
                if (!is_touched[lane]) {
                    is_touched[lane] = 1;
                    touched[num_touched++] = (uint8_t)lane;
                }
            }
            units += costs->indptr[value + 1] - costs->indptr[value];
        }
        if (hg_interrupted_after(watch, &units, 16 + num_at_work))
            return HG_INTERRUPTED;
    }
    if (started < n)
        return HG_CYCLE;
    *schedule = (hg_node_schedule){work, seconds, sequence, end, now};
    hg_arena_release(arena, mark);
    return HG_OK;
}

/* mean [n]: of the work over the devices that support each node; crossing [values]: of transfer and launch over pairs
 * of the devices, times the chance that two random devices differ. */
static int mean_times(const hg_machine *m, double *mean, double *crossing, hg_watch *watch)
{
    const hg_costs *costs = m->costs;
    const int k = costs->k;
    uint8_t is_used[HG_MOST_LANES] = {0};
    int64_t units = 0;
    for (int32_t v = 0; v < m->n; v++) {
        double sum = 0;
        int count = 0;
        for (int d = 0; d < k; d++) {
            const double w = costs->work[(int64_t)d * costs->n + v];
            if (isfinite(w)) {
                sum += w;
                count++;
                is_used[d] = 1;
            }
        }
        mean[v] = sum / count;
        if (hg_interrupted_after(watch, &units, 2 + k))
            return HG_INTERRUPTED;
    }
    double latency = 0, per_unit = 0, launch = 0;
    int used = 0, pairs = 0;
    for (int a = 0; a < k; a++) {
        used += is_used[a];
        launch += is_used[a] ? m->launch[a] : 0;
        for (int b = 0; b < k; b++)
            if (a != b && is_used[a] && is_used[b]) {
                latency += costs->latency[a * k + b];
                per_unit += costs->per_unit[a * k + b];
                pairs++;
            }
    }
    const double chance = used > 1 ? 1 - 1.0 / used : 0;
    for (int32_t value = 0; value < costs->num_values; value++) {
        const double transfer = pairs ? (latency + per_unit * costs->size[value]) / pairs : 0;
        crossing[value] = chance * (transfer + (used ? launch / used : 0) + m->hand_over);
        if (hg_interrupted_at(watch, value, 2))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

int hg_assign_nodes(const hg_machine *m, int32_t *device, hg_arena *arena, hg_watch *watch)
{
    const hg_costs *costs = m->costs;
    const int32_t n = m->n;
    const int k = costs->k, words = (k + 63) / 64;
    double *mean = HG_TAKE(arena, double, n), *key = HG_TAKE(arena, double, n), *end = HG_TAKE(arena, double, n);
    double *crossing = HG_TAKE(arena, double, costs->num_values);
    int32_t *waits = HG_TAKE(arena, int32_t, n);
    hg_heap ready = {HG_TAKE(arena, hg_entry, n), 0};
    uint64_t *fetched = HG_TAKE_ZEROED(arena, uint64_t, (int64_t)costs->num_values * words); /* bits of devices */
    if (!mean || !key || !end || !crossing || !waits || !ready.entry || !fetched)
        return HG_NO_MEMORY;
    int status = mean_times(m, mean, crossing, watch);
    if (status == HG_OK)
        status = node_keys(m, mean, crossing, key, watch);
    if (status != HG_OK)
        return status;
    count_waits(m, waits);
    double free_at[HG_MOST_LANES] = {0};
    for (int32_t v = 0; v < n; v++)
        if (!waits[v])
            hg_push(&ready, key[v], v);
    int32_t assigned = 0;
    int64_t units = 0;
    while (ready.count) {
        const int32_t v = hg_pop(&ready);
        const int32_t first = m->read_start[v], last = m->read_start[v + 1];
        double best_end = INFINITY;
        int best = -1;
        for (int d = 0; d < k; d++) {
            double seconds = costs->work[(int64_t)d * costs->n + v], begin = free_at[m->lane[d]];
            if (!isfinite(seconds) || begin + seconds >= best_end)
                continue;
            int is_foreign = 0;
            for (int32_t i = first; i < last; i++) {
                const int32_t value = m->read[i], producer = costs->producer[value];
                const int is_node = producer < n;
                if (producer == v)
                    continue;
                const int from = is_node ? device[producer] : m->host_device[producer - n];
                double at = is_node ? end[producer] : 0;
                if (from != d) {
                    if (!(fetched[(int64_t)value * words + d / 64] >> (d % 64) & 1))
                        seconds += hg_transfer(costs, value, from, d);
                    is_foreign |= is_node;
                    at += is_node ? m->hand_over : 0;
                }
                begin = at > begin ? at : begin;
            }
            seconds += is_foreign ? m->launch[d] : 0;
            if (begin + seconds < best_end) {
                best_end = begin + seconds;
                best = d;
            }
        }
        HT_ASSERT(best >= 0); /* some device supports each node, and times are finite */
        device[v] = best;
        end[v] = free_at[m->lane[best]] = best_end;
        for (int32_t i = first; i < last; i++)
            fetched[(int64_t)m->read[i] * words + best / 64] |= (uint64_t)1 << (best % 64);
        assigned++;
        for (int32_t j = m->made_start[v]; j < m->made_start[v + 1]; j++) {
            const int32_t value = m->made[j];
            for (int32_t r = costs->indptr[value]; r < costs->indptr[value + 1]; r++) {
                const int32_t reader = costs->readers[r];
                if (reader < n && reader != v && !--waits[reader])
                    hg_push(&ready, key[reader], reader);
            }
            units += costs->indptr[value + 1] - costs->indptr[value];
        }
        if (hg_interrupted_after(watch, &units, 8 + (int64_t)k * (1 + last - first)))
            return HG_INTERRUPTED;
    }
    return assigned == n ? HG_OK : HG_CYCLE;
}
