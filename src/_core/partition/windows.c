/* Windows: improves a partition piece by piece, by random search with a fixed seed.
 *
 * Take any topological order of the subgraphs. The nodes of consecutive subgraphs, a window, can be divided anew in any
 * valid way without regard to the rest: every path between two of them stays in the window, so the window as a whole
 * comes after all that precedes it in the order and before all that follows, and its new subgraphs do, too.
 *
 * A window has at most ATOMS atoms: single nodes, or whole subgraphs of more than LARGE nodes. So sets of them are bit
 * masks. A try dissolves some of the window's subgraphs and merges adjacent atoms and subgraphs in random order while no
 * other path joins them, which is one mask operation to test. A result with fewer subgraphs is kept, or with as many
 * and at most the cut; sometimes also one that cuts more, to get out of local optima. Each round takes another random
 * topological order, so windows overlap those of other rounds. The best partition of all rounds is the result.
 *
 * A round takes O(n + m) and TRIES tries for each window. The caller's budget ends the rounds. Subgraphs that no edge
 * joins with others take no part. */
#include "levels.h"

enum {
    ATOMS = 64,
    LARGE = 24,
    EDGES = 512, /* inside a window, at most */
    TRIES = 12,
};

typedef struct {
    uint64_t members, in, out; /* atoms: its own, those that lead to it, and those it leads to */
    uint64_t before, after;    /* atoms of the clusters that reach it, and of those it reaches */
} cluster;

typedef struct {
    uint8_t from, to;
    float weight;
} inner_edge;

typedef struct {
    int32_t atoms, edges, joinable; /* the first `joinable` edges are within a device */
    int32_t node[ATOMS]; /* one of each atom's */
    uint64_t in[ATOMS], out[ATOMS];
    inner_edge edge[EDGES];
    uint8_t own[ATOMS], next[ATOMS]; /* cluster of each atom, named by one of its atoms: now, and of the try */
    uint64_t names;                  /* of the clusters in `own` */
    int32_t count;
    double cut;
    cluster cluster[ATOMS];
} window;

typedef struct {
    const hg_dag *g;
    int32_t *label, count; /* [n]: any numbers 0..count-1 */
    int32_t *start, *member; /* nodes by label, in topological order */
    int32_t *order, *waiting; /* of subgraphs that have edges to others */
    int32_t places;
    int32_t *atom; /* [n]: of nodes in the window; else -1 */
    int32_t *name; /* [n]: of a node's new subgraph, one of its nodes */
    double cut;
    uint64_t random;
    int64_t work;
    hg_watch *watch;
} improver;

static inline int lowest(uint64_t mask) { return __builtin_ctzll(mask); }

static void merge(window *w, uint64_t *names, int a, int b)
{
    cluster *into = &w->cluster[a], *from = &w->cluster[b];
    for (uint64_t rest = from->members; rest; rest &= rest - 1)
        w->next[lowest(rest)] = (uint8_t)a;
    *names &= ~((uint64_t)1 << b);
    into->members |= from->members;
    into->out |= from->out;
    into->before = (into->before | from->before) & ~into->members;
    into->after = (into->after | from->after) & ~into->members;
    for (uint64_t rest = into->before & *names; rest; rest &= rest - 1)
        w->cluster[lowest(rest)].after |= into->after | into->members;
    for (uint64_t rest = into->after & *names; rest; rest &= rest - 1)
        w->cluster[lowest(rest)].before |= into->before | into->members;
}

/* What the clusters reach, in their topological order: Kahn's algorithm on masks. */
static void close_clusters(window *w, uint64_t names)
{
    uint8_t order[ATOMS];
    int count = 0;
    uint64_t done = 0;
    while (names)
        for (uint64_t rest = names; rest; rest &= rest - 1) {
            const int x = lowest(rest);
            cluster *c = &w->cluster[x];
            if (c->in & ~(c->members | done))
                continue;
            for (uint64_t from = c->in & ~c->members; from;) {
                const cluster *other = &w->cluster[w->next[lowest(from)]];
                c->before |= other->before | other->members;
                from &= ~other->members;
            }
            done |= c->members;
            names &= ~((uint64_t)1 << x);
            order[count++] = (uint8_t)x;
        }
    while (count-- > 0) {
        cluster *c = &w->cluster[order[count]];
        for (uint64_t to = c->out & ~c->members; to;) {
            const cluster *other = &w->cluster[w->next[lowest(to)]];
            c->after |= other->after | other->members;
            to &= ~other->members;
        }
    }
}

