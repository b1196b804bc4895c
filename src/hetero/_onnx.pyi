from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

_Bytes = bytes | memoryview
_Ids = NDArray[np.int32]

class WireError(ValueError):
    """Bytes that are no ONNX model. Says what is wrong, in which node or tensor, at which byte."""

@final
class OnnxIndex:
    """Arrays over the bytes of a ModelProto, made by one pass without the GIL; `_core/onnx/index.h` describes each.

    A *span* is ``offset << 24 | length``, a string of the file; 0 is the empty one. `WireError` if the bytes are no
    valid model. ``hash_key``: 16 bytes, random once per process.
    """

    arrays: Final[dict[str, NDArray[Any]]]
    def __new__(cls, data: _Bytes, hash_key: bytes) -> OnnxIndex: ...
    @property
    def ir_version(self) -> int: ...
    @property
    def graph_name(self) -> str: ...
    @property
    def in_order(self) -> bool:
        """Whether the file lists every node, Constant nodes too, before what reads it."""
    def text(self, span: int) -> str:
        """The string of a span; UnicodeDecodeError where it is no name and no UTF-8."""
    def value_name(self, value: int) -> str: ...
    def value_id(self, name: str) -> int:
        """-1 if the main graph has no such value."""
    def skeleton(
        self,
        constants: NDArray[np.uint8],
        infos: NDArray[np.uint8],
        keeps_name: NDArray[np.uint8],
        max_vector: int,
        hidden: bytes,
    ) -> bytes:
        """Fields of a GraphProto for shape inference; `_core/onnx/skeleton.h` says how it is written.

        ``constants``: 0 as a graph input, 1 as it is (no sparse one), 2 left out. ``infos``: 1 for the graph inputs,
        outputs and value infos to write. ``keeps_name``: 1 for the values that nested graphs capture. ``hidden``:
        what symbols begin with that stand for lengths of vectors above ``max_vector``; at most 32 bytes.
        """
    def values_in_answer(self, answer: OnnxIndex) -> NDArray[np.int32]:
        """For each value the one that stands for it in the answer of inference to the skeleton, or -1."""

@final
class NodeKeys:
    """Node keys. An *entry* is a vertex, or the number of vertices plus the number of a constant from a node."""

    def __new__(cls, index: OnnxIndex) -> NodeKeys: ...
    def __len__(self) -> int: ...
    def key_of(self, entry: int) -> str: ...
    def entry_of(self, key: str) -> int:
        """-1 if no node goes by that key."""

def read_type(data: _Bytes, begin: int, end: int) -> tuple[int, tuple[int | str | None, ...] | None]:
    """Element type and shape of a TypeProto; 0 if nothing is stated, -1 if it is no tensor's."""

def vector_lengths(data: _Bytes, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Lengths that TypeProtos state for tensors of rank 1; -1 for a symbol, another rank, or a malformed type."""

def read_tensor(data: _Bytes, begin: int, end: int) -> tuple[int, tuple[int, ...], int, int, int]:
    """Element type, dims, data kind, and byte range of the data of a TensorProto."""

def read_fields(data: _Bytes, begin: int, end: int, number: int) -> list[tuple[int, int]]:
    """Byte ranges of the payloads of a message's length-delimited fields of one number."""

def read_varints(data: _Bytes, begin: int, end: int, number: int) -> NDArray[np.int64]:
    """Integers of a message's repeated field of one number, packed or not."""

def unpack_bits(data: NDArray[np.uint8], bits: int, count: int) -> NDArray[np.uint8]:
    """Elements of 2, 4 or 6 bits, the lowest bits first, each in the low bits of a byte."""

def edges(indptr: _Ids, values: _Ids, more_indptr: _Ids, more_values: _Ids, producer: _Ids) -> tuple[_Ids, _Ids]:
    """Edges (producer, reader), each once, by reader, over two CSR lists of the values that nodes read (-1: none)."""

def gather_rows(indptr: _Ids, values: _Ids, rows: _Ids) -> tuple[_Ids, _Ids]:
    """Rows of a CSR list, in the order given."""
