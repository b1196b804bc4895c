"""The C reader under a coverage-guided fuzzer with the address and undefined-behavior sanitizers.

pytest -m fuzz tests/fuzz                   two minutes
python tests/fuzz/fuzzing.py --minutes 60   as long as one likes
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fuzz import fuzzing

ASKED_FOR = "two minutes: pytest -m fuzz tests/fuzz"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if fuzzing.compiler() is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("fuzz")
    try:
        return fuzzing.build(folder)
    except RuntimeError as error:
        if "sanitize" in str(error) or "asan" in str(error):
            pytest.skip(f"the C compiler has no sanitizers: {error}")
        raise


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seeds")
    assert fuzzing.write_seeds(folder) > 500
    return folder


@pytest.mark.slow  # as all that use the fixtures, so that one process makes them once
def test_for_four_seconds(target: Path, seeds: Path) -> None:
    told = fuzzing.run(target, 4, seeds, seed=1)
    assert told["runs"] > 1000
    assert told["edges"] > 1000
    assert told["corpus"] > told["seeds"] > 100


@pytest.mark.fuzz
@pytest.mark.slow
def test_for_two_minutes(request: pytest.FixtureRequest) -> None:
    if "fuzz" not in request.config.option.markexpr:
        pytest.skip(ASKED_FOR)
    fuzzing.run(request.getfixturevalue("target"), 120, request.getfixturevalue("seeds"), seed=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "sound", "broken"),
    [
        pytest.param(  # a header, with which all files are compiled again
            *("wire.h", "if (field->value > (uint64_t)(end - at))", "if (field->value > (uint64_t)(end - at) + 1)"),
            marks=pytest.mark.exhaustive,
        ),
        ("index.c", "ht_scopes_free(&builder.scopes);", ""),
        pytest.param("order.c", ">= node)\n", "> node + 1)\n", marks=pytest.mark.exhaustive),
    ],
    ids=["a length one too long", "a leak", "a cycle taken for an order"],
)
def test_it_finds_what_was_broken_on_purpose(
    tmp_path: Path, target: Path, seeds: Path, monkeypatch: pytest.MonkeyPatch, file: str, sound: str, broken: str
) -> None:
    core = tmp_path / "core"
    core.mkdir()
    for path in [*fuzzing.CORE.glob("*.[ch]")]:
        shutil.copy(path, core)
    text = (core / file).read_text()
    assert text.count(sound) == 1
    (core / file).write_text(text.replace(sound, broken))
    monkeypatch.setattr(fuzzing, "CORE", core)
    monkeypatch.setattr(fuzzing, "SANITIZERS", [*fuzzing.SANITIZERS[:-1], f"-I{core}"])
    damaged = fuzzing.build(tmp_path, target, file)
    with pytest.raises(fuzzing.Broken):
        fuzzing.run(damaged, 10, seeds)
