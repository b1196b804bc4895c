"""Types of values: stated by the file or the user, or else inferred by `onnx.shape_inference`, once per file.

Inference runs over a `skeleton` of the whole model, so its cost does not depend on the weights. Its result is kept as
bytes and indexed like a file. A type is decoded on first use.
"""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .._onnx import WireError, read_type
from ..base.formatting import shape_text
from ..errors import ModelError, raise_out_of_memory
from .computed_shapes import computed_shapes
from .constants import Constants
from .element_types import operators_to_type, result_types, rule_of
from .file import ModelFile
from .function_library import MAX_CALL_DEPTH, FunctionLibrary
from .isolation import InferenceFailed, infer_types, is_harmless
from .nested_types import NestedTypes
from .pool_sizes import pool_sizes
from .repeated_types import infer_repeated
from .rows import Rows
from .shape_functions import ShapeFunctions
from .skeleton import hidden_length, skeleton_of
from .types import Dim, ValueType, dtype_of, onnx_dtype_of
from .wire import encode_tensor_type

__all__ = ["StatedTypes", "ValueTypes"]

_UNKNOWN = ValueType(None, None)
_NOTHING = (_UNKNOWN, 0, b"")
_MAX_ROUNDS = 4  # of inference with added types; each may take tens of ms in a child process
# With shapes that nodes compute: each layer of a transformer may compute its shapes from the results of the one before.
# Each round costs about 0.25 s of CPU time for 20,000 nodes, so only models of up to so many nodes get all rounds.
_MAX_ROUNDS_OF_SHAPES, _NODES_FOR_ALL_ROUNDS = 16, 5_000
_NESTED_INFERENCES = 100  # of nested graphs, for a file; models have few loops, and hostile ones must not take hours
_NO_TENSOR = -1  # the result of read_type for sequences, maps and optionals


