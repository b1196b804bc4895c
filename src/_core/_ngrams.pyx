"""Counts the n-grams of a pool in rows of tokens, for TfIdfVectorizer.

The pool is a trie over the numbers of its tokens. A token costs one look-up in a dictionary, unless the same object
occurred shortly before, and each n-gram that begins with it one step per token in a hash table of the trie's edges.
"""

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint64_t
from libc.string cimport memset

import numpy as np

cdef enum:
    _SEEN_BITS = 8
    _SEEN = 1 << _SEEN_BITS  # objects whose number is remembered: characters, above all, are the same objects

cdef object _zeros = np.zeros, _float32 = np.dtype(np.float32)


cdef extern from "Python.h":
    PyObject *_item "PyDict_GetItemWithError"(object table, object key) except? NULL
    PyObject *_entry "PyList_GetItem"(object items, Py_ssize_t at) except NULL
    long long _number "PyLong_AsLongLong"(PyObject *number) except? -1


@cython.final
@cython.auto_pickle(False)
cdef class NGrams:
    """``grams``: n-gram, a tuple of hashable tokens -> its column, from 0 to ``width`` - 1. Immutable."""

    cdef dict _tokens  # token -> its number, from 1
    cdef int64_t[::1] _edges  # node * (tokens + 1) + token, or -1: an open hash table
    cdef int32_t[::1] _ends  # the node that an edge leads to
    cdef int32_t[::1] _columns  # of the n-gram that ends at a node, or -1
    cdef int64_t _width
    cdef int _shift

    def __init__(self, dict grams not None, int64_t width):
        tokens = {}
        edges = {}
        columns = [-1]
        self._tokens = tokens
        self._width = width
        for gram in grams:
            for token in gram:
                tokens.setdefault(token, len(tokens) + 1)
        for gram, column in grams.items():
            if not 0 <= column < width:
                raise ValueError(f"column {column} is outside 0..{width - 1}")
            node = 0
            for token in gram:
                edge = node * (len(tokens) + 1) + tokens[token]
                node = edges.setdefault(edge, len(columns))
                if node == len(columns):
                    columns.append(-1)
            columns[node] = column
        bits = max(2, (2 * len(edges)).bit_length())
        self._shift = 64 - bits
        self._columns = np.array(columns, np.int32)
        self._edges = np.full(1 << bits, -1, np.int64)
        self._ends = np.zeros(1 << bits, np.int32)
        cdef int64_t at
        for edge, node in edges.items():
            at = self._place(edge)
            self._edges[at], self._ends[at] = edge, node

    cdef inline int64_t _place(self, int64_t edge) noexcept:
        """Where an edge is in the hash table, or the free place where it would be."""
        cdef int64_t at = <int64_t>((<uint64_t>edge * <uint64_t>0x9E3779B97F4A7C15) >> self._shift)
        while self._edges[at] != edge and self._edges[at] >= 0:
            at = (at + 1) & (self._edges.shape[0] - 1)
        return at

    def rows(self, list items not None, int64_t count, int64_t length, int64_t least, int64_t most, int64_t skips,
             weights=None, bint is_present=False, bint is_vector=False):
        """float32 [count, width], or [width] if ``is_vector``: how often each n-gram of ``least`` to ``most`` tokens occurs in each of ``count`` rows
        of ``length`` items, at most 2^31 - 1 times. Between two tokens of an n-gram, the same number of items is left
        out, from 0 to ``skips``.

        ``weights``: bytes of a float32 for each column, by which the numbers are multiplied, or which replace them if
        ``is_present`` and they are not 0."""
        cdef int64_t width = self._width, row, i, gap, at, depth, edge, node
        cdef int64_t alphabet = len(self._tokens) + 1
        cdef PyObject *number
        cdef PyObject *item
        cdef PyObject *seen[_SEEN]  # ``items`` keeps them alive
        cdef int32_t number_of[_SEEN]
        cdef size_t slot
        cdef Py_buffer made
        cdef int32_t *counts
        cdef float *results
        cdef const float *factors = NULL
        if len(items) != count * length or (is_vector and count != 1):
            raise ValueError(f"{len(items)} items do not fit {count} rows of {length}")
        if weights is not None:
            if len(<bytes?>weights) != width * 4:
                raise ValueError(f"{len(weights)} bytes of weights do not fit {width} columns")
            factors = <const float *><const char *><bytes>weights
        shape = (count, width)
        result = _zeros(shape[1:] if is_vector else shape, _float32)
        numbers_of_row = bytearray(4 * length)
        cdef int32_t *numbers = <int32_t *><char *>numbers_of_row
        PyObject_GetBuffer(result, &made, PyBUF_WRITABLE)
        try:
            counts, results = <int32_t *>made.buf, <float *>made.buf
            memset(seen, 0, sizeof(seen))
            for row in range(count):
                for i in range(length):
                    item = _entry(items, row * length + i)
                    slot = <size_t>((<uint64_t>item * <uint64_t>0x9E3779B97F4A7C15) >> (64 - _SEEN_BITS))
                    if seen[slot] != item:
                        number = _item(self._tokens, <object>item)
                        seen[slot] = item
                        number_of[slot] = 0 if number is NULL else <int32_t>_number(number)
                    numbers[i] = number_of[slot]
                for gap in range(1, 2 if most == 1 else min(skips + 1, max(length - 1, 1)) + 1):
                    PyErr_CheckSignals()
                    for i in range(length):
                        node, at, depth = 0, i, 1
                        while depth <= most and at < length and numbers[at]:
                            edge = self._place(node * alphabet + numbers[at])
                            if self._edges[edge] < 0:
                                break
                            node = self._ends[edge]
                            if depth >= least and (depth > 1 or gap == 1) and self._columns[node] >= 0:
                                counts[self._columns[node]] += counts[self._columns[node]] < INT32_MAX
                            at += gap
                            depth += 1
                for i in range(width):  # in place
                    if factors is NULL:
                        results[i] = <float>counts[i]
                    elif is_present:
                        results[i] = factors[i] if counts[i] else <float>0
                    else:
                        results[i] = <float>counts[i] * factors[i]
                counts += width
                results += width
        finally:
            PyBuffer_Release(&made)
        return result
