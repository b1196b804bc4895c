"""Random device strings, pins, properties, shapes and command lines: valid ones with some characters or parts changed.
`hostile.forgeries` runs them and says what they may do."""

from __future__ import annotations

import contextlib
import io
import os
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

import hetero
from faults import operations
from hetero.cli import main
from hetero.errors import HeteroError
from hostile.mutations import FLOATS, NUMBERS, TEXTS

Step = tuple[str, Callable[[], Any]]

DEVICES = (
    *("CPU", "CPU.0", "TEMPLATE", "ORT", "ORT.CPU", "CONTROL_FLOW", "HETERO", "HETERO:CPU,TEMPLATE", "FPGA", "AUTO"),
    *("HETERO:FPGA,CPU", "HETERO:CPU(2),TEMPLATE", "HETERO:CONTROL_FLOW:CPU,TEMPLATE", "CONTROL_FLOW:TEMPLATE,CPU"),
    *("AUTO:CPU,TEMPLATE", "MULTI:CPU,TEMPLATE", "BATCH:CPU(4)", "HETERO:-GPU,CPU", "HETERO:AUTO:CPU,TEMPLATE"),
)
NODES = ("op:Conv", "op:Gemm", "weight:.*", "re:.*", ".*", "conv1", "(a|b)*", "[a-z]+", "op:Conv,op:Gemm", "(.*)*x")
SHAPES = ("1,3,8,8", "1x3x8x8", "x[1,3,8,8]", "x=1,3,8,8", "?,3,8,8", "-1,3,8,8", "1..4,3,8,8", "[]", "x:1", "n=2")
VALUES = ("YES", "NO", "true", "0", "1", "-1", "2", "1.5", "1e400", "nan", "1GiB", "CPU=1GiB", "AUTO", "f16", "LATENCY")
SPECIAL = (
    *":,.()[]{}=-+*?|^$\\/\"' \t\n\0\x1b\u202e\u0130\u00b2\u0664_%#@!~&;<>",
    "\ud800",
    "😀",
    "(?",
    "(?P<a>",
    "\\1",
)


def change_text(choose: random.Random, texts: Sequence[str]) -> str:
    """One of the texts, with some changes."""
    text = choose.choice(texts)
    for _ in range(choose.choice((0, 0, 0, 1, 1, 2, 4))):
        at = choose.randint(0, len(text))
        end = min(len(text), at + choose.choice((1, 1, 2, 5)))
        match choose.randrange(8):
            case 0:
                text = text[:at] + text[end:]
            case 1:
                text = text[:at] + text[at:end] * choose.choice((2, 3, 50, 2000)) + text[end:]
            case 2:
                text = text[:at] + choose.choice(texts)[choose.randint(0, 3) :]
            case 3:
                text = text[:at] + str(choose.choice((1, -1)) * choose.choice(NUMBERS)) + text[end:]
            case 4:
                text = choose.choice((text.upper(), text.lower(), text.swapcase(), text[::-1]))
            case 5:
                text = choose.choice((text + text, text + "," + choose.choice(texts), choose.choice(TEXTS)))
            case _:
                text = text[:at] + choose.choice(SPECIAL) + text[end:]
    return text[: 1 << 17]


def _value(choose: random.Random) -> Any:
    """The value of a property."""
    match choose.randrange(7):
        case 0:
            return choose.choice((1, -1)) * choose.choice(NUMBERS)
        case 1:
            return choose.choice((*FLOATS, float("nan"), float("inf"), True, False, None, b"x", (), [], {}))
        case 2:
            return {change_text(choose, ("CPU", "TEMPLATE", "FPGA")): _value(choose)}
        case 3:
            return [_value(choose) for _ in range(choose.randrange(3))]
    return change_text(choose, (*VALUES, *DEVICES, *NODES))


class Arguments:
    """What a caller passes to `Core`."""

    size = 1 << 17

    def __init__(self, choose: random.Random) -> None:
        self.folder = tempfile.TemporaryDirectory()
        os.chdir(self.folder.name)  # for properties that name files
        self.core = hetero.Core()
        self.model = self.core.read_model(operations.model_bytes())
        self.names = sorted(
            {
                *(name for device in ("CPU", "HETERO", "AUTO", "TEMPLATE") for name in self._names(device)),
                *("NO_SUCH", "num_streams", ""),
            }
        )

    def _names(self, device: str) -> list[str]:
        return list(self.core.get_property(device, "SUPPORTED_PROPERTIES"))

    def _config(self, choose: random.Random) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(choose.choice((0, 0, 1, 1, 2))):
            name = choose.choice(self.names) if choose.random() < 0.9 else change_text(choose, self.names)
            value = _value(choose)
            if name in ("CACHE_DIR", "HETERO_DUMP_GRAPH_DOT", "COSTS") and isinstance(value, str):
                value = value.replace("/", "")
            found[name] = value
        return found

    def steps(self, choose: random.Random | None) -> Iterator[Step]:
        if choose is None:
            yield "plan", lambda: self.core.plan(self.model, operations.DEVICES, pins={"op:Conv": "CPU"})
            yield "devices", lambda: self.core.available_devices  # loads their libraries
            return
        device, config = change_text(choose, DEVICES), self._config(choose)
        if choose.random() < 0.4:
            device = choose.choice(DEVICES)
        pins: dict[str, str] = {}
        for _ in range(choose.choice((0, 1, 2))):
            pins[change_text(choose, NODES)] = change_text(choose, ("CPU", "TEMPLATE", "HETERO:CPU", device))
        shape = [choose.choice((1, 3, 8, *NUMBERS, -1)) for _ in range(choose.choice((0, 1, 3, 4, 4, 4, 70)))]
        name = change_text(choose, self.names)
        yield f"forge {device[:200]!r} {config!r:.300} {pins!r:.300} {shape} {name[:200]!r}", lambda: None
        calls: tuple[tuple[str, Callable[[], Any]], ...] = (
            ("plan", lambda: self.core.plan(self.model, device, config, pins=pins).to_json()),
            ("plan", lambda: str(self.core.plan(self.model, device, config, pins=pins))),
            ("query", lambda: self.core.query_model(self.model, device, config)),
            ("compile", lambda: self.core.compile_model(self.model, device, config, pins=pins)),
            ("get", lambda: self.core.get_property(device, name)),
            ("set", lambda: hetero.Core().set_property(device, config)),
            ("affinity", lambda: self.model.with_affinity(pins)),
            ("inputs", lambda: self.model.with_outputs([name])),
            ("types", lambda: self.model.with_types({self.model.inputs[0].name: (np.float32, shape)})),
        )
        yield choose.choice(calls)


