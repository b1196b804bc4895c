"""Shape inference for untrusted models, in a child process with limits.

`onnx.shape_inference` does not bound its memory or time. For example, a file of 100 bytes can compute a vector of 2**40
elements and use it as a shape; inference then allocates an object per element while it holds the GIL. Inference
therefore runs in a child process that loads only onnx's C++ library, under limits for memory and CPU time. The child is
a new process, not a fork; it starts in about 20 ms. Models need no child if the inferred types of all their operators
are bounded by types in the file, or if onnx does not know their operators.

If a model exceeds the limits, its types stay unknown. This is deterministic. Failures that the model did not cause,
such as a machine without free memory, raise errors.
"""

from __future__ import annotations

import errno
import functools
import importlib.machinery
import importlib.util
import os
import signal
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable

from ..errors import HeteroError, raise_out_of_memory

__all__ = ["InferenceFailed", "infer_types", "is_harmless"]

# The child's memory limit in B, in addition to the memory used at start, and its increase per byte of the model (parsed
# nodes are larger than encoded ones).
_MEMORY = 64 << 20
_MEMORY_PER_BYTE = 192

# Page faults of 4 kB pages take a fifth of the time of inference. For models larger than this, in B, the child uses
# huge pages, and its heap grows in steps of this many bytes per byte of the model.
_HUGE_PAGES_FROM = 1 << 20
_TOP_PAD = 16

# The child's limit of CPU time in s, and its increase per MiB of the model.
_SECONDS = 2.0
_SECONDS_PER_MIB = 2.0

# The maximum size of the answer in B, and its increase per byte of the model.
_ANSWER = 16 << 20
_ANSWER_PER_BYTE = 4

# The maximum size in B of all inferred types of a harmless model, whose ranks are bounded by the types in the file.
_HARMLESS_BYTES = 8 << 20

# The number of the child's answers that are kept, and the maximum size in B of each and of its model: the bodies of If,
# Loop and Scan are inferred again for each graph around them and for each device.
_MOST_KEPT = 128
_KEPT_BYTES = 64 << 10

# ONNX operators whose inference reads only the types of their inputs, not data, and whose outputs have the rank of an
# input or a rank below 10. The cost of inference is therefore bounded by the types in the file.
_HARMLESS_NAMES = (
    "Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization BitwiseAnd "
    "BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Clip Concat Constant Conv ConvInteger Cos Cosh CumSum "
    "DequantizeLinear Det Div Dropout DynamicQuantizeLinear Elu Equal Erf Exp Flatten Floor Gelu Gemm "
    "GlobalAveragePool GlobalLpPool GlobalMaxPool Greater GreaterOrEqual HardSigmoid Hardmax Identity "
    "InstanceNormalization IsInf IsNaN LRN LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax "
    "LpNormalization LpPool MatMul MatMulInteger Max MaxPool Mean Min Mod Mul Neg Not Or PRelu Pow QLinearConv "
    "QLinearMatMul QuantizeLinear Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt "
    "Sub Sum Tan Tanh ThresholdedRelu Transpose Where Xor "
)
_HARMLESS = frozenset(_HARMLESS_NAMES.split())

# Operators whose inference also reads constants. Models for inference contain no constant above 1 KiB, so a result of
# Reshape has at most 128 dimensions, each of up to 11 B. No other result has a higher rank than the first input.
_HARMLESS_IN_SKELETONS = frozenset(
    ["Pad", "ReduceMax", "ReduceMean", "ReduceSum", "Reshape", "Resize", "Slice", "Split", "Squeeze"]
)
_RESHAPED_BYTES = 128 * 11

# The child's exit code if the machine has less free memory than the limit, and what it writes before inference.
_SHORT = 77
_BEGUN = b"\x01"

_NO_MEMORY_FOR_CHILD = "not enough memory for the type inference process"

# Signals that end the child because of the model: the time limit, or a crash in onnx.
_FAULTS = tuple(getattr(signal, f"SIG{name}", 0) for name in ("PROF", "SEGV", "ABRT", "BUS", "FPE", "ILL"))

# Errors that mean that the system cannot start a process now. With other errors, Python is not available as a program.
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
    try:  # if the remaining memory can still be allocated, the model reached its own limit
        mmap.mmap(-1, max(1, memory - used() - (1 << 20)))
    except (MemoryError, OSError):
        sys.exit({_SHORT})
    raise
"""

_kept: OrderedDict[bytes, bytes | None] = OrderedDict()
_lock = threading.Lock()


class InferenceFailed(HeteroError):
    """The type inference process could not start or was killed, not because of the model."""


def is_harmless(op_types: Iterable[str], functions: bool, nodes: int, longest_type: int) -> bool:
    """Whether inference needs little time and memory for a model, so that no child process is needed.

    ``op_types``: distinct operators, with their domains unless it is ONNX's. ``functions``: whether the model has
    functions. ``longest_type``: the size of the longest TypeProto in the file, in B.
    """
    if functions or nodes * longest_type > _HARMLESS_BYTES:
        return False
    return all(_is_harmless(name) for name in op_types)


def _is_harmless(op_type: str) -> bool:
    return op_type in _HARMLESS or _is_unknown(op_type)


def _is_unknown(op_type: str) -> bool:
    """Whether onnx does not know the operator's domain and therefore infers nothing."""
    return "::" in op_type and not op_type.startswith("ai.onnx")


