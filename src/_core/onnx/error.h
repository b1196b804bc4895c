/* What is wrong with a file, and where. Filled by the first failure; the caller turns names into text. */
#ifndef HETERO_ONNX_ERROR_H
#define HETERO_ONNX_ERROR_H

#include "names.h"

typedef enum {
    HT_PLACE_MODEL,
    HT_PLACE_GRAPH,
    HT_PLACE_NODE,
    HT_PLACE_INITIALIZER,
    HT_PLACE_SPARSE_INITIALIZER,
    HT_PLACE_INPUT,
    HT_PLACE_OUTPUT,
    HT_PLACE_VALUE_INFO,
    HT_PLACE_OPSET,
    HT_PLACE_FUNCTION,
} ht_place;

#define HT_MAX_PLACES 8

typedef struct {
    char message[160];       /* numbers and words of ours only; empty: no failure */
    bool no_memory;
    int64_t offset;          /* in the file, -1 if it is no single place */
    bool has_subject;        /* `subject` is the value, attribute or key that the message speaks of */
    ht_span subject;
    int place_count;         /* messages that contain the trouble: one, or the nodes of a cycle */
    ht_place place[HT_MAX_PLACES];
    int64_t place_begin[HT_MAX_PLACES], place_end[HT_MAX_PLACES]; /* body in the file; 0, 0: not known */
    int64_t ordinal[HT_MAX_PLACES];                               /* among its kind, in file order; -1: only one */
} ht_error;

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
bool ht_fail(ht_error *error, int64_t offset, const char *format, ...);

bool ht_fail_memory(ht_error *error);

/* As ht_fail, about a name of the file. */
bool ht_fail_about(ht_error *error, int64_t offset, int64_t subject, int64_t length, const char *message);

/* Adds the message that the failure lies in. Returns false. */
bool ht_in_place(ht_error *error, ht_place place, int64_t begin, int64_t end, int64_t ordinal);

#endif
