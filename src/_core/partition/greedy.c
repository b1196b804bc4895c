/* Policy `greedy`: the documented loop with early rejection, for graphs of any size. tests/partition/reference.py has
 * the same loop in Python, without the data structures that make it fast.
 *
 * The loop, for each device in ascending order:
 *   1. Cover. Each free node of the device, in topological order, that no candidate covers yet becomes the root of a
 *      candidate (grow_and_cover). A candidate is a convex connected set of free nodes of the device, grown from its
 *      root by greedy_growth.c. It covers those of its nodes that no other candidate covers: it is their owner.
 *   2. Choose. The largest candidate by the size last seen, the earliest root among equals, is grown again, since
 *      choices made in between may have shrunk it. If it is still at least as large as the next one, it is chosen:
 *      its nodes get a label, and become one vertex of the graph that later growths see. Otherwise it goes back into
 *      the queue with its new size.
 *   3. Cover the loose. Nodes whose owner was chosen or shrank, and that are still free, are covered anew (1).
 *   4. When the queue is empty, each node left is a subgraph of its own. A candidate of one node is never queued:
 *      choices only shrink candidates, so it stays one.
 *
 * Data: the first round's candidates are sorted once (`first`), later ones go to a heap (`later`); both hold entries, a
 * candidate's size and its root's rank in one number, so that comparing entries compares candidates. `owned` and
 * next_owned list the nodes that each root owns.
 *
 * Cost: each candidate is grown about twice on most graphs, and a growth is local: O(n log n + m). The loop itself has
 * no such bound: candidates may overlap and shrink again and again, and the order of the vertices may have to move far.
 * After STEPS_FIRST + STEPS_EACH * (n + m) steps the nodes left are cut by depth (greedy_rest.c), in linear time: fewer
 * nodes are merged then, but the result is as valid. */
#include "greedy.h"
#include "arena.h"

/* The usual bounds (hg_greedy_bounds). A step is a node or an edge that is looked at, a few nanoseconds each. */
enum {
    EXPLORE_FIRST = 128,   /* steps that one growth may explore on each side, */
    EXPLORE_EACH = 16,     /* and for each of its nodes: keeps a growth local */
    COVERED = 32,          /* nodes of other owners before a candidate is cut short: see hg_greedy_grow */
    STEPS_FIRST = 1 << 22, /* steps of all growths before the rest is cut by depth, */
    STEPS_EACH = 64,       /* and for each node and edge: keeps the policy linear */
    SPARE = 1 << 22        /* steps shared out among the nodes and added to EXPLORE_FIRST and COVERED, for small graphs */
};

/* A candidate as a number: its size, then its root's rank, the earliest highest. */
typedef uint64_t entry;

typedef struct {
    hg_greedy_state growth;
    int32_t *by_device;  /* nodes by device, in topological order */
    int32_t start[257];  /* of each device */
    int32_t *owned;      /* of a root: the first of the nodes its candidate covers, or -1 */
    entry *first, *other; /* candidates of a device's first round, the largest first; scratch to sort them */
    int32_t num_first, next_first;
    entry *later; /* heap of the others */
    int32_t num_later;
    int32_t *loose; /* ranks of the nodes that lost their owner */
    int32_t num_loose;
    int32_t count; /* subgraphs chosen */
} greedy;

static inline entry entry_of(const greedy *s, int32_t root)
{
    return (uint64_t)s->growth.size << 32 | (uint32_t)~s->growth.node[root].rank;
}

static void push_later(greedy *s, entry x)
{
    int32_t at = s->num_later++;
    HT_ASSERT(at < s->growth.g->n);
    for (; at > 0 && x > s->later[(at - 1) / 2]; at = (at - 1) / 2)
        s->later[at] = s->later[(at - 1) / 2];
    s->later[at] = x;
}

static void pop_later(greedy *s)
{
    entry *heap = s->later;
    const int32_t count = --s->num_later;
    HT_ASSERT(count >= 0);
    const entry moved = heap[count];
    int32_t hole = 0;
    for (int32_t c; (c = 2 * hole + 1) < count; hole = c) {
        if (c + 1 < count && heap[c + 1] > heap[c])
            c++;
        if (heap[c] <= moved)
            break;
        heap[hole] = heap[c];
    }
    heap[hole] = moved;
}

