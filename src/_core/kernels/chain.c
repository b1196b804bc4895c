/* chain: runs a program of elementwise operations over results of one shape. The results are cut into tiles, and each
 * tile goes through all steps before the next tile starts, so that intermediate values stay in the L1 cache, or for
 * float32 in vector registers.
 *
 * This header defines the program; fusion/chains.py writes it (its _KernelStep and _VectorStep are the two kinds of
 * steps). `ints` is
 *   ints[0] tile        elements of a tile, at most; at least 1
 *   ints[1] registers   number of registers: temporary tensors of one tile
 *   ints[2] steps       number of steps
 *   then `registers` element types, one for each register
 *   then `steps` times STEP_INTS ints, the steps; `floats` has two parameters for each step.
 * A step names tensors by slot. Slots are numbered through operands (the call's `in`), results (`out`), registers.
 *
 * The first int of a step tells the two kinds apart. Positions among the ints of a step (the enums below name them):
 *   position         0            1              2 to 4      5       6
 *   kernel step      KERNEL >= 0  OPERAND_COUNT  OPERAND     RESULT  UNARY_CODE
 *   vector step      KERNEL = -1  VECTOR_CODE    VECTOR_ROW  0       0            (VECTOR_ROW is position 2; 3, 4 are 0)
 *
 * A kernel step calls the kernel of this number in kernels.h, one of those in kernel_of. It reads OPERAND_COUNT (1 to 3)
 * slots and writes the slot RESULT. The kernel `unary` takes its code from UNARY_CODE and its parameters from the floats.
 * A vector step applies an operation of vector_tape.h to the accumulator: a unary code with the floats as parameters, or
 * one of the codes HT_VECTOR_* in constants.h. Most of these read or write a row of the slot VECTOR_ROW. A vector step
 * reads bytes only from operands with the results' dims. Adjacent vector steps run as one tape per row. The accumulator is
 * undefined at the start of a tape.
 *
 * in: at most 16 operands; each broadcasts to the results. out: results of equal dims that are read after the chain. No
 *   result overlaps an operand or another result. A result's memory may serve as a register before it gets its last
 *   value. A step may write the slot of one of its operands if its kernel works in place; accumulator steps always may.
 * scratch: for each thread HT_CHAIN_STEP_BYTES per step (its ht_call, or its part of a tape), HT_CHAIN_SLOT_BYTES per
 *   slot (its ht_tensor), then per register the bytes of a tile; each part rounded up to whole lines of 64 bytes, and
 *   one more line per register. With a tile of floats and a line more for each operand that broadcasts, short rows run
 *   as long ones: see `expand`.
 *
 * Order of work: merge_loops writes the results' dims as few nested loops; cut chooses the loop that tiles divide;
 * set_up translates the program into calls and tapes once per thread; chain_part moves the slots' pointers to each tile
 * and runs the steps. Kernels see the tile as whole dense tensors; tapes see rows.
 *
 * The bits are those of the kernels called one by one. A step that fails ends the call with its status. Cost:
 * the time of the kernels on data in the L1 cache, plus about 20 ns for each kernel and tile.
 */
#include "elements.h"

#include "kernels.h"
#include "vector_tape.h"

enum {
    MAX_IN = HT_CHAIN_OPERANDS,
    STEP_INTS = HT_CHAIN_STEP_INTS,
    STEP_BYTES = HT_CHAIN_STEP_BYTES,
    SLOT_BYTES = HT_CHAIN_SLOT_BYTES,
    LINE = HT_CHAIN_LINE,
    SHORT_ROW = 256 /* elements of a row, below which starting a tape takes longer than copying a row */
};

typedef struct {
    ht_kernel_fn kernel;
    ht_call call;
    const ht_tensor *in[3];
    ht_tensor *out[1];
} step;

/* Positions among the ints of a step. */
enum { KERNEL = 0, OPERAND_COUNT = 1, OPERAND = 2, RESULT = 5, UNARY_CODE = 6 };
enum { VECTOR_CODE = 1, VECTOR_ROW = 2 };

