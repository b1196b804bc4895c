"""Tensors: dims, data, sparse ones, and data in files beside the model."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hostile.case import case
from hostile.encode import ADD, DIM, FLOATS, info, message, model, node, number, tensor, varint

# ---- tensors

for label, pattern, parts in (
    ("dims negative", "is negative: -2", (number(1, -2), FLOATS)),
    ("dims -2^63", "is negative", (number(1, 2**63), FLOATS)),
    ("dims whose product wraps to 8 bytes", "does not fit 63 bits", (number(1, 2**62 + 2), FLOATS)),
    ("dims 2^32 by 2^32", "does not fit 63 bits", (number(1, 2**32) * 2, FLOATS)),
    ("dims 2^31 with 8 bytes", "raw_data has 8 bytes, dims and data_type need 8589934592", (number(1, 2**31), FLOATS)),
    ("dims 2^61 - 1 with 8 bytes", "raw_data has 8 bytes", (number(1, 2**61 - 1), FLOATS)),
    ("dims 2^31 without data", "have 0 entries, dims and data_type need 2147483648", (number(1, 2**31),)),
    ("raw data too short", "raw_data has 7 bytes", (DIM, message(9, "1234567"))),
    ("raw data too long", "raw_data has 9 bytes", (DIM, message(9, "123456789"))),
    ("float_data too short", "have 1 entries", (DIM, message(4, "1234"))),
    ("float_data too long", "have 3 entries", (DIM, message(4, b"1234" * 3))),
    ("data in two fields", "both given", (DIM, FLOATS, message(4, "12341234"))),
    ("data in the wrong field", "stand in field 7, expected field 4", (DIM, message(7, b"\1\1"))),
    ("rank 65", "rank above 64", (number(1, 1) * 65, FLOATS)),
    ("segmented", "segmented tensors are not supported", (DIM, FLOATS, message(3, number(1, 0)))),
):
    case(f"tensor: {label}", "read", pattern, model(ADD, tensor(5, *parts)))
case(
    "tensor: strings as raw data",
    "read",
    "strings cannot stand in raw_data",
    model(ADD, tensor(5, DIM, message(9, "A" * 32), dtype=8)),
)
case("tensor: fewer strings than dims", "read", "have 1 entries", model(ADD, tensor(5, DIM, message(6, "a"), dtype=8)))
case(
    "tensor: int4, odd",
    "read",
    "raw_data has 1 bytes, dims and data_type need 2",
    model(ADD, tensor(5, number(1, 3), message(9, "1"), dtype=22)),
)
case(
    "tensor: zero and 2^40",
    "bounded",
    "",
    model(
        node("Identity", "w", "y"),
        tensor(5, number(1, 2**40), number(1, 0), message(9)),
        ports=message(12, message(1, "y")),
    ),
)
case(
    "tensor: bools of other bytes",
    "fine",
    "",
    model(node("Not", "w", "y"), tensor(5, DIM, message(9, b"\2\xff"), dtype=9), ports=info(12, "y", 9)),
)
case(
    "tensor: uint8 of 300",
    "bounded",
    "",
    model(
        node("Identity", "w", "y"),
        tensor(5, number(1, 1), message(5, varint(300)), dtype=2),
        ports=info(12, "y", 2, (1,)),
    ),
)


def sparse(values: bytes, indices: bytes, *dims: int) -> bytes:
    return model(ADD, message(15, values, indices, *(number(3, dim) for dim in dims)))


def sparse_values(count: int = 1, dtype: int = 1) -> bytes:
    return tensor(1, number(1, count), message(9, bytes(4 * count)), dtype=dtype)


def sparse_indices(*numbers: int, columns: int | None = None) -> bytes:
    raw = message(9, np.array(numbers, np.int64).tobytes())
    dims = number(1, len(numbers)) if columns is None else number(1, len(numbers) // columns) + number(1, columns)
    return tensor(2, dims, raw, dtype=7, name="")


for label, stage, pattern, bad in (
    ("index past the end", "look", "outside its shape", sparse(sparse_values(), sparse_indices(2), 2)),
    ("index 2^33", "look", "outside its shape", sparse(sparse_values(), sparse_indices(2**33), 2)),
    ("index negative", "look", "outside its shape", sparse(sparse_values(), sparse_indices(-1), 2)),
    ("index -2^63", "look", "outside its shape", sparse(sparse_values(), sparse_indices(-(2**63)), 2)),
    (
        "row past the end",
        "look",
        "outside its shape",
        sparse(sparse_values(), sparse_indices(0, 2, columns=2), 1, 2),
    ),
    (
        "row whose product would wrap",
        "look",
        "outside its shape",
        sparse(sparse_values(), sparse_indices(2**62, 2**62, columns=2), 1, 2),
    ),
    ("indices twice the same", "look", "not in ascending order", sparse(sparse_values(2), sparse_indices(1, 1), 2)),
    ("indices descend", "look", "not in ascending order", sparse(sparse_values(2), sparse_indices(1, 0), 2)),
    ("dense 2^40", "look", "would exceed the limit", sparse(sparse_values(), sparse_indices(0), 2**40)),
    ("dense 2^23 + 1", "look", "would exceed the limit", sparse(sparse_values(), sparse_indices(0), 2**23 + 1)),
    ("dense 2^62 by 2^62", "read", "does not fit 63 bits", sparse(sparse_values(), sparse_indices(0), 2**62, 2**62)),
    ("dims negative", "read", "negative", sparse(sparse_values(), sparse_indices(0), -2)),
    ("more values than indices", "read", "one for each of 1 indices", sparse(sparse_values(2), sparse_indices(0), 2)),
    (
        "columns that are not the rank",
        "read",
        "3 columns, its rank is 1",
        sparse(sparse_values(1), sparse_indices(0, 0, 0, columns=3), 2),
    ),
    (
        "indices int32",
        "read",
        "must be int64",
        sparse(sparse_values(), tensor(2, number(1, 1), message(9, "1234"), dtype=6), 2),
    ),
    (
        "indices of rank 3",
        "read",
        "rank 1 or 2",
        sparse(sparse_values(), tensor(2, number(1, 1) * 3, message(9, "12345678"), dtype=7), 2),
    ),
    (
        "indices too short",
        "read",
        "raw_data has 4 bytes",
        sparse(sparse_values(), tensor(2, number(1, 1), message(9, "1234"), dtype=7), 2),
    ),
    ("values twice", "read", "given twice", sparse(sparse_values() * 2, sparse_indices(0), 2)),
    ("values missing", "read", "needs values and indices", sparse(b"", sparse_indices(0), 2)),
    ("indices missing", "read", "needs values and indices", sparse(sparse_values(), b"", 2)),
    (
        "without a name",
        "read",
        "has no name",
        sparse(tensor(1, number(1, 1), message(9, "1234"), name=""), sparse_indices(0), 2),
    ),
    (
        "beside a dense one of its name",
        "read",
        "defined twice",
        model(ADD, tensor(5, DIM, FLOATS), message(15, sparse_values(), sparse_indices(0), number(3, 2))),
    ),
    ("good", "fine", "", sparse(sparse_values(), sparse_indices(1), 2)),
):
    case(f"sparse: {label}", stage, pattern, bad)

# ---- external data


def outside(folder: Path) -> Path:
    secret = folder.parent / "secret.bin"
    secret.write_bytes(b"S" * 64)
    return secret


def external(*entries: tuple[str, str], dims: tuple[int, ...] = (2,), dtype: int = 1) -> bytes:
    pairs = [message(13, message(1, key), message(2, text)) for key, text in entries]
    return model(ADD, tensor(5, *(number(1, dim) for dim in dims), number(14, 1), *pairs, dtype=dtype))


def external_file(
    folder: Path, *entries: tuple[str, str], prepare: Callable[[Path], object] = lambda _: None, **more: object
) -> bytes:
    data = folder / "data.bin"
    data.write_bytes(bytes(4096))
    prepare(folder)
    return external(*(entries or (("location", "data.bin"),)), **more)  # type: ignore[arg-type]


def swapped(make_special: Callable[[Path], object]) -> Callable[[Path], None]:
    """data.bin replaced by something else."""

    def prepare(folder: Path) -> None:
        (folder / "data.bin").unlink()
        make_special(folder / "data.bin")

    return prepare


def make_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # socket paths must be short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


NO_PATH = "is not a relative path below"
case("external: control", "fine", "", external_file)
case(
    "external: at an odd offset",
    "fine",
    "",
    lambda folder: external_file(folder, ("location", "./data.bin"), ("offset", "3"), ("length", "8")),
)
for label, pattern, location in (
    ("absolute", NO_PATH, "/etc/passwd"),
    ("to the parent", NO_PATH, "../secret.bin"),
    ("down and up", NO_PATH, "sub/../../secret.bin"),
    ("up to itself", NO_PATH, "sub/../data.bin"),
    ("dot", NO_PATH, "."),
    ("dot dot", NO_PATH, ".."),
    ("empty", "has no location", ""),
    ("slash at the end", NO_PATH, "data.bin/"),
    ("two slashes", NO_PATH, "sub//data.bin"),
    ("with NUL", NO_PATH, "data.bin\0.txt"),
    ("that does not exist", "cannot be opened", "none.bin"),
    ("with backslashes", "cannot be opened", "..\\secret.bin"),
    ("URL", NO_PATH, "file:///etc/passwd"),
    ("through the home folder", "cannot be opened", "~/x"),
    ("of a file taken for a folder", "cannot be opened", "data.bin/x"),
    ("a million bytes long", "cannot be opened", "n" * 1_000_000),
    ("a hundred thousand folders deep", "cannot be opened", "a/" * 100_000 + "b"),
    ("in memory of onnxruntime", "cannot be opened", "*/_ORT_MEM_ADDR_/*"),
    ("a folder", "is not a regular file", "folder"),
):
    case(
        f"external: location {label}",
        "look",
        pattern,
        lambda folder, location=location: external_file(
            folder, ("location", location), prepare=lambda folder: (outside(folder), (folder / "folder").mkdir())
        ),
    )
for label, pattern, special in (
    ("a link", "links are not followed", lambda path: path.symlink_to(outside(path.parent))),
    (
        "a link within the folder",
        "cannot be opened",
        lambda path: (path.with_name("d").write_bytes(bytes(64)), path.symlink_to("d")),
    ),
    ("a link to itself", "cannot be opened", lambda path: path.symlink_to(path.name)),
    ("a hard link", "hard links", lambda path: os.link(outside(path.parent), path)),
    ("a FIFO", "not a regular file", os.mkfifo),
    ("a socket", "cannot be opened", make_socket),
    ("a link to a device", "cannot be opened", lambda path: path.symlink_to("/dev/zero")),
    ("empty", "has 0 bytes", lambda path: path.write_bytes(b"")),
    ("too short", "has 7 bytes", lambda path: path.write_bytes(b"1234567")),
    ("unreadable folder", "cannot be opened|not a regular file", lambda path: path.mkdir(0)),
):
    case(
        f"external: {label}",
        "look",
        pattern,
        lambda folder, special=special: external_file(folder, prepare=swapped(special)),
    )
case(
    "external: a linked folder",
    "look",
    "cannot be opened",
    lambda folder: external_file(
        folder,
        ("location", "sub/secret.bin"),
        prepare=lambda folder: (outside(folder), (folder / "sub").symlink_to("..")),
    ),
)
for label, pattern, entries in (
    ("offset negative", "expected a number of bytes", (("offset", "-8"),)),
    ("offset past the end", "has 4096 bytes", (("offset", "4096"),)),
    ("offset 2^63", "expected a number of bytes", (("offset", str(2**63)),)),
    ("offset 2^59", "has 4096 bytes", (("offset", str(2**59)),)),
    ("offset in hexadecimal", "expected a number of bytes", (("offset", "0x10"),)),
    ("offset in other digits", "expected a number of bytes", (("offset", "１２"),)),
    ("offset with a space", "expected a number of bytes", (("offset", " 8"),)),
    ("offset with an underscore", "expected a number of bytes", (("offset", "1_0"),)),
    ("offset with a sign", "expected a number of bytes", (("offset", "+8"),)),
    ("offset as a float", "expected a number of bytes", (("offset", "8.0"),)),
    ("offset of a million digits", "expected a number of bytes", (("offset", "1" * 1_000_000),)),
    ("offset empty", "expected a number of bytes", (("offset", ""),)),
    ("length too long", "length is 4096, but dims and data_type require 8", (("length", "4096"),)),
    ("length zero", "length is 0", (("length", "0"),)),
    ("length 2^64 + 8", "expected a number of bytes", (("length", str(2**64 + 8)),)),
    ("offset twice", "key 'offset' twice", (("offset", "0"), ("offset", "8"))),
    ("location twice", "key 'location' twice", (("location", "other.bin"),)),
    ("unknown key", "unknown external_data key '__class__'", (("__class__", "x"),)),
):
    case(
        f"external: {label}",
        "look",
        pattern,
        lambda folder, entries=entries: external_file(folder, ("location", "data.bin"), *entries),
    )
case("external: dims 2^38", "look", "has 4096 bytes", lambda folder: external_file(folder, dims=(2**38,)))
case(
    "external: dims that wrap", "read", "does not fit 63 bits", lambda folder: external_file(folder, dims=(2**62 + 2,))
)
case("external: strings", "read", "strings cannot be external", lambda folder: external_file(folder, dtype=8))
case("external: no entries", "read", "no location is given", external())
case(
    "external: and embedded",
    "read",
    "external data and embedded data are both",
    model(ADD, tensor(5, DIM, FLOATS, number(14, 1), message(13, message(1, "location"), message(2, "data.bin")))),
)
case(
    "external: entries that are no messages",
    "any",
    "",
    model(ADD, tensor(5, DIM, number(14, 1), message(13, b"\xff\xff"))),
)
case(
    "external: key not UTF-8",
    "any",
    "",
    model(ADD, tensor(5, DIM, number(14, 1), message(13, message(1, b"\xff"), message(2, b"\xff")))),
)