/* The largest candidate, or 0. */
static inline entry peek(const greedy *s)
{
    const entry a = s->next_first < s->num_first ? s->first[s->next_first] : 0;
    const entry b = s->num_later ? s->later[0] : 0;
    return a > b ? a : b;
}

static void pop(greedy *s, entry x)
{
    if (s->next_first < s->num_first && s->first[s->next_first] == x)
        s->next_first++;
    else
        pop_later(s);
}

/* Radix sort by size, the largest first. It is stable, so candidates of equal size stay in order of their roots'
 * ranks. */
static int sort_first(greedy *s)
{
    enum { BITS = 11, DIGITS = 1 << BITS }; /* of a digit; 8 kB of counts, a quarter of the L1 cache */
    uint64_t most = 0;
    for (int32_t i = 0; i < s->num_first; i++)
        most = s->first[i] > most ? s->first[i] : most;
    if (hg_interrupted(s->growth.watch, s->num_first / 2))
        return HG_INTERRUPTED;
    for (int shift = 32; most >> shift; shift += BITS) {
        int32_t place[DIGITS + 1] = {0};
        for (int32_t i = 0; i < s->num_first; i++)
            place[DIGITS - (s->first[i] >> shift & (DIGITS - 1))]++;
        for (int d = 0; d < DIGITS; d++)
            place[d + 1] += place[d];
        for (int32_t i = 0; i < s->num_first; i++) {
            s->other[place[DIGITS - 1 - (s->first[i] >> shift & (DIGITS - 1))]++] = s->first[i];
            if (!(~i & 0xFFFF) && hg_interrupted(s->growth.watch, 1 << 18))
                return HG_INTERRUPTED;
        }
        entry *sorted = s->other;
        s->other = s->first;
        s->first = sorted;
        if (shift + BITS > 63)
            break;
    }
    return HG_OK;
}

/* The candidate just grown covers those of its nodes that no other does. */
static void cover(greedy *s, int32_t root)
{
    hg_greedy_node *node = s->growth.node;
    for (int32_t i = 0; i < s->growth.size; i++) {
        const int32_t v = s->growth.stack[i];
        if (node[v].owner >= 0)
            continue;
        node[v].owner = root;
        node[v].next_owned = s->owned[root];
        s->owned[root] = v;
    }
}

/* Free nodes of root's old candidate that the one just grown (if it is root's) lacks become loose. */
static void uncover(greedy *s, int32_t root, int regrown)
{
    hg_greedy_node *node = s->growth.node;
    int32_t kept = -1;
    for (int32_t v = s->owned[root], next; v >= 0; v = next) {
        next = node[v].next_owned;
        if (node[v].label >= 0)
            continue;
        if (regrown && node[v].mark[DOWN] == 4 * s->growth.growth + MERGED) {
            node[v].next_owned = kept;
            kept = v;
        } else {
            node[v].owner = -1;
            s->loose[s->num_loose++] = node[v].rank;
        }
    }
    s->owned[root] = kept;
}

/* Grows a candidate and covers its nodes. *found: its entry, 0 if it has no node but its root. */
static int grow_and_cover(greedy *s, int32_t root, entry *found)
{
    if (hg_greedy_grow(&s->growth, root, s->growth.bounds.max_covered) != HG_OK)
        return HG_INTERRUPTED;
    s->owned[root] = -1;
    cover(s, root);
    *found = s->growth.size > 1 ? entry_of(s, root) : 0;
    return hg_interrupted(s->growth.watch, 8 * (int64_t)s->growth.size) ? HG_INTERRUPTED : HG_OK;
}

