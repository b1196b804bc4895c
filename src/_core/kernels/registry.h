/* The list of kernels: names, published constants, and one function table per instruction set. */
#ifndef HETERO_REGISTRY_H
#define HETERO_REGISTRY_H

#include "kernel.h"

int ht_num_kernels(void);
const char *ht_kernel_name(int kernel);

/* The operands in whose memory a kernel may write its first result; see HT_IN_PLACE in kernels.h. */
typedef struct {
    unsigned operands; /* a bit for each; 0 if the kernel never works in place */
    int shared;
} ht_in_place;
ht_in_place ht_in_place_of(int kernel);

/* Names and values that constants.h and unary_codes.h publish. */
int ht_num_constants(void);
const char *ht_constant_name(int constant);
int64_t ht_constant_value(int constant);

/* Instruction-set variants compiled in, from the least to the most demanding; and whether this machine runs one. */
int ht_num_variants(void);
const char *ht_variant_name(int variant);
int ht_variant_runs(int variant);
int ht_variant_has_tiles(int variant); /* tiles.h */
ht_kernel_fn ht_kernel(int variant, int kernel);

#endif
