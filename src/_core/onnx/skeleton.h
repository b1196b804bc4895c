/* A small copy of a model that is sufficient for shape inference: without weights, and with names of a few bytes.
 *
 * onnx's inference spends its time on strings and initializers. So values get short names, except values that nested
 * graphs capture, because nested graphs are copied unchanged. Constants become graph inputs of their type, unless their
 * data may matter. Node names, documentation and metadata are omitted.
 *
 * Cost: O(bytes of the nodes). */
#ifndef HETERO_ONNX_SKELETON_H
#define HETERO_ONNX_SKELETON_H

#include "index.h"

/* First byte of a short name; the value's id in hexadecimal digits follows. */
#define HT_SHORT_NAME 1

enum { HT_AS_INPUT, HT_AS_IT_IS, HT_LEFT_OUT };

typedef struct {
    const uint8_t *constants;  /* per constant: HT_AS_INPUT, HT_AS_IT_IS or HT_LEFT_OUT */
    const uint8_t *infos;      /* per graph input, output and value info: whether it is written */
    const uint8_t *keeps_name; /* per value: whether it keeps its name */
    int64_t max_vector;        /* longer vector constants get a symbol as their length: ... */
    const char *hidden;        /* ... this text followed by the length in decimal digits */
} ht_skeleton_choice;

/* Appends the fields of the GraphProto. Returns false if memory is exhausted. */
bool ht_skeleton_write(const uint8_t *base, const ht_index *index, const ht_skeleton_choice *choice, ht_u8s *out);

/* For each value of `index`, the corresponding value of `answer` (an index of the skeleton after inference), or -1. */
void ht_skeleton_values(const uint8_t *base, const ht_index *index, const uint64_t hash_key[2],
                        const uint8_t *answer_base, const ht_index *answer, int32_t *values);

#endif
