"""Inner loops of operators that run in Python: the nodes themselves, look-ups, runs of characters, and maps."""

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE,
    PyBUF_STRIDED_RO,
    PyBUF_WRITABLE,
    PyBuffer_IsContiguous,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcmp, memset

import sys

import numpy as np

# Looked up once: calls take about a microsecond.
cdef object _zeros = np.zeros, _empty = np.empty, _float32 = np.dtype(np.float32), _int64 = np.dtype(np.int64)
cdef bint _IS_LITTLE = sys.byteorder == "little"
cdef object _ndarray = np.ndarray, _object = np.dtype(object), _contiguous = np.ascontiguousarray


cdef extern from "Python.h":
    PyObject *_item "PyDict_GetItemWithError"(object table, object key) except? NULL
    long long _number "PyLong_AsLongLong"(PyObject *number) except? -1
    const char *_utf8 "PyUnicode_AsUTF8AndSize"(object text, Py_ssize_t *size) except NULL
    str _text "PyUnicode_FromStringAndSize"(const char *characters, Py_ssize_t size)
    str _wide_text "PyUnicode_DecodeUTF32"(const char *bytes, Py_ssize_t size, const char *errors, int *order)


@cython.final
@cython.auto_pickle(False)
cdef class EndNodes:
    """Functions that run before and after the plans of a model, on numbered values.

    ``first``, ``last``: for each function its node, the function, the numbers of the values that it takes, and of those
    that its results become; -1 for a result that nothing reads. ``rest``: the values that follow the inputs when a run
    begins. ``to_plans``: the numbers of the values that the plans take. ``from_plans``: for each of their results its
    number, and the table in which it holds places; None if it holds values. ``outputs``: the numbers of the outputs.
    ``running``: the node whose function runs; None while none does. After a run that raised: the node that failed."""

    cdef tuple _first, _last, _to_plans, _from_plans, _outputs
    cdef list _rest
    cdef readonly object running

    def __init__(self, tuple first not None, tuple last not None, list rest not None, tuple to_plans not None,
                 tuple from_plans not None, tuple outputs not None):
        self._first, self._last, self._rest = first, last, rest
        self._to_plans, self._from_plans, self._outputs = to_plans, from_plans, outputs

    def run(self, inputs, plans, cancellation not None):
        """The outputs. ``plans``: a function of a list of values that returns the results of the plans, or None: then
        nothing else runs, and None is returned. Checks ``cancellation`` before each function and after the last of
        each group."""
        cdef list values = [*inputs, *self._rest]
        cdef Py_ssize_t i
        self.running = None
        if self._first:
            self.run_nodes(self._first, values, cancellation)
        if self._from_plans:
            results = plans([values[number] for number in self._to_plans])
            if results is None:
                return None
            if len(results) != len(self._from_plans):
                raise ValueError(f"{len(results)} results, expected {len(self._from_plans)}")
            for i in range(len(self._from_plans)):
                number, table = self._from_plans[i]
                values[number] = results[i] if table is None else chosen(table, results[i])
        self.run_nodes(self._last, values, cancellation)
        return [values[number] for number in self._outputs]

    cdef int run_nodes(self, tuple nodes, list values, cancellation) except -1:
        cdef Py_ssize_t j, place
        cdef tuple taken, made
        for node, function, taken, made in nodes:
            if cancellation.requested:
                break
            self.running = node
            if len(taken) == 1:
                results = function(values[taken[0]])
            else:
                results = function(*[values[number] for number in taken])
            for j in range(min(len(made), len(results))):
                place = made[j]
                if place >= 0:
                    values[place] = results[j]
        self.running = None
        if cancellation.requested:
            cancellation.check()
        return 0


