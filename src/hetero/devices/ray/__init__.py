"""The device RAY: submodels in actors of a Ray cluster, on this machine or on others.

See the page "Several hosts" of the documentation.
"""

from .plugin import RayPlugin, create_plugin

__all__ = ["RayPlugin", "create_plugin"]
