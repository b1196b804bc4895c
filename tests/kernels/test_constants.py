"""Constants that the kernels publish, and the scratch memory that they ask for."""

from __future__ import annotations

import numpy as np
import pytest

from hetero import _kernels
from hetero.errors import InferenceError


def test_constants_are_found_by_name() -> None:
    assert _kernels.constant("PANEL") > 0
    codes = [_kernels.constant(f"UNARY_{name}") for name in ("NONE", "RELU", "SHRINK", "SAME_TYPE_END", "ISINF")]
    assert codes == sorted(set(codes))
    with pytest.raises(ValueError, match="no constant 'PANELS'"):
        _kernels.constant("PANELS")


@pytest.mark.parametrize(("k", "n"), [(0, 5), (5, 0), (3, 5), (40, 33), (1000, 300)])
def test_gemm_gets_exactly_the_scratch_memory_that_it_needs(k: int, n: int) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((20, k), np.float32), rng.standard_normal((k, n), np.float32)
    scratch = 4 * 16 * min(k * -(-n // 16), 6144)  # as gemm.c states

    def run(scratch_bytes: int | None) -> np.ndarray:
        ints = [20, n, k, 0, 0, 0, 0, 0, 0]
        (made,) = _kernels.call(
            "gemm", [a, b, None, None], [((20, n), np.float32)], ints, [1.0, 1.0, 0.0, 0.0], scratch_bytes
        )
        return made

    for size in (scratch, None):
        np.testing.assert_allclose(run(size), a @ b, rtol=1e-4, atol=1e-4)
    if scratch:
        with pytest.raises(InferenceError):
            run(scratch - 1)