def matching(inputs, list types not None):
    """``inputs`` as a list of arrays that need no further checks; None if one is no plain array, or if its dtype or
    shape is not the one in ``types``. Strings of a fixed width become `str`; elements of an array of objects must be
    `str` itself."""
    cdef list made = []
    cdef tuple expected
    for value, expected in zip(inputs, types):
        if type(value) is not _ndarray or value.shape != expected[1]:
            return None
        dtype = value.dtype
        if dtype is not expected[0] and dtype != expected[0]:
            if expected[0] is not _object or dtype.kind != "U":
                return None
            value = _as_objects(value, dtype)
            if value is None:
                return None
        elif dtype.hasobject and not _is_text(value):
            return None
        made.append(value)
    return made


cdef struct Items:
    const char *first
    Py_ssize_t step  # in bytes
    Py_ssize_t count


cdef object _objects(object array, Py_ssize_t column, Py_buffer *view, Items *items):
    """Opens ``view`` and ``items`` on the elements of an array of objects in order, or on those of a column if
    ``column`` >= 0. Returns the owner of the view. IndexError if there is no such column."""
    PyObject_GetBuffer(array, view, PyBUF_STRIDED_RO)
    if column >= 0:
        if view.ndim != 2 or column >= view.shape[1]:
            PyBuffer_Release(view)
            raise IndexError(f"no column {column}")
        items.first = <const char *>view.buf + column * view.strides[1]
        items.step, items.count = view.strides[0], view.shape[0]
        return array
    if not PyBuffer_IsContiguous(view, b"C"):
        PyBuffer_Release(view)
        array = array.ravel()
        PyObject_GetBuffer(array, view, PyBUF_STRIDED_RO)
    items.first, items.step = <const char *>view.buf, sizeof(PyObject *)
    items.count = view.len // <Py_ssize_t>sizeof(PyObject *)
    return array


cdef inline object _object_at(const Items *items, Py_ssize_t i):
    """Holds a reference, because another thread may write to the array."""
    cdef PyObject *item = (<PyObject *const *>(items.first + i * items.step))[0]
    return None if item is NULL else <object>item


cdef bint _is_text(object array) except -1:
    """Whether all elements of an array of objects are `str` itself."""
    cdef Py_buffer view
    cdef Items items
    cdef Py_ssize_t i
    owner = _objects(array, -1, &view, &items)
    try:
        for i in range(items.count):
            if type(_object_at(&items, i)) is not str:
                return False
    finally:
        PyBuffer_Release(&view)
    return True


