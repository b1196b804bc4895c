"""TEMPLATE: runs every ONNX operator with a reference implementation.

It is an example for device authors (start with `plugin`), the reference in tests, and a correct but slow fallback.
`plugin` answers queries and compiles models. `resolve` finds the implementation of a node for its opset. `program` runs
a graph node by node, `control_flow` contains the operators with nested graphs, and `corrections` replaces
implementations that are wrong or missing in ``onnx.reference``.
"""

from __future__ import annotations

from .plugin import TemplatePlugin, create_plugin

__all__ = ["TemplatePlugin", "create_plugin"]
