/* Policy `documented`: the documented loop, the fast twin of tests/partition/reference.py.
 *
 * Source: the subgraph selection of OpenVINO's HETERO plugin design; chosen subgraphs count as single vertices for
 * reachability. For each device in ascending order: grow a candidate from every root, depth first, with a rejected list
 * and rollback; choose the largest; repeat.
 *
 * The global condition asks for a rejected node in the path set of some pair src, dst of the candidate. The union of
 * these sets over all pairs is (what any member reaches) & (what reaches any member), so two bit sets stand for all of
 * them. A merge unites them with the rows of the closure (contracted.h) and logs the words that change, at most n words
 * in all since each gains a bit; a rollback takes them back.
 *
 * A candidate is a function of the nodes it explored and of the paths between them. It is kept from round to round while
 * the choice takes none of the former and makes none of the latter. A node that was merged and rolled back in one step
 * may be taken: it would be refused instead, with the same outcome. Cost: at most n / 32 word operations for a merge, a
 * few operations for every other step. Memory: the closure, at most n * n / 8 bytes before contraction and a small part
 * of that for most models; for candidates kept at most a fifth of n * n / 8 bytes, or a megabyte; and O(n). */
#include "documented.h"

enum { ROOM_FOR_CANDIDATES = 1 << 20 }; /* bytes of kept candidates, at least; see above */

/* ---- candidates kept from round to round ---- */

static int64_t kept_size(const hg_candidate *c)
{
    enum { OVERHEAD = 32 }; /* bytes that malloc adds to an allocation, about */
    return OVERHEAD + (c->words ? 24 * (int64_t)c->words : 4 * (int64_t)c->explored);
}

static void forget(hg_loop *s, hg_candidate *c)
{
    if (c->kept.nodes)
        s->kept_bytes -= kept_size(c);
    free(c->kept.nodes);
    *c = (hg_candidate){0};
}

/* Clears the states that grow left, and keeps what it left on the stack, as a list or as bits, whichever is smaller;
 * only its size if there is no room. */
static int keep(hg_loop *s, hg_candidate *c)
{
    int32_t low = INT32_MAX, high = 0, firm = 0;
    for (int32_t i = 0; i < s->num_touched; i++) {
        const int32_t w = s->rank[s->touched[i]] / 64;
        low = w < low ? w : low;
        high = w > high ? w : high;
        firm += s->state[s->touched[i]] != AT_ONCE;
    }
    *c = (hg_candidate){.size = s->size, .firm = firm, .explored = s->num_touched, .first = low, .words = high - low + 1};
    if (4 * (int64_t)c->explored <= 24 * (int64_t)c->words)
        c->words = 0;
    const int keeps = !s->tracing && s->kept_bytes + kept_size(c) <= s->most_kept_bytes;
    if (keeps) {
        c->kept.nodes = (int32_t *)calloc(1, (size_t)kept_size(c));
        if (!c->kept.nodes)
            return HG_NO_MEMORY;
        s->kept_bytes += kept_size(c);
    }
    int32_t place[] = {[MERGED] = 0, [REJECTED] = s->size, [AT_ONCE] = firm}; /* in the list */
    for (int32_t i = 0; i < s->num_touched; i++) {
        const int32_t v = s->touched[i], r = s->rank[v] - 64 * low;
        const int state = s->state[v];
        s->state[v] = UNSEEN;
        if (!keeps)
            continue;
        if (!c->words) {
            c->kept.nodes[place[state]++] = v;
            continue;
        }
        if (state == MERGED)
            hg_set_bit(c->kept.bits, r);
        if (state != AT_ONCE)
            hg_set_bit(c->kept.bits + c->words, r);
        hg_set_bit(c->kept.bits + 2 * (size_t)c->words, r);
    }
    return HG_OK;
}

/* The members of a candidate that is kept, onto the stack. */
static void recall(hg_loop *s, const hg_candidate *c)
{
    s->size = 0;
    if (!c->words)
        memcpy(s->stack, c->kept.nodes, (size_t)(s->size = c->size) * sizeof *s->stack);
    for (int32_t w = 0; w < c->words; w++)
        for (uint64_t rest = c->kept.bits[w]; rest; rest &= rest - 1)
            s->stack[s->size++] = s->order[64 * (c->first + w) + __builtin_ctzll(rest)];
}

/* Whether a set over ranks holds a firm node, or any explored one. */
static int meets(const hg_loop *s, const hg_candidate *c, int only_firm, const uint64_t *set)
{
    const uint64_t *bits = c->kept.bits + (only_firm ? 1 : 2) * (size_t)c->words;
    const int32_t count = c->words ? 0 : only_firm ? c->firm : c->explored;
    uint64_t common = 0;
    for (int32_t w = 0; w < c->words; w++)
        common |= bits[w] & set[c->first + w];
    for (int32_t i = 0; i < count; i++)
        common |= (uint64_t)hg_bit(set, s->rank[c->kept.nodes[i]]);
    return common != 0;
}

/* Whether a candidate would grow otherwise now that `chosen` is one vertex: every new path leads from `above` to
 * `below`, from `above` to a chosen node or from one to `below`. */
