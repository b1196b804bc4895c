/* Policy `greedy`, the last resort: when the steps run out, the nodes that are still free are cut by depth, as policy
 * `linear` cuts all nodes.
 *
 * The vertices are visited in their order; a chosen subgraph is one vertex. depth(x) is the maximum over predecessors y
 * of depth(y) + 1, or of depth(y) if x and y are free nodes of one device. Free nodes of one device and depth that an
 * edge connects form a subgraph; union-find collects them, with the earlier vertex as the root. Every other edge leads
 * to a greater depth, so the quotient stays acyclic. O((n + m) a(n)) with the inverse Ackermann function a. */
#include "greedy.h"

static inline int32_t find(int32_t *parent, int32_t x)
{
    while (parent[x] != x) {
        parent[x] = parent[parent[x]];
        x = parent[x];
    }
    return x;
}

int hg_greedy_rest(hg_greedy_state *s, int32_t *count, int32_t *depth, int32_t *parent)
{
    hg_greedy_node *node = s->node;
    const hg_order_list *order = &s->order;
    for (int32_t x = order->next[order->head]; x != order->head; x = order->next[x]) {
        int64_t edges = 0;
        int32_t deepest = 0, v = x, count_in;
        const int32_t *row;
        do {
            row = hg_greedy_row(s, UP, v, &count_in);
            for (int32_t j = 0; j < count_in; j++) {
                const int32_t y = node[row[j]].vertex;
                if (y == x)
                    continue;
                const int32_t d = depth[y] + (node[x].label >= 0 || node[x].label != node[y].label);
                deepest = d > deepest ? d : deepest;
            }
            edges += 1 + count_in;
            v = node[v].next_member;
        } while (v != x);
        depth[x] = deepest;
        parent[x] = x;
        if (node[x].label < 0) /* a single node: its row is the one read last */
            for (int32_t j = 0; j < count_in; j++) {
                const int32_t y = node[row[j]].vertex;
                if (node[y].label != node[x].label || depth[y] != deepest)
                    continue;
                const int32_t a = find(parent, x), b = find(parent, y);
                if (node[a].key < node[b].key)
                    parent[b] = a;
                else
                    parent[a] = b;
            }
        if (hg_interrupted(s->watch, 8 + 8 * edges))
            return HG_INTERRUPTED;
    }
    for (int32_t x = order->next[order->head]; x != order->head; x = order->next[x]) {
        if (node[x].label < 0) {
            const int32_t root = find(parent, x);
            node[x].label = root == x ? (*count)++ : node[root].label;
        }
        if (hg_interrupted(s->watch, 8))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}
