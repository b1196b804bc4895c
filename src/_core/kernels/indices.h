/* Indices into an axis, and walks over tensors of indices; shared by gather.c and scatter.c. */
#ifndef HETERO_INDICES_H
#define HETERO_INDICES_H

#include "elements.h"

/* Entry `i` of `indices` as an index into an axis of `size`; negative ones count from its end. -1 if outside. */
static inline int64_t ht_index_at(const ht_tensor *indices, int64_t i, int64_t size)
{
    int64_t index = ht_integer_at(indices, i);
    if (index < 0)
        index += size;
    return index < 0 || index >= size ? -1 : index;
}

/* An index outside its axis, for the error message. */
typedef struct {
    int64_t index, size; /* size: of the axis */
    int axis;
} ht_index_note;

/* For a kernel that met an index outside its axis: finds and notes the first one, and returns the status. Entry i of
 * `indices` belongs to axis `first` + i % `depth` of `data`. */
int ht_index_failure(const ht_tensor *indices, const ht_tensor *data, int first, int64_t depth);

/* For a kernel that met an integer that is not a category: notes it, and returns the status. */
int ht_category_failure(int64_t value);

/* What the last call of this thread with HT_ERR_NOTED_INDEX or HT_ERR_CATEGORY noted. */
ht_index_note ht_noted_index(void);

/* For GatherElements and ScatterElements: the place in `data` of the current element of `indices`, ignoring `axis`. */
typedef struct {
    int64_t base, axis_step; /* in elements of data */
    int64_t step[HT_MAX_DIMS], size[HT_MAX_DIMS], position[HT_MAX_DIMS];
} ht_index_walk;

/* Returns 0 if `indices` has an invalid shape. */
static inline int ht_index_walk_begin(ht_index_walk *walk, const ht_tensor *data, const ht_tensor *indices, int64_t axis)
{
    int64_t step = 1;
    if (axis < 0 || axis >= data->ndim || indices->ndim != data->ndim)
        return 0;
    walk->base = 0;
    for (int d = data->ndim - 1; d >= 0; d--) {
        if (d != axis && indices->dims[d] > data->dims[d])
            return 0;
        if (d == axis)
            walk->axis_step = step;
        walk->step[d] = d == axis ? 0 : step;
        walk->size[d] = indices->dims[d];
        walk->position[d] = 0;
        step *= data->dims[d];
    }
    return 1;
}

/* Goes to the first element of a row, counted in order; a row runs along the axis after `last`. No size may be 0. */
static inline void ht_index_walk_seek(ht_index_walk *walk, int last, int64_t row)
{
    walk->base = 0;
    for (int d = last; d >= 0; row /= walk->size[d], d--) {
        walk->position[d] = row % walk->size[d];
        walk->base += walk->position[d] * walk->step[d];
    }
}

/* Advances to the next element along axis `last`, or from its end to the next row. */
static inline void ht_index_walk_next(ht_index_walk *walk, int last)
{
    for (int d = last; d >= 0; d--) {
        walk->base += walk->step[d];
        if (++walk->position[d] < walk->size[d])
            return;
        walk->base -= walk->step[d] * walk->size[d];
        walk->position[d] = 0;
    }
}

#endif
