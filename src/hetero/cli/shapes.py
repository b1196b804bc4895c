"""The options --shape and --dim: shapes of inputs, in full or in part, and sizes of symbols."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import click

from ..errors import did_you_mean
from ..model.types import Dim, Port, is_symbol

__all__ = ["Dims", "known_name", "only_name", "parse_dims", "parse_shapes", "sizes_of_symbols", "with_dims"]

Dims: TypeAlias = tuple[Dim, ...]

_SIZE = r"\d+|\?|-1|None"
_BRACKETS = re.compile(r",?\s*(?P<name>[^\[\],]*)\[(?P<dims>[^\[\]]*)\]")  # the format of benchmark_app


def parse_shapes(texts: Sequence[str], ports: Sequence[Port]) -> dict[str, tuple[Dims, str]]:
    """For each input that --shape names, its dimensions and the text of the option. Where the option leaves a dimension
    open, the model's dimension stays. Raises `click.UsageError`."""
    by_name = {port.name: port for port in ports}
    shapes: dict[str, tuple[Dims, str]] = {}
    for entry in (part for text in texts for part in _entries(text, by_name)):
        option = f"--shape {entry}"
        for name, words in _named_words(entry, by_name, option):
            port = by_name[only_name(name, by_name, option)]
            if port.name in shapes:
                raise click.UsageError(f"{option}: the shape of {port.name!r} is given twice")
            shapes[port.name] = _dims(words, port, option), option
    return shapes


def parse_dims(texts: Sequence[str], ports: Sequence[Port]) -> dict[str, tuple[int, str]]:
    """Symbol -> its size by --dim, and the option. Raises `click.UsageError`."""
    known = {dim for port in ports for dim in port.shape or () if isinstance(dim, str)}
    sizes: dict[str, tuple[int, str]] = {}
    for entry in texts:
        symbol, _, size = entry.rpartition("=")
        if not symbol or not size.isdecimal():
            raise click.UsageError(f"--dim {entry}: expected SYMBOL=SIZE, with a whole number of 0 or more")
        if symbol not in known:
            advice = "the inputs have no symbols; set sizes with --shape NAME=1x3x224x224"
            if all(port.shape is not None and all(isinstance(dim, int) for dim in port.shape) for port in ports):
                advice = "the inputs have fixed sizes"
            listed = f"symbols: {', '.join(sorted(known))}" if known else advice
            raise click.UsageError(
                f"--dim {entry}: no input has a dim {symbol!r}{did_you_mean(symbol, known)}; {listed}"
            )
        first, option = sizes.setdefault(symbol, (int(size), f"--dim {entry}"))
        if first != int(size):
            raise click.UsageError(f"--dim {entry} contradicts {option}")
    return sizes


def sizes_of_symbols(
    ports: Sequence[Port], shapes: Mapping[str, tuple[Dims, str]], dims: Mapping[str, tuple[int, str]]
) -> dict[str, int]:
    """Symbol of ``ports`` -> its size, from the results of `parse_shapes` and `parse_dims`. Raises `click.UsageError`
    if they contradict each other."""
    sizes = dict(dims)
    for port in ports:
        stated, option = shapes.get(port.name, ((), ""))
        for axis, (symbol, dim) in enumerate(zip(port.shape or (), stated, strict=False)):
            if not isinstance(symbol, str) or dim == symbol:
                continue
            if isinstance(dim, int):
                sizes.setdefault(symbol, (dim, option))
            if symbol in sizes and sizes[symbol][0] != dim:
                size, other = sizes[symbol]
                raise click.UsageError(
                    f"{option} contradicts {other}: axis {axis} of {port.name!r} is {symbol}, and {symbol} = {size}"
                )
    return {symbol: size for symbol, (size, _) in sizes.items()}


def with_dims(port: Port, dims: Dims) -> Port:
    """The same input with another shape."""
    return Port(port.name, port.dtype, dims, is_tensor=port.is_tensor, holder=port.holder, default=port.default)


def known_name(name: str, names: Iterable[str], where: str) -> str:
    """``name``. Raises `click.UsageError` if no input has it."""
    if name not in names:
        raise click.UsageError(
            f"{where}: the model has no input {name!r}{did_you_mean(name, names)}; its inputs: {', '.join(names)}"
        )
    return name


