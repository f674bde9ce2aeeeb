# Installs the headers of a small project in the ways that packagers use, and checks the result. CMAKE_DIR is the folder
# with troupe's CMake modules.

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT RESULT_VARIABLE result OUTPUT_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "exit code ${result}: ${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# Makes a small project with headers only, so that nothing has to be built.
file(REMOVE_RECURSE "${WORK}")
set(one [=[#include "kernels/graph/two.hpp"
#define LIST "a;b" // ; [brackets] \ 
]=])
file(WRITE "${WORK}/root/actors/one.hpp" "${one}")
file(WRITE "${WORK}/root/kernels/graph/two.hpp" "#pragma once\n")

function(configure name)
  run("${CMAKE_COMMAND}" -S "${SOURCE}" -B "${WORK}/${name}" -G "${GENERATOR}" "-DTROUPE_CMAKE=${CMAKE_DIR}"
      "-DROOT=${WORK}/root" "-DCMAKE_INSTALL_PREFIX=${WORK}/prefix" ${ARGN})
endfunction()

function(expect_text file expected)
  file(READ "${file}" text)
  if(NOT text STREQUAL expected)
    message(FATAL_ERROR "${file}:\n${text}\nexpected:\n${expected}")
  endif()
endfunction()

function(expect_mode path expected)
  run(stat -c %a "${path}")
  string(STRIP "${output}" mode)
  if(NOT mode STREQUAL expected)
    message(FATAL_ERROR "${path} has mode ${mode}, expected ${expected}")
  endif()
endfunction()

# A packager installs below DESTDIR. The umask must not make the installed files unreadable for other users.
configure(plain)
run("${CMAKE_COMMAND}" -E env "DESTDIR=${WORK}/stage"
    sh -c "umask 077 && exec '${CMAKE_COMMAND}' --install '${WORK}/plain'")
set(installed "${WORK}/stage${WORK}/prefix/include/troupe")
string(REPLACE "\"kernels/graph/two.hpp\"" "<troupe/kernels/graph/two.hpp>" expected "${one}")
expect_text("${installed}/actors/one.hpp" "${expected}")
expect_mode("${installed}/actors/one.hpp" 644)
expect_mode("${installed}/kernels/graph" 755)
expect_mode("${installed}" 755)
# The manifest lists the files where the package will install them, without DESTDIR.
expect_text("${WORK}/plain/install_manifest.txt"
            "${WORK}/prefix/include/troupe/actors/one.hpp\n${WORK}/prefix/include/troupe/kernels/graph/two.hpp")

# Installs again. A header that was removed from the sources disappears. A header that did not change is not written
# again.
file(REMOVE "${WORK}/root/kernels/graph/two.hpp")
file(REMOVE_RECURSE "${installed}/kernels")
run("${CMAKE_COMMAND}" -E env "DESTDIR=${WORK}/stage" "${CMAKE_COMMAND}" --install "${WORK}/plain")
if(NOT output MATCHES "Up-to-date: [^\n]*/one.hpp")
  message(FATAL_ERROR "expected one.hpp to be up to date: ${output}")
endif()
if(EXISTS "${installed}/kernels/graph/two.hpp")
  message(FATAL_ERROR "a removed header was installed")
endif()

# The folder of headers may be absolute, as in some distributions.
configure(absolute "-DCMAKE_INSTALL_INCLUDEDIR=${WORK}/headers")
run("${CMAKE_COMMAND}" --install "${WORK}/absolute")
expect_text("${WORK}/headers/troupe/actors/one.hpp" "${expected}")
# If a prefix is given at installation, it replaces the configured one.
configure(later)
run("${CMAKE_COMMAND}" --install "${WORK}/later" --prefix "${WORK}/elsewhere")
expect_text("${WORK}/elsewhere/include/troupe/actors/one.hpp" "${expected}")