/* A tape of adjacent vector steps, stored in the scratch memory of these steps. */
typedef struct {
    int64_t length;
    int row_loops; /* innermost loops that make up a row: every operand walks them as one loop */
    _Alignas(32) ht_vector_op ops[];
} vector_steps;
_Static_assert(sizeof(step) <= STEP_BYTES && sizeof(ht_tensor) <= SLOT_BYTES, "what planners reckon with");
_Static_assert(sizeof(vector_steps) + 2 * sizeof(ht_vector_op) <= STEP_BYTES, "an operation and the end of its tape");

#define DECLARE(name) int HT_KERNEL(name)(const ht_call *call);
#define DECLARE_NARROWED(name) int HT_NARROWED(name)(const ht_call *call);
#define NUMBER(name) NUMBER_##name,
HT_WIDE_KERNELS(DECLARE)
HT_NARROW_KERNELS(DECLARE_NARROWED)
enum { HT_KERNELS(NUMBER) };

static ht_kernel_fn kernel_of(int64_t number)
{
    switch (number) {
#define ENTRY(name) \
    case NUMBER_##name: return HT_KERNEL(name);
#define NARROWED(name) \
    case NUMBER_##name: return HT_NARROWED(name);
    ENTRY(unary) ENTRY(cast) ENTRY(where) ENTRY(quantize) ENTRY(dequantize)
    NARROWED(bitcast)
    NARROWED(add) NARROWED(sub) NARROWED(mul) NARROWED(div) NARROWED(mod) NARROWED(fmod) NARROWED(pow) NARROWED(min)
    NARROWED(max) NARROWED(prelu)
    NARROWED(equal) NARROWED(less) NARROWED(less_or_equal) NARROWED(greater) NARROWED(greater_or_equal)
    NARROWED(and) NARROWED(or) NARROWED(xor)
    NARROWED(bitwise_and) NARROWED(bitwise_or) NARROWED(bitwise_xor) NARROWED(shift_left) NARROWED(shift_right)
    default: return NULL;
    }
}

/* The results' dims as loops, loop 0 the innermost; adjacent loops that all operands walk as one are merged. A tile is
 * all iterations of the loops below `depth` times `chunk` iterations ("turns") of loop `depth`. */
typedef struct {
    const ht_call *call;
    int64_t tile, registers, steps;
    const int64_t *dtypes, *tape;
    int num_loops, depth;
    int64_t count[HT_MAX_DIMS + 1];
    int64_t walk[HT_MAX_DIMS + 1][MAX_IN]; /* stride of each operand in elements; 0: it is broadcast */
    int64_t below;                         /* elements of the loops below depth */
    int64_t chunk, chunks, tiles, parts;
    _Atomic int status;
} chain;

static int merge_loops(chain *job, const ht_tensor *out)
{
    const ht_call *call = job->call;
    int64_t walked[MAX_IN], walk[MAX_IN];
    int last = 0;
    job->count[0] = 1;
    for (int k = 0; k < call->num_in; k++) {
        if (call->in[k]->ndim > out->ndim)
            return HT_ERR_OPERAND;
        job->walk[0][k] = 0;
        walked[k] = 1;
    }
    for (int back = 1; back <= out->ndim; back++) {
        const int64_t count = out->dims[out->ndim - back];
        int merges = 1;
        for (int k = 0; k < call->num_in; k++) {
            const int axis = call->in[k]->ndim - back;
            const int64_t size = axis >= 0 ? call->in[k]->dims[axis] : 1;
            if (size != count && size != 1)
                return HT_ERR_OPERAND;
            walk[k] = size == 1 ? 0 : walked[k];
            walked[k] *= size;
            merges = merges && walk[k] == job->walk[last][k] * job->count[last];
        }
        if (count == 1)
            continue;
        if (job->count[last] > 1 && merges) {
            job->count[last] *= count;
            continue;
        }
        last += job->count[last] > 1;
        job->count[last] = count;
        for (int k = 0; k < call->num_in; k++)
            job->walk[last][k] = walk[k];
    }
    job->num_loops = last + 1;
    return HT_OK;
}

static void cut(chain *job, int64_t size)
{
    job->below = 1;
    for (job->depth = 0; job->depth + 1 < job->num_loops; job->depth++) {
        if (job->count[job->depth] > job->tile / job->below)
            break;
        job->below *= job->count[job->depth];
    }
    const int64_t turns = job->count[job->depth];
    job->chunk = job->tile / job->below;
    job->chunk = job->chunk < 1 ? 1 : job->chunk > turns ? turns : job->chunk;
    job->chunks = (turns + job->chunk - 1) / job->chunk;
    job->tiles = size / (job->below * turns) * job->chunks;
}

