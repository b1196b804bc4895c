/* Policy `documented`: the documented loop, the fast twin of partition/reference.py.
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
#include "contracted.h"

enum { ROOM_FOR_CANDIDATES = 1 << 20 }; /* bytes, at least */

/* What grew from one root, as long as it holds. */
typedef struct {
    int32_t size;          /* number of members, which are firm, and so explored */
    int32_t firm;          /* explored, without those rolled back in the step that merged them */
    int32_t explored;
    int32_t first, words;  /* of the bit sets; words = 0: kept as a list of nodes, members first, firm ones next */
    union {
        int32_t *nodes;
        uint64_t *bits; /* over ranks: members, firm, explored, `words` each */
    } kept; /* NULL: only the size is known, of this round */
} candidate;

/* The union of one direction's closure rows of all members, with what merging changed. */
typedef struct {
    uint64_t *set; /* over ranks */
    int32_t full;  /* below: words from here to the last but one hold only ones; above: words before here */
    int32_t *log_word, *log_start, *log_full; /* changed words; by place: where its part starts, and full before it */
    uint64_t *log_old;
    int32_t logged;
} path_side;

typedef struct {
    const hg_graph *g;
    const uint8_t *device;
    int32_t n, words;
    int32_t *rank, *order; /* smallest-first topological order */
    int32_t *label;        /* of a node: the subgraph that was chosen with it, or -1 */
    uint8_t *mergeable;    /* of a node: of the device whose turn it is, and free */
    uint8_t *is_free;      /* of a node: not chosen */
    hg_contracted closure;

    /* the candidate that grows */
    int32_t *stack, size;    /* in order of merging */
    int32_t *child, *parent; /* by place: next edge to look at */
    int32_t *open, num_open; /* places that may have a neighbour left, ascending */
    uint8_t *state;          /* of a node: UNSEEN, MERGED, REJECTED or AT_ONCE */
    int32_t *touched, num_touched;
    uint64_t *rejected;      /* over ranks, words low .. high */
    int32_t low, high;
    int32_t witness;         /* rank of a rejected node on a path, or -1 */
    path_side below, above;

    candidate *cache; /* by root */
    int64_t kept_bytes, most_kept_bytes;

    int8_t *actions; /* the trace: growable, or NULL */
    int32_t *action_nodes;
    int64_t num_actions, room_actions;
    int tracing, failed;
} loop;

enum { UNSEEN = 0, MERGED, REJECTED, AT_ONCE }; /* AT_ONCE: rejected in the step that merged it */

static void note(loop *s, int action, int32_t node)
{
    if (!s->tracing)
        return;
    if (s->num_actions == s->room_actions) {
        const int64_t room = s->room_actions ? 2 * s->room_actions : 256;
        int8_t *actions = (int8_t *)realloc(s->actions, (size_t)room);
        if (actions)
            s->actions = actions;
        int32_t *nodes = (int32_t *)realloc(s->action_nodes, (size_t)room * sizeof *nodes);
        if (nodes)
            s->action_nodes = nodes;
        if (!actions || !nodes) {
            s->failed = 1;
            return;
        }
        s->room_actions = room;
    }
    s->actions[s->num_actions] = (int8_t)action;
    s->action_nodes[s->num_actions++] = node;
}

/* side |= words first .. end - 1 of a row (bits NULL: ones). A rejected node that is now in both sides is the witness. */
static void unite_words(loop *s, path_side *side, const uint64_t *other, const uint64_t *bits, int32_t first,
                        int32_t end)
{
    for (int32_t w = first; w < end; w++) {
        const uint64_t old = side->set[w], added = (bits ? bits[w - first] : UINT64_MAX) & ~old;
        if (!added)
            continue;
        side->log_word[side->logged] = w;
        side->log_old[side->logged++] = old;
        side->set[w] = old | added;
        const uint64_t found = added & other[w] & s->rejected[w];
        if (found)
            s->witness = 64 * w + __builtin_ctzll(found);
    }
}

/* Unites a side with the closure row of the member of a place; words known to be full already are passed over. A side
 * that holds the member holds all of its row. */
static void unite_row(loop *s, path_side *side, const path_side *other, int32_t place, int32_t r, const hg_row *row,
                      int down)
{
    side->log_start[place] = side->logged;
    side->log_full[place] = side->full;
    if (hg_bit(side->set, r))
        return;
    int32_t first = row->first, end = row->end;
    if (down) {
        if (row->ones < side->full) {
            unite_words(s, side, other->set, NULL, row->ones, side->full);
            side->full = row->ones;
        }
        if (row->last)
            unite_words(s, side, other->set, &row->last, s->words - 1, s->words);
        end = end < side->full ? end : side->full;
    } else {
        if (side->full < row->ones_end) {
            unite_words(s, side, other->set, NULL, side->full, row->ones_end);
            side->full = row->ones_end;
        }
        first = first > side->full ? first : side->full;
    }
    if (first < end)
        unite_words(s, side, other->set, row->bits + (first - row->first), first, end);
}

