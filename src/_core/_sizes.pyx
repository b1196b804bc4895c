"""Sizes that are symbols while a plan is made, so that one plan serves calls of many sizes.

A `SizeTrace` records what planning does with the sizes: arithmetic, and the answers to comparisons. ``sizes.c``
evaluates these steps for the sizes of a call and checks that each comparison has the same answer, so a plan is used
exactly for the sizes for which planning would take the same way. Whatever needs a plain number, such as ``int()``,
``range()`` or NumPy, records that the plan holds only for this number: correct, but less general.

`StateSizes` compares shapes with ports that have symbols, and `RequestStates` passes states from step to step, for
requests with states.
"""

import math
import operator

import numpy as np

cimport cython
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from hetero._kernels cimport HT_MAX_ARGUMENTS, answer_of, question_number

cdef extern from "sizes.h":
    enum:
        HT_SIZE_LOAD_DIM
        HT_SIZE_LOAD_ELEMENT
        HT_SIZE_LOAD_REAL
        HT_SIZE_ADD
        HT_SIZE_SUB
        HT_SIZE_MUL
        HT_SIZE_DIV
        HT_SIZE_MOD
        HT_SIZE_REAL
        HT_SIZE_ADD_REAL
        HT_SIZE_SUB_REAL
        HT_SIZE_MUL_REAL
        HT_SIZE_DIV_REAL
        HT_SIZE_SINGLE
        HT_SIZE_BITS
        HT_SIZE_FLOOR
        HT_SIZE_ARGUMENT
        HT_SIZE_ASK
        HT_SIZE_IS_LESS
        HT_SIZE_IS_EQUAL
        HT_SIZE_IS_LESS_REAL
        HT_SIZE_IS_EQUAL_REAL
        HT_SIZE_STORE_DIM
        HT_SIZE_SET_SIZE
        HT_SIZE_STORE_ELEMENT
        HT_SIZE_STORE_INT
        HT_SIZE_STORE_BEGIN
        HT_SIZE_STORE_BYTES
        HT_SIZE_ALLOCATE
        HT_SIZE_SHARE
        HT_SIZE_CALL
        HT_SIZE_TABLE

cdef enum:  # comparisons of __richcmp__
    LT = 0
    LE = 1
    EQ = 2
    NE = 3
    GT = 4
    GE = 5

cdef enum:  # operations that a Size remembers; + OTHER for a Size as the second operand
    PLUS = 0
    TIMES = 1
    QUOTIENT = 2
    REST = 3
    LESS = 4
    EQUAL = 5
    OTHER = 8


@cython.final
cdef class Real:
    """A float64 that depends on sizes. ``value``: for the sizes for which the plan is made."""

    cdef SizeTrace trace
    cdef int register
    cdef readonly double value

    __array_ufunc__ = None

    def __add__(self, other):
        return _real_operation(HT_SIZE_ADD_REAL, self, other)

    def __radd__(self, other):
        return _real_operation(HT_SIZE_ADD_REAL, other, self)

    def __sub__(self, other):
        return _real_operation(HT_SIZE_SUB_REAL, self, other)

    def __rsub__(self, other):
        return _real_operation(HT_SIZE_SUB_REAL, other, self)

    def __mul__(self, other):
        return _real_operation(HT_SIZE_MUL_REAL, self, other)

    def __rmul__(self, other):
        return _real_operation(HT_SIZE_MUL_REAL, other, self)

    def __truediv__(self, other):
        return _real_operation(HT_SIZE_DIV_REAL, self, other)

    def __rtruediv__(self, other):
        return _real_operation(HT_SIZE_DIV_REAL, other, self)

    def __floor__(self):
        if not abs(self.value) < 1 << 62:
            raise UnfitForSymbols("a number that decides a shape has more than 62 bits")
        return self.trace.atom(self.trace.operation(HT_SIZE_FLOOR, self.register, 0), math.floor(self.value))

    def __ceil__(self):
        return -math.floor(0 - self)

    def __richcmp__(self, other, int comparison):
        return _compare_reals(self, other, comparison)

    def __hash__(self):
        return hash((Real, self.register))

    def __float__(self):
        if self.value != self.value:  # NaN is not equal to itself, so no comparison would hold again
            raise UnfitForSymbols("a number that decides a shape is NaN")
        self.trace.check(HT_SIZE_IS_EQUAL_REAL, self.register, self.trace.constant_register(self.value), True)
        self.trace.note_fixed()
        return self.value

    def __int__(self):
        return int(self.__float__())

    def __bool__(self):
        return self.__float__() != 0

    def __repr__(self):
        return repr(self.value)


