#!/bin/sh
# Looks for data races in the C core: runs tests/faults/chaos.py in a build with the thread sanitizer.
#
#   tools/races.sh [--seconds 300] [--seed 1]      # exit status 66: a race
#   tools/races.sh --race                          # with a race, which must be found
#
# Makes a virtual environment of its own in build-races/. Needs python3 and gcc. PYTHON: the interpreter to use.
set -eu
cd "$(dirname "$0")/.."
python=build-races/venv/bin/python
[ -x "$python" ] || "${PYTHON:-python3}" -m venv build-races/venv
CC=gcc "$python" -m pip install --quiet '.[test]' \
    --config-settings=cmake.define.HETERO_RACES=ON --config-settings=install.strip=false \
    --config-settings=build-dir=build-races/cmake
# Of other modules, Python's own among them, the sanitizer sees only calls of the C library: their locks, and no accesses
# to memory. setarch: it needs addresses that are not randomized.
exec env LD_PRELOAD="$(gcc -print-file-name=libtsan.so)" TSAN_OPTIONS="exitcode=66 ${TSAN_OPTIONS:-}" \
    setarch -R "$python" tests/faults/chaos.py "$@"
