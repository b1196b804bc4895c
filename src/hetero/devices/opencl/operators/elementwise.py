"""Elementwise operators, BatchNormalization and Dropout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....errors import InferenceError
from ..elementwise import COMPUTED
from ..tensors import Scalar, Tensor
from .table import ANY, BOOLS, FLOATS, LAYOUT, NUMBERS, PlannedNode, StaticNode, add

__all__: list[str] = []

_BOOL = np.dtype(np.bool_)

# -- unary operators of floats: the template, and the attributes with their defaults, which follow the operand

_UNARY: dict[str, tuple[tuple[int, ...], str, dict[str, float]]] = {
    "Sqrt": ((6, 13), "sqrt({0})", {}),
    "Erf": ((9, 13), "error_function({0})", {}),
    "Tanh": ((6, 13), "hyperbolic_tangent({0})", {}),
    "Relu": ((6, 13, 14), "({0} < 0 ? 0 : {0})", {}),
    "Sigmoid": ((6, 13), "(1 / (1 + exp(-{0})))", {}),
    "Exp": ((6, 13), "exp({0})", {}),
    "Log": ((6, 13), "log({0})", {}),
    "Reciprocal": ((6, 13), "(1 / {0})", {}),
    "Floor": ((6, 13), "floor({0})", {}),
    "Ceil": ((6, 13), "ceil({0})", {}),
    "Round": ((11, 22), "rint({0})", {}),
    "Sin": ((7, 22), "sin({0})", {}),
    "Cos": ((7, 22), "cos({0})", {}),
    "Softplus": ((1, 22), "(({0} > 0 ? {0} : 0) + log1p(exp(-fabs({0}))))", {}),
    "Softsign": ((1, 22), "({0} / (1 + fabs({0})))", {}),
    "Elu": ((6, 22), "({0} < 0 ? {1} * expm1({0}) : {0})", {"alpha": 1.0}),
    "LeakyRelu": ((6, 16), "({0} < 0 ? {1} * {0} : {0})", {"alpha": 0.01}),
    "Selu": (
        (6, 22),
        "({2} * ({0} < 0 ? {1} * expm1({0}) : {0}))",
        {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
    ),
    "HardSigmoid": ((6, 22), "larger(0.0f, smaller(1.0f, {1} * {0} + {2}))", {"alpha": 0.2, "beta": 0.5}),
    "HardSwish": ((14, 22), "({0} * larger(0.0f, smaller(1.0f, {0} / 6 + 0.5f)))", {}),
    "Mish": ((18, 22), "({0} * hyperbolic_tangent(({0} > 0 ? {0} : 0) + log1p(exp(-fabs({0})))))", {}),
}


def _unary(template: str, defaults: dict[str, float]) -> Callable[[PlannedNode], Sequence[Tensor]]:
    def plan(node: PlannedNode) -> Sequence[Tensor]:
        numbers = [Scalar(node.attributes.get(name, value), np.dtype(np.float32)) for name, value in defaults.items()]
        return [node.builder.elementwise(template, [node[0], *numbers], node[0].dtype, node[0].shape)]

    return plan


for _name, (_versions, _template, _defaults) in _UNARY.items():
    add(_name, _versions, (FLOATS,), _unary(_template, _defaults), tuple(_defaults))


def _gelu(node: PlannedNode) -> Sequence[Tensor]:
    exact = "(0.5f * {0} * (1 + error_function({0} * 0.70710678118654752f)))"
    by_tanh = "(0.5f * {0} * (1 + hyperbolic_tangent(0.7978845608028654f * ({0} + 0.044715f * {0} * {0} * {0}))))"
    template = by_tanh if node.attributes.get("approximate") == b"tanh" else exact
    return [node.builder.elementwise(template, [node[0]], node[0].dtype, node[0].shape)]


def _check_gelu(node: StaticNode) -> str | None:
    kind = node.attributes.get("approximate", b"none")
    return None if kind in (b"none", b"tanh") else "its attribute 'approximate' must be 'none' or 'tanh'"


add("Gelu", (20,), (FLOATS,), _gelu, ("approximate",), check=_check_gelu)


# -- unary operators of several types

_WRAPPING = {"int64": "ulong", "int32": "uint"}  # signed integers that overflow are undefined in C


def _typed_unary(
    of_floats: str, of_integers: str, result: np.dtype[Any] | None = None
) -> Callable[[PlannedNode], Sequence[Tensor]]:
    """``of_integers``: ``unsigned`` and ``signed`` stand for the types of its integers."""

    def plan(node: PlannedNode) -> Sequence[Tensor]:
        dtype = node[0].dtype
        template = of_floats if dtype.name in FLOATS else _integer(of_integers, dtype)
        return [node.builder.elementwise(template, [node[0]], result or dtype, node[0].shape)]

    return plan


def _integer(template: str, dtype: np.dtype[Any]) -> str:
    return template.replace("unsigned", _WRAPPING.get(dtype.name, "int")).replace("signed", COMPUTED[dtype.name])


_NEGATIVE = "((signed)(0 - (unsigned){0}))"
add("Neg", (6, 13), (NUMBERS,), _typed_unary("(-{0})", _NEGATIVE), on_host=lambda a, v, x: -_given(x[0]))
add("Abs", (6, 13), (NUMBERS,), _typed_unary("fabs({0})", f"({{0}} < 0 ? {_NEGATIVE} : {{0}})"))
add("Sign", (9, 13), (NUMBERS,), _typed_unary("(isnan({0}) ? {0} : sign({0}))", "(({0} > 0) - ({0} < 0))"))
add("Not", (1,), (BOOLS,), _typed_unary("", "(!{0})"), on_host=lambda a, v, x: ~_given(x[0]))
add("IsNaN", (9, 13, 20), (FLOATS,), _typed_unary("isnan({0})", "", _BOOL))


def _given(array: Any) -> Any:
    assert array is not None
    return array


# -- binary operators


def _binary(
    of_floats: str, of_integers: str, result: np.dtype[Any] | None = None
) -> Callable[[PlannedNode], Sequence[Tensor]]:
    def plan(node: PlannedNode) -> Sequence[Tensor]:
        dtype = node[0].dtype
        template = of_floats if dtype.name in FLOATS else _integer(of_integers, dtype)
        return [node.builder.elementwise(template, [node[0], node[1]], result or dtype)]

    return plan


def _wrapping(sign: str) -> str:
    return f"((signed)((unsigned){{0}} {sign} (unsigned){{1}}))"


def _same_types(node: StaticNode) -> str | None:
    kinds = {str(kind.dtype) for kind in node.inputs if kind is not None}
    return f"its inputs must have one element type, found {' and '.join(sorted(kinds))}" if len(kinds) > 1 else None


def _check_division(node: StaticNode) -> str | None:
    kind = node.inputs[0]
    if kind is not None and kind.dtype is not None and kind.dtype.kind != "f":
        return "integers are divided on the host only, because a division by zero stops some devices"
    return None


def _divided(attributes: Any, version: int, inputs: Sequence[Any]) -> Any:
    x, y = _given(inputs[0]), _given(inputs[1])
    if x.dtype.kind == "f":
        return x / y
    if not np.all(y):
        raise InferenceError("an integer is divided by zero")
    is_rounded_down = (np.remainder(x, y) != 0) & ((x < 0) != (y < 0))  # ONNX rounds towards zero
    return (np.floor_divide(x, y) + is_rounded_down).astype(x.dtype)


_function: Callable[..., Any]
for _name, _sign, _function in (("Add", "+", np.add), ("Sub", "-", np.subtract), ("Mul", "*", np.multiply)):
    add(
        _name,
        (7, 13, 14),
        (NUMBERS,),
        _binary(f"({{0}} {_sign} {{1}})", _wrapping(_sign)),
        check=_same_types,
        on_host=lambda a, v, x, function=_function: function(_given(x[0]), _given(x[1])),
    )
add(
    "Div",
    (7, 13, 14),
    (NUMBERS,),
    _binary("({0} / {1})", ""),
    check=_same_types,
    check_on_device=_check_division,
    on_host=_divided,
)
for _name, _versions, _sign, _types, _function in (
    ("Equal", (7, 11, 13, 19), "==", ANY, np.equal),
    ("Less", (7, 9, 13), "<", NUMBERS, np.less),
    ("Greater", (7, 9, 13), ">", NUMBERS, np.greater),
    ("LessOrEqual", (12, 16), "<=", NUMBERS, np.less_equal),
    ("GreaterOrEqual", (12, 16), ">=", NUMBERS, np.greater_equal),
    ("And", (7,), "&&", BOOLS, np.logical_and),
    ("Or", (7,), "||", BOOLS, np.logical_or),
    ("Xor", (7,), "!=", BOOLS, np.logical_xor),
):
    add(
        _name,
        _versions,
        (_types,),
        _binary(f"({{0}} {_sign} {{1}})", f"({{0}} {_sign} {{1}})", _BOOL),
        check=_same_types,
        on_host=lambda a, v, x, function=_function: function(_given(x[0]), _given(x[1])),
    )


def _pow(node: PlannedNode) -> Sequence[Tensor]:
    exponent = node[1]
    if exponent.array is not None and exponent.size == 1 and float(exponent.array.reshape(-1)[0]) == 2.0:
        shape = np.broadcast_shapes(node[0].shape, exponent.shape)
        return [node.builder.elementwise("({0} * {0})", [node[0]], node[0].dtype, shape)]
    template = "pow({0}, {1})" if exponent.dtype.name in FLOATS else "pow({0}, (float){1})"
    return [node.builder.elementwise(template, [node[0], exponent], node[0].dtype)]


add("Pow", (7, 12, 13, 15), (FLOATS, NUMBERS), _pow)


# -- operators of any number of inputs


def _folded(
    template: str, integer_template: str, *, is_mean: bool = False
) -> Callable[[PlannedNode], Sequence[Tensor]]:
    def plan(node: PlannedNode) -> Sequence[Tensor]:
        dtype = node[0].dtype
        pair = template if dtype.name in FLOATS else _integer(integer_template, dtype)
        total = node[0]
        for position in range(1, len(node.inputs)):
            total = node.builder.elementwise(pair, [total, node[position]], dtype)
            total.num_readers = 1
        if is_mean:
            count = Scalar(len(node.inputs), np.dtype(np.float32))
            total = node.builder.elementwise("({0} / {1})", [total, count], dtype)
        if total is node[0]:
            total = node.builder.elementwise("({0})", [total], dtype)
        total.num_readers = 2
        return [total]

    return plan


def _extreme(function: Any) -> Any:
    def on_host(attributes: Any, version: int, inputs: Sequence[Any]) -> Any:
        result = _given(inputs[0])
        for each in inputs[1:]:
            result = function(result, _given(each))
        return result

    return on_host


add("Sum", (8, 13), (FLOATS,), _folded("({0} + {1})", ""), check=_same_types)
add("Mean", (8, 13), (FLOATS,), _folded("({0} + {1})", "", is_mean=True), check=_same_types)
for _name, _float, _sign, _function in (("Max", "larger", ">", np.maximum), ("Min", "smaller", "<", np.minimum)):
    add(
        _name,
        (8, 12, 13),
        (NUMBERS,),
        _folded(f"{_float}({{0}}, {{1}})", f"({{0}} {_sign} {{1}} ? {{0}} : {{1}})"),
        check=_same_types,
        on_host=_extreme(_function),
    )


def _prelu(node: PlannedNode) -> Sequence[Tensor]:
    x, slope = node[0], node[1]
    if np.broadcast_shapes(x.shape, slope.shape) != x.shape:
        raise InferenceError("the slope of PRelu must be broadcast to its input")
    return [node.builder.elementwise("({0} < 0 ? {1} * {0} : {0})", [x, slope], x.dtype)]


add("PRelu", (7, 9, 16), (FLOATS,), _prelu, check=_same_types)


def _where(node: PlannedNode) -> Sequence[Tensor]:
    return [node.builder.elementwise("({0} ? {1} : {2})", [node[0], node[1], node[2]], node[1].dtype)]


def _check_where(node: StaticNode) -> str | None:
    kinds = {str(kind.dtype) for kind in node.inputs[1:] if kind is not None}
    return None if len(kinds) == 1 else f"its inputs must have one element type, found {' and '.join(sorted(kinds))}"


add(
    "Where",
    (9, 16),
    (BOOLS, ANY),
    _where,
    check=_check_where,
    on_host=lambda a, v, x: np.where(_given(x[0]), _given(x[1]), _given(x[2])),
)


# -- Clip


def _clip(node: PlannedNode) -> Sequence[Tensor]:
    x, builder = node[0], node.builder
    finite: list[float | None] = [None, None]
    if x.dtype.kind == "f":  # the defaults: infinities are clipped as well; up to opset 10 by float32 for every type
        limits = np.finfo(np.float32 if node.version < 11 else x.dtype)
        finite = [float(limits.min), float(limits.max)]
    result = x
    # The upper limit is applied last, as ONNX requires if the limits are in the wrong order. NaN stays.
    for position, template in enumerate(("({0} < {1} ? {1} : {0})", "({0} > {1} ? {1} : {0})")):
        limit: Tensor | Scalar | None = node.optional(position + 1)
        default = node.attributes.get(("min", "max")[position], finite[position])
        if limit is None and default is not None:
            limit = Scalar(default, np.dtype(np.float32))
        if limit is not None:
            if isinstance(limit, Tensor) and limit.size != 1:
                raise InferenceError("the limits of Clip must be scalars")
            result = builder.elementwise(template, [result, limit], x.dtype, x.shape)
            result.num_readers = 1
    if result is x:
        return [builder.view(x, x.shape)]
    return [result]


add("Clip", (6, 11, 12, 13), (NUMBERS,), _clip, ("min", "max"), check=_same_types)


# -- Cast

_CASTS = {"float32", "float16", "int64", "int32", "int8", "uint8", "bool"}


def _target(attributes: Any) -> np.dtype[Any] | None:
    from ....model.types import dtype_of

    target = dtype_of(int(attributes.get("to", 0)))
    return target if target is not None and target.name in _CASTS else None


def _cast(node: PlannedNode) -> Sequence[Tensor]:
    x, target = node[0], _target(node.attributes)
    assert target is not None
    if target == x.dtype:
        return [node.builder.view(x, x.shape)]
    if target == _BOOL:
        template = "({0} != 0)"
    elif target.kind == "f":
        template = "((float){0})"
    elif x.dtype.kind == "f":  # conversions of numbers that do not fit are undefined in C
        template = f"convert_{COMPUTED[target.name]}_sat_rtz({{0}})"
    else:
        template = f"(({COMPUTED[target.name]}){{0}})"
    return [node.builder.elementwise(template, [x], target, x.shape)]


def _check_cast(node: StaticNode) -> str | None:
    if _target(node.attributes) is None:
        return "it supports casts to float32, float16, int64, int32, int8, uint8 and bool only"
    return None


add(
    "Cast",
    (6, 9, 13, 19, *LAYOUT),
    (ANY,),
    _cast,
    ("to", "saturate"),
    check=_check_cast,
    on_host=lambda a, v, x: _given(x[0]).astype(_target(a)),
)


# -- Identity and Dropout


def _identity(node: PlannedNode) -> Sequence[Tensor]:
    return [node.builder.view(node[0], node[0].shape)]


add("Identity", (1, 13, 14, 16, 19, *LAYOUT), (ANY,), _identity, on_host=lambda a, v, x: _given(x[0]))


def _check_dropout(node: StaticNode) -> str | None:
    if node.num_outputs > 1:
        return "its mask is not supported"
    if node.version >= 12 and node.has(2):
        training = node.constants[2]
        if training is None or bool(np.any(training)):
            return "training is not supported: its input 'training_mode' must be a constant that is False"
    return None


add(
    "Dropout",
    (7, 10, 12, 13, 22),
    (FLOATS, FLOATS | {"float64"}, BOOLS),
    _identity,
    ("ratio", "seed"),
    check=_check_dropout,
)


# -- BatchNormalization


def _batch_normalization(node: PlannedNode) -> Sequence[Tensor]:
    x, builder = node[0], node.builder
    if x.rank < 2:
        raise InferenceError(f"BatchNormalization requires a rank of at least 2, found {x.rank}")
    channels = (x.shape[1], *(1,) * (x.rank - 2))
    parts = []
    for position in range(1, 5):
        part = node[position]
        if part.shape != (x.shape[1],):
            raise InferenceError(f"expected {x.shape[1]} elements in input number {position + 1}, found {part.size}")
        parts.append(builder.view(part, channels))
    epsilon = Scalar(node.attributes.get("epsilon", 1e-5), np.dtype(np.float32))
    template = "(({0} - {3}) * ({1} / sqrt({4} + {5})) + {2})"
    return [builder.elementwise(template, [x, *parts, epsilon], x.dtype, x.shape)]


def _check_batch_normalization(node: StaticNode) -> str | None:
    if node.attributes.get("training_mode", 0):
        return "training is not supported"
    if node.num_outputs > 1:
        return "only its first output is supported"
    return None


add(
    "BatchNormalization",
    (9, 14, 15),
    (FLOATS,),
    _batch_normalization,
    ("epsilon", "momentum", "training_mode"),
    check=_check_batch_normalization,
)
