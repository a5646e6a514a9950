# Objects of tests that another build of the same tree compiled.

set(FA_TEST_OBJECTS "" CACHE PATH
    "A finished build of this tree without sanitizers, of which tests take their own objects; empty: all are compiled here")

# fa_share_objects(target ...): the paths of the target's objects stand in test_objects/ of the build. With FA_TEST_OBJECTS
# the target consists of those of that build. What is compiled here then is the library, and that is what the sanitizers
# watch: accesses of a test's own code they do not see, those to its heap from anywhere they do. Not for tests whose own
# threads must be seen (ThreadSanitizer), and not for a target that two builds compile from different sources.
function(fa_share_objects)
  foreach(target IN LISTS ARGN)
    set(file test_objects/${target}.txt)
    get_target_property(sources ${target} SOURCES)
    set_target_properties(${target} PROPERTIES FA_WRITTEN_SOURCES "${sources}")
    if(FA_TEST_OBJECTS)
      file(STRINGS ${FA_TEST_OBJECTS}/${file} objects)
      set_target_properties(${target} PROPERTIES SOURCES "${objects}" UNITY_BUILD OFF LINKER_LANGUAGE CXX)
      set_source_files_properties(${objects} TARGET_DIRECTORY ${target} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    else()
      file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/${file} CONTENT "$<JOIN:$<TARGET_OBJECTS:${target}>,\n>\n")
    endif()
  endforeach()
endfunction()
