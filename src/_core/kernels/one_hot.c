/* one_hot: rows of zeros with a 1 at the place of a category. in x int32 or int64; categories int64[n], increasing;
 * places int64[n], a permutation: the column of each category. out y float32, n elements for each of x. ints: whether
 * an element that is not a category gives a row of zeros; otherwise it gives HT_ERR_CATEGORY. */
#include "indices.h"
#include "vec.h"

typedef struct {
    const ht_tensor *x;
    const int64_t *categories, *places;
    float *y;
    int64_t n, parts;
    int is_dense; /* no integer is missing between the first and the last category */
    int zeros;
    _Atomic int unknown;
} job;

/* The column of a category; -1 if `value` is none. */
static inline int64_t column_of(const job *j, int64_t value)
{
    if (j->is_dense) {
        const uint64_t above = (uint64_t)value - (uint64_t)j->categories[0]; /* wraps below the first */
        return above < (uint64_t)j->n ? j->places[above] : -1;
    }
    int64_t begin = 0;
    for (int64_t count = j->n; count > 1;) {
        const int64_t half = count / 2;
        begin += j->categories[begin + half] <= value ? half : 0;
        count -= half;
    }
    return j->categories[begin] == value ? j->places[begin] : -1;
}

static void encode_part(void *context, int64_t part, int thread)
{
    (void)thread;
    job *j = (job *)context;
    const int64_t n = j->n, end = ht_part_begin(j->x->size, j->parts, part + 1);
    const int64_t most = n < 4096 ? 4096 / n : 1; /* rows that stay in the cache between the two loops */
    int64_t left = HT_PACE;
    for (int64_t row = ht_part_begin(j->x->size, j->parts, part), some; row < end; row += some) {
        some = ht_min64(most, end - row);
        memset(j->y + row * n, 0, (size_t)(some * n) * sizeof(float));
        for (int64_t i = row; i < row + some; i++) {
            const int64_t column = column_of(j, ht_integer_at(j->x, i));
            if (column >= 0)
                j->y[i * n + column] = 1;
            else if (!j->zeros) {
                j->unknown = 1;
                return;
            }
        }
        if (ht_paced_stop(&left, some * (n + 8)))
            return;
    }
}

int HT_KERNEL(one_hot)(const ht_call *call)
{
    if (call->num_in != 3 || call->num_out != 1 || call->num_ints != 1)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0], *categories = call->in[1], *places = call->in[2], *y = call->out[0];
    if (!ht_is_index_type(x->dtype) || categories->dtype != HT_INT64 || places->dtype != HT_INT64 ||
        y->dtype != HT_FLOAT32)
        return HT_ERR_DTYPE;
    const int64_t n = categories->size;
    if (n < 1 || places->size != n || y->size != x->size * n)
        return HT_ERR_OPERAND;
    job j = {.x = x, .categories = categories->data, .places = places->data, .y = y->data, .n = n,
             .zeros = call->ints[0] != 0};
    j.is_dense = (uint64_t)j.categories[n - 1] - (uint64_t)j.categories[0] == (uint64_t)n - 1;
    j.parts = ht_parts(call, x->size, (double)x->size * (double)(n + 64));
    ht_parallel(call->team, j.parts, encode_part, &j);
    for (int64_t i = 0; j.unknown && i < x->size; i++)
        if (column_of(&j, ht_integer_at(x, i)) < 0)
            return ht_category_failure(ht_integer_at(x, i));
    return HT_OK;
}