class UnfitForSymbols(Exception):
    """The plan cannot be made for symbols; it can still be made for the sizes at hand."""


cdef object _as_real(SizeTrace trace, other):
    """``other`` as a `Real`; None if it is not a number."""
    cdef Real made
    cdef Size size
    if type(other) is Real:
        return other
    if type(other) is Size:
        size = other
        made = Real.__new__(Real)
        made.trace, made.value = trace, <double> size.value
        made.register = trace.operation(HT_SIZE_REAL, trace.register_of(size), 0)
        return made
    if isinstance(other, (int, float, np.integer, np.floating)):
        made = Real.__new__(Real)
        made.trace, made.value = trace, float(other)
        made.register = trace.constant_register(made.value)
        return made
    return None


cdef object _real_operation(int step, a, b):
    cdef SizeTrace trace = (<Real> a).trace if type(a) is Real else (<Size> a).trace if type(a) is Size else None
    cdef Real x, y, made
    if trace is None:
        trace = (<Real> b).trace if type(b) is Real else (<Size> b).trace
    left, right = _as_real(trace, a), _as_real(trace, b)
    if left is None or right is None:
        return NotImplemented
    x, y, made = left, right, Real.__new__(Real)
    made.trace = trace
    if step == HT_SIZE_ADD_REAL:
        made.value = x.value + y.value
    elif step == HT_SIZE_SUB_REAL:
        made.value = x.value - y.value
    elif step == HT_SIZE_MUL_REAL:
        made.value = x.value * y.value
    else:
        if y.value == 0:
            raise ZeroDivisionError("float division by zero")
        made.value = x.value / y.value
    made.register = trace.operation(step, x.register, y.register)
    return made


cdef object _compare_reals(a, b, int comparison):
    cdef SizeTrace trace = (<Real> a).trace if type(a) is Real else (<Size> a).trace
    cdef Real x, y
    left, right = _as_real(trace, a), _as_real(trace, b)
    if left is None or right is None:
        return NotImplemented
    x, y = left, right
    if x.value != x.value or y.value != y.value:
        raise UnfitForSymbols("a number that decides a shape is NaN")
    if comparison == LT or comparison == GE:
        return trace.check(HT_SIZE_IS_LESS_REAL, x.register, y.register, x.value < y.value) == (comparison == LT)
    if comparison == GT or comparison == LE:
        return trace.check(HT_SIZE_IS_LESS_REAL, y.register, x.register, y.value < x.value) == (comparison == GT)
    return trace.check(HT_SIZE_IS_EQUAL_REAL, x.register, y.register, x.value == y.value) == (comparison == EQ)


