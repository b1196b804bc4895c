#include "sizes.h"

#include "kernels/elements.h"

#include <math.h>

/* Reads element i of a tensor; 0 if its type is not an integer or bool. */
static int load(const ht_tensor *t, int64_t i, int64_t *number)
{
    switch (t->dtype) {
    case HT_INT64: *number = ((const int64_t *)t->data)[i]; return 1;
    case HT_INT32: *number = ((const int32_t *)t->data)[i]; return 1;
    case HT_INT16: *number = ((const int16_t *)t->data)[i]; return 1;
    case HT_INT8: *number = ((const int8_t *)t->data)[i]; return 1;
    case HT_UINT32: *number = ((const uint32_t *)t->data)[i]; return 1;
    case HT_UINT16: *number = ((const uint16_t *)t->data)[i]; return 1;
    case HT_UINT8: case HT_BOOL: *number = ((const uint8_t *)t->data)[i]; return 1;
    default: return 0;
    }
}

/* Writes element i of a tensor of int64 or int32; 0 if the number does not fit its type. */
static int store(ht_tensor *t, int64_t i, int64_t number)
{
    if (t->dtype == HT_INT64)
        ((int64_t *)t->data)[i] = number;
    else if (t->dtype == HT_INT32 && number == (int32_t)number)
        ((int32_t *)t->data)[i] = (int32_t)number;
    else
        return 0;
    return 1;
}

static int load_real(const ht_tensor *t, int64_t i, double *number)
{
    if (t->dtype == HT_FLOAT32)
        *number = ((const float *)t->data)[i];
    else if (t->dtype == HT_FLOAT64)
        *number = ((const double *)t->data)[i];
    else
        return 0;
    return 1;
}

/* The product of the dims, also without those of size 0, because kernels compute it; 0 if it exceeds the limit. */
static int set_size(ht_tensor *t)
{
    int64_t size = 1, others = 1;
    for (int d = 0; d < t->ndim; d++) {
        const int64_t dim = t->dims[d];
        if (dim < 0 || __builtin_mul_overflow(size, dim, &size) ||
            __builtin_mul_overflow(others, dim > 0 ? dim : 1, &others) || others > HT_MAX_BYTES)
            return 0;
    }
    t->size = size;
    return others * ht_element_bytes(t->dtype) <= HT_MAX_BYTES;
}

static int64_t bits_of(float number)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* The rest of that division. Not a - floor_div(a, b) * b: the product may lie below INT64_MIN. */
static int64_t floor_mod(int64_t a, int64_t b)
{
    int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

int64_t ht_run_sizes(const ht_size_step *steps, int64_t count, int64_t position, const ht_sizes *sizes)
{
    ht_number *const r = sizes->registers;
    int64_t arguments[HT_MAX_ARGUMENTS];
    for (; position < count; position++) {
        const ht_size_step s = steps[position];
        const int32_t a = s.a, b = s.b;
        int holds = 1;
        switch (s.step) {
        case HT_SIZE_LOAD_DIM: r[s.out].integer = sizes->tensors[a].dims[b]; break;
        case HT_SIZE_LOAD_ELEMENT: holds = load(&sizes->tensors[a], b, &r[s.out].integer); break;
        case HT_SIZE_LOAD_REAL: holds = load_real(&sizes->tensors[a], b, &r[s.out].real); break;
        case HT_SIZE_ADD: holds = !__builtin_add_overflow(r[a].integer, r[b].integer, &r[s.out].integer); break;
        case HT_SIZE_SUB: holds = !__builtin_sub_overflow(r[a].integer, r[b].integer, &r[s.out].integer); break;
        case HT_SIZE_MUL: holds = !__builtin_mul_overflow(r[a].integer, r[b].integer, &r[s.out].integer); break;
        case HT_SIZE_DIV:
            holds = r[b].integer != 0 && !(r[b].integer == -1 && r[a].integer == INT64_MIN);
            if (holds)
                r[s.out].integer = floor_div(r[a].integer, r[b].integer);
            break;
        case HT_SIZE_MOD:
            holds = r[b].integer != 0 && !(r[b].integer == -1 && r[a].integer == INT64_MIN);
            if (holds)
                r[s.out].integer = floor_mod(r[a].integer, r[b].integer);
            break;
        case HT_SIZE_REAL: r[s.out].real = (double)r[a].integer; break;
        case HT_SIZE_ADD_REAL: r[s.out].real = r[a].real + r[b].real; break;
        case HT_SIZE_SUB_REAL: r[s.out].real = r[a].real - r[b].real; break;
        case HT_SIZE_MUL_REAL: r[s.out].real = r[a].real * r[b].real; break;
        case HT_SIZE_DIV_REAL:
            holds = r[b].real != 0;
            r[s.out].real = r[a].real / r[b].real;
            break;
        case HT_SIZE_SINGLE: r[s.out].real = (float)r[a].real; break;
        case HT_SIZE_BITS: r[s.out].integer = bits_of((float)r[a].real); break;
        case HT_SIZE_FLOOR:
            holds = fabs(r[a].real) < 0x1p62; /* not for NaN */
            if (holds)
                r[s.out].integer = (int64_t)floor(r[a].real);
            break;
        case HT_SIZE_ARGUMENT:
            HT_ASSERT(a >= 0 && a < HT_MAX_ARGUMENTS);
            arguments[a] = r[b].integer;
            break;
        case HT_SIZE_ASK: r[s.out].integer = sizes->ask(a, arguments); break;
        case HT_SIZE_IS_LESS: holds = (r[a].integer < r[b].integer) == s.out; break;
        case HT_SIZE_IS_EQUAL: holds = (r[a].integer == r[b].integer) == s.out; break;
        case HT_SIZE_IS_LESS_REAL: holds = (r[a].real < r[b].real) == s.out; break;
        case HT_SIZE_IS_EQUAL_REAL: holds = (r[a].real == r[b].real) == s.out; break;
        case HT_SIZE_STORE_DIM: sizes->tensors[a].dims[b] = r[s.out].integer; break;
        case HT_SIZE_SET_SIZE: holds = set_size(&sizes->tensors[a]); break;
        case HT_SIZE_SHARE: sizes->tensors[a].data = sizes->tensors[b].data; break;
        case HT_SIZE_STORE_ELEMENT: holds = store(&sizes->tensors[a], b, r[s.out].integer); break;
        case HT_SIZE_STORE_INT: sizes->ints[a] = r[s.out].integer; break;
        case HT_SIZE_STORE_BEGIN: sizes->begins[a] = r[s.out].integer; break;
        case HT_SIZE_STORE_BYTES:
            sizes->buffer_bytes[a] = r[s.out].integer;
            holds = r[s.out].integer >= 0;
            break;
        default: return position;
        }
        if (!holds)
            return HT_SIZES_FAILED;
    }
    return HT_SIZES_DONE;
}
