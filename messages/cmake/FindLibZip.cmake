# Finds libzip (Debian's libzip-dev). This file replaces Debian 12's own CMake package of libzip, which fails if the
# programs of libzip are not installed.
#
# Defines the imported target LibZip::zip.

find_path(LIBZIP_INCLUDE_DIR NAMES zip.h)
find_library(LIBZIP_LIBRARY NAMES zip)
mark_as_advanced(LIBZIP_INCLUDE_DIR LIBZIP_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibZip
  REQUIRED_VARS LIBZIP_LIBRARY LIBZIP_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "install Debian's libzip-dev")

if(LibZip_FOUND AND NOT TARGET LibZip::zip)
  add_library(LibZip::zip UNKNOWN IMPORTED)
  set_target_properties(LibZip::zip PROPERTIES
    IMPORTED_LOCATION "${LIBZIP_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${LIBZIP_INCLUDE_DIR}")
endif()
