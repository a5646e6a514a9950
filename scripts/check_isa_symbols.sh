#!/bin/sh
# Usage: check_isa_symbols.sh BUILD_DIR
#
# Code compiled for one instruction set must not reach a CPU that lacks it. The linker keeps one copy of an inline
# function or template for all callers. This could be the copy that was compiled with -mavx512f. So each symbol that an
# object of a level defines for others must carry the namespace fa::core::kernels::<level>.
set -eu

manifest=$1/isa_objects.txt
[ -s "$manifest" ] || { echo "check_isa_symbols: $manifest is missing or empty" >&2; exit 1; }

failed=0
checked=0
while read -r isa object; do
  # Mangled, fa::core::kernels::avx2 is 2fa4core7kernels4avx2.
  own="2fa4core7kernels${#isa}$isa"
  symbols=$(nm --defined-only --format=posix "$object")
  # In nm's output, upper case letters are global symbols, and the linker shares u, v and w.
  shared=$(echo "$symbols" | awk '$2 ~ /^[A-Zuvw]$/')
  [ -n "$shared" ] || { echo "check_isa_symbols: $object defines nothing" >&2; failed=1; }
  foreign=$(echo "$shared" | awk -v own="$own" 'index($1, own) == 0 { print "  " $2, $1 }')
  if [ -n "$foreign" ]; then
    echo "$object: symbols outside fa::core::kernels::$isa:"
    echo "$foreign" | c++filt
    failed=1
  fi
  checked=$((checked + 1))
done <"$manifest"

[ "$failed" -eq 0 ] && echo "$checked objects keep their instruction set to themselves"
exit "$failed"
