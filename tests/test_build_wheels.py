"""What tools/build_wheels.py gives to its compiler."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "build_wheels.py"

USES_PYTHON = """
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <sched.h>
#include <time.h>
_Static_assert(SIZEOF_SHORT == sizeof(short) && SIZEOF_INT == sizeof(int) && SIZEOF_LONG == sizeof(long), "integers");
_Static_assert(SIZEOF_LONG_LONG == sizeof(long long) && SIZEOF_VOID_P == sizeof(void *), "integers and pointers");
_Static_assert(SIZEOF_SIZE_T == sizeof(size_t) && SIZEOF_TIME_T == sizeof(time_t), "types of the C library");
_Static_assert(SIZEOF_WCHAR_T == sizeof(wchar_t), "characters");
#ifdef __linux__
int (*extension)(void) = sched_getcpu;
#endif
"""


@pytest.mark.skipif(not TOOL.exists(), reason="only with the source")
@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
@pytest.mark.skipif(sysconfig.get_config_var("SIZEOF_VOID_P") != 8, reason="wheels are for systems of 64 bits")
def test_headers_of_the_stable_abi_need_no_other_pyconfig(tmp_path: Path) -> None:
    """Debian's own pyconfig.h includes one in a folder of the system, which a cross compiler does not search."""
    include = tmp_path / "include"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        pytest.skip("no headers of Python")
    shutil.copytree(sysconfig.get_path("include"), include)
    (include / "pyconfig.h").write_text(runpy.run_path(str(TOOL))["PYCONFIG"])
    source = tmp_path / "source.c"
    source.write_text(USES_PYTHON)
    subprocess.run(
        ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{include}", source], check=True
    )
