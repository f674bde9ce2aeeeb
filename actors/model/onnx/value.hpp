#pragma once

#include "actors/model/onnx/constant.hpp"
#include "kernels/graph/graph.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace troupe {

/// The value of a name while an ONNX model is imported: a constant, or a tensor of the graph.
/// Internal to the sources named onnx_*.
///
/// The graph always has the batch in front. ONNX may have it elsewhere (recurrent operators have
/// the time first): `batch_at` says which of ONNX's dimensions the batch is. The others follow in
/// ONNX's order. Without a batch, both orders are the same.
struct onnx_value {
  /// Null for a tensor of the graph.
  std::shared_ptr<const onnx_constant> known;
  expression x;
  std::size_t batch_at = 0;

  onnx_value() = default;
  onnx_value(onnx_constant constant)
    : known(std::make_shared<const onnx_constant>(std::move(constant))) {}
  onnx_value(expression tensor, std::size_t batch = 0) : x(tensor), batch_at(batch) {}

  bool has_batch() const noexcept { return !known && x.shape().has_batch(); }
  /// The dimensions in ONNX's order; the batch is onnx_constant::batch.
  std::vector<std::int64_t> dims() const;
  std::size_t rank() const { return known ? known->dims.size() : x.shape().rank(); }
  /// The dimension of the graph's tensor that is ONNX's dimension `axis`.
  std::size_t graph_axis(std::size_t axis) const;
};

/// The same dimensions in the order of the graph.
shape in_graph_order(const std::vector<std::int64_t>& dims, std::size_t batch_at);

/// A constant becomes a tensor of the graph; a tensor is returned unchanged. Throws input_error for
/// integers.
expression to_tensor(const onnx_value& v, graph& g);

/// The tensor repeated along dimensions of extent 1, as NumPy does; both shapes have the same rank.
/// Throws input_error if the result is not of shape `dims`.
expression expand(expression x, const shape& dims);

/// The shape to which two shapes of the same rank are broadcast. Throws input_error.
shape common_shape(const shape& a, const shape& b);

/// Two operands with the same rank and the batch in the same place.
struct onnx_operands {
  expression a;
  expression b;
  std::size_t batch_at = 0;
};

/// Adds dimensions of extent 1 in front of the shorter one, as NumPy does. Throws input_error if
/// both have a batch in different places, or if one has more than one element in place of the
/// other's batch.
onnx_operands aligned(const onnx_value& a, const onnx_value& b, graph& g);

enum class arithmetic : std::uint8_t { add, subtract, multiply, divide, maximum, minimum };

/// a + b, a - b, and so on, with NumPy's broadcasting. An operation on two constants is computed at
/// once. The addition of a bias and the product with a factor become the graph's operations for
/// these cases.
onnx_value combine(arithmetic how, const onnx_value& a, const onnx_value& b, graph& g,
                   std::size_t limit);

/// f of each pair of elements of two constants, broadcast. Throws input_error where shapes do not
/// fit or the result has more than `limit` elements.
onnx_constant combine(const onnx_constant& a, const onnx_constant& b,
                      const std::function<double(double, double)>& f, std::size_t limit);

} // namespace troupe
