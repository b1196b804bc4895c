"""RNN, GRU and LSTM.

onnx.reference ignores sequence lengths, clip, and all activations except the default ones (RNN rejects them), supports
RNN only from opset 7 on, and stores the number of directions in the operator during a run, which is not thread-safe.
Found by comparing with onnxruntime over directions, lengths, initial states, peepholes, clip and activations.

All three share one loop over time. It passes the input's share of the gates and the state to a cell, and keeps a
sequence's state once its length is reached. A reversed direction runs the same loop over inputs reversed within their
lengths.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from .table import Corrections, since

__all__ = ["CORRECTIONS"]

Activation = Callable[[np.ndarray], np.ndarray]

# Lowercase name -> function of (x, alpha, beta), defaults of alpha and beta (None: not used).
_ACTIVATIONS: dict[str, tuple[Callable[..., Any], float | None, float | None]] = {
    "relu": (lambda x, a, b: np.maximum(x, 0), None, None),
    "tanh": (lambda x, a, b: np.tanh(x), None, None),
    "sigmoid": (lambda x, a, b: 1 / (1 + np.exp(-x)), None, None),
    "affine": (lambda x, a, b: a * x + b, 1.0, 0.0),
    "leakyrelu": (lambda x, a, b: np.where(x >= 0, x, a * x), 0.01, None),
    "thresholdedrelu": (lambda x, a, b: np.where(x > a, x, 0), 1.0, None),
    "scaledtanh": (lambda x, a, b: a * np.tanh(b * x), 1.0, 1.0),
    "hardsigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), 0.2, 0.5),
    "elu": (lambda x, a, b: np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0))), 1.0, None),
    "softsign": (lambda x, a, b: x / (1 + np.abs(x)), None, None),
    "softplus": (lambda x, a, b: np.logaddexp(0, x), None, None),
}


def _activations(
    names: Sequence[str], alphas: Sequence[float] | None, betas: Sequence[float] | None
) -> list[Activation]:
    """The functions by name. Alphas and betas are assigned, in order, to the functions that use one."""
    alpha_values, beta_values = iter(alphas or ()), iter(betas or ())
    functions: list[Activation] = []
    for name in names:
        if name.lower() not in _ACTIVATIONS:
            raise ValueError(f"unknown activation {name!r}; known: {', '.join(_ACTIVATIONS)}")
        function, alpha, beta = _ACTIVATIONS[name.lower()]
        alpha = None if alpha is None else float(next(alpha_values, alpha))
        beta = None if beta is None else float(next(beta_values, beta))
        functions.append(functools.partial(function, a=alpha, b=beta))
    return functions


class _Recurrent(OpRun):
    """The loop over time. A subclass defines `num_gates`, `default_activations`, `num_states` and `cell`."""

    num_gates = 1
    num_states = 1
    default_activations: tuple[str, ...] = ("Tanh",)

    def cell(
        self,
        gates: np.ndarray,
        states: Sequence[np.ndarray],
        r: np.ndarray,
        recurrent_bias: np.ndarray,
        functions: Sequence[Activation],
        options: dict[str, Any],
    ) -> tuple[np.ndarray, ...]:
        """New states for one time step. ``gates``: float[batch, gates * hidden], input times weights plus bias."""
        raise NotImplementedError

    def _run(
        self,
        x: np.ndarray,
        w: np.ndarray,
        r: np.ndarray,
        b: np.ndarray | None = None,
        lengths: np.ndarray | None = None,
        *rest: np.ndarray | None,
        activations: Sequence[str] | None = None,
        activation_alpha: Sequence[float] | None = None,
        activation_beta: Sequence[float] | None = None,
        direction: str = "forward",
        layout: int = 0,
        output_sequence: int = 0,
        **options: Any,
    ) -> tuple[np.ndarray, ...]:
        del output_sequence  # opsets 1 and 3: whether to return Y; it is always returned
        hidden = r.shape[2]
        if layout:
            x = x.transpose(1, 0, 2)
        steps, batch = x.shape[:2]
        directions = w.shape[0]
        states = [np.zeros((directions, batch, hidden), x.dtype)] * self.num_states
        for position, state in enumerate(rest[: self.num_states]):
            if state is not None:
                states[position] = state.transpose(1, 0, 2) if layout else state
        peephole = rest[self.num_states] if len(rest) > self.num_states else None
        names = list(activations or self.default_activations * directions)
        functions = _activations(names, activation_alpha, activation_beta)
        per_direction = len(self.default_activations)
        sizes = np.full(batch, steps) if lengths is None else lengths.astype(np.int64)
        outputs, finals = [], []
        for d in range(directions):
            bias = np.zeros(2 * self.num_gates * hidden, x.dtype) if b is None else b[d]
            half = self.num_gates * hidden
            y, final = self._walk(
                x,
                sizes,
                direction == "reverse" or d == 1,
                [state[d] for state in states],
                w[d],
                r[d],
                bias[:half],
                bias[half:],
                functions[d * per_direction : (d + 1) * per_direction],
                {**options, "peephole": None if peephole is None else peephole[d]},
            )
            outputs.append(y)
            finals.append(final)
        y = np.stack(outputs, axis=1).astype(x.dtype)
        results = [np.stack([final[i] for final in finals]).astype(x.dtype) for i in range(self.num_states)]
        if layout:
            return y.transpose(2, 0, 1, 3), *(result.transpose(1, 0, 2) for result in results)
        return y, *results

    def _walk(
        self,
        x: np.ndarray,
        sizes: np.ndarray,
        backward: bool,
        states: list[np.ndarray],
        w: np.ndarray,
        r: np.ndarray,
        input_bias: np.ndarray,
        recurrent_bias: np.ndarray,
        functions: Sequence[Activation],
        options: dict[str, Any],
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Outputs [steps, batch, hidden] and final states of one direction."""
        steps, batch = x.shape[:2]
        times = np.arange(steps)[:, None]
        order = (
            np.where(times < sizes, sizes - 1 - times, times) if backward else np.broadcast_to(times, (steps, batch))
        )
        columns = np.arange(batch)
        y = np.zeros((steps, batch, r.shape[1]), x.dtype)
        for step in range(steps):
            gates = x[order[step], columns] @ w.T + input_bias
            following = self.cell(gates, states, r, recurrent_bias, functions, options)
            running = (step < sizes)[:, None]
            states = [np.where(running, new, old) for new, old in zip(following, states, strict=True)]
            y[order[step], columns] = np.where(running, following[0], 0)
        return y, states


