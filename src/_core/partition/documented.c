/* Policy `documented`: the documented loop, the fast twin of partition/reference.py.
 *
 * Source: the subgraph selection of OpenVINO's HETERO plugin design; chosen subgraphs count as single vertices for
 * reachability. For each device in ascending order: grow a candidate from every root, depth first, with a rejected list
 * and rollback; choose the largest; repeat.
 *
 * The global condition asks for a pair src, dst of the candidate with a rejected node on a path between them. Since src
 * and dst are free, that is a rejected node which some member reaches and which reaches some member. The candidate is a
 * stack, so each node remembers the lowest place in it that reaches the node (`below`) and that it reaches (`above`);
 * pushing a member marks what no lower one covers, popping it unmarks the same nodes, and the number of rejected nodes
 * marked both ways answers the condition in O(1). One candidate costs what its marks cost: O(n + m) with few rollbacks.
 *
 * A candidate is a function of its explored nodes and of the paths between them. It is kept from round to round while
 * the choice holds none of them and does not lie between two of them. Worst case O(rounds * roots * (n + m)). */
#include "arena.h"
#include "graph.h"

/* What grows from one root, as long as it holds. */
typedef struct {
    int32_t *members; /* NULL: not grown */
    int32_t size;
    uint64_t *explored; /* bit set over ranks, words first..first+words-1 */
    int32_t first, words;
} candidate;

typedef struct {
    const hg_graph *g;
    const uint8_t *device;
    int32_t n;
    const int32_t *rank;     /* of a node: its place in the smallest-first topological order */
    int32_t *label;          /* of a node: the subgraph that was chosen with it, or -1 */
    int32_t *next_member;    /* of a chosen node: the next of its subgraph, in a circle */
    int32_t *below, *above;  /* lowest place of the candidate that reaches the node, or that it reaches; FREE: none */
    int32_t *below_next, *above_next; /* nodes marked by one place, as lists */
    int32_t *below_first, *above_first; /* by place */
    int32_t *stack;          /* [n] the candidate, in order of merging */
    int32_t *child, *parent; /* by place: next edge to look at */
    int32_t *open;           /* places that may have a neighbour left, ascending */
    int32_t num_open;
    uint8_t *state;          /* of a node in the growing candidate */
    int32_t *touched;        /* nodes with a state */
    int32_t num_touched, size, violations;
    int32_t *queue;
    int8_t *actions; /* the trace: growable, or NULL */
    int32_t *action_nodes;
    int64_t num_actions, room_actions;
    int tracing, failed;
} loop;

enum { FREE = INT32_MAX };
enum { UNSEEN = 0, MERGED = 1, REJECTED = 2 };

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

static inline int violates(const loop *s, int32_t v)
{
    return s->state[v] == REJECTED && s->below[v] != FREE && s->above[v] != FREE;
}

/* Marks what `start` reaches (down) or what reaches it, itself included in neither; chosen subgraphs are one vertex. */
static int64_t mark(loop *s, int32_t start, int32_t place, int down)
{
    const hg_graph *g = s->g;
    const int32_t *ptr = down ? g->indptr : g->pred_indptr, *row = down ? g->indices : g->pred_indices;
    int32_t *of = down ? s->below : s->above;
    int32_t *next = down ? s->below_next : s->above_next;
    int32_t *first = down ? &s->below_first[place] : &s->above_first[place];
    int32_t head = 0, tail = 0;
    int64_t work = 1;
    *first = -1;
    for (int32_t x = start;; x = s->queue[head++]) {
        work += ptr[x + 1] - ptr[x];
        for (int32_t j = ptr[x]; j < ptr[x + 1]; j++) {
            int32_t y = row[j];
            if (of[y] != FREE)
                continue;
            const int32_t entry = y;
            do { /* a node, or all nodes of a chosen subgraph */
                of[y] = place;
                next[y] = *first;
                *first = y;
                s->queue[tail++] = y;
                s->violations += violates(s, y);
                if (s->label[y] < 0)
                    break;
                y = s->next_member[y];
            } while (y != entry);
        }
        if (head == tail)
            return work;
    }
}

static int64_t unmark(loop *s, int32_t place, int down)
{
    int32_t *of = down ? s->below : s->above;
    const int32_t *next = down ? s->below_next : s->above_next;
    int64_t work = 1;
    for (int32_t y = down ? s->below_first[place] : s->above_first[place]; y >= 0; y = next[y]) {
        s->violations -= violates(s, y);
        of[y] = FREE;
        work++;
    }
    return work;
}

static void set_state(loop *s, int32_t v, int state)
{
    if (s->state[v] == UNSEEN)
        s->touched[s->num_touched++] = v;
    s->state[v] = (uint8_t)state;
    s->violations += violates(s, v);
}