static int changed(const hg_loop *s, const hg_candidate *c, const uint64_t *chosen, const uint64_t *above,
                   const uint64_t *below)
{
    if (meets(s, c, 1, chosen))
        return 1;
    const int from = meets(s, c, 0, above), to = meets(s, c, 0, below);
    return (from && to) || ((from || to) && meets(s, c, 0, chosen));
}

/* ---- rounds ---- */

/* One round of a device: its roots, in topological order. *best: the root of the largest candidate, or -1. */
static int grow_all(hg_loop *s, const int32_t *roots, int32_t count, int32_t *covered, int32_t round, int32_t *best,
                    hg_watch *watch)
{
    int status = HG_OK;
    *best = -1;
    for (int32_t i = 0; i < count && status == HG_OK; i++) {
        const int32_t root = roots[i];
        if (covered[root] == round)
            continue;
        hg_candidate *c = &s->cache[root];
        if (c->kept.nodes)
            recall(s, c);
        else if ((status = hg_grow(s, root, watch)) == HG_OK)
            status = keep(s, c);
        for (int32_t j = 0; j < s->size; j++)
            covered[s->stack[j]] = round;
        if (*best < 0 || c->size > s->cache[*best].size)
            *best = root;
        if (status == HG_OK && hg_interrupted(watch, 8 + s->size))
            status = HG_INTERRUPTED;
    }
    return status;
}

/* Chooses the candidate of a root as subgraph `number`, and drops the candidates that this changes. */
static int choose(hg_loop *s, int32_t root, int32_t number, const int32_t *roots, int32_t count, uint64_t *sets,
                  hg_watch *watch)
{
    uint64_t *chosen = sets, *above = sets + s->words, *below = sets + 2 * (size_t)s->words;
    int status = HG_OK;
    if (s->cache[root].kept.nodes)
        recall(s, &s->cache[root]);
    else {
        const int tracing = s->tracing;
        s->tracing = 0; /* the steps are those of before */
        status = hg_grow(s, root, watch);
        s->tracing = tracing;
        for (int32_t i = 0; i < s->num_touched; i++)
            s->state[s->touched[i]] = UNSEEN;
        if (status != HG_OK)
            return status;
    }
    memset(chosen, 0, (size_t)s->words * sizeof *chosen);
    for (int32_t j = 0; j < s->size; j++) {
        s->label[s->stack[j]] = number;
        s->is_free[s->stack[j]] = s->mergeable[s->stack[j]] = 0;
        hg_set_bit(chosen, s->rank[s->stack[j]]);
    }
    hg_note(s, HG_CHOOSE, root);
    status = hg_contract_members(&s->closure, s->stack, s->size, s->is_free, above, below, watch);
    for (int32_t i = 0; i < count && status == HG_OK; i++) {
        hg_candidate *other = &s->cache[roots[i]];
        const int64_t work = 4 + 2 * (int64_t)(other->words ? other->words : other->explored);
        if (!other->kept.nodes || changed(s, other, chosen, above, below))
            forget(s, other);
        if (hg_interrupted(watch, work))
            status = HG_INTERRUPTED;
    }
    return status == HG_OK && s->failed ? HG_NO_MEMORY : status;
}

static int run(hg_loop *s, int32_t *roots, int32_t *covered, uint64_t *sets, int32_t *subgraphs, hg_watch *watch)
{
    int32_t round = 0;
    int present[256] = {0};
    for (int32_t v = 0; v < s->n; v++) {
        present[s->device[v]] = 1;
        if (hg_interrupted(watch, 1))
            return HG_INTERRUPTED;
    }
    for (int device = 0; device < 256; device++) {
        int32_t count = 0;
        for (int32_t i = 0; i < s->n && present[device]; i++) {
            const int32_t v = s->order[i];
            s->mergeable[v] = s->device[v] == device;
            if (s->mergeable[v])
                roots[count++] = v;
            if (hg_interrupted(watch, 2))
                return HG_INTERRUPTED;
        }
        while (count) {
            int32_t best, left = 0;
            int status = grow_all(s, roots, count, covered, ++round, &best, watch);
            if (status == HG_OK)
                status = choose(s, best, (*subgraphs)++, roots, count, sets, watch);
            if (status != HG_OK)
                return status;
            for (int32_t i = 0; i < count; i++)
                if (s->is_free[roots[i]])
                    roots[left++] = roots[i];
            count = left;
        }
    }
    return HG_OK;
}

