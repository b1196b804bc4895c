/* Exact reduction of a minimum cut: vertices whose side follows from their neighbors' are removed before the flow.
 *
 * A cut assigns each vertex v the source side (x_v = 0) or the sink side (x_v = 1). Its capacity is a sum of terms of
 * one vertex, the excess, which v pays on the sink side (a negative one on the source side), and of two vertices, the
 * arcs from the source side to the sink side. Each term is submodular, and each rule below replaces terms by submodular
 * terms over fewer vertices, plus a constant (hg_reduction.constant). remove_vertex records how x_v follows from the
 * sides of at most two neighbors, as a truth table; hg_restore_sides evaluates the tables in reverse order of removal.
 *
 * hg_reduce takes vertices from a stack. look_at tidies the arcs of one (parallel arcs merged, dead ones unlinked),
 * adds up its capacities, and applies the first rule that fits. A vertex is
 * 1. decided, where its excess outweighs all its arcs: its neighbors' excesses take up what the arcs then cost
 *    (P. L. Hammer, P. Hansen, B. Simeone, "Roof duality, complementation and persistency", Math. Prog. 28, 1984);
 * 2. eliminated, where it has at most two neighbors: the least capacity over both its sides is again a submodular
 *    function of the neighbors (U. Bertele, F. Brioschi, "Nonserial dynamic programming", 1972). So whatever has
 *    treewidth two vanishes: chains, trees, residual branches, towers;
 * 3. contracted into a neighbor whose arcs outweigh all others of the vertex, so that it is always on the same side
 *    (M. Padberg, G. Rinaldi, "An efficient algorithm for the minimum capacity cut problem", Math. Prog. 47, 1990).
 * Each rule may make arcs parallel and may make rules fit at neighbors, which are then pushed onto the stack (touch).
 * The vertices left form the core, a network in compressed rows (build_core), which max_flow.c cuts.
 *
 * All sums are of integers and stay within the total of the network, so nothing is rounded. Of equal capacities the one
 * with the vertex on the source side is taken, so that the sink side is the least one, as without the reduction.
 *
 * A vertex is looked at again once half of its arcs have changed since the last time, or any arc if it has at most
 * FEW_ARCS. So the cost is O(n + edges). */
#include "assign.h"

enum { NONE = -1 };                         /* no arc, no vertex */
enum { SOURCE, SINK };                      /* decisions */
enum { FEW_ARCS = 12 };                     /* a vertex with at most this many is looked at again after any change */
#define INFINITE (HG_UNLIMITED >> 1) /* capacities from here on are unlimited */

/* Arcs a and a ^ 1 belong to the same edge, in both directions. Each vertex has a circular list of the arcs that leave
 * it, including dead ones. */
typedef struct {
    int32_t head, next; /* head: NONE if dead */
    int64_t capacity;
} link;

typedef struct {
    link *arc;
    int32_t *last;     /* [n] an arc of the vertex, the last of its list, or NONE */
    int32_t *seen;     /* [n] during tidy(v): the arc from v to this neighbor; else NONE */
    int32_t *length;   /* [n] arcs in the list when last looked at */
    int32_t *changes;  /* [n] of its arcs or excess since then */
    int64_t *excess;   /* [n] */
    uint8_t *waiting;  /* [n] on the stack */
    uint8_t *gone;     /* [n] */
    int32_t *stack;    /* [n] vertices to look at */
    int32_t waiting_count;
    hg_reduction *found;
    hg_watch *watch;
} reducer;

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t add_capacity(int64_t a, int64_t b) { return a + b < INFINITE ? a + b : HG_UNLIMITED; }

/* Records a change of v's arcs or excess, and pushes v onto the stack if it should be looked at again. */
static inline void touch(reducer *r, int32_t v)
{
    r->changes[v]++;
    const int due = r->length[v] <= FEW_ARCS || r->changes[v] >= r->length[v] / 2;
    if (due && !r->waiting[v]) {
        r->waiting[v] = 1;
        r->stack[r->waiting_count++] = v;
    }
}

static inline void append_arc(reducer *r, int32_t v, int32_t a)
{
    const int32_t last = r->last[v];
    if (last == NONE) {
        r->arc[a].next = a;
    } else {
        r->arc[a].next = r->arc[last].next;
        r->arc[last].next = a;
    }
    r->last[v] = a;
}

