/* The best of many keys, for topk.c. A larger key is better; of equal keys, the one with the lower place (index) is.
 *
 * The results are items, best first; ht_place_of gives an item's place. They lie in the scratch memory. */
#ifndef HETERO_BEST_KEYS_H
#define HETERO_BEST_KEYS_H

#include "kernel.h"

static inline int32_t ht_place_of(uint64_t item) { return (int32_t)(uint32_t)~item; }

/* The k best of n keys, 0 < k <= n <= 2^30; key i has place i. scratch: aligned to 8 bytes,
 * 8 * n + 16 * k + 320 bytes. */
#define ht_best_keys HT_KERNEL(best_keys)
const uint64_t *ht_best_keys(const int32_t *keys, int32_t n, int32_t k, void *scratch);

/* The same for keys of 64 bits. scratch: 20 * n + 32 * k + 672 bytes. */
#define ht_best_wide_keys HT_KERNEL(best_wide_keys)
const uint64_t *ht_best_wide_keys(const int64_t *keys, int32_t n, int32_t k, void *scratch);

#endif