/* Candidates for the loose nodes, in topological order. */
static int cover_loose(greedy *s)
{
    int32_t *loose = s->loose;
    const int32_t count = s->num_loose;
    s->num_loose = 0;
    for (int32_t gap = count / 2; gap > 0; gap = gap == 2 ? 1 : (int32_t)((int64_t)gap * 5 / 11)) /* Shell sort */
        for (int32_t i = gap; i < count; i++) {
            const int32_t moved = loose[i];
            int32_t j = i;
            for (; j >= gap && loose[j - gap] > moved; j -= gap)
                loose[j] = loose[j - gap];
            loose[j] = moved;
            if (!(~i & 0xFFF) && hg_interrupted(s->growth.watch, 1 << 14))
                return HG_INTERRUPTED;
        }
    for (int32_t i = 0; i < count; i++) {
        const int32_t root = hg_nth(s->growth.g, loose[i]);
        entry found;
        if (s->growth.node[root].owner >= 0)
            continue;
        if (grow_and_cover(s, root, &found) != HG_OK)
            return HG_INTERRUPTED;
        if (found)
            push_later(s, found);
    }
    return HG_OK;
}

static int choose(greedy *s, int32_t root)
{
    if (hg_greedy_contract(&s->growth) != HG_OK)
        return HG_INTERRUPTED;
    for (int32_t i = 0; i < s->growth.size; i++)
        s->growth.node[s->growth.stack[i]].label = s->count;
    s->count++;
    uncover(s, root, 0);
    return HG_OK;
}

