"""Index of an ONNX file, from the C reader in onnx/index.h: arrays without copies, names on demand."""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

cimport cython
from onnx_c cimport *

import sys

import numpy as np


class WireError(ValueError):
    """Bytes that are not a valid ONNX model. States the problem, the node or tensor, and the byte offset."""


# ht_place -> what to call it, and the field with its name
cdef tuple _PLACES = (
    ("the model", 0), ("the graph", 0), ("node", 3), ("initializer", 8), ("sparse initializer", 0),
    ("graph input", 1), ("graph output", 1), ("value info", 1), ("opset import", 1), ("function", 1),
)
cdef enum:
    PLACE_NODE = 2
    LONGEST_NAME = 80  # characters of a name in a message


cdef str _text(const uint8_t *base, ht_span span):
    return (<const char *>base)[ht_span_offset(span):ht_span_offset(span) + ht_span_length(span)].decode("utf-8")


cdef str _quoted(const uint8_t *base, ht_span span):
    cdef int64_t length = min(ht_span_length(span), 4 * LONGEST_NAME)
    text = (<const char *>base)[ht_span_offset(span):ht_span_offset(span) + length].decode("utf-8", "replace")
    return repr(text if len(text) <= LONGEST_NAME else text[:LONGEST_NAME] + "…")


cdef str _place(const uint8_t *base, ht_error *error, int i):
    kind, name_field = _PLACES[error.place[i]]
    if error.ordinal[i] >= 0:
        kind = f"{kind} {error.ordinal[i]}"
    if error.place_end[i] == 0:
        return kind
    cdef ht_span name = 0
    if name_field:
        name = ht_first_string(base, error.place_begin[i], error.place_end[i], name_field)
    cdef ht_span output = 0, op = 0
    if error.place[i] == PLACE_NODE:
        op = ht_first_string(base, error.place_begin[i], error.place_end[i], 4)
        output = ht_first_string(base, error.place_begin[i], error.place_end[i], 2)
    if name:
        kind += " " + _quoted(base, name)
    elif output:
        kind += " of output " + _quoted(base, output)
    if op:
        kind += f" (op {_quoted(base, op)})"
    return kind


cdef object _failure(const uint8_t *base, ht_error *error):
    """The exception that describes `error`."""
    if error.no_memory:
        return MemoryError()
    message = error.message.decode("utf-8")
    if error.has_subject:
        message += ": " + _quoted(base, error.subject)
    if error.offset >= 0:
        message += f" (at byte {error.offset})"
    if error.place_count == 1:
        return WireError(f"{_place(base, error, 0)}: {message}")
    if error.place_count > 1:
        message += ": " + " <- ".join([_place(base, error, i) for i in range(error.place_count)])
    return WireError(message)


@cython.auto_pickle(False)
cdef class _Memory:
    """The C index, owned by all objects that refer to it."""
    cdef ht_index index

    def __cinit__(self):
        memset(&self.index, 0, sizeof(self.index))

    def __dealloc__(self):
        ht_index_free(&self.index)


@cython.auto_pickle(False)
cdef class _Block:
    """One array of an index, exposed to NumPy."""
    cdef _Memory owner
    cdef void *data
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data, self.size, 1, flags)