static int64_t lines(int64_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

/* Bytes of scratch memory of one thread. The line between registers avoids conflicts in one set of the cache. */
static int64_t chain_bytes(const chain *job)
{
    int64_t bytes = job->steps * STEP_BYTES + lines((job->call->num_in + job->call->num_out + job->registers) * SLOT_BYTES);
    for (int64_t r = 0; r < job->registers; r++)
        bytes += lines(job->tile * ht_element_bytes((int32_t)job->dtypes[r])) + LINE;
    return bytes;
}

static int32_t dtype_of(const chain *job, int64_t slot)
{
    const ht_call *call = job->call;
    if (slot < call->num_in)
        return call->in[slot]->dtype;
    slot -= call->num_in;
    return slot < call->num_out ? call->out[slot]->dtype : (int32_t)job->dtypes[slot - call->num_out];
}

/* One thread's tensors, by slot, and its translated steps, STEP_BYTES each. */
typedef struct {
    ht_tensor *slot;
    char *steps;
    float *dense[MAX_IN];  /* per operand: its elements in a tile, one for each of the results; NULL unless expanded */
    int filled[MAX_IN];    /* whether `dense` holds the elements of every tile */
    char *spare, *end;     /* scratch memory left for `dense` */
} machine;

/* The innermost loops that all rows of a tape's operands walk as one loop, except for operands that are expanded. */
static int common_loops(const chain *job, const machine *m, const int64_t *tape, int64_t length)
{
    int loop = 1;
    for (; loop <= job->depth; loop++)
        for (int64_t k = 0; k < length; k++) {
            const int64_t slot = tape[k * STEP_INTS + VECTOR_ROW];
            if (ht_vector_has_row(tape[k * STEP_INTS + VECTOR_CODE]) && slot < job->call->num_in && !m->dense[slot] &&
                job->walk[loop][slot] != job->walk[loop - 1][slot] * job->count[loop - 1])
                return loop;
        }
    return loop;
}

static int64_t elements_below(const chain *job, int loops)
{
    int64_t n = 1;
    for (int loop = 0; loop < loops; loop++)
        n *= loop < job->depth ? job->count[loop] : job->chunk;
    return n;
}

/* Makes operands dense that break the rows of a tape into short ones, as long as there is memory for them. */
static int lengthen_rows(const chain *job, machine *m, const int64_t *tape, int64_t length)
{
    const int64_t bytes = lines(job->tile * (int64_t)sizeof(float)) + LINE;
    const char *const spare = m->spare;
    float *before[MAX_IN];
    memcpy(before, m->dense, sizeof before);
    int loops = common_loops(job, m, tape, length);
    const int shortest = loops;
    if (loops > job->depth || elements_below(job, loops) >= SHORT_ROW || job->chunk * job->below > job->tile)
        return loops;
    for (int64_t k = 0; k < length; k++) {
        const int64_t slot = tape[k * STEP_INTS + VECTOR_ROW];
        if (!ht_vector_has_row(tape[k * STEP_INTS + VECTOR_CODE]) || slot >= job->call->num_in || m->dense[slot])
            continue;
        int breaks = 0;
        for (int loop = 1; loop <= job->depth; loop++)
            breaks |= job->walk[loop][slot] != job->walk[loop - 1][slot] * job->count[loop - 1];
        if (breaks && m->end - m->spare >= bytes) {
            m->dense[slot] = (float *)(void *)m->spare;
            m->spare += bytes;
        }
    }
    loops = common_loops(job, m, tape, length);
    if (loops == shortest) { /* some operand still breaks them: nothing is gained */
        memcpy(m->dense, before, sizeof before);
        m->spare = (char *)spare;
    }
    return loops;
}

/* Copies an operand's elements for a tile of `turns` turns to its dense form. */
static void expand(const chain *job, machine *m, int slot, int64_t turns)
{
    if (m->filled[slot])
        return;
    const float *from = (const float *)m->slot[slot].data;
    float *to = m->dense[slot];
    const int64_t n = job->count[0], step = job->walk[0][slot]; /* 0 or 1: nothing lies below loop 0 */
    int64_t index[HT_MAX_DIMS + 1] = {0}, rows = 1;
    int same = 1; /* whether all tiles have these elements */
    for (int loop = 1; loop <= job->depth; loop++)
        rows *= loop < job->depth ? job->count[loop] : turns;
    for (int64_t row = 0; row < rows; row++, to += n) {
        const float *source = from;
        for (int loop = 1; loop <= job->depth; loop++)
            source += index[loop] * job->walk[loop][slot];
        if (step == 0) {
            const vf all = vf_set1(*source);
            for (int64_t j = 0; j < n; j += VF_LANES)
                vf_store_n(to + j, ht_min64(VF_LANES, n - j), all);
        } else
            for (int64_t j = 0; j < n; j++)
                to[j] = source[j];
        for (int loop = 1; loop <= job->depth; loop++) {
            if (++index[loop] < (loop < job->depth ? job->count[loop] : turns))
                break;
            index[loop] = 0;
        }
    }
    for (int loop = job->depth; loop < job->num_loops; loop++)
        same &= job->walk[loop][slot] == 0;
    m->filled[slot] = same && turns == job->chunk;
}

/* Writes the tape of the vector steps from step i up to the next kernel step; returns their number. */
static int64_t set_up_vectors(const chain *job, machine *m, int64_t i, vector_steps *to)
{
    const ht_call *call = job->call;
    int64_t length = 0;
    while (i + length < job->steps && job->tape[(i + length) * STEP_INTS + KERNEL] < 0)
        length++;
    to->row_loops = lengthen_rows(job, m, job->tape + i * STEP_INTS, length);
    for (int64_t k = 0; k < length; k++) {
        const int64_t *tape = job->tape + (i + k) * STEP_INTS, slot = tape[VECTOR_ROW];
        const double *floats = call->floats + 2 * (i + k);
        const int repeats = ht_vector_has_row(tape[VECTOR_CODE]) && slot < call->num_in && !m->dense[slot] && job->walk[0][slot] == 0;
        (void)ht_vector_op_set(&to->ops[k], tape[VECTOR_CODE], repeats, (float)floats[0], (float)floats[1]);
    }
    (void)ht_vector_op_set(&to->ops[length], HT_VECTOR_END, 0, 0, 0);
    to->length = length;
    return length;
}

/* Runs the tape `at` of step i over the rows of a tile of `turns` turns. */
static void run_vectors(const chain *job, const machine *m, int64_t i, vector_steps *at, int64_t turns)
{
    const int num_in = job->call->num_in;
    const int64_t *tape = job->tape + i * STEP_INTS;
    int64_t n = 1, index[HT_MAX_DIMS + 1] = {0}, rows = 1;
    for (int loop = 0; loop <= job->depth; loop++)
        *(loop < at->row_loops ? &n : &rows) *= loop < job->depth ? job->count[loop] : turns;
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t k = 0; k < at->length; k++) {
            const int64_t slot = tape[k * STEP_INTS + VECTOR_ROW];
            int64_t offset = row * n;
            if (!ht_vector_has_row(tape[k * STEP_INTS + VECTOR_CODE]))
                continue;
            if (slot < num_in && m->dense[slot]) {
                at->ops[k].row = m->dense[slot] + offset;
                continue;
            }
            if (slot < num_in) {
                offset = 0;
                for (int loop = at->row_loops; loop <= job->depth; loop++)
                    offset += index[loop] * job->walk[loop][slot];
            }
            if (at->ops[k].is_bytes)
                at->ops[k].bytes = (uint8_t *)m->slot[slot].data + offset;
            else
                at->ops[k].row = (float *)m->slot[slot].data + offset;
        }
        ht_vector_run(at->ops, n);
        for (int loop = at->row_loops; loop <= job->depth; loop++) {
            if (++index[loop] < (loop < job->depth ? job->count[loop] : turns))
                break;
            index[loop] = 0;
        }
    }
}

