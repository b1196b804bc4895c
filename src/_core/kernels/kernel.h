/* The whole interface between a compiled program and its kernels.
 *
 * A kernel is a plain C function over raw tensors. It uses no ONNX and no Python objects, allocates no memory, keeps no
 * pointer after it returns, and accesses nothing but its operands and its scratch memory. The planner checks shapes;
 * the kernel checks conditions on run-time values (indices, divisors) and reports them by its status.
 *
 * Every kernel file is compiled once per instruction set (HT_VARIANT). HT_KERNEL(name) is the function's symbol in its
 * variant; registry.c chooses one table of kernels at start.
 */
#ifndef HETERO_KERNEL_H
#define HETERO_KERNEL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../invariant.h"
#include "constants.h"
#include "team.h"

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
    HT_ERR_DTYPE = 3,      /* this element type is not supported: a bug in the planner */
    HT_ERR_OPERAND = 4,    /* operand count, rank or parameters do not fit: a bug in the planner */
    HT_ERR_CUSTOM = 5,     /* a custom operator failed: see custom.h */
    HT_ERR_NOTED_INDEX = 6, /* as HT_ERR_INDEX; ht_noted_index says which index */
    HT_ERR_CATEGORY = 7    /* ht_noted_index says which integer is not a category */
};

/* One operand: dense, row-major, aligned to its element size. */
typedef struct {
    void *data;
    int64_t size;              /* number of elements, the product of dims */
    int64_t dims[HT_MAX_DIMS];
    int32_t ndim;
    int32_t dtype;
} ht_tensor;

/* One call. Absent optional inputs are NULL. `ints`, `floats`: the parameters that each kernel documents.
 * `scratch`: uninitialized memory, aligned to HT_ALIGNMENT bytes, of the size that scratch.c computes; ht_scratch gives each thread
 * of `team` as much. A kernel may split its work over the team (ht_parallel) if that does not change the result. */
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

/* The number of parts that keeps all threads busy with `cost` operations (multiply-adds of a matrix product: 0.03 ns; other
 * kernels state their costs in these): one if threads would cost more than they save, else at most a few per thread. */
static inline int64_t ht_wanted(const ht_call *call, double cost)
{
    enum {
        LEAST = 20000,          /* operations of a part: 0.6 µs; threads that spin need 0.2 µs to take a part */
        WORTH_WAKING = 300000,  /* operations for which threads that sleep are woken: 10 µs; waking costs 15 µs, but once */
        EACH = 4                /* parts per thread, so that threads that start late or run slowly take fewer */
    };
    if (!call->team || cost < 2 * LEAST)
        return 1;
    ht_team_expect(call->team, cost >= WORTH_WAKING);
    const int64_t most = (int64_t)EACH * ht_team_threads(call->team);
    return cost < (double)LEAST * (double)most ? (int64_t)(cost / LEAST) : most;
}

/* The number of parts to split `units` of work into: ht_wanted, or more if a part would take long, because a run can only
 * stop between two parts. Part i takes units
 * [ht_part_begin(units, parts, i), ht_part_begin(units, parts, i + 1)): sizes differ by at most one, and the larger ones
 * are spread evenly, because threads take parts from both ends. */
static inline int64_t ht_parts(const ht_call *call, int64_t units, double cost)
{
    const double longest = 4e6; /* operations of a part: 0.4 to 4 ms, or 20 ms on a busy machine */
    int64_t parts = ht_wanted(call, cost);
    if (cost > longest * (double)parts)
        parts = cost < longest * HT_MAX_PARTS ? (int64_t)(cost / longest) : HT_MAX_PARTS;
    return units < parts ? (units < 1 ? 1 : units) : parts;
}

static inline int64_t ht_part_begin(int64_t units, int64_t parts, int64_t part)
{
    HT_ASSERT(units >= 0 && parts > 0 && part >= 0 && part <= parts);
    return units / parts * part + units % parts * part / parts;
}

/* Rows of n elements as units of work: whole rows, or pieces of rows if there are few. A piece has HT_ROW_PIECE elements,
 * the last one of a row fewer. Rows of `cost` operations in total. */
#define HT_ROW_PIECE 1024 /* whole vectors and whole cache lines */
typedef struct {
    int64_t n, pieces, units, parts; /* pieces: of each row */
} ht_row_units;

static inline ht_row_units ht_divide_rows(const ht_call *call, int64_t rows, int64_t n, double cost)
{
    ht_row_units u = {.n = n, .pieces = 1};
    if (rows < ht_wanted(call, cost) && n > HT_ROW_PIECE)
        u.pieces = (n + HT_ROW_PIECE - 1) / HT_ROW_PIECE;
    u.units = rows * u.pieces;
    u.parts = ht_parts(call, u.units, cost);
    return u;
}

/* A walk over the units of a part. */
typedef struct {
    const ht_row_units *all;
    int64_t row, piece, left; /* left: units to come, including this one */
} ht_row_walk;

