/* An expansion move: each node keeps its label ("stays") or gets the target t ("goes"); a minimum cut decides for all
 * nodes at once.
 *
 * Y. Boykov, O. Veksler, R. Zabih, "Fast approximate energy minimization via graph cuts", IEEE PAMI 23 (2001). A value
 * with its readers is a hyperedge with one tail, as in P. Kohli, L. Ladicky, P. Torr, "Robust higher order
 * potentials", IJCV 82 (2009). Nodes on the source side stay. The smallest sink side of all minimum cuts is found, so
 * the move changes as few nodes as possible. With two labels, and the first given to all nodes, the move finds the
 * cheapest labeling.
 *
 * Take a value made by u with label p. The readers with label d are the group of d. cost(a, b) is the transfer's cost.
 * - u stays and some reader goes: cost(p, t), through an auxiliary vertex that goes as soon as one reader goes.
 * - u goes and some reader of group p stays: cost(t, p), through an auxiliary vertex that stays as soon as one of them
 *   stays.
 * - some reader of another group d stays: cost(p, d) if u stays, cost(t, d) if u goes.
 * For the last, the smaller of the two is paid wherever u is. If cost(t, d) is greater, the difference is paid through
 * such an auxiliary vertex too. If cost(p, d) is greater, the cut cannot express the difference (it is not
 * submodular), so it is charged whenever u stays. This overestimates only labelings in which the group goes and u
 * stays, so a move never increases the cost. With one reader, and links that cost no more than a detour over t, the
 * move is exact again.
 *
 * Most nodes are decided before the cut (decide_nodes): those whose work is so much cheaper on one side that no choice
 * of the other nodes makes up for it. The cut has vertices for the remaining nodes only. It is as small as the cut for
 * all nodes, or smaller, because nothing is overestimated if the producer is decided.
 *
 * An auxiliary vertex depends only on its set of readers (set_vertex): values with the same readers share it, and if a
 * set has one reader more than another, its vertex refers to the other's vertex. So layers in which all nodes read all
 * values, and blocks in which each node reads all earlier ones, need as many edges as nodes. */
#include "assign.h"

enum { NONE = -1 };              /* no vertex, no entry */
enum { STAYS = -1, GOES = -2 };  /* instead of a vertex, for nodes without a choice */
enum { OPEN = 0 };               /* likewise, until the vertices are numbered, for nodes with a choice */
enum { ANY_GOES = -1 };          /* kind of a set; otherwise the device of a group */
enum { PASS_NODES = 16 };        /* decide_nodes: a pass over n nodes takes as long as the cut for n / 16 of them */
#define ROUNDING 1e-12           /* relative, of sums of costs */

/* An auxiliary vertex and its set: the readers of `value` that have a choice; of a group, those with its label. */
typedef struct {
    uint64_t hash; /* 0: no entry */
    int32_t vertex, value, kind;
} reader_set;

/* The change of the cost if a node goes instead of staying: from least to most, depending on the other nodes. */
typedef struct {
    double least, most;
    double size; /* the sum of the magnitudes added up in them */
} change;

typedef struct {
    const hg_costs *costs;
    const int32_t *label;
    int32_t target;
    int32_t *vertex; /* [n]; of nodes without a choice STAYS or GOES */
    change *change;  /* [n] */
    uint8_t *is_fixed; /* [num_values]: its transfers depend on no node with a choice */
    int64_t most_vertices, most_edges, most_sets; /* that the values can need */
    double *excess;  /* by vertex: the cost of going minus the cost of staying */
    int64_t vertices;
    hg_edge *edges;
    int64_t count;
    /* Of the current value, by device. */
    int32_t *group_size;  /* readers that may stay there */
    int32_t *group_first; /* the vertex of one of them with a choice, or NONE */
    uint8_t *group_stays; /* one of them has no choice */
    int32_t *groups; /* devices that have readers */
    reader_set *sets; /* [set_mask + 1] hash table, open addressing */
    uint64_t set_mask;
    int32_t *stamp; /* [n] the last value, plus one, among whose readers is_same_set marked the node */
} builder;

