/* Errors of indices; see indices.h. */
#include "indices.h"

static _Thread_local ht_index_note noted;

int ht_index_failure(const ht_tensor *indices, const ht_tensor *data, int first, int64_t depth)
{
    for (int64_t i = 0; i < indices->size; i++) {
        const int axis = first + (int)(i % depth);
        if (ht_index_at(indices, i, data->dims[axis]) < 0) {
            noted = (ht_index_note){ht_integer_at(indices, i), data->dims[axis], axis};
            return HT_ERR_NOTED_INDEX;
        }
    }
    return HT_ERR_INDEX; /* another thread has changed it */
}

int ht_category_failure(int64_t value)
{
    noted = (ht_index_note){.index = value};
    return HT_ERR_CATEGORY;
}

ht_index_note ht_noted_index(void) { return noted; }
