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
if [ "$(uname -m)" = x86_64 ]; then
  presets="$presets aarch64-subset"
fi

statuses=""
for preset in $presets; do
  echo "== $preset"
  build=$PWD/build/$preset
  rm -rf "$build/junit.xml" "$build/test_reports"
  if [ "$preset" = aarch64-subset ]; then
    if [ "${FA_WITHOUT_AARCH64:-}" = 1 ]; then
      statuses="$statuses $preset=left-out"
      continue
    fi
    scripts/setup.sh aarch64 || echo "test: no packages for aarch64"
  fi
  status=unbuilt
  if cmake --preset "$preset" -DFA_WERROR=ON && cmake --build --preset "$preset"; then
    status=0
    # One job more than there are cores, because some tests mostly wait.
    ctest --preset "$preset" --output-junit "$build/junit.xml" -j "$(($(nproc) + 1))" || status=$?
  fi
  statuses="$statuses $preset=$status"
done

# shellcheck disable=SC2086  # a list of words
exec python3 scripts/count_tests.py $statuses