/* One try; `kept`: names of the subgraphs that are not dissolved. The result is in w->next; returns the names of its
 * clusters. */
static uint64_t rebuild(improver *s, window *w, uint64_t kept)
{
    uint64_t names = 0;
    for (int x = 0; x < w->atoms; x++)
        w->cluster[x] = (cluster){0, 0, 0, 0, 0};
    for (int x = 0; x < w->atoms; x++) {
        const int own = kept >> w->own[x] & 1 ? w->own[x] : x;
        w->next[x] = (uint8_t)own;
        names |= (uint64_t)1 << own;
        w->cluster[own].members |= (uint64_t)1 << x;
        w->cluster[own].in |= w->in[x];
        w->cluster[own].out |= w->out[x];
    }
    close_clusters(w, names);
    for (int32_t i = w->joinable; i > 1; i--) {
        const int32_t j = (int32_t)hg_draw(&s->random, (uint32_t)i);
        const inner_edge moved = w->edge[j];
        w->edge[j] = w->edge[i - 1];
        w->edge[i - 1] = moved;
    }
    for (int merged = 1; merged;) {
        merged = 0;
        for (int32_t i = 0; i < w->joinable; i++) {
            const int a = w->next[w->edge[i].from], b = w->next[w->edge[i].to];
            if (a == b || w->cluster[a].out & w->cluster[b].before & ~w->cluster[a].members)
                continue;
            merge(w, &names, a, b);
            merged = 1;
        }
        s->work -= 2 * w->joinable + w->atoms;
    }
    return names;
}

static double cut_of(const window *w, const uint8_t *own)
{
    double cut = 0;
    for (int32_t i = 0; i < w->edges; i++)
        cut += own[w->edge[i].from] != own[w->edge[i].to] ? (double)w->edge[i].weight : 0.0;
    return cut;
}

/* The atoms and edges of the subgraphs at the places begin to end - 1. 0: there are too many edges, or no two of its
 * subgraphs on one device are adjacent. */
static int open_window(improver *s, window *w, int32_t begin, int32_t end)
{
    const hg_dag *g = s->g;
    int32_t adjacent = 0;
    w->atoms = w->edges = w->joinable = 0;
    w->names = 0;
    for (int32_t place = begin; place < end; place++) {
        const int32_t label = s->order[place], size = s->start[label + 1] - s->start[label], first = w->atoms;
        w->names |= (uint64_t)1 << first;
        for (int32_t i = s->start[label]; i < s->start[label + 1]; i++) {
            w->own[w->atoms] = (uint8_t)first;
            w->in[w->atoms] = w->out[w->atoms] = 0;
            w->node[w->atoms] = s->member[i];
            s->atom[s->member[i]] = w->atoms;
            if (size <= LARGE || i + 1 == s->start[label + 1])
                w->atoms++;
        }
    }
    for (int32_t place = begin; place < end && w->edges < EDGES; place++)
        for (int32_t i = s->start[s->order[place]]; i < s->start[s->order[place] + 1]; i++) {
            const int32_t v = s->member[i], x = s->atom[v];
            s->work -= 2 + g->out_start[v + 1] - g->out_start[v];
            for (int32_t j = g->out_start[v]; j < g->out_start[v + 1] && w->edges < EDGES; j++) {
                const int32_t y = s->atom[g->out[j]];
                if (y < 0 || y == x)
                    continue;
                w->out[x] |= (uint64_t)1 << y;
                w->in[y] |= (uint64_t)1 << x;
                inner_edge *edge = &w->edge[w->edges++];
                const inner_edge added = {(uint8_t)x, (uint8_t)y, g->out_weight ? g->out_weight[j] : 1.0f};
                *edge = added;
                if (g->device[v] == g->device[g->out[j]]) {
                    adjacent |= w->own[x] != w->own[y];
                    *edge = w->edge[w->joinable];
                    w->edge[w->joinable++] = added;
                }
            }
        }
    w->count = end - begin;
    w->cut = cut_of(w, w->own);
    return adjacent && w->edges < EDGES;
}