static inline ht_row_walk ht_walk_rows(const ht_row_units *all, int64_t part)
{
    const int64_t begin = ht_part_begin(all->units, all->parts, part);
    return (ht_row_walk){all, begin / all->pieces, begin % all->pieces, ht_part_begin(all->units, all->parts, part + 1) - begin};
}

/* The unit's elements of its row: [ht_walk_begin(walk), ht_walk_end(walk)). Units that follow each other in a row are one. */
static inline int64_t ht_walk_begin(const ht_row_walk *walk) { return walk->piece * HT_ROW_PIECE; }

static inline int64_t ht_walk_end(const ht_row_walk *walk)
{
    const int64_t pieces = walk->all->pieces - walk->piece;
    return walk->left < pieces ? (walk->piece + walk->left) * HT_ROW_PIECE : walk->all->n;
}

/* Goes to the next row; 0 after the last. */
static inline int ht_walk_next(ht_row_walk *walk)
{
    walk->left -= walk->all->pieces - walk->piece;
    walk->piece = 0;
    walk->row++;
    return walk->left > 0;
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

/* Elements of a long row between two checks whether the run must stop: 13 ms at 50 ns per element, the time of the
 * slowest libm functions. A multiple of every vector's lanes, so that pieces give the same bits as the whole row. */
#define HT_PIECE (1 << 18)

/* Whether to leave a loop that has reached element i of its row. Checks only at the ends of pieces, never at 0. The loop's
 * step must divide HT_PIECE. */
static inline int ht_stops_at(int64_t i) { return (i & (HT_PIECE - 1)) == 0 && i > 0 && ht_stopping(); }

/* for (int64_t i = 0; i < n; i++), left early if the run must stop. The inner loop, over a piece, is a plain one. */
#define HT_LONG_FOR(i, n)                                                                                              \
    for (int64_t i##_from = 0, i##_to; i##_from < (n) && !ht_stops_at(i##_from); i##_from = i##_to)                    \
        for (int64_t i = (i##_to = (n) - i##_from > HT_PIECE ? i##_from + HT_PIECE : (n), i##_from); i < i##_to; i++)

/* for (; i + step <= n; i += step), starting at i = 0. If the run must stop, i becomes n, so that a loop over the rest of
 * the row does nothing. */
#define HT_LONG_STEPS(i, step, n)                                                                                      \
    for (int64_t i##_to; i + (step) <= (n) && (!ht_stops_at(i) || (i = (n), 0));)                                      \
        for (i##_to = (n) - i > HT_PIECE ? i + HT_PIECE : (n); i + (step) <= i##_to; i += (step))

/* memcpy, left early if the run must stop. */
static inline void ht_long_copy(void *to, const void *from, int64_t bytes)
{
    enum { MOST = HT_PIECE * 8 }; /* bytes between two checks: 2 MiB */
    for (int64_t i = 0; i < bytes && !ht_stops_at(i); i += MOST)
        memcpy((char *)to + i, (const char *)from + i, (size_t)(bytes - i > MOST ? MOST : bytes - i));
}

static inline void *ht_scratch(const ht_call *call, int thread)
{
    HT_ASSERT(thread >= 0 && call->scratch_bytes >= 0 && (thread == 0 || call->scratch_step >= call->scratch_bytes));
    HT_ASSERT((((uintptr_t)call->scratch | (uintptr_t)call->scratch_step) & (HT_ALIGNMENT - 1)) == 0);
    return (char *)call->scratch + thread * call->scratch_step;
}

typedef int (*ht_kernel_fn)(const ht_call *call);

#define HT_CONCAT_(a, b) a##_##b
#define HT_CONCAT(a, b) HT_CONCAT_(a, b)
#define HT_KERNEL(name) HT_CONCAT(ht_##name, HT_VARIANT)

/* A function that instruction sets for products of bytes share with the variant that they extend (HT_BASE); defined if
 * HT_DEFINES_SHARED. */
#ifdef HT_BASE
#define HT_DEFINES_SHARED 0
#else
#define HT_DEFINES_SHARED 1
#define HT_BASE HT_VARIANT
#endif
#define HT_SHARED(name) HT_CONCAT(ht_##name, HT_BASE)

/* A function that AVX-512 takes from AVX2 (HT_NARROW): narrow kernels, and those for rare types, if HT_DEFINES_NARROWED. */
#ifdef HT_NARROW
#define HT_DEFINES_NARROWED 0
#define HT_NARROWED(name) HT_CONCAT(ht_##name, HT_NARROW)
#else
#define HT_DEFINES_NARROWED 1
#define HT_NARROWED(name) HT_CONCAT(ht_##name, HT_VARIANT)
#endif

/* The variant for processors without AVX2, which are rare: what takes long to compile and is only faster is left out. */
#if defined(__x86_64__) && !defined(__AVX2__) && !defined(HETERO_RACES)
#define HT_FALLBACK 1
#else
#define HT_FALLBACK 0
#endif

#endif
