#!/bin/sh
# Usage: check_install.sh BUILD_DIR [TOOLCHAIN_FILE EMULATOR_WORD ...]
# Installs a finished build into an empty prefix and moves the prefix. Then builds and runs against it:
# - examples/consumer, by find_package and by pkg-config;
# - the programs in README.md and docs/quickstart.md;
# - examples/mpi and fa-mpi, if MPI was found;
# - the programs of examples/cpp and examples/aclnn, which check their results.
# A cross-compiled build names its toolchain file and the emulator for programs. In this script "$@" is the emulator, or
# nothing.
set -eu
build=$1
toolchain=${2:-}
shift $(($# < 2 ? $# : 2))
source=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cmake --install "$build" --prefix "$scratch/first" >"$scratch/install.log"
mv "$scratch/first" "$scratch/prefix"

if [ -x "$scratch/prefix/bin/fa" ]; then
  "$@" "$scratch/prefix/bin/fa" info
fi

# build_examples FOLDER: builds the project examples/FOLDER with the installed libfa.
build_examples() {
  cmake -S "$source/examples/$1" -B "$scratch/$1" -G Ninja -DCMAKE_PREFIX_PATH="$scratch/prefix" \
    -DCMAKE_BUILD_TYPE=Release ${toolchain:+-DCMAKE_TOOLCHAIN_FILE="$toolchain"}
  cmake --build "$scratch/$1"
}
echo "By find_package:"
build_examples consumer
"$@" "$scratch/consumer/consumer"
# This is the compiler that CMake chose.
cxx=$(sed -n 's/^set(CMAKE_CXX_COMPILER "\(.*\)")$/\1/p' "$scratch"/consumer/CMakeFiles/*/CMakeCXXCompiler.cmake)

echo "By pkg-config:"
libdir=$(dirname "$(find "$scratch/prefix" -name fa.pc)")/..
PKG_CONFIG_PATH=$libdir/pkgconfig
export PKG_CONFIG_PATH
if [ -e "$libdir/libfa.so" ]; then
  # A shared libfa must need no package of another library. So pkg-config searches only libfa's folder.
  PKG_CONFIG_LIBDIR=$PKG_CONFIG_PATH
  export PKG_CONFIG_LIBDIR
fi
for page in README docs/quickstart; do
  sed -n '/^```cpp$/,/^```$/ { /^```/d; p }' "$source/$page.md" >"$scratch/$(basename "$page").cc"
done
for program in "$source/examples/consumer/consumer.cc" "$scratch/README.cc" "$scratch/quickstart.cc"; do
  # shellcheck disable=SC2046  # a list of flags
  "$cxx" -std=c++20 -O2 "$program" -o "$scratch/program" $(pkg-config --cflags --libs fa)
  LD_LIBRARY_PATH=$libdir "$@" "$scratch/program"
done

if [ -e "$libdir/cmake/fa/fa_mpi_targets.cmake" ]; then
  echo "Over processes:"
  build_examples mpi
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    mpiexec -n 2 "$@" "$scratch/mpi/ranks"
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    mpiexec -n 2 "$@" "$scratch/prefix/bin/fa-mpi" bench forward --shape 1,2,2,256,256,32 --seconds 0.01
fi

for programs in cpp aclnn; do
  echo "examples/$programs:"
  build_examples $programs
  ctest --test-dir "$scratch/$programs" --output-on-failure --no-tests=error
done
if [ -e "$libdir/libfa_aclnn.so" ]; then
  # Links a program with libfa_aclnn alone. The program finds the library by its rpath. The library's headers also
  # compile as C.
  program=$source/examples/aclnn/flash_attention_score
  # shellcheck disable=SC2046  # a list of flags
  "$cxx" "$program.cc" -o "$scratch/program" $(pkg-config --cflags --libs fa_aclnn) -Wl,-rpath,"$libdir"
  "$@" "$scratch/program" | cmp - "$source/examples/aclnn/expected/flash_attention_score.txt"
fi
include=$libdir/../include
for header in "$include"/acl/*.h "$include"/aclnn/*.h "$include"/aclnnop/*.h "$include/securec.h"; do
  printf '#include "%s"\n' "$header"
done | "${CC:-cc}" -std=c11 -Wall -Wextra -Werror -fsyntax-only -I"$include" -x c -
