"""The contract suite on every device that ships."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from hetero.devices.profile import ProfilePlugin, load_profile
from hetero.devices.template import create_plugin as create_template
from hetero.errors import DeviceUnavailable
from hetero.plugin import Plugin
from hetero.testing import PluginContract


def resolve(name: str) -> Plugin:
    """The plugins a profile may run on; TEMPLATE stands in where a device is not there."""
    if name not in ("CPU", "TEMPLATE"):
        raise DeviceUnavailable(f"unknown device {name!r}")
    return create_template()


class TestTemplate(PluginContract):
    @pytest.fixture
    def plugin(self) -> Plugin:
        return create_template()


class TestShippedProfile(PluginContract):
    """The simulated FPGA, executed by the reference implementations."""

    @pytest.fixture
    def plugin(self) -> Plugin:
        with resources.as_file(resources.files("hetero") / "profiles" / "fpga.toml") as path:
            return ProfilePlugin(load_profile(Path(path)), resolve)
