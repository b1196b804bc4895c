"""CACHE_DIR and CACHE_ENCRYPTION_CALLBACKS."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import hetero
from exported_models import X, bits, network
from forging import forged
from hetero import errors
from hetero.compiling import cache
from hetero.measure import measure_costs

DEVICES = ("CPU", "TEMPLATE", "HETERO:CPU,TEMPLATE", "MULTI:CPU,CPU.1")


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def entries(folder: pathlib.Path) -> list[str]:
    return sorted(os.listdir(folder)) if folder.exists() else []


def compiled(folder: pathlib.Path, device: str = "CPU", model: onnx.ModelProto | None = None, **config: Any) -> Any:
    """By a Core of its own, as in another process."""
    core = hetero.Core()
    read = core.read_model(network() if model is None else model)
    return core.compile_model(read, device, {"CACHE_DIR": str(folder), **config})


def loaded(model: hetero.CompiledModel) -> bool:
    found = model.get_property("LOADED_FROM_CACHE")
    assert isinstance(found, bool)
    return found


@pytest.mark.parametrize("device", DEVICES)
def test_the_second_time_is_from_the_cache(tmp_path: pathlib.Path, device: str) -> None:
    first, second = compiled(tmp_path / "c", device), compiled(tmp_path / "c", device)
    assert [loaded(first), loaded(second)] == [False, True]
    assert bits(first(X)) == bits(second(X))
    assert len(entries(tmp_path / "c")) == 1
    without = hetero.Core().compile_model(hetero.Core().read_model(network()), device)
    assert not loaded(without)


def test_what_an_entry_depends_on(tmp_path: pathlib.Path) -> None:
    other_weights, other_nodes = network(), network()
    array = numpy_helper.to_array(other_weights.graph.initializer[0]).copy()
    array[-1, -1] += 1
    other_weights.graph.initializer[0].CopyFrom(numpy_helper.from_array(array, "first"))
    other_nodes.graph.node[1].op_type = "Abs"
    made = [
        compiled(tmp_path),
        compiled(tmp_path, model=other_weights),
        compiled(tmp_path, model=other_nodes),
        compiled(tmp_path, "CPU.1"),
        compiled(tmp_path, "TEMPLATE"),
        compiled(tmp_path, "HETERO:CPU,TEMPLATE"),
        compiled(tmp_path, "HETERO:TEMPLATE,CPU"),
        compiled(tmp_path, "HETERO:CPU,TEMPLATE", DEVICE_PROPERTIES={"CPU": {"INFERENCE_PRECISION_HINT": "bf16"}}),
        compiled(tmp_path, INFERENCE_PRECISION_HINT="bf16"),
        compiled(tmp_path, DISABLE_TRANSFORMATIONS=True),
    ]
    core = hetero.Core()
    core.set_property("CPU", {"INFERENCE_PRECISION_HINT": "f16"})
    model = core.read_model(network())
    made.append(core.compile_model(model, "HETERO:CPU,TEMPLATE", {"CACHE_DIR": str(tmp_path)}))
    pinned = {"pins": {"two": "TEMPLATE"}}
    made.append(hetero.Core().compile_model(model, "HETERO:CPU,TEMPLATE", {"CACHE_DIR": str(tmp_path)}, **pinned))
    made.append(compiled_with_affinity(tmp_path))
    assert not any(map(loaded, made))
    assert len(entries(tmp_path)) == len(made)
    assert loaded(compiled_with_affinity(tmp_path))
    assert loaded(compiled(tmp_path, DISABLE_TRANSFORMATIONS=True))


def compiled_with_affinity(folder: pathlib.Path) -> hetero.CompiledModel:
    core = hetero.Core()
    model = core.read_model(network()).with_affinity({"three": "TEMPLATE"})
    return core.compile_model(model, "HETERO:CPU,TEMPLATE", {"CACHE_DIR": str(folder)})


def test_every_rule_of_an_assignment_has_entries_of_its_own(tmp_path: pathlib.Path) -> None:
    rules: list[dict[str, Any]] = [
        {},
        {"MIN_SUBGRAPH": {"TEMPLATE": 2}},
        {"MIN_SUBGRAPH": {"TEMPLATE": 3}},
        {"STAY_TOGETHER": [["one", "two"]]},
        {"STAY_TOGETHER": [["two", "three"]]},
        {"MAX_MEMORY": {"TEMPLATE": 1 << 20}},
        {"MAX_MEMORY": {"TEMPLATE": 1 << 21}},
        {"MAX_MEMORY": {"CPU": 1 << 21}},
        {"ASSIGNMENT": "COST"},
        {"OBJECTIVE": "LATENCY"},
    ]
    warnings.simplefilter("ignore")  # sizes of an open dimension count as nothing
    made = [compiled(tmp_path, "HETERO:TEMPLATE,CPU", **rule) for rule in rules]
    core = hetero.Core()
    costs = measure_costs(core, core.read_model(network()), "HETERO:TEMPLATE,CPU", {"x": X})
    made.append(compiled(tmp_path, "HETERO:TEMPLATE,CPU", ASSIGNMENT="COST", COSTS=costs))
    assert not any(map(loaded, made))
    assert len(entries(tmp_path)) == len(made)
    assert all(loaded(compiled(tmp_path, "HETERO:TEMPLATE,CPU", **rule)) for rule in rules)


def test_the_most_subgraphs_of_a_device_are_part_of_the_key(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, most in enumerate((None, 3, 2), 1):
        monkeypatch.setattr("hetero.plugin.contract.Plugin.most_subgraphs", lambda *_, most=most: most)
        assert not loaded(compiled(tmp_path, "HETERO:TEMPLATE,CPU"))
        assert len(entries(tmp_path)) == number
        assert loaded(compiled(tmp_path, "HETERO:TEMPLATE,CPU"))


@pytest.mark.parametrize("device", ["HETERO:CPU,TEMPLATE", "MULTI:CPU,CPU.1"])
def test_properties_of_a_device_without_nodes(tmp_path: pathlib.Path, device: str) -> None:
    last = device.rpartition(",")[2]
    for loaded in (False, True):
        model = compiled(tmp_path, device, DEVICE_PROPERTIES={last: {"PERF_COUNT": True}})
        assert model.get_property("LOADED_FROM_CACHE") == loaded


def test_the_same_model_from_a_path_and_from_bytes(tmp_path: pathlib.Path) -> None:
    onnx.save(network(), tmp_path / "m.onnx")
    onnx.save(network(), tmp_path / "e.onnx", save_as_external_data=True, location="e.data", size_threshold=0)
    core = hetero.Core()
    core.set_property("CPU", {"CACHE_DIR": str(tmp_path / "c")})
    sources: list[Any] = [tmp_path / "m.onnx", (tmp_path / "m.onnx").read_bytes(), tmp_path / "m.onnx"]
    made = [core.compile_model(core.read_model(source), "CPU") for source in sources]
    assert list(map(loaded, made)) == [False, True, True]
    external = core.compile_model(core.read_model(tmp_path / "e.onnx"), "CPU")
    os.unlink(tmp_path / "e.data")
    again = core.import_model(next((tmp_path / "c").iterdir()), "CPU")
    assert bits(external(X)) == bits(again(X))


def test_plans(tmp_path: pathlib.Path) -> None:
    core = hetero.Core()
    model = core.read_model(network())
    plan = core.plan(model, "HETERO:CPU,TEMPLATE", pins={"two": "TEMPLATE"})
    plan.save(tmp_path / "p.json")
    config = {"CACHE_DIR": str(tmp_path / "c")}
    made = [core.compile_model(model, given, config) for given in (plan, hetero.Plan.load(tmp_path / "p.json"), plan)]
    assert list(map(loaded, made)) == [False, True, True]
    assert made[1].get_property("HETERO_NUMBER_OF_SUBMODELS") == 3
    assert bits(made[0](X)) == bits(made[1](X))


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "other"])
def test_a_damaged_entry_is_made_anew(tmp_path: pathlib.Path, damage: str) -> None:
    first = compiled(tmp_path)
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    flipped = data[:5000] + bytes([data[5000] ^ 1]) + data[5001:]
    path.write_bytes({"flip": flipped, "cut": data[:-1], "empty": b"", "other": b"x" * 5000}[damage])
    with pytest.warns(RuntimeWarning, match="cannot be used and will be replaced"):
        second = compiled(tmp_path)
    assert not loaded(second)
    assert bits(second(X)) == bits(first(X))
    assert path.read_bytes() == data
    assert loaded(compiled(tmp_path))


def test_an_entry_of_another_version_is_not_found(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(tmp_path)
    for number, place in enumerate(("base.version", "compiling.cache"), 2):  # devices state the first
        monkeypatch.setattr(f"hetero.{place}.__version__", "99.0")
        assert not loaded(compiled(tmp_path))
        assert len(entries(tmp_path)) == number


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("change", ["format", "payload", "fields", "part"])
def test_an_entry_that_another_version_wrote_under_this_name_is_made_anew(
    tmp_path: pathlib.Path, device: str, change: str
) -> None:
    """As if another version of hetero had chosen the same name, with other versions of the formats in it."""
    first = compiled(tmp_path, device)
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()

    def other(manifest: dict[str, Any]) -> None:
        submodels = manifest["submodels"]
        if change == "format":
            manifest["version"] += 1
        elif change == "fields":
            del submodels[0]["files"]
        else:
            for submodel in submodels[:1] if change == "payload" else submodels[-1:]:
                submodel["version"] = dict.fromkeys(submodel["version"], "another")

    path.write_bytes(forged(data, other))
    with pytest.warns(RuntimeWarning, match="cannot be used and will be replaced"):
        second = compiled(tmp_path, device)
    assert not loaded(second)
    assert bits(second(X)) == bits(first(X))
    assert path.read_bytes() == data
    assert loaded(compiled(tmp_path, device))


def test_a_folder_that_cannot_be_written(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.warns(RuntimeWarning, match=r"cannot store .*: cannot make the folder .*/file.*: \w+"):
        assert not loaded(compiled(tmp_path / "file" / "c"))


def test_an_entry_that_cannot_be_read_gives_at_most_the_warning_of_storing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, decrypt: object) -> object:
        raise errors.ArtifactError(f"{path}: cannot be opened") from PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(cache, "open_artifact", refuse)
    assert not loaded(compiled(tmp_path))  # a warning would be an error
    assert len(entries(tmp_path)) == 1


def test_an_entry_that_another_process_removes_is_no_news(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(tmp_path)
    (name,) = entries(tmp_path)
    opened = cache.open_artifact

    def open_late(path: str, decrypt: object) -> object:
        os.unlink(path)  # after it was looked for, at the latest
        return opened(path, decrypt)

    monkeypatch.setattr(cache, "open_artifact", open_late)
    assert not loaded(compiled(tmp_path))  # a warning would be an error
    monkeypatch.undo()
    assert entries(tmp_path) == [name]
    assert loaded(compiled(tmp_path))


CHILD = """
import sys, numpy as np
sys.path[:0] = {path!r}
import hetero
from exported_models import X, network
core = hetero.Core()
model = core.read_model(network())
sys.stdin.readline()
for device in ("CPU", "HETERO:CPU,TEMPLATE") * 3:
    compiled = core.compile_model(model, device, {{"CACHE_DIR": {folder!r}}})
    print(int(compiled.get_property("LOADED_FROM_CACHE")), compiled(X)[0].tobytes().hex()[:64], flush=True)
