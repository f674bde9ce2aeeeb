# Finds the C++ schema of ONNX models (Debian's libonnx-dev): generated headers and their library.
#
# Defines the imported target ONNX::proto. With the component `checker`, it also defines ONNX::checker: the checks of
# models that ONNX itself provides.

find_path(ONNX_INCLUDE_DIR NAMES onnx/onnx_pb.h)
find_library(ONNX_PROTO_LIBRARY NAMES onnx_proto)
find_library(ONNX_CHECKER_LIBRARY NAMES onnx)
mark_as_advanced(ONNX_INCLUDE_DIR ONNX_PROTO_LIBRARY ONNX_CHECKER_LIBRARY)

if(ONNX_CHECKER_LIBRARY)
  set(ONNX_checker_FOUND TRUE)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(ONNX
  REQUIRED_VARS ONNX_INCLUDE_DIR ONNX_PROTO_LIBRARY
  HANDLE_COMPONENTS
  REASON_FAILURE_MESSAGE "install Debian's libonnx-dev")

if(ONNX_FOUND AND NOT TARGET ONNX::proto)
  find_package(Protobuf REQUIRED)
  add_library(ONNX::proto UNKNOWN IMPORTED)
  set_target_properties(ONNX::proto PROPERTIES
    IMPORTED_LOCATION "${ONNX_PROTO_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${ONNX_INCLUDE_DIR}"
    INTERFACE_COMPILE_DEFINITIONS "ONNX_ML=1;ONNX_NAMESPACE=onnx"
    INTERFACE_LINK_LIBRARIES protobuf::libprotobuf)
endif()
if(ONNX_checker_FOUND AND NOT TARGET ONNX::checker)
  add_library(ONNX::checker UNKNOWN IMPORTED)
  set_target_properties(ONNX::checker PROPERTIES
    IMPORTED_LOCATION "${ONNX_CHECKER_LIBRARY}"
    INTERFACE_LINK_LIBRARIES ONNX::proto)
endif()
