"""The device OPENCL: the contract suite, devices and properties."""

from __future__ import annotations

import pytest

from hetero.plugin import Plugin
from hetero.registry import Registry
from hetero.testing import PluginContract
from opencl import unavailable

pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable())


class TestOpencl(PluginContract):
    @pytest.fixture
    def plugin(self) -> Plugin:
        return Registry().plugin("OPENCL")
