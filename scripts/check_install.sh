#!/bin/sh
# Usage: check_install.sh BUILD_DIR
# Installs a finished build into an empty prefix, moves the prefix, and builds and runs against it examples/consumer by
# find_package and by pkg-config, and the program in README.md.
set -eu
build=$1
source=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cmake --install "$build" --prefix "$scratch/first" >"$scratch/install.log"
mv "$scratch/first" "$scratch/prefix"

if [ -x "$scratch/prefix/bin/fa" ]; then
  "$scratch/prefix/bin/fa" info
fi

echo "By find_package:"
cmake -S "$source/examples/consumer" -B "$scratch/consumer" -G Ninja -DCMAKE_PREFIX_PATH="$scratch/prefix" \
  -DCMAKE_BUILD_TYPE=Release
cmake --build "$scratch/consumer"
"$scratch/consumer/consumer"

echo "By pkg-config:"
libdir=$(dirname "$(find "$scratch/prefix" -name fa.pc)")/..
PKG_CONFIG_PATH=$libdir/pkgconfig
export PKG_CONFIG_PATH
sed -n '/^```cpp$/,/^```$/ { /^```/d; p }' "$source/README.md" >"$scratch/readme.cc"
for program in "$source/examples/consumer/consumer.cc" "$scratch/readme.cc"; do
  # shellcheck disable=SC2046  # a list of flags
  "${CXX:-c++}" -std=c++20 -O2 "$program" -o "$scratch/program" $(pkg-config --cflags --libs fa)
  LD_LIBRARY_PATH=$libdir "$scratch/program"
done
