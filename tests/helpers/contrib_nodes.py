"""Single nodes of onnxruntime's own operators: on CPU, and beside onnxruntime without optimizations."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from hetero import Core, Model
from onnxruntime_models import run_directly

__all__ = ["CONTRIB", "Array", "check", "floats", "given", "model_of", "refusal", "run"]

Array = np.ndarray[Any, Any]
CONTRIB = "com.microsoft"


def model_of(
    op: str,
    inputs: dict[str, Array],
    constants: tuple[str, ...] = (),
    outputs: int | tuple[str, ...] = 1,
    symbolic: bool = False,
    domain: str = CONTRIB,
    **attributes: Any,
) -> onnx.ModelProto:
    """One node. An input whose name begins with "-" is left out. ``symbolic``: no sizes are stated."""
    names = ["" if name.startswith("-") else name for name in inputs]
    made = [f"y{i}" for i in range(outputs)] if isinstance(outputs, int) else list(outputs)
    infos = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(array.dtype),
            [f"{name}{i}" for i in range(array.ndim)] if symbolic else array.shape,
        )
        for name, array in inputs.items()
        if name not in constants and not name.startswith("-")
    ]
    graph = helper.make_graph(
        [helper.make_node(op, names, made, domain=domain, **attributes)],
        op,
        infos,
        [onnx.ValueInfoProto(name=name) for name in made if name],
        [numpy_helper.from_array(inputs[name], name) for name in constants if name in inputs],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(CONTRIB, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def given(model: onnx.ModelProto, inputs: dict[str, Array]) -> dict[str, Array]:
    wanted = {value.name for value in model.graph.input}
    return {name: array for name, array in inputs.items() if name in wanted}


def run(model: onnx.ModelProto, inputs: dict[str, Array], device: str = "CPU") -> list[Array]:
    core = Core()
    return _run(core, core.read_model(model), given(model, inputs), device)


def _run(core: Core, model: Model, inputs: dict[str, Array], device: str) -> list[Array]:
    config = {"INFERENCE_NUM_THREADS": 1} if device == "CPU" else {}
    return list(core.compile_model(model, device, config)(inputs).values())


def refusal(model: onnx.ModelProto, device: str = "CPU") -> str:
    core = Core()
    reasons = core.query_model(core.read_model(model), device).reasons
    return next(iter(reasons.values()))[device] if reasons else ""


def check(op: str, inputs: dict[str, Array], rtol: float = 1e-4, atol: float = 1e-5, **options: Any) -> None:
    """Compares one node on CPU with onnxruntime and with TEMPLATE, with the sizes stated and not."""
    core, model = Core(), model_of(op, inputs, **options)
    read, arrays = core.read_model(model), given(model, inputs)
    wanted = run_directly(model, arrays)
    compare(_run(core, read, arrays, "CPU"), wanted, rtol, atol)
    # The definition rounds in other places, so that integers may differ by one level.
    compare(_run(core, read, arrays, "TEMPLATE"), wanted, rtol, max(atol, 1.0) if is_quantized(wanted) else atol)
    compare(run(model_of(op, inputs, symbolic=True, **options), inputs), wanted, rtol, atol)


def is_quantized(arrays: list[Array]) -> bool:
    return any(array.dtype.kind in "iu" and array.dtype.itemsize == 1 for array in arrays)


def compare(found: list[Array], wanted: list[Array], rtol: float, atol: float) -> None:
    assert len(found) == len(wanted)
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.dtype == theirs.dtype
        assert mine.shape == theirs.shape
        if mine.dtype.kind == "f":
            np.testing.assert_allclose(mine, theirs, rtol, atol)
        elif atol >= 1:
            assert np.abs(mine.astype(int) - theirs.astype(int)).max(initial=0) <= atol
        else:
            assert np.array_equal(mine, theirs)


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)