/* Divides the window anew. 1: in another way than before. */
static int search(improver *s, window *w, int wander)
{
    int changed = 0;
    for (int try = 0; try < TRIES; try++) {
        const uint32_t share = hg_draw(&s->random, 3); /* all, half, or a quarter of the subgraphs are dissolved */
        uint64_t kept = 0;
        for (uint32_t i = 0; i < share; i++) {
            const uint64_t bits = (uint64_t)hg_draw(&s->random, UINT32_MAX) << 32 | hg_draw(&s->random, UINT32_MAX);
            kept |= bits & w->names;
        }
        const uint64_t names = rebuild(s, w, kept);
        const int32_t count = __builtin_popcountll(names);
        if (count > w->count)
            continue;
        const double cut = cut_of(w, w->next);
        s->work -= w->edges;
        if (count == w->count && cut > w->cut && (!wander || hg_draw(&s->random, 8)))
            continue;
        memcpy(w->own, w->next, sizeof w->own);
        w->names = names;
        w->count = count;
        w->cut = cut;
        changed = 1;
    }
    return changed;
}

/* A random topological order of the subgraphs with edges to others. way: 0: depth first, 1: breadth first, 2: any. */
static int find_order(improver *s, int way)
{
    const hg_dag *g = s->g;
    int status = hg_members(g->n, s->label, g->order, s->count, s->start, s->member, s->watch);
    memset(s->waiting, 0, (size_t)s->count * sizeof *s->waiting);
    for (int32_t v = 0; v < g->n && status == HG_OK; v++) {
        for (int32_t j = g->in_start[v]; j < g->in_start[v + 1]; j++)
            s->waiting[s->label[v]] += s->label[g->in[j]] != s->label[v];
        if (hg_interrupted(s->watch, 2 + 2 * (int64_t)(g->in_start[v + 1] - g->in_start[v])))
            status = HG_INTERRUPTED;
    }
    if (status != HG_OK)
        return status;
    int32_t ready = 0;
    for (int32_t v = 0; v < g->n; v++)
        s->name[v] = s->member[s->start[s->label[v]]];
    for (int32_t i = 0; i < g->n; i++) { /* in the order of first nodes, whatever the labels are */
        const int32_t v = g->order ? g->order[i] : i, label = s->label[v];
        if (s->member[s->start[label]] != v || s->waiting[label])
            continue;
        int joined = 0;
        for (int32_t k = s->start[label]; k < s->start[label + 1] && !joined; k++)
            for (int32_t j = g->out_start[s->member[k]]; j < g->out_start[s->member[k] + 1] && !joined; j++)
                joined = s->label[g->out[j]] != label;
        if (joined)
            s->order[ready++] = label;
    }
    s->places = 0;
    while (s->places < ready) { /* order: those done, then those ready */
        const int32_t waiting = ready - s->places;
        const int32_t pick = s->places + (way == 0   ? waiting - 1 - (int32_t)hg_draw(&s->random, waiting < 2 ? (uint32_t)waiting : 2)
                                          : way == 1 ? 0
                                                     : (int32_t)hg_draw(&s->random, (uint32_t)waiting));
        const int32_t label = s->order[pick];
        s->order[pick] = s->order[s->places];
        s->order[s->places++] = label;
        for (int32_t i = s->start[label]; i < s->start[label + 1]; i++) {
            const int32_t v = s->member[i];
            for (int32_t j = g->out_start[v]; j < g->out_start[v + 1]; j++) {
                const int32_t t = s->label[g->out[j]];
                if (t != label && !--s->waiting[t])
                    s->order[ready++] = t;
            }
        }
    }
    return hg_interrupted(s->watch, 8 * ((int64_t)g->n + g->out_start[g->n])) ? HG_INTERRUPTED : HG_OK;
}

