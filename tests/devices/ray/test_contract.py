"""The contract suite on RAY, over a cluster of two nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from hetero.plugin import Plugin
from hetero.registry import Registry
from hetero.testing import PluginContract

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def registry(cluster: Any) -> Registry:
    """One for all tests, which so share the actors that wait for a model."""
    return Registry()


class TestRay(PluginContract):
    @pytest.fixture
    def plugin(self, registry: Registry) -> Plugin:
        return registry.plugin("RAY")

    def valid_values(self, plugin: Plugin, name: str) -> Sequence[Any]:
        # A place of its own each, where processes have to be started.
        return ("", "0", "1") if name == "DEVICE_ID" else super().valid_values(plugin, name)
