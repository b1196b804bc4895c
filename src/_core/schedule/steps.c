/* The steps of a partition: what each takes, which wait for which, and which transfers they need.
 *
 * A value is transferred once to each device that reads it. The first step there that runs pays for it; for a result,
 * which the host reads, the step that makes it. So the steps take as long one after the other as hg_energy_of says.
 * Two equal passes over the values, one that counts and one that fills: O(nodes + values + readers). */
#include "schedule.h"

typedef struct {
    const hg_machine *m;
    const int32_t *label, *device_of;
    int32_t *seen_step, *seen_device; /* the last value, plus one, that was seen to be read there */
    int32_t *transfer_of;             /* by device: the transfer of that value */
    double *seconds;
    int32_t *next_at, *next, *fetch_at, *fetch; /* next, fetch: NULL while counting */
    double *transfer;
    int32_t transfers;
} builder;

static int32_t device_of_node(const builder *b, int32_t v)
{
    return v < b->m->n ? b->device_of[b->label[v]] : b->m->host_device[v - b->m->n];
}

static void add_value(builder *b, int32_t value)
{
    const hg_costs *costs = b->m->costs;
    const int32_t producer = costs->producer[value], n = b->m->n;
    const int32_t from = device_of_node(b, producer), step = producer < n ? b->label[producer] : -1;
    int32_t result_on = -1;
    for (int32_t i = costs->indptr[value]; i < costs->indptr[value + 1]; i++) {
        const int32_t reader = costs->readers[i];
        if (reader >= n) {
            result_on = b->m->host_device[reader - n];
            continue;
        }
        const int32_t t = b->label[reader];
        if (t == step || b->seen_step[t] == value + 1)
            continue;
        b->seen_step[t] = value + 1;
        if (step >= 0) {
            if (b->next)
                b->next[b->next_at[step]++] = t;
            else
                b->next_at[step]++;
        }
        const int32_t to = b->device_of[t];
        if (to == from)
            continue;
        if (b->seen_device[to] != value + 1) {
            b->seen_device[to] = value + 1;
            b->transfer_of[to] = b->transfers++;
            if (b->transfer)
                b->transfer[b->transfer_of[to]] = hg_transfer(costs, value, from, to);
        }
        if (b->fetch)
            b->fetch[b->fetch_at[t]++] = b->transfer_of[to];
        else
            b->fetch_at[t]++;
    }
    if (b->next && step >= 0 && result_on >= 0 && result_on != from && b->seen_device[result_on] != value + 1)
        b->seconds[step] += hg_transfer(costs, value, from, result_on);
}

/* counts [count] -> starts [count + 1] */
static void to_starts(int32_t count, int32_t *at)
{
    int32_t sum = 0;
    for (int32_t s = 0; s <= count; s++) {
        const int32_t own = s < count ? at[s] : 0;
        at[s] = sum;
        sum += own;
    }
}

int hg_partition_steps(const hg_machine *m, const int32_t *label, const int32_t *device_of, int32_t count,
                       hg_steps *steps, hg_arena *arena, hg_watch *watch)
{
    const hg_costs *costs = m->costs;
    uint8_t *lane = HG_TAKE(arena, uint8_t, count), *shares = HG_TAKE(arena, uint8_t, count);
    builder b = {.m = m, .label = label, .device_of = device_of};
    b.seconds = HG_TAKE(arena, double, count);
    b.next_at = HG_TAKE_ZEROED(arena, int32_t, (int64_t)count + 1);
    b.fetch_at = HG_TAKE_ZEROED(arena, int32_t, (int64_t)count + 1);
    b.seen_step = HG_TAKE_ZEROED(arena, int32_t, count);
    b.seen_device = HG_TAKE_ZEROED(arena, int32_t, costs->k);
    b.transfer_of = HG_TAKE(arena, int32_t, costs->k);
    if (!lane || !shares || !b.seconds || !b.next_at || !b.fetch_at || !b.seen_step || !b.seen_device || !b.transfer_of)
        return HG_NO_MEMORY;
    for (int32_t s = 0; s < count; s++) {
        lane[s] = m->lane[device_of[s]];
        shares[s] = m->shares[device_of[s]];
        b.seconds[s] = m->launch[device_of[s]];
    }
    for (int32_t v = 0; v < m->n; v++) {
        b.seconds[label[v]] += costs->work[(int64_t)device_of[label[v]] * costs->n + v];
        if (hg_interrupted_at(watch, v, 2))
            return HG_INTERRUPTED;
    }
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t value = 0; value < costs->num_values; value++) {
            add_value(&b, value);
            if (hg_interrupted(watch, 2 + 2 * (costs->indptr[value + 1] - costs->indptr[value])))
                return HG_INTERRUPTED;
        }
        if (pass)
            break;
        to_starts(count, b.next_at);
        to_starts(count, b.fetch_at);
        b.next = HG_TAKE(arena, int32_t, b.next_at[count]);
        b.fetch = HG_TAKE(arena, int32_t, b.fetch_at[count]);
        b.transfer = HG_TAKE(arena, double, b.transfers);
        if (!b.next || !b.fetch || !b.transfer)
            return HG_NO_MEMORY;
        b.transfers = 0;
        memset(b.seen_step, 0, (size_t)count * sizeof *b.seen_step);
        memset(b.seen_device, 0, (size_t)costs->k * sizeof *b.seen_device);
    }
    /* Each row's start has moved to its end. */
    memmove(b.next_at + 1, b.next_at, (size_t)count * sizeof *b.next_at);
    memmove(b.fetch_at + 1, b.fetch_at, (size_t)count * sizeof *b.fetch_at);
    b.next_at[0] = b.fetch_at[0] = 0;
    *steps = (hg_steps){count, lane, shares, b.seconds, b.next_at, b.next, b.fetch_at, b.fetch, b.transfers, b.transfer};
    return HG_OK;
}
