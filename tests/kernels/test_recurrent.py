"""lstm, gru and rnn against a naive twin in float64, over sizes, lengths, options and instruction sets."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero import _kernels
from hetero._sizes import ask
from hetero.errors import InferenceError

pytestmark = pytest.mark.spread(2)

VARIANTS = _kernels.variants("lstm", "gru", "rnn")
GATES = {"lstm": 4, "gru": 3, "rnn": 1}
FUNCTIONS = {"lstm": (2, 1, 1), "gru": (2, 1), "rnn": (1,)}  # sigmoid, tanh
Array = np.ndarray[Any, Any]

# Code -> the activation with its parameters a and b.
ACTIVATIONS: tuple[Callable[[Array, float, float], Array], ...] = (
    lambda x, a, b: np.maximum(x, 0),
    lambda x, a, b: np.tanh(x),
    lambda x, a, b: 1 / (1 + np.exp(-x)),
    lambda x, a, b: a * x + b,
    lambda x, a, b: np.where(x < 0, a * x, x),
    lambda x, a, b: np.where(x > a, x, 0),
    lambda x, a, b: a * np.tanh(b * x),
    lambda x, a, b: np.clip(a * x + b, 0, 1),
    lambda x, a, b: np.where(x < 0, a * np.expm1(np.minimum(x, 0)), x),
    lambda x, a, b: x / (1 + np.abs(x)),
    lambda x, a, b: np.logaddexp(0, x),
)


@dataclasses.dataclass
class Layer:
    """What the kernel takes, in ONNX's layout with the step first."""

    kind: str
    z: Array  # [steps, batch, dirs, gates, hidden]
    r: Array  # [dirs, gates, hidden, hidden]
    lengths: Array | None = None
    h0: Array | None = None
    c0: Array | None = None
    peepholes: Array | None = None
    bias: Array | None = None
    reverse: bool = False
    option: bool = False
    clip: float = math.inf
    functions: tuple[int, ...] = ()
    parameters: tuple[float, ...] = ()

    @property
    def codes(self) -> tuple[int, ...]:
        return self.functions or FUNCTIONS[self.kind] * self.z.shape[2]

    @property
    def floats(self) -> tuple[float, ...]:
        return self.parameters or (0.0,) * (2 * len(self.codes))


