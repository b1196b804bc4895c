"""Constants in every type and every way of storing them, and what is refused."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as onh
import pytest

from hetero.errors import ModelError
from hetero.model.constants import release_pages
from hetero.model.model import Model
from hetero.model.read import read_model
from hetero.model.types import dtype_of, onnx_dtype_of

T = onnx.TensorProto
NUMBERS = [number for number in T.DataType.values() if number not in (T.UNDEFINED, T.STRING)]
SIX_BITS = [number for name, number in T.DataType.items() if name.startswith("FLOAT6")]  # onnx 1.23 and later
Make = Callable[..., onnx.ModelProto]


def with_tensor(make_model: Make, tensor: onnx.TensorProto | onnx.SparseTensorProto) -> Model:
    """A model that reads the constant w."""
    sparse = isinstance(tensor, onnx.SparseTensorProto)
    name = tensor.values.name if sparse else tensor.name
    outputs = [oh.make_tensor_value_info("y", 1, None)]
    node = oh.make_node("Identity", [name], ["y"])
    if sparse:
        return read_model(make_model([node], [], outputs, sparse_initializer=[tensor]))
    return read_model(make_model([node], [], outputs, [tensor]))


def constant(make_model: Make, tensor: onnx.TensorProto | onnx.SparseTensorProto) -> np.ndarray[Any, Any]:
    model = with_tensor(make_model, tensor)
    return model.constant(model.value_id("w"))


@pytest.mark.parametrize("dtype", NUMBERS, ids=T.DataType.Name)
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 5), (0, 3), (4, 7)], ids=str)
def test_raw_data(make_model: Make, dtype: int, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    numpy_dtype = oh.tensor_dtype_to_np_dtype(dtype)
    array = rng.integers(0, 2, shape).astype(np.float32).astype(numpy_dtype)
    found = constant(make_model, onh.from_array(array, "w"))
    assert found.dtype == numpy_dtype == dtype_of(dtype)
    assert onnx_dtype_of(found.dtype) == dtype
    assert found.shape == shape
    assert found.tobytes() == array.tobytes()
    assert not found.flags.writeable


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [(T.UINT4, 4), (T.INT4, 4), (T.FLOAT4E2M1, 4), (T.UINT2, 2), (T.INT2, 2), *((dtype, 6) for dtype in SIX_BITS)],
)
def test_every_sub_byte_value(make_model: Make, dtype: int, bits: int) -> None:
    """All bit patterns, and lengths that do not fill the last byte. Bytes of int4 are the same numbers as int8."""
    patterns = np.arange(1 << bits, dtype=np.uint8)
    expected = np.where(patterns < 8, patterns, patterns + 240) if dtype == T.INT4 else patterns
    for length in range(1, len(patterns) + 1):
        stream = "".join(format(pattern, f"0{bits}b")[::-1] for pattern in patterns[:length])
        raw = bytes(int(stream[at : at + 8][::-1], 2) for at in range(0, len(stream), 8))
        tensor = T(name="w", data_type=dtype, dims=[length], raw_data=raw)
        found = constant(make_model, tensor)
        assert found.view(np.uint8).tolist() == expected[:length].tolist()
        np.testing.assert_array_equal(found.astype(np.float32), onh.to_array(tensor).astype(np.float32))


@pytest.mark.parametrize(
    ("dtype", "field", "entries", "expected"),
    [
        (T.FLOAT, "float_data", [1.5, -2.0], [1.5, -2.0]),
        (T.DOUBLE, "double_data", [1.5, -2.0], [1.5, -2.0]),
        (T.COMPLEX64, "float_data", [1, 2, 3, 4], [1 + 2j, 3 + 4j]),
        (T.COMPLEX128, "double_data", [1, 2, 3, 4], [1 + 2j, 3 + 4j]),
        (T.INT8, "int32_data", [-128, 127], [-128, 127]),
        (T.UINT8, "int32_data", [0, 255], [0, 255]),
        (T.INT16, "int32_data", [-(2**15), 3], [-(2**15), 3]),
        (T.UINT16, "int32_data", [2**16 - 1, 3], [2**16 - 1, 3]),
        (T.INT32, "int32_data", [-(2**31), 3], [-(2**31), 3]),
        (T.INT64, "int64_data", [-(2**63), 2**63 - 1], [-(2**63), 2**63 - 1]),
        (T.UINT32, "uint64_data", [2**32 - 1, 3], [2**32 - 1, 3]),
        (T.UINT64, "uint64_data", [2**64 - 1, 3], [2**64 - 1, 3]),
        (T.BOOL, "int32_data", [2, 0], [True, False]),
        (T.FLOAT16, "int32_data", [0x3C00, 0xC000], [1, -2]),
        (T.BFLOAT16, "int32_data", [0x3F80, 0xC000], [1, -2]),
        (T.FLOAT8E4M3FN, "int32_data", [0x38, 0xC0], [1, -2]),
        (T.INT4, "int32_data", [0xF7], [7, -1]),
        (T.UINT2, "int32_data", [0b1101], [1, 3]),
        *((dtype, "int32_data", [0b001000, 0b101000], [1, -1]) for dtype in SIX_BITS[:1]),
    ],
)
def test_typed_data(make_model: Make, dtype: int, field: str, entries: list[Any], expected: list[Any]) -> None:
    tensor = T(name="w", data_type=dtype, dims=[2])
    getattr(tensor, field).extend(entries)
    found = constant(make_model, tensor)
    assert found.dtype == dtype_of(dtype)
    assert (found.tolist() if found.dtype.isbuiltin == 1 else found.astype(np.float32).tolist()) == expected


def field(number: int, wire: int, payload: bytes) -> bytes:
    return bytes([number << 3 | wire]) + (bytes([len(payload)]) if wire == 2 else b"") + payload


def tensor_bytes(dtype: int, *fields: bytes, dims: bytes = b"\x08\x02") -> bytes:
    """A model around a TensorProto written by hand."""
    tensor = dims + field(2, 0, bytes([dtype])) + field(8, 2, b"w") + b"".join(fields)
    output = field(12, 2, field(1, 2, b"w"))
    return b"\x08\x08" + field(7, 2, field(5, 2, tensor) + output) + field(8, 2, b"\x10\x11")


FLOATS = np.array([1.5, -2.0], np.float32).tobytes()


@pytest.mark.parametrize(
    "data",
    [
        tensor_bytes(1, field(4, 2, FLOATS)),
        tensor_bytes(1, field(4, 5, FLOATS[:4]), field(4, 5, FLOATS[4:])),
        tensor_bytes(1, field(4, 2, FLOATS[:4]), field(4, 2, FLOATS[4:])),
        tensor_bytes(1, field(4, 2, FLOATS[:4]), field(4, 5, FLOATS[4:])),
        tensor_bytes(1, field(4, 5, FLOATS[:4]), field(4, 2, FLOATS[4:])),
        tensor_bytes(1, field(4, 2, FLOATS), field(4, 2, b"")),
        tensor_bytes(1, field(9, 2, FLOATS), dims=b"\x0a\x01\x02"),
        tensor_bytes(1, field(9, 2, FLOATS), dims=b"\x0a\x01\x02\x0a\x00"),
        tensor_bytes(1, field(9, 2, b"other"), field(9, 2, FLOATS)),  # the last occurrence counts
    ],
)
def test_packed_and_unpacked_forms(data: bytes) -> None:
    model = read_model(data)
    assert model.constant(0).tolist() == [1.5, -2.0]
    assert onh.to_array(onnx.ModelProto.FromString(data).graph.initializer[0]).tolist() == [1.5, -2.0]


def test_aligned_raw_data_is_not_copied(make_model: Make) -> None:
    weights = np.arange(1000, dtype=np.uint8)
    model = with_tensor(make_model, onh.from_array(weights, "w"))
    array = model.constant(model.value_id("w"))
    data = np.frombuffer(model.file.data, np.uint8)
    assert np.shares_memory(array, data)
    part = model.extract([0])
    assert np.shares_memory(part.constant(part.value_id("w")), data)
    for pad in range(8):  # misaligned in most of these files
        tensor = onh.from_array(np.arange(100_000, dtype=np.float64), "w")
        tensor.doc_string = "x" * pad
        model = with_tensor(make_model, tensor)
        array = model.constant(model.value_id("w"))
        assert array.flags.aligned
        assert array.tolist() == list(range(100_000))
        assert model.constant(model.value_id("w")) is array


def resident(path: pathlib.Path) -> int:
    """KiB of a mapped file that are in this process's memory."""
    total, counts = 0, False
    for line in pathlib.Path("/proc/self/smaps").read_text().splitlines():
        field, *rest = line.split()
        if not field.endswith(":"):
            counts = bool(rest) and rest[-1] == str(path)
        elif field == "Rss:" and counts:
            total += int(rest[0])
    return total


