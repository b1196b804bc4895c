/* nonzero: the indices of nonzero elements. Operands: in x (numeric or bool); out places[size][rank] (int64, large
 * enough for every result; a scalar has rank 1), count (int64, 1 element): the number of rows filled, in row-major
 * order of x. The remaining rows are zero.
 *
 * Threads first count the nonzero elements of each part of x, and then know where each part's rows begin.
 */
#include "elements.h"

enum {
    PIECE = 1024,     /* elements of a unit of work for threads */
    MAX_PARTS = 1024  /* bounds an array of counts on the stack (8 kB) */
};

typedef struct {
    const ht_call *call;
    int64_t rank, parts, total;
    int64_t first[MAX_PARTS + 1]; /* rows of earlier parts */
} search;

/* Appends the places of elements [begin, end) from row `number` on; places NULL: only counts them. Returns their count. */
#define SEARCH(D, s, T, U)                                                                        \
    static int64_t search_##s(const ht_tensor *x, int64_t rank, int64_t begin, int64_t end,       \
                              int64_t *places)                                                    \
    {                                                                                             \
        const T *elements = (const T *)x->data + begin;                                           \
        int64_t position[HT_MAX_DIMS] = {0}, number = 0, at = begin;                              \
        if (begin >= end)                                                                         \
            return 0;                                                                             \
        if (!places) {                                                                            \
            HT_LONG_FOR (i, end - begin)                                                          \
                number += elements[i] != 0;                                                       \
            return number;                                                                        \
        }                                                                                         \
        for (int d = x->ndim - 1; d >= 0; at /= x->dims[d], d--)                                  \
            position[d] = at % x->dims[d];                                                        \
        HT_LONG_FOR (i, end - begin) {                                                            \
            if (elements[i] != 0) {                                                               \
                for (int64_t d = 0; d < rank; d++)                                                \
                    places[number * rank + d] = position[d];                                      \
                number++;                                                                         \
            }                                                                                     \
            for (int d = x->ndim - 1; d >= 0 && ++position[d] == x->dims[d]; d--)                 \
                position[d] = 0;                                                                  \
        }                                                                                         \
        return number;                                                                            \
    }
HT_NUMERIC_TYPES(SEARCH)
SEARCH(HT_BOOL, b, uint8_t, uint32_t)

/* The number of nonzero elements of a part, or -1 for an unsupported dtype. */
static int64_t search_part(const search *job, int64_t part, int64_t *places)
{
    const ht_tensor *x = job->call->in[0];
    const int64_t units = (x->size + PIECE - 1) / PIECE, stop = ht_part_begin(units, job->parts, part + 1) * PIECE;
    const int64_t begin = ht_part_begin(units, job->parts, part) * PIECE, end = stop < x->size ? stop : x->size;
    switch (x->dtype) {
#define CASE(D, s, T, U) \
    case D: return search_##s(x, job->rank, begin, end, places);
        HT_NUMERIC_TYPES(CASE)
        CASE(HT_BOOL, b, uint8_t, uint32_t)
    default: return -1;
    }
}

static void count_part(void *context, int64_t part, int thread)
{
    search *job = (search *)context;
    (void)thread;
    job->first[part + 1] = search_part(job, part, NULL);
}

/* Fills a part of the rows behind the last place with zeros. */
static void clear_part(const search *job, int64_t part)
{
    int64_t *places = (int64_t *)job->call->out[0]->data + job->total * job->rank;
    const int64_t behind = (job->call->in[0]->size - job->total) * job->rank;
    const int64_t begin = ht_part_begin(behind, job->parts, part), n = ht_part_begin(behind, job->parts, part + 1) - begin;
    HT_LONG_FOR (i, n)
        places[begin + i] = 0;
}

static void place_part(void *context, int64_t part, int thread)
{
    search *job = (search *)context;
    (void)thread;
    (void)search_part(job, part, (int64_t *)job->call->out[0]->data + job->first[part] * job->rank);
    clear_part(job, part);
}

int HT_KERNEL(nonzero)(const ht_call *call)
{
    if (call->num_in != 1 || call->num_out != 2)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0];
    ht_tensor *places = call->out[0], *count = call->out[1];
    search job = {.call = call, .rank = x->ndim > 0 ? x->ndim : 1};
    if (places->dtype != HT_INT64 || places->size != x->size * job.rank || count->dtype != HT_INT64 || count->size != 1)
        return HT_ERR_OPERAND;
    job.parts = ht_wanted(call, 4 * (double)x->size);
    if (job.parts > MAX_PARTS)
        job.parts = MAX_PARTS;
    if (job.parts == 1) {
        job.total = search_part(&job, 0, (int64_t *)places->data);
        if (job.total < 0)
            return HT_ERR_DTYPE;
        clear_part(&job, 0);
    } else {
        ht_parallel(call->team, job.parts, count_part, &job);
        if (ht_stopping())
            return HT_OK;
        if (job.first[1] < 0)
            return HT_ERR_DTYPE;
        for (int64_t part = 0; part < job.parts; part++)
            job.first[part + 1] += job.first[part];
        job.total = job.first[job.parts];
        ht_parallel(call->team, job.parts, place_part, &job);
    }
    *(int64_t *)count->data = job.total;
    return HT_OK;
}
