"""The contract suite: tests that every device passes.

Subclass `PluginContract` in a test file and give it a plugin::

    import pytest
    from hetero.testing import PluginContract
    from my_package import create_plugin

    class TestMyDevice(PluginContract):
        @pytest.fixture
        def plugin(self):
            return create_plugin()

The suite requires pytest; hetero itself does not. Each test runs the models that the device supports as a whole. If
there are none, one test fails: override `PluginContract.cases` to return models that the device supports.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("hetero.testing.contract")

from .cases import ContractCase, standard_cases  # noqa: E402
from .contract import PluginContract  # noqa: E402

__all__ = ["ContractCase", "PluginContract", "standard_cases"]
