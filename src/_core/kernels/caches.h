/* What kernels ask about the caches of the processor. */
#ifndef HETERO_CACHES_H
#define HETERO_CACHES_H

/* Lines that a set of the L1 data cache holds; 8, the least of the processors with AVX-512, where it is not known. */
int ht_l1_ways(void);

/* For tests: a number that counts instead of the processor's from now on, or 0 to ask the processor again. */
void ht_assume_l1_ways(int ways);

#endif
