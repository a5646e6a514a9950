#!/bin/sh
# Sets up, builds with warnings as errors and runs every test, in about an hour on two cores. First comes the whole
# suite, which includes format, includes, leaked instruction sets, the installed package and the Python package. Then
# come the subsets for AddressSanitizer + UndefinedBehaviorSanitizer and for ThreadSanitizer. On x86-64 the subset for
# aarch64 follows, cross-compiled and under qemu. The last line counts the cases of all of them. scripts/count_tests.py
# says what counts as a failure. The exit status is 0 only if no test failed.
#
# FA_WITHOUT_AARCH64=1: nothing is installed, built or run for aarch64, which counts as skipped.
# FA_WITHOUT_PYTHON=1: the Python suite does not run, which counts as skipped. Without this variable the suite fails if pip
# does not find the packages that it needs.
set -eu
cd "$(dirname "$0")/.."

scripts/setup.sh
scripts/setup.sh packages || echo "test: nothing checks the Debian packages"

presets="dev asan-ubsan tsan"
statuses=""
if [ "$(uname -m)" = x86_64 ]; then
  if [ "${FA_WITHOUT_AARCH64:-}" = 1 ]; then
    statuses="aarch64-subset=left-out"
  else
    presets="$presets aarch64-subset"
    scripts/setup.sh aarch64 || echo "test: no packages for aarch64"
  fi
fi
for preset in $presets; do
  rm -rf "build/$preset/junit.xml" "build/$preset/test_reports"
done

# Tests wait for processes, downloads and the longest test. So while the tests of one preset run, the next one is built
# with the CPU time that they leave. `timeout 0` sets no limit, but gives the build a process group of its own and passes
# signals on to it, so the build ends with this script. A session of its own (setsid) would not do: Linux shares CPU time
# among sessions first (sched_autogroup), so `nice` would not count.
build='cmake --preset "$0" -DFA_WERROR=ON && cmake --build --preset "$0"'
job=""
trap '[ -z "$job" ] || kill "$job"' EXIT
trap 'exit 130' HUP INT TERM
mkdir -p build
# shellcheck disable=SC2086  # a list of words
set -- $presets
echo "== $1: build"
sh -c "$build" "$1" && built=yes || built=no
while [ $# -gt 0 ]; do
  preset=$1
  shift
  if [ $# -gt 0 ]; then
    timeout 0 nice -n 19 sh -c "$build" "$1" >"build/$1.log" 2>&1 &
    job=$!
  fi
  status=unbuilt
  if [ $built = yes ]; then
    echo "== $preset: tests"
    status=0
    # One job more than there are cores, because some tests mostly wait.
    ctest --preset "$preset" --output-junit "$PWD/build/$preset/junit.xml" -j "$(($(nproc) + 1))" || status=$?
  fi
  statuses="$statuses $preset=$status"
  if [ $# -gt 0 ]; then
    echo "== $1: build, which writes build/$1.log"
    wait "$job" && built=yes || built=no
    job=""
    cat "build/$1.log"
  fi
done

# shellcheck disable=SC2086  # a list of words
exec python3 scripts/count_tests.py $statuses
