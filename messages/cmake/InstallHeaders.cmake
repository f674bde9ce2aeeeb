# Installs the headers of `folder` (a folder of `root`) below `destination`. Headers include each other as
# "actors/NAME.hpp" in the source tree, and as <troupe/actors/NAME.hpp> once installed.
file(GLOB_RECURSE _headers RELATIVE "${root}" "${root}/${folder}/*.hpp" "${root}/${folder}/*.pb.h")
foreach(_header IN LISTS _headers)
  file(READ "${root}/${_header}" _text)
  string(REGEX REPLACE "#include \"((actors|kernels|messages)/[^\"]+)\"" "#include <troupe/\\1>" _text "${_text}")
  message(STATUS "Installing: ${destination}/${_header}")
  file(WRITE "${destination}/${_header}" "${_text}")
  list(APPEND CMAKE_INSTALL_MANIFEST_FILES "${destination}/${_header}")
endforeach()