def run(layer: Layer, variant: str, batch_first: bool = False) -> list[Array]:
    """The kernel's results, the step first."""
    steps, batch, dirs, gates, hidden = layer.z.shape
    turn = (1, 0, 2, 3, 4) if batch_first else (0, 1, 2, 3, 4)
    panels = -(-hidden // 16)
    packed = _kernels.call(
        "pack_b",
        [layer.r],
        [((dirs * gates * panels * 16 * hidden,), np.float32)],
        [dirs * gates, hidden, hidden, 1],
        variant=variant,
    )[0]
    states = [None if s is None else s.swapaxes(0, 1) if batch_first else s for s in (layer.h0, layer.c0)]
    inputs = [np.ascontiguousarray(layer.z.transpose(turn)), packed, layer.lengths, states[0]]
    state = (batch, dirs, hidden) if batch_first else (dirs, batch, hidden)
    specs = [((batch, steps, dirs, hidden) if batch_first else (steps, dirs, batch, hidden), np.float32)]
    specs += [(state, np.float32)] * (2 if layer.kind == "lstm" else 1)
    if layer.kind == "lstm":
        inputs += [states[1], layer.peepholes, None]
    elif layer.kind == "gru":
        inputs.append(layer.bias)
    ints = [steps, batch, hidden, dirs, layer.reverse, batch_first, layer.option, *layer.codes]
    scratch = 4 * batch * (gates + 2) * 16 * panels
    floats = [layer.clip, *layer.floats]
    y, *last = _kernels.call(layer.kind, inputs, specs, ints, floats, scratch, variant)
    return [y.transpose(1, 2, 0, 3), *(s.swapaxes(0, 1) for s in last)] if batch_first else [y, *last]


def naive(layer: Layer) -> list[Array]:
    """One sequence, one direction, one step at a time."""
    steps, batch, dirs, gates, hidden = layer.z.shape
    z, r = layer.z.astype(np.float64), layer.r.astype(np.float64)
    y = np.zeros((steps, dirs, batch, hidden))
    last = [np.zeros((dirs, batch, hidden)) for _ in range(2 if layer.kind == "lstm" else 1)]
    per_direction = len(layer.codes) // dirs
    for d, b in itertools.product(range(dirs), range(batch)):
        length = steps if layer.lengths is None else int(layer.lengths[b])
        h = np.zeros(hidden) if layer.h0 is None else layer.h0[d, b].astype(np.float64)
        c = np.zeros(hidden) if layer.c0 is None else layer.c0[d, b].astype(np.float64)
        p = np.zeros((3, hidden)) if layer.peepholes is None else layer.peepholes[d].astype(np.float64)

        def function(i: int, x: Array, d: int = d) -> Array:
            at = d * per_direction + i
            a, b = layer.floats[2 * at : 2 * at + 2]
            return ACTIVATIONS[layer.codes[at]](np.clip(x, -layer.clip, layer.clip), a, b)

        def unclipped(i: int, x: Array, d: int = d) -> Array:
            at = d * per_direction + i
            return ACTIVATIONS[layer.codes[at]](x, *layer.floats[2 * at : 2 * at + 2])

        for step in range(length):
            t = length - 1 - step if layer.reverse or d else step
            gate, sums = z[t, b, d], np.array([r[d, g] @ h for g in range(gates)])
            if layer.kind == "rnn":
                h = function(0, gate[0] + sums[0])
            elif layer.kind == "gru":
                update, reset = function(0, gate[0] + sums[0]), function(0, gate[1] + sums[1])
                if layer.option:
                    inner = reset * (sums[2] + (0 if layer.bias is None else layer.bias[d]))
                else:
                    inner = r[d, 2] @ (reset * h)
                h = (1 - update) * function(1, gate[2] + inner) + update * h
            else:
                i = function(0, gate[0] + sums[0] + p[0] * c)
                f = 1 - i if layer.option else function(0, gate[2] + sums[2] + p[2] * c)
                c = f * c + i * function(1, gate[3] + sums[3])
                h = function(0, gate[1] + sums[1] + p[1] * c) * unclipped(2, c)
            y[t, d, b] = h
        for target, state in zip(last, (h, c), strict=False):
            target[d, b] = state
    return [y, *last]


def random_layer(
    rng: np.random.Generator, kind: str, steps: int, batch: int, dirs: int, hidden: int, **options: Any
) -> Layer:
    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    gates = GATES[kind]
    layer = Layer(kind, normal(steps, batch, dirs, gates, hidden), normal(dirs, gates, hidden, hidden) / hidden**0.5)
    if options.pop("states", False):
        layer.h0 = normal(dirs, batch, hidden)
        layer.c0 = normal(dirs, batch, hidden) if kind == "lstm" else None
        layer.peepholes = normal(dirs, 3, hidden) if kind == "lstm" else None
    if kind == "gru" and options.get("option"):
        layer.bias = normal(dirs, hidden)
    if options.pop("ragged", False):
        layer.lengths = rng.integers(0, steps + 1, batch).astype(np.int32)
    return dataclasses.replace(layer, **options)


def assert_close(found: list[Array], wanted: list[Array]) -> None:
    for f, w in zip(found, wanted, strict=True):
        assert f.shape == w.shape
        np.testing.assert_allclose(f, w, rtol=2e-5, atol=2e-5 * max(1.0, float(np.abs(w).max(initial=0))))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize(("batch", "hidden"), [(1, 1), (1, 16), (1, 70), (2, 33), (3, 64), (4, 31), (9, 20), (5, 300)])
def test_sizes(kind: str, batch: int, hidden: int, variant: str) -> None:
    rng = np.random.default_rng(batch * 1000 + hidden)
    layer = random_layer(rng, kind, 3, batch, 2, hidden, states=True)
    assert_close(run(layer, variant), naive(layer))


@pytest.mark.parametrize("kind", GATES)
@given(
    seed=st.integers(0, 2**32),
    steps=st.integers(0, 5),
    batch=st.integers(0, 6),
    dirs=st.integers(1, 2),
    hidden=st.integers(1, 40),
    options=st.fixed_dictionaries(
        {name: st.booleans() for name in ("states", "ragged", "reverse", "option")}
        | {"clip": st.sampled_from([math.inf, 0.4])}
    ),
    batch_first=st.booleans(),
    variant=st.sampled_from(VARIANTS),
)
def test_options(
    kind: str,
    seed: int,
    steps: int,
    batch: int,
    dirs: int,
    hidden: int,
    options: dict[str, Any],
    batch_first: bool,
    variant: str,
) -> None:
    rng = np.random.default_rng(seed)
    layer = random_layer(rng, kind, steps, batch, dirs, hidden, **options)
    assert_close(run(layer, variant, batch_first), naive(layer))


def run_bytes(layer: Layer, levels: Array, zeros: Array, scales: Array, variant: str) -> list[Array]:
    """lstm with R in bytes: ``levels`` [dirs, gates, in, out], ``zeros`` and ``scales`` [dirs, gates, out]."""
    steps, batch, dirs, gates, hidden = layer.z.shape
    size = dirs * gates * ask("quad_bytes", hidden, hidden)
    ints = [dirs * gates, hidden, hidden]
    packed = _kernels.call("pack_quads", [levels, zeros], [((size,), np.uint8)], ints, variant=variant)[0]
    specs = [((steps, dirs, batch, hidden), np.float32), *[((dirs, batch, hidden), np.float32)] * 2]
    inputs = [layer.z, packed, layer.lengths, layer.h0, layer.c0, layer.peepholes, scales]
    ints = [steps, batch, hidden, dirs, layer.reverse, False, layer.option, *layer.codes]
    scratch = 4 * batch * (gates + 2) * 16 * -(-hidden // 16)
    return _kernels.call("lstm", inputs, specs, ints, [layer.clip, *layer.floats], scratch, variant)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize(
    ("batch", "hidden"), [(1, 1), (1, 70), (1, 96), (2, 33), (3, 64), (4, 31), (9, 20), (13, 16), (29, 5), (2, 300)]
)
def test_weights_of_bytes(batch: int, hidden: int, each: bool, dtype: Any, variant: str) -> None:
    rng = np.random.default_rng(batch * 1000 + hidden)
    layer = random_layer(rng, "lstm", 3, batch, 2, hidden, states=True)
    limits = np.iinfo(dtype)
    levels = rng.integers(limits.min, limits.max + 1, (2, 4, hidden, hidden)).astype(dtype)
    zeros = np.broadcast_to(rng.integers(limits.min, limits.max + 1, (2, 4, hidden if each else 1)), (2, 4, hidden))
    zeros = np.ascontiguousarray(zeros).astype(dtype)
    scales = rng.uniform(1e-3, 3e-3, (2, 4, hidden)).astype(np.float32)
    assert layer.h0 is not None
    layer.h0[:, batch // 2] *= rng.choice([0, 1, 30])

    # One step has the rounded states of the caller. More steps are as many calls, bit for bit.
    wide = (levels.astype(np.float64) - zeros[:, :, None]) * scales[:, :, None]
    first = dataclasses.replace(layer, z=layer.z[:1])
    rounded = np.stack([rounded_to_bytes(state) for state in layer.h0])
    wanted = naive(dataclasses.replace(first, r=wide.swapaxes(2, 3), h0=rounded))
    assert_close(run_bytes(first, levels, zeros, scales, variant), wanted)
    forward = dataclasses.replace(
        random_layer(rng, "lstm", 3, batch, 1, hidden, ragged=True), h0=layer.h0[:1], c0=None, peepholes=None
    )
    whole = run_bytes(forward, levels[:1], zeros[:1], scales[:1], variant)
    assert forward.lengths is not None
    for step in range(3):
        lengths = np.clip(forward.lengths - step, 0, 1).astype(np.int32)
        one = dataclasses.replace(forward, z=forward.z[step : step + 1], lengths=lengths)
        y, forward.h0, forward.c0 = run_bytes(one, levels[:1], zeros[:1], scales[:1], variant)
        assert np.array_equal(y[0], whole[0][step])
    assert np.array_equal(forward.h0, whole[1])
    assert np.array_equal(forward.c0, whole[2])


def rounded_to_bytes(x: Array) -> Array:
    """x as DynamicQuantizeLinear and DequantizeLinear leave it."""
    low, high = min(np.float32(0), x.min()), max(np.float32(0), x.max())
    scale = (high - low) / np.float32(255) if high > low else np.float32(1)
    zero = np.rint(-low / scale)
    return ((np.clip(np.rint(x / scale) + zero, 0, 255) - zero) * scale).astype(np.float32)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("code", range(len(ACTIVATIONS)))
def test_activations(code: int, variant: str) -> None:
    rng = np.random.default_rng(code)
    for kind, per_direction in (("rnn", 1), ("gru", 2), ("lstm", 3)):
        layer = random_layer(
            rng, kind, 3, 2, 1, 19, functions=(code,) * per_direction, parameters=(0.3, 0.2) * per_direction
        )
        assert_close(run(layer, variant), naive(layer))


@pytest.mark.parametrize("length", [-1, 4])
@pytest.mark.parametrize("kind", GATES)
def test_a_length_outside_the_steps_is_an_error(kind: str, length: int) -> None:
    layer = random_layer(np.random.default_rng(0), kind, 3, 2, 1, 5)
    layer.lengths = np.array([3, length], np.int32)
    with pytest.raises(InferenceError, match="index"):
        run(layer, VARIANTS[0])


@pytest.mark.parametrize("kind", GATES)
def test_operands_that_do_not_fit_are_errors(kind: str) -> None:
    layer = random_layer(np.random.default_rng(0), kind, 3, 2, 1, 5)
    for wrong in ({"h0": np.zeros((1, 2, 4), np.float32)}, {"functions": (11,) * len(FUNCTIONS[kind])}):
        with pytest.raises(InferenceError, match="do not fit"):
            run(dataclasses.replace(layer, **wrong), VARIANTS[0])
