/* The one interface between a compiled program and its kernels.
 *
 * A kernel is a plain C function over raw tensors. It knows no ONNX, no Python and no device; it allocates nothing,
 * keeps no pointer after it returns and touches nothing but its operands. Shapes were checked when the program was
 * planned; what depends on run-time values (indices, divisors) the kernel checks and reports by its status.
 *
 * Every kernel file is compiled once per instruction set (HT_VARIANT); HT_KERNEL(name) gives the function its
 * variant's symbol and registry.c chooses one table at start.
 */
#ifndef HETERO_KERNEL_H
#define HETERO_KERNEL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../invariant.h"
#include "constants.h"
#include "team.h"

#define HT_MAX_DIMS 8 /* dimensions of a tensor; bounds the arrays of dims, loops and strides on the stack */
#define HT_RESTRICT __restrict__

/* Element types, numbered as in onnx.TensorProto.DataType, so that no table translates between the two. */
enum {
    HT_FLOAT32 = 1, HT_UINT8 = 2, HT_INT8 = 3, HT_UINT16 = 4, HT_INT16 = 5, HT_INT32 = 6, HT_INT64 = 7,
    HT_BOOL = 9, HT_FLOAT16 = 10, HT_FLOAT64 = 11, HT_UINT32 = 12, HT_UINT64 = 13, HT_BFLOAT16 = 16
};

/* Status of a call. */
enum {
    HT_OK = 0,
    HT_ERR_INDEX = 1,      /* an index operand is outside its axis */
    HT_ERR_DIVIDE = 2,     /* integer division by zero */
    HT_ERR_DTYPE = 3,      /* no code for this element type: the planner must have refused it */
    HT_ERR_OPERAND = 4,    /* operand count, rank or parameters do not fit: a planner's bug */
    HT_ERR_CUSTOM = 5      /* a function of the user failed: see custom.h */
};

/* One operand: dense, row-major, aligned to its element size. */
typedef struct {
    void *data;
    int64_t size;              /* number of elements, the product of dims */
    int64_t dims[HT_MAX_DIMS];
    int32_t ndim;
    int32_t dtype;
} ht_tensor;

/* One call. Absent optional inputs are NULL. `ints`, `floats`: the parameters each kernel documents.
 * `scratch`: uninitialised memory, 64-byte aligned, of the size the planner asked for; ht_scratch gives as much to each
 * thread of `team`, over which a kernel may split its work (ht_parallel) where the split does not change its result. */
typedef struct {
    const ht_tensor *const *in;
    ht_tensor *const *out;
    const int64_t *ints;
    const double *floats;
    void *scratch;
    int64_t scratch_bytes;
    int32_t num_in, num_out, num_ints, num_floats;
    ht_team *team;        /* or NULL */
    int64_t scratch_step; /* bytes from one thread's scratch to the next; 0 without a team */
} ht_call;

/* How many parts keep all threads busy with work of `cost` operations (multiply-adds, elements moved): one where the
 * threads would cost more than they save, else a few for each thread. */
static inline int64_t ht_wanted(const ht_call *call, double cost)
{
    enum {
        WORTHWHILE = 100000, /* operations from which on threads are woken: some 10 to 100 µs of work */
        EACH = 4             /* parts for each thread, so that threads that start late or run slowly take fewer */
    };
    return cost < WORTHWHILE || !call->team ? 1 : (int64_t)EACH * ht_team_threads(call->team);
}

/* How many parts to split `units` of work into: as many as are wanted, or more if those would take long, so that a run
 * that must stop can do so between two parts. Part i takes units
 * [ht_part_begin(units, parts, i), ht_part_begin(units, parts, i + 1)). */
static inline int64_t ht_parts(const ht_call *call, int64_t units, double cost)
{
    const double longest = 4e6; /* operations of a part: 0.4 to 4 ms, 20 ms on a machine that has other work */
    int64_t parts = ht_wanted(call, cost);
    if (cost > longest * (double)parts)
        parts = cost < longest * HT_MAX_PARTS ? (int64_t)(cost / longest) : HT_MAX_PARTS;
    return units < parts ? (units < 1 ? 1 : units) : parts;
}

static inline int64_t ht_part_begin(int64_t units, int64_t parts, int64_t part)
{
    HT_ASSERT(units >= 0 && parts > 0 && part >= 0 && part <= parts);
    return units / parts * part + (part < units % parts ? part : units % parts);
}

/* Whether the run must stop, for serial loops: checked about every four million operations. *left starts as HT_PACE. */
#define HT_PACE (1 << 22)
static inline int ht_paced_stop(int64_t *left, int64_t work)
{
    *left -= work + 1;
    if (*left > 0)
        return 0;
    *left = HT_PACE;
    return ht_stopping();
}

/* Elements of a long row between two looks at whether the run is to end: 13 ms at 50 ns each, as the slowest functions of
 * libm take. A multiple of every vector's lanes, so that pieces give the same bits as the whole row. */
#define HT_PIECE (1 << 18)

/* Whether to leave a loop that has reached element i of its row. Looks at the ends of pieces only, and never at 0. The loop's
 * step must divide HT_PIECE. */
static inline int ht_stops_at(int64_t i) { return (i & (HT_PIECE - 1)) == 0 && i > 0 && ht_stopping(); }

/* for (int64_t i = 0; i < n; i++), left early when the run is to end. The loop over a piece is a plain one. */
#define HT_LONG_FOR(i, n)                                                                                              \
    for (int64_t i##_from = 0, i##_to; i##_from < (n) && !ht_stops_at(i##_from); i##_from = i##_to)                    \
        for (int64_t i = (i##_to = (n) - i##_from > HT_PIECE ? i##_from + HT_PIECE : (n), i##_from); i < i##_to; i++)

/* for (; i + step <= n; i += step), from i = 0 on. When the run is to end, i becomes n, so that a loop over the rest of the
 * row does nothing. */
#define HT_LONG_STEPS(i, step, n)                                                                                      \
    for (int64_t i##_to; i + (step) <= (n) && (!ht_stops_at(i) || (i = (n), 0));)                                      \
        for (i##_to = (n) - i > HT_PIECE ? i + HT_PIECE : (n); i + (step) <= i##_to; i += (step))

/* memcpy, left early when the run is to end. */
static inline void ht_long_copy(void *to, const void *from, int64_t bytes)
{
    enum { MOST = HT_PIECE * 8 }; /* bytes between two checks: 2 MiB */
    for (int64_t i = 0; i < bytes && !ht_stops_at(i); i += MOST)
        memcpy((char *)to + i, (const char *)from + i, (size_t)(bytes - i > MOST ? MOST : bytes - i));
}

static inline void *ht_scratch(const ht_call *call, int thread)
{
    HT_ASSERT(thread >= 0 && call->scratch_bytes >= 0 && (thread == 0 || call->scratch_step >= call->scratch_bytes));
    HT_ASSERT((((uintptr_t)call->scratch | (uintptr_t)call->scratch_step) & 63) == 0);
    return (char *)call->scratch + thread * call->scratch_step;
}

typedef int (*ht_kernel_fn)(const ht_call *call);

#define HT_CONCAT_(a, b) a##_##b
#define HT_CONCAT(a, b) HT_CONCAT_(a, b)
#define HT_KERNEL(name) HT_CONCAT(ht_##name, HT_VARIANT)

#endif