@cython.auto_pickle(False)
cdef class OnnxIndex:
    """Arrays over the bytes of a ModelProto, made by one pass without the GIL.

    ``arrays``: name -> read-only array of uint8, int32 or int64; ``_core/onnx/index.h`` describes each. A *span* is
    ``offset << 24 | length``, a string of the file; 0 is the empty string. ``data``: the file's bytes, which must not
    change while the index lives. ``hash_key``: 16 bytes, random once per process. Raises `WireError` if the bytes are
    not a valid model, ValueError for a hash key of another length.
    """

    cdef _Memory memory
    cdef ht_index *index
    cdef uint64_t hash_key[2]
    cdef const uint8_t[::1] data
    cdef readonly dict arrays

    def __cinit__(self, const uint8_t[::1] data not None, bytes hash_key not None):
        cdef ht_error error
        cdef const uint8_t *base = NULL
        cdef int64_t size = data.shape[0]
        cdef bint done
        if len(hash_key) != 16:
            raise ValueError(f"hash_key must have 16 bytes, got {len(hash_key)}")
        memcpy(self.hash_key, <const char *>hash_key, 16)
        self.memory = _Memory.__new__(_Memory)
        self.index = &self.memory.index
        if size > 0:
            base = &data[0]
        self.data = data
        with nogil:
            done = ht_index_build(base, size, self.hash_key, self.index, &error)
        PyErr_CheckSignals()  # checked here, because later code may discard a handler's exception
        if not done:
            raise _failure(base, &error)
        self.arrays = self._export()

    cdef dict _export(self):
        cdef int number = 0, size = 0
        cdef const char *name = NULL
        cdef void *data = NULL
        cdef int64_t count = 0
        cdef _Block block
        arrays = {}
        types = {1: np.dtype(np.uint8), 4: np.dtype(np.int32), 8: np.dtype(np.int64)}
        while ht_index_array(self.index, number, &name, &size, &data, &count):
            number += 1
            if count == 0:
                array = np.empty(0, types[size])
                array.flags.writeable = False
            else:
                block = _Block.__new__(_Block)
                block.owner = self.memory
                block.data = data
                block.size = count * size
                array = np.frombuffer(block, types[size])
            arrays[name.decode("ascii")] = array
        return arrays

    @property
    def ir_version(self):
        """The model's ir_version; 0 if the file does not state one."""
        return self.index.ir_version

    @property
    def graph_name(self):
        """The name of the main graph."""
        return self.text(self.index.graph_name)

    @property
    def in_order(self):
        """Whether the file lists every node, including Constant nodes, before the nodes that read its results."""
        return bool(self.index.in_order)

    def text(self, int64_t span):
        """The string of a span. Raises IndexError if it lies outside the file, UnicodeDecodeError for a string that is
        neither a name nor UTF-8."""
        if span < 0 or ht_span_offset(span) + ht_span_length(span) > self.data.shape[0]:
            raise IndexError(f"span {span} lies outside the file")
        return _text(&self.data[0], span)

    def value_name(self, Py_ssize_t value):
        """The name of a value number. Raises IndexError for a number that the model does not have."""
        if not 0 <= value < self.index.value_name.count:
            raise IndexError(f"value {value} is not in 0..{self.index.value_name.count - 1}")
        return _text(&self.data[0], self.index.value_name.data[value])

    def value_id(self, str name not None):
        """The number of the value ``name``; -1 if the main graph has no such value."""
        cdef bytes encoded = name.encode("utf-8", "surrogatepass")
        cdef const uint8_t *string = <const uint8_t *><const char *>encoded
        return ht_table_find(&self.index.values, self.index.value_name.data, &self.data[0],
                             ht_hash(self.hash_key, string, len(encoded)), string, len(encoded))

    def skeleton(self, const uint8_t[::1] constants not None, const uint8_t[::1] infos not None,
                 const uint8_t[::1] keeps_name not None, int64_t max_vector, bytes hidden not None):
        """The bytes of the fields of a GraphProto for shape inference, without weights; ``_core/onnx/skeleton.h``
        describes them.

        ``constants``: uint8, one per constant: 0 writes it as a graph input, 1 writes it whole (not for a sparse one),
        2 leaves it out. ``infos``: uint8, 1 for each graph input, output and value info to write. ``keeps_name``:
        uint8, 1 for each value that nested graphs capture. ``hidden``: at most 32 bytes, with which the symbols begin
        that replace lengths of vectors above ``max_vector``. Raises ValueError for arrays of other lengths.
        """
        cdef ht_skeleton_choice choice
        cdef ht_u8s out
        cdef bint done
        cdef const uint8_t *base = &self.data[0]
        for given, name in ((constants, "constant_value"), (infos, "info_value"), (keeps_name, "value_name")):
            if len(given) != len(self.arrays[name]):
                raise ValueError(f"{len(given)} choices for {len(self.arrays[name])} entries of {name}")
        if len(hidden) > 32 or max_vector < 0:
            raise ValueError(f"max_vector is {max_vector}, and hidden has {len(hidden)} bytes (at most 32)")
        memset(&out, 0, sizeof(out))
        choice.constants = &constants[0] if constants.shape[0] else NULL
        choice.infos = &infos[0] if infos.shape[0] else NULL
        choice.keeps_name = &keeps_name[0] if keeps_name.shape[0] else NULL
        choice.max_vector = max_vector
        choice.hidden = hidden
        try:
            with nogil:
                done = ht_skeleton_write(base, self.index, &choice, &out)
            if not done:
                raise MemoryError()
            return (<const char *>out.data)[:out.count] if out.count else b""
        finally:
            free(out.data)

    def values_in_answer(self, OnnxIndex answer not None):
        """int32[values]: for each value, the number of the value of ``answer`` that stands for it, or -1. ``answer``:
        the index of the model that shape inference made of the skeleton."""
        cdef const uint8_t *base = &self.data[0]
        cdef const uint8_t *answer_base = &answer.data[0]
        found = np.empty(self.index.value_name.count, np.int32)
        cdef int32_t[::1] ids = found
        if ids.shape[0]:
            with nogil:
                ht_skeleton_values(base, self.index, self.hash_key, answer_base, answer.index, &ids[0])
        return found


