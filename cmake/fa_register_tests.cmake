# Registers tests, which report their cases one by one to scripts/count_tests.py. FA_PYTHON is the python3 on the path,
# for which scripts/setup.sh installs NumPy.
find_program(FA_PYTHON python3 REQUIRED)

# A test whose name ends in _test leaves a report of its cases here, named like the test.
set(FA_TEST_REPORTS ${PROJECT_BINARY_DIR}/test_reports)

# fa_register_gtest(target cost [label ...])
# Registers a GoogleTest binary as one test of ctest, unless FA_TEST_SUBSET names a label that the binary does not have.
# The cost is in seconds, or empty. ctest starts the tests of the highest cost first.
# - A binary with the label asan, and every binary under an emulator, runs its cases in one process. A process per case
#   would repeat the start of libfa and the computation of references for each level.
# - Other binaries have a process per case (run_each_case.py), because some cases need a process of their own.
# - Under ThreadSanitizer every binary has a process per case. In one process oneTBB's threads would live on from one
#   case to the next. ThreadSanitizer does not see their synchronisation, which would look like races.
function(fa_register_gtest target cost)
  if(FA_TEST_SUBSET AND NOT FA_TEST_SUBSET IN_LIST ARGN)
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  add_dependencies(fa_tests ${target})
  fa_wrap_emulated(${target})
  set(report ${FA_TEST_REPORTS}/${target}.xml)
  if("thread" IN_LIST FA_SANITIZE OR NOT ("asan" IN_LIST ARGN OR CMAKE_CROSSCOMPILING_EMULATOR))
    add_test(NAME ${target} COMMAND ${FA_PYTHON} -B ${PROJECT_SOURCE_DIR}/tests/support/run_each_case.py
                                    $<TARGET_FILE:${target}> ${report})
  else()
    add_test(NAME ${target} COMMAND ${target} --gtest_output=xml:${report})
  endif()
  if("thread" IN_LIST FA_SANITIZE)
    # By default ThreadSanitizer waits a second at the end of every process.
    set_tests_properties(
      ${target} PROPERTIES ENVIRONMENT
                           TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/tsan.supp:atexit_sleep_ms=50)
  endif()
  if(cost)
    set_tests_properties(${target} PROPERTIES COST ${cost})
  endif()
endfunction()

# fa_wrap_emulated(target)
# Cross-compiled tests run under an emulator. GoogleTest's "threadsafe" death tests start argv[0] again, which the build
# machine cannot run by itself. So argv[0] names a script that starts the emulator (qemu's -0).
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

# fa_register_unittest(name file) registers a file of Python's unittest as one test of ctest.
function(fa_register_unittest name file)
  add_test(NAME ${name} COMMAND ${FA_PYTHON} -B ${PROJECT_SOURCE_DIR}/tests/support/run_unittest.py ${file}
                                ${FA_TEST_REPORTS}/${name}.xml)
endfunction()
