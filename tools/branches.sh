#!/bin/sh
# Prints the share of branches that tests take, for each file: of the C core by gcov, of Python files by coverage.py.
#
#   tools/branches.sh [pytest arguments]        default: the tests of readers, partitioner, assignment and kernels
#   MISSING=1 tools/branches.sh                 also prints the lines with branches that were not taken
#   GROUPS_SHOWN="reader files" tools/branches.sh tests/model tests/artifact tests/plan tests/faults
#
# Exits with 1 if a group does not reach its aim (tools/branches.py). Makes a virtual environment of its own in
# build-branches/. Needs python3 and gcc. Without optimization except in kernels, so that branches are those of the
# source. Counts from an earlier run are deleted first. A process that is killed leaves no counts.
set -eu
cd "$(dirname "$0")/.."
root=$PWD python=build-branches/venv/bin/python
[ -x "$python" ] || "${PYTHON:-python3}" -m venv build-branches/venv
CC=gcc CFLAGS='--coverage -fprofile-update=atomic' LDFLAGS=--coverage "$python" -m pip install --quiet '.[test]' coverage \
    --config-settings=build-dir=build-branches/cmake --config-settings=cmake.build-type=Debug
find build-branches/cmake -name '*.gcda' -delete
rm -rf build-branches/data
mkdir build-branches/data
cat >build-branches/coveragerc <<END
[run]
branch = True
parallel = True
source = hetero
patch = subprocess
data_file = $root/build-branches/data/counts
disable_warnings = no-data-collected,module-not-measured,couldnt-parse,already-imported
END
coverage="$python -m coverage"
[ $# -gt 0 ] || set -- tests/model tests/hostile tests/partition tests/assign tests/artifact tests/plan tests/compiling \
    tests/faults/test_faults.py tests/kernels tests/devices/cpu tests/fuzz -m '(exhaustive or not exhaustive) and not slow'
# In debug builds, each array of scratch memory is an allocation: up to 12,000 for one operation.
export FAULTS_MOST_CALLS=3000
# Without the limit of time of a test, whose end would lose the counts.
$coverage run --rcfile=build-branches/coveragerc -m pytest -q -o faulthandler_timeout=0 "$@" || echo 'some tests failed'
$coverage combine -q --rcfile=build-branches/coveragerc build-branches/data
$coverage json -q --rcfile=build-branches/coveragerc -o build-branches/python.json
find build-branches/cmake -name '*.gcda' | while read -r counts; do
    gcov --branch-probabilities --stdout --json-format "$counts" 2>/dev/null
done | "$python" tools/branches.py --coverage build-branches/python.json ${MISSING:+--missing} \
    ${GROUPS_SHOWN:+--groups $GROUPS_SHOWN}