@cython.auto_pickle(False)
cdef class NodeKeys:
    """The keys by which users refer to nodes: a node's name if it is unique, else its first output.

    An *entry* is a vertex, or the number of vertices plus the number of a constant that a node makes. ``len()`` is the
    number of entries. Raises `WireError` for a node that cannot be read.
    """

    cdef ht_keys keys
    cdef OnnxIndex index

    def __cinit__(self, OnnxIndex index not None):
        cdef ht_error error
        cdef bint done
        cdef const uint8_t *base = &index.data[0]
        memset(&self.keys, 0, sizeof(self.keys))
        self.index = index
        with nogil:
            done = ht_keys_build(base, index.index, index.hash_key, &self.keys, &error)
        PyErr_CheckSignals()
        if not done:
            raise _failure(base, &error)

    def __dealloc__(self):
        ht_keys_free(&self.keys)

    def __len__(self):
        return self.keys.key.count

    def key_of(self, Py_ssize_t entry):
        """The key of an entry. Raises IndexError for an entry that the model does not have."""
        if not 0 <= entry < self.keys.key.count:
            raise IndexError(f"entry {entry} is not in 0..{self.keys.key.count - 1}")
        return _text(&self.index.data[0], self.keys.key.data[entry])

    def entry_of(self, str key not None):
        """The entry of a key; -1 if no node has it."""
        cdef bytes encoded = key.encode("utf-8", "surrogatepass")
        cdef const uint8_t *string = <const uint8_t *><const char *>encoded
        return ht_table_find(&self.keys.table, self.keys.key.data, &self.index.data[0],
                             ht_hash(self.index.hash_key, string, len(encoded)), string, len(encoded))


cdef int _check_range(const uint8_t[::1] data, int64_t begin, int64_t end) except -1:
    if not 0 <= begin <= end <= data.shape[0] or data.shape[0] == 0:
        raise IndexError(f"bytes {begin}..{end} lie outside of the {data.shape[0]} bytes given")
    return 0


def read_type(const uint8_t[::1] data not None, int64_t begin, int64_t end):
    """The TypeProto in bytes [begin, end) of ``data``: its element type and its shape.

    The element type is 0 if none is stated, and -1 if the type is not a tensor's. Dimensions are sizes, symbols or
    None; the shape is None if the rank is unknown. Raises IndexError for a range outside the data, `WireError` for a
    malformed type.
    """
    cdef ht_error error
    cdef ht_i64s sizes, symbols
    cdef int32_t dtype = 0
    cdef int64_t rank = -1, i
    _check_range(data, begin, end)
    memset(&sizes, 0, sizeof(sizes))
    memset(&symbols, 0, sizeof(symbols))
    try:
        if not ht_read_type(&data[0], begin, end, &dtype, &rank, &sizes, &symbols, &error):
            raise _failure(&data[0], &error)
        if rank < 0:
            return dtype, None
        shape = []
        for i in range(rank):
            if sizes.data[i] >= 0:
                shape.append(sizes.data[i])
            else:
                shape.append(_text(&data[0], symbols.data[i]) if symbols.data[i] else None)
        return dtype, tuple(shape)
    finally:
        free(sizes.data)
        free(symbols.data)


def vector_lengths(const uint8_t[::1] data not None, const int64_t[::1] begins not None,
                   const int64_t[::1] ends not None):
    """int64: for the TypeProto in each range [begins[i], ends[i]) of ``data``, the length that it states for a tensor
    of rank 1; -1 for a symbol, another rank, or a malformed type. Raises IndexError for a range outside the data."""
    cdef ht_error error
    cdef ht_i64s sizes, symbols
    cdef int32_t dtype = 0
    cdef int64_t rank = -1
    cdef Py_ssize_t i
    if begins.shape[0] != ends.shape[0]:
        raise ValueError(f"{begins.shape[0]} begins for {ends.shape[0]} ends")
    for i in range(begins.shape[0]):
        _check_range(data, begins[i], ends[i])
    lengths = np.full(begins.shape[0], -1, np.int64)
    cdef int64_t[::1] out = lengths
    memset(&sizes, 0, sizeof(sizes))
    memset(&symbols, 0, sizeof(symbols))
    with nogil:
        for i in range(begins.shape[0]):
            sizes.count = symbols.count = 0
            if ht_read_type(&data[0], begins[i], ends[i], &dtype, &rank, &sizes, &symbols, &error) and rank == 1:
                out[i] = sizes.data[0]
    free(sizes.data)
    free(symbols.data)
    return lengths