@cython.final
cdef class Size:
    """An integer that depends on sizes: a polynomial with integer coefficients over atoms, which are registers.

    ``value``: for the sizes for which the plan is made. Equal polynomials are the same object, and hashes follow this
    identity, so two sizes that are only equal for some sizes are different keys of a dict. Arithmetic returns an int if
    the result does not depend on sizes.
    """

    cdef readonly SizeTrace trace
    cdef readonly object value
    cdef object terms    # ascending tuple of (atoms, coefficient): atoms is an ascending tuple of registers
    cdef dict results    # of operations with this size on the left
    cdef int number
    cdef int register    # -1 until a step needs it

    __array_ufunc__ = None

    def __add__(self, other):
        return _sum(self, other, 1) if _is_whole(other) else _mixed(HT_SIZE_ADD_REAL, self, other)

    def __radd__(self, other):
        return _sum(self, other, 1) if _is_whole(other) else _mixed(HT_SIZE_ADD_REAL, other, self)

    def __sub__(self, other):
        return _sum(self, other, -1) if _is_whole(other) else _mixed(HT_SIZE_SUB_REAL, self, other)

    def __rsub__(self, other):
        if not _is_whole(other):
            return _mixed(HT_SIZE_SUB_REAL, other, self)
        return _sum(_product(self, -1), other, 1)

    def __mul__(self, other):
        return _product(self, other) if _is_whole(other) else _mixed(HT_SIZE_MUL_REAL, self, other)

    def __rmul__(self, other):
        return _product(self, other) if _is_whole(other) else _mixed(HT_SIZE_MUL_REAL, other, self)

    def __neg__(self):
        return _product(self, -1)

    def __pos__(self):
        return self

    def __abs__(self):
        return -self if self < 0 else self

    def __floordiv__(self, other):
        return _divided(self, other, QUOTIENT, HT_SIZE_DIV) if _is_whole(other) else NotImplemented

    def __rfloordiv__(self, other):
        if not _is_whole(other):
            return NotImplemented
        return _divided(self.trace.lifted(other), self, QUOTIENT, HT_SIZE_DIV)

    def __mod__(self, other):
        return _divided(self, other, REST, HT_SIZE_MOD) if _is_whole(other) else NotImplemented

    def __rmod__(self, other):
        if not _is_whole(other):
            return NotImplemented
        return _divided(self.trace.lifted(other), self, REST, HT_SIZE_MOD)

    def __divmod__(self, other):
        return self // other, self % other

    def __truediv__(self, other):
        return _real_operation(HT_SIZE_DIV_REAL, self, other)

    def __rtruediv__(self, other):
        return _real_operation(HT_SIZE_DIV_REAL, other, self)

    def __richcmp__(self, other, int comparison):
        return _compare(self, other, comparison)

    def __hash__(self):
        return hash((Size, self.number))

    def __bool__(self):
        return _compare(self, 0, NE)

    def __index__(self):
        self.trace.fix(self)
        return self.value

    def __int__(self):
        self.trace.fix(self)
        return self.value

    def __float__(self):
        self.trace.fix(self)
        return float(self.value)

    def __repr__(self):
        return repr(self.value)


cdef inline bint _is_whole(value):
    return type(value) is Size or type(value) is int or isinstance(value, (int, np.integer))


cdef object _mixed(int step, a, b):
    if isinstance(a, (float, Real, np.floating)) or isinstance(b, (float, Real, np.floating)):
        return _real_operation(step, a, b)
    return NotImplemented


cdef object _remembered(Size a, b, int operation):
    """The result of an operation that was done before, else None."""
    if type(b) is Size:
        return a.results.get((operation + OTHER, (<Size> b).number))
    return a.results.get((operation, b))


cdef object _remember(Size a, b, int operation, result):
    if type(b) is Size:
        a.results[(operation + OTHER, (<Size> b).number)] = result
    else:
        a.results[(operation, b)] = result
    return result


cdef object _sum(Size a, b, int sign):
    """a + sign * b."""
    if type(b) is not Size:
        b = operator.index(b) * sign
        if b == 0:
            return a
        other = (((), b),)
        value = a.value + b
    else:
        if sign < 0:
            b = _product(b, -1)
        other = (<Size> b).terms
        value = a.value + (<Size> b).value
    made = _remembered(a, b, PLUS)
    if made is not None:
        return made
    terms = dict(a.terms)
    for atoms, factor in other:
        factor += terms.get(atoms, 0)
        if factor:
            terms[atoms] = factor
        else:
            del terms[atoms]
    return _remember(a, b, PLUS, a.trace.polynomial(terms, value))


cdef object _product(Size a, b):
    if type(b) is not Size:
        b = operator.index(b)
        if b == 1:
            return a
        if b == 0:
            return 0
    made = _remembered(a, b, TIMES)
    if made is not None:
        return made
    if type(b) is not Size:
        terms = {atoms: factor * b for atoms, factor in a.terms}
        return _remember(a, b, TIMES, a.trace.polynomial(terms, a.value * b))
    terms = {}
    for atoms, factor in a.terms:
        for others, other in (<Size> b).terms:
            merged = tuple(sorted(atoms + others))
            terms[merged] = terms.get(merged, 0) + factor * other
    terms = {atoms: factor for atoms, factor in terms.items() if factor}
    return _remember(a, b, TIMES, a.trace.polynomial(terms, a.value * (<Size> b).value))


cdef object _without(tuple atoms, tuple others):
    """``atoms`` without ``others``, a multiset; None if not all of them are there."""
    if not others:
        return atoms
    left = list(atoms)
    for atom in others:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


