#!/bin/sh
# Usage: check_tile_instructions.sh BUILD_DIR
#
# On most CPUs the tests of the kernels of the tile unit (AMX) run on its emulation. This script reads the assembly that
# the compiler made for the instructions themselves. The block of two by two tiles must have four products with their
# registers, their loads and stores. One operand has the hint that L1 need not keep it. The unit must be configured, and
# no other level may have its instructions.
#
# The inner loops of the forward and of the outer products are those of a program that was timed on an Emerald Rapids
# (docs/kernels.md). On a CPU without the unit only their instructions can be counted: per step four products, two
# loads with the hint and two without. Beside them are, per row of 16 queries and two keys, the operations of two
# exponentials (one fraction, four multiply-adds and one scaling each). The forward has one cut and one sum more. For
# statistics it has four multiply-adds and a scaling more per exponential, but no other fraction. The
# backward, whose loop was not timed, has two multiply-adds per element more and two roundings. The indexer's loop, not
# timed either, has one maximum and one multiply-add per element.
set -eu

manifest=$1/isa_objects.txt
[ -s "$manifest" ] || { echo "check_tile_instructions: $manifest is missing or empty" >&2; exit 1; }
grep -q '^avx512_amx ' "$manifest" || { echo "not an x86-64 build: there is no tile unit"; exit 0; }

assembly=$(mktemp)
trap 'rm -f "$assembly"' EXIT
failed=0
fail() {
  echo "check_tile_instructions: $*" >&2
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
  for tile in 4 5; do expect "$1" "tileloaddt1 .*,%tmm$tile\$"; done
  for tile in 6 7; do expect "$1" "tileloadd .*,%tmm$tile\$"; done
  expect_none "$1" '	call'
}

# expect_phase NAME VECTORS: of the TilePhase of that name, each step is code without a branch. A later step of a phase
# has four products, two loads with the hint, two without, and no other tile instruction. It has no vector instructions,
# or as many as VECTORS lists. A first step stores four sums at most, and loads or clears four. No vector is spilled.
expect_phase() {
  steps=$(echo "$whole" | awk -v name="TilePhase<$1>" -v beside="$2" '
    function count(op) { return op in n ? n[op] : 0 }
    function end_of_code() {
      if (count("tdpbf16ps") == 4 && count("tilezero") == 0 && count("tilestored") == 0 && count("tileloadd") == 2) {
        vectors = count("vreduceps") " " count("vscalefps") " " count("fma") " " count("vpshufb") " " \
          count("vdpbf16ps") " " count("vcvtne2ps2bf16") " " count("vpermw") " " count("vmaxps")
        if (count("tileloaddt1") == 2) ++later[vectors]
      }
      if (count("tdpbf16ps") == 4 && count("tilestored") == 4) ++first[count("tilezero") " " count("tileloadd")]
      if (count("tdpbf16ps") > 0) wrong += count("wrong")
      delete n
    }
    /^[0-9a-f]+ </ { end_of_code(); inside = index($0, name) > 0; next }
    inside {
      op = $2
      if (op ~ /^vfm/) op = "fma"
      ++n[op]
      if (op ~ /^call/ || (/zmm/ && /\(%rsp/)) ++n["wrong"]
      if (op ~ /^j/) end_of_code()
    }
    END {
      print later["0 0 0 0 0 0 0 0"] + 0, later[beside] + 0, (first["4 2"] > 0), (first["0 6"] > 0), wrong + 0
    }')
  want="1 1 1 1 0"
  [ "$steps" = "$want" ] || fail "TilePhase<$1>: later steps alone and with rows, first steps that clear and that load," \
    "calls and spills are $steps, want $want"
}

# expect_only_in FILE PATTERN: of all sources only this one has the pattern.
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
  */int8_*) expect_block 'DotsOfSignedUnsignedBytes' tdpbsud ;;
  *)
    expect_block 'DotsOfPairs' tdpbf16ps
    in='fa::core::kernels::avx512_amx::(anonymous namespace)::'
    for r in 2 4 8 16; do
      expect_phase "${in}CutSoftmax<false>, $r, (${in}Streamed)0" "$((2 * r)) $((2 * r)) $((8 * r)) $r $r 0 0 0"
      expect_phase "${in}CutSoftmax<true>, $r, (${in}Streamed)0" "$((2 * r)) $((4 * r)) $((16 * r)) $r $r 0 0 0"
      expect_phase "${in}TileGradient, $r, (${in}Streamed)0" "$((2 * r)) $((2 * r)) $((12 * r)) 0 0 $((2 * r)) $r 0"
      expect_phase "${in}HeadSums, $r, (${in}Streamed)0" "0 0 $((2 * r)) 0 0 0 0 $((2 * r))"
    done
    for streamed in 0 1; do expect_phase "${in}NoVectors, 0, (${in}Streamed)$streamed" "0 0 0 0 0 0 0 0"; done
    ;;
  esac
done <"$manifest"

[ "$failed" -eq 0 ] && echo "the tile unit's instructions are where they belong"
exit "$failed"
