# fa_program_pages(target program component) makes and installs pages that the tool prints from its own tables: man
# pages, compressed if gzip is found, and completion for bash, zsh and fish.
find_program(FA_GZIP gzip)
function(fa_program_pages target program component)
  # A cross-compiled program does not run here without an emulator.
  if(FA_SANITIZE OR (CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR))
    return()
  endif()
  set(pages ${CMAKE_CURRENT_BINARY_DIR}/pages)
  set(compress "")
  if(FA_GZIP)
    set(compress COMMAND sh -c "'${FA_GZIP}' -9nf '${pages}'/man1/*.1")
  endif()
  add_custom_command(
    OUTPUT ${pages}/made
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${pages}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${pages}/man1
    COMMAND ${target} man --out ${pages}/man1
    ${compress}
    COMMAND ${target} completion bash > ${pages}/${program}
    COMMAND ${target} completion zsh > ${pages}/_${program}
    COMMAND ${target} completion fish > ${pages}/${program}.fish
    COMMAND ${CMAKE_COMMAND} -E touch ${pages}/made
    DEPENDS ${target}
    VERBATIM)
  add_custom_target(${target}_pages ALL DEPENDS ${pages}/made)
  install(DIRECTORY ${pages}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT ${component})
  foreach(file ${program}:bash-completion/completions _${program}:zsh/site-functions ${program}.fish:fish/vendor_completions.d)
    string(REPLACE ":" ";" file ${file})
    list(GET file 0 name)
    list(GET file 1 folder)
    install(FILES ${pages}/${name} DESTINATION ${CMAKE_INSTALL_DATADIR}/${folder} COMPONENT ${component})
  endforeach()
endfunction()