/* Adds a cost that is paid if the vertex stays; nothing for STAYS and GOES, where the cost is constant. */
static inline void add_if_stays(builder *b, int32_t vertex, double cost)
{
    if (vertex >= 0)
        b->excess[vertex] -= cost;
}

static inline void add_if_goes(builder *b, int32_t vertex, double cost)
{
    if (vertex >= 0)
        b->excess[vertex] += cost;
}

/* Adds a cost that is paid if `from` stays and `to` goes. */
static inline void add_if_split(builder *b, int32_t from, int32_t to, double cost)
{
    if (!(cost > 0) || from == GOES || to == STAYS || from == to)
        return;
    if (from == STAYS)
        add_if_goes(b, to, cost);
    else if (to == GOES)
        add_if_stays(b, from, cost);
    else if (b->count && b->edges[b->count - 1].a == to && b->edges[b->count - 1].b == from)
        b->edges[b->count - 1].back += cost;
    else
        b->edges[b->count++] = (hg_edge){from, to, cost, 0};
}

static inline int32_t new_vertex(builder *b)
{
    b->excess[b->vertices] = 0;
    return (int32_t)b->vertices++;
}

static inline int is_member(const builder *b, int32_t value, int32_t kind, int32_t reader)
{
    const int in_group = kind == ANY_GOES || b->label[reader] == kind;
    return in_group && b->vertex[reader] >= 0 && reader != b->costs->producer[value];
}

/* The finalizer of splitmix64; a set is hashed as the sum over its members. */
static inline uint64_t mixed(uint64_t number)
{
    number = (number + 0x9E3779B97F4A7C15u) * 0xBF58476D1CE4E5B9u;
    number = (number ^ (number >> 27)) * 0x94D049BB133111EBu;
    return number ^ (number >> 31);
}

/* Whether the entry's set equals the value's set of the same kind minus the member `without` (NONE: all), `count`
 * members. */
static int is_same_set(const builder *b, const reader_set *entry, int32_t value, int32_t count, int32_t without)
{
    const hg_costs *c = b->costs;
    for (int32_t j = c->indptr[value]; j < c->indptr[value + 1]; j++)
        if (is_member(b, value, entry->kind, c->readers[j]))
            b->stamp[c->readers[j]] = value + 1;
    for (int32_t j = c->indptr[entry->value]; j < c->indptr[entry->value + 1]; j++) {
        const int32_t reader = c->readers[j];
        if (!is_member(b, entry->value, entry->kind, reader))
            continue;
        if (b->stamp[reader] != value + 1 || reader == without)
            return 0;
        count--;
    }
    return !count;
}

/* The entry of this set, or an empty one. */
static reader_set *find_set(const builder *b, uint64_t sum, int32_t value, int32_t kind, int32_t count, int32_t without)
{
    const uint64_t hash = (sum ^ mixed((uint64_t)kind)) | 1;
    uint64_t i = mixed(hash) & b->set_mask;
    for (;; i = (i + 1) & b->set_mask) {
        reader_set *entry = &b->sets[i];
        const int may_be = entry->hash == hash && entry->kind == kind;
        if (!entry->hash || (may_be && is_same_set(b, entry, value, count, without)))
            return entry;
    }
}

/* The auxiliary vertex of a set of two or more readers of a value. Kind ANY_GOES: it goes as soon as one of them goes.
 * Kind of a device: it stays as soon as one reader of that group stays. */
