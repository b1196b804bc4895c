"""Exported models: one file with a compiled model, which devices load without compiling it again.

The container is a ZIP archive (`layout`) with a manifest (`manifest`) and mappable entries. `writer` and `reader`
access the container, `payload` is the interface of devices, and `model` stores ONNX models. `hetero.compiling` imports
exported models and manages ``CACHE_DIR``.
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
