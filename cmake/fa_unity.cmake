# Several sources compiled as one. Sources that have a name of their own in common stay apart: a new one fails to compile,
# and then it gets another name or a place in these calls.

# fa_unite(option target [source ...]): with the option (FA_UNITY, FA_UNITY_TESTS) sixteen sources at a time, but those named.
function(fa_unite option target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${${option}} UNITY_BUILD_BATCH_SIZE 16)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# fa_unite_floor(floor [SET source ...] ...): with FA_UNITY the sources of fa_<floor> as one, each SET as another one. Half of
# what a source of its own takes to compile are headers.
function(fa_unite_floor floor)
  set(target fa_${floor})
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
