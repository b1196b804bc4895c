/* Transitive closure as bit rows over topological ranks.
 *
 * Row r holds the descendants of the node of rank r, all of greater rank, from the word of the first one on. Rows are
 * built from the sinks up, each as the union of its successors' rows. Most rows end in a run: beyond some word, every
 * later node is a descendant, or none is. One bit (`fill`) stands for such a tail, so graphs whose nodes soon reach
 * everything, as in most models, need O(n) memory. The worst case is the triangle of n * n / 16 bytes.
 * Time: one operation for each word of the rows of those successors that no nearer successor reaches. */
#include "graph.h"

enum { BLOCK_WORDS = 1 << 17 }; /* words of 8 bytes allocated at once, at least: 1 MiB; mutant: only memory */

static inline int is_full(uint64_t word, int32_t w, int32_t words, uint64_t last_padding)
{
    return (w == words - 1 ? word | last_padding : word) == UINT64_MAX;
}

static uint64_t *room_for(hg_closure *c, int64_t words)
{
    if (c->room < words) {
        const int64_t size = words > BLOCK_WORDS ? words : BLOCK_WORDS;
        if (c->blocks == c->room_blocks) {
            const int64_t room = c->room_blocks ? 2 * c->room_blocks : 64;
            uint64_t **block = (uint64_t **)realloc(c->block, (size_t)room * sizeof *block);
            if (!block)
                return NULL;
            c->block = block;
            c->room_blocks = room;
        }
        uint64_t *block = HG_NEW(uint64_t, size);
        if (!block)
            return NULL;
        c->block[c->blocks++] = block;
        c->free = block;
        c->room = size;
    }
    uint64_t *row = c->free;
    c->free += words;
    c->room -= words;
    c->bytes += 8 * words;
    return row;
}

/* Ranks, and bounds on the memory of the rows: row r spans the words from its first to its last descendant, unless
 * it reaches the last word: then a full tail may make it shorter. c->end serves as the last descendant's rank. */
static int estimate(const hg_graph *g, hg_closure *c, hg_watch *watch)
{
    const int32_t n = c->n;
    int64_t sure = 0, possible = 0, work = 0;
    for (int32_t r = 0; r < n; r++) {
        c->order[r] = hg_nth(g, r);
        c->rank[c->order[r]] = r;
        if (hg_interrupted_at(watch, r, 2))
            return HG_INTERRUPTED;
    }
    for (int32_t r = n; r-- > 0;) {
        const int32_t v = c->order[r], begin = g->indptr[v], end = g->indptr[v + 1];
        int32_t last = r, nearest = r;
        for (int32_t j = begin; j < end; j++) {
            const int32_t s = c->rank[g->indices[j]], reached = c->end[s];
            last = reached > last ? reached : last;
            nearest = s < nearest || nearest == r ? s : nearest;
        }
        c->end[r] = last;
        c->first[r] = nearest / 64;
        const int32_t span = last > r ? last / 64 - nearest / 64 + 1 : 0;
        possible += span;
        sure += last / 64 < c->words - 1 ? span : 0;
        if (hg_interrupted_after(watch, &work, 4 + 2 * (int64_t)(end - begin)))
            return HG_INTERRUPTED;
    }
    c->at_least += 8 * sure;
    c->at_most += 8 * possible;
    return HG_OK;
}