static void take_back(path_side *side, int32_t place)
{
    while (side->logged > side->log_start[place]) {
        side->logged--;
        side->set[side->log_word[side->logged]] = side->log_old[side->logged];
    }
    side->full = side->log_full[place];
}

/* After a rollback: is the witness still one, or is there another? */
static void find_witness(loop *s)
{
    const uint64_t *below = s->below.set, *above = s->above.set;
    if (hg_bit(below, s->witness) && hg_bit(above, s->witness))
        return;
    for (int32_t w = s->low; w <= s->high; w++) {
        const uint64_t found = below[w] & above[w] & s->rejected[w];
        if (found) {
            s->witness = 64 * w + __builtin_ctzll(found);
            return;
        }
    }
    s->witness = -1;
}

static void push(loop *s, int32_t v)
{
    const int32_t place = s->size++, r = s->rank[v];
    s->stack[place] = v;
    s->child[place] = s->g->indptr[v];
    s->parent[place] = s->g->pred_indptr[v];
    s->open[s->num_open++] = place;
    unite_row(s, &s->below, &s->above, place, r, &s->closure.below[r], 1);
    unite_row(s, &s->above, &s->below, place, r, &s->closure.above[r], 0);
    s->touched[s->num_touched++] = v;
    s->state[v] = MERGED;
}

static void reject(loop *s, int32_t v)
{
    const int32_t r = s->rank[v], w = r / 64;
    if (s->state[v] == UNSEEN)
        s->touched[s->num_touched++] = v;
    s->state[v] = REJECTED;
    hg_set_bit(s->rejected, r);
    s->low = w < s->low ? w : s->low;
    s->high = w > s->high ? w : s->high;
    if (hg_bit(s->below.set, r) && hg_bit(s->above.set, r))
        s->witness = r;
}

/* The node merged last joins the rejected list. */
static void roll_back(loop *s)
{
    const int32_t place = --s->size, v = s->stack[place];
    if (s->num_open && s->open[s->num_open - 1] == place)
        s->num_open--;
    take_back(&s->below, place);
    take_back(&s->above, place);
    reject(s, v);
    note(s, HG_ROLLBACK, v);
}

/* Merges v, and rejects it again at once where that violates the condition. */
static void merge(loop *s, int32_t v)
{
    note(s, HG_MERGE, v);
    push(s, v);
    if (s->witness < 0)
        return;
    roll_back(s);
    s->state[v] = AT_ONCE;
    find_witness(s);
}

/* One step: from the cursor on, the neighbours of a member in one direction up to the first that can be merged or calls
 * for a rollback. Returns whether there was one. */
static int step(loop *s, const int32_t *row, int32_t *cursor, int32_t end)
{
    for (int32_t j = *cursor; j < end; j++) {
        const int32_t v = row[j];
        if (s->state[v] != UNSEEN)
            continue;
        *cursor = j + 1;
        if (s->mergeable[v])
            merge(s, v);
        else {
            reject(s, v);
            note(s, HG_FAIL, v);
            if (s->witness < 0)
                continue;
        }
        while (s->witness >= 0) {
            roll_back(s);
            find_witness(s);
        }
        return 1;
    }
    *cursor = end;
    return 0;
}

/* Grows the candidate of one root on the stack; touched: all nodes explored. The next neighbour is always that of the
 * most recently merged member that has one; states are never taken back, so a member without one stays so. */
static int grow(loop *s, int32_t root, hg_watch *watch)
{
    const hg_graph *g = s->g;
    int64_t work = 0;
    s->size = s->num_touched = s->num_open = 0;
    s->low = s->words;
    s->high = s->witness = -1;
    note(s, HG_ROOT, root);
    push(s, root);
    while (s->num_open) {
        const int32_t place = s->open[s->num_open - 1], v = s->stack[place];
        const int32_t before = s->num_touched, child = s->child[place], parent = s->parent[place];
        if (!step(s, g->indices, &s->child[place], g->indptr[v + 1]) &&
            !step(s, g->pred_indices, &s->parent[place], g->pred_indptr[v + 1]))
            s->num_open--;
        work += 4 + 4 * (s->num_touched - before) + (s->child[place] - child) + (s->parent[place] - parent) +
                s->words / 4;
        if (work > 1 << 14) {
            if (hg_interrupted(watch, work))
                return HG_INTERRUPTED;
            work = 0;
        }
    }
    take_back(&s->below, 0);
    take_back(&s->above, 0);
    for (int32_t w = s->low; w <= s->high; w++)
        s->rejected[w] = 0;
    return hg_interrupted(watch, work + s->num_touched) ? HG_INTERRUPTED : HG_OK;
}

/* ---- candidates kept from round to round ---- */