static int32_t set_vertex(builder *b, int32_t value, int32_t kind)
{
    const hg_costs *c = b->costs;
    const int32_t *readers = c->readers + c->indptr[value];
    const int32_t length = c->indptr[value + 1] - c->indptr[value];
    uint64_t sum = 0;
    int32_t count = 0, first = NONE, last = NONE;
    for (int32_t j = 0; j < length; j++) {
        if (!is_member(b, value, kind, readers[j]))
            continue;
        sum += mixed((uint64_t)readers[j]);
        first = count++ ? first : readers[j];
        last = readers[j];
    }
    reader_set *entry = find_set(b, sum, value, kind, count, NONE);
    if (entry->hash)
        return entry->vertex;
    const int32_t vertex = new_vertex(b);
    *entry = (reader_set){(sum ^ mixed((uint64_t)kind)) | 1, vertex, value, kind};
    int32_t rest = NONE, beside = NONE; /* the vertex of the set without one member, and that member */
    for (int end = 0; end < 2 && count > 2 && rest == NONE; end++) {
        beside = end ? last : first;
        const reader_set *smaller = find_set(b, sum - mixed((uint64_t)beside), value, kind, count - 1, beside);
        rest = smaller->hash ? smaller->vertex : NONE;
    }
    if (rest != NONE)
        add_if_split(b, kind == ANY_GOES ? vertex : rest, kind == ANY_GOES ? rest : vertex, INFINITY);
    for (int32_t j = 0; j < length; j++) {
        if (!is_member(b, value, kind, readers[j]) || (rest != NONE && readers[j] != beside))
            continue;
        const int32_t r = b->vertex[readers[j]];
        add_if_split(b, kind == ANY_GOES ? vertex : r, kind == ANY_GOES ? r : vertex, INFINITY);
    }
    return vertex;
}

/* Groups the readers of a value by label and returns the number of groups. *free_readers: the number of readers with a
 * choice; *one: the vertex of one of them; *at_target: whether some reader goes for certain. */
static int group_readers(builder *b, int32_t value, int32_t producer, int32_t *free_readers, int32_t *one,
                         int *at_target)
{
    int groups = 0;
    *free_readers = 0;
    *one = NONE;
    *at_target = 0;
    for (int32_t j = b->costs->indptr[value]; j < b->costs->indptr[value + 1]; j++) {
        const int32_t reader = b->costs->readers[j], vertex = b->vertex[reader], d = b->label[reader];
        if (reader == producer)
            continue;
        if (vertex == GOES) {
            *at_target = 1;
            continue;
        }
        if (!b->group_size[d]++) {
            b->groups[groups++] = d;
            b->group_first[d] = NONE;
            b->group_stays[d] = 0;
        }
        if (vertex == STAYS) {
            b->group_stays[d] = 1;
        } else {
            b->group_first[d] = vertex;
            ++*free_readers;
            *one = vertex;
        }
    }
    return groups;
}

/* Whether the value has two readers in the producer's own group d, and all three have a choice. What
 * is paid both if u goes while a reader stays, and if u stays while a reader goes, is paid exactly if the three are not
 * all on one side. */
static inline int is_triangle(const builder *b, int32_t value, int32_t d)
{
    const hg_costs *c = b->costs;
    const int32_t begin = c->indptr[value], u = c->producer[value];
    return c->indptr[value + 1] - begin == 2 && b->group_size[d] == 2 && !b->group_stays[d] && b->label[u] == d &&
           b->vertex[u] >= 0;
}

/* Half the cost on each of three edges: any split of the three vertices cuts two of the edges. */
static inline void add_triangle(builder *b, int32_t value, double cost)
{
    const int32_t *readers = b->costs->readers + b->costs->indptr[value];
    const int32_t u = b->vertex[b->costs->producer[value]], r = b->vertex[readers[0]], q = b->vertex[readers[1]];
    if (!(cost > 0))
        return;
    b->edges[b->count++] = (hg_edge){u, r, cost / 2, cost / 2};
    b->edges[b->count++] = (hg_edge){u, q, cost / 2, cost / 2};
    b->edges[b->count++] = (hg_edge){r, q, cost / 2, cost / 2};
}