def infer_types(model: bytes, *, harmless: bool) -> bytes | None:
    """An encoded ModelProto with inferred value infos, or None if inference fails or exceeds the limits.

    ``harmless``: run in this process instead of a child. If the system has no such child, only the nodes are inferred
    that need none. In both cases, any exception of onnx may be raised. Raises `MemoryError` if the machine has less
    free memory than the limit, and `InferenceFailed` if the child cannot start now or is killed.
    """
    if harmless:
        return _infer_here(model)
    if len(model) > _KEPT_BYTES:
        return _infer_in_child(model)
    with _lock:
        if model in _kept:
            _kept.move_to_end(model)
            return _kept[model]
    answer = _infer_in_child(model)
    if answer is None or len(answer) <= _KEPT_BYTES:
        with _lock:
            _kept[model] = answer
            while len(_kept) > _MOST_KEPT:
                _kept.popitem(last=False)
    return answer


def _infer_in_child(model: bytes) -> bytes | None:
    """`infer_types` of a model that is not harmless."""
    # Windows cannot limit the child in this way.
    library = _onnx_library() if hasattr(signal, "setitimer") else None
    if library is None:
        return _infer_harmless_nodes(model)
    import subprocess  # here, because it takes 2 ms

    memory = _MEMORY + _MEMORY_PER_BYTE * len(model)
    seconds = _SECONDS + _SECONDS_PER_MIB * len(model) / (1 << 20)
    command = [sys.executable, "-I", "-S", "-c", _CHILD, library, str(memory), str(seconds)]
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    if len(model) > _HUGE_PAGES_FROM:
        environment["GLIBC_TUNABLES"] = f"glibc.malloc.hugetlb=1:glibc.malloc.top_pad={_TOP_PAD * len(model)}"
    try:
        child = subprocess.run(
            command,
            input=model,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd="/",
            timeout=10 * seconds + 10,
            check=False,
            start_new_session=True,  # Ctrl-C must not kill the child, which would look like a bad model
        )
    except subprocess.TimeoutExpired as error:
        if _is_limited() and not (error.output or b"").startswith(_BEGUN):  # Python may hang at start without memory
            raise MemoryError(_NO_MEMORY_FOR_CHILD) from error
        raise InferenceFailed(
            f"type inference did not finish within {error.timeout:g} s; the machine may be overloaded"
        ) from error
    except OSError as error:
        raise_out_of_memory(error)
        if error.errno in _EXHAUSTED:
            raise InferenceFailed(f"the type inference process cannot be started: {error.strerror}") from error
        return _infer_harmless_nodes(model)
    has_begun, answer = child.stdout.startswith(_BEGUN), child.stdout[len(_BEGUN) :]
    if child.returncode == 0:
        return answer if len(answer) <= _ANSWER + _ANSWER_PER_BYTE * len(model) else None
    if child.returncode in (_SHORT, -signal.SIGKILL) or (_is_limited() and (not has_begun or child.returncode < 0)):
        raise MemoryError(_NO_MEMORY_FOR_CHILD)
    if child.returncode < 0 and -child.returncode not in _FAULTS:
        raise InferenceFailed(f"the type inference process was killed by signal {-child.returncode}")
    return None


def _is_limited() -> bool:
    """Whether this process has a memory limit, which could be the reason if the child cannot start."""
    import resource

    kinds = (resource.RLIMIT_AS, resource.RLIMIT_DATA)
    return any(resource.getrlimit(kind)[0] != resource.RLIM_INFINITY for kind in kinds)


def _infer_here(model: bytes) -> bytes:
    # Data propagation would find nothing more, because harmless operators do not compute shapes.
    try:
        from onnx.onnx_cpp2py_export import shape_inference as compiled
    except ImportError:
        import onnx.shape_inference

        return bytes(onnx.shape_inference.infer_shapes(model, data_prop=False).SerializeToString())
    # Called by onnx.shape_inference, which would parse the result. The flags: check_type, strict_mode, data_prop.
    return bytes(compiled.infer_shapes(model, False, False, False))


def _infer_harmless_nodes(skeleton: bytes) -> bytes | None:
    """Inference in this process without the nodes that need a child: what follows from their types stays unknown."""
    import onnx

    model = onnx.ModelProto.FromString(skeleton)
    graph = model.graph
    longest = max((info.ByteSize() for infos in (graph.input, graph.value_info) for info in infos), default=0)
    if len(graph.node) * max(longest, _RESHAPED_BYTES) > _HARMLESS_BYTES:
        return None
    functions = {(function.domain, function.name) for function in model.functions}

    def is_harmless_node(node: onnx.NodeProto) -> bool:
        op_type = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        is_function = (node.domain, node.op_type) in functions
        return not is_function and (_is_harmless(op_type) or op_type in _HARMLESS_IN_SKELETONS)

    part = onnx.ModelProto()
    part.CopyFrom(model)
    del part.graph.node[:], part.functions[:]
    part.graph.node.extend(node for node in graph.node if is_harmless_node(node))
    found = onnx.ModelProto.FromString(_infer_here(part.SerializeToString())).graph
    del graph.value_info[:], graph.output[:]
    graph.value_info.extend(found.value_info)
    graph.output.extend(found.output)
    return bytes(model.SerializeToString())


@functools.cache
def _onnx_library() -> str | None:
    """The file of onnx's C++ library; None if no child can be started, as in a frozen application."""
    if getattr(sys, "frozen", False) or not os.path.basename(sys.executable or "").startswith("python"):
        return None
    package = importlib.util.find_spec("onnx")
    folders = [] if package is None else list(package.submodule_search_locations or ())
    library = importlib.machinery.PathFinder.find_spec("onnx_cpp2py_export", folders)
    return None if library is None else library.origin
