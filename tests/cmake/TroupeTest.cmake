# Functions that register tests. If something that a test needs is missing (data, a Python package) and nothing failed,
# the test ends with exit code 77, and CTest reports it as skipped. What a test prints does not matter.

find_package(Boost 1.74 REQUIRED COMPONENTS unit_test_framework)

# main() of all test programs. The paths of the folders are compiled in, so that the programs can be run by hand from
# anywhere.
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH _tests)
cmake_path(GET _tests PARENT_PATH _root)
set(_troupe_suites "${_tests}/support/suites.hpp")
add_library(test_main OBJECT "${_tests}/main.cpp" "${_tests}/support/leftovers.cpp")
target_include_directories(test_main PRIVATE "${_root}")
target_compile_definitions(test_main PRIVATE BOOST_TEST_DYN_LINK
  TROUPE_SOURCE_DIR="${_root}" TROUPE_DATA_DIR="${TROUPE_DATA}")
target_link_libraries(test_main PRIVATE troupe_options PUBLIC Boost::unit_test_framework)

# Sets the compile options of a test program. A precompiled header and the programs that use it must have the same
# options.
function(_troupe_test_options name kind)
  target_compile_definitions(${name} PRIVATE BOOST_TEST_DYN_LINK)
  # g++ 12 reports overflows in strings and in CAF that do not exist.
  target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds;-Wno-stringop-overflow>)
  # With -O3, compiling takes half as long again. Most tests run their code only once, so they have -O1. The tested
  # libraries have -O3.
  if(NOT kind STREQUAL "numeric")
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
endfunction()

