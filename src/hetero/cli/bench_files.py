"""The files of `hetero bench`: a table as CSV, and a history to compare with earlier runs."""

from __future__ import annotations

import csv
import datetime
import io
import json
import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.files import read_file, write_atomically
from ..base.formatting import shape_text
from ..base.version import __version__
from .group import Failure
from .outfile import writing

__all__ = ["append_csv", "append_history", "compare_with", "read_csv", "read_history"]

_FORMAT = "hetero-bench"
_VERSION = 1
_FIRST_COLUMNS = ("time", "model", "inputs")
_SAME = ("in_flight", "streams")  # what two results must share to be compared, besides device, model and inputs


def read_csv(path: str) -> list[dict[str, str]]:
    """The rows of an earlier table; none if the file does not exist. Raises `Failure` for another file."""
    try:
        text = read_file(path).decode()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError:
        text = ""
    reader = csv.DictReader(io.StringIO(text, newline=""), restkey="", restval="", strict=True)
    try:
        columns, rows = tuple(reader.fieldnames or ()), list(reader)
    except csv.Error as error:
        raise Failure(f"{path}: line {reader.line_num}: {error}; --force replaces it") from error
    if columns[: len(_FIRST_COLUMNS)] != _FIRST_COLUMNS:
        raise Failure(f"{path} already exists and is not a table of hetero bench; --force replaces it")
    if any("" in row for row in rows):
        raise Failure(f"{path}: a row has more entries than the header; --force replaces it")
    return rows


def append_csv(
    path: str, earlier: Sequence[Mapping[str, Any]], model: str, inputs: Sequence[Any], results: Sequence[Any]
) -> None:
    """Write the rows that were read, and a row per device. Columns with a dot are entries of the JSON output's objects;
    rows without an entry for a column have an empty one. Raises `Failure`."""
    entries = [one.as_json() for one in inputs]
    shapes = " ".join(f"{entry['name']}={shape_text(entry['shape'], compact=True)}" for entry in entries)
    about = (datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), os.path.basename(model), shapes)
    rows = [*earlier, *(dict(zip(_FIRST_COLUMNS, about, strict=True)) | _flat(result) for result in results)]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    with writing(path):
        write_atomically(path, [stream.getvalue().encode()])


def _flat(result: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in result.items():
        if key == "counters":
            continue
        if isinstance(value, Mapping):
            flat |= {f"{key}.{name}": entry for name, entry in _flat(value).items()}
        elif key.endswith("interval") or isinstance(value, (list, tuple)):
            low, high = value or (None, None)
            flat |= {f"{key}.low": low, f"{key}.high": high}
        else:
            flat[key] = value
    return flat


def read_history(path: str) -> list[dict[str, Any]]:
    """The entries of a history file, the oldest first; none if it does not exist. Raises `Failure` for another file."""
    try:
        lines = read_file(path).splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror or error}") from error
    entries = []
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            if (entry["format"], entry["version"]) != (_FORMAT, _VERSION):
                raise ValueError(f"expected format {_FORMAT} {_VERSION}")
            for result in entry["results"]:
                _ = result["device"], result["latency_ms"]["p50"]
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise Failure(f"{path}: line {number} is not an entry of a history of hetero bench: {error}") from error
        entries.append(entry)
    return entries


def append_history(
    path: str, history: Sequence[Mapping[str, Any]], model: str, inputs: Sequence[Any], results: Sequence[Any]
) -> None:
    """Add a run to the entries that were read. Raises `Failure`."""
    entry = {
        "format": _FORMAT,
        "version": _VERSION,
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "library": __version__,
        "host": platform.node(),
        **_subject(model, inputs),
        "results": [{key: value for key, value in result.items() if key != "counters"} for result in results],
    }
    with writing(path):
        write_atomically(path, [json.dumps(line).encode() + b"\n" for line in (*history, entry)])


def compare_with(
    history: Sequence[Mapping[str, Any]], model: str, inputs: Sequence[Any], results: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """For each result, the last run of the same model, inputs, device and number of requests; without it, no entry.

    ``ratio``: of the median latency to the earlier one. ``differs``: whether the 95 % intervals do not overlap; None if
    an interval is unknown.
    """
    subject, host, changes = _subject(model, inputs), platform.node(), []
    for result in results:
        for entry in reversed(history):
            if any(entry.get(key) != value for key, value in subject.items()):
                continue
            earlier = next((old for old in entry["results"] if _is_alike(old, result)), None)
            if earlier is not None:
                changes.append({**_change(earlier, result), "time": entry["time"], "same_host": entry["host"] == host})
                break
    return changes


def _subject(model: str, inputs: Sequence[Any]) -> dict[str, Any]:
    """The values that must be equal in two runs: the name and the size of the file, and the inputs without their
    sources."""
    shapes = [[entry["name"], entry["dtype"], entry["shape"]] for entry in (one.as_json() for one in inputs)]
    return {"model": os.path.basename(model), "model_bytes": os.path.getsize(model), "inputs": shapes}


def _is_alike(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return all(old.get(key) == new[key] for key in ("device", *_SAME))


def _change(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    before, after = old["latency_ms"]["p50"], new["latency_ms"]["p50"]
    one, other = old.get("median_interval"), new["median_interval"]
    differs = None if not one or not other else bool(other[0] > one[1] or other[1] < one[0])
    return {
        "device": new["device"],
        "before_ms": before,
        "after_ms": after,
        "ratio": after / before if before else None,
        "differs": differs,
    }
