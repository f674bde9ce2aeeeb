# `cpack` in the build folder makes troupe-VERSION-linux-PROCESSOR.tar.gz: the program and all shared libraries that it
# needs, for Linux machines without these packages. The archive does not contain the C library, the driver of a GPU and
# cuBLAS: these come from the machine. The program loads the driver and cuBLAS when a job uses a GPU. If the tests are
# built, too, the archive contains the tests that need a GPU: bin/gpu_test (tests/kernels/cuda).

set(_bundled COMPONENT bundle EXCLUDE_FROM_ALL)
install(TARGETS troupe RUNTIME_DEPENDENCY_SET troupe_libraries RUNTIME ${_bundled})
install(RUNTIME_DEPENDENCY_SET troupe_libraries
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|resolv)\\.so"
  LIBRARY DESTINATION lib ${_bundled})
install(DIRECTORY examples DESTINATION "${CMAKE_INSTALL_DATADIR}/troupe" ${_bundled})

set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_NAME troupe)
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_PACKAGE_FILE_NAME "troupe-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL bundle)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
# The archive contains a single folder, with everything in it.
set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
set(CPACK_VERBATIM_VARIABLES ON)
include(CPack)