/* Smallest-first topological order: rank [n] and its inverse order [n], by a binary heap. */
static int smallest_first(const hg_graph *g, int32_t *rank, int32_t *order, int32_t *waiting, int32_t *heap,
                          hg_watch *watch)
{
    int32_t size = 0;
    for (int32_t v = 0; v < g->n; v++) {
        waiting[v] = g->pred_indptr[v + 1] - g->pred_indptr[v];
        if (!waiting[v])
            heap[size++] = v; /* ascending: a heap already */
        if (hg_interrupted(watch, 2))
            return HG_INTERRUPTED;
    }
    for (int32_t i = 0; i < g->n; i++) {
        const int32_t v = heap[0];
        rank[v] = i;
        order[i] = v;
        const int32_t moved = heap[--size];
        int32_t hole = 0;
        for (int32_t c; (c = 2 * hole + 1) < size; hole = c) {
            if (c + 1 < size && heap[c + 1] < heap[c])
                c++;
            if (heap[c] >= moved)
                break;
            heap[hole] = heap[c];
        }
        heap[hole] = moved;
        for (int32_t j = g->indptr[v]; j < g->indptr[v + 1]; j++) {
            const int32_t y = g->indices[j];
            if (--waiting[y])
                continue;
            int32_t at = size++;
            for (; at > 0 && heap[(at - 1) / 2] > y; at = (at - 1) / 2)
                heap[at] = heap[(at - 1) / 2];
            heap[at] = y;
        }
        if (hg_interrupted(watch, 32))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

static int open_side(hg_path_side *side, int32_t n, int32_t words, int32_t full)
{
    side->full = full;
    side->set = (uint64_t *)calloc((size_t)words, sizeof *side->set);
    side->log_word = HG_NEW(int32_t, n);
    side->log_start = HG_NEW(int32_t, n);
    side->log_full = HG_NEW(int32_t, n);
    side->log_old = HG_NEW(uint64_t, n);
    return side->set && side->log_word && side->log_start && side->log_full && side->log_old;
}

static void close_side(hg_path_side *side)
{
    free(side->set);
    free(side->log_word);
    free(side->log_start);
    free(side->log_full);
    free(side->log_old);
}

int hg_documented(const hg_graph *g, const uint8_t *device, int32_t *label, int32_t *count, hg_trace *trace,
                  hg_watch *watch)
{
    const int32_t n = g->n, words = n / 64 + 1;
    hg_loop s = {.g = g, .device = device, .n = n, .words = words, .label = label, .tracing = trace != NULL};
    int32_t *roots = HG_NEW(int32_t, n), *covered = HG_NEW(int32_t, n);
    uint64_t *sets = HG_NEW(uint64_t, 3 * (int64_t)words);
    int32_t **arrays[] = {&s.rank, &s.order, &s.stack, &s.child, &s.parent, &s.open, &s.touched};
    int status = HG_NO_MEMORY, taken = roots && covered && sets;
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        taken &= (*arrays[i] = HG_NEW(int32_t, n)) != NULL;
    taken &= (s.mergeable = HG_NEW(uint8_t, n)) != NULL;
    taken &= (s.is_free = HG_NEW(uint8_t, n)) != NULL;
    taken &= (s.state = HG_NEW(uint8_t, n)) != NULL;
    taken &= (s.rejected = (uint64_t *)calloc((size_t)words, sizeof *s.rejected)) != NULL;
    taken &= (s.cache = (hg_candidate *)calloc((size_t)n + 1, sizeof *s.cache)) != NULL;
    taken &= open_side(&s.below, n, words, words - 1);
    taken &= open_side(&s.above, n, words, 0);
    if (!taken || (n && (status = smallest_first(g, s.rank, s.order, s.stack, s.touched, watch)) != HG_OK))
        goto out;
    status = hg_contracted_open(&s.closure, g, s.rank, s.order, HG_DOCUMENTED_BYTES, watch);
    if (status != HG_OK)
        goto out;
    const int64_t fifth = (int64_t)n * words / 5 * 8; /* of the bytes that the closure may take */
    s.most_kept_bytes = fifth > HG_DOCUMENTED_BYTES / 5 ? HG_DOCUMENTED_BYTES / 5 : fifth;
    if (s.most_kept_bytes < ROOM_FOR_CANDIDATES)
        s.most_kept_bytes = ROOM_FOR_CANDIDATES;
    status = HG_INTERRUPTED;
    if (hg_fill(s.is_free, 1, n, watch) != HG_OK || hg_fill(s.state, UNSEEN, n, watch) != HG_OK ||
        hg_fill(covered, 0, 4 * (int64_t)n, watch) != HG_OK || hg_fill(label, 0xFF, 4 * (int64_t)n, watch) != HG_OK)
        goto out;
    *count = 0;
    status = run(&s, roots, covered, sets, count, watch);
    for (int32_t v = 0; v < n && s.kept_bytes; v++)
        forget(&s, &s.cache[v]);
out:
    hg_contracted_close(&s.closure);
    close_side(&s.below);
    close_side(&s.above);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free(*arrays[i]);
    free(s.mergeable);
    free(s.is_free);
    free(s.state);
    free(s.rejected);
    free(s.cache);
    free(roots);
    free(covered);
    free(sets);
    if (status == HG_OK && trace)
        *trace = (hg_trace){s.actions, s.action_nodes, s.num_actions};
    else {
        free(s.actions);
        free(s.action_nodes);
    }
    return status;
}

void hg_trace_free(hg_trace *trace)
{
    free(trace->actions);
    free(trace->nodes);
    *trace = (hg_trace){0};
}