static inline void kill_edge(reducer *r, int32_t a) { r->arc[a].head = r->arc[a ^ 1].head = NONE; }

/* Unlinks v's dead arcs and merges parallel ones. Returns the number of arcs left, one for each neighbor. */
static int32_t tidy(reducer *r, int32_t v)
{
    link *arc = r->arc;
    int32_t last = r->last[v], degree = 0;
    if (last == NONE)
        return 0;
    for (int32_t before = last;;) {
        const int32_t a = arc[before].next, w = arc[a].head, end = a == last;
        int dead = w == NONE;
        if (!dead && !(arc[a].capacity | arc[a ^ 1].capacity)) {
            kill_edge(r, a);
            touch(r, w);
            dead = 1;
        } else if (!dead && r->seen[w] != NONE) {
            const int32_t same = r->seen[w];
            arc[same].capacity = add_capacity(arc[same].capacity, arc[a].capacity);
            arc[same ^ 1].capacity = add_capacity(arc[same ^ 1].capacity, arc[a ^ 1].capacity);
            kill_edge(r, a);
            touch(r, w);
            dead = 1;
        }
        if (!dead) {
            r->seen[w] = a;
            degree++;
            before = a;
        } else if (before == a) {
            last = NONE; /* the only one */
            break;
        } else {
            arc[before].next = arc[a].next;
            if (end)
                last = before;
        }
        if (end)
            break;
    }
    r->last[v] = last;
    if (last != NONE)
        for (int32_t a = last, i = 0; i < degree; i++, a = arc[a].next)
            r->seen[arc[a].head] = NONE;
    return degree;
}

/* Removes v; see hg_side_rule. */
static void remove_vertex(reducer *r, int32_t v, int32_t a, int32_t b, unsigned table)
{
    HT_ASSERT(!r->gone[v] && v != a && v != b && table <= 0xF);
    r->gone[v] = 1;
    r->found->rule[r->found->rules++] = (hg_side_rule){v, a, b, (uint8_t)table};
}

/* Removes v, whose excess outweighs all its arcs to the other side. None of these is unlimited, and tidy(v) has removed
 * the dead ones. */
static void decide(reducer *r, int32_t v, int side)
{
    link *arc = r->arc;
    const int32_t last = r->last[v];
    if (side == SINK)
        r->found->constant += r->excess[v];
    for (int32_t a = last; a != NONE;) {
        const int32_t w = arc[a].head;
        const int64_t cost = side == SOURCE ? arc[a].capacity : arc[a ^ 1].capacity;
        HT_ASSERT(w != NONE && cost < INFINITE);
        if (side == SOURCE) {
            r->excess[w] += cost;
        } else {
            r->excess[w] -= cost;
            r->found->constant += cost;
        }
        kill_edge(r, a);
        touch(r, w);
        a = arc[a].next;
        if (a == last)
            break;
    }
    remove_vertex(r, v, NONE, NONE, side == SINK ? 0xF : 0);
}

/* Removes v, whose only arc is i, on the side of its neighbor: its excess outweighs no arc, or v would be decided. */
static void eliminate_leaf(reducer *r, int32_t v, int32_t i)
{
    const int32_t a = r->arc[i].head;
    HT_ASSERT(r->excess[v] < r->arc[i].capacity && -r->excess[v] <= r->arc[i ^ 1].capacity);
    r->excess[a] += r->excess[v];
    kill_edge(r, i);
    touch(r, a);
    remove_vertex(r, v, a, NONE, 0xA);
}

/* Removes v, whose only arcs are i and j to the neighbors a and b. For each combination of their sides, v takes its
 * cheaper side. The resulting function of x_a and x_b is written as excesses of a and b, an edge between them (which
 * takes over edge i), and a constant. This is not unique: the excesses are chosen as equal as possible, so that little
 * flow is needed between a and b. */
