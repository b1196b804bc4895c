#!/bin/sh
# Runs the fast tests with the oldest dependencies and the oldest onnxruntime that pyproject.toml allows.
#
#   tools/lowest.sh [pytest arguments]        default: -m 'not slow'
#
# Makes a virtual environment of its own in build-lowest/. Needs Python 3.11 (PYTHON: the interpreter to use), because
# the oldest versions have no wheels for newer ones.
set -eu
cd "$(dirname "$0")/.."
python=build-lowest/venv/bin/python
[ -x "$python" ] || "${PYTHON:-python3.11}" -m venv build-lowest/venv
"$python" -c '
import re, tomllib
with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
for requirement in project["dependencies"] + project["optional-dependencies"]["onnxruntime"]:  # name>=1.2 -> name==1.2
    print(re.fullmatch(r"([\w.-]+)>=([\w.]+)(.*)", requirement).expand(r"\1==\2\3"))
' >build-lowest/constraints.txt
"$python" -m pip install --quiet -c build-lowest/constraints.txt '.[test]'
[ $# -gt 0 ] || set -- -m 'not slow'
exec "$python" -m pytest "$@"
