#!/bin/sh
# Sets up, builds with warnings as errors and runs every test: the whole suite (format, includes, leaked instruction
# sets, the installed package and the Python package among it), then the subsets for AddressSanitizer +
# UndefinedBehaviorSanitizer and for ThreadSanitizer, and on x86-64 that for aarch64, cross-compiled and under qemu. The
# last line counts the cases of all of them; scripts/count_tests.py says what counts as a failure. The exit status is 0
# only if none failed.
#
# FA_WITHOUT_AARCH64=1: nothing is installed, built or run for aarch64, and that is counted as skipped.
# FA_WITHOUT_PYTHON=1: the Python suite is skipped, and counted as skipped. Without that it fails where pip does not find
# what it needs.
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
  rm -rf "$build/junit.xml" "$build/registered_tests.txt" "$build/test_reports"
  if [ "$preset" = aarch64-subset ]; then
    if [ "${FA_WITHOUT_AARCH64:-}" = 1 ]; then
      statuses="$statuses $preset=left-out"
      continue
    fi
    scripts/setup.sh aarch64 || echo "test: no packages for aarch64"
  fi
  # Tests with tensors on the heap need no sanitizers themselves: their objects are dev's, if it was built.
  objects=""
  case $preset$statuses in
    "asan-ubsan dev=unbuilt") ;;
    asan-ubsan*) objects=$PWD/build/dev ;;
  esac
  status=unbuilt
  if cmake --preset "$preset" -DFA_WERROR=ON -DFA_UNITY_TESTS=ON "-DFA_TEST_OBJECTS=$objects" &&
    cmake --build --preset "$preset"; then
    status=0
    # One more than there are cores: some tests wait, and one only takes the time that others leave.
    ctest --preset "$preset" --output-junit "$build/junit.xml" --no-tests=error -j "$(($(nproc) + 1))" || status=$?
  fi
  statuses="$statuses $preset=$status"
done

# shellcheck disable=SC2086  # a list of words
exec python3 scripts/count_tests.py $statuses