def _clipped(gates: np.ndarray, clip: float | None) -> np.ndarray:
    return gates if clip is None else np.clip(gates, -clip, clip)


class RNN(_Recurrent):
    def cell(
        self,
        gates: np.ndarray,
        states: Sequence[np.ndarray],
        r: np.ndarray,
        recurrent_bias: np.ndarray,
        functions: Sequence[Activation],
        options: dict[str, Any],
    ) -> tuple[np.ndarray, ...]:
        total = gates + states[0] @ r.T + recurrent_bias
        return (functions[0](_clipped(total, options.get("clip"))),)


class GRU(_Recurrent):
    num_gates = 3
    default_activations = ("Sigmoid", "Tanh")

    def cell(
        self,
        gates: np.ndarray,
        states: Sequence[np.ndarray],
        r: np.ndarray,
        recurrent_bias: np.ndarray,
        functions: Sequence[Activation],
        options: dict[str, Any],
    ) -> tuple[np.ndarray, ...]:
        (h,) = states
        clip = options.get("clip")
        size = h.shape[1]
        update_reset = gates[:, : 2 * size] + h @ r[: 2 * size].T + recurrent_bias[: 2 * size]
        update, reset = np.split(functions[0](_clipped(update_reset, clip)), 2, axis=1)
        r_hidden, bias_hidden = r[2 * size :], recurrent_bias[2 * size :]
        if options.get("linear_before_reset"):
            recurrent = reset * (h @ r_hidden.T + bias_hidden)
        else:
            recurrent = (reset * h) @ r_hidden.T + bias_hidden
        candidate = functions[1](_clipped(gates[:, 2 * size :] + recurrent, clip))
        return ((1 - update) * candidate + update * h,)


class LSTM(_Recurrent):
    num_gates = 4
    num_states = 2
    default_activations = ("Sigmoid", "Tanh", "Tanh")

    def cell(
        self,
        gates: np.ndarray,
        states: Sequence[np.ndarray],
        r: np.ndarray,
        recurrent_bias: np.ndarray,
        functions: Sequence[Activation],
        options: dict[str, Any],
    ) -> tuple[np.ndarray, ...]:
        h, c = states
        f, g, last = functions
        clip = options.get("clip")
        i, o, forget, candidate = np.split(gates + h @ r.T + recurrent_bias, 4, axis=1)
        peephole = options["peephole"]
        p_i, p_o, p_f = np.split(peephole, 3) if peephole is not None else itertools.repeat(0, 3)
        i = f(_clipped(i + p_i * c, clip))
        forget = 1 - i if options.get("input_forget") else f(_clipped(forget + p_f * c, clip))
        c = forget * c + i * g(_clipped(candidate, clip))
        o = f(_clipped(o + p_o * c, clip))
        return o * last(c), c


CORRECTIONS: Corrections = since(1, RNN, GRU, LSTM)
