"""The device ORT: onnxruntime, with any of its execution providers as device id."""

from .plugin import OrtPlugin, create_plugin

__all__ = ["OrtPlugin", "create_plugin"]
