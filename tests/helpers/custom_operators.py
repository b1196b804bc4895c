"""Custom operators that several tests share: each in Python, by a ctypes callback, and in C."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser

import hetero
from hetero.extension.c_call import FUNCTION, CCall

__all__ = [
    "DEVICES",
    "HEAD",
    "SOURCE",
    "build",
    "callback",
    "core_with",
    "model_of",
    "peak",
    "peak_shapes",
    "scale",
    "scale_shape",
]

DEVICES = ("CPU", "TEMPLATE", "HETERO:CPU,TEMPLATE", "HETERO:TEMPLATE,CPU")
HEAD = '<ir_version: 8, opset_import: ["": 17, "com.acme": 1]>\n'

SOURCE = r"""
#include <hetero/custom_op.h>
#include <stdio.h>

int scale(const hetero_call *call)
{
    const float *x = call->inputs[0].data;
    float *y = call->outputs[0].data;
    const float factor = hetero_float(call, "factor", 1.0f);
    for (int64_t i = 0; i < call->outputs[0].size; i++)
        y[i] = factor * x[i];
    return 0;
}

/* Of a matrix, the largest of each row and where it is; `bias` may be left out. */
int peak(const hetero_call *call)
{
    const hetero_tensor *x = &call->inputs[0];
    const float *bias = call->num_inputs > 1 ? call->inputs[1].data : 0;
    float *best = call->outputs[0].data;
    int64_t *at = call->outputs[1].data;
    if (x->rank != 2 || x->dtype != 1 || call->outputs[1].dtype != 7 || call->outputs[0].size != x->dims[0])
        return 9;
    for (int64_t row = 0; row < x->dims[0]; row++) {
        for (int64_t i = 0; i < x->dims[1]; i++) {
            const float value = ((const float *)x->data)[row * x->dims[1] + i] + (bias ? bias[i] : 0.0f);
            if (i == 0 || value > best[row]) {
                best[row] = value;
                at[row] = i;
            }
        }
    }
    return 0;
}

/* 0 if every attribute is what the test states, else the number of the first that is not. */
int attributes(const hetero_call *call)
{
    static const float floats[] = {0.5f, -2.0f};
    static const int64_t ints[] = {1, -9000000000};
    const hetero_attribute *a;
    if (call->abi != HETERO_CUSTOM_OP_ABI || hetero_int(call, "i", 0) != -7 || hetero_int(call, "none", 11) != 11)
        return 1;
    if (hetero_float(call, "f", 0.0f) != 0.1f)
        return 2;
    a = hetero_find(call, "s");
    if (!a || a->type != HETERO_STRING || a->count != 5 || strcmp(a->values, "caf\xc3\xa9") != 0)
        return 3;
    a = hetero_find(call, "floats");
    if (!a || a->type != HETERO_FLOATS || a->count != 2 || memcmp(a->values, floats, sizeof floats) != 0)
        return 4;
    a = hetero_find(call, "ints");
    if (!a || a->type != HETERO_INTS || a->count != 2 || memcmp(a->values, ints, sizeof ints) != 0)
        return 5;
    a = hetero_find(call, "strings");
    if (!a || a->type != HETERO_STRINGS || a->count != 2 || strcmp(((const char *const *)a->values)[1], "two") != 0)
        return 6;
    a = hetero_find(call, "t");
    if (!a || a->type != HETERO_TENSOR || a->count != 1)
        return 7;
    const hetero_tensor *t = a->values;
    if (t->rank != 2 || t->dims[0] != 1 || t->dims[1] != 3 || t->dtype != 6 || ((const int32_t *)t->data)[2] != 6)
        return 8;
    memcpy(call->outputs[0].data, call->inputs[0].data, call->inputs[0].size * sizeof(float));
    return 0;
}

int fails(const hetero_call *call)
{
    snprintf(call->message, call->message_size, "the sum of %lld numbers is odd", (long long)call->inputs[0].size);
    return 3;
}

int fails_silently(const hetero_call *call)
{
    (void)call;
    return -1;
}

/* More text than there is room for, without an end. */
int fails_at_length(const hetero_call *call)
{
    memset(call->message, 'x', call->message_size);
    return 1;
}

/* Adds what user_data points to. */
int add_user_data(const hetero_call *call)
{
    const float *x = call->inputs[0].data, *more = call->user_data;
    float *y = call->outputs[0].data;
    for (int64_t i = 0; i < call->outputs[0].size; i++)
        y[i] = x[i] + *more;
    return 0;
}
"""


def build(folder: Path) -> ctypes.CDLL | None:
    """The operators of `SOURCE` as a library; None without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    source, library = folder / "ops.c", folder / "ops.so"
    source.write_text(SOURCE)
    strict = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1", "-shared", "-fPIC"]
    subprocess.run([compiler, *strict, f"-I{hetero.get_include()}", str(source), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def scale(x: np.ndarray, *, factor: float = 1.0) -> np.ndarray:
    return np.asarray(np.float32(factor) * x)


def scale_shape(x: tuple[int, ...], *, factor: float = 1.0) -> tuple[int, ...]:
    return x


def peak(x: np.ndarray, bias: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    moved = x if bias is None else x + bias
    return moved.max(1), moved.argmax(1)


def peak_shapes(x: tuple[int, ...], bias: tuple[int, ...] | None = None) -> list[tuple[int, ...]]:
    rows, _ = x
    return [(rows,), (rows,)]


def _array(tensor: Any) -> np.ndarray:
    """A view of what a hetero_tensor describes, float32 or int64."""
    kind = ctypes.c_float if tensor.dtype == 1 else ctypes.c_int64
    flat = np.ctypeslib.as_array(ctypes.cast(tensor.data, ctypes.POINTER(kind)), (tensor.size,))
    return flat.reshape([tensor.dims[axis] for axis in range(tensor.rank)])


def callback(function: Any) -> Any:
    """A Python function over arrays as a C function."""

    @FUNCTION
    def called(pointer: Any) -> int:
        call: CCall = pointer.contents
        inputs = [_array(call.inputs[i]) if call.inputs[i].dtype else None for i in range(call.num_inputs)]
        attributes = {}
        for i in range(call.num_attributes):
            entry = call.attributes[i]
            assert entry.type == 1
            attributes[entry.name.decode()] = ctypes.cast(entry.values, ctypes.POINTER(ctypes.c_float))[0]
        results = function(*inputs, **attributes)
        for i, result in enumerate(results if isinstance(results, tuple) else (results,)):
            _array(call.outputs[i])[...] = result
        return 0

    return called


def core_with(*ops: hetero.CustomOp, device: str | None = None) -> hetero.Core:
    core = hetero.Core()
    for op in ops:
        core.add_extension(op, device)
    return core


def model_of(graph: str, head: str = HEAD) -> onnx.ModelProto:
    """A model in ONNX's text form."""
    return onnx.parser.parse_model(head + graph)
