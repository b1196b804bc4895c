"""Single-node models over the attributes of ONNX operators, for comparing implementations.

A case is an operator with attributes and inputs; `models` stamps it with every operator set version whose schema
accepts it, so that one list covers old and new signatures alike: an attribute or an input that a version does not
have leaves that version out.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.defs
from onnx import helper

__all__ = ["Case", "cases", "models"]


@dataclasses.dataclass(frozen=True)
class Case:
    """``inputs``: arrays; None where an optional input is left out. ``outputs``: how many are asked for."""

    op_type: str
    inputs: tuple[np.ndarray | None, ...]
    attributes: dict[str, Any]
    outputs: int = 1
    domain: str = ""

    def __str__(self) -> str:
        shapes = ",".join("-" if x is None else f"{x.dtype}{list(x.shape)}" for x in self.inputs)
        attributes = " ".join(f"{key}={value}" for key, value in self.attributes.items())
        return f"{self.op_type}({shapes}) {attributes}".replace("\n", " ")

    def feeds(self) -> dict[str, np.ndarray]:
        return {f"x{index}": array for index, array in enumerate(self.inputs) if array is not None}

    def versions(self, newest: int) -> list[int]:
        """One operator set version per schema that takes the case's attributes and number of inputs."""
        found = []
        for schema in _history(self.domain, self.op_type):
            takes = schema.min_input <= len(self.inputs) <= schema.max_input
            takes = takes and schema.min_output <= self.outputs <= schema.max_output
            if takes and not schema.deprecated and set(self.attributes) <= set(schema.attributes):
                required = {name for name, attribute in schema.attributes.items() if attribute.required}
                if required <= set(self.attributes) and (schema.since_version <= newest or self.domain):
                    found.append(schema.since_version)
        return found

    def model(self, version: int) -> onnx.ModelProto:
        names = ["" if array is None else f"x{index}" for index, array in enumerate(self.inputs)]
        outputs = [f"y{index}" for index in range(self.outputs)]
        node = helper.make_node(self.op_type, names, outputs, domain=self.domain, **self.attributes)
        graph = helper.make_graph(
            [node],
            self.op_type,
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                for name, array in self.feeds().items()
            ],
            [onnx.ValueInfoProto(name=name) for name in outputs],
        )
        opsets = [helper.make_opsetid(self.domain, version)]
        if self.domain:
            opsets.append(helper.make_opsetid("", 17))
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


_HISTORIES: dict[tuple[str, str], list[Any]] = {}


def _history(domain: str, op_type: str) -> list[Any]:
    if not _HISTORIES:
        for schema in onnx.defs.get_all_schemas_with_history():
            _HISTORIES.setdefault((schema.domain, schema.name), []).append(schema)
        for history in _HISTORIES.values():
            history.sort(key=lambda schema: schema.since_version)
    return _HISTORIES[domain, op_type]


def models(newest: int, every: bool = True) -> Iterator[tuple[Case, int]]:
    """Every case with the first and the last version that it fits, and in turn with one between: so some cases of an
    operator meet each of its versions. With ``every`` false, as many of these pairs as show all that single ones do."""
    pairs = list(_all_models(newest))
    if every:
        yield from pairs
        return
    shown = [_shown(*pair) for pair in pairs]
    seen: set[Hashable] = set()
    order = [(-len(new), index) for index, new in enumerate(shown)]
    heapq.heapify(order)
    while order:
        count, index = heapq.heappop(order)
        new = len(shown[index] - seen)
        if new == -count:
            seen |= shown[index]
            yield pairs[index]
        elif new:
            heapq.heappush(order, (-new, index))


def _shown(case: Case, version: int) -> set[Hashable]:
    """What a case shows of its operator: version, attributes, number of operands, their element types and ranks."""
    operands = [(None, None) if array is None else (str(array.dtype), array.ndim) for array in case.inputs]
    found: set[Hashable] = {("version", version), ("operands", len(operands), case.outputs)}
    for position, (dtype, rank) in enumerate(operands):
        found |= {("type", position, dtype), ("rank", position, rank)}
    found |= {("attribute", name, repr(value)) for name, value in case.attributes.items()}
    return {(case.domain, case.op_type, *shown) for shown in found}


def _all_models(newest: int) -> Iterator[tuple[Case, int]]:
    turns: Counter[tuple[str, int]] = Counter()
    for case in cases():
        versions = case.versions(newest)
        between = versions[1:-1]
        if between:
            turn = turns[case.op_type, len(between)]
            turns[case.op_type, len(between)] += 1
            versions = [versions[0], between[turn % len(between)], versions[-1]]
        for version in versions:
            yield case, version


_rng = np.random.default_rng()


