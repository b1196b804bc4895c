"""Shape inference of a model from who knows where, without harm to this process.

`onnx.shape_inference` is C++ made for models that mean well. A file of a hundred bytes can have it allocate without
end (a vector whose length is computed to be 2**40 and then taken for a shape: it makes an object per element), and it
holds the interpreter's lock meanwhile. So it runs in a child process under limits of memory and time, which loads
nothing but onnx's C++ library. Started afresh, never forked: 20 ms. Models made only of operators whose results are
known to be no larger than their inputs, or of which onnx knows nothing, need no child.

What inference does not answer within the limits stays unknown.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterable

__all__ = ["infer_types", "is_harmless"]

# Memory of the child above what it takes to start, per byte of the model too: nodes become objects.
_MEMORY = 64 << 20
_MEMORY_PER_BYTE = 192

# A heap that is filled once and thrown away costs a page fault per page: a fifth of the time of inference, if the pages
# are small. From this size of model on, the child's C library is asked for huge ones, and for a heap that grows by so
# many bytes per byte of the model.
_HUGE_PAGES_FROM = 1 << 20
_TOP_PAD = 16

# CPU seconds of the child, per MiB of the model too.
_SECONDS = 2.0
_SECONDS_PER_MIB = 2.0

# What the answer may take here.
_ANSWER = 16 << 20
_ANSWER_PER_BYTE = 4

# Inferred types of harmless operators have the rank of a type that the file states: so much in all.
_HARMLESS_BYTES = 8 << 20

# Operators of ONNX's domain whose inference looks at the types of their inputs only, not at data, and whose outputs
# have the rank of an input or a rank below 10: so its cost is bounded by what the file states.
_HARMLESS_NAMES = (
    "Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization BitwiseAnd "
    "BitwiseNot BitwiseOr BitwiseXor Cast Ceil Clip Concat Constant Conv ConvInteger Cos Cosh CumSum "
    "DequantizeLinear Det Div Dropout DynamicQuantizeLinear Elu Equal Erf Exp Flatten Floor Gelu Gemm "
    "GlobalAveragePool GlobalLpPool GlobalMaxPool Greater GreaterOrEqual HardSigmoid Hardmax Identity "
    "InstanceNormalization IsInf IsNaN LRN LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax "
    "LpNormalization LpPool MatMul MatMulInteger Max MaxPool Mean Min Mod Mul Neg Not Or PRelu Pow QLinearConv "
    "QLinearMatMul QuantizeLinear Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt "
    "Sub Sum Tan Tanh ThresholdedRelu Transpose Where Xor "
)
_HARMLESS = frozenset(_HARMLESS_NAMES.split())

_CHILD = """
import importlib.machinery, importlib.util, resource, signal, sys
library, memory, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
name = "onnx_cpp2py_export"
loader = importlib.machinery.ExtensionFileLoader(name, library)
onnx = importlib.util.module_from_spec(importlib.util.spec_from_file_location(name, library, loader=loader))
loader.exec_module(onnx)
try:
    with open("/proc/self/statm") as statm:
        memory += int(statm.read().split()[0]) * resource.getpagesize()
except OSError:
    memory += 1 << 30
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
signal.setitimer(signal.ITIMER_PROF, seconds)
sys.stdout.buffer.write(onnx.shape_inference.infer_shapes(sys.stdin.buffer.read(), False, False, True))
"""


def is_harmless(op_types: Iterable[str], functions: bool, nodes: int, longest_type: int) -> bool:
    """Whether inference of a model cannot take long or much, so that no child process is needed.

    ``op_types``: distinct, with their domains if those are not ONNX's. ``functions``: whether the model has any.
    ``longest_type``: bytes of the longest TypeProto in the file.
    """
    if functions or nodes * longest_type > _HARMLESS_BYTES:
        return False
    return all(name in _HARMLESS or _is_unknown(name) for name in op_types)


def _is_unknown(op_type: str) -> bool:
    """Whether an operator is of a domain that onnx has nothing of: it infers nothing for its nodes then."""
    return "::" in op_type and not op_type.startswith("ai.onnx")


def infer_types(model: bytes, *, harmless: bool) -> bytes | None:
    """An encoded ModelProto with inferred value infos, or None if there is no answer within the limits.

    ``harmless``: in this process. Else in one of its own. Whatever onnx raises may come out in the first case.
    """
    if harmless:
        return _infer_here(model)
    import subprocess  # two milliseconds that other programs should not pay

    library = _onnx_library()
    if library is None:
        return None
    memory = _MEMORY + _MEMORY_PER_BYTE * len(model)
    seconds = _SECONDS + _SECONDS_PER_MIB * len(model) / (1 << 20)
    command = [sys.executable, "-I", "-S", "-c", _CHILD, library, str(memory), str(seconds)]
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    if len(model) > _HUGE_PAGES_FROM:
        environment["GLIBC_TUNABLES"] = f"glibc.malloc.hugetlb=1:glibc.malloc.top_pad={_TOP_PAD * len(model)}"
    try:
        answer = subprocess.run(
            command,
            input=model,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd="/",
            timeout=10 * seconds + 10,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return answer if len(answer) <= _ANSWER + _ANSWER_PER_BYTE * len(model) else None


def _infer_here(model: bytes) -> bytes:
    # Nothing harmless computes shapes, so following data would find nothing more.
    try:
        from onnx.onnx_cpp2py_export import shape_inference as compiled
    except ImportError:
        import onnx.shape_inference

        return bytes(onnx.shape_inference.infer_shapes(model, data_prop=False).SerializeToString())
    # What onnx.shape_inference calls, without its detour by a ModelProto. (check_type, strict_mode, data_prop)
    return bytes(compiled.infer_shapes(model, False, False, False))


@functools.cache
def _onnx_library() -> str | None:
    """The file of onnx's C++ library; None where no child process can be started, as in a frozen application."""
    if getattr(sys, "frozen", False) or not os.path.basename(sys.executable or "").startswith("python"):
        return None
    package = importlib.util.find_spec("onnx")
    folders = [] if package is None else list(package.submodule_search_locations or ())
    found = importlib.machinery.PathFinder.find_spec("onnx_cpp2py_export", folders)
    return None if found is None else found.origin
