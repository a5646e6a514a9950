# Flags of everything built here (fa_flags), and further flags of the library's own code (fa_library_flags).

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(FA_CCACHE ccache)
if(FA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without these settings ccache does not cache objects that use precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${FA_CCACHE})
endif()

add_library(fa_flags INTERFACE)
target_compile_features(fa_flags INTERFACE cxx_std_20)
target_compile_options(fa_flags INTERFACE -Wall -Wextra $<$<BOOL:${FA_WERROR}>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 warns wrongly of std::sort on arrays of fewer than 16 elements, and of std::string's operator+ (GCC bug
  # 105651).
  target_compile_options(fa_flags INTERFACE -Wno-array-bounds -Wno-restrict)
endif()
if(FA_SANITIZE)
  list(JOIN FA_SANITIZE "," fa_sanitizers)
  # The property FA_NOT_SANITIZED of a target lists the sanitizers that must not check it.
  set(not_sanitized $<TARGET_PROPERTY:FA_NOT_SANITIZED>)
  target_compile_options(
    fa_flags INTERFACE -fsanitize=${fa_sanitizers} $<$<BOOL:${not_sanitized}>:-fno-sanitize=${not_sanitized}>
                       -fno-omit-frame-pointer)
  target_link_options(fa_flags INTERFACE -fsanitize=${fa_sanitizers})
  if("undefined" IN_LIST FA_SANITIZE)
    target_compile_options(fa_flags INTERFACE -fno-sanitize-recover=undefined)
  endif()
endif()

# FA_QUICK compiles the kernels in less time, without optimisations that gain little in hand-written kernels. -O1 would
# make calls slower.
set(fa_quick_flags "")
if(FA_QUICK)
  set(fa_quick_flags -O2)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND fa_quick_flags -fno-code-hoisting -fno-dse -fno-gcse -fno-ivopts -fno-rerun-cse-after-loop
         -fno-schedule-insns2 -fno-thread-jumps -fno-tree-dominator-opts -fno-tree-dse -fno-tree-pre -fno-tree-pta
         -fno-tree-sink -fno-tree-slp-vectorize -fno-tree-vectorize -fno-tree-vrp -Wno-maybe-uninitialized)
  endif()
endif()

# The compiler must not contract a product and a sum on its own, because results would then depend on its choice. No
# target may be compiled for the build machine (-march=native) or with -ffast-math.
add_library(fa_library_flags INTERFACE)
target_link_libraries(fa_library_flags INTERFACE fa_flags)
target_compile_options(fa_library_flags INTERFACE -ffp-contract=off ${fa_quick_flags})
target_include_directories(
  fa_library_flags INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src ${PROJECT_BINARY_DIR}/include)