static machine set_up(const chain *job, int thread)
{
    const ht_call *call = job->call;
    const int num_slots = call->num_in + call->num_out + (int)job->registers;
    char *memory = (char *)ht_scratch(call, thread);
    machine m = {.steps = memory};
    memory += job->steps * STEP_BYTES;
    m.slot = (ht_tensor *)memory;
    memory += lines(num_slots * SLOT_BYTES);
    for (int s = 0; s < num_slots; s++) {
        const int inner = s - call->num_in - call->num_out;
        m.slot[s].ndim = job->depth + 1;
        m.slot[s].dtype = dtype_of(job, s);
        if (inner >= 0) {
            m.slot[s].data = memory;
            memory += lines(job->tile * ht_element_bytes(m.slot[s].dtype)) + LINE;
        }
    }
    HT_ASSERT(memory - m.steps <= chain_bytes(job) && ((uintptr_t)m.steps & (LINE - 1)) == 0);
    m.spare = memory;
    m.end = m.steps + call->scratch_bytes;
    for (int64_t i = 0; i < job->steps; i++) {
        const int64_t *tape = job->tape + i * STEP_INTS;
        if (tape[KERNEL] < 0) {
            i += set_up_vectors(job, &m, i, (vector_steps *)(m.steps + i * STEP_BYTES)) - 1;
            continue;
        }
        step *at = (step *)(m.steps + i * STEP_BYTES);
        for (int k = 0; k < 3; k++)
            at->in[k] = k < tape[OPERAND_COUNT] ? &m.slot[tape[OPERAND + k]] : NULL;
        at->out[0] = &m.slot[tape[RESULT]];
        at->kernel = kernel_of(tape[KERNEL]);
        at->call = (ht_call){.in = at->in, .out = at->out, .num_in = (int32_t)tape[OPERAND_COUNT], .num_out = 1};
        if (tape[KERNEL] == NUMBER_unary) {
            at->call.ints = tape + UNARY_CODE;
            at->call.floats = call->floats + 2 * i;
            at->call.num_ints = 1;
            at->call.num_floats = 2;
        }
    }
    return m;
}

