"""Tests that every device passes, for authors to run on theirs.

Subclass `PluginContract` in a test file and give it a plugin::

    import pytest
    from hetero.testing import PluginContract
    from my_package import create_plugin

    class TestMyDevice(PluginContract):
        @pytest.fixture
        def plugin(self):
            return create_plugin()

Needs pytest, which hetero itself does not. Cases whose nodes the device refuses are skipped, but one at least must run:
a device with few operators overrides `PluginContract.cases` with models of its own.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("hetero.testing.contract")

from .cases import ContractCase, standard_cases  # noqa: E402
from .contract import PluginContract  # noqa: E402

__all__ = ["ContractCase", "PluginContract", "standard_cases"]
