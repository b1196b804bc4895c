"""LSTM, GRU and RNN: one matrix product computes the input's part of all gates and steps; one kernel does the rest."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import _kernels
from ....errors import InferenceError
from ..registry import F32, Node, operator
from ..values import Context, Value
from .elementwise import _optional, _required, binary
from .movement import strided
from .network import packed_b

if TYPE_CHECKING:
    from ....model.model import Model, NodeView

_BOOL = np.dtype(np.bool_)
_BYTES = ("int8", "uint8")


def _code(activation: str) -> int:
    return _kernels.constant(f"RECURRENT_{activation}")


# Activation -> code, defaults of alpha and beta (None: it has no such parameter).
_ACTIVATIONS: dict[str, tuple[int, float | None, float | None]] = {
    "relu": (_code("RELU"), None, None),
    "tanh": (_code("TANH"), None, None),
    "sigmoid": (_code("SIGMOID"), None, None),
    "affine": (_code("AFFINE"), 1.0, 0.0),
    "leakyrelu": (_code("LEAKY_RELU"), 0.01, None),
    "thresholdedrelu": (_code("THRESHOLDED_RELU"), 1.0, None),
    "scaledtanh": (_code("SCALED_TANH"), 1.0, 1.0),
    "hardsigmoid": (_code("HARD_SIGMOID"), 0.2, 0.5),
    "elu": (_code("ELU"), 1.0, None),
    "softsign": (_code("SOFTSIGN"), None, None),
    "softplus": (_code("SOFTPLUS"), None, None),
}
# Operator -> gates, activations of one direction.
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_DEFAULTS = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}

_ATTRIBUTES: dict[str, Any] = {
    "activations": None,
    "activation_alpha": None,
    "activation_beta": None,
    "clip": None,
    "direction": (b"forward", b"reverse", b"bidirectional"),
    "hidden_size": None,
    "layout": (0, 1),
    "output_sequence": (0, 1),  # only before opset 7; Y is always computed
}


def _names(node_type: str, attributes: Any) -> list[str]:
    """The activations of all directions, in lower case."""
    activations = attributes.get("activations", None)
    if activations:
        return [name.decode("utf-8", "replace").lower() for name in activations]
    return list(_DEFAULTS[node_type]) * _directions(attributes)


def _directions(attributes: Any) -> int:
    return 2 if attributes.get("direction", b"forward") == b"bidirectional" else 1


def _refusal(model: Model, view: NodeView) -> str | None:
    names = _names(view.op_type, view.attributes)
    num_expected = len(_DEFAULTS[view.op_type]) * _directions(view.attributes)
    if len(names) != num_expected:
        return f"{view.op_type} with {len(names)} activations, expected {num_expected}"
    unknown = [name for name in names if name not in _ACTIVATIONS]
    if unknown:
        return f"{view.op_type} with activation {unknown[0]}"
    clip = view.attributes.get("clip", None)
    if clip is not None and not clip >= 0:
        return f"{view.op_type} with clip = {clip!r}"
    return None


def _functions(node: Node) -> tuple[list[int], list[float]]:
    """Codes and parameters. The attributes' alphas and betas belong, in order, to the activations that have one."""
    alphas, betas = iter(node.get("activation_alpha", ())), iter(node.get("activation_beta", ()))
    codes, parameters = [], []
    for name in _names(node.op_type, node.attributes):
        code, alpha, beta = _ACTIVATIONS[name]
        codes.append(code)
        parameters += [0.0 if alpha is None else float(next(alphas, alpha))]
        parameters += [0.0 if beta is None else float(next(betas, beta))]
    return codes, parameters


def _expect(name: str, value: Value | None, shape: tuple[int, ...]) -> None:
    if value is not None and value.shape != shape:
        raise InferenceError(f"expected {name} of shape {list(shape)}, found {list(value.shape)}")


def _halves(context: Context, bias: Value, width: int) -> tuple[Value, Value]:
    """The input's bias and the recurrent bias, each [directions, width]."""
    shape, strides = (bias.shape[0], width), (2 * width, 1)
    return strided(context, bias, 0, shape, strides), strided(context, bias, width, shape, strides)


