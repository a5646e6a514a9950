#!/bin/sh
# Installs the packages that the build needs and builds libfa for this CPU (the preset demo). Then runs forward and backward
# on the activations in examples/data.
set -eu
cd "$(dirname "$0")/.."
mkdir -p build/demo
log=build/demo/log.txt
built=build/demo/built

echo "demo: packages of the system"
scripts/setup.sh

# Shows Ninja's lines "[12/40] Building ...". On a terminal one line counts up; elsewhere each quarter of the build gets
# a line.
progress() {
  quarter=0
  while read -r line; do
    steps=$(expr "$line" : '\[\([0-9]*/[0-9]*\)\]') || continue
    if [ -t 1 ]; then
      printf '\r  %s of %s' "${steps%/*}" "${steps#*/}"
    elif [ $((4 * ${steps%/*} / ${steps#*/})) -gt $quarter ]; then
      quarter=$((4 * ${steps%/*} / ${steps#*/}))
      echo "  ${steps%/*} of ${steps#*/}"
    fi
  done
  [ ! -t 1 ] || echo
}
echo "demo: compiling libfa for this CPU, about a minute on two cores; the first steps are the longest"
rm -f "$built"
{ cmake --preset demo && cmake --build --preset demo && touch "$built"; } 2>&1 | tee "$log" | progress
[ -e "$built" ] || { tail -40 "$log" >&2; echo "demo: the build failed, see $log" >&2; exit 1; }

build/demo/examples/fa_demo examples/data/minilm "$@"
echo "next: docs/quickstart.md, the first call from C++, Python and the command line"