# Makes a program use a precompiled header that several programs share: `numeric`, `schema` or `actors`. Parsing
# Boost.Test takes a second per file, Protobuf two, and CAF four. Precompiling them takes as long as five files. Each
# precompiled header belongs to a library with an empty file and the options of programs.
function(_troupe_precompiled name headers)
  set(owner test_precompiled_${headers})
  if(NOT TARGET ${owner})
    set(libraries "")
    set(more "")
    if(headers STREQUAL "schema")
      set(libraries troupe::schema)
      set(more <google/protobuf/message.h> <filesystem>)
    elseif(headers STREQUAL "actors")
      set(libraries troupe::messages)
      set(more <caf/all.hpp> <caf/io/all.hpp> <google/protobuf/generated_message_reflection.h>
          <google/protobuf/message.h> <google/protobuf/repeated_field.h> "${_root}/messages/caf_shim.hpp")
    endif()
    file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/${owner}.cpp" CONTENT "int main() {}\n")
    add_library(${owner} OBJECT EXCLUDE_FROM_ALL "${CMAKE_CURRENT_BINARY_DIR}/${owner}.cpp")
    set_target_properties(${owner} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    if(CMAKE_POSITION_INDEPENDENT_CODE)
      target_compile_options(${owner} PRIVATE ${CMAKE_CXX_COMPILE_OPTIONS_PIE})
    endif()
    target_include_directories(${owner} PRIVATE "${_root}")
    target_link_libraries(${owner} PRIVATE troupe_options ${libraries} Boost::unit_test_framework)
    _troupe_test_options(${owner} "${headers}")
    target_precompile_headers(${owner} PRIVATE "${_troupe_suites}" ${more})
  endif()
  target_precompile_headers(${name} REUSE_FROM ${owner})
endfunction()

# troupe_test(NAME SOURCES file... LIBRARIES target... [LABELS label...] [MAY_SKIP suite/case...]
#             [ALONE file...] [NUMERIC])
#
# Adds one program per folder, with one CTest entry for each Boost.Test suite in its files FOO_test.cpp. A test case
# calls skip() of tests/support/skip.hpp if something that it needs is missing. If the other cases of its suite do not
# need the same thing, list the case under MAY_SKIP. It then gets its own CTest entry, so that the rest of its suite can
# still pass. The label `nocaf` marks programs that do not use the actor framework. A program gets this label
# automatically if no library that it links to uses the framework.
#
# In a unity build, several files of a program are compiled as one. To avoid equal names, put the helpers of a test
# inside its suite. List a file under ALONE if it must define a name that other files define differently. Programs with
# NUMERIC compute much themselves, and are fully optimized.
function(troupe_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "NUMERIC" "" "SOURCES;LIBRARIES;LABELS;MAY_SKIP;ALONE")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE troupe_options ${arg_LIBRARIES} test_main)
  set(kind schema)
  if(arg_NUMERIC)
    set(kind numeric)
  elseif(arg_LIBRARIES MATCHES "troupe(::|_)(messages|actors)" AND NOT "nocaf" IN_LIST arg_LABELS)
    set(kind actors)
  endif()
  _troupe_test_options(${name} ${kind})
  list(LENGTH arg_SOURCES files)
  if(files GREATER 3)
    _troupe_precompiled(${name} ${kind})
    set_target_properties(${name} PROPERTIES UNITY_BUILD "${TROUPE_UNITY_TESTS}")
    set_source_files_properties(${arg_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  if(NOT arg_LIBRARIES MATCHES "troupe(::|_)(messages|actors)|CAF::")
    list(APPEND arg_LABELS nocaf)
    list(REMOVE_DUPLICATES arg_LABELS)
  endif()
  if("nocaf" IN_LIST arg_LABELS AND TARGET tests_without_caf)
    add_dependencies(tests_without_caf ${name})
  endif()
  set(unknown ${arg_MAY_SKIP})
  foreach(source IN LISTS arg_SOURCES)
    if(NOT source MATCHES "_test\\.cpp$")
      continue()
    endif()
    file(STRINGS "${source}" lines REGEX "^BOOST_(AUTO|FIXTURE)_TEST_SUITE\\(")
    if(NOT lines)
      message(FATAL_ERROR "${CMAKE_CURRENT_SOURCE_DIR}/${source} has no BOOST_AUTO_TEST_SUITE: it would never run")
    endif()
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^[A-Z_]+\\(([a-z0-9_]+).*" "\\1" suite "${line}")
      set(filter "${suite}")
      foreach(case IN LISTS arg_MAY_SKIP)
        if(case MATCHES "^${suite}/(.*)$")
          string(APPEND filter ":!${case}")
          list(REMOVE_ITEM unknown "${case}")
          _troupe_add_test("${name}.${suite}.${CMAKE_MATCH_1}" "${arg_LABELS}" 900 ${name} "--run_test=${case}")
        endif()
      endforeach()
      _troupe_add_test("${name}.${suite}" "${arg_LABELS}" 900 ${name} "--run_test=${filter}")
    endforeach()
  endforeach()
  if(unknown)
    message(FATAL_ERROR "${name}: MAY_SKIP names ${unknown}, and no file has such a suite")
  endif()
endfunction()

# troupe_python_test(NAME FILE [LABELS label...] [ENVIRONMENT name=value...]) registers a file with Python's unittest.
# The file must end with run_tests() of tests/apps/program.py, or use the same exit codes.
function(troupe_python_test name file)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "LABELS;ENVIRONMENT")
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  _troupe_add_test("${name}" "${arg_LABELS}" 300 ${Python3_EXECUTABLE} -B "${CMAKE_CURRENT_SOURCE_DIR}/${file}" -v)
  set_tests_properties("${name}" PROPERTIES ENVIRONMENT "${arg_ENVIRONMENT}")
endfunction()

function(_troupe_add_test name labels timeout)
  add_test(NAME "${name}" COMMAND ${ARGN})
  set_tests_properties("${name}" PROPERTIES SKIP_RETURN_CODE 77 LABELS "${labels}" TIMEOUT ${timeout} PROCESSORS 2)
endfunction()

# troupe_tests_wait(NAME...) says that these tests mostly wait for processes and time limits. CTest gets two jobs per
# processor. A test uses two of these jobs (PROCESSORS). A test that is listed here uses one, so two of these tests
# share a processor.
function(troupe_tests_wait)
  set_tests_properties(${ARGN} PROPERTIES PROCESSORS 1)
endfunction()
