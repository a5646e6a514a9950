# fa_unite(option target [source ...]): with the option (FA_UNITY, FA_UNITY_TESTS) the target's sources are compiled sixteen at
# a time, but those named, which have a name of their own in common with another one. A new one fails to compile there; it
# gets another name or a place here.
function(fa_unite option target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${${option}} UNITY_BUILD_BATCH_SIZE 16)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
