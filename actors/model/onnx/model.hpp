#pragma once

#include "kernels/graph/layout.hpp"
#include "kernels/graph/shape.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace onnx {
class ModelProto;
class NodeProto;
} // namespace onnx

namespace troupe {

/// A model in the ONNX format (onnx.ai), parsed and checked: operator set known, names defined
/// before they are used and once only, tensors exactly as long as their shapes say, nothing in
/// other files. onnx_importer interprets the operators. Immutable; copies share the model.
///
/// The schema is that of Debian's libonnx; its headers are included by the sources named onnx_*
/// alone.
class onnx_model {
public:
  /// A tensor of the model: an initializer of the element type float with at least one dimension,
  /// into which gradients can flow (not a mask that is compared with 0, or a shape). Single
  /// numbers, and what Constant nodes hold, are constants.
  struct weight {
    std::string name;
    troupe::shape shape;
    /// Why it is not trained, for people; empty: it is (onnx_roles).
    std::string stays = {};
    /// State: a running mean or variance of a batch normalization that is in training mode; the
    /// share of the new in an update.
    std::optional<double> decay = std::nullopt;
  };

  /// Parses a model.
  /// @param name what errors call it, usually the path
  /// @throws input_error: not an ONNX model; operator sets older or newer than are known here;
  /// tensors whose length does not fit their shape, of unknown types, stored in other files; names
  /// that are missing, defined twice or used before they are defined (cycles)
  static onnx_model parse(std::span<const std::byte> bytes, std::string name);

  /// The same, for a structure (see below), whose weights have shapes alone.
  static onnx_model parse_structure(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const noexcept { return name_; }
  /// Tensors with values, in the order of the file.
  const std::vector<weight>& weights() const noexcept { return weights_; }
  /// The model without the values of its weights, for other nodes.
  std::string structure() const;
  /// The values of the weights, in the order of `parameters`, whose tensors are those of
  /// weights(). The model must not be a structure.
  std::vector<float> values(const layout& parameters) const;

  const onnx::ModelProto& proto() const noexcept { return *proto_; }
  /// Version of the operator set, 1 to 21.
  std::int64_t version() const noexcept { return version_; }
  bool is_weight(std::string_view name) const { return weight_names_.contains(name); }
  /// Most elements of a tensor that is computed from constants of the model: the model's size in
  /// bytes, or at least 65,536.
  std::size_t constant_limit() const noexcept { return constant_limit_; }

private:
  onnx_model() = default;
  static onnx_model parse(std::span<const std::byte> bytes, std::string name, bool without_values);
  void check_operator_sets();
  void find_weights();
  void check_tensors(bool without_values) const;
  void check_names() const;

  std::string name_;
  std::shared_ptr<onnx::ModelProto> proto_;
  std::vector<weight> weights_;
  std::set<std::string, std::less<>> weight_names_;
  std::int64_t version_ = 0;
  std::size_t constant_limit_ = 0;
};

/// Whether the node was written for training: a batch normalization that measures the batch.
bool measures_batch(const onnx::NodeProto& node, std::int64_t version);

} // namespace troupe
