"""Whether OpenCL can be tested here, and models that its tests share."""

from __future__ import annotations

import functools

from hetero.errors import DeviceUnavailable


@functools.cache
def unavailable() -> str:
    """Why the device OPENCL is not available; empty if it is."""
    from hetero.devices.opencl import backend

    try:
        backend.find_devices()
    except DeviceUnavailable as error:
        return str(error)
    return ""