static void eliminate_between(reducer *r, int32_t v, int32_t i, int32_t j)
{
    link *arc = r->arc;
    const int32_t a = arc[i].head, b = arc[j].head;
    const int64_t to_a = arc[i].capacity, from_a = arc[i ^ 1].capacity;
    const int64_t to_b = arc[j].capacity, from_b = arc[j ^ 1].capacity;
    const int64_t excess = r->excess[v];
    /* By x_a + 2 x_b: the cost if v is on the sink side (goes) and on the source side (stays). */
    const int64_t goes[4] = {excess + add_capacity(from_a, from_b), excess + from_b, excess + from_a, excess};
    const int64_t stays[4] = {0, to_a, to_b, add_capacity(to_a, to_b)};
    unsigned table = 0;
    for (int s = 0; s < 4; s++)
        table |= (unsigned)(goes[s] < stays[s]) << s;
    const int64_t none = least(stays[0], goes[0]), only_a = least(stays[1], goes[1]);
    const int64_t only_b = least(stays[2], goes[2]), both = least(stays[3], goes[3]);
    const int64_t middle = none + (both - none) / 2;
    const int free_a = only_a < INFINITE, free_b = only_b < INFINITE;
    int64_t a_to_b = HG_UNLIMITED, b_to_a = HG_UNLIMITED;
    int64_t a_gets = (both - none) / 2;
    if (free_a && free_b) {
        const int64_t together = only_a + only_b - none - both;
        a_to_b = only_b - middle;
        a_to_b = a_to_b < 0 ? 0 : least(a_to_b, together);
        b_to_a = together - a_to_b;
        a_gets = only_a - none - b_to_a;
    } else if (free_a) {
        b_to_a = only_a > middle ? only_a - middle : 0;
        a_gets = only_a - none - b_to_a;
    } else if (free_b) {
        a_to_b = only_b > middle ? only_b - middle : 0;
        a_gets = both - only_b + a_to_b;
    }
    HT_ASSERT(a_to_b >= 0 && b_to_a >= 0);
    r->found->constant += none;
    r->excess[a] += a_gets;
    r->excess[b] += both - none - a_gets;
    kill_edge(r, j);
    if (a_to_b | b_to_a) {
        arc[i ^ 1].head = b;
        arc[i ^ 1].capacity = a_to_b;
        arc[i].head = a;
        arc[i].capacity = b_to_a;
        append_arc(r, b, i);
    } else {
        kill_edge(r, i);
    }
    touch(r, a);
    touch(r, b);
    remove_vertex(r, v, a, b, table);
}

/* Contracts v and its neighbor over arc i, which are on the same side. The one with the longer list remains, so an arc
 * is moved O(log arcs) times. */
static void contract(reducer *r, int32_t v, int32_t i)
{
    link *arc = r->arc;
    int32_t u = arc[i].head;
    if (r->length[u] < r->length[v]) {
        const int32_t other = u;
        u = v;
        v = other;
    }
    const int32_t last = r->last[v];
    kill_edge(r, i);
    for (int32_t a = last;;) {
        if (arc[a].head != NONE) {
            arc[a ^ 1].head = u;
            touch(r, arc[a].head);
        }
        a = arc[a].next;
        if (a == last)
            break;
    }
    /* Join the two circular lists. The list of u is not empty: it contains the arc to v. */
    const int32_t first = arc[last].next;
    arc[last].next = arc[r->last[u]].next;
    arc[r->last[u]].next = first;
    r->last[u] = last;
    r->excess[u] += r->excess[v];
    r->length[u] += r->length[v];
    r->changes[u] += r->length[v];
    touch(r, u);
    remove_vertex(r, v, u, NONE, 0xA);
}

static void look_at(reducer *r, int32_t v)
{
    const int32_t degree = tidy(r, v);
    link *arc = r->arc;
    const int64_t excess = r->excess[v];
    const int32_t last = r->last[v];
    r->length[v] = degree;
    r->changes[v] = 0;
    /* The sums of the limited capacities out of and into v, and the numbers of unlimited ones. */
    int64_t out = 0, in = 0;
    int32_t unlimited_out = 0, unlimited_in = 0;
    for (int32_t i = 0, a = last; i < degree; i++, a = arc[a].next) {
        const int64_t forth = arc[a].capacity, back = arc[a ^ 1].capacity;
        out += forth < INFINITE ? forth : 0;
        in += back < INFINITE ? back : 0;
        unlimited_out += forth >= INFINITE;
        unlimited_in += back >= INFINITE;
    }
    if (!unlimited_out && excess >= out) {
        decide(r, v, SOURCE);
    } else if (!unlimited_in && -excess > in) {
        decide(r, v, SINK);
    } else if (degree == 1) {
        eliminate_leaf(r, v, last);
    } else if (degree == 2) {
        eliminate_between(r, v, last, arc[last].next);
    } else {
        for (int32_t i = 0, a = last; i < degree; i++, a = arc[a].next) {
            const int64_t forth = arc[a].capacity, back = arc[a ^ 1].capacity;
            const int free_out = forth >= INFINITE, free_in = back >= INFINITE;
            const int with_source =
                free_in || (unlimited_out == free_out && excess + back >= out - (free_out ? 0 : forth));
            const int with_sink = free_out || (unlimited_in == free_in && forth - excess > in - (free_in ? 0 : back));
            if (with_source && with_sink) {
                contract(r, v, a);
                break;
            }
        }
    }
}