def _f(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return _rng.standard_normal(shape).astype(dtype)


def _i(*shape: int, low: int = -9, high: int = 9, dtype: Any = np.int64) -> np.ndarray:
    return _rng.integers(low, high, shape).astype(dtype)


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _given(**attributes: Any) -> dict[str, Any]:
    """The attributes that are not None."""
    return {name: value for name, value in attributes.items() if value is not None}


def _grid(**choices: Sequence[Any]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*choices.values()):
        yield _given(**dict(zip(choices, values, strict=True)))


def cases() -> Iterator[Case]:
    """All cases; the same ones every time."""
    _rng.bit_generator.state = np.random.default_rng(7).bit_generator.state
    for family in (
        _elementwise,
        _old_broadcast,
        _pools,
        _convolutions,
        _normalizations,
        _reductions,
        _shapes,
        _indexing,
        _resizes,
        _recurrent,
        _matrices,
        _quantization,
        _others,
        _machine_learning,
    ):
        yield from family()


def _elementwise() -> Iterator[Case]:
    x = _f(2, 3, 4)
    unary = (
        "Abs",
        "Acos",
        "Asin",
        "Atan",
        "Acosh",
        "Asinh",
        "Atanh",
        "Ceil",
        "Cos",
        "Cosh",
        "Erf",
        "Exp",
        "Floor",
        "Log",
        "Neg",
        "Reciprocal",
        "Relu",
        "Round",
        "Sigmoid",
        "Sign",
        "Sin",
        "Sinh",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Tan",
        "Tanh",
        "HardSwish",
        "Mish",
        "Identity",
        "IsNaN",
        "IsInf",
        "Gelu",
    )
    for op in unary:
        yield Case(op, (x,), {})
        yield Case(op, (_f(3, dtype=np.float64),), {})
        yield Case(op, (_f(3, dtype=np.float16),), {})
        yield Case(op, (np.array(0.5, np.float32),), {})
        yield Case(op, (np.zeros((0, 2), np.float32),), {})
    for op in ("Abs", "Neg", "Sign", "Relu"):
        for dtype in (np.int8, np.int32, np.int64):
            yield Case(op, (_i(5, dtype=dtype),), {})
    for dtype in (np.uint8, np.bool_, np.int32):
        yield Case("Not", (_i(4, low=0, high=2).astype(np.bool_),), {})
        yield Case("Identity", (_i(4, low=0).astype(dtype),), {})
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 3.4e38, 2.5, -2.5, 0.5, 1.5], np.float32)
    for op in (*unary, "Elu", "Selu", "LeakyRelu", "Celu", "HardSigmoid", "ThresholdedRelu", "Shrink"):
        yield Case(op, (special,), {})
    for detect_negative, detect_positive in itertools.product((0, 1), (0, 1)):
        yield Case("IsInf", (special,), {"detect_negative": detect_negative, "detect_positive": detect_positive})
    for alpha in (None, 0.5):
        for op in ("Elu", "LeakyRelu", "Celu", "ThresholdedRelu", "Selu", "HardSigmoid"):
            yield Case(op, (x,), _given(alpha=alpha))
    yield Case("Selu", (x,), {"alpha": 2.0, "gamma": 3.0})
    yield Case("HardSigmoid", (x,), {"alpha": 0.3, "beta": 0.6})
    yield Case("Shrink", (x,), {"lambd": 0.6, "bias": 0.2})
    yield Case("Gelu", (x,), {"approximate": "tanh"})
    numeric = (np.float32, np.float64, np.int32, np.int64, np.uint8, np.int8, np.float16, np.uint32)
    for op in (
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Pow",
        "Max",
        "Min",
        "Mod",
        "Equal",
        "Greater",
        "Less",
        "GreaterOrEqual",
        "LessOrEqual",
        "PRelu",
        "BitShift",
        "BitwiseAnd",
        "Sum",
        "Mean",
    ):
        for dtype in numeric:
            kind = np.dtype(dtype).kind
            a = _f(2, 3, 4, dtype=dtype) if kind == "f" else _i(2, 3, 4, low=0 if kind == "u" else -9, dtype=dtype)
            b = _f(3, 1, dtype=dtype) if kind == "f" else _i(3, 1, low=1, high=5, dtype=dtype)
            attributes: dict[str, Any] = {"direction": "LEFT"} if op == "BitShift" else {}
            if op == "Mod" and kind == "f":
                attributes = {"fmod": 1}
            if op == "Pow" and kind == "f":
                a = np.abs(a)
            yield Case(op, (a, b), attributes)
            if op in ("Div", "Mod") and kind == "i":
                yield Case(op, (a, -b), attributes)
            if op in ("Max", "Min", "Sum", "Mean"):
                yield Case(op, (a, a + a, b), attributes)
                yield Case(op, (a,), attributes)
        yield Case(op, (_f(0, 3), _f(1, 3)), {"fmod": 1} if op == "Mod" else {})
    for fmod in (0, 1):
        yield Case("Mod", (_ints(-7, 7, -7, 7), _ints(3, -3, -3, 3)), {"fmod": fmod})
    yield Case("Pow", (_f(3) ** 2, _i(3, low=0, high=3)), {})
    yield Case("Pow", (_i(3, low=1), np.abs(_f(3))), {})
    for op in ("And", "Or", "Xor", "Equal"):
        yield Case(op, (_i(2, 3, low=0, high=2).astype(np.bool_), _i(3, low=0, high=2).astype(np.bool_)), {})
    yield Case("Max", (np.array([np.nan, 1], np.float32), np.array([0, np.nan], np.float32)), {})
    yield Case("Where", (_f(2, 1, 3) > 0, x[:, :, :3], _f(1, 3)), {})
    for low, high in ((None, None), (-0.5, None), (None, 0.5), (-0.5, 0.5), (0.5, -0.5)):
        yield Case("Clip", (x,), _given(min=low, max=high))
        arrays = tuple(None if bound is None else np.array(bound, np.float32) for bound in (low, high))
        yield Case("Clip", (x, *arrays), {})
    yield Case("Clip", (_i(5, dtype=np.int32), np.array(-2, np.int32), np.array(3, np.int32)), {})
    kinds = (np.float32, np.float64, np.float16, np.int8, np.int32, np.int64, np.uint8, np.bool_)
    for source, target in itertools.product(kinds, kinds):
        data = np.array([0, 1, 2.7, 100.2, 0.0, 3.5], np.float64).astype(source)
        yield Case("Cast", (data,), {"to": helper.np_dtype_to_tensor_dtype(np.dtype(target))})
        yield Case(
            "Cast",
            (data,),
            {
                "to": helper.tensor_dtype_to_string(helper.np_dtype_to_tensor_dtype(np.dtype(target))).removeprefix(
                    "TensorProto."
                )
            },
        )
    for text in (["1.5", "-3", "inf", "NaN"],):
        yield Case("Cast", (np.array(text, object),), {"to": 1})
    yield Case("Cast", (_i(4),), {"to": 8})
    yield Case("Cast", (np.array([-1.5, -0.4, 300.0, -3.0], np.float32),), {"to": 6})


def _old_broadcast() -> Iterator[Case]:
    a = _f(2, 3, 4, 5)
    for op in ("Add", "Sub", "Mul", "Div", "Pow", "Equal", "Less", "Greater", "PRelu", "And", "Or", "Xor"):
        base: np.ndarray = np.abs(a)
        if op == "Equal":
            base = _i(2, 3, 4, 5, low=0, high=3)
        if op in ("And", "Or", "Xor"):
            base = a > 0
        yield Case(op, (base, base[0, 0, 0, 0].reshape(())), {"broadcast": 1})
        yield Case(op, (base, base[0, 0, 0]), {"broadcast": 1})
        yield Case(op, (base, base[0, 0]), {"broadcast": 1})
        yield Case(op, (base, base[0, :, :, 0]), {"broadcast": 1, "axis": 1})
        yield Case(op, (base, base[:, 0, 0, 0]), {"broadcast": 1, "axis": 0})
        yield Case(op, (base, base[0, :, :1, :1]), {"broadcast": 1, "axis": 1})
        yield Case(op, (base, base[::-1].copy()), {})
    yield Case("PRelu", (a, _f(1)), {})
    yield Case("PRelu", (a, _f(3, 1, 1)), {})
    for broadcast in (0, 1):
        yield Case("Gemm", (_f(2, 3), _f(3, 4), _f(2, 4) if not broadcast else _f(4)), {"broadcast": broadcast})
    yield Case("Gemm", (_f(3, 2), _f(4, 3), _f(2, 4)), {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0})


