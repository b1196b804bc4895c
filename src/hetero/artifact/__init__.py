"""Exported models: one file with a compiled model, for devices to load without compiling it again.

The container is a ZIP archive (`layout`) with a manifest (`manifest`) and entries that can be mapped; `writer` and
`reader` are the container's two ends, `payload` what a device sees of it, `model` what devices store that compile from
ONNX. `hetero.compiling` imports them and keeps them in ``CACHE_DIR``.
"""

from __future__ import annotations

from .exporting import export_model
from .model import read_payload_model, write_payload_model
from .payload import ArrayRef, PayloadReader, PayloadWriter
from .reader import verify

__all__ = [
    "ArrayRef",
    "PayloadReader",
    "PayloadWriter",
    "export_model",
    "read_payload_model",
    "verify",
    "write_payload_model",
]
