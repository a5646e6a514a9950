#!/bin/sh
# Usage: bundle.sh OUT [BUILD]
# Packs libfa, the command line tool, the kernel and operator tests and the benchmarks of a finished build
# (build/release, with -DFA_BUILD_TESTS=ON -DFA_BUILD_BENCHMARKS=ON) into the folder OUT. The programs in OUT run on any
# x86-64 Linux with glibc 2.35 and libstdc++ of g++ 12:
#
#   OUT/measure [--seconds N]    tests every level of the CPU, measures it, and prints a report
#
# The folder has at most 45 MiB and needs no network; bundle/measure.cc says what is measured.
set -eu
out=$1
source=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${2:-$source/build/release}" && pwd)
most_kib=$((45 * 1024))
newest_glibc=2.35
fail() { echo "bundle: $1" >&2; exit 1; }

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/bin" "$root/lib" "$root/tests" "$out"
for program in tools/fa/fa benchmarks/kernels_benchmark benchmarks/measure; do
  [ -x "$build/$program" ] || fail "$build/$program is not built"
  cp "$build/$program" "$root/bin"
done
cp "$build/benchmarks/libpeer_read_rate.so" "$source/benchmarks/bundle/torch_times.py" "$root/bin"
find "$build/tests/core/kernels" "$build/tests/ops/dense" "$build/tests/ops/inference" "$build/tests/ops/sparse" \
  "$build/tests/ops/indexer" -name '*_test' -type f -perm -u+x >"$root/tests.txt" ||
  fail "no tests in $build: configure it with -DFA_BUILD_TESTS=ON -DFA_BUILD_BENCHMARKS=ON"
for folder in core/kernels ops/dense ops/inference ops/sparse ops/indexer; do
  grep -q "/tests/$folder/" "$root/tests.txt" || fail "no test in $build/tests/$folder is built"
done
xargs cp -t "$root/tests" <"$root/tests.txt"
rm "$root/tests.txt"

# Copies the libraries that the programs link, except the C and C++ runtime libraries, which every system has.
ldd "$root"/bin/* "$root"/tests/* 2>/dev/null | grep -oE '=> /[^ ]+' | cut -c4- | sort -u |
  grep -vE '/(ld-linux|libc|libm|libdl|libpthread|librt|libstdc\+\+|libgcc_s)[-.]' | while read -r library; do
  cp -L "$library" "$root/lib"
done
find "$root" -type f ! -name '*.py' -exec strip --strip-unneeded {} +
newest=$(find "$root" -type f ! -name '*.py' -exec objdump -T {} + | grep -o 'GLIBC_[0-9.]*' | cut -d_ -f2 | sort -Vu | tail -1)
[ "$(printf '%s\n' "$newest" $newest_glibc | sort -V | tail -1)" = $newest_glibc ] ||
  fail "something needs glibc $newest, newer than $newest_glibc"

tar -C "$root" -czf "$out/payload.tar.gz" .
cat >"$out/measure" <<'MEASURE'
#!/bin/sh
# Tests fa on this machine, measures it, and prints a report. Also writes the report as JSON to fa-measure.json.
#
#   measure [--seconds N] [--out FILE]    about N seconds, by default 300
set -eu
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
trap 'exit 1' INT TERM
tar -C "$root" -xzf "$(dirname "$0")/payload.tar.gz"
LD_LIBRARY_PATH=$root/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$root/bin/measure" --root "$root" "$@"
MEASURE
chmod +x "$out/measure"
size=$(du -sk "$out" | cut -f1)
[ "$size" -le "$most_kib" ] || fail "$out has $size KiB, more than $most_kib"
echo "$out: $((size / 1024)) MiB, $(ls "$root/tests" | wc -l) tests, glibc $newest"
