# Installs BUILD below WORK. Then configures, builds and runs the project SOURCE and the installed examples with this
# installation.

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "exit code ${result}")
  endif()
endfunction()

file(REMOVE_RECURSE "${WORK}")
run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${WORK}/prefix")

# Installed headers are only in include/troupe. They include each other by their names below include.
file(GLOB include_folders RELATIVE "${WORK}/prefix/include" "${WORK}/prefix/include/*")
if(NOT include_folders STREQUAL "troupe")
  message(FATAL_ERROR "expected include/troupe alone, got ${include_folders}")
endif()
file(GLOB_RECURSE headers "${WORK}/prefix/include/*")
foreach(file IN LISTS headers)
  file(STRINGS "${file}" wrong REGEX "#include [\"<](actors|kernels|messages)/")
  if(wrong)
    message(FATAL_ERROR "${file}: ${wrong}")
  endif()
endforeach()

# Benchmarks must not be installed, because they belong to the program and not to the libraries.
file(GLOB_RECURSE benchmarks "${WORK}/prefix/include/*bench*" "${WORK}/prefix/lib*/*bench*")
if(benchmarks)
  message(FATAL_ERROR "benchmarks are installed: ${benchmarks}")
endif()

# Installed files must not contain paths of the sources or of the build.
cmake_path(GET SOURCE PARENT_PATH root)
cmake_path(GET root PARENT_PATH root)
cmake_path(GET root PARENT_PATH root)
file(GLOB_RECURSE package_files "${WORK}/prefix/*.cmake")
if(NOT package_files)
  message(FATAL_ERROR "no package description was installed")
endif()
foreach(file IN LISTS package_files)
  file(READ "${file}" text)
  string(FIND "${text}" "${root}/" position)
  if(NOT position EQUAL -1)
    message(FATAL_ERROR "${file} names ${root}")
  endif()
endforeach()

set(flags "")
if(SANITIZE)
  set(flags "-fsanitize=${SANITIZE}")
endif()
# Configures, builds and runs a project. Its only program has the same name as the project.
function(use_package name source)
  run("${CMAKE_COMMAND}" -S "${source}" -B "${WORK}/${name}" -G "${GENERATOR}"
      "-DCMAKE_PREFIX_PATH=${WORK}/prefix" "-DCMAKE_CXX_COMPILER=${COMPILER}"
      "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}" "-DCMAKE_CXX_FLAGS=${flags}"
      "-DCAF_INCLUDE_DIR=${CAF_INCLUDE_DIR}" "-DCAF_core_LIBRARY=${CAF_core_LIBRARY}"
      "-DCAF_io_LIBRARY=${CAF_io_LIBRARY}")
  run("${CMAKE_COMMAND}" --build "${WORK}/${name}")
  run("${WORK}/${name}/${name}")
endfunction()
use_package(foreign "${SOURCE}")
# The examples as they were installed.
use_package(embedding "${WORK}/prefix/share/troupe/examples/embedding")
use_package(gossip "${WORK}/prefix/share/troupe/examples/gossip")
use_package(allreduce "${WORK}/prefix/share/troupe/examples/allreduce")
use_package(store "${WORK}/prefix/share/troupe/examples/store")
# The installed program must find its libraries.
run("${WORK}/prefix/bin/troupe" --version)
