# The libraries that libfa links. The build uses this file, and so does the installed package if libfa is a static
# archive.

find_package(TBB CONFIG QUIET COMPONENTS tbb tbbmalloc)
find_package(PkgConfig QUIET)
if(PKG_CONFIG_FOUND)
  pkg_check_modules(hwloc QUIET IMPORTED_TARGET hwloc)
endif()
find_package(OpenBLASPthread QUIET)
set(fa_missing "")
foreach(library TBB:oneTBB:libtbb-dev PKG_CONFIG:pkg-config:pkg-config hwloc:hwloc:libhwloc-dev
                OpenBLASPthread:OpenBLAS:libopenblas-pthread-dev)
  string(REPLACE ":" ";" library ${library})
  list(GET library 0 name)
  list(GET library 1 called)
  list(GET library 2 package)
  if(NOT ${name}_FOUND)
    list(APPEND fa_missing "${called} missing: scripts/setup.sh (Debian: apt install ${package})")
  endif()
endforeach()
if(fa_missing)
  list(JOIN fa_missing "\n" fa_missing)
  message(FATAL_ERROR "${fa_missing}")
endif()
