"""Inner loops of operators that run in Python: look-ups, runs of characters, and maps."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

import numpy as np


cdef extern from "Python.h":
    PyObject *_item "PyDict_GetItemWithError"(object table, object key) except? NULL
    long long _number "PyLong_AsLongLong"(PyObject *number) except? -1
    const char *_utf8 "PyUnicode_AsUTF8AndSize"(object text, Py_ssize_t *size) except NULL
    str _text "PyUnicode_FromStringAndSize"(const char *bytes, Py_ssize_t size)


def places(dict table not None, list items not None, int64_t absent, int64_t nan):
    """int64: for each item its number in ``table``; ``nan`` for a NaN and ``absent`` for others that are not there."""
    cdef Py_ssize_t count = len(items), i
    cdef PyObject *number
    made = np.empty(count, np.int64)
    cdef int64_t[::1] numbers = made
    for i in range(count):
        item = items[i]
        number = _item(table, item)
        if number is not NULL:
            numbers[i] = _number(number)
        else:
            numbers[i] = nan if item != item else absent
    return made


def one_hot(dict table not None, list items not None, Py_ssize_t width):
    """float32 [items, width]: a 1 in each row at the number of the item in ``table``, and the place of the first item
    that is not there, whose row is 0; -1 if all are."""
    cdef Py_ssize_t count = len(items), i, unknown = -1
    cdef PyObject *number
    cdef long long place
    made = np.zeros((count, width), np.float32)
    cdef float[:, ::1] rows = made
    for i in range(count):
        number = _item(table, items[i])
        if number is not NULL:
            place = _number(number)
            if not 0 <= place < width:
                raise ValueError(f"number {place} is outside 0..{width - 1}")
            rows[i, place] = 1
        elif unknown < 0:
            unknown = i
    return made, unknown


def runs(str text not None, bytes members not None):
    """The longest parts of an ASCII text whose characters are all members; None if the text is not ASCII.

    ``members``: for each of the 128 characters, 1 for a member and 0 for others."""
    cdef Py_ssize_t size = 0, at = 0, begin
    if len(members) != 128:
        raise ValueError(f"{len(members)} bytes, expected one for each of 128 characters")
    if not text.isascii():
        return None
    cdef const char *bytes_ = _utf8(text, &size)
    cdef const unsigned char *is_member = members
    found = []
    while at < size:
        while at < size and not is_member[<unsigned char>bytes_[at]]:
            at += 1
        begin = at
        while at < size and is_member[<unsigned char>bytes_[at]]:
            at += 1
        if at > begin:
            found.append(_text(bytes_ + begin, at - begin))
    return found


def maps(tuple labels not None, const float[:, ::1] rows not None):
    """For each row a dictionary: label -> number. Of equal labels the last counts."""
    cdef Py_ssize_t count = rows.shape[1], i, j
    if len(labels) != count:
        raise ValueError(f"{len(labels)} labels do not fit rows of {count} numbers")
    template = dict.fromkeys(labels)
    made = []
    for i in range(rows.shape[0]):
        row = template.copy()  # faster than an empty one, which has to grow
        for j in range(count):
            row[labels[j]] = <double>rows[i, j]
        made.append(row)
    return made
