"""The door to single kernels: validation, variants, statuses."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hetero import _kernels


def test_variants_of_a_kernel_are_those_with_code_of_their_own() -> None:
    some = _kernels.variants("matmul_integer")
    assert some[0] == _kernels.variants("cumsum")[0] == "baseline"
    assert set(_kernels.variants("cumsum")) <= {"baseline", "avx2"}
    assert not {"avx_vnni", "avx512_vnni"} & set(_kernels.variants("softmax"))
    assert _kernels.variants("softmax", "matmul_integer") == some == _kernels.variants()
    with pytest.raises(ValueError, match="no kernel 'sofmax'"):
        _kernels.variants("sofmax")


def test_menu_names_variants_from_least_to_most_demanding() -> None:
    assert "identity" in _kernels.kernel_names()
    assert _kernels.variants()[0] == "baseline"
    assert _kernels.variant() in _kernels.variants()


@pytest.mark.skipif(platform.machine() != "x86_64" or not Path("/proc/cpuinfo").exists(), reason="x86-64 Linux only")
def test_variants_are_those_that_the_system_reports() -> None:
    flags = set(Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split())
    avx2 = {"avx2", "fma", "f16c", "bmi1", "bmi2"}
    avx512 = avx2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
    needed = {
        "baseline": set(), "avx2": avx2, "avx_vnni": avx2 | {"avx_vnni"},
        "avx512": avx512, "avx512_vnni": avx512 | {"avx512_vnni"},
        "avx512_amx": avx512 | {"avx512_vnni", "amx_tile", "amx_int8", "amx_bf16"},
    }  # fmt: skip
    code = "from hetero import _kernels; print(*_kernels.variants())"
    unlimited = {name: value for name, value in os.environ.items() if name != "HETERO_ISA"}
    told = subprocess.run([sys.executable, "-c", code], env=unlimited, text=True, capture_output=True, check=True)
    assert set(told.stdout.split()) == {name for name, wanted in needed.items() if wanted <= flags}


def test_lines_of_a_set_of_the_l1_cache_are_those_that_the_system_reports() -> None:
    caches = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")
    ways = [
        int((cache / "ways_of_associativity").read_text())
        for cache in caches
        if ((cache / "level").read_text(), (cache / "type").read_text()) == ("1\n", "Data\n")
    ]
    if platform.machine() != "x86_64" or not ways:
        pytest.skip("x86-64 Linux only")
    assert [_kernels.l1_ways()] == ways
    try:
        _kernels.assume_l1_ways(3)
        assert _kernels.l1_ways() == 3
    finally:
        _kernels.assume_l1_ways(0)
    assert [_kernels.l1_ways()] == ways


@pytest.mark.skipif("avx512_amx" not in _kernels.variants(), reason="needs AMX")
def test_a_signal_stack_too_small_for_tiles_leaves_the_other_variants() -> None:
    """Linux then refuses the use of tiles."""
    code = """
import ctypes
class Stack(ctypes.Structure):
    _fields_ = [("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]
memory = ctypes.create_string_buffer(8192)
stack = Stack(ctypes.addressof(memory), 0, len(memory))
assert ctypes.CDLL(None).sigaltstack(ctypes.byref(stack), None) == 0
from hetero import _kernels
print(*_kernels.variants(), _kernels.variant())
"""
    unlimited = {name: value for name, value in os.environ.items() if name != "HETERO_ISA"}
    told = subprocess.run([sys.executable, "-c", code], env=unlimited, text=True, capture_output=True, check=True)
    assert told.stdout.split() == [*_kernels.variants()[:-1], _kernels.variants()[-2]]


@pytest.mark.parametrize("variant", _kernels.variants())
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint16", "int32", "int64", "bool"])
def test_identity_copies_any_layout(variant: str, dtype: str) -> None:
    x = np.arange(24).reshape(4, 6).astype(dtype).T[::2]
    (y,) = _kernels.call("identity", [x], [((12,), dtype)], variant=variant)
    np.testing.assert_array_equal(y, x.reshape(-1))
    assert not np.shares_memory(x, y)


def test_wrong_arguments_are_refused() -> None:
    x = np.zeros(3, np.float32)
    with pytest.raises(ValueError, match=r"no kernel 'identiti' \(did you mean identity\?\)"):
        _kernels.call("identiti", [x], [((3,), "float32")])
    with pytest.raises(ValueError, match="at most 8 dimensions"):
        _kernels.call("identity", [np.zeros((1,) * 9, np.float32)], [((1,), "float32")])
    with pytest.raises(TypeError, match="no kernel takes elements of type complex64"):
        _kernels.call("identity", [x.astype("complex64")], [((3,), "float32")])
    with pytest.raises(ValueError, match="variant: no instruction set 'avx1024'"):
        _kernels.call("identity", [x], [((3,), "float32")], variant="avx1024")
    with pytest.raises(ValueError, match="scratch_bytes"):
        _kernels.call("identity", [x], [((3,), "float32")], scratch_bytes=-1)


@pytest.mark.parametrize("name", [*_kernels.variants(), "nonsense"])
def test_environment_variable_masks_the_instruction_set(name: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", "from hetero import _kernels; print(_kernels.variant())"],
        env={**os.environ, "HETERO_ISA": name, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    if name == "nonsense":
        assert run.returncode != 0
        assert "HETERO_ISA: no instruction set 'nonsense'" in run.stderr
    else:
        assert run.stdout.strip() == name