def _pools() -> Iterator[Case]:
    options = list(
        _grid(
            kernel_shape=([3, 3], [2, 3]),
            strides=(None, [2, 2], [2, 1]),
            pads=(None, [1, 1, 1, 1], [0, 0, 1, 1], [1, 0, 0, 1]),
            ceil_mode=(None, 1),
            dilations=(None, [2, 1]),
        )
    )
    x = _f(1, 2, 7, 8)
    for op, extra in (
        ("MaxPool", ({}, {"outputs": 2}, {"outputs": 2, "storage_order": 1})),
        ("AveragePool", ({}, {"count_include_pad": 1})),
        ("LpPool", ({}, {"p": 3})),
    ):
        for attributes, more in itertools.product(options, extra):
            outputs = more.get("outputs", 1)
            more = {key: value for key, value in more.items() if key != "outputs"}
            yield Case(op, (x,), {**attributes, **more}, outputs)
        for auto_pad, strides, dilations in itertools.product(
            ("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"), (None, [2, 2], [3, 2]), (None, [2, 2])
        ):
            given = _given(kernel_shape=[3, 2], auto_pad=auto_pad, strides=strides, dilations=dilations)
            yield Case(op, (x,), given)
            if op == "AveragePool":
                yield Case(op, (x,), {**given, "count_include_pad": 1})
        for rank, ceil_mode in itertools.product((1, 3), (None, 1)):
            data = _f(2, 2, *(5, 6, 4)[:rank])
            attributes = _given(kernel_shape=[3] * rank, pads=[1] * 2 * rank, strides=[2] * rank, ceil_mode=ceil_mode)
            yield Case(op, (data,), attributes, 2 if op == "MaxPool" else 1)
        yield Case(op, (_f(1, 1, 4, 4, dtype=np.float64),), {"kernel_shape": [2, 2]})
        yield Case(op, (np.zeros((0, 2, 4, 4), np.float32),), {"kernel_shape": [2, 2]})
    for dtype in (np.int8, np.uint8):
        yield Case("MaxPool", (_i(1, 1, 5, 5, low=0, dtype=dtype),), {"kernel_shape": [2, 2], "pads": [1, 1, 0, 0]})
    negative = -np.abs(x)
    yield Case("MaxPool", (negative,), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]})
    for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        yield Case(op, (_f(2, 3, 4, 5),), {})
        yield Case(op, (_f(2, 3, 4),), {})
    yield Case("GlobalLpPool", (_f(2, 3, 4, 5),), {"p": 3})
    yield Case("GlobalLpPool", (_f(2, 3, 4, 5),), {"p": 3.0})
    yield Case("LpPool", (x,), {"kernel_shape": [3, 3], "p": 3.0})
    rois = np.array([[0, 0, 0, 4, 5], [0, 2, 1, 6, 6], [0, 3, 3, 3, 3]], np.float32)
    for scale in (1.0, 0.5):
        yield Case("MaxRoiPool", (x, rois), {"pooled_shape": [2, 3], "spatial_scale": scale})
    pooled = np.array([[[[5, 6], [7, 8]]]], np.float32)
    places = np.array([[[[0, 3], [9, 15]]]], np.int64)
    yield Case("MaxUnpool", (pooled, places), {"kernel_shape": [2, 2], "strides": [2, 2]})
    yield Case("MaxUnpool", (pooled, places), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 0, 1, 1]})