static int64_t push(loop *s, int32_t v)
{
    const int32_t place = s->size++;
    s->stack[place] = v;
    s->child[place] = s->g->indptr[v];
    s->parent[place] = s->g->pred_indptr[v];
    set_state(s, v, MERGED);
    /* What v reaches is marked already when v is, and v's mark does not outlive the lower place that set it. */
    int64_t work = 0;
    s->open[s->num_open++] = place;
    s->below_first[place] = s->above_first[place] = -1;
    if (s->below[v] == FREE)
        work += mark(s, v, place, 1);
    if (s->above[v] == FREE)
        work += mark(s, v, place, 0);
    return work;
}

static int64_t pop_into_rejected(loop *s)
{
    const int32_t place = --s->size, v = s->stack[place];
    int64_t work = unmark(s, place, 1) + unmark(s, place, 0);
    if (s->num_open && s->open[s->num_open - 1] == place)
        s->num_open--;
    set_state(s, v, REJECTED);
    note(s, HG_ROLLBACK, v);
    return work;
}

/* The first neighbour neither merged nor rejected of the most recently merged member that has one, or -1. States are
 * never taken back, so a member without one stays so. */
static int32_t next_neighbour(loop *s)
{
    const hg_graph *g = s->g;
    while (s->num_open) {
        const int32_t place = s->open[s->num_open - 1], v = s->stack[place];
        for (; s->child[place] < g->indptr[v + 1]; s->child[place]++)
            if (s->state[g->indices[s->child[place]]] == UNSEEN)
                return g->indices[s->child[place]];
        for (; s->parent[place] < g->pred_indptr[v + 1]; s->parent[place]++)
            if (s->state[g->pred_indices[s->parent[place]]] == UNSEEN)
                return g->pred_indices[s->parent[place]];
        s->num_open--;
    }
    return -1;
}

/* Grows the candidate of one root on the stack; touched: all nodes explored. */
static int grow(loop *s, int32_t root, hg_watch *watch)
{
    s->size = s->num_touched = s->violations = s->num_open = 0;
    note(s, HG_ROOT, root);
    int64_t work = push(s, root);
    for (;;) {
        const int32_t v = next_neighbour(s);
        if (v < 0)
            break;
        if (s->device[v] == s->device[root] && s->label[v] < 0) {
            note(s, HG_MERGE, v);
            work += push(s, v);
        } else {
            set_state(s, v, REJECTED);
            note(s, HG_FAIL, v);
        }
        while (s->violations)
            work += pop_into_rejected(s);
        work++;
        if (work > 1 << 16) {
            if (hg_interrupted(watch, 8 * work))
                return HG_INTERRUPTED;
            work = 0;
        }
    }
    for (int32_t place = 0; place < s->size; place++) {
        unmark(s, place, 1);
        unmark(s, place, 0);
    }
    return hg_interrupted(watch, 8 * work + 8 * s->num_touched) ? HG_INTERRUPTED : HG_OK;
}

static void forget(candidate *c)
{
    free(c->members);
    free(c->explored);
    *c = (candidate){0};
}

/* Keeps what grow left on the stack, and clears the states. */
static int keep(loop *s, candidate *c)
{
    int32_t low = INT32_MAX, high = 0;
    for (int32_t i = 0; i < s->num_touched; i++) {
        const int32_t r = s->rank[s->touched[i]];
        low = r < low ? r : low;
        high = r > high ? r : high;
    }
    c->first = low / 64;
    c->words = high / 64 - c->first + 1;
    c->size = s->size;
    c->members = HG_NEW(int32_t, s->size);
    c->explored = (uint64_t *)calloc((size_t)c->words, sizeof(uint64_t));
    if (!c->members || !c->explored) {
        forget(c);
        return HG_NO_MEMORY;
    }
    memcpy(c->members, s->stack, (size_t)s->size * sizeof(int32_t));
    for (int32_t i = 0; i < s->num_touched; i++) {
        const int32_t r = s->rank[s->touched[i]];
        c->explored[r / 64 - c->first] |= (uint64_t)1 << (r % 64);
        s->state[s->touched[i]] = UNSEEN;
    }
    return HG_OK;
}

static int meets(const candidate *c, const uint64_t *set)
{
    uint64_t common = 0;
    for (int32_t w = 0; w < c->words; w++)
        common |= c->explored[w] & set[c->first + w];
    return common != 0;
}

/* Bit set over ranks of what the chosen subgraph of `start` reaches (down) or what reaches it, itself left out. */
static int64_t reach(loop *s, int32_t start, int down, uint64_t *set, int32_t words)
{
    const hg_graph *g = s->g;
    const int32_t *ptr = down ? g->indptr : g->pred_indptr, *row = down ? g->indices : g->pred_indices;
    int32_t head = 0, tail = 0;
    int64_t work = words;
    memset(set, 0, (size_t)words * sizeof *set);
    int32_t x = start;
    do
        s->queue[tail++] = x;
    while ((x = s->next_member[x]) != start);
    while (head < tail) {
        x = s->queue[head++];
        work += 1 + ptr[x + 1] - ptr[x];
        for (int32_t j = ptr[x]; j < ptr[x + 1]; j++) {
            int32_t y = row[j];
            if (s->label[y] == s->label[start] || set[s->rank[y] / 64] >> (s->rank[y] % 64) & 1)
                continue;
            const int32_t entry = y;
            do {
                set[s->rank[y] / 64] |= (uint64_t)1 << (s->rank[y] % 64);
                s->queue[tail++] = y;
                if (s->label[y] < 0)
                    break;
                y = s->next_member[y];
            } while (y != entry);
        }
    }
    return work;
}

