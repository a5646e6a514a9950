#!/bin/sh
# Usage: check_tile_instructions.sh BUILD_DIR
#
# On most CPUs the tests run the kernels of the tile unit (AMX) on an emulation. So this script checks the assembly that
# the compiler made for the real unit. The block of two by two tiles must have four products with the right registers,
# loads and stores. A variant of the block must also compute the softmax. The unit must be configured, and no other
# level may have its instructions.
set -eu

manifest=$1/isa_objects.txt
[ -s "$manifest" ] || { echo "check_tile_instructions: $manifest is missing or empty" >&2; exit 1; }
grep -q '^avx512_amx ' "$manifest" || { echo "not an x86-64 build: there is no tile unit"; exit 0; }

assembly=$(mktemp)
trap 'rm -f "$assembly"' EXIT
failed=0
fail() {
  echo "check_tile_instructions: $1" >&2
  failed=1
}

# expect WHERE PATTERN: some line of the assembly matches. expect_none WHERE PATTERN: no line matches.
expect() { grep -qE "$2" "$assembly" || fail "$1: no line matches '$2'"; }
expect_none() { if grep -qE "$2" "$assembly"; then fail "$1: a line matches '$2'"; fi; }

# expect_block NAME INSTRUCTION: the block of that name has four products with the right registers, loads and stores.
expect_block() {
  echo "$whole" | awk -v name="TileBlock<2, 2, .*$1 *>" '/^[0-9a-f]+ </ { inside = $0 ~ name } inside { print }' \
    >"$assembly"
  for product in '%tmm6,%tmm4,%tmm0' '%tmm7,%tmm4,%tmm1' '%tmm6,%tmm5,%tmm2' '%tmm7,%tmm5,%tmm3'; do
    expect "$1" "$2 $product"
  done
  for tile in 0 1 2 3; do
    expect "$1" "tilezero %tmm$tile"
    expect "$1" "tileloadd .*,%tmm$tile\$"
    expect "$1" "tilestored %tmm$tile,"
  done
  for tile in 4 5 6 7; do expect "$1" "tileloadd .*,%tmm$tile\$"; done
  expect_none "$1" '	call'
}

# expect_only_in FILE PATTERN: no other source has the pattern.
expect_only_in() {
  found=$(cd "$(dirname "$0")/.." && grep -rlE "$2" src tools benchmarks examples tests include python/binding)
  [ "$found" = "$1" ] || fail "'$2' is in: $found, want $1"
}
expect_only_in src/core/kernels/vec/vec_amx.h 'asm.*ldtilecfg|_tile_loadconfig'
expect_only_in src/core/kernels/tile_use.cc 'asm.*tilerelease|_tile_release'

while read -r isa object; do
  objdump -d --no-show-raw-insn -C "$object" >"$assembly"
  if [ "$isa" != avx512_amx ]; then
    expect_none "$object" '	(tdp|tile|ldtile|sttile)'
    continue
  fi
  expect "$object" '	ldtilecfg '
  whole=$(cat "$assembly")
  case $object in
  */int8_*) expect_block 'NothingBeside' tdpbsud ;;
  *)
    expect_block 'NothingBeside' tdpbf16ps
    expect_block 'SoftmaxBeside<2>' tdpbf16ps
    expect 'SoftmaxBeside<2>' '	vcvtne2ps2bf16 '
    ;;
  esac
done <"$manifest"

[ "$failed" -eq 0 ] && echo "the tile unit's instructions are where they belong"
exit "$failed"