static int open_reducer(reducer *r, int32_t n, int64_t count)
{
    r->arc = HG_NEW(link, 2 * count);
    r->last = HG_NEW(int32_t, n);
    r->seen = HG_NEW(int32_t, n);
    r->length = HG_NEW(int32_t, n);
    r->changes = HG_NEW(int32_t, n);
    r->excess = HG_NEW(int64_t, n);
    r->waiting = HG_NEW(uint8_t, n);
    r->gone = HG_NEW(uint8_t, n);
    r->stack = HG_NEW(int32_t, n);
    return r->arc && r->last && r->seen && r->length && r->changes && r->excess && r->waiting && r->gone &&
           r->stack;
}

static void close_reducer(reducer *r)
{
    free(r->arc);
    free(r->last);
    free(r->seen);
    free(r->length);
    free(r->changes);
    free(r->excess);
    free(r->waiting);
    free(r->gone);
    free(r->stack);
}

static int add_all(reducer *r, int32_t n, const double *excess, const hg_edge *edges, int64_t count, double scale)
{
    for (int32_t v = 0; v < n; v++) {
        r->excess[v] = hg_scaled_capacity(excess[v], scale);
        r->found->constant += r->excess[v] < 0 ? -r->excess[v] : 0;
        r->last[v] = r->seen[v] = NONE;
        r->length[v] = r->changes[v] = 0;
        r->waiting[v] = r->gone[v] = 0;
        if (hg_interrupted_at(r->watch, v, 2))
            return HG_INTERRUPTED;
    }
    for (int64_t i = 0; i < count; i++) {
        const int32_t there = (int32_t)(2 * i), back = there + 1;
        r->arc[there] = (link){edges[i].b, NONE, hg_scaled_capacity(edges[i].forth, scale)};
        r->arc[back] = (link){edges[i].a, NONE, hg_scaled_capacity(edges[i].back, scale)};
        append_arc(r, edges[i].a, there);
        append_arc(r, edges[i].b, back);
        if (hg_interrupted(r->watch, 8))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

/* Numbers the vertices left in the order of a breadth-first search, so that neighbors are near each other in memory.
 * r->seen: the numbers; r->stack: the vertices in order. Returns the number of vertices, or a negative code. */
static int32_t number_core(reducer *r, int32_t n)
{
    const link *arc = r->arc;
    int32_t *number = r->seen, *order = r->stack, begin = 0, end = 0;
    for (int32_t v = 0; v < n; v++) {
        if (r->gone[v] || number[v] != NONE)
            continue;
        number[v] = end;
        order[end++] = v;
        while (begin < end) {
            const int32_t u = order[begin++], last = r->last[u];
            for (int32_t a = last; a != NONE;) {
                const int32_t w = arc[a].head;
                if (w != NONE && number[w] == NONE) {
                    number[w] = end;
                    order[end++] = w;
                }
                a = arc[a].next == last ? NONE : arc[a].next;
            }
            if (hg_interrupted(r->watch, 4 + r->length[u]))
                return HG_INTERRUPTED;
        }
    }
    return end;
}

/* Builds the core from the vertices and arcs left. */
static int build_core(reducer *r, int32_t n, int64_t count, hg_network *core, hg_arena *arena)
{
    link *arc = r->arc;
    const int32_t vertices = number_core(r, n);
    if (vertices < 0)
        return vertices;
    const int32_t *number = r->seen;
    int64_t arcs = 0;
    for (int64_t i = 0; i < count; i++)
        arcs += 2 * (arc[2 * i].head != NONE);
    int32_t *start = HG_TAKE(arena, int32_t, (int64_t)vertices + 1);
    int64_t *excess = HG_TAKE(arena, int64_t, vertices);
    int32_t *vertex = HG_TAKE(arena, int32_t, vertices);
    hg_arc *network_arc = HG_TAKE(arena, hg_arc, arcs);
    if (!start || !excess || !vertex || !network_arc)
        return HG_NO_MEMORY;
    int32_t next = 0;
    for (int32_t i = 0; i < vertices; i++) {
        const int32_t v = r->stack[i];
        start[i] = next;
        excess[i] = r->excess[v];
        vertex[i] = v;
        r->found->constant -= r->excess[v] < 0 ? -r->excess[v] : 0; /* the core's cut includes it */
        const int32_t last = r->last[v];
        for (int32_t a = last; a != NONE;) {
            const int32_t after = arc[a].next;
            if (arc[a].head != NONE)
                arc[a].next = next++; /* its place in the core */
            a = after == last ? NONE : after;
        }
        if (hg_interrupted(r->watch, 4 + 2 * (next - start[i])))
            return HG_INTERRUPTED;
    }
    HT_ASSERT(next == arcs);
    start[vertices] = next;
    HT_ASSERT(hg_rises(vertices, start, arcs));
    for (int64_t i = 0; i < 2 * count; i++)
        if (arc[i].head != NONE)
            network_arc[arc[i].next] = (hg_arc){number[arc[i].head], arc[i ^ 1].next, arc[i].capacity};
    *core = (hg_network){vertices, (int32_t)arcs, start, network_arc, excess};
    r->found->vertex = vertex;
    return hg_interrupted(r->watch, 8 * arcs) ? HG_INTERRUPTED : HG_OK;
}

int hg_reduce(int32_t n, const double *excess, const hg_edge *edges, int64_t count, double scale, hg_network *core,
              hg_reduction *found, hg_arena *arena, hg_watch *watch)
{
    if (count > INT32_MAX / 2) /* unreached: the edges alone take 26 GB */
        return HG_TOO_LARGE;
    reducer r = {.found = found, .watch = watch};
    *found = (hg_reduction){.rule = HG_TAKE(arena, hg_side_rule, n)};
    int status = open_reducer(&r, n, count) && found->rule ? HG_OK : HG_NO_MEMORY;
    if (status == HG_OK)
        status = add_all(&r, n, excess, edges, count, scale);
    for (int32_t v = 0; v < n && status == HG_OK; v++) {
        if (!r.gone[v]) { /* nor waiting: the stack is empty */
            r.waiting[v] = 1;
            r.stack[r.waiting_count++] = v;
        }
        while (r.waiting_count) {
            const int32_t next = r.stack[--r.waiting_count];
            r.waiting[next] = 0;
            if (!r.gone[next])
                look_at(&r, next);
            if (hg_interrupted(watch, 8 + 8 * r.length[next])) {
                status = HG_INTERRUPTED;
                break;
            }
        }
    }
    if (status == HG_OK)
        status = build_core(&r, n, count, core, arena);
    close_reducer(&r);
    return status;
}

void hg_restore_sides(const hg_reduction *found, const hg_network *core, const uint8_t *core_side,
                      uint8_t *on_sink_side)
{
    for (int32_t v = 0; v < core->n; v++)
        on_sink_side[found->vertex[v]] = core_side[v];
    for (int32_t i = found->rules; i-- > 0;) {
        const hg_side_rule rule = found->rule[i];
        const unsigned a = rule.a == NONE ? 0 : on_sink_side[rule.a], b = rule.b == NONE ? 0 : on_sink_side[rule.b];
        on_sink_side[rule.v] = rule.table >> (a + 2 * b) & 1;
    }
}

int hg_min_cut(int32_t n, const double *excess, const hg_edge *edges, int64_t count, double scale,
               uint8_t *on_sink_side, int64_t *flow, hg_arena *arena, hg_watch *watch)
{
    hg_network core;
    hg_reduction found;
    int status = hg_reduce(n, excess, edges, count, scale, &core, &found, arena, watch);
    uint8_t *core_side = status == HG_OK ? HG_TAKE(arena, uint8_t, core.n) : NULL;
    if (status == HG_OK && !core_side)
        status = HG_NO_MEMORY;
    if (status == HG_OK)
        status = hg_max_flow(&core, core_side, flow, arena, watch);
    if (status == HG_OK) {
        hg_restore_sides(&found, &core, core_side, on_sink_side);
        *flow += found.constant;
    }
    return status;
}