def read_tensor(const uint8_t[::1] data not None, int64_t begin, int64_t end):
    """The TensorProto in bytes [begin, end) of ``data``: (element type, dims, data kind, first byte and end of its
    data). Raises IndexError for a range outside the data, `WireError` for a malformed tensor."""
    cdef ht_error error
    cdef ht_tensor tensor
    cdef ht_i64s dims
    cdef ht_cursor body
    cdef int64_t i
    _check_range(data, begin, end)
    memset(&error, 0, sizeof(error))
    memset(&dims, 0, sizeof(dims))
    body.at = &data[0] + begin
    body.end = &data[0] + end
    try:
        if not ht_read_tensor(&data[0], body, &dims, &tensor, &error):
            raise _failure(&data[0], &error)
        return (tensor.dtype, tuple([dims.data[i] for i in range(dims.count)]), tensor.kind, tensor.data_begin,
                tensor.data_end)
    finally:
        free(dims.data)


def read_fields(const uint8_t[::1] data not None, int64_t begin, int64_t end, int number):
    """(begin, end) of the payload of each length-delimited field ``number`` of the message in bytes [begin, end).
    Raises IndexError for a range outside the data, `WireError` for a malformed message."""
    cdef ht_cursor cursor
    cdef ht_field field
    cdef const char *trouble
    _check_range(data, begin, end)
    cursor.at = &data[0] + begin
    cursor.end = &data[0] + end
    ranges = []
    while cursor.at < cursor.end:
        trouble = ht_next(&cursor, &field)
        if trouble != NULL:
            raise WireError(f"{trouble.decode('ascii')} (at byte {cursor.at - &data[0]})")
        if field.number == number and field.wire == HT_LEN:
            ranges.append((field.begin - &data[0], field.end - &data[0]))
    return ranges


def read_varints(const uint8_t[::1] data not None, int64_t begin, int64_t end, int number):
    """int64: the integers of the repeated field ``number``, packed or not, of the message in bytes [begin, end). Raises
    IndexError for a range outside the data, `WireError` for a malformed message."""
    cdef ht_cursor cursor
    cdef ht_field field
    cdef ht_i64s values
    cdef ht_error error
    cdef const char *trouble
    cdef int64_t[::1] numbers_view
    _check_range(data, begin, end)
    memset(&values, 0, sizeof(values))
    memset(&error, 0, sizeof(error))
    cursor.at = &data[0] + begin
    cursor.end = &data[0] + end
    try:
        while cursor.at < cursor.end:
            trouble = ht_next(&cursor, &field)
            if trouble != NULL:
                raise WireError(f"{trouble.decode('ascii')} (at byte {cursor.at - &data[0]})")
            if field.number == number and not ht_read_int64s(&data[0], &field, &values, 1 << 40, &error):
                raise _failure(&data[0], &error)
        numbers = np.empty(values.count, np.int64)
        if values.count:
            numbers_view = numbers
            memcpy(&numbers_view[0], values.data, values.count * sizeof(int64_t))
        return numbers
    finally:
        free(values.data)


cdef enum:  # AttributeProto.type, and the fields of AttributeProto
    ONE_FLOAT = 1
    ONE_INT = 2
    ONE_STRING = 3
    ONE_TENSOR = 4
    MANY_FLOATS = 6
    MANY_INTS = 7
    MANY_STRINGS = 8
    FIELD_NAME = 1
    FIELD_F = 2
    FIELD_I = 3
    FIELD_S = 4
    FIELD_T = 5
    FIELD_FLOATS = 7
    FIELD_INTS = 8
    FIELD_STRINGS = 9
    FIELD_DOC = 13
    FIELD_TYPE = 20


cdef inline float _float(const uint8_t *bytes_):
    cdef float number
    memcpy(&number, bytes_, 4)
    return number


