"""Operators whose modules are imported when a model has them."""

from __future__ import annotations

import subprocess
import sys

from hetero.devices.cpu import create_plugin, registry  # noqa: F401  the plugin registers the first operators
from hetero.devices.cpu.operators import halves


def test_each_module_registers_what_the_table_says() -> None:
    """In a process of its own, because a module registers its operators once."""
    program = """
import hetero.devices.cpu
from hetero.devices.cpu import registry
first = set(registry.OPERATORS)
assert not first & registry.LATER.keys(), "a form would be missing until the module is imported"
assert not registry.HOSTED
registry.load_all()
assert set(registry.OPERATORS) == first | registry.LATER.keys()
for name, module in registry.LATER.items():
    for entry in registry.OPERATORS[name]:
        lower = entry.lower
        if lower.__module__.endswith(".halves"):
            lower = dict(zip(lower.__code__.co_freevars, lower.__closure__))["entry"].cell_contents.lower
        assert lower.__module__ == module, name
assert registry.HOSTED
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_operators_of_later_modules_support_halves() -> None:
    registry.load_all()
    for name in halves._OPERATORS:
        forms = registry.OPERATORS[name]
        assert all("float16" in types for form in forms for types in form.dtypes if "float32" in types), name
        assert all(form.lower.__module__ == halves.__name__ for form in forms), name


def test_a_model_without_these_operators_does_not_import_them() -> None:
    program = """
import sys, numpy as np, onnx, onnx.helper as oh, hetero
x, y = (oh.make_tensor_value_info(name, 1, [2, 2]) for name in "xy")
graph = oh.make_graph([oh.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)
request = hetero.compile(model, "CPU").create_infer_request()
request.infer({"x": np.zeros((2, 2), np.float32)})
from hetero.devices.cpu import registry
unneeded = {*registry.LATER.values(), *registry.LATER_HOSTED, "hetero.devices.cpu.qdq"}
assert not unneeded & sys.modules.keys(), unneeded & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_unknown_operators_have_no_forms() -> None:
    assert not registry.forms_of("Never")
    assert registry.forms_of("Einsum") == registry.OPERATORS["Einsum"]