def only_name(name: str | None, names: Iterable[str], where: str) -> str:
    """``name``, or if it is None, the model's only input. Raises `click.UsageError`."""
    if name is not None:
        return known_name(name, names, where)
    every = list(names)
    if len(every) != 1:
        raise click.UsageError(f"{where}: the model has {len(every)} inputs ({', '.join(every)}): write NAME=…")
    return every[0]


def _either(texts: Iterable[str]) -> str:
    """A regular expression for one of these texts, the longest first."""
    return "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))


def _entries(text: str, names: Mapping[str, Port]) -> list[str]:
    """The parts of ``NAME=1x3,NAME=4,5`` if the text starts with an input, otherwise the text as one part."""
    starts = [match.start(1) for match in re.finditer(rf"(?:^|,)\s*((?:{_either(names)})=)", text)]
    if starts[:1] != [0]:
        return [text]
    return [text[begin:end].rstrip(", ") for begin, end in zip(starts, [*starts[1:], len(text)], strict=True)]


def _named_words(entry: str, by_name: Mapping[str, Port], option: str) -> list[tuple[str | None, list[str]]]:
    """Each shape in the text, as a pair: the input's name, None if the text has none, and the words for the
    dimensions."""
    start = re.match(rf"({_either(by_name)})=", entry)
    name = start[1] if start and by_name else None
    if name is None and "=" in entry and "[" not in entry:
        known_name(entry.partition("=")[0], by_name, option)
    port = by_name.get(name or next(iter(by_name), ""))
    words = _words(entry[start.end() :] if name and start else entry, port)
    if words is not None:
        return [(name, words)]
    shapes: list[tuple[str | None, list[str]]] = []
    end = 0
    for part in _BRACKETS.finditer(entry):
        if part.start() != end:
            break
        end = part.end()
        name = part["name"].strip()
        if name not in by_name:
            name = name.removesuffix("=")  # NAME=[1,3]
        shapes.append((name or None, _between_commas(part["dims"])))
    if not end or end != len(entry):
        raise click.UsageError(
            f"{option}: expected NAME=1x3x224x224, or NAME[1,3,224,224]; --dim sets single sizes, and ? leaves one open"
        )
    return shapes


def _words(text: str, port: Port | None) -> list[str] | None:
    """The words in ``1x3``, ``1,3``, ``[1,3]`` or ``scalar``; None for another text. Symbols between ``x`` must be
    those of the input, because others that contain an ``x`` would be ambiguous."""
    if text == "scalar":
        return []
    inner = re.fullmatch(r"\[([^\[\]]*)\]", text)
    if inner:
        return _between_commas(inner[1])
    if "," in text and "[" not in text and "]" not in text:
        return _between_commas(text)
    symbols = [dim for dim in port.shape or () if isinstance(dim, str)] if port is not None else []
    word = rf"{_either(symbols)}|{_SIZE}" if symbols else _SIZE
    words: list[str] = []
    while match := re.match(rf"({word})(x|$)", text):
        words.append(match[1])
        text = text[match.end() :]
        if not match[2]:
            return words
    return None


def _between_commas(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")] if text.strip() else []


def _dims(words: Sequence[str], port: Port, option: str) -> Dims:
    """The dimensions of an input. Raises `click.UsageError`."""
    model_dims = port.shape if port.shape is not None and len(port.shape) == len(words) else (None,) * len(words)
    dims: list[Dim] = []
    for axis, (word, known) in enumerate(zip(words, model_dims, strict=True)):
        if word.isdecimal():
            dims.append(int(word))
            continue
        is_open = word in ("?", "-1", "None")
        if not is_open and not is_symbol(word, model_dims):
            advice = (
                "ranges of sizes are not supported, ? leaves a size open" if ".." in word else "such as ?,3,224,224"
            )
            raise click.UsageError(f"{option}: expected sizes, ? or symbols, found {word!r}; {advice}")
        if isinstance(known, int):
            raise click.UsageError(
                f"{option}: axis {axis} of {port.name!r} is {known} in the model, so it cannot be open: give {known}"
            )
        dims.append(known if is_open else word)
    return tuple(dims)
