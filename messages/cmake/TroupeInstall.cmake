# Defines what `cmake --install` installs. Other projects can then use find_package(troupe).

include(CMakePackageConfigHelpers)

set(_troupe_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/troupe")
set(_troupe_cmake_dir "${CMAKE_CURRENT_LIST_DIR}")

# Installs the headers of a folder of `root` as <troupe/FOLDER/NAME.hpp>.
function(troupe_install_headers root folder)
  string(MD5 key "${root}/${folder}")
  cmake_path(IS_ABSOLUTE CMAKE_INSTALL_INCLUDEDIR whole)
  if(whole)
    set(destination "${CMAKE_INSTALL_INCLUDEDIR}")
  else()
    set(destination "\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}")
  endif()
  install(CODE "
    set(root \"${root}\")
    set(folder \"${folder}\")
    set(staging \"${PROJECT_BINARY_DIR}/headers/${key}\")
    set(destination \"${destination}\")
    include(\"${_troupe_cmake_dir}/InstallHeaders.cmake\")")
endfunction()

# troupe_install(FOLDER target...)
#
# Installs libraries and the headers of their folder.
function(troupe_install folder)
  if(NOT TROUPE_INSTALL)
    return()
  endif()
  install(TARGETS ${ARGN} EXPORT troupe
          ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
          LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  troupe_install_headers("${PROJECT_SOURCE_DIR}" ${folder})
endfunction()

# Installs the description of the package: the exported targets, and how to find the libraries that they link to.
function(troupe_install_package)
  if(NOT TROUPE_INSTALL)
    return()
  endif()
  configure_package_config_file(
    "${_troupe_cmake_dir}/troupeConfig.cmake.in" "${PROJECT_BINARY_DIR}/cmake/troupeConfig.cmake"
    INSTALL_DESTINATION "${_troupe_package_dir}")
  # Before version 1.0, a new minor version may be incompatible.
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/cmake/troupeConfigVersion.cmake"
                                   COMPATIBILITY SameMinorVersion)
  install(EXPORT troupe NAMESPACE troupe:: FILE troupeTargets.cmake DESTINATION "${_troupe_package_dir}")
  install(FILES
            "${PROJECT_BINARY_DIR}/cmake/troupeConfig.cmake"
            "${PROJECT_BINARY_DIR}/cmake/troupeConfigVersion.cmake"
            "${_troupe_cmake_dir}/FindCAF.cmake"
            "${_troupe_cmake_dir}/FindLibZip.cmake"
            "${_troupe_cmake_dir}/FindONNX.cmake"
          DESTINATION "${_troupe_package_dir}")
endfunction()
