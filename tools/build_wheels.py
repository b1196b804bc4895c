"""Builds the source distribution, and from it wheels for other machines than this one.

    python tools/build_wheels.py                        # all systems, into dist/
    python tools/build_wheels.py manylinux_aarch64      # one
    python tools/build_wheels.py --twice                # also builds every wheel again and compares the bytes

The compiler is clang in the package `ziglang`, which has the C libraries of every target, so neither a container nor
another machine is needed. Tools are installed into build-wheels/venv with the versions of wheel-requirements.txt. Each
wheel serves every CPython from 3.11 (abi3) and is checked: auditwheel finds whether it needs a newer C library than its
name says, abi3audit whether it uses more than the stable ABI, and no file may name a folder of this machine. If this
machine has the wheel's processor, the kernels of the wheel must report each instruction set that Linux reports for the
processor: in a program that links them, and for glibc also after an installation into a new environment. Nothing else
is run here: docs/install.md says what was run.
"""

import argparse
import functools
import hashlib
import json
import os
import platform
import shutil
import stat
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build-wheels"


@dataclass(frozen=True)
class Target:
    """A system: how zig names it, how CMake names it, and the platform tags of its wheels."""

    zig: str
    system: str
    processor: str
    tags: str

    @property
    def is_linux(self) -> bool:
        return self.system == "Linux"


TARGETS = {
    # glibc 2.17 is that of manylinux2014.
    "manylinux_x86_64": Target(
        "x86_64-linux-gnu.2.17", "Linux", "x86_64", "manylinux_2_17_x86_64.manylinux2014_x86_64"
    ),
    "manylinux_aarch64": Target(
        "aarch64-linux-gnu.2.17", "Linux", "aarch64", "manylinux_2_17_aarch64.manylinux2014_aarch64"
    ),
    "musllinux_x86_64": Target("x86_64-linux-musl", "Linux", "x86_64", "musllinux_1_2_x86_64"),
    "musllinux_aarch64": Target("aarch64-linux-musl", "Linux", "aarch64", "musllinux_1_2_aarch64"),
    "macos_arm64": Target("aarch64-macos.11.0", "Darwin", "arm64", "macosx_11_0_arm64"),
    "macos_x86_64": Target("x86_64-macos.11.0", "Darwin", "x86_64", "macosx_11_0_x86_64"),
    "windows_x86_64": Target("x86_64-windows-gnu", "Windows", "AMD64", "win_amd64"),
}

# What Linux calls the features of a processor that each variant of the kernels needs: src/_core/kernels/CMakeLists.txt.
AVX2 = {"avx2", "fma", "f16c", "bmi1", "bmi2"}
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
FEATURES = {
    "x86_64": {
        "baseline": set(),
        "avx2": AVX2,
        "avx_vnni": AVX2 | {"avx_vnni"},
        "avx512": AVX512,
        "avx512_vnni": AVX512 | {"avx512_vnni"},
        "avx512_amx": AVX512 | {"avx512_vnni", "amx_tile", "amx_int8", "amx_bf16"},
    },
    "aarch64": {"baseline": set()},
}

# Starts the compiler for macOS. For a module, CMake asks for a bundle, but zig 0.14 to 0.17 crash when they link one.
# Python loads a dynamic library as well.
NO_BUNDLES = """
for argument; do
    shift
    [ "$argument" != -bundle ] || argument=-dynamiclib
    set -- "$@" "$argument"
done
"""

# What Python's headers read from pyconfig.h if they are used for the stable ABI of a 64-bit system. This machine's own
# file describes another system, and Debian's includes a file from a folder that the cross compiler does not search.
PYCONFIG = """
#define SIZEOF_SHORT 2
#define SIZEOF_INT 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_VOID_P 8
#define SIZEOF_SIZE_T 8
#define SIZEOF_TIME_T 8
#ifdef _WIN32
#define MS_WINDOWS
#define MS_WIN32
#define MS_WIN64
#define Py_ENABLE_SHARED 1
#define HAVE_DECLSPEC_DLL
#define SIZEOF_LONG 4
#define SIZEOF_WCHAR_T 2
#else
#define SIZEOF_LONG 8
#define SIZEOF_WCHAR_T 4
#define HAVE_STDDEF_H 1
#define HAVE_UNISTD_H 1
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#endif
"""