int hg_closure_build(const hg_graph *g, hg_closure *c, int64_t max_bytes, hg_watch *watch)
{
    const int32_t n = g->n, words = (n + 63) / 64;
    const uint64_t last_padding = n % 64 ? ~(((uint64_t)1 << (n % 64)) - 1) : 0;
    const int64_t fixed = (int64_t)n * (sizeof *c->row + 4 * sizeof(int32_t) + 1);
    uint64_t *row = NULL;
    *c = (hg_closure){.n = n, .words = words, .bytes = fixed, .at_least = fixed, .at_most = fixed};
    if (fixed > max_bytes) {
        c->at_most += 8 * (int64_t)n * words; /* not looked at */
        return HG_OVER_BUDGET;
    }
    int status = HG_NO_MEMORY;
    c->first = HG_NEW(int32_t, n);
    c->end = HG_NEW(int32_t, n);
    c->rank = HG_NEW(int32_t, n);
    c->order = HG_NEW(int32_t, n);
    if (!c->first || !c->end || !c->rank || !c->order || (status = estimate(g, c, watch)) != HG_OK)
        goto out;
    status = HG_OVER_BUDGET;
    if (c->at_least > max_bytes)
        goto out;
    status = HG_NO_MEMORY;
    row = HG_NEW(uint64_t, words);
    c->row = HG_NEW(uint64_t *, n);
    c->fill = HG_NEW(uint8_t, n);
    if (!row || !c->row || !c->fill)
        goto out;
    for (int32_t r = n; r-- > 0;) {
        const int32_t v = c->order[r], first = c->first[r];
        int32_t end = first, full_from = INT32_MAX;
        for (int32_t j = g->indptr[v]; j < g->indptr[v + 1]; j++) {
            const int32_t s = c->rank[g->indices[j]];
            const int32_t reach = c->end[s] > s / 64 ? c->end[s] : s / 64 + 1; /* of s and its row */
            end = reach > end ? reach : end;
            if (c->fill[s] && reach < full_from)
                full_from = reach;
        }
        const int fill = full_from != INT32_MAX;
        end = fill ? full_from : end;
        int64_t work = end - first + g->indptr[v + 1] - g->indptr[v];
        memset(row + first, 0, (size_t)(end - first) * sizeof *row);
        for (int32_t j = g->indptr[v]; j < g->indptr[v + 1]; j++) {
            const int32_t s = c->rank[g->indices[j]];
            const uint64_t *from = c->row[s];
            const int32_t stop = c->end[s] < end ? c->end[s] : end;
            const uint64_t bit = (uint64_t)1 << (s % 64);
            if (s / 64 >= end || row[s / 64] & bit)
                continue; /* reached already, and with it all that it reaches */
            row[s / 64] |= bit;
            const int32_t start = c->first[s];
            work += 1 + (stop > start ? stop - start : 0);
            for (int32_t w = start; w < stop; w++)
                row[w] |= from[w - start];
        }
        c->fill[r] = (uint8_t)fill;
        if (fill || end == words)
            while (end > first && is_full(row[end - 1], end - 1, words, last_padding)) {
                c->fill[r] = 1;
                end--;
            }
        if (!c->fill[r])
            while (end > first && !row[end - 1])
                end--;
        if (c->bytes + 8 * (int64_t)(end - first) > max_bytes) {
            status = HG_OVER_BUDGET;
            goto out;
        }
        c->end[r] = end;
        c->row[r] = end > first ? room_for(c, end - first) : row; /* an empty row is never read */
        if (!c->row[r])
            goto out;
        if (end > first)
            memcpy(c->row[r], row + first, (size_t)(end - first) * sizeof *row);
        if (hg_interrupted(watch, 8 + work)) {
            status = HG_INTERRUPTED;
            goto out;
        }
    }
    status = HG_OK;
out:
    free(row);
    if (status != HG_OK)
        hg_closure_free(c);
    return status;
}

void hg_closure_free(hg_closure *c)
{
    for (int64_t i = 0; i < c->blocks; i++)
        free(c->block[i]);
    free(c->block);
    free(c->row);
    free(c->first);
    free(c->end);
    free(c->fill);
    free(c->rank);
    free(c->order);
    *c = (hg_closure){.at_least = c->at_least, .at_most = c->at_most};
}

static inline int rank_reaches(const hg_closure *c, int32_t from, int32_t to)
{
    if (to <= from)
        return 0;
    if (to / 64 < c->first[from])
        return 0;
    if (to / 64 >= c->end[from])
        return c->fill[from];
    return c->row[from][to / 64 - c->first[from]] >> (to % 64) & 1;
}

int hg_closure_reaches(const hg_closure *c, int32_t u, int32_t v)
{
    return rank_reaches(c, c->rank[u], c->rank[v]);
}

static int compare(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Appends the node of rank r; 0 without memory. */
static int append(const hg_closure *c, int32_t r, int32_t **nodes, int32_t *count, int64_t *room)
{
    if (*count == *room) {
        int32_t *more = (int32_t *)realloc(*nodes, (size_t)(2 * *room) * sizeof *more);
        if (!more)
            return 0;
        *nodes = more;
        *room *= 2;
    }
    (*nodes)[(*count)++] = c->order[r];
    return 1;
}

int hg_closure_between(const hg_closure *c, int32_t u, int32_t v, int32_t **nodes, int32_t *count, hg_watch *watch)
{
    const int32_t from = u < 0 ? -1 : c->rank[u], to = v < 0 ? c->n : c->rank[v];
    int64_t room = 16;
    int status = HG_NO_MEMORY, ascending = 1;
    *count = 0;
    *nodes = HG_NEW(int32_t, room);
    if (!*nodes)
        return status;
    for (int32_t r = from + 1; r < to;) {
        /* The next word of u's row, cut off at v. */
        const int32_t w = r / 64, base = 64 * w;
        uint64_t rest = UINT64_MAX << (r % 64);
        if (u >= 0)
            rest &= w < c->first[from]   ? 0
                    : w < c->end[from] ? c->row[from][w - c->first[from]]
                    : c->fill[from]    ? UINT64_MAX
                                       : 0;
        if (to - base < 64)
            rest &= ((uint64_t)1 << (to - base)) - 1;
        if (u >= 0 && w >= c->first[from] && w >= c->end[from] && !c->fill[from])
            break;
        for (; rest; rest &= rest - 1) {
            const int32_t x = base + __builtin_ctzll(rest);
            if (v >= 0 && !rank_reaches(c, x, to))
                continue;
            if (*count && c->order[x] < (*nodes)[*count - 1])
                ascending = 0;
            if (!append(c, x, nodes, count, &room))
                goto failed;
        }
        status = HG_INTERRUPTED;
        if (hg_interrupted(watch, 128))
            goto failed;
        status = HG_NO_MEMORY;
        r = base + 64; /* no overflow: graphs have fewer than 2**31 - 1 nodes, and words end at multiples of 64 */
    }
    if (!ascending)
        qsort(*nodes, (size_t)*count, sizeof **nodes, compare);
    return HG_OK;
failed:
    free(*nodes);
    *nodes = NULL;
    return status;
}
