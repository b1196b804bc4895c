/* Bit rows of reachability under contraction: see contracted.h. Building takes one word operation for each word of each
 * neighbour's row that is not contained already; contracting takes that for each member and each changed row. */
#include "contracted.h"

/* The words that the rows will span: from the first neighbour to the farthest that any neighbour reaches. Exact, since
 * ranks are topological. Returns their number, or -1 when interrupted. */
static int64_t span_rows(const hg_contracted *c, const hg_graph *g, int down, hg_watch *watch)
{
    const int32_t *ptr = down ? g->indptr : g->pred_indptr, *row = down ? g->indices : g->pred_indices;
    hg_row *rows = down ? c->below : c->above;
    int64_t total = 0;
    for (int32_t i = 0; i < c->n; i++) {
        const int32_t r = down ? c->n - 1 - i : i, v = c->order[r];
        hg_row *own = &rows[r];
        *own = (hg_row){NULL, INT32_MAX, 0, 0, 0};
        if (hg_interrupted(watch, 8 + ptr[v + 1] - ptr[v]))
            return -1;
        for (int32_t j = ptr[v]; j < ptr[v + 1]; j++) {
            const int32_t s = c->rank[row[j]], word = s / 64;
            const hg_row *other = &rows[s];
            own->first = word < own->first ? word : own->first;
            own->end = word + 1 > own->end ? word + 1 : own->end;
            if (other->first < own->first)
                own->first = other->first;
            if (other->end > own->end)
                own->end = other->end;
        }
        if (own->first == INT32_MAX)
            own->first = own->end;
        total += own->end - own->first;
    }
    return total;
}

