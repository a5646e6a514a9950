#!/bin/sh
# Usage: check_install.sh BUILD_DIR
# Installs a finished build into an empty prefix, moves the prefix, and builds and runs examples/consumer against it
# twice: by find_package and by pkg-config.
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
# shellcheck disable=SC2046  # a list of flags
"${CXX:-c++}" -std=c++20 -O2 "$source/examples/consumer/consumer.cc" -o "$scratch/by_pkg_config" \
  $(pkg-config --cflags --libs fa)
LD_LIBRARY_PATH=$libdir "$scratch/by_pkg_config"
