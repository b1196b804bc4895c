"""LSTM, GRU and RNN: one matrix product computes the input's part of all gates and steps; one kernel does the rest."""

from __future__ import annotations

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
_F32 = np.dtype(np.float32)


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


@operator("RNN", dtypes=(F32, F32, F32, F32, ("int32",), F32), attributes=_ATTRIBUTES, check=_refusal, further=(0,))
@operator(
    "GRU",
    dtypes=(F32, F32, F32, F32, ("int32",), F32),
    attributes=_ATTRIBUTES | {"linear_before_reset": (0, 1)},
    check=_refusal,
    further=(0,),
)
@operator(
    "LSTM",
    dtypes=(F32, F32, F32, F32, ("int32",), F32),
    attributes=_ATTRIBUTES | {"input_forget": (0, 1)},
    check=_refusal,
    further=(0,),
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
    width = gates * hidden
    _expect("W", w, (directions, width, features))
    _expect("R", r, (directions, width, hidden))
    _expect("B", bias, (directions, 2 * width))
    _expect("sequence_lens", lengths, (batch,))
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
    operands = [shares, recurrent, lengths, h0]
    if node.op_type == "LSTM":
        operands += [_optional(inputs, 6), _optional(inputs, 7), None]
    elif node.op_type == "GRU":
        operands.append(recurrent_bias)
    return _steps(context, node, (steps, batch, hidden), operands)


def _steps(context: Context, node: Node, sizes: tuple[int, int, int], operands: list[Value | None]) -> list[Value]:
    """All steps of a layer in one call; ``operands``: as its kernel takes them."""
    (steps, batch, hidden), directions = sizes, _directions(node.attributes)
    batch_first = bool(node.get("layout", 0))
    state = (batch, directions, hidden) if batch_first else (directions, batch, hidden)
    _expect("initial_h", operands[3], state)
    option = bool(node.get("linear_before_reset", 0)) or bool(node.get("input_forget", 0))
    reverse = node.get("direction", b"forward") == b"reverse"
    codes, parameters = _functions(node)
    ints = [steps, batch, hidden, directions, int(reverse), int(batch_first), int(option), *codes]
    every = (batch, steps, directions, hidden) if batch_first else (steps, directions, batch, hidden)
    outputs: list[tuple[Sequence[int], np.dtype[Any]]] = [(every, _F32), (state, _F32)]
    if node.op_type == "LSTM":
        _expect("initial_c", operands[4], state)
        _expect("P", operands[5], (directions, 3 * hidden))
        outputs.append((state, _F32))
    floats = [float(node.get("clip", math.inf)), *parameters]
    return context.call_many(node.op_type.lower(), operands, outputs, ints, floats)