/* Smallest-first topological order: rank [n] and its inverse order [n], by a binary heap. */
static void smallest_first(const hg_graph *g, int32_t *rank, int32_t *order, int32_t *waiting, int32_t *heap)
{
    int32_t size = 0;
    for (int32_t v = 0; v < g->n; v++) {
        waiting[v] = g->pred_indptr[v + 1] - g->pred_indptr[v];
        if (!waiting[v])
            heap[size++] = v; /* ascending: a heap already */
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
    }
}

static int run(loop *s, const int32_t *order, candidate *cache, int32_t *covered, uint64_t *sets, int32_t *count,
               hg_watch *watch)
{
    const int32_t n = s->n, words = n / 64 + 1;
    uint64_t *chosen = sets, *below = sets + words, *above = sets + 2 * (size_t)words;
    int32_t round = 0, subgraphs = 0;
    int present[256] = {0};
    for (int32_t v = 0; v < n; v++)
        present[s->device[v]] = 1;
    for (int device = 0; device < 256; device++) {
        int32_t first = 0; /* no root of this device has a lower rank */
        while (present[device]) {
            round++;
            int32_t best = -1;
            for (int32_t i = first; i < n; i++) {
                const int32_t root = order[i];
                if (s->device[root] != device || s->label[root] >= 0) {
                    first += first == i;
                    continue;
                }
                if (covered[root] == round)
                    continue;
                candidate *c = &cache[root];
                if (!c->members) {
                    int status = grow(s, root, watch);
                    if (status == HG_OK)
                        status = keep(s, c);
                    if (status != HG_OK)
                        return status;
                }
                for (int32_t j = 0; j < c->size; j++)
                    covered[c->members[j]] = round;
                if (best < 0 || c->size > cache[best].size)
                    best = root;
            }
            if (best < 0)
                break;
            const candidate *c = &cache[best];
            int64_t work = n - first;
            memset(chosen, 0, (size_t)words * sizeof *chosen);
            for (int32_t j = 0; j < c->size; j++) {
                const int32_t v = c->members[j];
                s->label[v] = subgraphs;
                s->next_member[v] = c->members[j + 1 < c->size ? j + 1 : 0];
                chosen[s->rank[v] / 64] |= (uint64_t)1 << (s->rank[v] % 64);
            }
            subgraphs++;
            note(s, HG_CHOOSE, best);
            work += reach(s, best, 1, below, words) + reach(s, best, 0, above, words);
            for (int32_t i = first; i < n; i++) {
                candidate *other = &cache[order[i]];
                if (!other->members)
                    continue;
                work += other->words;
                if (s->tracing || meets(other, chosen) || (meets(other, below) && meets(other, above)))
                    forget(other);
            }
            if (s->failed)
                return HG_NO_MEMORY;
            if (hg_interrupted(watch, work))
                return HG_INTERRUPTED;
        }
    }
    *count = subgraphs;
    return HG_OK;
}

int hg_documented(const hg_graph *g, const uint8_t *device, int32_t *label, int32_t *count, hg_trace *trace,
                  hg_watch *watch)
{
    const int32_t n = g->n;
    int status = HG_NO_MEMORY;
    loop s = {.g = g, .device = device, .n = n, .label = label, .tracing = trace != NULL};
    hg_arena arena;
    if (!hg_arena_open(&arena, (size_t)n * 80 + 4096))
        return status;
    candidate *cache = HG_TAKE_ZEROED(&arena, candidate, n);
    int32_t *rank = HG_TAKE(&arena, int32_t, n), *order = HG_TAKE(&arena, int32_t, n);
    int32_t *covered = HG_TAKE_ZEROED(&arena, int32_t, n);
    uint64_t *sets = HG_TAKE(&arena, uint64_t, 3 * ((int64_t)n / 64 + 1));
    int32_t **arrays[] = {&s.next_member, &s.below,       &s.above, &s.below_next, &s.above_next, &s.below_first,
                          &s.above_first, &s.stack,       &s.child, &s.parent,     &s.open,       &s.touched,
                          &s.queue};
    int taken = cache && rank && order && covered && sets && (s.state = HG_TAKE_ZEROED(&arena, uint8_t, n)) != NULL;
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays && taken; i++)
        taken = (*arrays[i] = HG_TAKE(&arena, int32_t, n)) != NULL;
    if (taken) {
        s.rank = rank;
        if (n)
            smallest_first(g, rank, order, s.stack, s.queue);
        for (int32_t v = 0; v < n; v++) {
            label[v] = -1;
            s.below[v] = s.above[v] = FREE;
        }
        status = run(&s, order, cache, covered, sets, count, watch);
        for (int32_t v = 0; v < n; v++)
            forget(&cache[v]);
    }
    hg_arena_close(&arena);
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
