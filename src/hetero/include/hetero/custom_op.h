/* Custom operators in C: what the function given as hetero.CustomOp(c_function=...) gets.
 *
 * A function is called once for each run of its node, by any thread, without Python's lock, and by several threads at
 * a time. It reads its inputs, writes all elements of its outputs, whose shapes the operator's shape rule gave, and
 * returns 0, or another number for a failure, which becomes an InferenceError with the text in `message`. It keeps no
 * pointer that it was given.
 *
 *     int scale(const hetero_call *call)
 *     {
 *         const float *x = call->inputs[0].data;
 *         float *y = call->outputs[0].data;
 *         const float factor = hetero_float(call, "factor", 1.0f);
 *         for (int64_t i = 0; i < call->outputs[0].size; i++)
 *             y[i] = factor * x[i];
 *         return 0;
 *     }
 *
 * hetero.get_include() is the folder for the compiler's -I; include it as <hetero/custom_op.h>.
 */
#ifndef HETERO_CUSTOM_OP_H
#define HETERO_CUSTOM_OP_H

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Later versions add fields at the end of hetero_call, and nothing else. */
#define HETERO_CUSTOM_OP_ABI 1

/* A dense tensor, row-major, its elements in native byte order and aligned to their size. An input that the node leaves
 * out has dtype 0, and data NULL. */
typedef struct {
    void *data;          /* of an input: not to be written */
    const int64_t *dims; /* `rank` of them */
    int64_t size;        /* the number of elements */
    int32_t rank;
    int32_t dtype;       /* onnx.TensorProto.DataType: 1 float32, 7 int64, ... */
} hetero_tensor;

/* Types of attributes, numbered as in onnx.AttributeProto.AttributeType, and what `values` points to. */
enum {
    HETERO_FLOAT = 1,   /* float */
    HETERO_INT = 2,     /* int64_t */
    HETERO_STRING = 3,  /* char: `count` bytes, and a NUL behind them */
    HETERO_TENSOR = 4,  /* hetero_tensor */
    HETERO_FLOATS = 6,  /* `count` of float */
    HETERO_INTS = 7,    /* `count` of int64_t */
    HETERO_STRINGS = 8  /* `count` of const char *, each ended by a NUL */
};

typedef struct {
    const char *name;
    const void *values;
    int64_t count;
    int32_t type;
    int32_t reserved;
} hetero_attribute;

typedef struct {
    int32_t abi; /* HETERO_CUSTOM_OP_ABI of the caller */
    int32_t num_inputs;
    int32_t num_outputs;
    int32_t num_attributes; /* those that the node states */
    const hetero_tensor *inputs;
    const hetero_tensor *outputs;
    const hetero_attribute *attributes;
    void *user_data;      /* hetero.CustomOp(user_data=...) */
    char *message;        /* room for a text, ended by a NUL, that says why the function fails */
    int64_t message_size; /* bytes of it */
} hetero_call;

typedef int (*hetero_custom_op)(const hetero_call *call);

/* The attribute of a name, NULL if the node does not state it. */
static inline const hetero_attribute *hetero_find(const hetero_call *call, const char *name)
{
    for (int32_t i = 0; i < call->num_attributes; i++)
        if (strcmp(call->attributes[i].name, name) == 0)
            return &call->attributes[i];
    return 0;
}

/* The value of an attribute of type HETERO_INT; `otherwise` if there is none. */
static inline int64_t hetero_int(const hetero_call *call, const char *name, int64_t otherwise)
{
    const hetero_attribute *found = hetero_find(call, name);
    return found && found->type == HETERO_INT ? *(const int64_t *)found->values : otherwise;
}

/* The value of an attribute of type HETERO_FLOAT; `otherwise` if there is none. */
static inline float hetero_float(const hetero_call *call, const char *name, float otherwise)
{
    const hetero_attribute *found = hetero_find(call, name);
    return found && found->type == HETERO_FLOAT ? *(const float *)found->values : otherwise;
}

#ifdef __cplusplus
}
#endif

#endif
