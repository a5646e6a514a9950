#ifndef FA_VERSION_H_
#define FA_VERSION_H_

/// @file
/// The version of these headers; the build takes its own version from here.
/// @code{.cpp}
/// static_assert(FA_VERSION_MAJOR == 0 && FA_VERSION_MINOR >= 2, "this program needs fa 0.2");
/// @endcode

#define FA_VERSION_MAJOR 0
#define FA_VERSION_MINOR 2
#define FA_VERSION_PATCH 0
#define FA_VERSION_STRING "0.2.0"

// Before C++20 the headers would cause many errors. Including a file that does not exist ends the compilation at once.
#if defined(__cplusplus) && __cplusplus < 201709L
#error "fa needs C++20: compile with -std=c++20, in CMake target_compile_features(<target> PRIVATE cxx_std_20)"
#include "fa needs C++20"
#endif

#endif  // FA_VERSION_H_