def _convolutions() -> Iterator[Case]:
    x = _f(2, 4, 7, 6)
    for attributes in _grid(
        group=(None, 2, 4),
        strides=(None, [2, 1]),
        pads=(None, [1, 0, 2, 1]),
        dilations=(None, [2, 1]),
    ):
        group = attributes.get("group", 1)
        yield Case("Conv", (x, _f(4, 4 // group, 3, 2), _f(4)), attributes)
        yield Case("ConvTranspose", (x, _f(4, 2, 3, 2), _f(2 * group)), attributes)
        yield Case(
            "ConvInteger",
            (
                _i(2, 4, 7, 6, low=0, dtype=np.uint8),
                _i(4, 4 // group, 3, 2, low=0, dtype=np.uint8),
                np.array(3, np.uint8),
            ),
            attributes,
        )
    for auto_pad, strides, dilations in itertools.product(
        ("SAME_UPPER", "SAME_LOWER", "VALID"), (None, [2, 2], [3, 2]), (None, [2, 1])
    ):
        given = _given(auto_pad=auto_pad, strides=strides, dilations=dilations)
        yield Case("Conv", (x, _f(3, 4, 3, 2)), given)
        yield Case("ConvTranspose", (x, _f(4, 3, 3, 2)), given)
    for rank in (1, 3):
        shape = (5, 6, 4)[:rank]
        yield Case("Conv", (_f(1, 2, *shape), _f(3, 2, *(3, 2, 2)[:rank])), {"pads": [1] * 2 * rank})
        yield Case("ConvTranspose", (_f(1, 2, *shape), _f(2, 3, *(3, 2, 2)[:rank])), {"strides": [2] * rank})
    yield Case("Conv", (x, _f(4, 4, 1, 1)), {"kernel_shape": [1, 1]})
    yield Case("Conv", (np.zeros((0, 4, 7, 6), np.float32), _f(4, 4, 3, 3)), {})
    for more in (
        {"output_padding": [1, 0], "strides": [2, 2]},
        {"output_shape": [15, 13], "strides": [2, 2]},
        {"output_shape": [15, 13], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"output_shape": [14, 12], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
        {"kernel_shape": [3, 3]},
    ):
        yield Case("ConvTranspose", (x, _f(4, 2, 3, 3)), more)
    offset = _f(1, 2 * 2 * 2, 3, 3)
    yield Case("DeformConv", (_f(1, 2, 4, 4), _f(3, 2, 2, 2), offset, _f(3), _f(1, 4, 3, 3)), {})
    yield Case("Col2Im", (_f(1, 8, 9), _ints(4, 4), _ints(2, 2)), {})
    yield Case("Col2Im", (_f(1, 8, 12), _ints(5, 4), _ints(2, 2)), {"strides": [2, 1], "pads": [0, 0, 1, 1]})


def _normalizations() -> Iterator[Case]:
    x = _f(2, 3, 4, 5)
    statistics = (_f(3), _f(3), _f(3), np.abs(_f(3)) + 0.1)
    for data in (x, x[:, :, 0, 0], x[:, :, 0], _f(2, 3, 2, 2, 2)):
        for epsilon in (None, 0.1):
            yield Case("BatchNormalization", (data, *statistics), _given(epsilon=epsilon))
        yield Case("BatchNormalization", (data, *statistics), {"is_test": 1})
        yield Case("BatchNormalization", (data, *statistics), {"momentum": 0.5})
        if data.ndim > 2:
            yield Case("InstanceNormalization", (data, _f(3), _f(3)), {})
            yield Case("InstanceNormalization", (data, _f(3), _f(3)), {"epsilon": 0.1})
    each = tuple(_f(3, 4, 5) for _ in range(3))
    yield Case("BatchNormalization", (x, *each, np.abs(_f(3, 4, 5)) + 0.1), {"spatial": 0})
    yield Case("BatchNormalization", (x, *statistics), {"training_mode": 1, "momentum": 0.7}, outputs=3)
    for axis in (None, 0, 1, 2, 3, -1, -2):
        for op in ("Softmax", "LogSoftmax", "Hardmax"):
            yield Case(op, (x,), _given(axis=axis))
        yield Case("LpNormalization", (x,), _given(axis=axis))
        yield Case("LpNormalization", (x,), _given(axis=axis, p=1))
        for outputs in (1, 3):
            first = 4 + axis if axis is not None and axis < 0 else (3 if axis is None else axis)
            scale, bias = _f(*x.shape[first:]), _f(*x.shape[first:])
            yield Case("LayerNormalization", (x, scale, bias), _given(axis=axis), outputs)
        yield Case("LayerNormalization", (x, scale), _given(axis=axis, epsilon=0.1))
        yield Case("RMSNormalization", (x, scale), _given(axis=axis))
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        yield Case(op, (x[0, 0],), {})
        yield Case(op, (x[0, 0, 0],), {"axis": 0})
        yield Case(op, (np.zeros((0, 3), np.float32),), {})
        yield Case(op, (np.round(x),), {})
        yield Case(op, (x.astype(np.float64),), {"axis": 2})
    for size, bias in itertools.product((1, 2, 3, 5), (None, 2.0)):
        yield Case("LRN", (_f(2, 7, 3, 3),), _given(size=size, bias=bias, alpha=0.01, beta=0.6))
    yield Case("LRN", (_f(2, 7, 3),), {"size": 3})
    yield Case("LRN", (_f(2, 7, 2, 2, 2),), {"size": 3})
    yield Case("MeanVarianceNormalization", (x,), {})
    yield Case("MeanVarianceNormalization", (x,), {"axes": [1, 2]})
    yield Case("GroupNormalization", (_f(2, 4, 3, 3), _f(4), _f(4)), {"num_groups": 2})
    yield Case("GroupNormalization", (_f(2, 4, 3, 3), _f(2), _f(2)), {"num_groups": 2})
    for outputs in (1, 2):
        yield Case("Dropout", (x,), {}, outputs)
        yield Case("Dropout", (x,), {"ratio": 0.4}, outputs)
        yield Case("Dropout", (x,), {"is_test": 1}, outputs)
        yield Case("Dropout", (x, np.array(0.4, np.float32)), {}, outputs)
        yield Case("Dropout", (x, np.array(0.0, np.float32), np.array(True)), {}, outputs)


def _reductions() -> Iterator[Case]:
    x = _f(2, 3, 4)
    ops = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
    for suffix, axes, keepdims in itertools.product(ops, (None, [0], [1, 2], [-1], []), (None, 0)):
        data = np.abs(x) + 0.1 if suffix == "LogSum" else x
        yield Case(f"Reduce{suffix}", (data,), _given(axes=axes or None, keepdims=keepdims))
        if axes is not None:
            yield Case(f"Reduce{suffix}", (data, _ints(*axes)), _given(keepdims=keepdims))
            yield Case(f"Reduce{suffix}", (data, _ints(*axes)), _given(keepdims=keepdims, noop_with_empty_axes=1))
    for suffix in ops:
        yield Case(f"Reduce{suffix}", (x,), {"noop_with_empty_axes": 1})
        yield Case(f"Reduce{suffix}", (np.array(2.0, np.float32),), {})
        for dtype in (np.int32, np.int64, np.float64, np.uint8):
            yield Case(f"Reduce{suffix}", (_i(3, 4, low=1, high=4, dtype=dtype),), {"keepdims": 0})
            yield Case(f"Reduce{suffix}", (_i(3, 4, low=1, high=4, dtype=dtype), _ints(0)), {"keepdims": 0})
        if suffix not in ("Max", "Min", "Mean"):
            yield Case(f"Reduce{suffix}", (np.zeros((2, 0), np.float32), _ints(1)), {})
    yield Case("ReduceMax", (_f(2, 3) > 0, _ints(1)), {})
    tied = _i(3, 4, low=0, high=3).astype(np.float32)
    for op, axis, keepdims, last in itertools.product(("ArgMax", "ArgMin"), (None, 1, -1), (None, 0), (None, 1)):
        yield Case(op, (tied,), _given(axis=axis, keepdims=keepdims, select_last_index=last))
    for exclusive, reverse, axis in itertools.product((None, 1), (None, 1), (0, 1, -1)):
        yield Case("CumSum", (x, np.array(axis, np.int64)), _given(exclusive=exclusive, reverse=reverse))
    values = _i(3, 6, low=0, high=4).astype(np.float32)
    distinct = _rng.permutation(18).reshape(3, 6).astype(np.float32)
    for axis in (None, 0, -1):
        yield Case("TopK", (values,), _given(axis=axis, k=3), 2)
        for largest, sorted_ in itertools.product((None, 0), (None, 0)):
            data = values if sorted_ is None else distinct
            given = _given(axis=axis, largest=largest, sorted=sorted_)
            if sorted_ is None:
                yield Case("TopK", (data, _ints(3)), given, 2)
    yield Case("TopK", (_i(5, dtype=np.int32), _ints(2)), {}, 2)


def _shapes() -> Iterator[Case]:
    x = _f(2, 3, 4)
    for shape in ([4, 6], [-1], [0, -1], [2, 0, 2, 2], [24], [1, -1, 1]):
        yield Case("Reshape", (x, _ints(*shape)), {})
        yield Case("Reshape", (x,), {"shape": shape})
    yield Case("Reshape", (np.zeros((0, 3), np.float32), _ints(3, 0)), {"allowzero": 1})
    for axis in (None, 0, 1, 3, -1, -2):
        yield Case("Flatten", (x,), _given(axis=axis))
    for perm in (None, [2, 0, 1], [0, 2, 1]):
        yield Case("Transpose", (x,), _given(perm=perm))
    wide = _f(1, 3, 1, 2)
    for axes in (None, [0], [0, 2], [2, 0], [-2]):
        yield Case("Squeeze", (wide,), _given(axes=axes))
        if axes:
            yield Case("Squeeze", (wide, _ints(*axes)), {})
            yield Case("Unsqueeze", (x,), {"axes": axes})
            yield Case("Unsqueeze", (x, _ints(*axes)), {})
    yield Case("Unsqueeze", (x, _ints(3, 0)), {})
    yield Case("Unsqueeze", (x,), {"axes": [4, 0]})
    for axis in (None, 0, 1, -1):
        yield Case("Concat", (x, x + 1), _given(axis=axis))
    yield Case("Concat", (x,), {"axis": 1})
    long = _f(7, 4)
    for axis in (None, 0, 1, -2):
        for split in ([2, 2], [1, 3], [3, 4], [2, 5]):
            yield Case("Split", (long,), _given(axis=axis, split=split), 2)
            yield Case("Split", (long, _ints(*split)), _given(axis=axis), 2)
        yield Case("Split", (long[:6],), _given(axis=axis), 2)
        yield Case("Split", (long[:6],), _given(axis=axis, num_outputs=2), 2)
    yield Case("Split", (long,), {"num_outputs": 3}, 3)
    for starts, ends, axes in (
        ([0, 1], [2, 3], None),
        ([1], [-1], [1]),
        ([-2], [2147483647], [2]),
        ([0, 0, 3], [20, -1, 4], [0, 1, 2]),
        ([-100], [100], [1]),
        ([2], [1], [1]),
    ):
        yield Case("Slice", (x,), _given(starts=starts, ends=ends, axes=axes))
        yield Case("Slice", (x, _ints(*starts), _ints(*ends), *(() if axes is None else (_ints(*axes),))), {})
    for start, end, step in (
        (3, -100, -1),
        (-1, 0, -2),
        (0, 4, 3),
        (3, 0, -1),
        (10, -10, -3),
        (-9, -9, -1),
        (-9, 0, -2),
    ):
        yield Case("Slice", (x, _ints(start), _ints(end), _ints(2), _ints(step)), {})
        yield Case("Slice", (x, _ints(start), _ints(end), _ints(-1), _ints(step)), {})
        yield Case("Slice", (x, _ints(start), _ints(end), None, _ints(step)), {})
    for mode, pads in itertools.product(
        (None, "constant", "reflect", "edge", "wrap"), ([0, 1, 0, 0, 0, 2], [1, 0, 1, 1, 2, 0], [0, -1, 0, 0, 0, -1])
    ):
        yield Case("Pad", (x,), _given(mode=mode, pads=pads))
        yield Case("Pad", (x,), _given(mode=mode, pads=pads, value=2.5))
        yield Case("Pad", (x,), _given(mode=mode, paddings=pads, value=2.5))
        yield Case("Pad", (x, _ints(*pads)), _given(mode=mode))
        yield Case("Pad", (x, _ints(*pads), np.array(2.5, np.float32)), _given(mode=mode))
    yield Case("Pad", (x, _ints(1, 2), None, _ints(-1)), {})
    yield Case("Pad", (_i(2, 3), _ints(1, 0, 0, 1), np.array(7, np.int64)), {})
    for repeats in ([1, 2, 3], [2, 1, 1], [1, 1, 0]):
        yield Case("Tile", (x, _ints(*repeats)), {})
    yield Case("Tile", (x, np.array(2, np.float32), np.array(1, np.float32)), {})
    yield Case("Tile", (x, _ints(2), _ints(1)), {})
    yield Case("Expand", (_f(3, 1), _ints(2, 3, 4)), {})
    yield Case("Expand", (_f(3, 4), _ints(1)), {})
    yield Case("Shape", (x,), {})
    for start, end in ((1, None), (-1, None), (0, -1), (1, 2), (-10, 10)):
        yield Case("Shape", (x,), _given(start=start, end=end))
    yield Case("Size", (x,), {})
    yield Case("ConstantOfShape", (_ints(2, 3),), {})
    yield Case("ConstantOfShape", (_ints(2, 0),), {"value": onnx.numpy_helper.from_array(np.array([3], np.int32))})
    for k, dtype in itertools.product((None, 1, -1), (None, 6)):
        yield Case("EyeLike", (_f(3, 4),), _given(k=k, dtype=dtype))
    for start, limit, delta in ((0, 5, 2), (5, 0, -2), (0, 0, 1), (1, 2, 3)):
        for dtype in (np.float32, np.int32, np.int64):
            yield Case("Range", tuple(np.array(value, dtype) for value in (start, limit, delta)), {})
    for upper, k in itertools.product((None, 0), (None, 1, -1)):
        yield Case("Trilu", (_f(2, 4, 4), *(() if k is None else (np.array(k, np.int64),))), _given(upper=upper))
    yield Case("CenterCropPad", (x, _ints(3, 5)), {"axes": [0, 2]})
    for mode in (None, "DCR", "CRD"):
        yield Case("DepthToSpace", (_f(1, 8, 2, 3),), _given(blocksize=2, mode=mode))
    yield Case("SpaceToDepth", (_f(1, 2, 4, 6),), {"blocksize": 2})


def _indexing() -> Iterator[Case]:
    x = _f(3, 4, 2)
    for axis in (None, 0, 1, -1):
        size = x.shape[axis or 0]
        index = _i(2, 2, low=-size, high=size)
        yield Case("Gather", (x, index), _given(axis=axis))
        yield Case("Gather", (x, np.array(1, np.int32)), _given(axis=axis))
        shape = list(x.shape)
        places = _i(*shape, low=-size, high=size)
        yield Case("GatherElements", (x, places), _given(axis=axis))
        order = np.argsort(_f(*shape), axis=axis or 0).astype(np.int64)
        yield Case("ScatterElements", (x, order, _f(*shape)), _given(axis=axis))
        yield Case("Scatter", (x, order, _f(*shape)), _given(axis=axis))
        for reduction in ("add", "mul", "max", "min", "none"):
            where = order if reduction == "none" else places
            yield Case("ScatterElements", (x, where, _f(*shape)), _given(axis=axis, reduction=reduction))
        yield Case("Compress", (x, np.array([True, False, True][:size])), _given(axis=axis))
    yield Case("Compress", (x, np.array([False, True, False, True, True])), {})
    yield Case("GatherND", (x, np.array([[0, 1], [-1, 2]])), {})
    yield Case("GatherND", (x, np.array([[1], [0], [-1]])), {"batch_dims": 1})
    for reduction in (None, "add", "mul", "max", "min"):
        where = np.array([[0, 1], [2, 2], [1, 3]])
        yield Case("ScatterND", (x, where, _f(3, 2)), _given(reduction=reduction))
    for axis in (None, 0, 1, -2):
        yield Case("OneHot", (_i(2, 3, low=-4, high=6), _ints(4), np.array([-1.0, 3.0], np.float32)), _given(axis=axis))
    yield Case("OneHot", (_f(3) * 3, np.array(4, np.float32), _ints(0, 1)), {})
    yield Case("NonZero", (np.round(_f(3, 4)),), {})
    yield Case("NonZero", (np.array(1.0, np.float32),), {})
    for sorted_, axis in itertools.product((None, 0), (None, 0, 1, -1)):
        yield Case("Unique", (np.round(_f(4, 3)),), _given(sorted=sorted_, axis=axis), 4)
    yield Case("ReverseSequence", (_f(4, 3), np.array([1, 3, 4])), {"time_axis": 0, "batch_axis": 1})
    yield Case("ReverseSequence", (_f(3, 4, 2), np.array([1, 3, 4])), {"time_axis": 1, "batch_axis": 0})
    boxes = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11]]], np.float32)
    scores = np.array([[[0.9, 0.75, 0.6, 0.95], [0.1, 0.8, 0.85, 0.3]]], np.float32)
    limits: tuple[np.ndarray, ...] = (_ints(2), np.array([0.5], np.float32), np.array([0.2], np.float32))
    for count in range(4):
        for center in (None, 1):
            yield Case("NonMaxSuppression", (boxes, scores, *limits[:count]), _given(center_point_box=center))
    rois = np.array([[0.5, 0.5, 5, 4], [1, 2, 6.2, 6.9]], np.float32)
    for mode, ratio, half, scale in itertools.product(
        (None, "max"), (None, 2), (None, "output_half_pixel", "half_pixel"), (None, 0.5)
    ):
        given = _given(
            mode=mode,
            sampling_ratio=ratio,
            coordinate_transformation_mode=half,
            spatial_scale=scale,
            output_height=2,
            output_width=3,
        )
        yield Case("RoiAlign", (_f(1, 2, 8, 8), rois, _ints(0, 0)), given)
    grid = (_rng.random((1, 3, 4, 2)) * 2.6 - 1.3).astype(np.float32)
    for mode, padding, corners in itertools.product(
        (None, "bilinear", "linear", "nearest", "bicubic", "cubic"), (None, "border", "reflection"), (None, 1)
    ):
        yield Case("GridSample", (_f(1, 2, 5, 6), grid), _given(mode=mode, padding_mode=padding, align_corners=corners))
    for corners in (0, 1):
        yield Case("AffineGrid", (_f(2, 2, 3), _ints(2, 3, 4, 5)), {"align_corners": corners})


def _resizes() -> Iterator[Case]:
    x = _f(1, 2, 4, 5)
    none = np.array([], np.float32)
    factors = ([1.0, 1.0, 2.0, 3.0], [1.0, 1.0, 0.5, 0.6], [1.0, 1.0, 1.5, 0.8])
    for mode, scales in itertools.product((None, "nearest", "linear", "bilinear"), factors):
        yield Case("Resize", (x, np.array(scales, np.float32)), _given(mode=mode))
        if min(scales) >= 1:
            yield Case("Upsample", (x,), _given(mode=mode, scales=scales))
            yield Case("Upsample", (x,), _given(mode=mode, height_scale=scales[2], width_scale=scales[3]))
            yield Case("Upsample", (x, np.array(scales, np.float32)), _given(mode=mode))
    coordinates = (None, "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
    for mode, coordinate, scales in itertools.product((None, "linear", "cubic"), coordinates, factors):
        given = _given(mode=mode, coordinate_transformation_mode=coordinate)
        roundings = (None, "floor", "ceil", "round_prefer_ceil") if mode is None else (None,)
        for rounding in roundings:
            more = {**given, **_given(nearest_mode=rounding)}
            yield Case("Resize", (x, none, np.array(scales, np.float32)), more)
        sizes = [int(size * scale) for size, scale in zip(x.shape, scales, strict=True)]
        yield Case("Resize", (x, none, none, _ints(*sizes)), given)
        yield Case("Resize", (x, None, None, _ints(*sizes)), given)
        if mode is not None and coordinate != "align_corners":
            yield Case("Resize", (x, None, np.array(scales, np.float32)), {**given, "antialias": 1})
        if mode == "cubic":
            yield Case("Resize", (x, none, np.array(scales, np.float32)), {**given, "cubic_coeff_a": -0.5})
            yield Case("Resize", (x, none, np.array(scales, np.float32)), {**given, "exclude_outside": 1})
    for policy, axes in itertools.product((None, "not_larger", "not_smaller"), ([2, 3], [3, 2])):
        yield Case("Resize", (x, None, None, _ints(6, 9)), _given(axes=axes, keep_aspect_ratio_policy=policy))
    roi = np.array([0, 0, 0.2, 0.1, 1, 1, 0.8, 0.9], np.float32)
    for mode in (None, "linear", "cubic"):
        given = _given(mode=mode, coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=7.0)
        yield Case("Resize", (x, roi, None, _ints(1, 2, 3, 3)), given)
        yield Case("Resize", (x, roi, none, _ints(1, 2, 3, 3)), given)


def _recurrent() -> Iterator[Case]:
    steps, batch, size, hidden = 4, 3, 2, 5
    for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        for direction, options in itertools.product(("forward", "reverse", "bidirectional"), range(9)):
            d = 2 if direction == "bidirectional" else 1
            x = _f(steps, batch, size)
            w, r, b = _f(d, gates * hidden, size), _f(d, gates * hidden, hidden), _f(d, 2 * gates * hidden)
            lengths = np.array([4, 2, 3], np.int32)
            h0, c0, p = _f(d, batch, hidden), _f(d, batch, hidden), _f(d, 3 * hidden)
            inputs: list[np.ndarray | None] = [x, w, r]
            attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
            if options == 8:
                inputs = [x.transpose(1, 0, 2), w, r, b, None, h0.transpose(1, 0, 2)]
                attributes["layout"] = 1
                if op == "LSTM":
                    inputs += [c0.transpose(1, 0, 2), p]
            elif options:
                inputs.append(b)
            if options in (2, 3):
                inputs.append(lengths)
            if options == 3:
                inputs.append(h0)
                if op == "LSTM":
                    inputs += [c0, p]
            if options == 4:
                inputs += [None, h0]
            if options == 5:
                attributes["clip"] = 0.3
            if options == 6:
                names = {"RNN": ["Relu"], "GRU": ["HardSigmoid", "Softsign"], "LSTM": ["HardSigmoid", "Tanh", "Relu"]}
                attributes["activations"] = names[op] * d
            if options == 7:
                if op == "RNN":
                    attributes["activations"] = ["Elu"] * d
                    attributes["activation_alpha"] = [0.7] * d
                else:
                    attributes["linear_before_reset" if op == "GRU" else "input_forget"] = 1
            yield Case(op, tuple(inputs), attributes, 3 if op == "LSTM" else 2)
            yield Case(op, tuple(inputs), {**attributes, "output_sequence": 1}, 2)
        yield Case(op, (_f(4, 3, 2), _f(1, gates * 5, 2), _f(1, gates * 5, 5)), {"hidden_size": 5})


def _matrices() -> Iterator[Case]:
    for a, b in (
        ((2, 3), (3, 4)),
        ((3,), (3, 4)),
        ((2, 3), (3,)),
        ((3,), (3,)),
        ((5, 2, 3), (3, 4)),
        ((2, 1, 2, 3), (4, 3, 2)),
        ((2, 0), (0, 3)),
        ((0, 2), (2, 3)),
    ):
        yield Case("MatMul", (_f(*a), _f(*b)), {})
        yield Case("MatMul", (_i(*a, dtype=np.int32), _i(*b, dtype=np.int32)), {})
    for attributes in _grid(transA=(None, 1), transB=(None, 1), alpha=(None, 0.5), beta=(None, 0.5)):
        a = _f(3, 2) if attributes.get("transA") else _f(2, 3)
        b = _f(4, 3) if attributes.get("transB") else _f(3, 4)
        for c in ((_f(2, 4),), (_f(4),), (_f(2, 1),), (np.array(0.5, np.float32),), ()):
            yield Case("Gemm", (a, b, *c), attributes)
    yield Case("MatMulInteger", (_i(2, 3, low=0, dtype=np.uint8), _i(3, 4, dtype=np.int8)), {})
    yield Case(
        "MatMulInteger",
        (_i(2, 3, low=0, dtype=np.uint8), _i(3, 4, dtype=np.int8), np.array(3, np.uint8), np.array(1, np.int8)),
        {},
    )
    yield Case(
        "MatMulInteger",
        (_i(2, 3, low=0, dtype=np.uint8), _i(3, 4, dtype=np.int8), np.array(3, np.uint8), _i(4, dtype=np.int8)),
        {},
    )
    for equation, shapes in (
        ("ij,jk->ik", ((2, 3), (3, 4))),
        ("bij,bjk->bik", ((2, 2, 3), (2, 3, 4))),
        ("ii->i", ((3, 3),)),
        ("ij->", ((2, 3),)),
        ("...i,...i->...", ((2, 3), (2, 3))),
        ("ij,jk", ((2, 3), (3, 4))),
    ):
        yield Case("Einsum", tuple(_f(*shape) for shape in shapes), {"equation": equation})
    yield Case("Det", (_f(2, 3, 3),), {})


def _quantization() -> Iterator[Case]:
    x = _f(3, 4) * 5
    for dtype in (np.uint8, np.int8):
        scale, zero = np.array(0.07, np.float32), np.array(3, dtype)
        yield Case("QuantizeLinear", (x, scale, zero), {})
        quantized = _i(3, 4, low=0, high=100, dtype=dtype)
        yield Case("DequantizeLinear", (quantized, scale, zero), {})
        for axis in (0, 1, -1):
            n = x.shape[axis]
            scales, zeros = np.abs(_f(n)) + 0.05, _i(n, low=0, high=9, dtype=dtype)
            yield Case("QuantizeLinear", (x, scales, zeros), {"axis": axis})
            yield Case("DequantizeLinear", (quantized, scales, zeros), {"axis": axis})
    yield Case("QuantizeLinear", (x, np.array(0.07, np.float32)), {})
    yield Case("QuantizeLinear", (np.array([0.5, 1.5, 2.5, -0.5, 1e9, -1e9], np.float32), np.array(1, np.float32)), {})
    yield Case("DequantizeLinear", (_i(4, dtype=np.int32), np.array(0.5, np.float32)), {})
    yield Case("DynamicQuantizeLinear", (x,), {}, 3)
    yield Case("DynamicQuantizeLinear", (np.abs(x),), {}, 3)
    s, z = np.array(0.02, np.float32), np.array(100, np.uint8)
    a, b = _i(2, 3, low=0, high=255, dtype=np.uint8), _i(3, 4, low=0, high=255, dtype=np.uint8)
    yield Case("QLinearMatMul", (a, s, z, b, s, z, np.array(0.1, np.float32), z), {})
    image, kernel = _i(1, 2, 5, 5, low=0, high=255, dtype=np.uint8), _i(3, 2, 3, 3, low=0, high=255, dtype=np.uint8)
    yield Case("QLinearConv", (image, s, z, kernel, s, z, np.array(0.1, np.float32), z), {"pads": [1, 1, 1, 1]})
    bias = _i(3, low=-1000, high=1000, dtype=np.int32)
    yield Case("QLinearConv", (image, s, z, kernel, s, z, np.array(0.1, np.float32), z, bias), {"strides": [2, 2]})


def _others() -> Iterator[Case]:
    scores, labels, weights = _f(3, 5), _ints(1, 0, 4), np.abs(_f(5))
    for reduction, ignore in itertools.product((None, "none", "sum"), (None, 0)):
        given = _given(reduction=reduction, ignore_index=ignore)
        for op in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"):
            yield Case(op, (scores, labels), given)
            yield Case(op, (scores, labels, weights), given)
            yield Case(op, (_f(2, 5, 3), _i(2, 3, low=0, high=5)), given)
    for size in (8, 9):
        for op, periodic in itertools.product(("HannWindow", "HammingWindow", "BlackmanWindow"), (None, 0)):
            yield Case(op, (np.array(size, np.int64),), _given(periodic=periodic))
    yield Case(
        "MelWeightMatrix",
        (np.array(8), np.array(16), np.array(8192), np.array(0.0, np.float32), np.array(4096.0, np.float32)),
        {},
    )
    signal = _f(1, 8, 1)
    for inverse, onesided in ((None, None), (None, 1), (1, None)):
        yield Case("DFT", (signal,), _given(inverse=inverse, onesided=onesided, axis=1))
        yield Case("DFT", (signal, None, np.array(1)), _given(inverse=inverse, onesided=onesided))
        yield Case("DFT", (signal, np.array(6), np.array(1)), _given(inverse=inverse, onesided=onesided))
    yield Case("STFT", (_f(1, 16, 1), np.array(4), _f(8)), {})
    yield Case("STFT", (_f(1, 16, 1), np.array(4), None, np.array(8)), {"onesided": 0})
    texts = np.array([["Monday", "tuesday"], ["Wed", "x"]], object)[:1]
    for change, sensitive in itertools.product((None, "LOWER", "UPPER"), (None, 1)):
        given = _given(case_change_action=change, is_case_sensitive=sensitive, stopwords=["monday", "x"])
        yield Case("StringNormalizer", (texts,), given)
    yield Case(
        "TfIdfVectorizer",
        (_i(2, 6, low=0, high=9, dtype=np.int64),),
        {
            "mode": "TFIDF",
            "min_gram_length": 1,
            "max_gram_length": 2,
            "max_skip_count": 1,
            "ngram_counts": [0, 4],
            "ngram_indexes": [0, 1, 2, 3, 4, 5, 6],
            "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7],
            "weights": [0.5] * 7,
        },
    )


def _machine_learning() -> Iterator[Case]:
    def ml(op_type: str, *inputs: np.ndarray, outputs: int = 1, **attributes: Any) -> Case:
        return Case(op_type, inputs, _given(**attributes), outputs, "ai.onnx.ml")

    x = _f(4, 3)
    yield ml("ArrayFeatureExtractor", x, _ints(2, 0))
    yield ml("Binarizer", x, threshold=0.2)
    yield ml("FeatureVectorizer", x, _f(4, 2), inputdimensions=[3, 2])
    yield ml("FeatureVectorizer", x, _f(4, 2), inputdimensions=[2, 2])
    holes = x.copy()
    holes[1, 2] = np.nan
    holes[2, 0] = -5
    yield ml("Imputer", holes, imputed_value_floats=[0.5], replaced_value_float=float("nan"))
    yield ml("Imputer", holes, imputed_value_floats=[1.0, 2.0, 3.0], replaced_value_float=-5.0)
    yield ml("Imputer", _i(4, 3), imputed_value_int64s=[7], replaced_value_int64=1)
    texts = np.array([["a", "b"], ["z", "a"]], object)
    yield ml("LabelEncoder", texts, classes_strings=["b", "a"])
    yield ml("LabelEncoder", _i(5, low=-1, high=4), classes_strings=["b", "a"], default_string="none")
    yield ml("LabelEncoder", texts, keys_strings=["a", "b"], values_int64s=[3, 4], default_int64=9)
    yield ml("LabelEncoder", texts, keys_strings=["a", "b"], values_floats=[0.5, 1.5], default_float=9.5)
    yield ml("LabelEncoder", texts, keys_strings=["a", "b"], values_strings=["x", "y"])
    yield ml("LabelEncoder", _i(5, low=0, high=4), keys_int64s=[1, 3], values_int64s=[10, 30])
    yield ml("LabelEncoder", _i(5, low=0, high=4), keys_int64s=[1, 3], values_strings=["one", "three"])
    numbers = np.array([1.5, np.nan, 2.5, 7], np.float32)
    yield ml("LabelEncoder", numbers, keys_floats=[1.5, 2.5], values_floats=[15.0, 25.0], default_float=-1.0)
    yield ml("LabelEncoder", numbers, keys_floats=[1.5, float("nan")], values_int64s=[15, 99])
    for post in (None, "NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"):
        for multi in (None, 1):
            weights = [float(v) for v in _f(9)]
            yield ml(
                "LinearClassifier", x, outputs=2, coefficients=weights, intercepts=[0.1, -0.2, 0.0],
                classlabels_ints=[5, 6, 7], post_transform=post, multi_class=multi,
            )  # fmt: skip
        yield ml(
            "LinearClassifier", x, outputs=2, coefficients=weights[:6], intercepts=[0.1, -0.2],
            classlabels_ints=[5, 6], post_transform=post,
        )  # fmt: skip
        yield ml(
            "LinearClassifier", x, outputs=2, coefficients=weights[:3], intercepts=[0.1],
            classlabels_strings=["no", "yes"], post_transform=post,
        )  # fmt: skip
        yield ml("LinearRegressor", x, coefficients=weights, intercepts=[1.0, 2.0, 3.0], targets=3, post_transform=post)
    yield ml("LinearRegressor", x, coefficients=weights[:3])
    for norm in (None, "MAX", "L1", "L2"):
        yield ml("Normalizer", x, norm=norm)
    yield ml("Normalizer", np.abs(x), norm="MAX")
    for zeros in (None, 0, 1):
        yield ml("OneHotEncoder", _i(2, 3, low=0, high=4), cats_int64s=[0, 1, 2, 3], zeros=zeros)
        yield ml("OneHotEncoder", texts, cats_strings=["a", "b", "z"], zeros=zeros)
    yield ml("OneHotEncoder", _i(2, 3, low=0, high=9), cats_int64s=[0, 1])
    yield ml("OneHotEncoder", np.array([0.0, 2.0], np.float32), cats_int64s=[0, 1, 2])
    yield ml("Scaler", x, offset=[0.1, 0.2, 0.3], scale=[2.0, 3.0, 4.0])
    yield ml("Scaler", x, offset=[0.1], scale=[2.0])
    yield ml("Scaler", _i(4, 3), offset=[0.5], scale=[2.0])
    for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        support = [float(v) for v in _f(12)]
        for one_class, post in ((None, None), (1, None), (None, "LOGISTIC")):
            yield ml(
                "SVMRegressor", x, kernel_type=kernel, kernel_params=[0.4, 0.3, 2.0], n_supports=4,
                support_vectors=support, coefficients=[0.5, -1.0, 0.7, 0.2], rho=[0.1], one_class=one_class,
                post_transform=post,
            )  # fmt: skip
        for post in (None, "LOGISTIC", "SOFTMAX"):
            yield ml(
                "SVMClassifier", x, outputs=2, kernel_type=kernel, kernel_params=[0.4, 0.3, 2.0],
                support_vectors=support, vectors_per_class=[2, 2], coefficients=[0.5, -1.0, 0.7, 0.2], rho=[0.1],
                classlabels_ints=[0, 1], post_transform=post,
            )  # fmt: skip
            yield ml(
                "SVMClassifier", x, outputs=2, kernel_type=kernel, kernel_params=[0.4, 0.3, 2.0],
                support_vectors=support, vectors_per_class=[2, 1, 1], coefficients=[float(v) for v in _f(8)],
                rho=[0.1, 0.2, 0.3], classlabels_strings=["a", "b", "c"], post_transform=post,
            )  # fmt: skip
        yield ml(
            "SVMClassifier", x, outputs=2, kernel_type=kernel, kernel_params=[0.4, 0.3, 2.0],
            support_vectors=support, vectors_per_class=[2, 2], coefficients=[0.5, -1.0, 0.7, 0.2], rho=[0.1],
            prob_a=[-1.2], prob_b=[0.3], classlabels_ints=[0, 1],
        )  # fmt: skip
    nodes = {
        "nodes_treeids": [0, 0, 0, 1, 1, 1, 1, 1],
        "nodes_nodeids": [0, 1, 2, 0, 1, 2, 3, 4],
        "nodes_featureids": [0, 0, 0, 1, 2, 0, 0, 0],
        "nodes_truenodeids": [1, 0, 0, 1, 3, 0, 0, 0],
        "nodes_falsenodeids": [2, 0, 0, 2, 4, 0, 0, 0],
        "nodes_values": [0.1, 0.0, 0.0, 0.0, -0.3, 0.0, 0.0, 0.0],
        "nodes_missing_value_tracks_true": [1, 0, 0, 0, 1, 0, 0, 0],
    }
    leaves = ([0, 0, 1, 1, 1], [1, 2, 2, 3, 4])
    for mode in ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"):
        modes = [mode, "LEAF", "LEAF", mode, mode, "LEAF", "LEAF", "LEAF"]
        for aggregate in (None, "AVERAGE", "MIN", "MAX"):
            yield ml(
                "TreeEnsembleRegressor", holes, nodes_modes=modes, **nodes, target_treeids=leaves[0] * 2,
                target_nodeids=leaves[1] * 2, target_ids=[0] * 5 + [1] * 5,
                target_weights=[0.5, 1.5, -0.5, 2.5, 3.5, 1.0, -2.0, 3.0, 0.25, -0.75],
                n_targets=2, base_values=[0.25, 0.5], aggregate_function=aggregate,
            )  # fmt: skip
        for post in (None, "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"):
            common = {
                "nodes_modes": modes, **nodes, "class_treeids": leaves[0], "class_nodeids": leaves[1],
                "class_weights": [0.5, 1.5, 0.1, 2.5, 3.5], "post_transform": post,
            }  # fmt: skip
            yield ml(
                "TreeEnsembleClassifier",
                x,
                outputs=2,
                class_ids=[0, 1, 2, 1, 0],
                classlabels_int64s=[5, 6, 7],
                **common,
            )
            yield ml(
                "TreeEnsembleClassifier", x, outputs=2, class_ids=[0] * 5, classlabels_strings=["no", "yes"], **common
            )
