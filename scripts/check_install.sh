#!/bin/sh
# Usage: check_install.sh BUILD_DIR
# Installs a finished build into an empty prefix and moves the prefix. Then builds and runs against it:
# examples/consumer (by find_package and by pkg-config), the programs in README.md and docs/quickstart.md, examples/mpi
# and fa-mpi where MPI was found, and the programs of examples/cpp and examples/aclnn, which check their results.
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
for page in README docs/quickstart; do
  sed -n '/^```cpp$/,/^```$/ { /^```/d; p }' "$source/$page.md" >"$scratch/$(basename "$page").cc"
done
for program in "$source/examples/consumer/consumer.cc" "$scratch/README.cc" "$scratch/quickstart.cc"; do
  # shellcheck disable=SC2046  # a list of flags
  "${CXX:-c++}" -std=c++20 -O2 "$program" -o "$scratch/program" $(pkg-config --cflags --libs fa)
  LD_LIBRARY_PATH=$libdir "$scratch/program"
done

if [ -e "$libdir/cmake/fa/fa_mpi_targets.cmake" ]; then
  echo "Over processes:"
  cmake -S "$source/examples/mpi" -B "$scratch/mpi" -G Ninja -DCMAKE_PREFIX_PATH="$scratch/prefix" \
    -DCMAKE_BUILD_TYPE=Release
  cmake --build "$scratch/mpi"
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    mpiexec -n 2 "$scratch/mpi/ranks"
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    mpiexec -n 2 "$scratch/prefix/bin/fa-mpi" bench forward --shape 1,2,2,256,256,32 --seconds 0.01
fi

for programs in cpp aclnn; do
  echo "examples/$programs:"
  cmake -S "$source/examples/$programs" -B "$scratch/$programs" -G Ninja -DCMAKE_PREFIX_PATH="$scratch/prefix" \
    -DCMAKE_BUILD_TYPE=Release
  cmake --build "$scratch/$programs"
  ctest --test-dir "$scratch/$programs" --output-on-failure --no-tests=error
done
if [ -e "$libdir/libfa_aclnn.so" ]; then
  # One library links a program, and C compiles the headers.
  program=$source/examples/aclnn/flash_attention_score
  "${CXX:-c++}" -I"$libdir/../include" "$program.cc" -o "$scratch/program" -L"$libdir" -lfa_aclnn
  LD_LIBRARY_PATH=$libdir "$scratch/program" | cmp - "$source/examples/aclnn/expected/flash_attention_score.txt"
fi
for header in "$libdir"/../include/acl/*.h "$libdir"/../include/aclnn/*.h "$libdir"/../include/aclnnop/*.h; do
  printf '#include "%s"\n' "$header"
done | "${CC:-cc}" -std=c11 -Wall -Wextra -Werror -fsyntax-only -I"$libdir/../include" -x c -