cdef object _exact_quotient(Size a, b):
    """a / b if it is a polynomial, whatever the sizes are; else None."""
    if type(b) is not Size:
        divisor, others = b, ()
    elif a is b:
        return 1
    elif len((<Size> b).terms) == 1:
        others, divisor = (<Size> b).terms[0]
    else:
        return None
    terms = {}
    for atoms, factor in a.terms:
        rest = _without(atoms, others)
        if rest is None or factor % divisor:
            return None
        terms[rest] = factor // divisor
    return a.trace.polynomial(terms, a.value // (b if type(b) is not Size else (<Size> b).value))


cdef object _divided(Size a, b, int operation, int step):
    """The quotient or the rest of a division that rounds down."""
    if type(b) is Size:
        if b == 0:  # records that it is not
            raise ZeroDivisionError("integer division or modulo by zero")
        other = (<Size> b).value
    else:
        b = other = operator.index(b)
    made = _remembered(a, b, operation)
    if made is not None:
        return made
    exact = _exact_quotient(a, b) if other != 0 else None
    if exact is not None:
        return _remember(a, b, operation, exact if operation == QUOTIENT else 0)
    value = a.value // other if operation == QUOTIENT else a.value % other
    register = a.trace.operation(step, a.trace.register_of(a), a.trace.register_of(b))
    return _remember(a, b, operation, a.trace.atom(register, value))


cdef object _compare(Size a, b, int comparison):
    cdef bint answer
    if not _is_whole(b):
        if isinstance(b, (float, Real, np.floating)):
            return _compare_reals(a, b, comparison)
        return NotImplemented
    if type(b) is not Size:
        b = operator.index(b)
        value = b
    else:
        value = (<Size> b).value
    if comparison == EQ or comparison == NE:
        answer = a.trace.answer(a, b, EQUAL, a.value == value)
        return answer == (comparison == EQ)
    if comparison == LT or comparison == GE:
        answer = a.trace.answer(a, b, LESS, a.value < value)
        return answer == (comparison == LT)
    answer = a.trace.answer(b, a, LESS, value < a.value)
    return answer == (comparison == GT)


@cython.final
cdef class SizeTrace:
    """Records the steps that compute the numbers of a plan from the sizes of a call.

    Tensors, calls, ints and buffers are numbered by the caller. ``on_fixed``: called when planning requires a plain
    number; None for nothing.
    """

    cdef list _steps
    cdef dict _sizes         # terms -> Size
    cdef dict _constants     # a number, by type -> (register, number)
    cdef dict _operations    # (step, a, b) -> register
    cdef set _checked        # comparisons whose answer is recorded
    cdef bint _is_complete
    cdef readonly int num_registers
    cdef public object on_fixed

    def __init__(self):
        self._steps, self._sizes, self._constants, self._operations = [], {}, {}, {}
        self._checked = set()
        self.num_registers = 0
        self.on_fixed = None

    def dim(self, int tensor, int axis, int64_t value):
        """The size of an axis of a tensor."""
        return self.atom(self.operation(HT_SIZE_LOAD_DIM, tensor, axis), value)

    def element(self, int tensor, int index, value):
        """An element of a tensor: a `Size`, or a `Real` if ``value`` is a float."""
        cdef Real made
        if isinstance(value, float):
            made = Real.__new__(Real)
            made.trace, made.value = self, value
            made.register = self.operation(HT_SIZE_LOAD_REAL, tensor, index)
            return made
        return self.atom(self.operation(HT_SIZE_LOAD_ELEMENT, tensor, index), int(value))

    def store_shape(self, int tensor, shape):
        """Record the shape of a tensor, if it depends on sizes. Returns whether it does."""
        cdef int axis
        cdef bint symbolic = False
        for axis, size in enumerate(shape):
            if type(size) is Size:
                self.add(HT_SIZE_STORE_DIM, self.register_of(size), tensor, axis)
                symbolic = True
        if symbolic:
            self.add(HT_SIZE_SET_SIZE, 0, tensor, 0)
        return symbolic

    def store_element(self, int tensor, int index, value):
        """Record an element of a tensor of int64 or int32."""
        self.add(HT_SIZE_STORE_ELEMENT, self.register_of(value), tensor, index)

    def store_int(self, int position, value):
        """Record an int of the program."""
        self.add(HT_SIZE_STORE_INT, self.register_of(value), position, 0)

    def store_begin(self, int tensor, value):
        """Record where a tensor begins in its buffer, in bytes."""
        self.add(HT_SIZE_STORE_BEGIN, self.register_of(value), tensor, 0)

    def store_bytes(self, int buffer, value):
        """Record the size of a buffer."""
        self.add(HT_SIZE_STORE_BYTES, self.register_of(value), buffer, 0)

    def allocate(self, int tensor):
        """Record that a tensor gets memory of its own."""
        self.add(HT_SIZE_ALLOCATE, 0, tensor, 0)

    def share(self, int tensor, int source):
        """Record that a tensor lies in the memory of another."""
        self.add(HT_SIZE_SHARE, 0, tensor, source)

    def call(self, int call):
        """Record that a call runs."""
        self.add(HT_SIZE_CALL, 0, call, 0)

    def table(self, int table):
        """Record that Python computes a table. Its arguments are its numbers, in registers."""
        self.add(HT_SIZE_TABLE, 0, table, 0)

    def number(self, value):
        """The register that holds a number."""
        return self.register_of(value)

    def steps(self):
        """The steps, int32[n, 4], and the registers that hold constants: (register, number). Ends the recording."""
        self._is_complete = True
        steps = np.array(self._steps, np.int32).reshape(len(self._steps), 4)
        return steps, tuple(self._constants.values())

    cdef int add(self, int step, int out, int a, int b) except -1:
        if self._is_complete:
            raise UnfitForSymbols("planning asked about sizes after the steps were taken")
        self._steps.append((step, out, a, b))
        return 0

    cdef int new_register(self):
        self.num_registers += 1
        return self.num_registers - 1

    cdef int constant_register(self, number) except -1:
        key = (type(number), number) if number else (type(number), repr(number))  # 0.0 is not -0.0
        known = self._constants.get(key)
        if known is None:
            if type(number) is not float and not -(1 << 63) <= number < 1 << 63:
                raise UnfitForSymbols("a number of more than 64 bits")
            known = self._constants[key] = (self.new_register(), number)
        return known[0]

    cdef int operation(self, int step, int a, int b) except -1:
        """The register of the result of an operation, which is recorded once."""
        key = (step, a, b)
        register = self._operations.get(key)
        if register is None:
            register = self._operations[key] = self.new_register()
            self.add(step, register, a, b)
        return register

    cdef object answered(self, int question, tuple numbers, answer):
        """The answer to a question as a `Size`. The question is recorded once."""
        cdef int position
        registers = tuple([self.register_of(number) for number in numbers])
        key = (HT_SIZE_ASK, question, registers)
        register = self._operations.get(key)
        if register is None:
            for position in range(len(registers)):
                self.add(HT_SIZE_ARGUMENT, 0, position, registers[position])
            register = self._operations[key] = self.new_register()
            self.add(HT_SIZE_ASK, register, question, 0)
        return self.atom(register, answer)

    cdef object polynomial(self, dict terms, value):
        """The number that has these terms. No factor is zero."""
        if not terms:
            return 0
        if len(terms) == 1 and () in terms:
            return terms[()]
        key = tuple(sorted(terms.items()))
        made = self._sizes.get(key)
        return made if made is not None else self.new_size(key, value)

    cdef Size new_size(self, key, value):
        cdef Size size = Size.__new__(Size)
        size.trace, size.terms, size.value, size.results = self, key, value, {}
        size.number, size.register = len(self._sizes), -1
        self._sizes[key] = size
        return size

    cdef object atom(self, int register, value):
        key = (((register,), 1),)
        made = self._sizes.get(key)
        return made if made is not None else self.new_size(key, value)

    cdef object lifted(self, number):
        """A number as the left operand of a division."""
        cdef Size size = Size.__new__(Size)
        number = operator.index(number)
        size.trace, size.value, size.results = self, number, {}
        size.terms = (((), number),) if number else ()
        size.number, size.register = -1, self.constant_register(number)
        return size

    cdef int register_of(self, value) except -1:
        cdef Size size
        cdef int register = -1, term
        if type(value) is not Size:
            return self.constant_register(operator.index(value))
        size = value
        if size.register < 0:
            for atoms, factor in size.terms:
                term = -1
                for atom in atoms:
                    term = atom if term < 0 else self.operation(HT_SIZE_MUL, term, atom)
                if term < 0:
                    term = self.constant_register(factor)
                elif factor != 1:
                    term = self.operation(HT_SIZE_MUL, term, self.constant_register(factor))
                register = term if register < 0 else self.operation(HT_SIZE_ADD, register, term)
            size.register = register
        return size.register

    cdef bint check(self, int step, int a, int b, bint answer) except -1:
        """Record the answer to a comparison, once; returns it."""
        key = (step, a, b)
        if key not in self._checked:
            self._checked.add(key)
            self.add(step, answer, a, b)
        return answer

    cdef bint answer(self, a, b, int question, bint answer) except -1:
        """Record that a == b or a < b has this answer, unless it has for all sizes."""
        cdef object left = a if type(a) is Size else b
        cdef object difference
        other = b if left is a else a
        known = _remembered(left, other, question if left is a else question + 2 * OTHER)
        if known is not None:
            return known
        difference = _sum(left, other, -1)
        if type(difference) is Size:
            self.check(HT_SIZE_IS_EQUAL if question == EQUAL else HT_SIZE_IS_LESS,
                       self.register_of(a), self.register_of(b), answer)
        _remember(left, other, question if left is a else question + 2 * OTHER, answer)
        return answer

    cdef fix(self, Size size):
        if size.trace.answer(size, size.value, EQUAL, True):
            self.note_fixed()

    cdef note_fixed(self):
        if self.on_fixed is not None:
            self.on_fixed()


def hint(value):
    """A number as it is for the sizes for which the plan is made. For what the plan does not depend on."""
    if type(value) is Size:
        return (<Size> value).value
    return (<Real> value).value if type(value) is Real else value


def is_symbolic(value):
    """Whether a number depends on sizes."""
    return type(value) is Size or type(value) is Real


def are_same(a, b):
    """Whether two numbers are equal for all sizes, as far as their polynomials tell. Records nothing."""
    if type(a) is Size or type(b) is Size:
        return a is b
    return a == b


def ask(name, *numbers):
    """What the kernels answer to the question ``name`` about integers: an int, or a `Size` if any of them is one.

    kernels/questions.h lists the questions. ValueError for an unknown name or another number of arguments.
    """
    cdef int64_t arguments[HT_MAX_ARGUMENTS]
    cdef int position, question = question_number(name, len(numbers))
    cdef SizeTrace trace = None
    for position, number in enumerate(numbers):
        if type(number) is Size:
            trace, number = (<Size> number).trace, (<Size> number).value
        arguments[position] = number
    answer = answer_of(question, arguments)
    return answer if trace is None else trace.answered(question, numbers, answer)


def whole(value):
    """As ``int(value)``, but a `Size` stays one."""
    return value if type(value) is Size else int(value)


def single(value):
    """A number rounded to float32: a float, or a `Real` if it depends on sizes."""
    cdef Real number, made
    if type(value) is Size:
        number = _as_real((<Size> value).trace, value)
    elif type(value) is Real:
        number = value
    else:
        return float(np.float32(value))
    made = Real.__new__(Real)
    made.trace, made.value = number.trace, float(np.float32(number.value))
    made.register = made.trace.operation(HT_SIZE_SINGLE, number.register, 0)
    return made


def single_bits(value):
    """The bits of a number as float32, as an integer; a `Size` if the number depends on sizes."""
    cdef Real number
    seen = int(np.float32(hint(value)).view(np.uint32))
    if not is_symbolic(value):
        return seen
    number = single(value)
    return number.trace.atom(number.trace.operation(HT_SIZE_BITS, number.register, 0), seen)


@cython.final
cdef class StateSizes:
    """Whether states and the other inputs of a request fit their ports, by their shapes alone. For steps whose types
    were checked before: every step of a small model calls it.

    ``states``, ``others``: per state, and per other input, the dimensions of its port: sizes, symbols, or None for any
    size; None instead of a sequence for any shape.
    """

    cdef int num_states, num_others
    cdef int *ranks             # of the states, then of the other inputs; -1: any
    cdef int64_t *dims          # one behind the other: a size; -1: any; or -2 - the number of a symbol
    cdef int64_t *sizes         # of the symbols; -1: none yet
    cdef int num_symbols
    cdef bint is_known          # whether `sizes` are those of states that fit

    def __init__(self, states, others):
        cdef int position
        symbols = {}
        numbers, ranks = [], []
        for dims in states:
            for dim in dims or ():
                if isinstance(dim, str):
                    symbols.setdefault(dim, len(symbols))
        for dims in (*states, *others):
            ranks.append(-1 if dims is None else len(dims))
            for dim in dims or ():
                # Symbols that no state has are not checked.
                is_any = dim is None or isinstance(dim, str)
                numbers.append(-2 - symbols[dim] if dim in symbols else -1 if is_any else dim)
        self.num_states, self.num_others, self.num_symbols = len(states), len(others), len(symbols)
        self.ranks = <int *> malloc((len(ranks) + 1) * sizeof(int))
        self.dims = <int64_t *> malloc((len(numbers) + 1) * sizeof(int64_t))
        self.sizes = <int64_t *> malloc((len(symbols) + 1) * sizeof(int64_t))
        if not (self.ranks and self.dims and self.sizes):
            raise MemoryError("the shapes of states")
        for position in range(len(ranks)):
            self.ranks[position] = ranks[position]
        for position in range(len(numbers)):
            self.dims[position] = numbers[position]

    def __dealloc__(self):
        free(self.ranks)
        free(self.dims)
        free(self.sizes)

    def fit(self, states):
        """Whether the states fit their ports and agree with each other; keeps the sizes of their symbols. False if one
        has no value yet."""
        cdef int position
        cdef const int64_t *dims = self.dims
        self.is_known = False
        for position in range(self.num_symbols):
            self.sizes[position] = -1
        for position in range(self.num_states):
            value = states[position]
            if value is None:
                return False
            shape = value.shape
            if not self.fits(shape if type(shape) is tuple else tuple(shape), self.ranks[position], dims):
                return False
            dims += max(self.ranks[position], 0)
        self.is_known = True
        return True

    def agree_with(self, others):
        """Whether the other inputs fit their ports, and have the sizes of the last states where they have symbols of
        states. False if these states did not fit."""
        cdef int position, rank
        cdef const int64_t *dims = self.dims
        if not self.is_known:
            return False
        for position in range(self.num_states):
            dims += max(self.ranks[position], 0)
        for position in range(self.num_others):
            rank = self.ranks[self.num_states + position]
            if rank >= 0:
                shape = getattr(others[position], "shape", None)
                if type(shape) is not tuple or not self.fits(shape, rank, dims):
                    return False
                dims += rank
        return True

    cdef bint fits(self, tuple shape, int rank, const int64_t *dims) except -1:
        """Whether a shape has these dimensions; keeps the sizes of symbols that have none yet."""
        cdef int axis
        cdef int64_t size
        if rank < 0:
            return True
        if len(shape) != rank:
            return False
        for axis in range(rank):
            if dims[axis] == -1:
                continue
            size = shape[axis]
            if dims[axis] >= 0:
                if size != dims[axis]:
                    return False
            elif self.sizes[-2 - dims[axis]] == -1:
                self.sizes[-2 - dims[axis]] = size
            elif self.sizes[-2 - dims[axis]] != size:
                return False
        return True


@cython.final
cdef class RequestStates:
    """The states of a request. Every step of a small model calls `join` and `part`.

    ``current``: their values; None where the size is not known yet. ``sizes``: of the states, then of the other inputs.
    ``order``: per input of the model, its number among the other inputs followed by the states. ``made``, ``free``: the
    positions among the results of the states and of the others.
    """

    cdef public tuple current
    cdef StateSizes sizes
    cdef tuple order, made, free
    cdef object sized           # the states that `sizes` has seen last

    def __init__(self, StateSizes sizes not None, order, made, free):
        self.sizes = sizes
        self.order, self.made, self.free = tuple(order), tuple(made), tuple(free)
        self.current = (None,) * len(self.made)

    def join(self, others):
        """All inputs in order. If they do not fit their ports or do not agree with each other, they are None, which no
        runner repeats."""
        if self.sized is not self.current:
            self.sizes.fit(self.current)
            self.sized = self.current
        if not self.sizes.agree_with(others):
            return [None] * len(self.order)
        values = [*others, *self.current]
        return [values[at] for at in self.order]

    def part(self, results):
        """The results that are not states. Keeps the states, unless one does not fit its port: then returns None."""
        values = tuple([results[at] for at in self.made])
        if not self.sizes.fit(values):
            self.sized = None
            return None
        self.current = self.sized = values
        return [results[at] for at in self.free]
