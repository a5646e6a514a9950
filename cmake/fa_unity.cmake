# Compiles several sources as one. This fails if two sources define the same local name. Then rename one of them, or
# name the source in the call of these functions.

# fa_unite(ON|option target [source ...]) compiles the target's sources sixteen at a time if the option is on. The named
# sources are compiled alone.
function(fa_unite option target)
  if(${option})
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
    set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()

# fa_unite_sets(target [SET source ...] ...) compiles the sources of each SET as one if FA_UNITY is on, and the target's
# other sources as one. This saves the time of compiling the headers for each source.
function(fa_unite_sets target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${FA_UNITY} UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  set_source_files_properties(${sources} PROPERTIES UNITY_GROUP main)
  set(number 0)
  foreach(word IN LISTS ARGN)
    if(word STREQUAL "SET")
      math(EXPR number "${number} + 1")
    else()
      set_source_files_properties(${word} PROPERTIES UNITY_GROUP set_${number})
    endif()
  endforeach()
endfunction()
