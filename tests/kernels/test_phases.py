"""phases against NumPy's slices, in every instruction set."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero import InferenceError, _kernels
from hetero._sizes import ask

pytestmark = pytest.mark.spread(2)


@given(data=st.data())
def test_phases(data: st.DataObject) -> None:
    def two(low: int, high: int) -> list[int]:
        return [data.draw(st.integers(low, high)) for _ in range(2)]

    images, (height, width), (d, e) = two(0, 3), two(1, 40), two(1, 5)
    (rows, columns), (top, left) = two(1, 20), two(0, 6)
    x = np.random.default_rng(0).standard_normal((*images, height, width)).astype(np.float32)
    padded = np.zeros((*images, top + height + d * rows, left + width + e * columns), np.float32)
    padded[:, :, top : top + height, left : left + width] = x
    wanted = np.zeros((*images, d * rows, e * columns), np.float32)
    for a in range(d):
        for b in range(e):
            phase = padded[:, :, a::d, b::e][:, :, :rows, :columns]
            wanted[:, :, a * rows : (a + 1) * rows, b * columns : (b + 1) * columns] = phase
    for variant in _kernels.variants("phases"):
        ints = [d, e, rows, columns, top, left]
        (found,) = _kernels.call("phases", [x], [(wanted.shape, x.dtype)], [0, *ints], variant=variant)
        np.testing.assert_array_equal(found, wanted)
        covered = padded[:, :, : d * rows, : e * columns]
        height, width = data.draw(st.integers(0, d * rows)), data.draw(st.integers(0, e * columns))
        (back,) = _kernels.call("phases", [found], [((*images, height, width), x.dtype)], [1, *ints], variant=variant)
        np.testing.assert_array_equal(back, covered[:, :, :height, :width])


def test_refused() -> None:
    x, good = np.ones((1, 2, 5, 7), np.float32), [0, 2, 3, 3, 4, 0, 0]
    _kernels.call("phases", [x], [((1, 2, 6, 12), x.dtype)], good)
    for at, number in [(0, 2), (1, 0), (2, 1 << 31), (3, 2), (4, 5), (5, -1), (6, 1 << 31)]:
        with pytest.raises(InferenceError):
            _kernels.call("phases", [x], [((1, 2, 6, 12), x.dtype)], [*good[:at], number, *good[at + 1 :]])
    for shape, back in [((2, 2, 6, 12), 0), ((1, 1, 6, 12), 0), ((1, 12, 12), 0), ((1, 2, 7, 7), 1)]:
        operand = np.ones((1, 2, 6, 12), np.float32) if back else x
        with pytest.raises(InferenceError):
            _kernels.call("phases", [operand], [(shape, x.dtype)], [back, *good[1:]])
    with pytest.raises(InferenceError, match="element types"):
        _kernels.call("phases", [x.astype(np.float64)], [((1, 2, 6, 12), np.float64)], good)


@given(
    size=st.integers(1, 200), taps_end=st.integers(0, 60), dilation=st.integers(1, 40), pad=st.integers(0, 60),
    tile=st.sampled_from([2, 4]),
)  # fmt: skip
def test_no_phase_reaches_into_the_next(size: int, taps_end: int, dilation: int, pad: int, tile: int) -> None:
    out = size + pad + taps_end - 2 * dilation  # with these pads before and after
    if out < 1:
        return
    length = ask("phase_length", size, out, dilation, pad, tile)
    assert length % tile == 0
    assert length * dilation >= out
    line = np.zeros((dilation + 1) * length + 2)  # positions in the phases, side by side; what follows is padding
    for position in range(pad, pad + size):
        line[position % dilation * length + position // dilation] = position + 1
    for at in range(out):
        assert at // dilation < length
        first = at % dilation * length + at // dilation
        wanted = [at + tap * dilation + 1 if pad <= at + tap * dilation < pad + size else 0 for tap in range(3)]
        assert line[first : first + 3].tolist() == wanted