class _StatedTypes:
    """The types that a file states in its inputs, outputs and value infos. Equal ones are decoded once."""

    def __init__(self, file: ModelFile) -> None:
        self.file = file
        # Indexing memoryviews returns plain ints, which is faster than NumPy scalars.
        self._info = file.value_info.data
        self._places = file.info_type_begin, file.info_type_end
        self._begin, self._end = (places.data for places in self._places)
        self._decoded: dict[bytes, tuple[ValueType, int, bytes]] = {b"": _NOTHING}

    def find(self, value: int) -> tuple[ValueType, int, bytes]:
        """A value's type, the number of its element type, and its TypeProto (empty if no type is stated)."""
        info = self._info[value]
        if info < 0:
            return _NOTHING
        message = bytes(self.file.data[self._begin[info] : self._end[info]])
        decoded = self._decoded.get(message)
        if decoded is None:
            try:
                decoded = self._decoded[message] = _decoded_type(message)
            except WireError as error:
                raise self.file.error(f"type of value {self.file.index.value_name(value)!r}: {error}") from error
        return decoded

    def representatives(self, values: NDArray[np.int32]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Positions in ``values`` of one value for each distinct TypeProto, and the index among these of each value."""
        if not len(self._places[0]):
            return np.zeros(min(1, len(values)), np.intp), np.zeros(len(values), np.intp)
        info = self.file.value_info[values]
        begin, end = (np.where(info < 0, 0, places[info]) for places in self._places)
        return _equal_ranges(self.file.data, begin, end)


def _decoded_type(message: bytes) -> tuple[ValueType, int, bytes]:
    """The type in a TypeProto, the number of its element type, and ``message``. Raises `WireError`."""
    dtype, shape = read_type(message, 0, len(message))
    if shape is not None:
        # PaddlePaddle writes "?" for every unknown size. It is not a symbol, because the sizes may differ.
        shape = tuple(None if dim == "?" else hidden_length(dim) for dim in shape)
    return ValueType(dtype_of(dtype), shape), dtype, message


class ValueTypes:
    """Types of a file's values, by value id of the file. Threads may share an object.

    ``supplied``: types from the user, merged with those in the file; they take precedence. ``sized``: types with open
    dims in the file that follow from the supplied sizes, where known with these sizes. They count as inferred, because
    some files use one symbol for different sizes.
    """

    def __init__(
        self,
        file: ModelFile,
        constants: Constants,
        supplied: Mapping[int, ValueType] | None = None,
        sized: Mapping[int, ValueType] | None = None,
        effort: Iterator[int] | None = None,
    ) -> None:
        """``effort``: has an element for each inference of a nested graph that is still allowed. Graphs that are nested
        deeper share it."""
        self.supplied = types.MappingProxyType(dict(supplied or {}))
        self._sized = sized or {}
        self._file = file
        self._constants = constants
        self._effort = iter(range(_NESTED_INFERENCES)) if effort is None else effort
        self._constant = file.value_constant.data
        self._producer = file.value_producer.data
        self._declared = _StatedTypes(file)
        self._inferred: _InferredTypes | None = None
        self._tried = False
        self._known: dict[int, ValueType] = {}  # cache of `type_of`
        self._of_bodies: dict[int, Sequence[ValueType]] = {}  # cache of `body_inputs`
        self._table: tuple[tuple[ValueType, ...], NDArray[np.int32]] | None = None
        self._with_inferred: ValueTypes | None = None
        self._with_inner_sizes: ValueTypes | None = None
        self._lock = threading.Lock()

    def with_supplied(self, more: Mapping[int, ValueType]) -> ValueTypes:
        """The same object with more types from the user. Raises `ModelError` if one contradicts a stated type."""
        supplied = dict(self.supplied)
        for value, added in more.items():
            stated, dtype = self._stated(value)
            constant = self._constant[value]
            if constant >= 0:
                stated = self._constants.type_of(constant)
            refined = None if dtype == _NO_TENSOR else _refined(stated, added)
            if refined is None:
                known = "not a tensor" if dtype == _NO_TENSOR else _text(stated)
                name = self._file.index.value_name(value)
                raise self._file.error(f"value {name!r} is {known}, which contradicts the supplied type {_text(added)}")
            if constant < 0:
                supplied[value] = refined
        return ValueTypes(self._file, self._constants, supplied, self._with_sizes(supplied))

    def _with_sizes(self, supplied: Mapping[int, ValueType]) -> dict[int, ValueType]:
        """Types of node outputs that are declared with open dims, if ``supplied`` has sizes for open dims of inputs.
        Within a graph, a symbol is one size. Other open dims stay for inference to resolve."""
        sizes: dict[str, int | None] = {}
        is_narrowed = False
        for value, known in supplied.items():
            declared = self._declared.find(value)[0]
            if self._producer[value] < 0 and declared.shape is not None and known.shape is not None:
                for symbol, size in zip(declared.shape, known.shape, strict=False):
                    is_narrowed |= symbol is None and isinstance(size, int)
                    if isinstance(symbol, str) and isinstance(size, int):
                        sizes[symbol] = size if sizes.setdefault(symbol, size) == size else None
        if not is_narrowed and all(size is None for size in sizes.values()):
            return {}
        sized = {}
        for value, known in self._open_results():
            if value not in supplied:
                assert known.shape is not None
                shape = tuple(_sized(dim, sizes) if isinstance(dim, str) else dim for dim in known.shape)
                sized[value] = ValueType(known.dtype, shape)
        return sized

    def _open_results(self) -> Iterator[tuple[int, ValueType]]:
        """The results of nodes that the file declares with open dims, and these types."""
        values = np.flatnonzero((self._file.value_info >= 0) & (self._file.value_producer >= 0)).astype(np.int32)
        first, index = self._declared.representatives(values)
        declared = [self._declared.find(value)[0] for value in values[first].tolist()]
        is_open = np.array([_is_open(known) for known in declared], np.bool_)[index]
        for value, number in zip(values[is_open].tolist(), index[is_open].tolist(), strict=True):
            yield value, declared[number]

    def with_inner_sizes(self) -> ValueTypes:
        """The same object, but sizes of results that the file leaves open follow from inference: those without a
        symbol, and those whose symbol no input has. Quantizers write such symbols for sizes that they did not compute.
        The object itself if there are none. Computed once."""
        if self._with_inner_sizes is None:
            symbols: set[Dim] = set()
            for value in np.flatnonzero((self._file.value_info >= 0) & (self._file.value_producer < 0)).tolist():
                symbols.update(self._stated(value)[0].shape or ())
            symbols.discard(None)
            inner = {
                value: known
                for value, known in (() if self._sized else self._open_results())
                if value not in self.supplied
                and not all(isinstance(dim, int) or dim in symbols for dim in known.shape or ())
            }
            types_ = ValueTypes(self._file, self._constants, self.supplied, inner) if inner else self
            self._with_inner_sizes = types_
        return self._with_inner_sizes

    def with_inferred(self) -> ValueTypes:
        """The same object with all known types as types from the user. Computed once, because many parts use it."""
        if self._with_inferred is None:
            known = ((value, self.type_of(value)) for value, number in enumerate(self._constant) if number < 0)
            self._with_inferred = self.with_supplied(
                {value: type_ for value, type_ in known if type_.dtype is not None}
            )
        return self._with_inferred

    def type_of(self, value: int, infer: bool = True) -> ValueType:
        """The type of a value, with None for unknown parts. ``infer``: run inference if necessary."""
        known = self._known.get(value)
        if known is None:
            known = self._find(value, infer)[0]
            if infer:
                self._known[value] = known
        return known

    def table(self) -> tuple[tuple[ValueType, ...], NDArray[np.int32]]:
        """The distinct types of all values, including constants, and the index of each value's type. Runs inference if
        necessary."""
        if self._table is None:
            kinds, kind_of = self.kinds_of(np.arange(len(self._producer), dtype=np.int32))
            kind_of.flags.writeable = False
            self._table = kinds, kind_of
        return self._table

    def kinds_of(self, values: NDArray[np.int32]) -> tuple[tuple[ValueType, ...], NDArray[np.int32]]:
        """`type_of` many values: the distinct types in order of first occurrence, and the index of each value's type.
        Runs inference if `type_of` would for one of them.

        The type of a value that is not a constant and not supplied follows from what the file declares, what inference
        found, and whether a node computes it: `_find` is called for one value of each combination.
        """
        constant, producer = self._file.value_constant[values], self._file.value_producer[values]
        alone = constant >= 0
        if self.supplied or self._sized:
            alone |= np.isin(values, np.fromiter((*self.supplied, *self._sized), np.int64))
        common = np.flatnonzero(~alone)
        first, combination = self._declared.representatives(values[common])
        declared = [self._declared.find(value) for value in values[common[first]].tolist()]
        is_settled = [
            dtype == _NO_TENSOR or (known.dtype is not None and known.shape is not None) for known, dtype, _ in declared
        ]
        asks = (producer[common] >= 0) & ~np.array(is_settled, np.bool_)[combination]
        combination = combination * 2 + asks
        if asks.any():
            inferred = self._inferred if self._tried else self._infer()
            if inferred is not None:
                combination[asks] += 2 * len(declared) * (1 + inferred.numbers(values[common[asks]]))
        _, representatives, index = np.unique(combination, return_index=True, return_inverse=True)
        kinds: dict[ValueType, int] = {}
        kind_of = np.empty(len(values), np.int32)
        types_of_combinations = [self._find(value)[0] for value in values[common[representatives]].tolist()]
        numbers = [kinds.setdefault(known, len(kinds)) for known in types_of_combinations]
        kind_of[common] = np.array(numbers, np.int32)[index]
        for at in np.flatnonzero(alone).tolist():
            kind_of[at] = kinds.setdefault(self.type_of(int(values[at])), len(kinds))
        return _by_occurrence(tuple(kinds), kind_of)

    @property
    def has_inferred(self) -> bool:
        """Whether inference ran and succeeded."""
        return self._inferred is not None

    def is_declared(self, value: int) -> bool:
        """Whether the element type and the shape of a value are stated, not only inferred."""
        stated, _ = self._stated(value)
        return stated.dtype is not None and stated.shape is not None and value not in self._sized

    def stated_dtype(self, value: int) -> np.dtype[Any] | None:
        """The stated element type, or None."""
        constant = self._constant[value]
        return self._constants.dtype(constant) if constant >= 0 else self._stated(value)[0].dtype

    def is_tensor(self, value: int, infer: bool = True) -> bool:
        """False if the value is known to be a sequence, a map or an optional; otherwise True."""
        known, message = self._find(value, infer)
        return known.dtype is not None or not message or read_type(message, 0, len(message))[0] != _NO_TENSOR

    def message_of(self, value: int) -> bytes:
        """The type as a TypeProto, also for sequences and optionals; empty if unknown."""
        known, message = self._find(value)
        if known.dtype is None:
            return message
        return encode_tensor_type(onnx_dtype_of(known.dtype), known.shape)

    def stated(self) -> StatedTypes:
        """The types from the user and the file, without inferred ones."""
        return StatedTypes(self)

    def stated_message_of(self, value: int) -> bytes:
        """The stated type as a TypeProto; empty if there is none."""
        known = self.supplied.get(value)
        if known is None or known.dtype is None:
            return self._declared.find(value)[2]
        return encode_tensor_type(onnx_dtype_of(known.dtype), known.shape)

    def is_known(self, value: int) -> bool:
        """Whether the element type is known, or the value is known not to be a tensor."""
        known, message = self._find(value)
        return known.dtype is not None or (message != b"" and read_type(message, 0, len(message))[0] == _NO_TENSOR)

    def _stated(self, value: int) -> tuple[ValueType, int]:
        """The type from the user or else from the file, and the file's number of the element type."""
        declared, dtype, _ = self._declared.find(value)
        return self.supplied.get(value, declared), dtype

    def _find(self, value: int, infer: bool = True) -> tuple[ValueType, bytes]:
        """The type, and its TypeProto in the file if there is one."""
        constant = self._constant[value]
        if constant >= 0:
            return self._constants.type_of(constant), b""
        declared, dtype, message = self._declared.find(value)
        sized = self._sized.get(value)
        supplied = self.supplied.get(value) or sized
        if supplied is not None:
            declared, message = supplied, b""
        complete = declared.dtype is not None and declared.shape is not None
        if dtype == _NO_TENSOR or (complete and (sized is None or not _is_open(sized))):
            return declared, message
        if self._producer[value] < 0:  # inference finds nothing for graph inputs
            return declared, message
        inferred = self._inferred if self._tried or not infer else self._infer()
        if inferred is None:
            return declared, message
        result, dtype, result_message = inferred.find(value)
        if supplied is not None:
            return _refined(result, supplied) or (supplied if sized is None else result), b""
        adds_to_declared = result.dtype is not None and (declared.dtype is None or result.shape is not None)
        return (result, result_message) if dtype == _NO_TENSOR or adds_to_declared else (declared, message)

    def _infer(self) -> _InferredTypes | None:
        """All types that inference finds; None if it fails."""
        with self._lock:
            if not self._tried:
                if _expands_within_bounds(self._file):
                    self._inferred = self._run_inference()
                self._tried = True
            return self._inferred

    def _run_inference(self) -> _InferredTypes | None:
        """Inference, supplied with the types of results that onnx does not find. This usually runs it once."""
        stated = {**{value: _without_symbols(known) for value, known in self._sized.items()}, **self.supplied}
        more = _ResultTypes(self._file, self._constants, self._declared)
        added = more.find(stated, None)
        inferred = self._infer_from({**stated, **added})
        if inferred is None and added:
            added = {}
            inferred = self._infer_from(stated)
        rows = Rows(self._file, self._constants)
        rounds = _MAX_ROUNDS_OF_SHAPES if rows.num_nodes <= _NODES_FOR_ALL_ROUNDS else _MAX_ROUNDS
        for number in range(rounds):
            if inferred is None:
                break
            known = {**stated, **added}
            new = more.find(known, inferred) if number < _MAX_ROUNDS else {}
            so_far = functools.partial(self._so_far, known, inferred)
            new |= computed_shapes(rows, so_far) | pool_sizes(rows, so_far, functools.partial(self._is_sized, stated))
            for value, result in self._nested.find(so_far, functools.partial(self._is_tensor, inferred)).items():
                refined = _refined(so_far(value), result)
                if refined is not None and refined != so_far(value):
                    new[value] = refined
            if not new:
                break
            added |= new
            further = self._infer_from({**stated, **added})
            if further is None:
                break
            inferred = further
        return inferred

    def _so_far(self, stated: Mapping[int, ValueType], inferred: _InferredTypes, value: int) -> ValueType:
        """The known type of a value between two rounds of inference."""
        constant = self._constant[value]
        if constant >= 0:
            return self._constants.type_of(constant)
        known = stated.get(value) or self._declared.find(value)[0]
        if known.shape is None or _is_open(known):
            result = inferred.find(value)[0]
            if result.dtype is not None and (known.dtype is None or result.shape is not None):
                return result
        return known

    def _is_tensor(self, inferred: _InferredTypes, value: int) -> bool:
        """False if the value is known to be something else between two rounds of inference."""
        return _NO_TENSOR not in (self._declared.find(value)[1], inferred.find(value)[1])

    @functools.cached_property
    def _nested(self) -> NestedTypes:
        return NestedTypes(Rows(self._file, self._constants), self._infer_nested)

    def body_inputs(self, node: int) -> Sequence[ValueType]:
        """See `NestedTypes.body_inputs`. Runs inference if necessary."""
        if node not in self._of_bodies:
            self._of_bodies[node] = self._nested.body_inputs(node, self.type_of)
        return self._of_bodies[node]

    def _infer_nested(self, encoded: bytes) -> Callable[[str], ValueType] | None:
        """The types of the values of a nested graph as a model, by name."""
        if next(self._effort, None) is None:
            return None
        file = ModelFile(memoryview(encoded), label=self._file.label)
        types_ = ValueTypes(file, Constants(file), effort=self._effort)
        return lambda name: types_.type_of(file.index.value_id(name))

    def _is_sized(self, stated: Mapping[int, ValueType], value: int) -> bool:
        """Whether all sizes of a value are stated."""
        return (stated.get(value) or self._declared.find(value)[0]).has_sizes

    @functools.cached_property
    def _shape_functions(self) -> ShapeFunctions:
        return ShapeFunctions(self._file, Rows(self._file, self._constants))

    def _infer_from(self, stated: Mapping[int, ValueType]) -> _InferredTypes | None:
        """The result of one run of inference with these types added; None if it fails."""
        described = self._shape_functions
        found = self._infer_with(stated, described.encoded, described.operators)
        return self._infer_with(stated) if found is None and described.encoded else found

    def _infer_with(
        self, stated: Mapping[int, ValueType], functions: Sequence[bytes] = (), operators: Iterable[str] = ()
    ) -> _InferredTypes | None:
        """`_infer_from`, with functions for some operators. ``operators``: those of the functions' bodies."""
        file = self._file
        longest = int((file.info_type_end - file.info_type_begin).max(initial=0))
        harmless = is_harmless((*file.op_types, *operators), bool(file.functions), len(file.node_op), longest)
        try:
            if harmless and not functions:
                repeated = infer_repeated(file, self._constants, stated)
                if repeated is not None:
                    return _RepeatedTypes(*repeated)
            # Inference of harmless operators does not read data.
            skeleton = skeleton_of(file, self._constants, stated, with_data=not harmless, functions=functions)
            answer = None if skeleton is None else infer_types(skeleton, harmless=harmless)
            return None if answer is None else _TypesInAnswer(file, memoryview(answer))
        except Exception as error:  # any error of onnx: the types stay unknown
            raise_out_of_memory(error)
            if isinstance(error, InferenceFailed):
                raise
            return None


class StatedTypes:
    """The types of a `ValueTypes` that were not inferred."""

    def __init__(self, types_: ValueTypes) -> None:
        self.supplied = types_.supplied
        self.message_of = types_.stated_message_of


class _InferredTypes(Protocol):
    """The result of inference."""

    def find(self, value: int) -> tuple[ValueType, int, bytes]:
        """See `_StatedTypes.find`."""

    def numbers(self, values: NDArray[np.int32]) -> NDArray[np.intp]:
        """A number for each value; `find` returns equal types for equal numbers."""


class _TypesInAnswer:
    """A skeleton with all types that were found."""

    def __init__(self, file: ModelFile, answer: memoryview) -> None:
        self._types = _StatedTypes(ModelFile(answer, label="inferred types"))
        # value -> the value of the same name in the answer, or -1
        self._same_values = file.index.values_in_answer(self._types.file.index)
        self._same = self._same_values.data

    def find(self, value: int) -> tuple[ValueType, int, bytes]:
        other = self._same[value]
        if other < 0:
            return _NOTHING
        try:
            return self._types.find(other)
        except ModelError as error:  # such as a rank above NumPy's
            raise_out_of_memory(error)
            return _NOTHING

    def numbers(self, values: NDArray[np.int32]) -> NDArray[np.intp]:
        others = self._same_values[values]
        is_known = others >= 0
        index = np.zeros(len(values), np.intp)
        index[is_known] = 1 + self._types.representatives(others[is_known])[1]
        return index


class _RepeatedTypes:
    """Types by number; see `infer_repeated`."""

    def __init__(self, number_of: NDArray[np.int32], messages: Sequence[bytes]) -> None:
        self._number_of = number_of
        self._types: list[tuple[ValueType, int, bytes]] = [self._decoded(message) for message in messages]

    @staticmethod
    def _decoded(message: bytes) -> tuple[ValueType, int, bytes]:
        try:
            return _decoded_type(message) if message else _NOTHING
        except WireError:  # such as a rank above NumPy's
            return _NOTHING

    def find(self, value: int) -> tuple[ValueType, int, bytes]:
        return self._types[int(self._number_of[value])]

    def numbers(self, values: NDArray[np.int32]) -> NDArray[np.intp]:
        return self._number_of[values].astype(np.intp)


class _ResultTypes:
    """Element types of results that onnx does not infer, by the rules of `element_types`. Without operators that need
    this, it does nothing and does not import onnx."""

    def __init__(self, file: ModelFile, constants: Constants, declared: _StatedTypes) -> None:
        self._file = file
        self._declared = declared
        self._constants = constants
        self._operators = operators_to_type(file)

    def find(self, stated: Mapping[int, ValueType], inferred: _InferredTypes | None) -> dict[int, ValueType]:
        """Value -> type, for the results whose element type is unknown but follows from the known types. Before the
        first inference (``inferred`` is None), only results that inference cannot find."""
        if not self._operators:
            return {}
        file, constant = self._file, self._file.value_constant
        rules = [
            rule_of(domain, op_type, file.opsets[domain]) if (domain, op_type) not in file.functions else None
            for domain, op_type in zip(file.op_domains, file.op_names, strict=True)
        ]

        def dtype(value: int) -> np.dtype[Any] | None:
            if constant[value] >= 0:
                return self._constants.type_of(int(constant[value])).dtype
            known = stated.get(value) or self._declared.find(value)[0]
            if known.dtype is None and inferred is not None:
                known = inferred.find(value)[0]
            return known.dtype

        rows = Rows(file, self._constants)
        found = result_types(rows, range(rows.num_nodes), lambda node: rules[file.node_op[node]], dtype)
        if inferred is None:
            own = np.isin(file.node_op, self._operators)
            found = {value: one for value, one in found.items() if own[file.value_producer[value]]}
        known = {value: (stated.get(value) or self._declared.find(value)[0]).shape for value in found}
        return {value: ValueType(one, known[value]) for value, one in found.items()}


def _text(known: ValueType) -> str:
    return f"{known.dtype or 'any dtype'} {'any shape' if known.shape is None else shape_text(known.shape)}"


def _equal_ranges(
    data: memoryview, begin: NDArray[np.int64], end: NDArray[np.int64]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Positions of one range of ``data`` for each distinct content, and the index among these of each range."""
    everything = np.frombuffer(data, np.uint8)
    lengths = end - begin
    representatives: list[NDArray[np.intp]] = []
    index, count = np.empty(len(begin), np.intp), 0
    ordered = np.sort(lengths)  # faster than np.unique, which hashes
    for length in ordered[np.flatnonzero(np.diff(ordered, prepend=-1))].tolist():
        rows = np.flatnonzero(lengths == length)
        first, number = np.zeros(1, np.intp), np.zeros(len(rows), np.intp)
        if length:
            windows = np.lib.stride_tricks.sliding_window_view(everything, length)
            contents = np.ascontiguousarray(windows[begin[rows]]).view(f"V{length}")[:, 0]
            _, first, number = np.unique(contents, return_index=True, return_inverse=True)
        representatives.append(rows[first])
        index[rows] = count + number
        count += len(first)
    return np.concatenate(representatives) if representatives else np.empty(0, np.intp), index


def _by_occurrence(
    kinds: tuple[ValueType, ...], kind_of: NDArray[np.int32]
) -> tuple[tuple[ValueType, ...], NDArray[np.int32]]:
    """The same, with ``kinds`` in the order of their first occurrence in ``kind_of``."""
    present, first = np.unique(kind_of, return_index=True)
    order = present[np.argsort(first)]
    number = np.empty(len(kinds), np.int32)
    number[order] = np.arange(len(order))
    return tuple(kinds[kind] for kind in order.tolist()), number[kind_of]


def _without_symbols(known: ValueType) -> ValueType:
    """The type with symbols removed, because inference would keep them."""
    if known.shape is None:
        return known
    return ValueType(known.dtype, tuple(None if isinstance(dim, str) else dim for dim in known.shape))


def _sized(symbol: str, sizes: Mapping[str, int | None]) -> int | str:
    size = sizes.get(symbol)
    return symbol if size is None else size


def _is_open(known: ValueType) -> bool:
    return known.shape is not None and not known.has_sizes


def _refined(stated: ValueType, more: ValueType) -> ValueType | None:
    """``stated`` with the additional information in ``more``; None if they contradict each other."""
    if stated.dtype is not None and more.dtype is not None and stated.dtype != more.dtype:
        return None
    dtype = stated.dtype if more.dtype is None else more.dtype
    if stated.shape is None or more.shape is None:
        return ValueType(dtype, stated.shape if more.shape is None else more.shape)
    if len(stated.shape) != len(more.shape):
        return None
    shape = []
    for old, new in zip(stated.shape, more.shape, strict=True):
        if isinstance(old, int) and isinstance(new, int) and old != new:
            return None
        shape.append(old if new is None or isinstance(old, int) else new)
    return ValueType(dtype, tuple(shape))


def _expands_within_bounds(file: ModelFile) -> bool:
    """Whether all function calls, which inference inlines, stay within the limits of `FunctionLibrary.check`. Calls in
    nested graphs are not counted, so every function counts as called once more."""
    if not file.functions:
        return True
    library = FunctionLibrary(file)
    uses = np.bincount(file.node_op, minlength=len(file.op_types)).tolist()
    used = dict(zip(zip(file.op_domains, file.op_names, strict=True), uses, strict=True))
    try:
        library.check({key: 1 + used.get(key[:2], 0) for key in library.keys}, deepest=MAX_CALL_DEPTH)
    except ModelError as error:
        raise_out_of_memory(error)
        return False
    return True
