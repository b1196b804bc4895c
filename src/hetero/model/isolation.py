"""Shape inference of a model from who knows where, without harm to this process.

`onnx.shape_inference` is C++ made for models that mean well. A file of a hundred bytes can have it allocate without
end (a vector whose length is computed to be 2**40 and then taken for a shape: it makes an object per element), and it
holds the interpreter's lock meanwhile. So it runs in a child process under limits of memory and time, which loads
nothing but onnx's C++ library. Started afresh, never forked: 20 ms. Models made only of operators whose results are
known to be no larger than their inputs, or of which onnx knows nothing, need no child.

What inference does not answer within the limits stays unknown: that is the model's fault, and the same each time. What
is not the model's fault, such as a machine without memory, is an error.
"""

from __future__ import annotations

import errno
import functools
import importlib.machinery
import importlib.util
import os
import signal
import sys
from collections.abc import Iterable

from ..errors import HeteroError, raise_out_of_memory

__all__ = ["InferenceFailed", "infer_types", "is_harmless"]

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

# How the child ends if there was not even the memory that the model may take; and what it writes before it begins.
_SHORT = 77
_BEGUN = b"\x01"

_NO_MEMORY_FOR_CHILD = "not enough memory for the process in which types are inferred"

# How it ends where the model is too much for onnx: over its time, or by a fault of the library.
_FAULTS = (signal.SIGPROF, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)

# What says that no process can be made now; elsewhere there may be no Python to start.
_EXHAUSTED = (errno.EAGAIN, errno.EMFILE, errno.ENFILE)

_CHILD = f"""
import sys
def used():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()
try:
    import importlib.machinery, importlib.util, mmap, resource, signal
    library, memory, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    name = "onnx_cpp2py_export"
    loader = importlib.machinery.ExtensionFileLoader(name, library)
    onnx = importlib.util.module_from_spec(importlib.util.spec_from_file_location(name, library, loader=loader))
    loader.exec_module(onnx)
    model = sys.stdin.buffer.read()
    try:
        memory += used()
    except OSError:
        memory += 1 << 30
    limit = min([memory, *(n for n in resource.getrlimit(resource.RLIMIT_AS) if n != resource.RLIM_INFINITY)])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    sys.stdout.buffer.write({_BEGUN!r})
    sys.stdout.buffer.flush()
except MemoryError:
    sys.exit({_SHORT})
try:
    sys.stdout.buffer.write(onnx.shape_inference.infer_shapes(model, False, False, True))
except MemoryError:
    try:  # whether it was the limit of the model: then what is left of that is there
        mmap.mmap(-1, max(1, memory - used() - (1 << 20)))
    except (MemoryError, OSError):
        sys.exit({_SHORT})
    raise
"""


class InferenceFailed(HeteroError):
    """The process for type inference could not be made, or was ended by somebody, for no fault of the model."""


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
    `MemoryError` if there is not as much memory as the model may take, and `InferenceFailed` if there is no process.
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
        ended = subprocess.run(
            command,
            input=model,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd="/",
            timeout=10 * seconds + 10,
            check=False,
            start_new_session=True,  # Ctrl-C is for this process, and an interrupted child would look like a bad model
        )
    except subprocess.TimeoutExpired as error:
        if _is_limited() and not (error.output or b"").startswith(_BEGUN):  # a Python without memory may hang at start
            raise MemoryError(_NO_MEMORY_FOR_CHILD) from error
        raise InferenceFailed(
            f"type inference did not end in {error.timeout:g} s: is the machine overloaded?"
        ) from error
    except OSError as error:
        raise_out_of_memory(error)
        if error.errno in _EXHAUSTED:
            raise InferenceFailed(f"the process for type inference cannot be started: {error.strerror}") from error
        return None
    has_begun, answer = ended.stdout.startswith(_BEGUN), ended.stdout[len(_BEGUN) :]
    if ended.returncode == 0:
        return answer if len(answer) <= _ANSWER + _ANSWER_PER_BYTE * len(model) else None
    if ended.returncode in (_SHORT, -signal.SIGKILL) or (_is_limited() and (not has_begun or ended.returncode < 0)):
        raise MemoryError(_NO_MEMORY_FOR_CHILD)
    if ended.returncode < 0 and -ended.returncode not in _FAULTS:
        raise InferenceFailed(f"the process for type inference was ended by signal {-ended.returncode}")
    return None


def _is_limited() -> bool:
    """Whether a limit on memory is set from outside, so that a child that cannot start may lack that."""
    import resource

    kinds = (resource.RLIMIT_AS, resource.RLIMIT_DATA)
    return any(resource.getrlimit(kind)[0] != resource.RLIM_INFINITY for kind in kinds)


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
