#!/bin/sh
# Usage: fuzz.sh [SECONDS [TARGET...]]
# Runs the fuzzers of tests/fuzz/targets (command_line, face, npy, plans, tables; default: all) with libFuzzer,
# AddressSanitizer and UndefinedBehaviorSanitizer. Each runs for SECONDS (default 600) from the corpus of
# tests/fuzz/corpus. Afterwards new inputs of the corpus are in build/fuzz/corpus/TARGET, and inputs that break
# something in build/fuzz/found. Installs clang from Debian 12. The exit status is 1 if anything was found.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-600}
[ $# -eq 0 ] || shift
targets=${*:-command_line face npy plans tables}

scripts/setup.sh
missing=""
for package in clang-16 libclang-rt-16-dev libomp-16-dev; do
  dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing="$missing $package"
done
# shellcheck disable=SC2086  # a list of words
[ -z "$missing" ] || ${SUDO:-} apt-get install -y -q --no-install-recommends $missing

cmake --preset fuzz
# shellcheck disable=SC2046,SC2086
cmake --build --preset fuzz --target $(printf 'fuzz_%s ' $targets)

status=0
mkdir -p build/fuzz/found
for target in $targets; do
  mkdir -p "build/fuzz/corpus/$target"
  echo "== $target"
  # Paths are absolute, because the command_line target changes to a new folder. A size beyond all memory makes an
  # allocation fail.
  ASAN_OPTIONS=allocator_may_return_null=1 "build/fuzz/tests/fuzz/fuzz_$target" -max_total_time="$seconds" \
    -max_len=600 -timeout=20 -rss_limit_mb=4096 -malloc_limit_mb=1000000000 \
    -artifact_prefix="$PWD/build/fuzz/found/$target-" -print_final_stats=1 "$PWD/build/fuzz/corpus/$target" \
    "$PWD/tests/fuzz/corpus/$target" || status=1
done
exit $status
