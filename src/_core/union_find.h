/* Union-find by path halving. */
#ifndef HETERO_UNION_FIND_H
#define HETERO_UNION_FIND_H

#include <stdint.h>

/* The root above x. A root is its own parent. Most x are a root or a child of one, which could not be predicted, so both
 * take the same path through the code. */
static inline int32_t hg_find(int32_t *parent, int32_t x)
{
    int32_t above = parent[x];
    for (int32_t next; (next = parent[above]) != above; above = parent[x]) {
        parent[x] = next;
        x = next;
    }
    return above;
}

#endif
