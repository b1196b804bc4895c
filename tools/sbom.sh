#!/bin/sh
# Writes sbom.json: hetero and the packages that it is installed with, their versions and licenses, as CycloneDX.
#
#   tools/sbom.sh [a wheel of hetero]        default: the checkout
#
# Makes virtual environments of its own in build-sbom/. PYTHON: the interpreter to use.
set -eu
cd "$(dirname "$0")/.."
[ -x build-sbom/tool/bin/cyclonedx-py ] || {
    "${PYTHON:-python3}" -m venv build-sbom/tool
    build-sbom/tool/bin/python -m pip install --quiet 'cyclonedx-bom>=7'
}
# Without pip, which would be listed.
"${PYTHON:-python3}" -m venv --clear --without-pip build-sbom/hetero
build-sbom/tool/bin/python -m pip --python build-sbom/hetero/bin/python install --quiet "${1:-.}"
# With license texts, because protobuf names its license in words, which the list counts as a text.
build-sbom/tool/bin/cyclonedx-py environment --output-reproducible --gather-license-texts --of JSON -o sbom.json \
    build-sbom/hetero/bin/python
