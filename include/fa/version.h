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

#endif  // FA_VERSION_H_
