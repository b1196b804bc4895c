"""TEMPLATE: every ONNX operator through reference implementations.

It is the sample for authors of devices (read `plugin` first), the judge in tests, and the fallback of last resort:
slow, and right. `plugin` answers queries and makes compiled models; `resolve` finds the implementation of a node for
its operator set version; `program` runs a graph node by node; `control_flow` has the nodes with nested graphs;
`corrections` replaces what ``onnx.reference`` gets wrong or lacks.
"""

from __future__ import annotations

from .plugin import TemplatePlugin, create_plugin

__all__ = ["TemplatePlugin", "create_plugin"]
