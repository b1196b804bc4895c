/* The cache of path sets: see path_cache.c. */
#ifndef HETERO_PARTITION_PATH_CACHE_H
#define HETERO_PARTITION_PATH_CACHE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct hg_path_set {
    struct hg_path_set *chain, *newer, *older;
    int32_t u, v, count;
    int32_t nodes[];
} hg_path_set;

typedef struct {
    int64_t max_bytes, bytes, count; /* bytes and number of the sets */
    int64_t slots;                   /* a power of two, or 0 */
    hg_path_set **slot;
    hg_path_set *newest, *oldest;
} hg_path_cache; /* all zeros but max_bytes: empty */

/* The set of a pair, valid until the next call, or NULL. */
const hg_path_set *hg_path_cache_find(hg_path_cache *cache, int32_t u, int32_t v);

/* Copies a set into the cache, unless it is larger than the whole. */
void hg_path_cache_put(hg_path_cache *cache, int32_t u, int32_t v, const int32_t *nodes, int32_t count);
void hg_path_cache_close(hg_path_cache *cache);

#endif