cdef tuple _attribute(const uint8_t *base, ht_cursor body):
    """(name, value) of an AttributeProto with a number, a string, a list of these, or a tensor, whose value is the range
    of its bytes after ``base``; None for any other message."""
    cdef ht_field field
    cdef const uint8_t *at
    cdef uint64_t number
    cdef float single
    cdef int64_t kind = 0, integer = 0
    cdef bytes name = None, string = b""
    cdef object tensor = None
    cdef double f = 0.0
    cdef list floats = [], ints = [], strings = []
    while body.at < body.end:
        if ht_next(&body, &field) != NULL:
            return None
        if field.wire == HT_LEN:
            if field.number == FIELD_NAME:
                name = field.begin[:field.end - field.begin]
            elif field.number == FIELD_S:
                string = field.begin[:field.end - field.begin]
            elif field.number == FIELD_STRINGS:
                strings.append(<bytes>field.begin[:field.end - field.begin])
            elif field.number == FIELD_T and tensor is None:  # protobuf merges messages that are given twice
                tensor = range(field.begin - base, field.end - base)
            elif field.number == FIELD_INTS:
                at = field.begin
                while at < field.end:
                    at = ht_varint(at, field.end, &number)
                    if at == NULL:
                        return None
                    ints.append(<int64_t>number)
            elif field.number == FIELD_FLOATS:
                if (field.end - field.begin) % 4:
                    return None
                at = field.begin
                while at < field.end:
                    floats.append(_float(at))
                    at += 4
            elif field.number != FIELD_DOC:
                return None
        elif field.wire == HT_VARINT:
            if field.number == FIELD_I:
                integer = <int64_t>field.value
            elif field.number == FIELD_INTS:
                ints.append(<int64_t>field.value)
            elif field.number == FIELD_TYPE:
                kind = <int64_t>field.value
            else:
                return None
        elif field.wire == HT_FIXED32:
            single = _float(field.end - 4)
            if field.number == FIELD_F:
                f = single
            elif field.number == FIELD_FLOATS:
                floats.append(single)
            else:
                return None
        else:
            return None
    if name is None:
        return None
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError:
        return None
    if kind == ONE_INT:
        return text, integer
    if kind == MANY_INTS:
        return text, ints
    if kind == ONE_FLOAT:
        return text, f
    if kind == MANY_FLOATS:
        return text, floats
    if kind == ONE_STRING:
        return text, string
    if kind == MANY_STRINGS:
        return text, strings
    return (text, tensor) if kind == ONE_TENSOR and tensor is not None else None


def read_attributes(const uint8_t[::1] data not None, int64_t begin, int64_t end, int number):
    """Name -> value of the attributes in the repeated field ``number`` of the message in bytes [begin, end), as
    `onnx.helper.get_attribute_value` returns them; for a tensor, the ``range`` of the bytes of its message, which is not
    checked. None if there is an attribute of another type than numbers, strings, lists of these and tensors, a
    reference, a repeated name, or anything malformed: the caller then parses the message with protobuf, which reports
    errors. Raises IndexError for a range outside the data."""
    cdef ht_cursor cursor, body
    cdef ht_field field
    cdef dict attributes = {}
    _check_range(data, begin, end)
    cursor.at = &data[0] + begin
    cursor.end = &data[0] + end
    while cursor.at < cursor.end:
        if ht_next(&cursor, &field) != NULL:
            return None
        if field.number != number:
            continue
        if field.wire != HT_LEN:
            return None
        body.at = field.begin
        body.end = field.end
        attribute = _attribute(&data[0], body)
        if attribute is None or attribute[0] in attributes:
            return None
        attributes[attribute[0]] = attribute[1]
    return attributes


def attribute_groups(const uint8_t[::1] data not None, const int64_t[::1] begins not None,
                     const int64_t[::1] ends not None, int number):
    """int32[len(begins)]: equal numbers for messages whose fields ``number`` have equal bytes in equal order. 0 for
    messages without such fields. A message that is malformed, whose fields do not follow each other, or have more than
    4 kB has a number of its own. Raises IndexError for a range outside the data."""
    cdef ht_cursor cursor
    cdef ht_field field
    cdef const uint8_t *first
    cdef const uint8_t *last
    cdef const uint8_t *start
    cdef Py_ssize_t i
    cdef bint is_alone
    cdef int32_t count = 1
    cdef dict known = {}
    groups = np.zeros(len(begins), np.int32)
    cdef int32_t[::1] out = groups
    if len(begins) != len(ends):
        raise ValueError(f"{len(begins)} begins, but {len(ends)} ends")
    for i in range(len(begins)):
        _check_range(data, begins[i], ends[i])
        if begins[i] == ends[i]:
            continue
        cursor.at = &data[0] + begins[i]
        cursor.end = &data[0] + ends[i]
        first = last = NULL
        is_alone = False
        while cursor.at < cursor.end:
            start = cursor.at
            if ht_next(&cursor, &field) != NULL:
                is_alone = True
                break
            if field.number == number:
                is_alone = is_alone or (last != NULL and last != start)
                if first == NULL:
                    first = start
                last = cursor.at
        if is_alone or (first != NULL and last - first > 4096):
            out[i] = count
            count += 1
        elif first != NULL:
            content = (<const char *>first)[:last - first]
            group = known.get(content)
            if group is None:
                group = known[content] = count
                count += 1
            out[i] = group
    return groups


