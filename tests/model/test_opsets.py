"""Whether an operator means the same in two opsets."""

from __future__ import annotations

import pytest

from hetero.model.opsets import same_meaning


@pytest.mark.parametrize(
    ("op_type", "version", "other", "same"),
    [
        ("Relu", 17, 17, True),
        ("LeakyRelu", 16, 18, True),  # one definition
        ("LeakyRelu", 18, 16, True),
        ("Add", 7, 14, True),  # more types
        ("Add", 14, 13, False),  # fewer types
        ("Add", 6, 7, False),  # attributes gone: broadcasting
        ("PRelu", 6, 7, False),  # broadcasting, with the same signature
        ("PRelu", 7, 16, True),
        ("Softmax", 11, 13, False),  # another default axis
        ("ReduceSum", 11, 13, False),  # axes became an input
        ("Squeeze", 11, 13, False),
        ("Pad", 13, 18, False),  # an input more
        ("GroupNormalization", 18, 21, False),  # scales per channel
        ("GridSample", 16, 20, False),  # another default mode
        ("If", 16, 21, True),
        ("Upsample", 9, 10, False),  # deprecated
        ("Gelu", 19, 20, False),  # new
        ("NoSuchOperator", 17, 18, False),
        ("NoSuchOperator", 17, 17, True),
    ],
)
def test_same_meaning(op_type: str, version: int, other: int, same: bool) -> None:
    assert same_meaning("", op_type, version, other) is same


def test_operators_of_other_domains() -> None:
    assert same_meaning("com.example", "Op", 1, 1)
    assert not same_meaning("com.example", "Op", 1, 2)
    assert same_meaning("ai.onnx.ml", "Normalizer", 1, 3)
