# The libraries that libfa links. The build uses this file, and so does the installed package if libfa is a static
# archive.

find_package(TBB CONFIG REQUIRED COMPONENTS tbb tbbmalloc)
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwloc REQUIRED QUIET IMPORTED_TARGET hwloc)
find_package(OpenBLASPthread REQUIRED)