@pytest.mark.parametrize("padding", range(4))  # whatever else is in the file, protobuf puts data at odd addresses
def test_views_of_the_file(make_model: Make, tmp_path: pathlib.Path, padding: int) -> None:
    large, small = np.arange(1 << 20, dtype=np.float32), np.arange(5, dtype=np.float32)
    tensors = [onh.from_array(large, "large"), onh.from_array(small, "small")]
    nodes = [oh.make_node("Add", ["large", "small"], ["y"], doc_string="*" * (128 + padding))]
    path = tmp_path / "m.onnx"
    onnx.save(make_model(nodes, [], [oh.make_tensor_value_info("y", 1, None)], tensors), path)
    model = read_model(path)
    view = model.constant(model.value_id("large"), aligned=False)
    assert not view.flags.owndata
    assert not view.flags.writeable
    np.testing.assert_array_equal(view, large)
    assert resident(path) >= 4096
    release_pages(view)
    assert resident(path) <= 128  # what shares a page with it, or was mapped with that
    np.testing.assert_array_equal(view, large)
    release_pages(view[7:9])  # less than a page
    release_pages(large)
    np.testing.assert_array_equal(model.constant(model.value_id("large")), large)
    np.testing.assert_array_equal(model.constant(model.value_id("small"), aligned=False), small)