# Prints what python3.dll exports in Python 3.11, as the linker reads it: a module that uses more does not link.
EXPORTS = """
from abi3info import DATAS, FUNCTIONS
print("LIBRARY python3.dll\\nEXPORTS")
for items, kind in ((FUNCTIONS, ""), (DATAS, " DATA")):
    for symbol, item in items.items():
        if (item.added.major, item.added.minor) <= (3, 11) and (item.ifdef is None or item.ifdef.windows is True):
            print(symbol.name + kind)
"""

# The libraries of Windows 10 and newer that a wheel may need beside python3.dll; api-ms-win-crt-* is the C library.
WINDOWS_LIBRARIES = ("KERNEL32.dll", "api-ms-win-crt-")

# Prints the libraries that a module for Windows needs.
NEEDED = """
import sys, pefile
for entry in pefile.PE(data=sys.stdin.buffer.read()).DIRECTORY_ENTRY_IMPORT:
    print(entry.dll.decode())
"""

# Prints the variants of the kernels that the processor runs.
VARIANTS_C = """
#include "kernels/registry.h"
#include <stdio.h>
int main(void)
{
    for (int i = 0; i < ht_num_variants(); i++)
        if (ht_variant_runs(i))
            puts(ht_variant_name(i));
    return 0;
}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the results")
    parser.add_argument("--twice", action="store_true", help="build each wheel twice and compare the bytes")
    given = parser.parse_args()
    if unknown := set(given.targets) - set(TARGETS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(TARGETS)}")
    python = _environment()
    given.out.mkdir(parents=True, exist_ok=True)
    sdist = _build_sdist(python, given.out)
    for name in given.targets or TARGETS:
        wheel = _build_wheel(python, sdist, name, given.out)
        if given.twice:
            shutil.rmtree(WORK / "zig-cache", ignore_errors=True)  # has the objects of the first build
            if _digest(_build_wheel(python, sdist, name, WORK / "again")) != _digest(wheel):
                sys.exit(f"{wheel.name}: two builds differ")
        _check(python, wheel, name)
        print(f"{wheel.stat().st_size / 1e6:6.2f} MB  sha256:{_digest(wheel)}  {wheel}", flush=True)


def _environment() -> Path:
    """The interpreter of the environment with the tools."""
    python = WORK / "venv" / "bin" / "python"
    wanted = Path(__file__).with_name("wheel-requirements.txt")
    have = WORK / "requirements.txt"
    if not have.exists() or have.read_bytes() != wanted.read_bytes():
        _run(sys.executable, "-m", "venv", "--clear", str(WORK / "venv"))
        _run(str(python), "-m", "pip", "install", "-q", "-r", str(wanted))
        shutil.copy(wanted, have)
    return python


def _build_sdist(python: Path, out: Path) -> Path:
    folder = WORK / "sdist"
    shutil.rmtree(folder, ignore_errors=True)
    _run(*_build(python), "--sdist", "--outdir", str(folder), str(ROOT))
    [sdist] = folder.iterdir()
    return Path(shutil.copy(sdist, out))


def _build_wheel(python: Path, sdist: Path, name: str, out: Path) -> Path:
    """Build the wheel of a target from the source distribution."""
    target = TARGETS[name]
    folder = WORK / name
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "tools").mkdir(parents=True)
    shutil.unpack_archive(sdist, folder)
    [source] = (path for path in folder.iterdir() if path.name != "tools")
    toolchain = _write_toolchain(folder / "tools", python, target, source)
    settings = [
        f"--config-setting=cmake.define.CMAKE_TOOLCHAIN_FILE={toolchain}",
        f"--config-setting=build-dir={source}/build",  # Cython's paths of sources are relative to it
        "--config-setting=install.strip=false",
    ]
    _run(*_build(python), "--wheel", *settings, "--outdir", str(folder / "dist"), str(source))
    [wheel] = (folder / "dist").iterdir()
    if "musl" in target.zig:
        _rename_libc(python, wheel, target.processor)
    named = subprocess.check_output(
        [str(python), "-m", "wheel", "tags", "--remove", "--platform-tag", target.tags, str(wheel)],
        text=True,
        env=_variables(),
    )
    out.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(wheel.with_name(named.split()[-1]), out))


def _rename_libc(python: Path, wheel: Path, processor: str) -> None:
    """Let the libraries of a wheel need musl's libc by the name that every system with musl has: zig writes the name
    that only musl's developer files have, which auditwheel rejects."""
    _run(str(python), "-m", "wheel", "unpack", "--dest", str(wheel.parent / "unpacked"), str(wheel))
    [tree] = (wheel.parent / "unpacked").iterdir()
    libraries = sorted(map(str, tree.rglob("*.so")))
    _run("patchelf", "--replace-needed", "libc.so", f"libc.musl-{processor}.so.1", *libraries)
    _run(str(python), "-m", "wheel", "pack", "--dest-dir", str(wheel.parent), str(tree))
    shutil.rmtree(wheel.parent / "unpacked")


