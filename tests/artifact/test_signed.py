"""Exported and cached files with a signature: the example of docs/security.md."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest

import hetero
from exported_models import X, bits, network
from forging import entries_of, forged
from hetero import errors

PAGE = Path(__file__).parents[2] / "docs" / "security.md"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    """The names that the page's example defines."""
    (snippet,) = (text for text in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "hmac" in text)
    names: dict[str, Any] = {}
    exec(snippet.partition("core =")[0], names)
    return names


def signed(example: dict[str, Any], key: bytes = b"k" * 32) -> dict[str, Any]:
    return {"CACHE_ENCRYPTION_CALLBACKS": example["signed_by"](key)}


def exported(config: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    hetero.Core().compile_model(network(), "CPU", config).export_model(stream)
    return stream.getvalue()


def test_a_signed_file_is_imported_with_its_key(example: dict[str, Any]) -> None:
    data = exported(signed(example))
    plain = hetero.Core().compile_model(network(), "CPU")
    assert bits(hetero.load(data, config=signed(example))(X)) == bits(plain(X))


@pytest.mark.parametrize("at", [0, 31, 32, 500, -1])
def test_a_changed_byte_is_refused(example: dict[str, Any], at: int) -> None:
    data = bytearray(exported(signed(example)))
    data[at] ^= 1
    with pytest.raises(errors.Corrupt, match="not signed with this key"):
        hetero.load(bytes(data), config=signed(example))


def test_a_forgery_with_right_digests_is_refused(example: dict[str, Any]) -> None:
    """The same file without a signature is accepted."""
    plain = exported({})
    (weights, *_) = (name for name in entries_of(plain) if name.startswith("weights/"))
    forgery = forged(plain, entries=lambda entries: entries.update({weights: bytes(len(entries[weights]))}))
    assert bits(hetero.load(forgery)(X)) != bits(hetero.load(plain)(X))
    signature = exported(signed(example))[:32]
    for data in (forgery, signature + forgery, bytes(32) + forgery):
        with pytest.raises(errors.Corrupt, match="not signed with this key"):
            hetero.load(data, config=signed(example))


def test_another_key_and_no_key_are_refused(example: dict[str, Any]) -> None:
    data = exported(signed(example))
    with pytest.raises(errors.Corrupt, match="not signed with this key"):
        hetero.load(data, config=signed(example, b"other"))
    with pytest.raises(errors.Corrupt, match="CACHE_ENCRYPTION_CALLBACKS"):
        hetero.load(data)


def test_the_cache_makes_a_forged_entry_again(example: dict[str, Any], tmp_path: Path) -> None:
    config = {**signed(example), "CACHE_DIR": str(tmp_path)}
    first = hetero.Core().compile_model(network(), "CPU", config)
    (entry,) = tmp_path.iterdir()
    entry.write_bytes(exported({}))
    with pytest.warns(RuntimeWarning, match="will be replaced"):
        again = hetero.Core().compile_model(network(), "CPU", config)
    assert bits(again(X)) == bits(first(X))
    assert hetero.Core().compile_model(network(), "CPU", config).get_property("LOADED_FROM_CACHE")
