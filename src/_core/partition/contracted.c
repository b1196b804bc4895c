/* Bit rows of reachability under contraction: see contracted.h. Building takes one word operation for each word of each
 * neighbor's row that is not contained already; contracting takes that for each member and each changed row. */
#include "contracted.h"

/* Stores words first .. end - 1 of a set as the bits of a row, without words that extend the row's run of ones. The row
 * keeps its run and its last word. Returns 0 if out of memory. */
static int store(hg_contracted *c, hg_row *row, const uint64_t *set, int32_t first, int32_t end, int down)
{
    if (down && end == row->ones)
        while (end > first && set[end - 1] == UINT64_MAX)
            row->ones = --end;
    if (!down && first == row->ones_end)
        while (first < end && set[first] == UINT64_MAX)
            row->ones_end = ++first;
    while (first < end && !set[first])
        first++;
    while (end > first && !set[end - 1])
        end--;
    const size_t size = (size_t)(end - first) * sizeof *set;
    uint64_t *bits = NULL;
    if (size && !(bits = (uint64_t *)malloc(size)))
        return 0;
    if (size)
        memcpy(bits, set + first, size);
    free(row->bits);
    c->bytes += 8 * ((int64_t)(end - first) - (row->end - row->first));
    row->bits = bits;
    row->first = first;
    row->end = end;
    return 1;
}

/* A lower bound on the bytes that the rows of one direction take: the spans of rows that do not reach the word at the
 * end and so have no run of ones. -1 if interrupted. */
static int64_t least_bytes(const hg_contracted *c, const hg_graph *g, int down, hg_watch *watch)
{
    const int32_t *ptr = down ? g->indptr : g->pred_indptr, *neighbors = down ? g->indices : g->pred_indices;
    hg_row *rows = down ? c->below : c->above;
    int64_t total = 0;
    for (int32_t i = 0; i < c->n; i++) {
        const int32_t r = down ? c->n - 1 - i : i, v = c->order[r];
        hg_row *own = &rows[r];
        own->first = c->words;
        for (int32_t k = ptr[v]; k < ptr[v + 1]; k++) {
            const int32_t s = c->rank[neighbors[k]];
            const hg_row *other = &rows[s];
            const int32_t first = other->first < s / 64 ? other->first : s / 64;
            const int32_t end = other->end > s / 64 + 1 ? other->end : s / 64 + 1;
            own->first = first < own->first ? first : own->first;
            own->end = end > own->end ? end : own->end;
        }
        if (own->end && (down ? own->end < c->words : own->first > 0))
            total += 8 * (int64_t)(own->end - own->first);
        if (hg_interrupted(watch, 8 + ptr[v + 1] - ptr[v]))
            return -1;
    }
    return total;
}