cdef list _names_and_types(bytes packed):
    """The (name, type) pairs in a key of `attribute_forms`."""
    cdef Py_ssize_t at = 4
    pairs = []
    while at < len(packed):
        size = int.from_bytes(packed[at + 1:at + 3], sys.byteorder)
        pairs.append((packed[at + 3:at + 3 + size].decode("utf-8", "replace"), packed[at]))
        at += 3 + size
    return pairs


def attribute_forms(const uint8_t[::1] data not None, const int64_t[::1] begins not None,
                    const int64_t[::1] ends not None, const int32_t[::1] operators not None, int number):
    """int32[len(begins)]: equal numbers for messages of the same operator whose attributes (fields ``number``) have
    equal names and types in equal order; and by number, the operator and the (name, AttributeProto.type) pairs, or None
    for malformed messages and for more than 4 kB of names. Raises IndexError for a range outside the data."""
    cdef ht_cursor cursor, body
    cdef ht_field field, entry
    cdef Py_ssize_t i
    cdef int64_t kind
    cdef int32_t operator
    cdef uint16_t size
    cdef dict known = {}
    cdef list forms = []
    cdef const uint8_t *name
    cdef Py_ssize_t length, used
    cdef bint is_sound
    cdef char buffer[4096]
    groups = np.zeros(len(begins), np.int32)
    cdef int32_t[::1] out = groups
    if len(begins) != len(ends) or len(begins) != len(operators):
        raise ValueError(f"{len(begins)} begins, but {len(ends)} ends and {len(operators)} operators")
    for i in range(len(begins)):
        _check_range(data, begins[i], ends[i])
        operator = operators[i]
        memcpy(buffer, &operator, 4)
        used = 4
        is_sound = True
        cursor.at = &data[0] + begins[i]
        cursor.end = &data[0] + ends[i]
        while cursor.at < cursor.end and is_sound:
            is_sound = ht_next(&cursor, &field) == NULL
            if not is_sound or field.number != number:
                continue
            is_sound = field.wire == HT_LEN
            body.at = field.begin
            body.end = field.end
            name = NULL
            length = kind = 0
            while is_sound and body.at < body.end:
                is_sound = ht_next(&body, &entry) == NULL
                if is_sound and entry.number == FIELD_NAME and entry.wire == HT_LEN:
                    name, length = entry.begin, entry.end - entry.begin
                elif is_sound and entry.number == FIELD_TYPE and entry.wire == HT_VARINT:
                    kind = <int64_t>entry.value
            is_sound = is_sound and name != NULL and used + 3 + length <= <Py_ssize_t>sizeof(buffer) and 0 <= kind < 128
            if is_sound:
                size = <uint16_t>length
                buffer[used] = <char>kind
                memcpy(buffer + used + 1, &size, 2)
                memcpy(buffer + used + 3, name, length)
                used += 3 + length
        content = buffer[:used] if is_sound else buffer[:4] + b"malformed"
        group = known.get(content)
        if group is None:
            group = known[content] = len(forms)
            forms.append((operator, _names_and_types(content) if is_sound else None))
        out[i] = group
    return groups, forms


