#!/bin/sh
# Writes sbom.json: hetero and the packages that it is installed with, their versions and licences, as CycloneDX.
#
#   tools/sbom.sh [a wheel of hetero]        default: the checkout
#
# Makes a virtual environment of its own in build-sbom/. PYTHON: the interpreter to use.
set -eu
cd "$(dirname "$0")/.."
"${PYTHON:-python3}" -m venv --clear build-sbom/hetero
build-sbom/hetero/bin/python -m pip install --quiet "${1:-.}"
[ -x build-sbom/tool/bin/cyclonedx-py ] || {
    "${PYTHON:-python3}" -m venv build-sbom/tool
    build-sbom/tool/bin/python -m pip install --quiet 'cyclonedx-bom>=7'
}
build-sbom/tool/bin/cyclonedx-py environment --output-reproducible --of JSON -o sbom.json build-sbom/hetero/bin/python
