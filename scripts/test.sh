#!/bin/sh
# Sets up, builds with warnings as errors and runs every test: the whole suite (format, includes, leaked instruction
# sets and the installed package among it), then the subsets for AddressSanitizer + UndefinedBehaviorSanitizer and for
# ThreadSanitizer. The last line counts the tests of all three, under AddressSanitizer one a binary; the exit status is 0
# only if none failed.
set -eu
cd "$(dirname "$0")/.."

scripts/setup.sh

passed=0
failed=0
skipped=0

# attribute NAME FILE: its number in the first element of a JUnit report.
attribute() { sed -n "s/^.*[[:space:]]$1=\"\([0-9]*\)\".*$/\1/p" "$2" | head -n 1; }

# A preset that does not build counts as one failed test.
for preset in dev asan-ubsan tsan; do
  echo "== $preset"
  report=$PWD/build/$preset/junit.xml
  rm -f "$report"
  if cmake --preset "$preset" -DFA_WERROR=ON && cmake --build --preset "$preset"; then
    ctest --preset "$preset" --output-junit "$report" --no-tests=error -j "$(nproc)" || true
  fi
  if [ -s "$report" ]; then
    tests=$(attribute tests "$report")
    bad=$(attribute failures "$report")
    out=$(($(attribute skipped "$report") + $(attribute disabled "$report")))
    passed=$((passed + tests - bad - out))
    failed=$((failed + bad))
    skipped=$((skipped + out))
  else
    failed=$((failed + 1))
  fi
done

if [ "$skipped" -gt 0 ]; then
  echo "$passed passed, $failed failed, $skipped skipped"
else
  echo "$passed passed, $failed failed"
fi
[ "$failed" -eq 0 ]
