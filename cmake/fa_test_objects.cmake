# Lets a build use test objects that another build of the same tree compiled.

set(FA_TEST_OBJECTS "" CACHE PATH
    "A build of this tree without sanitizers, of which some tests take their own objects; empty: all are compiled here")
if(FA_TEST_OBJECTS)
  if("thread" IN_LIST FA_SANITIZE)
    message(FATAL_ERROR "FA_TEST_OBJECTS: ThreadSanitizer must see the threads of tests")
  endif()
  message(STATUS "Some tests take their objects from ${FA_TEST_OBJECTS}, as it is built there")
endif()

# fa_share_objects(target ...): lists the paths of the target's objects in test_objects/ of the build. With
# FA_TEST_OBJECTS the target consists of the objects of that build, which no sanitizer watches. So it is for tests and
# helpers whose tensors lie on the heap, where the library's accesses are watched even so. It is not for tests that pass
# arrays of their stack or static arrays, nor for tests of code in the library's headers. Call it after
# fa_write_registered_tests, which reads the targets' sources.
function(fa_share_objects)
  foreach(target IN LISTS ARGN)
    set(file test_objects/${target}.txt)
    if(FA_TEST_OBJECTS)
      file(STRINGS ${FA_TEST_OBJECTS}/${file} objects)
      set_target_properties(${target} PROPERTIES SOURCES "${objects}" UNITY_BUILD OFF LINKER_LANGUAGE CXX)
      set_source_files_properties(${objects} TARGET_DIRECTORY ${target} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    else()
      file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/${file} CONTENT "$<JOIN:$<TARGET_OBJECTS:${target}>,\n>\n")
    endif()
  endforeach()
endfunction()