def test_booleans_are_true_or_false(make_model: Make) -> None:
    found = constant(make_model, T(name="w", data_type=T.BOOL, dims=[3], raw_data=b"\x00\x01\x02"))
    assert found.view(np.uint8).tolist() == [0, 1, 1]


def test_strings(make_model: Make) -> None:
    tensor = T(name="w", data_type=T.STRING, dims=[2, 1], string_data=["ü".encode(), b""])
    assert constant(make_model, tensor).tolist() == [["ü"], [""]]
    tensor.string_data[1] = b"\xff"
    with pytest.raises(ModelError, match="initializer 'w': a string is not UTF-8"):
        constant(make_model, tensor)


@pytest.mark.parametrize(
    ("attribute", "value", "expected"),
    [
        ("value_float", 1.5, np.array(1.5, np.float32)),
        ("value_floats", [1.5, 2.5], np.array([1.5, 2.5], np.float32)),
        ("value_int", -3, np.array(-3)),
        ("value_ints", [1, -2, 3], np.array([1, -2, 3])),
        ("value_string", "ü", np.array("ü", object)),
        ("value_strings", ["a", "b"], np.array(["a", "b"], object)),
        ("value", onh.from_array(np.array([[1, 2]], np.int8)), np.array([[1, 2]], np.int8)),
        ("value", onh.from_array(np.array([1], ml_dtypes.bfloat16)), np.array([1], ml_dtypes.bfloat16)),
    ],
)
def test_constant_nodes(make_model: Make, attribute: str, value: Any, expected: np.ndarray[Any, Any]) -> None:
    node = oh.make_node("Constant", [], ["w"], **{attribute: value})
    model = read_model(make_model([node, oh.make_node("Identity", ["w"], ["y"])]))
    assert (model.num_nodes, model.constant_keys) == (1, {"w"})
    found = model.constant(model.value_id("w"))
    assert (found.dtype, found.shape, found.tolist()) == (expected.dtype, expected.shape, expected.tolist())
    known = model.type_of(model.value_id("w"))
    assert (known.dtype, known.shape) == (expected.dtype, expected.shape)


def test_constant_nodes_without_entries(make_model: Make) -> None:
    """Zero and the empty list may be written as no field at all."""
    for name, kind, shape in (
        ("value_ints", onnx.AttributeProto.INTS, (0,)),
        ("value_int", onnx.AttributeProto.INT, ()),
    ):
        node = onnx.NodeProto(op_type="Constant", output=["w"])
        node.attribute.add(name=name, type=kind)
        model = read_model(make_model([node, oh.make_node("Identity", ["w"], ["y"])]))
        assert model.constant(model.value_id("w")).tolist() == np.zeros(shape).tolist()


def sparse(values: list[float], indices: Any, dims: list[int]) -> onnx.SparseTensorProto:
    array = np.array(indices, np.int64)
    return onnx.SparseTensorProto(
        values=oh.make_tensor("w", 1, [len(values)], values), indices=onh.from_array(array), dims=dims
    )