@cython.final
cdef class AlikeNodes:
    """Nodes by what decides an answer about them: operator, attributes, number of outputs, and the types of the inputs.

    `first_unlike` passes over the nodes that are like one for which `add` was called, and notes the types of their
    outputs. An input without a known type makes a node unlike any other.

    ``is_plain``: per operator, whether the answer follows from these alone. ``groups``: `attribute_groups`.
    ``inputs``, ``outputs``: CSR lists of the values of each node, -1 for none. ``types``: per value, the number of its
    type; 1: it has none, 0: not looked up yet. ``look_up``: called with a constant to set its entry in ``types``.
    """

    cdef const uint8_t[::1] is_plain
    cdef const int32_t[::1] operators, groups, in_ends, inputs, out_ends, outputs
    cdef const uint8_t[::1] is_constant
    cdef int32_t[::1] types
    cdef object look_up
    cdef dict known         # key -> the types of the outputs; 0: not known from the inputs

    def __init__(self, const uint8_t[::1] is_plain not None, const int32_t[::1] operators not None,
                 const int32_t[::1] groups not None, inputs, outputs, const uint8_t[::1] is_constant not None,
                 int32_t[::1] types not None, look_up):
        self.is_plain, self.operators, self.groups = is_plain, operators, groups
        self.in_ends, self.inputs = inputs
        self.out_ends, self.outputs = outputs
        self.is_constant, self.types, self.look_up = is_constant, types, look_up
        self.known = {}
        cdef Py_ssize_t nodes = operators.shape[0], i
        if groups.shape[0] != nodes or self.in_ends.shape[0] != nodes + 1 or self.out_ends.shape[0] != nodes + 1:
            raise ValueError(f"the arrays are not of {nodes} nodes")
        if is_constant.shape[0] != types.shape[0]:
            raise ValueError(f"types of {types.shape[0]} values, expected {is_constant.shape[0]}")
        _check_csr(self.in_ends, self.inputs, types.shape[0])
        _check_csr(self.out_ends, self.outputs, types.shape[0])
        for i in range(nodes):
            if not 0 <= operators[i] < is_plain.shape[0]:
                raise ValueError(f"node {i} has the operator {operators[i]}, expected 0..{is_plain.shape[0] - 1}")

    cdef bytes key(self, Py_ssize_t node):
        """The key of a node; None if it is unlike any other."""
        cdef int32_t begin = self.in_ends[node], count = self.in_ends[node + 1] - begin, first = self.out_ends[node]
        cdef int32_t fixed[3]
        cdef int32_t i, value, kind
        cdef char *at
        fixed[0], fixed[1], fixed[2] = self.operators[node], self.groups[node], self.out_ends[node + 1] - first
        if not self.is_plain[fixed[0]] or fixed[2] == 0 or self.outputs[first] < 0:
            return None
        key = PyBytes_FromStringAndSize(NULL, sizeof(fixed) + count * sizeof(int32_t))
        at = PyBytes_AsString(key)
        memcpy(at, fixed, sizeof(fixed))
        for i in range(count):
            value = self.inputs[begin + i]
            kind = 0
            if value >= 0:
                kind = self.types[value]
                if kind == 0 and self.is_constant[value]:
                    self.look_up(value)
                    kind = self.types[value]
                if kind <= 1:
                    return None
            memcpy(at + sizeof(fixed) + i * sizeof(int32_t), &kind, sizeof(int32_t))
        return key

    def first_unlike(self, Py_ssize_t node):
        """The first node, from ``node`` on, that is not like one that was added; the number of nodes if there is
        none."""
        cdef const char *results
        cdef int32_t i, begin, result
        while 0 <= node < self.operators.shape[0]:
            key = self.key(node)
            answer = None if key is None else self.known.get(key)
            if answer is None:
                break
            results = PyBytes_AsString(answer)
            begin = self.out_ends[node]
            for i in range(self.out_ends[node + 1] - begin):
                memcpy(&result, results + i * sizeof(int32_t), sizeof(int32_t))
                if result and self.outputs[begin + i] >= 0:
                    self.types[self.outputs[begin + i]] = result
            node += 1
        return node

    def add(self, Py_ssize_t node, results):
        """``results``: the types of the outputs of this node and of all that are like it; 0 for those that do not
        follow."""
        if not 0 <= node < self.operators.shape[0]:
            raise IndexError(f"node {node} is not in 0..{self.operators.shape[0] - 1}")
        if len(results) != self.out_ends[node + 1] - self.out_ends[node]:
            raise ValueError(f"{len(results)} results, expected {self.out_ends[node + 1] - self.out_ends[node]}")
        key = self.key(node)
        if key is not None:
            self.known[key] = np.array(results, np.int32).tobytes()


def unpack_bits(const uint8_t[::1] data not None, int bits, Py_ssize_t count):
    """uint8[count]: elements of 2, 4 or 6 bits, stored with the lowest bits first, each in the low bits of a byte.
    Raises ValueError for another width, or if ``data`` is too short."""
    cdef Py_ssize_t i, at
    cdef int shift, window
    if bits not in (2, 4, 6):
        raise ValueError(f"bits must be 2, 4 or 6, got {bits}")
    if not 0 <= count <= data.shape[0] * 8 // bits:
        raise ValueError(f"{data.shape[0]} bytes do not hold {count} elements of {bits} bits")
    unpacked = np.empty(count, np.uint8)
    cdef uint8_t[::1] out = unpacked
    with nogil:
        for i in range(count):
            at = i * bits >> 3
            shift = i * bits & 7
            window = data[at]
            if shift + bits > 8:
                window |= data[at + 1] << 8
            out[i] = <uint8_t>(window >> shift & (1 << bits) - 1)
    return unpacked