"""


@pytest.mark.slow
def test_many_processes_at_once(tmp_path: pathlib.Path) -> None:
    program = CHILD.format(path=[p for p in sys.path if p], folder=str(tmp_path / "c"))
    children = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    for child in children:  # all have begun to wait, more or less
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    answers = [child.communicate(timeout=300)[0].split("\n") for child in children]
    assert all(child.returncode == 0 for child in children)
    assert all(len(answer) == 7 for answer in answers)
    assert {line[2:] for answer in answers for line in answer[:-1]} == {bits_of_cpu()[:64]}
    assert all(line.startswith("1") for answer in answers for line in answer[2:-1])
    assert len(entries(tmp_path / "c")) == 2


def bits_of_cpu() -> str:
    found: bytes = hetero.compile(hetero.Core().read_model(network()))(X)[0].tobytes()
    return found.hex()


# ---- encryption


def xor(key: int) -> Any:
    """A cipher that hides nothing, but whose output is no archive."""
    return lambda data: (np.frombuffer(data, np.uint8) ^ key).tobytes()


def test_exported_and_cached_files_are_encrypted(tmp_path: pathlib.Path) -> None:
    callbacks = (xor(0x5A), xor(0x5A))
    first = compiled(tmp_path / "c", CACHE_ENCRYPTION_CALLBACKS=callbacks)
    second = compiled(tmp_path / "c", CACHE_ENCRYPTION_CALLBACKS=callbacks)
    assert [loaded(first), loaded(second)] == [False, True]
    (path,) = (tmp_path / "c").iterdir()
    assert b"manifest" not in path.read_bytes()
    second.export_model(tmp_path / "m.hetero")
    data = (tmp_path / "m.hetero").read_bytes()
    assert b"manifest" not in data
    core = hetero.Core()
    config = {"CACHE_ENCRYPTION_CALLBACKS": callbacks}
    for again in (core.import_model(data, "CPU", config), hetero.load(tmp_path / "m.hetero", config=config)):
        assert bits(again(X)) == bits(first(X))
    with pytest.raises(errors.Corrupt, match="CACHE_ENCRYPTION_CALLBACKS"):
        core.import_model(data, "CPU")
    with pytest.raises(errors.Corrupt):
        core.import_model(data, "CPU", {"CACHE_ENCRYPTION_CALLBACKS": (xor(1), xor(1))})


def test_encryption_over_several_devices(tmp_path: pathlib.Path) -> None:
    config = {"CACHE_ENCRYPTION_CALLBACKS": (xor(7), xor(7))}
    made = [compiled(tmp_path, "HETERO:CPU,TEMPLATE", **config) for _ in range(2)]
    assert list(map(loaded, made)) == [False, True]
    (path,) = tmp_path.iterdir()
    assert b"manifest" not in path.read_bytes()


def test_a_key_that_changed_makes_the_entry_anew(tmp_path: pathlib.Path) -> None:
    compiled(tmp_path, CACHE_ENCRYPTION_CALLBACKS=(xor(1), xor(1)))
    with pytest.warns(RuntimeWarning, match="will be replaced"):
        assert not loaded(compiled(tmp_path, CACHE_ENCRYPTION_CALLBACKS=(xor(2), xor(2))))
    assert not loaded(compiled(tmp_path))  # not encrypted: an entry of its own
    assert len(entries(tmp_path)) == 2


def test_callbacks_that_fail(tmp_path: pathlib.Path) -> None:
    def fail(data: bytes) -> bytes:
        raise OSError("no key today")

    core = hetero.Core()
    model = core.read_model(network())
    broken = core.compile_model(model, "CPU", {"CACHE_ENCRYPTION_CALLBACKS": (fail, fail)})
    with pytest.raises(errors.ArtifactError, match="no key today"):
        broken.export_model(tmp_path / "m.hetero")
    assert not entries(tmp_path)
    core.compile_model(model, "CPU").export_model(tmp_path / "m.hetero")
    with pytest.raises(errors.Corrupt, match="no key today"):
        core.import_model(tmp_path / "m.hetero", "CPU", {"CACHE_ENCRYPTION_CALLBACKS": (fail, fail)})
    with pytest.warns(RuntimeWarning, match=r"cannot store.*no key today"):
        compiled(tmp_path / "c", CACHE_ENCRYPTION_CALLBACKS=(fail, fail))


@pytest.mark.parametrize("value", [(1, 2), (xor(1),), (xor(1), xor(1), xor(1))])
def test_callbacks_of_the_wrong_kind(tmp_path: pathlib.Path, value: Any) -> None:
    with pytest.raises(errors.PropertyError, match="CACHE_ENCRYPTION_CALLBACKS"):
        compiled(tmp_path, CACHE_ENCRYPTION_CALLBACKS=value)
