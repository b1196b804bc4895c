/* Builds a network in compressed rows from edges, by a counting sort. O(vertices + edges). */
#include "assign.h"

enum {
    TOTAL_BITS = 59,          /* bits of the scaled total; rounding adds less than one, and assign.h allows 2^60 */
    GREATEST_EXPONENT = 1000, /* of the scale, which must be a finite float64 */
};

double hg_scale_for(double total)
{
    int exponent = 0;
    if (total > 0)
        (void)frexp(total, &exponent); /* total < 2^exponent */
    exponent = TOTAL_BITS - exponent;
    return ldexp(1, exponent > GREATEST_EXPONENT ? GREATEST_EXPONENT : exponent);
}

int hg_build_network(int32_t n, const double *excess, const hg_edge *edges, int64_t count, double scale,
                     hg_network *net, hg_arena *arena, hg_watch *watch)
{
    if (count > INT32_MAX / 2) /* unreached: the edges alone take 26 GB */
        return HG_TOO_LARGE;
    const int64_t arcs = 2 * count;
    int32_t *start = HG_TAKE_ZEROED(arena, int32_t, (int64_t)n + 2);
    hg_arc *arc = HG_TAKE(arena, hg_arc, arcs);
    int64_t *scaled = HG_TAKE(arena, int64_t, n);
    if (!start || !arc || !scaled)
        return HG_NO_MEMORY;
    for (int32_t v = 0; v < n; v++) {
        scaled[v] = hg_scaled_capacity(excess[v], scale);
        if (hg_interrupted_at(watch, v, 1))
            return HG_INTERRUPTED;
    }
    int32_t *next = start + 1; /* next[v]: where v's next arc goes; in the end, where its row ends */
    for (int64_t i = 0; i < count; i++) {
        next[edges[i].a + 1]++;
        next[edges[i].b + 1]++;
        if (hg_interrupted(watch, 4))
            return HG_INTERRUPTED;
    }
    for (int32_t v = 1; v < n; v++)
        next[v] += next[v - 1];
    for (int64_t i = 0; i < count; i++) {
        const int32_t there = next[edges[i].a]++, back = next[edges[i].b]++;
        arc[there] = (hg_arc){edges[i].b, back, hg_scaled_capacity(edges[i].forth, scale)};
        arc[back] = (hg_arc){edges[i].a, there, hg_scaled_capacity(edges[i].back, scale)};
        if (hg_interrupted(watch, 8))
            return HG_INTERRUPTED;
    }
    *net = (hg_network){n, (int32_t)arcs, start, arc, scaled};
    return HG_OK;
}

int hg_cut_capacity(int32_t n, const double *excess, const hg_edge *edges, int64_t count, double scale,
                    const uint8_t *on_sink_side, int64_t *cut, hg_watch *watch)
{
    *cut = 0;
    for (int32_t v = 0; v < n; v++) {
        const int64_t given = hg_scaled_capacity(excess[v], scale);
        if (given > 0 ? on_sink_side[v] : !on_sink_side[v])
            *cut += given > 0 ? given : -given;
        if (hg_interrupted_at(watch, v, 1))
            return HG_INTERRUPTED;
    }
    for (int64_t i = 0; i < count; i++) {
        const uint8_t a = on_sink_side[edges[i].a], b = on_sink_side[edges[i].b];
        if (a != b)
            *cut += hg_scaled_capacity(b ? edges[i].forth : edges[i].back, scale);
        if (hg_interrupted(watch, 2))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}