/* The rows of one direction. A row is made of its neighbors' rows outside of the longest of their runs of ones. */
static int fill_rows(hg_contracted *c, const hg_graph *g, int down, int64_t max_bytes, hg_watch *watch)
{
    const int32_t *ptr = down ? g->indptr : g->pred_indptr, *neighbors = down ? g->indices : g->pred_indices;
    hg_row *rows = down ? c->below : c->above;
    uint64_t *set = c->set[0];
    const int32_t last_word = c->words - 1;
    for (int32_t i = 0; i < c->n; i++) {
        const int32_t r = down ? c->n - 1 - i : i, v = c->order[r];
        hg_row *own = &rows[r];
        *own = (hg_row){.ones = down ? last_word : 0, .ones_end = down ? last_word : 0};
        int32_t first = c->words, end = 0;
        for (int32_t k = ptr[v]; k < ptr[v + 1]; k++) {
            const int32_t s = c->rank[neighbors[k]], word = s / 64;
            const hg_row *other = &rows[s];
            first = word < first ? word : first;
            end = word + 1 > end ? word + 1 : end;
            if (other->end > other->first) {
                first = other->first < first ? other->first : first;
                end = other->end > end ? other->end : end;
            }
            own->ones = other->ones < own->ones ? other->ones : own->ones;
            own->ones_end = other->ones_end > own->ones_end ? other->ones_end : own->ones_end;
        }
        if (down)
            end = own->ones < own->ones_end || end > own->ones ? own->ones : end;
        else
            first = own->ones_end > 0 ? own->ones_end : first;
        int64_t work = 8 + ptr[v + 1] - ptr[v];
        if (first < end) {
            memset(set + first, 0, (size_t)(end - first) * sizeof *set);
            work += end - first;
        }
        /* Nearest first, so that most of the others are contained already when their turn comes. */
        for (int32_t k = ptr[v]; k < ptr[v + 1]; k++) {
            const int32_t s = c->rank[neighbors[down ? k : ptr[v] + ptr[v + 1] - 1 - k]], word = s / 64;
            const hg_row *other = &rows[s];
            const uint64_t bit = (uint64_t)1 << (s % 64);
            if (down && word == last_word)
                own->last |= bit;
            else if (word >= first && word < end) {
                if (set[word] & bit)
                    continue;
                set[word] |= bit;
            }
            own->last |= other->last;
            const int32_t from = other->first > first ? other->first : first, to = other->end < end ? other->end : end;
            for (int32_t w = from; w < to; w++)
                set[w] |= other->bits[w - other->first];
            work += to > from ? to - from : 0;
        }
        if (first < end && !store(c, own, set, first, end, down))
            return HG_NO_MEMORY;
        if (c->bytes > max_bytes)
            return HG_OVER_BUDGET;
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
    c->below = (hg_row *)calloc((size_t)n + 1, sizeof *c->below);
    c->above = (hg_row *)calloc((size_t)n + 1, sizeof *c->above);
    c->set[0] = HG_NEW(uint64_t, 4 * (int64_t)words);
    if (!c->below || !c->above || !c->set[0])
        return HG_NO_MEMORY;
    for (int i = 1; i < 4; i++)
        c->set[i] = c->set[0] + (size_t)i * (size_t)words;
    const int64_t below = least_bytes(c, g, 1, watch), above = below < 0 ? -1 : least_bytes(c, g, 0, watch);
    if (above < 0)
        return HG_INTERRUPTED;
    if (below + above > max_bytes)
        return HG_OVER_BUDGET;
    const int status = fill_rows(c, g, 1, max_bytes, watch);
    return status != HG_OK ? status : fill_rows(c, g, 0, max_bytes, watch);
}

static void give_up(hg_contracted *c, hg_row *row)
{
    c->bytes -= 8 * (int64_t)(row->end - row->first);
    free(row->bits);
    *row = (hg_row){0};
}

void hg_contracted_close(hg_contracted *c)
{
    for (int32_t r = 0; r < c->n && c->below && c->above; r++) {
        free(c->below[r].bits);
        free(c->above[r].bits);
    }
    free(c->below);
    free(c->above);
    free(c->set[0]);
}

/* set |= row. */
static void unite(const hg_contracted *c, uint64_t *set, const hg_row *row)
{
    for (int32_t w = row->first; w < row->end; w++)
        set[w] |= row->bits[w - row->first];
    for (int32_t w = row->ones; w < row->ones_end; w++)
        set[w] = UINT64_MAX;
    set[c->words - 1] |= row->last;
}

static inline uint64_t word_of(const hg_contracted *c, const hg_row *row, int32_t w)
{
    if (w >= row->first && w < row->end)
        return row->bits[w - row->first];
    if (w >= row->ones && w < row->ones_end)
        return UINT64_MAX;
    return w == c->words - 1 ? row->last : 0;
}

/* row |= words first .. end - 1 of gained. scratch [words]. 0 without memory. */
static int widen(hg_contracted *c, hg_row *row, const uint64_t *gained, int32_t first, int32_t end, int down,
                 uint64_t *scratch)
{
    if (down && end == c->words) {
        row->last |= gained[end - 1];
        end--;
    }
    if (down)
        end = row->ones < end ? row->ones : end;
    else
        first = row->ones_end > first ? row->ones_end : first;
    if (first >= end)
        return 1;
    if (row->first <= first && end <= row->end) {
        for (int32_t w = first; w < end; w++)
            row->bits[w - row->first] |= gained[w];
        return 1;
    }
    const int empty = row->first == row->end;
    const int32_t from = empty || first < row->first ? first : row->first, to = empty || end > row->end ? end : row->end;
    for (int32_t w = from; w < to; w++)
        scratch[w] = word_of(c, row, w) | (w >= first && w < end ? gained[w] : 0);
    return store(c, row, scratch, from, to, down);
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
        unite(c, some, row);
        for (int32_t w = 0; w < c->words; w++)
            all[w] &= word_of(c, row, w);
    }
}

static int widen_rows(hg_contracted *c, int down, const uint64_t *changed, const uint8_t *is_free,
                      const uint64_t *gained, uint64_t *scratch, hg_watch *watch)
{
    hg_row *rows = down ? c->below : c->above;
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
            if (!widen(c, &rows[r], gained, first, end, down, scratch))
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
    const int status = widen_rows(c, 1, changed_above, is_free, some_below, all_below, watch);
    return status != HG_OK ? status : widen_rows(c, 0, changed_below, is_free, some_above, all_above, watch);
}
