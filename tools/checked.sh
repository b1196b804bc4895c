#!/bin/sh
# Runs the tests over a checked build: Cython bounds checks, and in C the address and undefined-behavior sanitizers.
#
#   tools/checked.sh [pytest arguments]        default: -m 'not slow'
#
# Makes a virtual environment of its own in build-checked/, with all that the tests need. Needs python3 and gcc.
# PYTHON: the interpreter to use. Takes some ten times as long as the plain tests. Leaves out what measures memory: the
# sanitizer keeps what was freed.
set -eu
cd "$(dirname "$0")/.."
python=build-checked/venv/bin/python
[ -x "$python" ] || "${PYTHON:-python3}" -m venv build-checked/venv
CC=gcc "$python" -m pip install --quiet '.[test]' \
    --config-settings=cmake.define.HETERO_CHECKED=ON --config-settings=build-dir=build-checked/cmake
[ $# -gt 0 ] || set -- -m 'not slow'
# onnx throws C++ exceptions, which the sanitizer must see loaded from the start. Python itself never frees everything,
# and an allocation too large is for the caller to notice.
# pytest captures what a process writes, so the sanitizers' reports go to files, which are printed at the end.
rm -f build-checked/report.*
status=0
env LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libstdc++.so)" \
    ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1:log_path=$PWD/build-checked/report" \
    UBSAN_OPTIONS="print_stacktrace=1:log_path=$PWD/build-checked/report" \
    "$python" -m pytest --ignore=tests/runtime/test_soak.py "$@" || status=$?
for report in build-checked/report.*; do
    [ ! -f "$report" ] || cat "$report"
done
exit $status
