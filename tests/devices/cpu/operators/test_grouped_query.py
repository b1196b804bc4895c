"""GroupQueryAttention on the CPU device and on TEMPLATE, beside onnxruntime without optimizations."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from contrib_nodes import Array, check, floats, given, model_of, refusal, run
from hetero import Core, InferenceError
from onnxruntime_models import run_directly

OP = "GroupQueryAttention"


def operands(
    batch: int, steps: int, past: int, heads: int = 4, groups: int = 2, size: int = 16, packed: bool = False
) -> dict[str, Array]:
    """``past``: positions of the cache before the new ones."""
    total = past + steps
    if packed:
        inputs = {"q": floats(batch, steps, (heads + 2 * groups) * size), "-k": floats(1), "-v": floats(1)}
    else:
        shape = (batch, steps, groups * size)
        inputs = {"q": floats(batch, steps, heads * size), "k": floats(*shape, seed=1), "v": floats(*shape, seed=2)}
    cache = (batch, groups, past, size)
    return inputs | {
        "pk": floats(*cache, seed=3),
        "pv": floats(*cache, seed=4),
        "ends": np.full(batch, total - 1, np.int32),
        "total": np.array(total, np.int32),
    }


def angles(size: int = 16, length: int = 64) -> dict[str, Array]:
    values = np.arange(length)[:, None] / 10.0 ** np.arange(size // 2)
    return {"cos": np.cos(values).astype(np.float32), "sin": np.sin(values).astype(np.float32)}


SIZES = [(1, 1, 5), (2, 1, 9), (1, 7, 0), (2, 6, 0), (1, 3, 4), (1, 1, 40)]


@pytest.mark.spread(2)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_new_positions_after_a_past(sizes: tuple[int, int, int], packed: bool, groups: int) -> None:
    batch, steps, past = sizes
    common: dict[str, Any] = {"num_heads": 4, "kv_num_heads": groups, "outputs": 3, "constants": ("total",)}
    inputs = operands(batch, steps, past, groups=groups, packed=packed)
    check(OP, inputs, **common)
    check(OP, inputs, **common, scale=0.2, softcap=1.5)
    check(OP, inputs, **common, local_window_size=4)
    for interleaved in (0, 1):
        check(OP, inputs | angles(), **common, do_rotary=1, rotary_interleaved=interleaved)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize(("batch", "steps", "past"), [(1, 1, 5), (2, 6, 0), (1, 3, 4)])
@pytest.mark.parametrize("packed", [False, True])
def test_halves_are_rounded_once(batch: int, steps: int, past: int, packed: bool, kind: str) -> None:
    half = ml_dtypes.bfloat16 if kind == "bfloat16" else np.float16
    inputs = operands(batch, steps, past, packed=packed) | angles()
    halves = {name: array.astype(half) if array.dtype == np.float32 else array for name, array in inputs.items()}
    wide = {name: array.astype(np.float32) if array.dtype == half else array for name, array in halves.items()}
    options: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "outputs": 3}
    for symbolic in (False, True):
        common = options | {"constants": ("total",), "symbolic": symbolic}
        found, wanted = run(model_of(OP, halves, **common), halves), run(model_of(OP, wide, **common), wide)
        for one, other in zip(found, wanted, strict=True):
            assert one.dtype == half
            np.testing.assert_array_equal(one, other.astype(half))
    if kind == "float16":
        model = model_of(OP, halves, **options)
        expected = run_directly(model, given(model, halves))
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one.astype(np.float32), other.astype(np.float32), rtol=4e-3, atol=4e-3)
    for one, other in zip(run(model_of(OP, halves, **options), halves, "TEMPLATE"), found, strict=True):
        np.testing.assert_allclose(one.astype(np.float32), other.astype(np.float32), rtol=2e-2, atol=2e-2)


def test_options() -> None:
    common: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2, "outputs": 3, "constants": ("total",)}
    for batch, steps, past in SIZES:
        inputs = operands(batch, steps, past)
        check(OP, inputs, **common, smooth_softmax=1)
        none = {"-cos": floats(1), "-sin": floats(1), "-positions": floats(1)}
        bias = {"bias": floats(batch, 4, steps, past + steps)}
        check(OP, inputs | none | bias, **common)
        check(OP, inputs | none | {"bias": bias["bias"][:1, :1]}, **common)
        check(OP, inputs | none | {"-bias": floats(1), "sink": floats(4)}, **common)


def test_sequences_of_other_lengths() -> None:
    """Each sequence is shorter than the cache, whose rest is not read."""
    inputs = operands(3, 1, 9)
    inputs["ends"] = np.array([4, 0, 9], np.int32)
    for device in ("CPU", "TEMPLATE"):
        model = model_of(OP, inputs, ("total",), outputs=3, num_heads=4, kv_num_heads=2)
        found = run(model, inputs, device)
        for b, end in enumerate(inputs["ends"].tolist()):
            one = {name: array[b : b + 1] if array.ndim else array for name, array in inputs.items()}
            one |= {"pk": one["pk"][:, :, :end], "pv": one["pv"][:, :, :end], "total": np.array(end + 1, np.int32)}
            alone = model_of(OP, one, ("total",), outputs=3, num_heads=4, kv_num_heads=2)
            feed = {name: array for name, array in one.items() if name != "total"}
            wanted = run_directly(alone, feed)
            np.testing.assert_allclose(found[0][b : b + 1], wanted[0], 1e-4, 1e-5)
            np.testing.assert_allclose(found[1][b : b + 1, :, : end + 1], wanted[1], 1e-4, 1e-5)


@pytest.mark.parametrize("threads", [1, 2])
def test_decoding_step_by_step(threads: int) -> None:
    """One compiled model for a prompt and the steps after it; the total comes from the caller."""
    inputs = operands(1, 5, 0) | angles()
    model = model_of(OP, inputs, ("cos", "sin"), outputs=3, symbolic=True, num_heads=4, kv_num_heads=2, do_rotary=1)
    compiled = Core().compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": threads})
    past: tuple[Array, Array] = inputs["pk"], inputs["pv"]
    for steps in (5, 1, 1, 3, 1):
        feed = operands(1, steps, past[0].shape[2]) | {"pk": past[0], "pv": past[1]}
        found = list(compiled(feed).values())
        for mine, theirs in zip(found, run_directly(model, feed), strict=True):
            np.testing.assert_allclose(mine, theirs, 1e-4, 1e-5)
        past = found[1], found[2]


def test_a_bias_and_a_cache_with_room_for_more() -> None:
    """The bias has a column for each key up to the total, and none for the rest of the cache."""
    inputs = operands(1, 1, 9)
    inputs |= {"ends": np.array([4], np.int32), "total": np.array(5, np.int32)}
    inputs |= {"-cos": floats(1), "-sin": floats(1), "-positions": floats(1), "bias": floats(1, 4, 1, 5)}
    options: dict[str, Any] = {"outputs": 3, "num_heads": 4, "kv_num_heads": 2}
    model = model_of(OP, inputs, ("total",), **options)
    feed = {name: array for name, array in inputs.items() if name != "total" and not name.startswith("-")}
    wanted = run_directly(model, feed)
    for device in ("CPU", "TEMPLATE"):
        found = run(model, inputs, device)
        np.testing.assert_allclose(found[0], wanted[0], 1e-4, 1e-5)
        for mine, theirs in zip(found[1:], wanted[1:], strict=True):
            np.testing.assert_allclose(mine[:, :, :5], theirs[:, :, :5], 1e-4, 1e-5)
        for wrong in ({"ends": np.array([5], np.int32)}, {"bias": floats(1, 4, 1, 4)}):
            with pytest.raises(InferenceError):
                run(model_of(OP, inputs | wrong, ("total",), **options), inputs | wrong, device)


def test_bad_operands() -> None:
    inputs = operands(1, 1, 3)
    options: dict[str, Any] = {"outputs": 3, "num_heads": 4, "kv_num_heads": 2}
    assert "kv_num_heads = 3" in refusal(model_of(OP, inputs, outputs=3, num_heads=4, kv_num_heads=3))
    assert "local_window_size = 0" in refusal(model_of(OP, inputs, **options, local_window_size=0))
    assert "without cos_cache" in refusal(model_of(OP, inputs, **options, do_rotary=1))
    assert "qk_output" in refusal(model_of(OP, inputs, **options, qk_output=1))
    for device in ("CPU", "TEMPLATE"):
        for end in (4, 100, -1, -(2**31)):
            wrong = inputs | {"ends": np.array([end], np.int32)}
            with pytest.raises(InferenceError):
                run(model_of(OP, wrong, ("total",), **options), wrong, device)
        for name, array in (
            ("q", floats(1, 1, 33)),
            ("k", floats(1, 2, 32)),
            ("pk", floats(1, 2, 3, 4)),
            ("ends", np.zeros(2, np.int32)),
            ("total", np.array([4, 4], np.int32)),
        ):
            wrong = inputs | {name: array}
            assert refusal(model_of(OP, wrong, ("total",), **options), device)
            with pytest.raises(InferenceError):
                run(model_of(OP, wrong, **options, symbolic=True), wrong, device)
