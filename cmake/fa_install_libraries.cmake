set(fa_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/fa)

# fa_install_libraries(export component target ...) installs the targets in a component, and their description for
# CMake, which is named `export`.
function(fa_install_libraries export component)
  install(TARGETS ${ARGN} EXPORT ${export}
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component} NAMELINK_COMPONENT development)
  install(EXPORT ${export} FILE ${export}.cmake NAMESPACE fa:: DESTINATION ${fa_package_dir} COMPONENT development)
endfunction()