COMMANDS = ("plan", "query", "run", "inspect", "bench", "properties", "compare", "split", "export", "report", "devices")
OPTIONS: dict[str, Sequence[str]] = {
    "-d": DEVICES,
    "--pin": tuple(f"{nodes}=CPU" for nodes in NODES),
    "--together": NODES,
    "--min-subgraph": ("CPU=3", "TEMPLATE=0", "CPU=1e3"),
    "--max-memory": ("CPU=1GiB", "TEMPLATE=0", "CPU.0=10kB", "CPU=1e30GiB"),
    "--property": (
        *(f"NUM_STREAMS={value}" for value in VALUES),
        "CPU:PERF_COUNT=YES",
        "STRICT=NO",
        "OBJECTIVE=LATENCY",
    ),
    "--policy": ("auto", "linear", "documented"),
    "--explain": NODES,
    "--what-if": ("CPU=Conv", "TEMPLATE=Conv,Gemm"),
    "--missing-ops": (),
    "--dim": ("n=1", "batch=4"),
    "--shape": SHAPES,
    "--input": ("x=1,2,3", "0.5", "1,2", "x=net.onnx", "net.npy"),
    "--range": ("0:1", "x=-1:1", "5", "0:inf"),
    "--seed": ("1", "-1"),
    "--image-size": ("8x8", "0x1"),
    "--image-mean": ("1,2,3",),
    "--image-layout": ("nchw", "hwc"),
    "--plan": ("plan.json", "net.onnx"),
    "--profile": ("net.onnx", "none.toml"),
    "--counters": (),
    "--json": (),
    "--nodes": (),
    "--iterations": ("1", "2", "0"),
    "--seconds": ("0.01",),
    "--save": ("out.bin",),
    "-o": ("out",),
    "--force": (),
}


class Commands:
    """Command lines, in this process."""

    size = 1 << 17

    def __init__(self, choose: random.Random) -> None:
        self.folder = tempfile.TemporaryDirectory()
        os.chdir(self.folder.name)
        Path("net.onnx").write_bytes(operations.model_bytes())
        hetero.Core().plan(operations.model_bytes(), operations.DEVICES).save("plan.json")

    def steps(self, choose: random.Random | None) -> Iterator[Step]:
        words = ["plan", "net.onnx", "-d", "CPU"]
        if choose is not None:
            words = [choose.choice(COMMANDS) if choose.random() < 0.95 else change_text(choose, COMMANDS)]
            if choose.random() < 0.9:
                words.append(
                    "net.onnx" if choose.random() < 0.9 else change_text(choose, ("net.onnx",)).replace("/", "")
                )
            command = main.get_command(click.Context(main), words[0]) if words[0] in COMMANDS else None
            known = {option for parameter in command.params for option in parameter.opts} if command else set()
            options = [option for option in OPTIONS if option in known] or list(OPTIONS)
            for _ in range(choose.randint(0, 4)):
                option = choose.choice(options) if choose.random() < 0.95 else change_text(choose, list(OPTIONS))
                words.append(option)
                if texts := OPTIONS.get(option):
                    text = change_text(choose, texts) if choose.random() < 0.7 else choose.choice(texts)
                    words.append(text.replace("/", "") if option in ("--save", "-o", "--plan", "--property") else text)
            words = [word.replace("\0", "").replace("\ud800", "\udcff") for word in words]  # as the system does
            yield f"forge {words!r:.600}", lambda: None
        else:
            yield "devices", lambda: _run(["devices"])  # loads their libraries
        yield "command", lambda: _run(words)


def _run(words: list[str]) -> None:
    """A command. Raises `HeteroError` if the exit status is not 0, as an error is expected to end."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            status = main(words, prog_name="hetero")
        except SystemExit as ended:
            status = ended.code
    if status in (0, None):
        return
    assert status in (1, 2, 3), f"exit status {status}"
    told = errors.getvalue()
    assert "Traceback" not in told, told[-3000:]
    assert "(unexpected; " not in told, told[-3000:]
    assert told.strip() or status == 3, "no message"
    raise HeteroError("refused")
