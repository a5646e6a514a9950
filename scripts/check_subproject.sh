#!/bin/sh
# Usage: check_subproject.sh [--link]
# Configures two projects, which take this checkout by add_subdirectory and by FetchContent. Compiles their program
# against fa::fa. The projects get only libfa, and no install rules, unless they ask for more. With --link, also builds
# libfa and runs the program, which takes minutes.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

for way in add_subdirectory FetchContent; do
  echo "By $way:"
  mkdir "$scratch/$way"
  {
    echo "cmake_minimum_required(VERSION 3.25)"
    echo "project(consumer LANGUAGES CXX)"
    if [ $way = add_subdirectory ]; then
      echo "add_subdirectory(\"$source\" fa EXCLUDE_FROM_ALL)"
    else
      echo "include(FetchContent)"
      echo "FetchContent_Declare(fa SOURCE_DIR \"$source\")"
      echo "FetchContent_MakeAvailable(fa)"
    fi
    echo "foreach(target fa_aclnn fa_mpi fa_npy fa_check fa_peak fa_cli fa_demo ops_test gtest fa_kernels_amx_emulated)"
    echo "  if(TARGET \${target})"
    echo "    message(FATAL_ERROR \"\${target} is built for a consumer\")"
    echo "  endif()"
    echo "endforeach()"
    echo "if(DEFINED CPACK_PACKAGE_NAME)"
    echo "  message(FATAL_ERROR \"the packages of a consumer are its own\")"
    echo "endif()"
    echo "add_executable(consumer \"$source/examples/consumer/consumer.cc\")"
    echo "target_link_libraries(consumer PRIVATE fa::fa)"
    # The program compiles without a build of libfa.
    echo "add_library(objects OBJECT \"$source/examples/consumer/consumer.cc\")"
    echo "target_include_directories(objects PRIVATE \$<TARGET_PROPERTY:fa::fa,INTERFACE_INCLUDE_DIRECTORIES>)"
    echo "target_compile_features(objects PRIVATE cxx_std_20)"
  } >"$scratch/$way/CMakeLists.txt"
  cmake -S "$scratch/$way" -B "$scratch/$way/build" -G Ninja -DCMAKE_BUILD_TYPE=Release >"$scratch/$way/log"
  if rules=$(grep -rl libfa --include=cmake_install.cmake "$scratch/$way/build"); then
    echo "check_subproject: a consumer installs libfa: $rules" >&2
    exit 1
  fi
  cmake --build "$scratch/$way/build" --target objects
  if [ "${1:-}" = --link ]; then
    cmake --build "$scratch/$way/build" --target consumer
    "$scratch/$way/build/consumer"
  fi
done

echo "With FA_ACLNN, FA_INSTALL and one level:"
cmake -S "$scratch/FetchContent" -B "$scratch/more" -G Ninja -DFA_ACLNN=ON -DFA_INSTALL=ON -DFA_LEVELS=portable \
  >"$scratch/log" 2>&1 && { echo "check_subproject: fa_aclnn is not built" >&2; exit 1; }
grep -q "fa_aclnn is built" "$scratch/log"
grep -q "Levels that are not built: *[a-z]" "$scratch/log"
if cmake -S "$source" -B "$scratch/tests" -G Ninja -DFA_LEVELS=portable >"$scratch/log" 2>&1; then
  echo "check_subproject: tests are configured without every level" >&2
  exit 1
fi
grep -q "FA_LEVELS=all" "$scratch/log"