static void add_value(builder *b, int32_t value)
{
    const hg_costs *c = b->costs;
    const int32_t producer = c->producer[value], u = b->vertex[producer], p = b->label[producer], t = b->target;
    int32_t free_readers, one;
    int at_target;
    const int groups = group_readers(b, value, producer, &free_readers, &one, &at_target);
    const int alone = c->indptr[value + 1] - c->indptr[value] == 1;
    double to_target = hg_transfer(c, value, p, t);
    for (int g = 0; g < groups; g++) {
        const int32_t d = b->groups[g];
        const double from_p = hg_transfer(c, value, p, d), from_t = hg_transfer(c, value, t, d);
        double always = from_p < from_t ? from_p : from_t, if_goes = 0;
        if (u == GOES) {
            always = from_t;
        } else if (u == STAYS) {
            always = from_p;
        } else if (from_t > from_p) {
            if_goes = from_t - from_p;
        } else {
            add_if_stays(b, u, from_p - from_t);
            if (alone && free_readers)
                to_target = to_target > from_p - from_t ? to_target - (from_p - from_t) : 0;
        }
        if (is_triangle(b, value, d)) {
            const double both = if_goes < to_target ? if_goes : to_target;
            add_triangle(b, value, both);
            if_goes -= both;
            to_target -= both;
        }
        int32_t y = STAYS; /* stays as soon as one reader of the group stays */
        if (!b->group_stays[d] && (always > 0 || if_goes > 0))
            y = b->group_size[d] > 1 ? set_vertex(b, value, d) : b->group_first[d];
        add_if_stays(b, y, always);
        add_if_split(b, y, u, if_goes);
    }
    int32_t z = at_target ? GOES : free_readers == 1 ? one : NONE; /* goes as soon as one reader goes */
    if (u != GOES && to_target > 0 && !at_target && free_readers > 1)
        z = set_vertex(b, value, ANY_GOES);
    if (u != GOES && z != NONE)
        add_if_split(b, u, z, to_target);
    for (int g = 0; g < groups; g++)
        b->group_size[b->groups[g]] = 0;
}

static inline void add_change(change *sum, double least, double most)
{
    sum->least += least;
    sum->most += most;
    sum->size += fabs(least) + fabs(most);
}

/* Adds the changes if one of the value's nodes with a choice goes: of the cost of its transfers, and of what add_value
 * charges for them. Counts the vertices, edges and sets that add_value can need. */
static void add_changes(builder *b, int32_t value)
{
    const hg_costs *c = b->costs;
    const int32_t producer = c->producer[value], u = b->vertex[producer], p = b->label[producer], t = b->target;
    int32_t free_readers, one;
    int at_target;
    const int groups = group_readers(b, value, producer, &free_readers, &one, &at_target);
    const double to_target = hg_transfer(c, value, p, t);
    b->is_fixed[value] = u < 0 && !free_readers;
    for (int g = 0; g < groups && u >= 0; g++) {
        const double more = hg_transfer(c, value, t, b->groups[g]) - hg_transfer(c, value, p, b->groups[g]);
        const int stays = b->group_stays[b->groups[g]];
        add_change(&b->change[producer], stays || more < 0 ? more : 0, stays || more > 0 ? more : 0);
    }
    if (u >= 0)
        add_change(&b->change[producer], at_target || free_readers ? -to_target : 0, at_target ? -to_target : 0);
    for (int32_t j = c->indptr[value]; j < c->indptr[value + 1] && free_readers; j++) {
        const int32_t reader = c->readers[j], d = b->label[reader];
        if (b->vertex[reader] < 0 || reader == producer)
            continue;
        if (!b->group_stays[d]) { /* once all readers of the group go, nothing is transferred to d */
            const double from_p = hg_transfer(c, value, p, d), from_t = hg_transfer(c, value, t, d);
            const double if_stays = u == GOES ? from_t : from_p, if_goes = u == STAYS ? from_p : from_t;
            const int is_alone = b->group_size[d] == 1;
            add_change(&b->change[reader], -fmax(if_stays, if_goes), is_alone ? -fmin(if_stays, if_goes) : 0);
        }
        if (u != GOES && !at_target)
            add_change(&b->change[reader], u == STAYS && free_readers == 1 ? to_target : 0, to_target);
    }
    for (int g = 0; g < groups; g++)
        b->group_size[b->groups[g]] = 0;
    if (free_readers > 1) { /* sets: each group of two or more readers, and all readers */
        const int64_t pairs = free_readers / 2;
        b->most_vertices += pairs + 1;
        b->most_edges += 3 * (int64_t)free_readers + 4;
        b->most_sets += 1 + (pairs < c->k - 1 ? pairs : c->k - 1);
    } else {
        b->most_edges += 2 * free_readers;
    }
}

