# What libfa links. Used by the build, and by the installed package when libfa is a static archive.

find_package(TBB CONFIG REQUIRED COMPONENTS tbb tbbmalloc)
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwloc REQUIRED QUIET IMPORTED_TARGET hwloc)
find_package(OpenBLASPthread REQUIRED)
