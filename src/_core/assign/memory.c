/* Memory of assignments: ranges of nodes, the order in which devices are filled, and lives of values on devices.
 *
 * Each function makes a fixed number of passes over nodes, values and reads; rows come from counting sorts. Bytes are
 * whole numbers below 2^62 as double, so sums are exact up to 2^53 and then the same for the same order. */
#include "memory.h"

static inline double larger(double a, double b) { return a > b ? a : b; }

/* start [n + 2] counts at [key + 2]; afterwards row i is start[i + 1] .. start[i + 2] until it is filled by
 * start[key + 1]++, which leaves row i at start[i] .. start[i + 1]. */
static void add_up(int32_t n, int32_t *start)
{
    for (int32_t i = 0; i < n; i++)
        start[i + 2] += start[i + 1];
}

int hg_ranges_open(const hg_values *v, const int32_t *step_of, hg_ranges *r, hg_watch *watch)
{
    const int32_t n = v->n;
    int32_t *last_read = HG_NEW(int32_t, v->num_values), *by_step = HG_NEW(int32_t, v->num_reads);
    *r = (hg_ranges){.n = n};
    r->read_start = HG_NEW(int32_t, (int64_t)n + 2);
    r->made_start = HG_NEW(int32_t, (int64_t)n + 2);
    r->end_start = HG_NEW(int32_t, (int64_t)n + 2);
    r->read = HG_NEW(hg_range_read, v->num_reads);
    r->made = HG_NEW(double, v->num_values);
    r->end = HG_NEW(hg_range_end, v->num_values);
    r->own = HG_NEW(double, n);
    int status = last_read && by_step && r->read_start && r->made_start && r->end_start && r->read && r->made &&
                         r->end && r->own
                     ? HG_OK
                     : HG_NO_MEMORY;
    if (status == HG_OK)
        status = hg_fill(last_read, 0xFF, v->num_values * (int64_t)sizeof *last_read, watch);
    int32_t *starts[] = {r->read_start, r->made_start, r->end_start};
    for (int i = 0; i < 3 && status == HG_OK; i++)
        status = hg_fill(starts[i], 0, ((int64_t)n + 2) * (int64_t)sizeof(int32_t), watch);
    for (int64_t i = 0; i < v->num_reads && status == HG_OK; i++) {
        r->read_start[step_of[v->read_node[i]] + 2]++;
        if (!(i & 0xFFFF) && hg_interrupted(watch, 1 << 18))
            status = HG_INTERRUPTED;
    }
    if (status == HG_OK) {
        add_up(n, r->read_start);
        for (int64_t i = 0; i < v->num_reads; i++) /* by step, then as given: by value */
            by_step[r->read_start[step_of[v->read_node[i]] + 1]++] = (int32_t)i;
    }
    for (int64_t i = 0; i < v->num_reads && status == HG_OK; i++) {
        const int32_t value = v->read_value[by_step[i]], step = step_of[v->read_node[by_step[i]]];
        const int32_t producer = v->producer[value];
        const int32_t made = v->is_constant[value] ? HG_CONSTANT : producer < 0 ? -1 : step_of[producer];
        r->read[i] = (hg_range_read){v->bytes[value], last_read[value], made};
        last_read[value] = step;
        if (!(i & 0xFFFF) && hg_interrupted(watch, 1 << 19))
            status = HG_INTERRUPTED;
    }
    for (int pass = 0; pass < 2 && status == HG_OK; pass++) {
        for (int32_t value = 0; value < v->num_values; value++) {
            if (v->producer[value] < 0)
                continue;
            const int32_t made = step_of[v->producer[value]];
            const int32_t until = v->is_output[value] ? n : last_read[value] > made ? last_read[value] : made;
            if (pass == 0) {
                r->made_start[made + 2]++;
                if (until < n)
                    r->end_start[until + 2]++;
            } else {
                r->made[r->made_start[made + 1]++] = v->bytes[value];
                if (until < n)
                    r->end[r->end_start[until + 1]++] = (hg_range_end){v->bytes[value], made};
            }
        }
        if (pass == 0) {
            add_up(n, r->made_start);
            add_up(n, r->end_start);
        }
        if (hg_interrupted(watch, 8 * (int64_t)v->num_values))
            status = HG_INTERRUPTED;
    }
    for (int32_t i = 0; i < n && status == HG_OK; i++)
        r->own[step_of[i]] = v->own[i];
    free(last_read);
    free(by_step);
    return status;
}

void hg_ranges_close(hg_ranges *r)
{
    free(r->read_start);
    free(r->made_start);
    free(r->end_start);
    free(r->read);
    free(r->made);
    free(r->end);
    free(r->own);
    *r = (hg_ranges){0};
}

