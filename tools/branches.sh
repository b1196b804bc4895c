#!/bin/sh
# Prints the share of branches of the C core that tests take, for each file, by gcov.
#
#   tools/branches.sh [pytest arguments]        default: tests/model tests/partition -m 'not slow'
#
# Makes a virtual environment of its own in build-branches/. Needs python3 and gcc. Counts from an earlier run are
# deleted first. MATCH: a regular expression of paths to print.
set -eu
cd "$(dirname "$0")/.."
python=build-branches/venv/bin/python
[ -x "$python" ] || "${PYTHON:-python3}" -m venv build-branches/venv
CC=gcc CFLAGS='--coverage -fprofile-update=atomic' LDFLAGS=--coverage "$python" -m pip install --quiet '.[test]' \
    --config-settings=build-dir=build-branches/cmake
find build-branches/cmake -name '*.gcda' -delete
[ $# -gt 0 ] || set -- tests/model tests/partition -m 'not slow'
"$python" -m pytest -q "$@" || echo 'some tests failed'
find build-branches/cmake -name '*.gcda' | while read -r counts; do
    gcov --branch-probabilities --stdout --json-format "$counts" 2>/dev/null
done | "$python" tools/branches.py "${MATCH:-src/_core/}"
