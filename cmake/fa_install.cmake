# Installs libfa, libfa_aclnn, their headers, the CMake package, fa.pc and fa_aclnn.pc. The prefix may be moved
# afterwards. Components: runtime (shared libraries), mpi (libfa_mpi), torch (libfa_torch), development (headers,
# archives, links, packages), tools (the command line tool), mpi_tools (the command line tool fa-mpi).

include(CMakePackageConfigHelpers)
include(fa_install_libraries)

set(fa_absent_headers "")
if(TARGET fa_aclnn)
  fa_install_libraries(fa_targets runtime fa fa_aclnn)
else()
  fa_install_libraries(fa_targets runtime fa)
  list(APPEND fa_absent_headers REGEX "/(acl|aclnn|aclnnop|securec.h)\$" EXCLUDE)
endif()
if(TARGET fa_mpi)
  # This is the package's component mpi. Only a consumer that asks for this component needs MPI.
  fa_install_libraries(fa_mpi_targets mpi fa_mpi)
else()
  list(APPEND fa_absent_headers PATTERN "mpi.h" EXCLUDE)
endif()
if(TARGET fa_torch)
  # This is the package's component torch.
  fa_install_libraries(fa_torch_targets torch fa_torch)
else()
  list(APPEND fa_absent_headers PATTERN "fa/torch.h" EXCLUDE)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ ${PROJECT_BINARY_DIR}/include/
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development FILES_MATCHING PATTERN "*.h" ${fa_absent_headers})

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/fa-config.cmake.in ${PROJECT_BINARY_DIR}/fa-config.cmake
                              INSTALL_DESTINATION ${fa_package_dir})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/fa-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/fa-config.cmake ${PROJECT_BINARY_DIR}/fa-config-version.cmake
        DESTINATION ${fa_package_dir} COMPONENT development)
if(NOT BUILD_SHARED_LIBS)
  # A consumer of a static libfa also links the libraries that libfa uses.
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/fa_dependencies.cmake ${PROJECT_SOURCE_DIR}/cmake/FindOpenBLASPthread.cmake
          DESTINATION ${fa_package_dir} COMPONENT development)
endif()

file(RELATIVE_PATH fa_pc_to_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
# With a static libfa, programs must also link the libraries that libfa uses. No header of fa includes headers of these
# libraries.
if(BUILD_SHARED_LIBS)
  set(fa_pc_requires "Requires.private")
  set(fa_pc_libraries "")
  set(fa_pc_cflags "")
else()
  set(fa_pc_requires "Requires")
  set(fa_pc_libraries " tbb hwloc openblas")
  set(fa_pc_cflags " -DFA_STATIC_DEFINE")
endif()
set(fa_pc_modules fa)
if(TARGET fa_aclnn)
  list(APPEND fa_pc_modules fa_aclnn)
endif()
foreach(module ${fa_pc_modules})
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${module}.pc.in ${PROJECT_BINARY_DIR}/${module}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${module}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
endforeach()
