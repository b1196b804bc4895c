/* What is wrong with a file, and where. The first failure fills it in; the caller converts spans into names. */
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
    char message[160];       /* no text from the file; empty: no failure */
    bool no_memory;
    int64_t offset;          /* in the file; -1 if no single position applies */
    bool has_subject;        /* `subject` is the value, attribute or key that the message is about */
    ht_span subject;
    int place_count;         /* number of enclosing messages: one, or the nodes of a cycle */
    ht_place place[HT_MAX_PLACES];
    int64_t place_begin[HT_MAX_PLACES], place_end[HT_MAX_PLACES]; /* body in the file; 0, 0: unknown */
    int64_t ordinal[HT_MAX_PLACES];                               /* in file order, among its kind; -1: only one */
} ht_error;

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
bool ht_fail(ht_error *error, int64_t offset, const char *format, ...);

bool ht_fail_memory(ht_error *error);

/* As ht_fail, for an error about a name in the file. */
bool ht_fail_about(ht_error *error, int64_t offset, int64_t subject, int64_t length, const char *message);

/* Adds the message that contains the failure. Returns false. */
bool ht_in_place(ht_error *error, ht_place place, int64_t begin, int64_t end, int64_t ordinal);

#endif
