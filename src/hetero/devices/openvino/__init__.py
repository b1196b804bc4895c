"""The device OPENVINO: OpenVINO, with any of its devices as device id."""

from .plugin import OpenvinoPlugin, create_plugin

__all__ = ["OpenvinoPlugin", "create_plugin"]