cdef object _as_objects(object array, object dtype):
    """Strings of a fixed width as an array of `str`; None if one is not Unicode. Equal short strings are often the same
    object, which later look-ups compare and hash faster."""
    cdef Py_buffer view, places
    cdef PyObject **objects
    cdef Py_ssize_t size = dtype.itemsize, i, j, length, width = size // 4, slot = 0
    cdef const uint32_t *characters
    cdef int slots[256]  # of the strings that occurred last, by their hash
    cdef uint32_t hashed
    if not size or not dtype.isnative:
        return array.astype(object)
    made = _empty(array.shape, _object)
    array = _contiguous(array)
    memset(slots, -1, sizeof(slots))
    PyObject_GetBuffer(array, &view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(made, &places, PyBUF_WRITABLE)
        try:
            objects = <PyObject **>places.buf
            for i in range(view.len // size):
                characters = <const uint32_t *>(<const char *>view.buf + i * size)
                length = width
                while length and not characters[length - 1]:
                    length -= 1
                j = -1
                if width <= 32:  # longer strings are rarely equal
                    hashed = 0
                    for j in range(length):
                        hashed = (hashed ^ characters[j]) * <uint32_t>0x9E3779B1
                    slot = hashed >> 24
                    j = slots[slot]
                    slots[slot] = <int>i
                if j >= 0 and not memcmp(characters, <const char *>view.buf + j * size, size):
                    item = <object>objects[j]
                else:
                    item = _of_characters(characters, length)
                    if item is None:
                        return None
                Py_XDECREF(objects[i])
                Py_INCREF(item)
                objects[i] = <PyObject *>item
        finally:
            PyBuffer_Release(&places)
    finally:
        PyBuffer_Release(&view)
    return made


cdef str _of_characters(const uint32_t *characters, Py_ssize_t length):
    """A `str`; None for numbers that are no characters."""
    cdef char narrow[64]
    cdef Py_ssize_t i
    cdef uint32_t all_bits = 0
    cdef int order = -1 if _IS_LITTLE else 1
    if length <= 64:
        for i in range(length):
            all_bits |= characters[i]
            narrow[i] = <char>characters[i]
        if all_bits < 128:
            return _text(narrow, length)
    try:
        return _wide_text(<const char *>characters, 4 * length, b"surrogatepass", &order)
    except UnicodeDecodeError:
        return None


def places(dict table not None, array not None, int64_t absent, int64_t nan, Py_ssize_t column=-1):
    """int64, of the shape of ``array``: for each item its number in ``table``; ``nan`` for a NaN and ``absent`` for
    others that are not there. ``column``: if it is not negative, as for ``array[:, column : column + 1]``; IndexError
    if there is none."""
    cdef Py_ssize_t i
    cdef PyObject *number
    cdef Py_buffer numbers, view
    cdef Items items
    owner = _objects(array if array.dtype is _object else array.astype(object), column, &view, &items)
    try:
        made = _empty(array.shape if column < 0 else (items.count, 1), _int64)
        PyObject_GetBuffer(made, &numbers, PyBUF_WRITABLE)
        try:
            for i in range(items.count):
                item = _object_at(&items, i)
                number = _item(table, item)
                if number is not NULL:
                    (<int64_t *>numbers.buf)[i] = _number(number)
                else:
                    (<int64_t *>numbers.buf)[i] = nan if item != item else absent
        finally:
            PyBuffer_Release(&numbers)
    finally:
        PyBuffer_Release(&view)
    return made


def one_hot(dict table not None, array not None, Py_ssize_t width, Py_ssize_t column=-1):
    """A float32 array [*shape, width] and a position. Each row has a 1 at the number that ``table`` has for its item. The
    position is that of the first item that is not in ``table``, whose row is 0; -1 if there is none. ``array``: of this
    shape. ``column``: as of `places`."""
    cdef Py_ssize_t i, unknown = -1
    cdef PyObject *number
    cdef long long place
    cdef Py_buffer rows, view
    cdef Items items
    owner = _objects(array if array.dtype is _object else array.astype(object), column, &view, &items)
    try:
        made = _zeros((*array.shape, width) if column < 0 else (items.count, 1, width), _float32)
        PyObject_GetBuffer(made, &rows, PyBUF_WRITABLE)  # a typed view takes longer than a short loop
        try:
            for i in range(items.count):
                number = _item(table, _object_at(&items, i))
                if number is not NULL:
                    place = _number(number)
                    if not 0 <= place < width:
                        raise ValueError(f"number {place} is outside 0..{width - 1}")
                    (<float *>rows.buf)[i * width + place] = 1
                elif unknown < 0:
                    unknown = i
        finally:
            PyBuffer_Release(&rows)
    finally:
        PyBuffer_Release(&view)
    return made, unknown


def runs(str text not None, bytes members not None, bint only_ascii):
    """The longest parts of a text whose characters are all members; None if the text is not ASCII, unless
    ``only_ascii`` and it can be encoded.

    ``members``: for each of the 128 characters, 1 for a member and 0 for others. ``only_ascii``: no other characters
    are members."""
    cdef Py_ssize_t size = 0, at = 0, begin
    cdef const char *characters
    cdef const unsigned char *is_member = members
    cdef bytes encoded
    if len(members) != 128:
        raise ValueError(f"{len(members)} bytes, expected one for each of 128 characters")
    if text.isascii():
        characters = _utf8(text, &size)
    elif only_ascii:
        try:
            encoded = text.encode()  # the bytes of other characters are 128 or more
        except UnicodeEncodeError:
            return None
        characters, size = encoded, len(encoded)
    else:
        return None
    found = []
    while at < size:
        while at < size and not _is_in(is_member, characters[at]):
            at += 1
        begin = at
        while at < size and _is_in(is_member, characters[at]):
            at += 1
        if at > begin:
            found.append(_text(characters + begin, at - begin))
    return found


cdef inline bint _is_in(const unsigned char *members, char character) noexcept:
    return <unsigned char>character < 128 and members[<unsigned char>character]


def strings(list items not None, tuple shape not None):
    """An array of objects with these elements."""
    cdef Py_ssize_t i
    cdef Py_buffer places
    cdef PyObject **objects
    made = _empty(shape, object)
    if made.size != len(items):
        raise ValueError(f"{len(items)} elements do not fit shape {shape}")
    PyObject_GetBuffer(made, &places, PyBUF_WRITABLE)
    try:
        objects = <PyObject **>places.buf
        for i in range(len(items)):
            item = items[i]
            Py_XDECREF(objects[i])
            Py_INCREF(item)
            objects[i] = <PyObject *>item
    finally:
        PyBuffer_Release(&places)
    return made


def chosen(table not None, numbers not None):
    """An array of objects: for each number the string at this place in ``table``, a vector of objects. ``numbers``: int64,
    dense."""
    cdef Py_ssize_t i, count
    cdef int64_t number
    cdef Py_buffer strings, places, items
    cdef PyObject **objects
    if table.dtype is not _object or numbers.dtype != _int64:
        raise ValueError(f"table is {table.dtype} and numbers are {numbers.dtype}; expected object and int64")
    made = _empty(numbers.shape, _object)
    PyObject_GetBuffer(table, &strings, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(numbers, &places, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(made, &items, PyBUF_WRITABLE)
            try:
                objects = <PyObject **>items.buf
                count = strings.len // <Py_ssize_t>sizeof(PyObject *)
                for i in range(places.len // <Py_ssize_t>sizeof(int64_t)):
                    number = (<const int64_t *>places.buf)[i]
                    if not 0 <= number < count:
                        raise IndexError(f"number {number} is outside 0..{count - 1}")
                    item = <object>(<PyObject **>strings.buf)[number]
                    Py_XDECREF(objects[i])
                    Py_INCREF(item)
                    objects[i] = <PyObject *>item
            finally:
                PyBuffer_Release(&items)
        finally:
            PyBuffer_Release(&places)
    finally:
        PyBuffer_Release(&strings)
    return made


@cython.final
@cython.auto_pickle(False)
cdef class Maps:
    """A function of a float32 array [rows, labels] or [labels], which returns one list: for each row a dictionary, label
    -> number. Of equal labels the last counts."""

    cdef tuple _labels
    cdef dict _template

    def __init__(self, tuple labels not None):
        self._labels, self._template = labels, dict.fromkeys(labels)

    def __call__(self, x):
        cdef Py_ssize_t count = len(self._labels), num_rows = 1, step = 0, i, j
        cdef Py_buffer view
        cdef const char *first
        cdef list made = []
        cdef dict row
        if x.dtype is not _float32 and x.dtype != _float32:
            raise ValueError(f"x is {x.dtype}; expected float32")
        PyObject_GetBuffer(x, &view, PyBUF_STRIDED_RO)
        try:
            if view.ndim == 2:
                num_rows, step = view.shape[0], view.strides[0]
            if not 1 <= view.ndim <= 2 or view.shape[view.ndim - 1] != count:
                raise ValueError(f"x of shape {list(x.shape)} does not fit {count} class labels")
            for i in range(num_rows):
                first = <const char *>view.buf + i * step
                row = self._template.copy()  # faster than an empty one, which has to grow
                for j in range(count):
                    row[self._labels[j]] = <double>(<const float *>(first + j * view.strides[view.ndim - 1]))[0]
                made.append(row)
        finally:
            PyBuffer_Release(&view)
        return [made]
