#!/bin/sh
# Usage: packages.sh BUILD_DIR OUT_DIR [TOOLCHAIN_FILE EMULATOR_WORD ...]
# Makes the Debian packages libfa0, libfa-dev and fa-tools (with MPI also libfa-mpi0 and fa-tools-mpi) and a tarball of
# a finished build. Then checks the packages. lintian must find no errors. Unpacked into an empty root, the packages
# must have what examples/consumer needs by find_package and by pkg-config. The tools must run there, with man pages and
# completion. Each component must have its files, and no file may be in two.
# A cross-compiled build names its toolchain file and the emulator for programs. In this script "$@" is the emulator, or
# nothing. Needs dpkg-dev and lintian (scripts/setup.sh packages); without them it returns 77.
set -eu
for program in lintian dpkg-shlibdeps; do
  command -v $program >/dev/null || { echo "packages: no $program; scripts/setup.sh packages installs it"; exit 77; }
done
build=$(cd "$1" && pwd)
grep -q '^FA_LEVELS:STRING=all$' "$build/CMakeCache.txt" || { echo "packages: $1 lacks levels (FA_LEVELS)" >&2; exit 1; }
mkdir -p "$2"
out=$(cd "$2" && pwd)
toolchain=${3:-}
shift $(($# < 3 ? $# : 3))
source=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

rm -f "$out"/*.deb "$out"/fa-*.tar.gz
cd "$out"
cpack --config "$build/CPackConfig.cmake" -G "DEB;TGZ" -B "$scratch/cpack" >"$scratch/cpack.log" 2>&1 || {
  cat "$scratch/cpack.log" >&2
  exit 1
}
find "$scratch/cpack" -maxdepth 1 \( -name '*.deb' -o -name '*.tar.gz' \) -exec mv {} "$out" \;
ls -l "$out"

for package in 'libfa[0-9]' libfa-dev fa-tools; do
  [ -n "$(find "$out" -name "${package}_*.deb")" ] || { echo "packages: no $package" >&2; exit 1; }
done

echo "lintian:"
lintian --allow-root --fail-on error --tag-display-limit 0 "$out"/*.deb

summaries=$(for package in "$out"/*.deb; do dpkg-deb -f "$package" Description | head -1; done)
twice=$(echo "$summaries" | sort | uniq -d)
[ -z "$twice" ] || { echo "packages: two packages have the summary '$twice'" >&2; exit 1; }

mkdir "$scratch/root"
for package in "$out"/*.deb; do
  dpkg-deb -c "$package" | awk '!/\/$/ {print $6}' >>"$scratch/files"
  dpkg-deb -x "$package" "$scratch/root"
done
twice=$(sort "$scratch/files" | uniq -d)
[ -z "$twice" ] || { echo "packages: in two packages: $twice" >&2; exit 1; }

libdir=$(dirname "$(find "$scratch/root" -name 'libfa.so')")
echo "The tool:"
LD_LIBRARY_PATH=$libdir "$@" "$scratch/root/usr/bin/fa" info | head -2
if [ -e "$scratch/root/usr/bin/fa-mpi" ]; then
  LD_LIBRARY_PATH=$libdir "$@" "$scratch/root/usr/bin/fa-mpi" man | head -1
fi
for program in "$scratch"/root/usr/bin/*; do
  name=$(basename "$program")
  for page in "man/man1/$name.1.gz" "bash-completion/completions/$name" "zsh/site-functions/_$name" \
    "fish/vendor_completions.d/$name.fish"; do
    [ -e "$scratch/root/usr/share/$page" ] || { echo "packages: no $page" >&2; exit 1; }
  done
done
echo "By find_package:"
cmake -S "$source/examples/consumer" -B "$scratch/consumer" -G Ninja -DCMAKE_PREFIX_PATH="$scratch/root/usr" \
  -DCMAKE_BUILD_TYPE=Release ${toolchain:+-DCMAKE_TOOLCHAIN_FILE="$toolchain"} >"$scratch/consumer.log"
cmake --build "$scratch/consumer" >>"$scratch/consumer.log"
"$@" "$scratch/consumer/consumer"
# This is the compiler that CMake chose.
cxx=$(sed -n 's/^set(CMAKE_CXX_COMPILER "\(.*\)")$/\1/p' "$scratch"/consumer/CMakeFiles/*/CMakeCXXCompiler.cmake)
echo "By pkg-config:"
# shellcheck disable=SC2046  # a list of flags
"$cxx" -std=c++20 -O2 "$source/examples/consumer/consumer.cc" -o "$scratch/program" \
  $(PKG_CONFIG_PATH=$libdir/pkgconfig pkg-config --cflags --libs fa)
LD_LIBRARY_PATH=$libdir "$@" "$scratch/program"

for package in "$out"/*.deb; do
  if dpkg-deb -f "$package" Maintainer | grep -q example.org; then
    echo "packages: the maintainer is a placeholder: configure with DEBFULLNAME and DEBEMAIL, or FA_MAINTAINER"
    break
  fi
done
echo "To install them: sudo apt install $out/libfa[0-9]*.deb $out/libfa-dev_*.deb $out/fa-tools_*.deb"