cdef int _check_csr(const int32_t[::1] indptr, const int32_t[::1] values, int64_t limit) except -1:
    """Checks that indptr ascends from 0 to len(values), and that values are in -1..limit-1."""
    cdef Py_ssize_t i
    cdef bint good = indptr.shape[0] > 0 and indptr[0] == 0 and indptr[indptr.shape[0] - 1] == values.shape[0]
    if good:
        for i in range(indptr.shape[0] - 1):
            good &= indptr[i] <= indptr[i + 1]
        for i in range(values.shape[0]):
            good &= -1 <= values[i] < limit
    if not good:
        raise ValueError("indptr must rise from 0 to len(values), and values must be ids or -1")
    return 0


cdef inline Py_ssize_t _edges_of(int32_t node, const int32_t[::1] values, Py_ssize_t first, Py_ssize_t end,
                                 const int32_t[::1] producer, int32_t[::1] last_reader, int32_t[::1] src,
                                 int32_t[::1] dst, Py_ssize_t count) noexcept nogil:
    """Adds an edge to ``node`` from each producer of its values, without duplicates; returns the number of edges."""
    cdef Py_ssize_t i
    cdef int32_t maker
    for i in range(first, end):
        maker = producer[values[i]] if values[i] >= 0 else -1
        if maker >= 0 and last_reader[maker] != node:
            last_reader[maker] = node
            src[count] = maker
            dst[count] = node
            count += 1
    return count


def edges(const int32_t[::1] indptr not None, const int32_t[::1] values not None,
          const int32_t[::1] more_indptr not None, const int32_t[::1] more_values not None,
          const int32_t[::1] producer not None):
    """The edges of a graph: (producers, readers), int32 each, without repeats, in the order of the readers.

    ``indptr``, ``values``: CSR list of the values that each node reads, -1 for none; ``more_indptr``, ``more_values``:
    a second list. ``producer``: the node that makes each value, or -1. Raises ValueError for lists that are not CSR
    lists.
    """
    cdef Py_ssize_t n = indptr.shape[0] - 1, count = 0
    cdef int32_t node
    _check_csr(indptr, values, producer.shape[0])
    _check_csr(more_indptr, more_values, producer.shape[0])
    if more_indptr.shape[0] != n + 1:
        raise ValueError(f"two lists over {n} and {more_indptr.shape[0] - 1} nodes")
    makers = np.asarray(producer)
    if producer.shape[0] and not (-1 <= makers.min() and makers.max() < n):
        raise ValueError(f"producers must be nodes 0..{n - 1} or -1")
    last_reader = np.full(n, -1, np.int32)
    src = np.empty(values.shape[0] + more_values.shape[0], np.int32)
    dst = np.empty(values.shape[0] + more_values.shape[0], np.int32)
    cdef int32_t[::1] last_reader_view = last_reader, src_view = src, dst_view = dst
    with nogil:
        for node in range(<int32_t>n):
            count = _edges_of(node, values, indptr[node], indptr[node + 1], producer, last_reader_view, src_view,
                              dst_view, count)
            count = _edges_of(node, more_values, more_indptr[node], more_indptr[node + 1], producer, last_reader_view,
                              src_view, dst_view, count)
    return src[:count], dst[:count]


def gather_rows(const int32_t[::1] indptr not None, const int32_t[::1] values not None,
                const int32_t[::1] rows not None):
    """Rows of a CSR list, in the order of ``rows``, as a new CSR list (indptr, values) of int32. Raises IndexError for
    a row that the list does not have, ValueError if it is not a CSR list or the result has 2**31 entries."""
    cdef Py_ssize_t i, j, n = indptr.shape[0] - 1, at = 0
    cdef int64_t total = 0
    for i in range(rows.shape[0]):
        if not 0 <= rows[i] < n:
            raise IndexError(f"row {rows[i]} is not in 0..{n - 1}")
        if not 0 <= indptr[rows[i]] <= indptr[rows[i] + 1] <= values.shape[0]:
            raise ValueError(f"indptr does not rise within 0..{values.shape[0]} at row {rows[i]}")
        total += indptr[rows[i] + 1] - indptr[rows[i]]
    if total > 0x7fffffff:
        raise ValueError("the gathered rows have more than 2**31 - 1 entries")
    new_indptr = np.empty(rows.shape[0] + 1, np.int32)
    new_values = np.empty(total, np.int32)
    cdef int32_t[::1] new_indptr_view = new_indptr, new_values_view = new_values
    with nogil:
        new_indptr_view[0] = 0
        for i in range(rows.shape[0]):
            for j in range(indptr[rows[i]], indptr[rows[i] + 1]):
                new_values_view[at] = values[j]
                at += 1
            new_indptr_view[i + 1] = <int32_t>at
    return new_indptr, new_values