/* Chooses all subgraphs of one device, unless the steps run out. */
static int choose_all(greedy *s, int device)
{
    hg_greedy_state *growth = &s->growth;
    const int64_t max_steps = growth->bounds.max_steps;
    const int32_t begin = s->start[device], end = s->start[device + 1];
    s->num_first = s->next_first = s->num_later = s->num_loose = 0;
    for (int32_t i = begin; i < end; i++) {
        entry found;
        if (growth->steps > max_steps)
            return HG_OK;
        if (growth->node[s->by_device[i]].owner >= 0)
            continue;
        if (grow_and_cover(s, s->by_device[i], &found) != HG_OK)
            return HG_INTERRUPTED;
        if (found)
            s->first[s->num_first++] = found;
    }
    if (sort_first(s) != HG_OK)
        return HG_INTERRUPTED;
    for (entry largest; (largest = peek(s)) != 0;) {
        const int32_t root = hg_nth(growth->g, (int32_t)~(uint32_t)largest);
        if (growth->steps > max_steps)
            return HG_OK;
        pop(s, largest);
        if (growth->node[root].label >= 0)
            uncover(s, root, 0);
        else {
            if (hg_greedy_grow(growth, root, INT32_MAX) != HG_OK)
                return HG_INTERRUPTED;
            const entry now = entry_of(s, root);
            if (growth->size > 1 && (now >= largest || now > peek(s))) {
                if (choose(s, root) != HG_OK)
                    return HG_INTERRUPTED;
            } else {
                uncover(s, root, 1);
                cover(s, root);
                if (growth->size > 1)
                    push_later(s, now);
            }
        }
        if (s->num_loose && cover_loose(s) != HG_OK)
            return HG_INTERRUPTED;
    }
    for (int32_t i = begin; i < end; i++) {
        const int32_t v = s->by_device[i];
        if (growth->node[v].label < 0)
            growth->node[v].label = s->count++;
        if (!(~i & 0xFFFF) && hg_interrupted(growth->watch, 1 << 18))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

/* Each node's predecessors and successors in one row. */
static int copy_rows(hg_greedy_state *s)
{
    const hg_graph *g = s->g;
    uint32_t at = 0;
    for (int32_t v = 0; v < g->n; v++) {
        const uint32_t in = (uint32_t)(g->pred_indptr[v + 1] - g->pred_indptr[v]);
        const uint32_t out = (uint32_t)(g->indptr[v + 1] - g->indptr[v]);
        s->node[v].begin = at;
        s->node[v].middle = at + in;
        for (uint32_t j = 0; j < in; j++)
            s->rows[at + j] = g->pred_indices[g->pred_indptr[v] + (int32_t)j];
        for (uint32_t j = 0; j < out; j++)
            s->rows[at + in + j] = g->indices[g->indptr[v] + (int32_t)j];
        at += in + out;
        if (hg_interrupted(s->watch, 8 + 2 * ((int64_t)in + out)))
            return HG_INTERRUPTED;
    }
    HT_ASSERT(at == 2 * g->m);
    s->node[g->n].begin = at;
    return HG_OK;
}

static int set_up(greedy *s, const uint8_t *device)
{
    hg_greedy_state *growth = &s->growth;
    const hg_graph *g = growth->g;
    const int32_t n = g->n;
    for (int32_t v = 0; v < n; v++) {
        s->start[device[v] + 1]++;
        if (!(~v & 0xFFFF) && hg_interrupted(growth->watch, 1 << 17))
            return HG_INTERRUPTED;
    }
    int32_t place[256];
    for (int d = 0; d < 256; d++) {
        s->start[d + 1] += s->start[d];
        place[d] = s->start[d];
    }
    growth->order.head = n;
    int32_t at = n;
    for (int32_t i = 0; i < n; i++) {
        const int32_t v = hg_nth(g, i);
        s->by_device[place[device[v]]++] = v;
        growth->order.next[at] = v;
        growth->order.previous[v] = at;
        at = v;
        growth->node[v] = (hg_greedy_node){
            .vertex = v, .next_member = v, .label = ~(int32_t)device[v], .rank = i, .owner = -1, .next_owned = -1};
        if (!(~i & 0x3FFF) && hg_interrupted(growth->watch, 1 << 17))
            return HG_INTERRUPTED;
    }
    growth->order.next[at] = n;
    growth->order.previous[n] = at;
    hg_list_number(&growth->order, n);
    return copy_rows(growth) == HG_OK ? hg_greedy_plant(growth, growth->stack) : HG_INTERRUPTED;
}

int hg_greedy(const hg_graph *g, const uint8_t *device, const hg_greedy_bounds *bounds, int32_t *label, int32_t *count,
              int32_t *chosen, hg_watch *watch)
{
    const int32_t n = g->n;
    const int64_t spare = SPARE / ((int64_t)n + 1); /* for a node of a small graph */
    const hg_greedy_bounds usual = {EXPLORE_FIRST + spare, EXPLORE_EACH, COVERED + spare,
                                    STEPS_FIRST + STEPS_EACH * (n + g->m)};
    int status = HG_NO_MEMORY;
    hg_arena arena;
    if (!hg_arena_open(&arena, (size_t)n * 144 + (size_t)g->m * 8 + 4096))
        return status;
    greedy s = {.growth = {.g = g, .bounds = bounds ? *bounds : usual, .watch = watch}};
    hg_greedy_state *growth = &s.growth;
    int32_t **arrays[] = {&growth->order.next,  &growth->order.previous,    &growth->stack,
                          &growth->degree[0],   &growth->degree[1],         &growth->clean[0].item,
                          &growth->clean[1].item, &growth->frontier[0].item, &growth->frontier[1].item,
                          &s.by_device,         &s.owned,                   &s.loose};
    entry **entries[] = {&s.first, &s.other, &s.later};
    int taken = (growth->node = HG_TAKE(&arena, hg_greedy_node, (int64_t)n + 1)) != NULL &&
                (growth->rows = HG_TAKE(&arena, int32_t, 2 * g->m)) != NULL;
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays && taken; i++)
        taken = (*arrays[i] = HG_TAKE(&arena, int32_t, (int64_t)n + 1)) != NULL;
    for (size_t i = 0; i < sizeof entries / sizeof *entries && taken; i++)
        taken = (*entries[i] = HG_TAKE(&arena, entry, n)) != NULL;
    if (!taken)
        goto out;
    growth->order.key = &growth->node[0].key;
    const int64_t max_steps = growth->bounds.max_steps;
    status = set_up(&s, device);
    for (int d = 0; d < 256 && status == HG_OK && growth->steps <= max_steps; d++)
        status = choose_all(&s, d);
    *chosen = s.count;
    if (status == HG_OK && growth->steps > max_steps)
        status = hg_greedy_rest(growth, &s.count, growth->clean[0].item, growth->clean[1].item);
    for (int32_t v = 0; v < n && status == HG_OK; v++) {
        label[v] = growth->node[v].label;
        if (!(~v & 0xFFFF) && hg_interrupted(watch, 1 << 17))
            status = HG_INTERRUPTED;
    }
    *count = s.count;
out:
    hg_arena_close(&arena);
    return status;
}