/* One round: windows along the order. */
static int improve_windows(improver *s, window *w, int32_t largest, int wander)
{
    int32_t begin = 0;
    while (begin < s->places && s->work > 0) {
        int32_t end = begin, atoms = 0;
        while (end < s->places) {
            const int32_t size = s->start[s->order[end] + 1] - s->start[s->order[end]];
            const int32_t more = size > LARGE ? 1 : size;
            if (atoms + more > largest)
                break;
            atoms += more;
            end++;
        }
        if (end == begin) { /* a subgraph of more atoms than this round's windows have */
            begin++;
            continue;
        }
        if (end - begin > 1) {
            const int open = open_window(s, w, begin, end);
            const double cut = w->cut;
            const int changed = open && search(s, w, wander);
            s->cut += changed ? w->cut - cut : 0;
            for (int32_t place = begin; place < end; place++)
                for (int32_t i = s->start[s->order[place]]; i < s->start[s->order[place] + 1]; i++) {
                    const int32_t v = s->member[i];
                    if (changed)
                        s->name[v] = w->node[w->own[s->atom[v]]];
                    s->atom[v] = -1;
                }
        }
        if (hg_interrupted(s->watch, 1 << 14))
            return HG_INTERRUPTED;
        begin = end;
    }
    return HG_OK;
}

/* Labels 0..count-1, in the order of first nodes, from the names. */
static void renumber(improver *s, int32_t *number)
{
    const hg_dag *g = s->g;
    memset(number, 0xFF, (size_t)g->n * sizeof *number);
    s->count = 0;
    for (int32_t i = 0; i < g->n; i++) {
        const int32_t v = g->order ? g->order[i] : i;
        if (number[s->name[v]] < 0)
            number[s->name[v]] = s->count++;
        s->label[v] = number[s->name[v]];
    }
}

int hg_improve_windows(const hg_dag *g, int32_t *label, int32_t *count, double *cut, int32_t bound, int64_t work,
                       hg_arena *arena, hg_watch *watch)
{
    const int32_t n = g->n;
    const int64_t size = (int64_t)n + g->out_start[n];
    improver s = {.g = g, .count = *count, .cut = *cut, .random = 0x9E3779B97F4A7C15u, .work = work, .watch = watch};
    s.label = HG_TAKE(arena, int32_t, n);
    s.start = HG_TAKE(arena, int32_t, (int64_t)n + 1);
    s.member = HG_TAKE(arena, int32_t, n);
    s.order = HG_TAKE(arena, int32_t, n);
    s.waiting = HG_TAKE(arena, int32_t, n);
    s.atom = HG_TAKE(arena, int32_t, n);
    s.name = HG_TAKE(arena, int32_t, n);
    int32_t *number = HG_TAKE(arena, int32_t, n);
    window *w = HG_TAKE(arena, window, 1);
    if (arena->failed)
        return HG_NO_MEMORY;
    memcpy(s.label, label, (size_t)n * sizeof *label);
    memset(s.atom, 0xFF, (size_t)n * sizeof *s.atom);
    for (int round = 0; s.work > 0 && *count > bound; round++) {
        int status = find_order(&s, round % 3);
        if (status != HG_OK)
            return status;
        s.work -= 8 * size;
        const int32_t largest = round & 1 ? ATOMS : 12 + (int32_t)hg_draw(&s.random, ATOMS - 12);
        const int wander = s.work > work / 4;
        status = improve_windows(&s, w, largest, wander);
        if (status < 0)
            return status;
        renumber(&s, number);
        if (s.count < *count || (s.count == *count && s.cut < *cut)) {
            memcpy(label, s.label, (size_t)n * sizeof *label);
            *count = s.count;
            *cut = s.cut;
        }
    }
    return HG_OK;
}