/* Decides each node that only one of its two devices supports, or for which one device costs no more whatever the other
 * nodes do. Each decision narrows the possible changes of other nodes, so passes repeat while that saves time. */
static int decide_nodes(builder *b, hg_watch *watch)
{
    const hg_costs *c = b->costs;
    const double *of_target = c->work + (int64_t)b->target * c->n;
    for (int32_t v = 0; v < c->n; v++) {
        const double stay = c->work[(int64_t)b->label[v] * c->n + v], go = of_target[v];
        const int goes = b->label[v] == b->target || (isinf(stay) && !isinf(go));
        b->vertex[v] = goes ? GOES : isinf(go) ? STAYS : OPEN;
        if (hg_interrupted_at(watch, v, 2))
            return HG_INTERRUPTED;
    }
    int64_t decided;
    do {
        b->most_vertices = b->most_edges = decided = 0;
        b->most_sets = 1;
        for (int32_t v = 0; v < c->n; v++) {
            const double stay = c->work[(int64_t)b->label[v] * c->n + v], go = of_target[v];
            b->change[v] = (change){go - stay, go - stay, go + stay};
            b->most_vertices += b->vertex[v] == OPEN;
            if (hg_interrupted_at(watch, v, 2))
                return HG_INTERRUPTED;
        }
        for (int32_t i = 0; i < c->num_values; i++) {
            if (!b->is_fixed[i])
                add_changes(b, i);
            if (hg_interrupted(watch, 4 * (1 + (int64_t)c->indptr[i + 1] - c->indptr[i])))
                return HG_INTERRUPTED;
        }
        for (int32_t v = 0; v < c->n; v++) {
            const change sum = b->change[v];
            if (b->vertex[v] == OPEN && (sum.least >= 0 || sum.most < -ROUNDING * sum.size)) {
                b->vertex[v] = sum.least >= 0 ? STAYS : GOES;
                decided++;
            }
            if (hg_interrupted_at(watch, v, 2))
                return HG_INTERRUPTED;
        }
    } while (decided > c->n / PASS_NODES);
    return HG_OK;
}