int hg_range_needs(const hg_ranges *r, int32_t begin, int32_t *end, double limit, double *weights, double *activations,
                   double *need, hg_watch *watch)
{
    double constants = 0, held = 0, alive = 0, peak = 0;
    *need = 0;
    for (int32_t step = begin; step < *end; step++) {
        for (int32_t i = r->read_start[step]; i < r->read_start[step + 1]; i++) {
            const hg_range_read *read = &r->read[i];
            if (read->previous >= begin)
                continue;
            if (read->made == HG_CONSTANT)
                constants += read->bytes;
            else if (read->made < begin)
                held += read->bytes;
        }
        constants += r->own[step];
        for (int32_t i = r->made_start[step]; i < r->made_start[step + 1]; i++)
            alive += r->made[i];
        for (int32_t i = step > begin ? r->end_start[step - 1] : 0; step > begin && i < r->end_start[step]; i++)
            if (r->end[i].made >= begin)
                alive -= r->end[i].bytes;
        peak = step == begin ? alive : larger(peak, alive);
        if (constants + (held + peak) > limit) {
            *end = step;
            return HG_OK;
        }
        *need = constants + (held + peak);
        if (weights) {
            weights[step - begin] = constants;
            activations[step - begin] = held + peak;
        }
        if (!(step & 0xFFF) && hg_interrupted(watch, 1 << 16))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

int hg_late_order(const hg_values *v, int64_t *order, hg_watch *watch)
{
    const int32_t n = v->n;
    int32_t *start = HG_NEW(int32_t, (int64_t)n + 3), *target = HG_NEW(int32_t, v->num_reads);
    int32_t *needed = HG_NEW(int32_t, n);
    uint8_t *depends = HG_NEW(uint8_t, n); /* on an input of the model */
    int status = start && target && needed && depends ? HG_OK : HG_NO_MEMORY;
    if (status == HG_OK)
        status = hg_fill(start, 0, ((int64_t)n + 3) * (int64_t)sizeof *start, watch);
    if (status == HG_OK)
        status = hg_fill(depends, 0, n, watch);
    for (int64_t i = 0; i < v->num_reads && status == HG_OK; i++) {
        const int32_t value = v->read_value[i], producer = v->producer[value];
        if (producer >= 0)
            start[producer + 2]++;
        else if (!v->is_constant[value])
            depends[v->read_node[i]] = 1;
        if (!(i & 0xFFFF) && hg_interrupted(watch, 1 << 18))
            status = HG_INTERRUPTED;
    }
    if (status == HG_OK) {
        add_up(n, start);
        for (int64_t i = 0; i < v->num_reads; i++)
            if (v->producer[v->read_value[i]] >= 0)
                target[start[v->producer[v->read_value[i]] + 1]++] = v->read_node[i];
        for (int32_t node = 0; node < n; node++)
            for (int32_t i = start[node]; depends[node] && i < start[node + 1]; i++)
                depends[target[i]] = 1;
        for (int32_t node = n; node-- > 0;) {
            needed[node] = depends[node] ? node : n;
            for (int32_t i = start[node]; !depends[node] && i < start[node + 1]; i++)
                needed[node] = needed[target[i]] < needed[node] ? needed[target[i]] : needed[node];
        }
        if (hg_interrupted(watch, 16 * (int64_t)n))
            status = HG_INTERRUPTED;
    }
    /* By the node that needs each; that node last. */
    if (status == HG_OK)
        status = hg_fill(start, 0, ((int64_t)n + 3) * (int64_t)sizeof *start, watch);
    if (status == HG_OK) {
        for (int32_t node = 0; node < n; node++)
            start[needed[node] + 2]++;
        add_up(n + 1, start);
        for (int want = 0; want < 2; want++)
            for (int32_t node = 0; node < n; node++)
                if (depends[node] == want)
                    order[start[needed[node] + 1]++] = node;
    }
    free(start);
    free(target);
    free(needed);
    free(depends);
    return status;
}

/* The state of hg_footprint_of: steps, and the changes of the bytes that are alive on each device from step to step. */
typedef struct {
    const hg_values *v;
    const hg_partitioned *p;
    int32_t *order, *step, *first; /* first [num_subgraphs + 1]: step of each subgraph */
    double *change;                /* [num_devices * (n + 1)] */
    int32_t *seen, *arrives, *leaves, *on; /* per device, of the current value; `on`: those seen */
    hg_footprint *out;
} lives;

static inline int32_t device_of(const lives *s, int32_t node) { return s->p->device[s->p->subgraph[node]]; }

static void hold(lives *s, int32_t value, int32_t device, double bytes, int32_t begin, int32_t end, int is_unknown)
{
    double *change = s->change + (int64_t)device * (s->v->n + 1);
    change[begin] += bytes;
    change[end + 1] -= bytes;
    s->out->unknown[device] += is_unknown;
    if (is_unknown && s->out->first_unknown[device] < 0)
        s->out->first_unknown[device] = value;
}

/* Adds the lives of a value whose reads are i..end. Reads of a constant do not count, so for constants i == end. */
static void add_lives(lives *s, int32_t value, int64_t i, int64_t end)
{
    const hg_values *v = s->v;
    const hg_partitioned *p = s->p;
    const int32_t producer = v->producer[value];
    const int32_t own = producer >= 0 ? p->subgraph[producer] : -1, home = own >= 0 ? p->device[own] : -1;
    const int is_unknown = !p->known[value] && (i < end || v->is_output[value]);
    int32_t until = producer >= 0 ? s->step[producer] : -1, count = 0;
    int is_inside = 1;
    for (; i < end; i++) {
        const int32_t subgraph = p->subgraph[v->read_node[i]], device = p->device[subgraph];
        const int32_t done = subgraph == own ? s->step[v->read_node[i]] : s->first[p->latest[subgraph] + 1] - 1;
        is_inside &= subgraph == own;
        until = done > until ? done : until;
        if (device == home)
            continue;
        if (s->seen[device] != value) {
            s->seen[device] = value;
            s->on[count++] = device;
            s->arrives[device] = s->first[subgraph];
            s->leaves[device] = s->first[subgraph + 1] - 1;
        } else {
            s->arrives[device] = s->first[subgraph] < s->arrives[device] ? s->first[subgraph] : s->arrives[device];
            s->leaves[device] = s->first[subgraph + 1] - 1 > s->leaves[device] ? s->first[subgraph + 1] - 1 : s->leaves[device];
        }
    }
    if (producer >= 0)
        hold(s, value, home,
             is_inside && p->bytes_inside ? p->bytes_inside[(int64_t)home * v->num_values + value] : v->bytes[value],
             s->step[producer], v->is_output[value] ? v->n - 1 : until, is_unknown);
    for (int32_t j = 0; j < count; j++)
        hold(s, value, s->on[j], v->bytes[value], s->arrives[s->on[j]], s->leaves[s->on[j]], is_unknown);
}

static int footprint(lives *s, hg_watch *watch)
{
    const hg_values *v = s->v;
    const hg_partitioned *p = s->p;
    const hg_footprint *out = s->out;
    const int32_t k = p->num_devices;
    int status = hg_members(v->n, p->subgraph, NULL, p->num_subgraphs, s->first, s->order, watch);
    for (int32_t i = 0; i < v->n && status == HG_OK; i++)
        s->step[s->order[i]] = i;
    if (status == HG_OK)
        status = hg_fill(s->change, 0, (int64_t)k * (v->n + 1) * (int64_t)sizeof *s->change, watch);
    if (status == HG_OK)
        status = hg_fill(s->seen, 0xFF, k * (int64_t)sizeof *s->seen, watch);
    for (int32_t device = 0; device < k; device++) {
        out->weights[device] = 0;
        out->unknown[device] = 0;
        out->first_unknown[device] = -1;
    }
    for (int32_t node = 0; node < v->n; node++)
        out->weights[device_of(s, node)] += v->own[node];
    int64_t i = 0;
    for (int32_t value = 0; value < v->num_values && status == HG_OK; value++) {
        int64_t end = i;
        while (end < v->num_reads && v->read_value[end] == value)
            end++;
        if (v->is_constant[value]) {
            for (int64_t j = i; j < end; j++) {
                const int32_t device = device_of(s, v->read_node[j]);
                out->weights[device] += s->seen[device] != value ? v->bytes[value] : 0;
                s->seen[device] = value;
            }
            if (v->producer[value] >= 0)
                add_lives(s, value, end, end);
        } else
            add_lives(s, value, i, end);
        if (hg_interrupted(watch, 8 + 8 * (end - i)))
            status = HG_INTERRUPTED;
        i = end;
    }
    for (int32_t device = 0; device < k && status == HG_OK; device++) {
        const double *change = s->change + (int64_t)device * (v->n + 1);
        double alive = change[0], peak = alive;
        int32_t at = 0;
        for (int32_t step = 1; step <= v->n; step++) {
            alive += change[step];
            at = alive > peak ? step : at;
            peak = larger(peak, alive);
        }
        out->peak[device] = peak;
        out->peak_node[device] = peak > 0 ? s->order[at < v->n ? at : v->n - 1] : -1;
        if (hg_interrupted(watch, 2 * (int64_t)v->n))
            status = HG_INTERRUPTED;
    }
    return status;
}

int hg_footprint_of(const hg_values *v, const hg_partitioned *p, hg_footprint *out, hg_watch *watch)
{
    lives s = {.v = v, .p = p, .out = out};
    s.order = HG_NEW(int32_t, v->n);
    s.step = HG_NEW(int32_t, v->n);
    s.first = HG_NEW(int32_t, (int64_t)p->num_subgraphs + 1);
    s.change = HG_NEW(double, (int64_t)p->num_devices * ((int64_t)v->n + 1));
    s.seen = HG_NEW(int32_t, p->num_devices);
    s.arrives = HG_NEW(int32_t, p->num_devices);
    s.leaves = HG_NEW(int32_t, p->num_devices);
    s.on = HG_NEW(int32_t, p->num_devices);
    const int taken = s.order && s.step && s.first && s.change && s.seen && s.arrives && s.leaves && s.on;
    const int status = taken ? footprint(&s, watch) : HG_NO_MEMORY;
    free(s.order);
    free(s.step);
    free(s.first);
    free(s.change);
    free(s.seen);
    free(s.arrives);
    free(s.leaves);
    free(s.on);
    return status;
}