def _write_toolchain(folder: Path, python: Path, target: Target, source: Path) -> Path:
    """Write the compiler as programs of one word, and the file that tells CMake about them."""
    first = NO_BUNDLES if target.system == "Darwin" else ""
    for tool, arguments in {"cc": f"cc -target {target.zig}", "ar": "ar", "ranlib": "ranlib"}.items():
        program = folder / tool
        program.write_text(f'#!/bin/sh\n{first}exec "{python}" -m ziglang {arguments} "$@"\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    lines = [
        f"set(CMAKE_SYSTEM_NAME {target.system})",
        f"set(CMAKE_SYSTEM_PROCESSOR {target.processor})",
        f"set(CMAKE_C_COMPILER {folder}/cc)",
        f"set(CMAKE_AR {folder}/ar)",
        f"set(CMAKE_RANLIB {folder}/ranlib)",
        # No path of this machine in the result; -g0: nor in debugging information.
        f'set(CMAKE_C_FLAGS_INIT "-g0 -ffile-prefix-map={source}=.")',
        'set(CMAKE_MODULE_LINKER_FLAGS_INIT "-s")',
        # Python's modules of CMake look at this machine's interpreter; the headers of its stable ABI serve all targets.
        "set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)",
    ]
    include = folder / "include"
    shutil.copytree(sysconfig.get_path("include"), include)
    (include / "pyconfig.h").write_text(PYCONFIG)
    paths = {"Python_INCLUDE_DIR": include}
    if target.system == "Windows":
        lines.append("set(CMAKE_RC_COMPILER true)")
        paths |= _windows_libraries(folder, python)
    lines += [f'set({name} {path} CACHE PATH "" FORCE)' for name, path in paths.items()]
    if target.system == "Darwin":
        lines += [
            'set(CMAKE_OSX_SYSROOT "")',
            'set(CMAKE_OSX_DEPLOYMENT_TARGET "")',
            "set(CMAKE_INSTALL_NAME_TOOL true)",
        ]
    path = folder / "toolchain.cmake"
    path.write_text("\n".join(lines) + "\n")
    return path


def _windows_libraries(folder: Path, python: Path) -> dict[str, Path]:
    """Make the import library of Python for Windows; returns the variables of CMake that select it."""
    exports, library = folder / "python3.def", folder / "libpython3.a"
    exports.write_text(subprocess.check_output([str(python), "-c", EXPORTS], text=True))
    _run(str(python), "-m", "ziglang", "dlltool", "-m", "i386:x86-64", "-d", str(exports), "-l", str(library))
    named = folder / f"libpython{sys.version_info.major}.{sys.version_info.minor}.a"  # CMake reads the version there
    shutil.copy(library, named)
    (folder / "python3.dll").touch()  # beside it, CMake takes the library for an import library
    return {"Python_LIBRARY": named, "Python_SABI_LIBRARY": library}


def _check(python: Path, wheel: Path, name: str) -> None:
    target = TARGETS[name]
    if target.is_linux:
        told = subprocess.run(
            [str(python), "-m", "auditwheel", "show", str(wheel)], text=True, capture_output=True, check=True
        ).stdout
        if target.tags.split(".")[0] not in " ".join(told.split()):
            sys.exit(f"auditwheel finds that {wheel.name} does not fit its name:\n{told}")
    _run(str(python), "-m", "abi3audit", "--strict", str(wheel))
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            if str(ROOT).lstrip("/").encode() in archive.read(member):
                sys.exit(f"{wheel.name}: {member} contains the path {ROOT}")
        for member in archive.namelist() if target.system == "Windows" else ():
            if member.endswith(".pyd"):
                _check_libraries(python, member, archive.read(member))
        [sbom] = (member for member in archive.namelist() if member.endswith(".dist-info/sboms/hetero.cdx.json"))
        version = json.loads(archive.read(sbom))["metadata"]["component"]["version"]
        if version != wheel.name.split("-")[1]:
            sys.exit(f"{wheel.name}: {sbom} is about version {version}")
    if target.is_linux and platform.system() == "Linux" and platform.machine() == target.processor:
        _check_variants(wheel, name)


