"""A Ray cluster of two nodes on this machine, for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ray_cases import ray_cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ray_cluster(2) as found:
        yield found
