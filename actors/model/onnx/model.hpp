#pragma once

#include "kernels/graph/layout.hpp"
#include "kernels/graph/shape.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace onnx {
class GraphProto;
class ModelProto;
class NodeProto;
} // namespace onnx

namespace troupe {

/// The newest version of ONNX's operator set that is supported.
inline constexpr std::int64_t newest_onnx_operators = 24;

/// A parsed and checked model in the ONNX format (onnx.ai). The operator set is known, names are
/// defined once and before their use, and tensors are exactly as long as their shapes require.
/// import_onnx() interprets the operators. Immutable; copies share the model.
///
/// The schema comes from Debian's libonnx. Only sources in actors/model include libonnx's headers.
class onnx_model {
public:
  /// A tensor of the model that can be trained. It is an initializer of real numbers, and gradients
  /// can reach it. (Gradients do not reach a shape, or a mask that is only compared with 0.) The
  /// contents of Constant nodes are constants. So are initializers without dimensions, because most
  /// exporters write the numbers of formulas in this form. Exceptions: those that PyTorch's
  /// exporter marks as a parameter or buffer, and, if the exporter is PyTorch's older one or
  /// troupe, those whose name is not "onnx::...".
  struct weight {
    std::string name;
    troupe::shape shape;
    /// The reason why the tensor is not trained, for people; empty if it is trained (onnx_roles).
    std::string stays = {};
    /// For state only (a running mean or variance of a batch normalization in training mode): the
    /// share of the new value in an update.
    std::optional<double> decay = std::nullopt;
  };

  /// The name of an attribute that parse() adds to a recurrent operator if its second bias is 0 and
  /// must stay 0.
  static constexpr std::string_view single_bias = "troupe_single_bias";
  /// The name of an attribute that parse() adds to an Identity if PyTorch's exporter wrote it for
  /// x.detach(): no gradient passes it.
  static constexpr std::string_view stops_gradient = "troupe_stops_gradient";
  /// The name of an attribute that parse() adds to a Gather if PyTorch's exporter wrote it for an
  /// embedding with padding_idx. Its value is the row of the table that gets no gradient.
  static constexpr std::string_view padding_row = "troupe_padding_row";

  /// Reads a model from a file. Tensors may be in other files of the same folder, which may have
  /// any size.
  /// @throws input_error like parse() and load_external_data(); also if the file cannot be read
  static onnx_model read(const std::filesystem::path& path);

  /// Parses a model whose tensors are all in these bytes.
  /// @param name the name of the model in errors, usually its path
  /// @throws input_error if the bytes are not an ONNX model; if its operator set is older or newer
  /// than the supported ones; if a tensor's length does not fit its shape, its type is unknown, or
  /// it is stored in another file; if an exporter merged parameters; or if a name is missing,
  /// defined twice or used before its definition (cycles)
  static onnx_model parse(std::span<const std::byte> bytes, std::string name);

  /// Parses the result of structure(). The weights of this model have shapes, but no values.
  static onnx_model parse_structure(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const noexcept { return name_; }
  /// Tensors with values, in the order of the file.
  const std::vector<weight>& weights() const noexcept { return weights_; }
  /// The model without the values of its weights, to send to other nodes.
  std::string structure() const;
  /// The values of the weights, in the order of `parameters`, whose tensors must be those of
  /// weights(). Must not be called for the result of parse_structure().
  std::vector<float> values(const layout& parameters) const;

  const onnx::ModelProto& proto() const noexcept { return *proto_; }
  /// Throws input_error that names a weight with an element that is not a finite number.
  void require_finite() const;
  /// Version of the operator set, 1 to 24.
  std::int64_t version() const noexcept { return version_; }
  bool is_weight(std::string_view name) const { return weight_names_.contains(name); }
  /// Largest number of elements of a tensor that the import computes from constants. It is the
  /// number of bytes of the model, but at least 65,536.
  std::size_t constant_limit() const noexcept { return constant_limit_; }

private:
  onnx_model() = default;
  static onnx_model parse(std::span<const std::byte> bytes, std::string name, bool without_values,
                          const std::filesystem::path* folder = nullptr);
  void read_marks();
  void check_operator_sets();
  void find_weights(bool without_values);
  void refuse_merged_tensors() const;
  void check_tensors(const onnx::GraphProto& graph, bool without_values) const;
  void check_names() const;

  std::string name_;
  std::shared_ptr<onnx::ModelProto> proto_;
  std::vector<weight> weights_;
  std::set<std::string, std::less<>> weight_names_;
  std::int64_t version_ = 0;
  std::size_t constant_limit_ = 0;
};

/// True if the node is a batch normalization that was written for training: it computes the mean
/// and the variance of the batch.
bool measures_batch(const onnx::NodeProto& node, std::int64_t version);

} // namespace troupe
