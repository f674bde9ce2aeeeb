#pragma once

#include <filesystem>
#include <string>

namespace onnx {
class ModelProto;
} // namespace onnx

namespace troupe {

/// Reads the tensors that an ONNX model stores in other files ("external data"), and puts them into
/// the model. Internal to actors/model/onnx.
/// @param name the name of the model in errors
/// @param folder the model's folder, which contains the other files
/// @throws input_error that names the tensor: a file outside the folder (an absolute path, "..", or
/// a link), a file that cannot be read, bytes beyond its end, a length other than that of
/// the shape, or tensors that share bytes
void load_external_data(onnx::ModelProto& model, const std::string& name,
                        const std::filesystem::path& folder);

} // namespace troupe
