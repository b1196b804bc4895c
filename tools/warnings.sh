#!/bin/sh
# Compiles the C of the core with gcc and clang, with all warnings as errors. Writes no objects; goes on after a failure.
#
#   tools/warnings.sh [compilers]        default: gcc clang
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- gcc clang
failed=0
for compiler; do
    ignored=-Wno-attributes
    case $compiler in *clang*) ignored=-Wno-unknown-pragmas ;; esac # GCC ivdep
    for file in src/_core/*.c src/_core/*/*.c; do
        "$compiler" -std=gnu11 -O1 -fPIC -ffp-contract=off -fsyntax-only -Wall -Wextra -Werror "$ignored" \
            -DHT_VARIANT=baseline -Isrc/hetero/include -Isrc/_core "$file" || failed=1
    done
done
exit $failed
