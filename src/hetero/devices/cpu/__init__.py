"""The CPU device: compiled kernels, planned per input shape, run in one loop without Python."""

from .plugin import create_plugin

__all__ = ["create_plugin"]