/* Vertices for the nodes with a choice, and their work. */
static int add_nodes(builder *b, hg_watch *watch)
{
    const hg_costs *c = b->costs;
    for (int32_t v = 0; v < c->n; v++) {
        if (b->vertex[v] == OPEN) {
            b->vertex[v] = new_vertex(b);
            add_if_goes(b, b->vertex[v], c->work[(int64_t)b->target * c->n + v]);
            add_if_stays(b, b->vertex[v], c->work[(int64_t)b->label[v] * c->n + v]);
        }
        if (hg_interrupted_at(watch, v, 2))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

/* Allocates what decide_nodes needs. */
static int open_builder(builder *b, hg_arena *arena)
{
    const hg_costs *c = b->costs;
    b->vertex = HG_TAKE(arena, int32_t, c->n);
    b->change = HG_TAKE(arena, change, c->n);
    b->is_fixed = HG_TAKE_ZEROED(arena, uint8_t, c->num_values);
    b->group_size = HG_TAKE_ZEROED(arena, int32_t, c->k);
    b->group_first = HG_TAKE(arena, int32_t, c->k);
    b->group_stays = HG_TAKE(arena, uint8_t, c->k);
    b->groups = HG_TAKE(arena, int32_t, c->k);
    const int complete = b->vertex && b->change && b->is_fixed && b->group_size && b->group_first && b->group_stays &&
                         b->groups;
    return complete ? HG_OK : HG_NO_MEMORY;
}

/* Allocates for the most vertices, edges and sets that the values can need. */
static int make_room(builder *b, hg_arena *arena)
{
    if (b->most_vertices > INT32_MAX - 2) /* unreached: the problem alone takes tens of gigabytes */
        return HG_TOO_LARGE;
    b->excess = HG_TAKE(arena, double, b->most_vertices);
    b->edges = HG_TAKE(arena, hg_edge, b->most_edges);
    b->stamp = HG_TAKE_ZEROED(arena, int32_t, b->costs->n);
    const uint64_t sets = (uint64_t)b->most_sets;
    for (b->set_mask = 15; b->set_mask < sets + sets / 2;)
        b->set_mask = 2 * b->set_mask + 1;
    b->sets = calloc(b->set_mask + 1, sizeof *b->sets); /* not from the arena: freed before the flow */
    return b->excess && b->edges && b->stamp && b->sets ? HG_OK : HG_NO_MEMORY;
}

/* The sum of all finite capacities. */
static double total_capacity(const builder *b)
{
    double total = 0;
    for (int64_t v = 0; v < b->vertices; v++)
        total += fabs(b->excess[v]);
    for (int64_t i = 0; i < b->count; i++)
        total += (isinf(b->edges[i].forth) ? 0 : b->edges[i].forth) + (isinf(b->edges[i].back) ? 0 : b->edges[i].back);
    return total;
}

static int cut_and_relabel(builder *b, int32_t *label, hg_move_result *result, hg_arena *arena, hg_watch *watch)
{
    const int32_t n = (int32_t)b->vertices;
    uint8_t *goes = HG_TAKE(arena, uint8_t, n);
    if (!goes)
        return HG_NO_MEMORY;
    result->scale = hg_scale_for(total_capacity(b));
    int status = hg_min_cut(n, b->excess, b->edges, b->count, result->scale, goes, &result->flow, arena, watch);
    if (status == HG_OK)
        status = hg_cut_capacity(n, b->excess, b->edges, b->count, result->scale, goes, &result->cut, watch);
    for (int32_t v = 0; v < b->costs->n && status == HG_OK; v++) {
        const int changes = b->vertex[v] >= 0 ? goes[b->vertex[v]] : b->vertex[v] == GOES && label[v] != b->target;
        if (changes) {
            label[v] = b->target;
            result->moved++;
        }
        if (hg_interrupted_at(watch, v, 1))
            status = HG_INTERRUPTED;
    }
    return status;
}

int hg_move(const hg_costs *costs, int32_t target, int32_t *label, hg_move_result *result, hg_watch *watch)
{
    hg_arena arena;
    builder b = {.costs = costs, .label = label, .target = target};
    *result = (hg_move_result){0, 0, 1, 0};
    if (!hg_arena_open(&arena, (size_t)costs->n * 64 + 4096))
        return HG_NO_MEMORY;
    int status = open_builder(&b, &arena);
    if (status == HG_OK)
        status = decide_nodes(&b, watch);
    if (status == HG_OK)
        status = make_room(&b, &arena);
    if (status == HG_OK)
        status = add_nodes(&b, watch);
    /* Backwards, because later values tend to have fewer readers: the smaller sets exist when larger ones refer to
     * them. */
    for (int32_t i = costs->num_values - 1; i >= 0 && status == HG_OK; i--) {
        if (!b.is_fixed[i])
            add_value(&b, i);
        if (hg_interrupted(watch, 8 * (1 + (int64_t)costs->indptr[i + 1] - costs->indptr[i])))
            status = HG_INTERRUPTED;
    }
    free(b.sets);
    if (status == HG_OK)
        status = cut_and_relabel(&b, label, result, &arena, watch);
    hg_arena_close(&arena);
    return status;
}