def _input_bias(context: Context, bias: Value, gates: int, hidden: int, linear_before_reset: bool) -> Value:
    """The bias of the input's product, [directions, gates * hidden]: the sum of both biases. With
    ``linear_before_reset``, GRU's third recurrent bias is left out, because the reset gate multiplies it."""
    of_input, recurrent = _halves(context, bias, gates * hidden)
    if linear_before_reset:
        kept = context.constant(np.repeat([True, True, False], hidden))
        recurrent = context.call("where", [kept, recurrent, context.scalar(0, bias.dtype)], recurrent.shape, bias.dtype)
    return binary(context, "add", of_input, recurrent)


@operator("RNN", dtypes=(F32, F32, F32, F32, ("int32",), F32), attributes=_ATTRIBUTES, check=_refusal)
@operator(
    "GRU",
    dtypes=(F32, F32, F32, F32, ("int32",), F32),
    attributes=_ATTRIBUTES | {"linear_before_reset": (0, 1)},
    check=_refusal,
)
@operator(
    "LSTM",
    dtypes=(F32, F32, F32, F32, ("int32",), F32),
    attributes=_ATTRIBUTES | {"input_forget": (0, 1)},
    check=_refusal,
)
def _recurrent(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x, w, r = (_required(value) for value in inputs[:3])
    bias, lengths, h0 = (_optional(inputs, position) for position in (3, 4, 5))
    gates, directions = _GATES[node.op_type], _directions(node.attributes)
    if x.rank != 3 or w.rank != 3 or r.rank != 3 or r.shape[2] < 1:
        raise InferenceError(f"expected X, W and R of rank 3, found shapes {[list(v.shape) for v in (x, w, r)]}")
    batch_first = bool(node.get("layout", 0))
    steps, batch = x.shape[1::-1] if batch_first else x.shape[:2]
    features, hidden = x.shape[2], r.shape[2]
    if node.get("hidden_size", hidden) != hidden:
        raise InferenceError(f"hidden_size {node.get('hidden_size', hidden)} does not fit R of {list(r.shape)}")
    width, state = gates * hidden, (batch, directions, hidden) if batch_first else (directions, batch, hidden)
    _expect("W", w, (directions, width, features))
    _expect("R", r, (directions, width, hidden))
    _expect("B", bias, (directions, 2 * width))
    _expect("sequence_lens", lengths, (batch,))
    _expect("initial_h", h0, state)
    linear_before_reset = bool(node.get("linear_before_reset", 0))

    added = recurrent_bias = None
    if bias is not None:
        source = bias

        def input_bias() -> Value:
            return _input_bias(context, source, gates, hidden, linear_before_reset)

        def hidden_bias() -> Value:
            return strided(context, source, (2 * gates - 1) * hidden, (directions, hidden), (2 * width, 1))

        added = context.packed(bias, ("recurrent", linear_before_reset), input_bias)
        if linear_before_reset:
            recurrent_bias = context.packed(bias, "hidden", hidden_bias)
    columns, rows = directions * width, steps * batch
    weights = packed_b(context, w, 1, features, columns, True)
    ints = [rows, columns, features, 0, 0, 1, 0, 1, 0]
    shape = (rows, columns)
    shares = context.call("gemm", [x, weights, added, None], shape, x.dtype, ints, [1.0, 1.0, 0.0, 0.0])

    recurrent = packed_b(context, r, directions * gates, hidden, hidden, True, as_float32=True)  # read in every step
    codes, parameters = _functions(node)
    option = linear_before_reset or bool(node.get("input_forget", 0))
    reverse = node.get("direction", b"forward") == b"reverse"
    ints = [steps, batch, hidden, directions, int(reverse), int(batch_first), int(option), *codes]
    operands = [shares, recurrent, lengths, h0]
    outputs: list[tuple[Sequence[int], np.dtype[Any]]]
    outputs = [((batch, steps, directions, hidden) if batch_first else (steps, directions, batch, hidden), x.dtype)]
    outputs.append((state, x.dtype))
    if node.op_type == "LSTM":
        c0, peepholes = _optional(inputs, 6), _optional(inputs, 7)
        _expect("initial_c", c0, state)
        _expect("P", peepholes, (directions, 3 * hidden))
        operands += [c0, peepholes]
        outputs.append((state, x.dtype))
    elif node.op_type == "GRU":
        operands.append(recurrent_bias)
    floats = [float(node.get("clip", math.inf)), *parameters]
    return context.call_many(node.op_type.lower(), operands, outputs, ints, floats)


# ---- LSTM with weights of 8 bits


def _quantized_refusal(model: Model, view: NodeView) -> str | None:
    values = model.node_inputs[view.index].tolist()
    if len(values) != 12:
        return f"DynamicQuantizeLSTM with {len(values)} inputs; expected 12"
    for position, name in (
        (1, "W"),
        (2, "R"),
        (8, "W_scale"),
        (9, "W_zero_point"),
        (10, "R_scale"),
        (11, "R_zero_point"),
    ):
        if values[position] < 0 or not model.is_constant[values[position]]:
            return f"DynamicQuantizeLSTM whose input {name} is not constant"
    names = [name.decode("utf-8", "replace").lower() for name in view.attributes.get("activations", ())]
    if names and names != list(_DEFAULTS["LSTM"]) * _directions(view.attributes):
        return f"DynamicQuantizeLSTM with activations {names}"
    clip = view.attributes.get("clip", 0.0)
    return None if clip >= 0 else f"DynamicQuantizeLSTM with clip = {clip!r}"


@operator(
    "com.microsoft::DynamicQuantizeLSTM",
    dtypes=(F32, _BYTES, _BYTES, F32, ("int32",), F32, F32, F32, F32, _BYTES, F32, _BYTES),
    attributes={
        "activations": None,
        "clip": None,
        "direction": _ATTRIBUTES["direction"],
        "hidden_size": None,
        "input_forget": (0,),
    },
    check=_quantized_refusal,
)
def _dynamic_quantize_lstm(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    """LSTM with weights that are widened when the model is compiled.

    onnxruntime also rounds x and the state of each step to 8 bits, by scales that it derives from their ranges. Here
    they stay float32, so results differ from onnxruntime's by that rounding."""
    weights = [
        _widened(context, *(_required(inputs[i]) for i in (at, scale, scale + 1))) for at, scale in ((1, 8), (2, 10))
    ]
    attributes = {name: value for name, value in node.attributes.items() if name not in ("clip", "activations")}
    if node.get("clip", 0.0) > 0:  # 0: no limit
        attributes["clip"] = node.get("clip", 0.0)
    lstm = Node("LSTM", node.opset, attributes, node.num_outputs)
    return list(_recurrent(context, lstm, [inputs[0], *weights, *inputs[3:8]]))


def _widened(context: Context, levels: Value, scale: Value, zero: Value) -> Value:
    """Weights [directions, rows, columns] of bytes as float32 [directions, columns, rows], as LSTM takes them. There
    is one scale and zero point for each direction, or for each of its columns."""
    assert levels.data is not None
    assert scale.data is not None
    assert zero.data is not None
    if levels.rank != 3 or levels.dtype != zero.dtype:
        raise InferenceError(
            f"weights {levels.dtype}{list(levels.shape)} with zero points {zero.dtype}: expected rank 3 and one type"
        )
    directions, _, columns = levels.shape
    for name, value in (("scale", scale), ("zero point", zero)):
        if value.shape not in ((directions,), (directions, columns)):
            raise InferenceError(f"a {name} of shape {list(value.shape)} does not fit weights {list(levels.shape)}")
    factors, middles = scale.data.reshape(directions, 1, -1), zero.data.reshape(directions, 1, -1).astype(np.int32)

    def make() -> Value:
        assert levels.data is not None
        wide = (levels.data.astype(np.int32) - middles).astype(np.float32) * factors
        return context.constant(np.ascontiguousarray(wide.transpose(0, 2, 1)))

    digest = hashlib.sha256(scale.data.tobytes() + zero.data.tobytes()).digest()[:16]
    return context.packed(levels, ("widened", str(levels.dtype), digest), make)