def test_sparse_tensors(make_model: Make) -> None:
    assert constant(make_model, sparse([5, 6], [1, 5], [2, 3])).tolist() == [[0, 5, 0], [0, 0, 6]]
    assert constant(make_model, sparse([5, 6], [[0, 1], [1, 2]], [2, 3])).tolist() == [[0, 5, 0], [0, 0, 6]]
    assert constant(make_model, sparse([], np.zeros(0), [2])).tolist() == [0, 0]
    assert constant(make_model, sparse([], np.zeros((0, 2)), [2, 0])).shape == (2, 0)
    model = with_tensor(make_model, sparse([5, 6], [1, 5], [2, 3]))
    assert model.constant_type(model.value_id("w")).shape == (2, 3)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (sparse([1], [6], [2, 3]), "is outside its shape"),
        (sparse([1], [-1], [2, 3]), "is outside its shape"),
        (sparse([1], [[0, 3]], [2, 3]), "is outside its shape"),
        (sparse([1], [[-1, 0]], [2, 3]), "is outside its shape"),
        (sparse([1, 2], [1, 1], [2, 3]), "not in ascending order"),
        (sparse([1, 2], [2, 1], [2, 3]), "not in ascending order"),
        (sparse([1], [0], [2**40]), "exceed the limit of 33554432 bytes"),
        (sparse([1], [0], [2**23 + 1]), "exceed the limit of 33554432 bytes"),
        (sparse([1, 2], [1], [2, 3]), "one for each of 1 indices"),
        (sparse([1], [[0, 1, 1]], [2, 3]), "have 3 columns, its rank is 2"),
        (sparse([1], [[[0]]], [2, 3]), "rank 1 or 2"),
        (sparse([1], [0], [2, -3]), r"dims\[1\] is negative"),
        (sparse([1], [0], [2**62, 2**62]), "product of dims"),
        (onnx.SparseTensorProto(values=oh.make_tensor("w", 1, [1], [1]), dims=[2]), "needs values and indices"),
    ],
)
def test_sparse_tensors_refused(make_model: Make, tensor: onnx.SparseTensorProto, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        constant(make_model, tensor)


def tensor_of(**fields: Any) -> onnx.TensorProto:
    return T(**{"name": "w", "data_type": T.FLOAT, "dims": [2], **fields})


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (tensor_of(raw_data=b"1234567"), "raw_data has 7 bytes, dims and data_type need 8"),
        (tensor_of(raw_data=b"123456789"), "raw_data has 9 bytes, dims and data_type need 8"),
        (tensor_of(), "the data have 0 entries, dims and data_type need 2"),
        (tensor_of(float_data=[1]), "the data have 1 entries, dims and data_type need 2"),
        (tensor_of(float_data=[1, 2, 3]), "the data have 3 entries, dims and data_type need 2"),
        (tensor_of(int32_data=[1, 2]), "data of data_type 1 stand in field 5, expected field 4 or raw_data"),
        (tensor_of(float_data=[1, 2], raw_data=b"12345678"), "raw_data and a typed data field are both given"),
        (tensor_of(dims=[-2], raw_data=b""), r"dims\[0\] is negative: -2"),
        (tensor_of(dims=[2**62 + 2], raw_data=b"12345678"), "does not fit 63 bits"),
        (tensor_of(dims=[2**32, 2**32]), "product of dims does not fit 63 bits"),
        (tensor_of(dims=[0, 2**62, 2**62]), "product of dims does not fit 63 bits"),
        (tensor_of(dims=[1] * 65, raw_data=b"1234"), "rank above 64"),
        (tensor_of(data_type=T.UNDEFINED, raw_data=b"12345678"), "data_type is missing or undefined"),
        (tensor_of(data_type=99, raw_data=b"12345678"), "data_type 99 is unknown"),
        (tensor_of(data_type=-1, raw_data=b"12345678"), "data_type 18446744073709551615 is unknown"),
        (tensor_of(data_type=T.STRING, raw_data=b"12345678"), "strings cannot stand in raw_data"),
        (tensor_of(data_type=T.INT4, dims=[3], raw_data=b"1"), "raw_data has 1 bytes, dims and data_type need 2"),
        *((tensor_of(data_type=dtype, dims=[5], raw_data=b"1234567"), "need 4") for dtype in SIX_BITS),
        (tensor_of(segment=T.Segment(begin=0, end=2), float_data=[1, 2]), "segmented tensors are not supported"),
        (tensor_of(data_location=T.EXTERNAL), "data are external, but no location is given"),
        (tensor_of(name="", float_data=[1, 2]), "the initializer has no name"),
    ],
)
def test_tensors_refused(make_model: Make, tensor: onnx.TensorProto, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        with_tensor(make_model, tensor)


# ---- external data


def external(entries: dict[str, str], dims: list[int] | None = None, dtype: int = T.FLOAT) -> onnx.TensorProto:
    tensor = T(name="w", data_type=dtype, dims=[2] if dims is None else dims, data_location=T.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """A model's folder with 1024 floats in data.bin and below/data.bin, and a secret beside the folder."""
    (tmp_path / "model" / "below").mkdir(parents=True)
    floats = np.arange(1024, dtype=np.float32).tobytes()
    (tmp_path / "model" / "data.bin").write_bytes(floats)
    (tmp_path / "model" / "below" / "data.bin").write_bytes(floats[::-1])
    (tmp_path / "secret.bin").write_bytes(floats)
    return tmp_path / "model"


def read_external(
    make_model: Make, folder: pathlib.Path, tensor: onnx.TensorProto, **options: Any
) -> np.ndarray[Any, Any]:
    outputs = [oh.make_tensor_value_info("y", 1, ["n"])]
    onnx.save(make_model([oh.make_node("Identity", ["w"], ["y"])], [], outputs, [tensor]), folder / "model.onnx")
    model = read_model(folder / "model.onnx", **options)
    return model.constant(model.value_id("w"))


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({"location": "data.bin", "offset": "4", "length": "8"}, [1, 2]),
        ({"location": "data.bin"}, [0, 1]),
        ({"location": "./data.bin", "offset": "4088"}, [1022, 1023]),
        ({"location": "data.bin", "offset": "8", "checksum": "x", "prepacked_0": "y"}, [2, 3]),
    ],
)
def test_external_data(make_model: Make, folder: pathlib.Path, entries: dict[str, str], expected: list[float]) -> None:
    assert read_external(make_model, folder, external(entries)).tolist() == expected
    assert not read_external(make_model, folder, external(entries)).flags.owndata


