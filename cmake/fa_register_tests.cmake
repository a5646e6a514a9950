# Tests that report their cases one by one, and the list by which scripts/count_tests.py knows that no test is missing.
include(GoogleTest)
# The python3 on the path, for which scripts/setup.sh installs NumPy.
find_program(FA_PYTHON python3 REQUIRED)

set(FA_TEST_REPORTS ${PROJECT_BINARY_DIR}/test_reports)

# fa_register_gtest(target cost [label ...])
# Registers the cases of a GoogleTest binary, unless FA_TEST_SUBSET names a label that the binary does not have.
# - Labels asan and tsan: the binary also runs under that sanitizer.
# - A binary with label asan or together is one test of ctest, and so is every binary under an emulator. A process per
#   case would start libfa, and compute the references of its operators, again for each level. The binary's report lists
#   the cases.
# - Under ThreadSanitizer each case is a test. In one process oneTBB's threads would live on from one case to the next.
#   ThreadSanitizer does not see their synchronisation, which would look like races.
# - Other binaries have a process per case too, because some cases want one of their own.
# - FA_TEST_SUBSET sets time limits, four times the usual times: two minutes for a binary with a cost, half a minute for
#   others.
# - The cost is in seconds, or empty. ctest starts the tests of the highest cost first.
function(fa_register_gtest target cost)
  if(FA_TEST_SUBSET AND NOT FA_TEST_SUBSET IN_LIST ARGN)
    return()
  endif()
  add_dependencies(fa_subset_tests ${target})
  # All labels become one word (asan+tsan), because versions of gtest_discover_tests treat a list differently.
  list(JOIN ARGN "+" label)
  set(properties TIMEOUT 600)
  if(cost)
    list(APPEND properties COST ${cost})
  endif()
  if(label)
    list(APPEND properties LABELS ${label})
  endif()
  if("thread" IN_LIST FA_SANITIZE)
    # At the end of a process with threads ThreadSanitizer waits, by default for a second, for races of these threads
    # with the end.
    list(APPEND properties ENVIRONMENT
                           TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/tsan.supp:atexit_sleep_ms=50)
  endif()
  fa_wrap_emulated(${target})
  if(CMAKE_CROSSCOMPILING_EMULATOR
     OR "address" IN_LIST FA_SANITIZE
     OR (("asan" IN_LIST ARGN OR "together" IN_LIST ARGN) AND NOT "thread" IN_LIST FA_SANITIZE))
    add_test(NAME ${target} COMMAND ${target} --gtest_output=xml:${FA_TEST_REPORTS}/${target}.xml)
    set(timeout 1800)
    if(FA_TEST_SUBSET AND cost)
      set(timeout 120)
    elseif(FA_TEST_SUBSET)
      set(timeout 30)
    endif()
    set_tests_properties(${target} PROPERTIES ${properties} TIMEOUT ${timeout})
  else()
    gtest_discover_tests(
      ${target}
      DISCOVERY_MODE PRE_TEST
      DISCOVERY_TIMEOUT 60
      TEST_PREFIX ${target}/
      NO_PRETTY_VALUES
      PROPERTIES ${properties})
  endif()
  # The presets of the sanitizers run only the tests with their label.
  if((NOT "address" IN_LIST FA_SANITIZE OR "asan" IN_LIST ARGN)
     AND (NOT "thread" IN_LIST FA_SANITIZE OR "tsan" IN_LIST ARGN))
    set_property(GLOBAL APPEND PROPERTY FA_GTEST_TARGETS ${target})
  endif()
endfunction()

# fa_wrap_emulated(target)
# Cross-compiled tests run under an emulator of one process. GoogleTest's "threadsafe" death tests start argv[0] once more,
# which the build machine cannot run. So argv[0] names a script that starts the emulator (qemu's -0).
function(fa_wrap_emulated target)
  if(NOT CMAKE_CROSSCOMPILING_EMULATOR)
    return()
  endif()
  list(JOIN CMAKE_CROSSCOMPILING_EMULATOR " " emulator)
  set(script ${CMAKE_CURRENT_BINARY_DIR}/${target}.emulated)
  file(GENERATE OUTPUT ${script} CONTENT "#!/bin/sh\nexec ${emulator} -0 \"$0\" '$<TARGET_FILE:${target}>' \"$@\"\n"
       FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  set_target_properties(${target} PROPERTIES CROSSCOMPILING_EMULATOR "${CMAKE_CROSSCOMPILING_EMULATOR};-0;${script}")
endfunction()

# fa_register_unittest(name file) registers a file of Python's unittest as one test of ctest. Its report lists the
# cases.
function(fa_register_unittest name file)
  add_test(NAME ${name} COMMAND ${FA_PYTHON} -B ${PROJECT_SOURCE_DIR}/tests/support/run_unittest.py ${file}
                                ${FA_TEST_REPORTS}/${name}.xml)
  fa_list_test(${name} ${file})
endfunction()

# fa_register_command(name command ...) registers a command as a test, which fails if its exit status is not 0.
function(fa_register_command name)
  add_test(NAME ${name} COMMAND ${ARGN})
  fa_list_test(${name})
endfunction()

# fa_list_test(name [source ...]) notes a test, and the sources whose cases its report must have.
function(fa_list_test)
  list(JOIN ARGV "\t" line)
  set_property(GLOBAL APPEND PROPERTY FA_REGISTERED_TESTS ${line})
endfunction()

# fa_write_registered_tests() writes registered_tests.txt: one line per test, with a tab before each source. Call it
# after the last test.
function(fa_write_registered_tests)
  get_property(targets GLOBAL PROPERTY FA_GTEST_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(folder ${target} SOURCE_DIR)
    get_target_property(sources ${target} SOURCES)
    set(paths "")
    foreach(source IN LISTS sources)
      cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${folder} NORMALIZE OUTPUT_VARIABLE path)
      list(APPEND paths ${path})
    endforeach()
    fa_list_test(${target} ${paths})
  endforeach()
  get_property(lines GLOBAL PROPERTY FA_REGISTERED_TESTS)
  list(JOIN lines "\n" text)
  file(WRITE ${PROJECT_BINARY_DIR}/registered_tests.txt "${text}\n")
endfunction()
