"""OPENCL: GPUs of any vendor, and other devices that have an OpenCL driver.

`backend` finds the devices. `plugin` answers queries (`support`) and compiles models (`model`). A model is planned once
for each set of input shapes: `planner` turns its nodes into launches of kernels, with the functions in ``operators``.
`runner` runs a plan: it copies inputs to the device, starts the kernels, and copies results back. `device` holds what
belongs to one device: its queues, its compiled kernels, and its memory (`memory`). The kernels are in ``kernels``;
`elementwise` generates those of elementwise operators.
"""

from __future__ import annotations

from .plugin import OpenclPlugin, create_plugin

__all__ = ["OpenclPlugin", "create_plugin"]