def test_external_data_in_other_places(make_model: Make, folder: pathlib.Path) -> None:
    below = external({"location": "below/data.bin"}, dtype=T.UINT8)
    assert read_external(make_model, folder, below).tolist() == list(np.float32(1023).tobytes()[::-1][:2])
    (folder / "none.bin").write_bytes(b"")
    assert read_external(make_model, folder, external({"location": "none.bin"}, [0, 3])).shape == (0, 3)
    data = (folder / "model.onnx").read_bytes()
    elsewhere = read_model(data, folder=folder)
    assert elsewhere.constant(elsewhere.value_id("w")).shape == (0, 3)
    with pytest.raises(ModelError, match="the model's folder is unknown"):
        read_model(data).constant(elsewhere.value_id("w"))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"location": "../secret.bin"}, "not a relative path below"),
        ({"location": "below/../../secret.bin"}, "not a relative path below"),
        ({"location": "/dev/zero"}, "not a relative path below"),
        ({"location": "below//data.bin"}, "not a relative path below"),
        ({"location": "."}, "not a relative path below"),
        ({"location": "data.bin\0"}, "not a relative path below"),
        ({"location": "below"}, "not a regular file"),
        ({"location": "missing.bin"}, "missing.bin"),
        ({"location": "data.bin/x"}, "data.bin"),
        ({"location": "link.bin"}, "link.bin"),
        ({"location": "up/secret.bin"}, "up"),
        ({"location": "hard.bin"}, "has 2 hard links"),
        ({"location": "fifo"}, "not a regular file"),
        ({"location": ""}, "no location"),
        ({"offset": "0"}, "no location"),
        ({"location": "data.bin", "offset": "-8"}, "found '-8'"),
        ({"location": "data.bin", "offset": "0x10"}, "found '0x10'"),
        ({"location": "data.bin", "offset": "²"}, "found '²'"),
        ({"location": "data.bin", "length": "18446744073709551624"}, "expected a number of bytes"),
        ({"location": "data.bin", "offset": "4089"}, "has 4096 bytes, but the tensor needs bytes 4089 to 4097"),
        ({"location": "data.bin", "offset": "100000"}, "has 4096 bytes"),
        ({"location": "data.bin", "length": "4096"}, "length is 4096, but dims and data_type require 8"),
        ({"location": "data.bin", "__class__": "x"}, "unknown external_data key '__class__'"),
    ],
)
def test_external_data_refused(make_model: Make, folder: pathlib.Path, entries: dict[str, str], message: str) -> None:
    import os

    os.mkfifo(folder / "fifo")
    (folder / "link.bin").symlink_to("data.bin")
    (folder / "up").symlink_to("..")
    (folder / "hard.bin").hardlink_to(folder.parent / "secret.bin")
    with pytest.raises(ModelError, match=rf"initializer 'w': .*{message}"):
        read_external(make_model, folder, external(entries))


