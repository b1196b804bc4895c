#!/bin/sh
# Compiles the C of the core with gcc and clang, with all warnings as errors, on x86-64 for every instruction set. Writes
# no objects; goes on after a failure.
#
#   tools/warnings.sh [compilers]        default: gcc clang
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- gcc clang
kernels=src/_core/kernels
# The flags of each instruction set, as variables of the shell: flags_avx2, ...
eval "$(sed -n 's/^ *set(\(flags_[a-z0-9_]*\) \(.*\))$/\1="\2"/p' $kernels/CMakeLists.txt)"
failed=0

# sources <list in the CMakeLists.txt>: its files
sources() { sed -n "/^set($1\$/,/^)/s|^  \(.*\)|$kernels/\1|p" $kernels/CMakeLists.txt; }

# check <variant> <variant that it extends> <files>...
check() {
    variant=$1 base=$2
    shift 2
    eval "flags=\${flags_$variant-}"
    for file; do
        "$compiler" -std=gnu11 -O1 -fPIC -ffp-contract=off -fsyntax-only -Wall -Wextra -Werror $ignored $flags \
            -DHT_VARIANT="$variant" ${base:+-DHT_BASE=$base} $defined -Isrc/hetero/include -Isrc/_core "$file" || failed=1
    done
}

tiles=$(sources tile_sources)
for compiler; do
    ignored=-Wno-attributes defined=
    case $compiler in *clang*) ignored=-Wno-unknown-pragmas ;; esac # GCC ivdep
    [ "$(uname -m)" != x86_64 ] || defined=-DHETERO_COMPILES_AMX # kernels/registry.c
    check baseline "" $(ls src/_core/*.c src/_core/*/*.c | grep -vxF "$tiles")
    [ "$(uname -m)" = x86_64 ] || continue
    check avx2 "" $(sources kernel_sources) $(sources byte_sources)
    defined="$defined -DHT_NARROW=avx2"
    check avx512 "" $(sources kernel_sources | grep -vxF "$(sources narrow_sources)") $(sources byte_sources)
    defined=${defined% *}
    check avx_vnni avx2 $(sources byte_sources)
    check avx512_vnni avx512 $(sources byte_sources)
    check avx512_amx avx512 $(sources byte_sources) $(sources product_sources) $tiles
done
exit $failed