static int fill_rows(hg_contracted *c, const hg_graph *g, int down, uint64_t *memory, hg_watch *watch)
{
    const int32_t *ptr = down ? g->indptr : g->pred_indptr, *row = down ? g->indices : g->pred_indices;
    hg_row *rows = down ? c->below : c->above;
    for (int32_t i = 0; i < c->n; i++) {
        const int32_t r = down ? c->n - 1 - i : i, v = c->order[r];
        hg_row *own = &rows[r];
        const int32_t count = own->end - own->first;
        int64_t work = count + ptr[v + 1] - ptr[v];
        own->bits = memory;
        memory += count;
        memset(own->bits, 0, (size_t)count * sizeof *own->bits);
        /* Nearest first, so that most of the others are contained already when their turn comes. */
        for (int32_t k = ptr[v]; k < ptr[v + 1]; k++) {
            const int32_t j = down ? k : ptr[v] + ptr[v + 1] - 1 - k, s = c->rank[row[j]];
            uint64_t *word = &own->bits[s / 64 - own->first];
            const uint64_t bit = (uint64_t)1 << (s % 64);
            if (*word & bit)
                continue;
            *word |= bit;
            hg_unite(own->bits, own->first, &rows[s]);
            work += rows[s].end - rows[s].first;
        }
        own->full = down ? c->words - 1 : 0;
        if (down && own->end == c->words)
            while (own->full > own->first && own->bits[own->full - 1 - own->first] == UINT64_MAX)
                own->full--;
        if (!down && own->first == 0)
            while (own->full < own->end && own->bits[own->full] == UINT64_MAX)
                own->full++;
        if (hg_interrupted(watch, work))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

int hg_contracted_open(hg_contracted *c, const hg_graph *g, const int32_t *rank, const int32_t *order,
                       int64_t max_bytes, hg_watch *watch)
{
    const int32_t n = g->n, words = n / 64 + 1;
    *c = (hg_contracted){.n = n, .words = words, .rank = rank, .order = order};
    c->below = HG_NEW(hg_row, n);
    c->above = HG_NEW(hg_row, n);
    c->set[0] = HG_NEW(uint64_t, 4 * (int64_t)words);
    if (!c->below || !c->above || !c->set[0])
        return HG_NO_MEMORY;
    for (int i = 1; i < 4; i++)
        c->set[i] = c->set[0] + (size_t)i * (size_t)words;
    const int64_t below = span_rows(c, g, 1, watch), above = below < 0 ? -1 : span_rows(c, g, 0, watch);
    if (above < 0)
        return HG_INTERRUPTED;
    c->bytes = 8 * (below + above);
    if (c->bytes > max_bytes)
        return HG_OVER_BUDGET;
    c->block = HG_NEW(uint64_t, below + above);
    if (!c->block)
        return HG_NO_MEMORY;
    const int status = fill_rows(c, g, 1, c->block, watch);
    return status != HG_OK ? status : fill_rows(c, g, 0, c->block + below, watch);
}

static void give_up(hg_contracted *c, hg_row *row)
{
    if (row->owned) {
        c->num_owned--;
        c->bytes -= 8 * (int64_t)(row->end - row->first);
        free(row->bits);
    }
    *row = (hg_row){0};
}

void hg_contracted_close(hg_contracted *c)
{
    if (c->num_owned)
        for (int32_t r = 0; r < c->n; r++) {
            give_up(c, &c->below[r]);
            give_up(c, &c->above[r]);
        }
    free(c->below);
    free(c->above);
    free(c->set[0]);
    free(c->block);
}

/* row |= words first .. end - 1 of set, which may lie outside of its span. */
static int widen(hg_contracted *c, hg_row *row, const uint64_t *set, int32_t first, int32_t end)
{
    if (row->first == row->end)
        row->first = row->end = first;
    if (first < row->first || end > row->end) {
        const hg_row wide = {NULL, first < row->first ? first : row->first, end > row->end ? end : row->end, row->full, 1};
        uint64_t *bits = (uint64_t *)calloc((size_t)(wide.end - wide.first), sizeof *bits);
        if (!bits)
            return HG_NO_MEMORY;
        if (row->end > row->first)
            memcpy(bits + (row->first - wide.first), row->bits, (size_t)(row->end - row->first) * sizeof *bits);
        give_up(c, row);
        *row = wide;
        row->bits = bits;
        c->num_owned++;
        c->bytes += 8 * (int64_t)(wide.end - wide.first);
    }
    for (int32_t w = first; w < end; w++)
        row->bits[w - row->first] |= set[w];
    return HG_OK;
}

/* gained: the members and what they reach together (or what reaches them). changed: what reaches some of them but not
 * all. One pass over the rows of both directions. */
static void spans_of(const hg_contracted *c, const int32_t *members, int32_t size, const hg_row *rows,
                     uint64_t *some, uint64_t *all)
{
    memset(some, 0, (size_t)c->words * sizeof *some);
    memset(all, 0xFF, (size_t)c->words * sizeof *all);
    for (int32_t i = 0; i < size; i++) {
        const hg_row *row = &rows[c->rank[members[i]]];
        hg_unite(some, 0, row);
        for (int32_t w = 0; w < c->words; w++)
            all[w] &= w >= row->first && w < row->end ? row->bits[w - row->first] : 0;
    }
}

static int widen_rows(hg_contracted *c, hg_row *rows, const uint64_t *changed, const uint8_t *is_free,
                      const uint64_t *gained, hg_watch *watch)
{
    int32_t first = 0, end = c->words;
    while (first < end && !gained[first])
        first++;
    while (end > first && !gained[end - 1])
        end--;
    for (int32_t w = 0; w < c->words; w++)
        for (uint64_t rest = changed[w]; rest; rest &= rest - 1) {
            const int32_t r = 64 * w + __builtin_ctzll(rest);
            if (!is_free[c->order[r]])
                continue;
            if (widen(c, &rows[r], gained, first, end) != HG_OK)
                return HG_NO_MEMORY;
            if (hg_interrupted(watch, 8 + (end - first)))
                return HG_INTERRUPTED;
        }
    return HG_OK;
}

int hg_contract_members(hg_contracted *c, const int32_t *members, int32_t size, const uint8_t *is_free,
                        uint64_t *changed_above, uint64_t *changed_below, hg_watch *watch)
{
    uint64_t *some_below = c->set[0], *all_below = c->set[1], *some_above = c->set[2], *all_above = c->set[3];
    spans_of(c, members, size, c->below, some_below, all_below);
    spans_of(c, members, size, c->above, some_above, all_above);
    for (int32_t w = 0; w < c->words; w++) {
        changed_above[w] = some_above[w] & ~all_above[w];
        changed_below[w] = some_below[w] & ~all_below[w];
    }
    for (int32_t i = 0; i < size; i++) {
        const int32_t r = c->rank[members[i]];
        hg_set_bit(some_below, r); /* gained with what they reach */
        hg_set_bit(some_above, r);
        changed_above[r / 64] &= ~((uint64_t)1 << (r % 64));
        changed_below[r / 64] &= ~((uint64_t)1 << (r % 64));
        give_up(c, &c->below[r]);
        give_up(c, &c->above[r]);
    }
    if (hg_interrupted(watch, 4 * (int64_t)size * c->words))
        return HG_INTERRUPTED;
    const int status = widen_rows(c, c->below, changed_above, is_free, some_below, watch);
    return status != HG_OK ? status : widen_rows(c, c->above, changed_below, is_free, some_above, watch);
}
