#ifndef FA_VERSION_H_
#define FA_VERSION_H_

/// The version of these headers; the build takes its own from here.
#define FA_VERSION_MAJOR 0
#define FA_VERSION_MINOR 2
#define FA_VERSION_PATCH 0
#define FA_VERSION_STRING "0.2.0"

#endif  // FA_VERSION_H_
