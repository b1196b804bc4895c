/* Growable arrays of the three element types of the ONNX index.
 *
 * Growth is geometric, so n pushes cost O(n); the allocator moves large blocks with mremap instead of copying them. */
#ifndef HETERO_ONNX_VECTOR_H
#define HETERO_ONNX_VECTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct { int64_t *data; int64_t count, capacity; } ht_i64s;
typedef struct { int32_t *data; int64_t count, capacity; } ht_i32s;
typedef struct { uint8_t *data; int64_t count, capacity; } ht_u8s;

/* Grows to at least `needed` elements of `size` bytes. Returns the new block, or NULL (the old block stays valid). */
static inline void *ht_grown(void *data, int64_t *capacity, int64_t needed, size_t size)
{
    int64_t wanted = *capacity < 64 ? 64 : *capacity + *capacity / 2;
    if (wanted < needed)
        wanted = needed;
    if ((uint64_t)wanted > (uint64_t)PTRDIFF_MAX / size) /* unreached: no file has so many entries */
        return NULL;
    void *block = realloc(data, (size_t)wanted * size);
    if (block != NULL)
        *capacity = wanted;
    return block;
}

#define HT_VECTOR_FUNCTIONS(vector, type, push, resize)                                             \
    static inline bool push(vector *v, type value)                                                  \
    {                                                                                               \
        if (v->count == v->capacity) {                                                              \
            void *block = ht_grown(v->data, &v->capacity, v->count + 1, sizeof(type));              \
            if (block == NULL)                                                                      \
                return false;                                                                       \
            v->data = block;                                                                        \
        }                                                                                           \
        v->data[v->count++] = value;                                                                \
        return true;                                                                                \
    }                                                                                               \
    /* Resizes to exactly `count` elements; new elements are uninitialized. */                      \
    static inline bool resize(vector *v, int64_t count)                                             \
    {                                                                                               \
        if (count > v->capacity) {                                                                  \
            void *block = ht_grown(v->data, &v->capacity, count, sizeof(type));                     \
            if (block == NULL)                                                                      \
                return false;                                                                       \
            v->data = block;                                                                        \
        }                                                                                           \
        v->count = count;                                                                           \
        return true;                                                                                \
    }

HT_VECTOR_FUNCTIONS(ht_i64s, int64_t, ht_push_i64, ht_resize_i64)
HT_VECTOR_FUNCTIONS(ht_i32s, int32_t, ht_push_i32, ht_resize_i32)
HT_VECTOR_FUNCTIONS(ht_u8s, uint8_t, ht_push_u8, ht_resize_u8)

#endif
