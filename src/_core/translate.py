"""Translates Cython modules to C in one process: Cython takes most of a second to start, and a quarter for each module.

    python translate.py FOLDER MODULE.pyx... -- OPTIONS OF cython

Writes FOLDER/MODULE.c for the module hetero.MODULE, and FOLDER/_views.c, the code for memory views that they share.
Leaves a file as it is if it is newer than its source and all declarations, and the last run had this version of Cython
and these options.
"""

import gc
import sys
from pathlib import Path

from Cython import __version__
from Cython.Compiler.Main import main

HERE = Path(__file__).resolve().parent


def translate(folder: Path, modules: list[str], options: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    stamp = folder / "cython-options.txt"
    told = "\n".join([sys.version, __version__, *options])
    same = stamp.exists() and stamp.read_text() == told
    stamp.unlink(missing_ok=True)  # until all modules are translated
    declarations = [Path(__file__), *HERE.rglob("*.pxd")]
    shared = folder / "_views.c"
    if not (same and shared.exists()):
        cython([*options, f"--generate-shared={shared}"], shared)
    for module in modules:
        source, output = HERE / module, (folder / module).with_suffix(".c")
        newest = max(path.stat().st_mtime for path in [source, *declarations])
        if same and output.exists() and output.stat().st_mtime > newest:
            continue
        name = f"hetero.{source.stem}"
        cython(["-I", str(HERE), "--module-name", name, *options, "--shared=hetero._views", str(source)], output)
    stamp.write_text(told)


def cython(arguments: list[str], output: Path) -> None:
    """The program `cython`; it exits after an error. No output remains after an error or an interruption."""
    output.unlink(missing_ok=True)
    if not any(argument.startswith("--generate-shared=") for argument in arguments):
        arguments = [*arguments, "--output-file", str(output)]
    sys.argv = ["cython", *arguments]
    main(command_line=1)


if __name__ == "__main__":
    gc.disable()  # collections take a quarter of the time and free little: 310 MB instead of 240
    before, after = sys.argv[2 : sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
    translate(Path(sys.argv[1]), before, after)
