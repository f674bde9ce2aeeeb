# Installs the headers of `folder` (a folder of `root`) as `destination`/troupe/FOLDER/NAME.hpp. Headers include each
# other as "actors/NAME.hpp" in the source tree, and as <troupe/actors/NAME.hpp> once installed. The rewritten headers
# stay in the folder `staging`, so that a second installation does not write unchanged headers again.
file(GLOB_RECURSE _headers RELATIVE "${root}" "${root}/${folder}/*.hpp" "${root}/${folder}/*.pb.h")
file(GLOB_RECURSE _staged RELATIVE "${staging}/troupe" "${staging}/troupe/*")
list(REMOVE_ITEM _staged ${_headers})
foreach(_header IN LISTS _staged)
  file(REMOVE "${staging}/troupe/${_header}")
endforeach()
foreach(_header IN LISTS _headers)
  file(READ "${root}/${_header}" _text)
  string(REGEX REPLACE "#include \"((actors|kernels|messages)/[^\"]+)\"" "#include <troupe/\\1>" _text "${_text}")
  set(_before "")
  if(EXISTS "${staging}/troupe/${_header}")
    file(READ "${staging}/troupe/${_header}" _before)
  endif()
  if(NOT _text STREQUAL _before)
    file(WRITE "${staging}/troupe/${_header}" "${_text}")
  endif()
endforeach()
file(MAKE_DIRECTORY "${staging}/troupe")
# file(INSTALL) puts DESTDIR before the destination, and adds the files to the manifest of the installation.
file(INSTALL DESTINATION "${destination}" TYPE DIRECTORY FILES "${staging}/troupe")
