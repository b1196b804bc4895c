/* Memory in large pages. */
#ifndef HETERO_PAGES_H
#define HETERO_PAGES_H

#include <stdint.h>

/* `bytes` of uninitialized memory, aligned to 64 bytes, to be given to free(); NULL if there is none. From 2 MiB on it
 * asks the system for pages of that size, of which the processor keeps far more at hand: what streams through a kernel
 * then waits for no translation of addresses. */
void *ht_allocate_pages(int64_t bytes);

#endif
