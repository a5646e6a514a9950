# OpenBLAS in its pthread flavour, as OpenBLAS::pthread. The serial flavour is not thread-safe, and gives concurrent
# callers wrong products. Debian installs several flavours, so the pthread directory is searched first.

find_library(OpenBLASPthread_LIBRARY NAMES openblas PATH_SUFFIXES openblas-pthread)
find_path(OpenBLASPthread_INCLUDE_DIR NAMES cblas.h PATH_SUFFIXES openblas-pthread openblas)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OpenBLASPthread REQUIRED_VARS OpenBLASPthread_LIBRARY OpenBLASPthread_INCLUDE_DIR)

if(OpenBLASPthread_FOUND AND NOT TARGET OpenBLAS::pthread)
  add_library(OpenBLAS::pthread UNKNOWN IMPORTED)
  set_target_properties(
    OpenBLAS::pthread PROPERTIES IMPORTED_LOCATION "${OpenBLASPthread_LIBRARY}"
                                 INTERFACE_INCLUDE_DIRECTORIES "${OpenBLASPthread_INCLUDE_DIR}")
endif()
mark_as_advanced(OpenBLASPthread_LIBRARY OpenBLASPthread_INCLUDE_DIR)
