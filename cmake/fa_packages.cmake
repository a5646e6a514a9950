# The packages that cpack makes: the Debian packages libfa0, libfa-mpi0, libfa-dev, fa-tools and fa-tools-mpi, and one
# tarball. scripts/packages.sh makes and checks them.

set(CPACK_PACKAGE_NAME fa)
# The maintainer's name comes from the variables of Debian's own tools (see dch(1)).
set(fa_maintainer "The fa authors <maintainer@example.org>")
if(DEFINED ENV{DEBEMAIL})
  set(fa_maintainer "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
endif()
set(FA_MAINTAINER "${fa_maintainer}"
    CACHE STRING "Maintainer of the packages, \"Name <address>\"; by default DEBFULLNAME and DEBEMAIL, or a placeholder")
set(CPACK_PACKAGE_CONTACT ${FA_MAINTAINER})
# The summary is empty, because cpack would put it before the descriptions of all packages.
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")
set(CPACK_PACKAGE_FILE_NAME fa-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_GENERATOR TGZ)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime development tools)
if(TARGET fa_mpi)
  list(APPEND CPACK_COMPONENTS_ALL mpi mpi_tools)
endif()
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
                                                WORLD_EXECUTE)

set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# dpkg-shlibdeps finds libfa and libfa_mpi here. Dependencies on libfa's own packages are named below.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/src ${PROJECT_BINARY_DIR}/src/mpi)
if(FA_DEBIAN_ARCHITECTURE)
  # Without these settings, cpack and dpkg-shlibdeps would take this machine's processor for the target's. Unpacked
  # libraries belong to no installed package, so the dependency on libopenmpi3 is named here.
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE ${FA_DEBIAN_ARCHITECTURE})
  list(APPEND CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${FA_UNPACKED}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE})
  set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_BINARY_DIR}/debian/cross.cmake)
  file(WRITE ${CPACK_PROJECT_CONFIG_FILE} "set(ENV{DEB_HOST_ARCH} ${FA_DEBIAN_ARCHITECTURE})\n")
  set(unpacked_mpi ", libopenmpi3")
endif()
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY "=")

set(soname_package libfa${PROJECT_VERSION_MAJOR})
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME ${soname_package})
# The package libopenblas0 alone may give the serial flavour, which is not thread-safe.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS libopenblas0-pthread)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION
    "Attention on CPUs: shared libraries\nFused attention, forward and backward, dense and sparse.")
set(CPACK_DEBIAN_MPI_PACKAGE_NAME libfa-mpi${PROJECT_VERSION_MAJOR})
set(CPACK_COMPONENT_MPI_DESCRIPTION "Attention on CPUs: transport of MPI\nOne attention call over many processes.")
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "${soname_package} (= ${PROJECT_VERSION})${unpacked_mpi}")
set(CPACK_DEBIAN_MPI_TOOLS_PACKAGE_NAME fa-tools-mpi)
set(CPACK_DEBIAN_MPI_TOOLS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_MPI_TOOLS_PACKAGE_DEPENDS
    "${CPACK_DEBIAN_MPI_PACKAGE_DEPENDS}, libfa-mpi${PROJECT_VERSION_MAJOR} (= ${PROJECT_VERSION}), mpi-default-bin")
set(CPACK_COMPONENT_MPI_TOOLS_DESCRIPTION
    "Attention on CPUs: command line tool over processes\nThe commands of fa over the processes of mpirun.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libfa-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
# Before 1.0 a minor version may change the binary interface, so the headers need exactly their version of libfa.
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
    "${soname_package} (= ${PROJECT_VERSION}), libtbb-dev, libhwloc-dev, libopenblas-pthread-dev")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS libfa-mpi${PROJECT_VERSION_MAJOR})
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
    "Attention on CPUs: headers\nHeaders, the CMake package and the pkg-config file of libfa.")
set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME fa-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "${soname_package} (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_TOOLS_DESCRIPTION
    "Attention on CPUs: command line tool\nRuns attention operators on .npy files, shows plans and measures speed.")

# Debian's policy wants a copyright file and a changelog per package.
configure_file(${PROJECT_SOURCE_DIR}/cmake/debian_copyright.in ${PROJECT_BINARY_DIR}/debian/copyright @ONLY)
find_program(FA_GZIP gzip)
if(FA_GZIP)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/debian_changelog.in ${PROJECT_BINARY_DIR}/debian/changelog @ONLY)
  execute_process(COMMAND ${FA_GZIP} -9nkf ${PROJECT_BINARY_DIR}/debian/changelog COMMAND_ERROR_IS_FATAL ANY)
  foreach(pair runtime:${soname_package} mpi:libfa-mpi${PROJECT_VERSION_MAJOR} mpi_tools:fa-tools-mpi development:libfa-dev
               tools:fa-tools)
    string(REPLACE ":" ";" pair ${pair})
    list(GET pair 0 component)
    list(GET pair 1 package)
    install(FILES ${PROJECT_BINARY_DIR}/debian/copyright ${PROJECT_BINARY_DIR}/debian/changelog.gz
            DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component} EXCLUDE_FROM_ALL)
  endforeach()
endif()
# The override explains why libfa has a search path.
configure_file(${PROJECT_SOURCE_DIR}/cmake/debian_overrides.in ${PROJECT_BINARY_DIR}/debian/${soname_package} @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/debian/${soname_package} DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides
        COMPONENT runtime EXCLUDE_FROM_ALL)

include(CPack)
