"""The device RAY: submodels in actors of a Ray cluster, on this machine or on others. See docs/hosts.md."""

from .plugin import RayPlugin, create_plugin

__all__ = ["RayPlugin", "create_plugin"]