def test_external_data_twice_stated(make_model: Make, folder: pathlib.Path) -> None:
    tensor = external({"location": "data.bin"})
    tensor.external_data.add(key="location", value="below/data.bin")
    with pytest.raises(ModelError, match="has the key 'location' twice"):
        read_external(make_model, folder, tensor)
    with pytest.raises(ModelError, match="has 4096 bytes"):
        read_external(make_model, folder, external({"location": "data.bin"}, [2**38]))
    tensor = external({"location": "data.bin"})
    tensor.float_data.extend([1, 2])
    with pytest.raises(ModelError, match="external data and embedded data are both given"):
        read_external(make_model, folder, tensor)


def test_links_may_be_allowed(make_model: Make, folder: pathlib.Path) -> None:
    (folder / "up").symlink_to("..")
    (folder / "hard.bin").hardlink_to(folder.parent / "secret.bin")
    for location in ("up/secret.bin", "hard.bin"):
        found = read_external(make_model, folder, external({"location": location}), follow_links=True)
        assert found.tolist() == [0, 1]
    with pytest.raises(ModelError, match="not a relative path below"):
        read_external(make_model, folder, external({"location": "../secret.bin"}), follow_links=True)


def test_external_data_are_put_inside(make_model: Make, folder: pathlib.Path) -> None:
    read_external(make_model, folder, external({"location": "data.bin", "offset": "4096"}, [0]))
    large = external({"location": "data.bin", "length": "4096"}, [1024])
    small = external({"location": "data.bin", "offset": "4"})
    small.name, large.name = "small", "large"
    lost = external({"location": "lost.bin"}, [1024])
    nodes = [
        oh.make_node("Add", ["large", "small"], ["a"]),
        oh.make_node("Constant", [], ["c"], value=large),
        oh.make_node("Add", ["c", "c"], ["y"]),
    ]
    outputs = [oh.make_tensor_value_info("y", 1, [1024])]
    onnx.save(make_model(nodes, [], outputs, [large, small]), folder / "model.onnx")
    model = read_model(folder / "model.onnx")
    inside = read_model(model.to_bytes())
    for name in ("large", "small", "c"):
        np.testing.assert_array_equal(inside.constant(inside.value_id(name)), model.constant(model.value_id(name)))
    skeleton = read_model(model.to_bytes(max_constant_bytes=1024))
    assert sorted(port.name for port in skeleton.inputs) == ["c", "large"]
    assert skeleton.constant(skeleton.value_id("small")).tolist() == [1, 2]
    onnx.save(make_model([oh.make_node("Neg", ["w"], ["y"])], [], outputs, [lost]), folder / "model.onnx")
    model = read_model(folder / "model.onnx")
    with pytest.raises(ModelError, match=r"lost\.bin"):
        model.to_bytes()
    assert model.type_of(model.value_id("y")).shape == (1024,)


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("value_float", "FLOAT", np.float32(0)),
        ("value_int", "INT", np.int64(0)),
        ("value_string", "STRING", np.array("", object)),
        ("value_floats", "FLOATS", np.zeros(0, np.float32)),
        ("value_ints", "INTS", np.zeros(0, np.int64)),
        ("value_strings", "STRINGS", np.zeros(0, object)),
    ],
)
def test_attributes_of_a_constant_without_a_field(make_model: Make, name: str, kind: str, expected: Any) -> None:
    """Encoders may leave zeros and empty lists out."""
    node = oh.make_node("Constant", [], ["c"])
    node.attribute.add(name=name, type=onnx.AttributeProto.AttributeType.Value(kind))
    nodes = [node, oh.make_node("Identity", ["c"], ["y"])]
    model = read_model(make_model(nodes, [], [oh.make_tensor_value_info("y", 1, None)]))
    found = model.constant(model.value_id("c"))
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tolist() == expected.tolist()