/* Sets the dims of all slots for a tile of `turns` turns. */
static void shape(const chain *job, machine *m, int64_t turns)
{
    const ht_call *call = job->call;
    for (int s = 0; s < call->num_in + call->num_out + (int)job->registers; s++) {
        ht_tensor *slot = &m->slot[s];
        slot->size = 1;
        for (int loop = 0; loop <= job->depth; loop++) {
            const int64_t count = loop < job->depth ? job->count[loop] : turns;
            const int repeats = s < call->num_in && job->walk[loop][s] == 0;
            slot->dims[job->depth - loop] = repeats ? 1 : count;
            slot->size *= repeats ? 1 : count;
        }
    }
}

static void chain_part(void *context, int64_t part, int thread)
{
    chain *job = (chain *)context;
    const ht_call *call = job->call;
    machine m = set_up(job, thread);
    int64_t shaped = -1;
    const int64_t end = ht_part_begin(job->tiles, job->parts, part + 1);
    for (int64_t tile = ht_part_begin(job->tiles, job->parts, part); tile < end; tile++) {
        const int64_t first = tile % job->chunks * job->chunk, left = job->count[job->depth] - first;
        const int64_t turns = left < job->chunk ? left : job->chunk;
        int64_t outer = tile / job->chunks, offset[MAX_IN];
        const int64_t target = (outer * job->count[job->depth] + first) * job->below;
        for (int k = 0; k < call->num_in; k++)
            offset[k] = first * job->walk[job->depth][k];
        for (int loop = job->depth + 1; loop < job->num_loops; loop++) {
            const int64_t index = outer % job->count[loop];
            outer /= job->count[loop];
            for (int k = 0; k < call->num_in; k++)
                offset[k] += index * job->walk[loop][k];
        }
        HT_ASSERT(turns > 0 && (turns * job->below <= job->tile || job->chunk == 1));
        HT_ASSERT(target >= 0 && target + turns * job->below <= call->out[0]->size);
        if (turns != shaped)
            shape(job, &m, turns);
        shaped = turns;
        for (int k = 0; k < call->num_in; k++)
            m.slot[k].data = (char *)call->in[k]->data + offset[k] * ht_element_bytes(m.slot[k].dtype);
        for (int k = 0; k < call->num_out; k++) {
            ht_tensor *slot = &m.slot[call->num_in + k];
            slot->data = (char *)call->out[k]->data + target * ht_element_bytes(slot->dtype);
        }
        for (int k = 0; k < call->num_in; k++)
            if (m.dense[k])
                expand(job, &m, k, turns);
        for (int64_t i = 0; i < job->steps; i++) {
            if (job->tape[i * STEP_INTS + KERNEL] < 0) {
                vector_steps *at = (vector_steps *)(m.steps + i * STEP_BYTES);
                run_vectors(job, &m, i, at, turns);
                i += at->length - 1;
                continue;
            }
            const step *at = (const step *)(m.steps + i * STEP_BYTES);
            const int status = at->kernel(&at->call);
            if (status != HT_OK) {
                job->status = status;
                return;
            }
        }
    }
}

