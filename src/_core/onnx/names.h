/* Interned names: an open-addressing hash table from byte strings of the file to dense ids.
 *
 * The hash is SipHash-1-3 (Aumasson and Bernstein, 2012). The caller draws its key at random once per process, so a
 * file cannot be crafted to make names collide. A string is stored as its place in the file (a span), not copied.
 * Expected O(length) per lookup; 16 to 32 bytes of memory per name, including the span. */
#ifndef HETERO_ONNX_NAMES_H
#define HETERO_ONNX_NAMES_H

#include "vector.h"

#include <string.h>

/* A string of the file in 64 bits: offset << 24 | length. Limits: names below 16 MiB, files below 512 GiB. */
typedef int64_t ht_span;
#define HT_SPAN_LENGTH_BITS 24
#define HT_MAX_NAME ((1 << HT_SPAN_LENGTH_BITS) - 1)
#define HT_MAX_FILE ((int64_t)1 << (63 - HT_SPAN_LENGTH_BITS))

static inline ht_span ht_make_span(int64_t offset, int64_t length) { return offset << HT_SPAN_LENGTH_BITS | length; }
static inline int64_t ht_span_offset(ht_span span) { return span >> HT_SPAN_LENGTH_BITS; }
static inline int64_t ht_span_length(ht_span span) { return span & HT_MAX_NAME; }

/* Slots hold hash << 32 | id + 1; 0 is empty. Ids are positions in the caller's vector of spans. */
typedef struct {
    uint64_t *slots;
    uint64_t mask;
    int64_t count;
} ht_table;

uint64_t ht_hash(const uint64_t key[2], const uint8_t *string, int64_t length);

/* The id of an equal string among `spans`, or -1. */
int32_t ht_table_find(const ht_table *table, const ht_span *spans, const uint8_t *base, uint64_t hash,
                      const uint8_t *string, int64_t length);

/* The id of the first entry whose 32-bit hash matches, or -1. Only a guess, for prefetching. */
int32_t ht_table_guess(const ht_table *table, uint64_t hash);

/* Adds an id that is not in the table. Returns false if memory is exhausted. */
bool ht_table_add(ht_table *table, uint64_t hash, int32_t id);

/* The id of a string. A new string is appended to `spans` and sets `*fresh`. -1: out of memory, or 2^31 - 2 names. */
int32_t ht_intern(ht_table *table, ht_i64s *spans, uint64_t hash, const uint8_t *base, int64_t offset, int64_t length,
                  bool *fresh);

void ht_table_free(ht_table *table);

/* Whether the bytes are well-formed UTF-8 (RFC 3629: no overlong forms, no surrogates). */
bool ht_is_utf8(const uint8_t *string, int64_t length);

#endif
