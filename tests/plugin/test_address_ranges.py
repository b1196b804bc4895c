"""Address ranges against NumPy's comparison of bounds."""

from __future__ import annotations

import time

import numpy as np

from hetero._kernels import apart
from hetero.plugin.address_ranges import AddressRanges, UsedMemory, range_of
from hetero.plugin.remote import RemoteContext, RemoteTensor
from hetero.plugin.request import owned


def test_ranges_are_those_of_numpy() -> None:
    random = np.random.default_rng(0)
    base = np.arange(2400, dtype=np.float32).reshape(4, 20, 30)

    def view() -> np.ndarray:
        slices = []
        for size in base.shape:
            begin, end = sorted(random.integers(0, size + 1, 2))
            slices.append(slice(begin, end, random.choice([1, 2, 3])))
        array = base[tuple(slices)]
        for axis in range(array.ndim):
            if random.random() < 0.3:
                array = np.flip(array, axis)
        return array.transpose(random.permutation(array.ndim))

    for _ in range(300):
        one, other = view(), view()
        mine = AddressRanges()
        mine.add(*range_of(one))
        assert mine.overlaps(*range_of(other)) == np.may_share_memory(one, other)


def test_arrays_that_share_no_byte() -> None:
    random = np.random.default_rng(0)
    seen = set()
    for _ in range(500):
        base = np.zeros(24)
        pieces = []
        for _ in range(int(random.integers(1, 5))):
            begin, end = sorted(random.integers(0, 25, 2))
            pieces.append(base[begin : end : random.choice([-1, 1, 2]) or 1])
        at = int(random.integers(0, len(pieces) + 1))
        inputs, results = pieces[:at], pieces[at:]
        pairs = [(a, b) for b in range(at, len(pieces)) for a in range(b)]
        shared = any(np.shares_memory(pieces[a], pieces[b]) for a, b in pairs)
        found = apart(results, inputs) is not None
        seen.add(found)
        assert not (found and shared)
        assert (apart([results], inputs) is not None) == found
        assert found or any(np.may_share_memory(pieces[a], pieces[b]) or not pieces[b].size for a, b in pairs)
    assert seen == {False, True}
    array = np.zeros(3)
    assert apart([array], []) == [array]
    array.flags.writeable = False
    assert apart([array], []) is None
    assert apart([], [array]) == []
    assert apart([None], []) is None
    assert apart([], [[array]]) is None


def test_sequences_and_maps_are_copied() -> None:
    array, maps, sequence = np.zeros(3), [{"a": 1.0}], [np.zeros(2), np.zeros(2)]
    found = apart([array, maps, sequence, []], [np.zeros(3)])
    assert found is not None
    assert found[0] is array
    assert found[1] == maps
    assert found[1] is not maps
    assert [id(each) for each in found[2]] == [id(each) for each in sequence]
    assert found[2] is not sequence
    for sharing in ([array, array], [None], [[array]], [sequence, {}]):
        assert apart([array, sharing], []) is None
    assert apart([[array]], [array[1:]]) is None
    assert apart([[array], [array]], []) is None
    many = [np.zeros(1) for _ in range(9)]
    assert apart([many[:8]], []) is not None
    assert apart([many], []) is None


def test_a_set_is_the_union() -> None:
    random = np.random.default_rng(1)
    for _ in range(100):
        ranges, bytes_ = AddressRanges(), np.zeros(60, bool)
        for _ in range(12):
            begin, end = (int(at) for at in random.integers(0, 61, 2))
            assert ranges.overlaps(begin, end) == bool(bytes_[begin:end].any())
            ranges.add(begin, end)
            if begin < end:
                bytes_[begin:end] = True
        assert ranges._begins == sorted(ranges._begins)
        assert all(end < begin for end, begin in zip(ranges._ends, ranges._begins[1:], strict=False))


class Counted(RemoteTensor):
    asked = 0

    def __init__(self, context: RemoteContext, begin: int) -> None:
        self.context = context
        self._begin = begin

    @property
    def address_range(self) -> tuple[int, int]:
        Counted.asked += 1
        return self._begin, self._begin + 4

    def numpy(self) -> np.ndarray:
        return np.array([self._begin])

    def __dlpack__(self, **options: object) -> object:
        raise NotImplementedError

    def __dlpack_device__(self) -> tuple[int, int]:
        return 12, 0


class Place(RemoteContext):
    def create_tensor(self, dtype: object, shape: object) -> RemoteTensor:
        raise NotImplementedError

    def upload(self, array: np.ndarray) -> RemoteTensor:
        return Counted(self, int(array[0]) + 1_000_000)


def test_many_tensors_take_a_time_in_proportion() -> None:
    place, other = Place(), Place()
    tensors = [Counted(place, 4 * at) for at in range(1000)]
    shared = [Counted(place, 402), Counted(other, 402)]
    results = owned([*tensors, *shared], [])
    assert Counted.asked <= 2 * 1002
    assert all(result is tensor for result, tensor in zip(results, tensors, strict=False))
    assert results[1000] is not shared[0]
    assert results[1000].numpy()[0] == 1_000_402
    assert results[1001] is shared[1]
    (copied,) = owned([tensors[3]], [tensors[3]])
    assert copied is not tensors[3]


class Unknown(Counted):
    """A tensor without addresses: it shares memory with no other."""

    address_range = None  # type: ignore[assignment]


def test_tensors_without_addresses() -> None:
    place, other = Place(), Place()
    tensors = [Unknown(place, at) for at in range(20_000)]  # comparing all pairs would take minutes
    twice = Unknown(other, 5)
    results = owned([*tensors, twice, twice, tensors[7], Counted(place, 3)], [tensors[19_999]])
    assert all(result is tensor for result, tensor in zip(results[:19_999], tensors, strict=False))
    assert results[19_999].numpy()[0] == 1_019_999  # it is an input
    assert results[20_000] is twice
    assert results[20_001].numpy()[0] == 1_000_005
    assert results[20_002].numpy()[0] == 1_000_007
    assert results[20_003].numpy()[0] == 3


def test_used_memory() -> None:
    base, place = np.arange(12, dtype=np.float32), Place()
    used = UsedMemory([base[4:6], [base[8:9], [base[10:]]], None, Counted(place, 0), "text"])
    for at, is_used in enumerate((0, 0, 0, 0, 1, 1, 0, 0, 1, 0, 1, 1)):
        assert used.overlaps(base[at : at + 1]) == bool(is_used)
    assert not used.overlaps(base[4:4])
    assert used.overlaps(Counted(place, 3))
    assert not used.overlaps(Counted(place, 4))
    assert not used.overlaps(Counted(Place(), 3))


def test_many_arrays_take_a_time_in_proportion() -> None:
    def spent(count: int) -> float:
        memory = np.zeros((count, 4))
        views = [memory[at] for at in range(count)]
        begin = time.process_time()
        results = owned(views, [])
        took = time.process_time() - begin
        assert all(result is view for result, view in zip(results, views, strict=True))
        return took

    few, many = min(spent(500) for _ in range(3)), min(spent(8000) for _ in range(3))
    assert many < 16 * 8 * few  # with all pairs compared: about 256