int HT_KERNEL(chain)(const ht_call *call)
{
    if (call->num_in > MAX_IN || call->num_out < 1 || call->num_ints < 3)
        return HT_ERR_OPERAND;
    chain job = {.call = call, .tile = call->ints[0], .registers = call->ints[1], .steps = call->ints[2],
                 .dtypes = call->ints + 3};
    if (job.tile < 1 || job.tile > 1 << 24 || job.registers < 0 || job.registers > call->num_ints || job.steps < 1 ||
        job.steps > call->num_ints || call->num_ints != 3 + job.registers + job.steps * STEP_INTS ||
        call->num_floats != 2 * job.steps)
        return HT_ERR_OPERAND;
    job.tape = job.dtypes + job.registers;
    const ht_tensor *out = call->out[0];
    for (int k = 0; k < call->num_in; k++)
        if (!call->in[k])
            return HT_ERR_OPERAND;
    const int64_t num_slots = call->num_in + call->num_out + job.registers;
    for (int k = 1; k < call->num_out; k++)
        if (!ht_same_dims(call->out[k], out))
            return HT_ERR_OPERAND;
    for (int64_t r = 0; r < job.registers; r++)
        if (ht_element_bytes((int32_t)job.dtypes[r]) == 0)
            return HT_ERR_DTYPE;
    for (int64_t i = 0; i < job.steps; i++) {
        const int64_t *tape = job.tape + i * STEP_INTS;
        if (tape[KERNEL] < 0) {
            ht_vector_op op;
            const int64_t code = tape[VECTOR_CODE], row = tape[VECTOR_ROW];
            if (ht_vector_op_set(&op, code, 0, 0, 0) != HT_OK || code == HT_VECTOR_END || row < 0 || row >= num_slots)
                return HT_ERR_OPERAND;
            const int writes = code == HT_VECTOR_STORE || code == HT_VECTOR_QUANTIZE || code == HT_VECTOR_QUANTIZE + 1;
            if (row < call->num_in && (writes || (op.is_bytes && !ht_same_dims(call->in[row], out))))
                return HT_ERR_OPERAND;
            const int32_t dtype = !op.is_bytes ? HT_FLOAT32 : (code - HT_VECTOR_DEQUANTIZE) % 2 ? HT_INT8 : HT_UINT8;
            if (ht_vector_has_row(code) && dtype_of(&job, row) != dtype)
                return HT_ERR_DTYPE;
            const double zero = call->floats[2 * i + 1], shift = (code - HT_VECTOR_DEQUANTIZE) % 2 ? 128 : 0;
            if (code >= HT_VECTOR_DEQUANTIZE && !(zero >= -shift && zero <= UINT8_MAX - shift))
                return HT_ERR_OPERAND;
            continue;
        }
        if (!kernel_of(tape[KERNEL]) || tape[OPERAND_COUNT] < 1 || tape[OPERAND_COUNT] > 3 || tape[RESULT] < call->num_in || tape[RESULT] >= num_slots)
            return HT_ERR_OPERAND;
        for (int k = 0; k < tape[OPERAND_COUNT]; k++)
            if (tape[OPERAND + k] < 0 || tape[OPERAND + k] >= num_slots)
                return HT_ERR_OPERAND;
    }
    if (merge_loops(&job, out) != HT_OK || call->scratch_bytes < chain_bytes(&job))
        return HT_ERR_OPERAND;
    if (out->size == 0)
        return HT_OK;
    cut(&job, out->size);
    job.parts = ht_parts(call, job.tiles, 4 * (double)out->size * (double)job.steps);
    ht_parallel(call->team, job.parts, chain_part, &job);
    return job.status;
}