def _check_libraries(python: Path, name: str, module: bytes) -> None:
    needed = subprocess.run([str(python), "-c", NEEDED], input=module, capture_output=True, check=True).stdout.decode()
    for library in needed.split():
        if library != "python3.dll" and not library.startswith(WINDOWS_LIBRARIES):
            sys.exit(f"{name} needs {library}, which not every Windows has")


def _check_variants(wheel: Path, name: str) -> None:
    """Compare the variants that the kernels report with what Linux says of the processor."""
    cpuinfo = set(Path("/proc/cpuinfo").read_text().split())
    expected = [variant for variant, features in FEATURES[platform.machine()].items() if features <= cpuinfo]
    told = {"a program of the same objects": _linked_variants(WORK / name)}
    if platform.libc_ver()[0] == "glibc" and "musl" not in name:
        told["the installed wheel"] = _installed_variants(wheel)
    for source, variants in told.items():
        print(f"{wheel.name}: {source} reports {', '.join(variants)}")
        if variants != expected:
            sys.exit(f"{wheel.name}: {source} does not report what the processor has: {', '.join(expected)}")


def _linked_variants(folder: Path) -> list[str]:
    """Link the kernels of the last build in `folder` with a program, and run it. It is static for musl, which this
    machine need not have."""
    [source] = (path for path in folder.iterdir() if path.name not in ("tools", "dist"))
    program = folder / "tools" / "variants"
    program.with_suffix(".c").write_text(VARIANTS_C)
    built = source / "build"
    objects = [path for path in built.rglob("*.c.o") if "kernels" in path.parts and path.name != "_kernels.c.o"]
    _run(
        str(folder / "tools" / "cc"),
        *(["-static"] if "musl" in folder.name else []),
        f"-I{source}/src/_core",
        str(program.with_suffix(".c")),
        *map(str, sorted(objects)),
        "-lm",
        "-o",
        str(program),
    )
    return subprocess.check_output([str(program)], text=True).split()


def _installed_variants(wheel: Path) -> list[str]:
    """Install the wheel into a new environment, and ask its module."""
    environment = WORK / "installed"
    shutil.rmtree(environment, ignore_errors=True)
    _run(sys.executable, "-m", "venv", str(environment))
    python = str(environment / "bin" / "python")
    _run(python, "-m", "pip", "install", "-q", str(wheel))
    code = "import json; from hetero import _kernels; print(json.dumps(_kernels.variants()))"
    variables = {key: value for key, value in _variables().items() if not key.startswith(("PYTHON", "HETERO_"))}
    return json.loads(subprocess.check_output([python, "-c", code], text=True, cwd=environment, env=variables))


def _build(python: Path) -> list[str]:
    return [str(python), "-m", "build", "--no-isolation"]


def _variables() -> dict[str, str]:
    """Environment of builds: no time of today, no flags of this machine."""
    variables = {name: value for name, value in os.environ.items() if name not in ("CC", "CFLAGS", "LDFLAGS")}
    variables["SOURCE_DATE_EPOCH"] = _last_change()
    variables["PATH"] = f"{WORK / 'venv' / 'bin'}{os.pathsep}{variables['PATH']}"
    variables["ZIG_GLOBAL_CACHE_DIR"] = variables["ZIG_LOCAL_CACHE_DIR"] = str(WORK / "zig-cache")
    return variables


@functools.cache
def _last_change() -> str:
    """Seconds since 1970: the time that the builds write into archives, also if there is a commit meanwhile."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return os.environ["SOURCE_DATE_EPOCH"]
    told = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, text=True, capture_output=True, check=False)
    return told.stdout.strip() or "1700000000"  # unpacked sources have no commits


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, cwd=ROOT, env=_variables())


if __name__ == "__main__":
    main()
