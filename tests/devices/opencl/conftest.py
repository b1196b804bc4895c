"""How kernels are compiled for the tests of OPENCL."""

from __future__ import annotations

import pytest

OPTIMIZED = ("test_random_graphs.py", "test_real_models.py", "test_runner.py")


@pytest.fixture(autouse=True)
def unoptimized(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver for processors takes 0.2 s to optimize a kernel, more than the rest of most tests. The files above and
    exhaustive tests optimize theirs, as applications do."""
    if request.path.name not in OPTIMIZED and not request.node.get_closest_marker("exhaustive"):
        monkeypatch.setenv("PYOPENCL_BUILD_OPTIONS", "-cl-opt-disable")
