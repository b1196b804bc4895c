/* Memory backed by large pages. */
#ifndef HETERO_PAGES_H
#define HETERO_PAGES_H

#include <stdint.h>

/* Allocates `bytes` of uninitialized memory, aligned to 64 bytes. NULL if memory is exhausted.
 * From 2 MiB on it requests pages of 2 MiB, which reduces TLB misses when a kernel streams through the memory. */
void *ht_allocate_pages(int64_t bytes);
void ht_free_pages(void *memory); /* or NULL */

#endif