static int64_t kept_size(const candidate *c)
{
    enum { OVERHEAD = 32 }; /* of an allocation */
    return OVERHEAD + (c->words ? 24 * (int64_t)c->words : 4 * (int64_t)c->explored);
}

static void forget(loop *s, candidate *c)
{
    if (c->kept.nodes)
        s->kept_bytes -= kept_size(c);
    free(c->kept.nodes);
    *c = (candidate){0};
}

/* Clears the states that grow left, and keeps what it left on the stack, as a list or as bits, whichever is smaller;
 * where there is no room, only its size. */
static int keep(loop *s, candidate *c)
{
    int32_t low = INT32_MAX, high = 0, firm = 0;
    for (int32_t i = 0; i < s->num_touched; i++) {
        const int32_t w = s->rank[s->touched[i]] / 64;
        low = w < low ? w : low;
        high = w > high ? w : high;
        firm += s->state[s->touched[i]] != AT_ONCE;
    }
    *c = (candidate){.size = s->size, .firm = firm, .explored = s->num_touched, .first = low, .words = high - low + 1};
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
static void recall(loop *s, const candidate *c)
{
    s->size = 0;
    if (!c->words)
        memcpy(s->stack, c->kept.nodes, (size_t)(s->size = c->size) * sizeof *s->stack);
    for (int32_t w = 0; w < c->words; w++)
        for (uint64_t rest = c->kept.bits[w]; rest; rest &= rest - 1)
            s->stack[s->size++] = s->order[64 * (c->first + w) + __builtin_ctzll(rest)];
}

/* Whether a set over ranks holds a firm node, or any explored one. */
static int meets(const loop *s, const candidate *c, int only_firm, const uint64_t *set)
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
static int changed(const loop *s, const candidate *c, const uint64_t *chosen, const uint64_t *above,
                   const uint64_t *below)
{
    if (meets(s, c, 1, chosen))
        return 1;
    const int from = meets(s, c, 0, above), to = meets(s, c, 0, below);
    return (from && to) || ((from || to) && meets(s, c, 0, chosen));
}

/* ---- rounds ---- */

/* One round of a device: its roots, in topological order. *best: the root of the largest candidate, or -1. */
static int grow_all(loop *s, const int32_t *roots, int32_t count, int32_t *covered, int32_t round, int32_t *best,
                    hg_watch *watch)
{
    int status = HG_OK;
    *best = -1;
    for (int32_t i = 0; i < count && status == HG_OK; i++) {
        const int32_t root = roots[i];
        if (covered[root] == round)
            continue;
        candidate *c = &s->cache[root];
        if (c->kept.nodes)
            recall(s, c);
        else if ((status = grow(s, root, watch)) == HG_OK)
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

/* The candidate of a root becomes subgraph `number`; those that it changes are forgotten. */
static int choose(loop *s, int32_t root, int32_t number, const int32_t *roots, int32_t count, uint64_t *sets,
                  hg_watch *watch)
{
    uint64_t *chosen = sets, *above = sets + s->words, *below = sets + 2 * (size_t)s->words;
    int status = HG_OK;
    if (s->cache[root].kept.nodes)
        recall(s, &s->cache[root]);
    else {
        const int tracing = s->tracing;
        s->tracing = 0; /* the steps are those of before */
        status = grow(s, root, watch);
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
    note(s, HG_CHOOSE, root);
    status = hg_contract_members(&s->closure, s->stack, s->size, s->is_free, above, below, watch);
    for (int32_t i = 0; i < count && status == HG_OK; i++) {
        candidate *other = &s->cache[roots[i]];
        const int64_t work = 4 + 2 * (int64_t)(other->words ? other->words : other->explored);
        if (!other->kept.nodes || changed(s, other, chosen, above, below))
            forget(s, other);
        if (hg_interrupted(watch, work))
            status = HG_INTERRUPTED;
    }
    return status == HG_OK && s->failed ? HG_NO_MEMORY : status;
}

static int run(loop *s, int32_t *roots, int32_t *covered, uint64_t *sets, int32_t *subgraphs, hg_watch *watch)
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

static int open_side(path_side *side, int32_t n, int32_t words, int32_t full)
{
    side->full = full;
    side->set = (uint64_t *)calloc((size_t)words, sizeof *side->set);
    side->log_word = HG_NEW(int32_t, n);
    side->log_start = HG_NEW(int32_t, n);
    side->log_full = HG_NEW(int32_t, n);
    side->log_old = HG_NEW(uint64_t, n);
    return side->set && side->log_word && side->log_start && side->log_full && side->log_old;
}

static void close_side(path_side *side)
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
    loop s = {.g = g, .device = device, .n = n, .words = words, .label = label, .tracing = trace != NULL};
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
    taken &= (s.cache = (candidate *)calloc((size_t)n + 1, sizeof *s.cache)) != NULL;
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
