#pragma once

#include "actors/model/onnx/constant.hpp"
#include "kernels/graph/graph.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace troupe {

/// A value with a name during the import of an ONNX model: a constant, or a tensor of the graph.
/// Internal to actors/model/onnx.
///
/// The graph always has the batch in front. ONNX may have it elsewhere (in recurrent operators,
/// time comes first): `batch_at` is the position of the batch among ONNX's dimensions. In the
/// graph, all other dimensions follow the batch in ONNX's order. Without a batch, both orders are
/// the same.
struct onnx_value {
  /// Null if the value is a tensor of the graph.
  std::shared_ptr<const onnx_constant> known;
  expression x;
  /// The position of the batch among ONNX's dimensions; 0 if there is no batch.
  std::size_t batch_at = 0;
  /// Not empty if the model merges the batch with other dimensions into one, as exporters do in
  /// attention: (batch * heads, time, features). x then still has separate dimensions: (1, batch,
  /// heads, time, features). Entry i is the number of separate dimensions in ONNX's dimension i:
  /// {3, 1, 1}. batch_at is the position of the batch among the separate dimensions.
  std::vector<std::size_t> merged = {};
  /// The tensors, if the value is a sequence (SplitToSequence); the other members are then unused.
  /// Null for any other value.
  std::shared_ptr<const std::vector<onnx_value>> items = {};
  /// Not null if each element is a function of the token at the same position (tokens.cpp).
  std::shared_ptr<const struct onnx_of_tokens> of_tokens = {};
  /// True for a tensor of the graph whose elements are truth values, 0 or 1. (A constant knows its
  /// type.)
  bool is_truth = false;
  /// For a constant: its tensor in the graph. It is not valid() until to_tensor() makes it. Copies
  /// of this onnx_value share it, so the graph holds the elements once.
  std::shared_ptr<expression> made = {};

  onnx_value() = default;
  onnx_value(onnx_constant constant)
    : known(std::make_shared<const onnx_constant>(std::move(constant))),
      made(std::make_shared<expression>()) {
    for (std::size_t i = 0; i < known->dims.size(); ++i)
      batch_at = known->dims[i] == onnx_constant::batch ? i : batch_at;
  }
  onnx_value(expression tensor, std::size_t batch = 0) : x(tensor), batch_at(batch) {}

  /// True for a tensor of the graph with a batch. (In a constant, all samples are equal.)
  bool has_batch() const noexcept { return !known && x.shape().has_batch(); }
  /// The dimensions in ONNX's order. The batch is onnx_constant::batch.
  std::vector<std::int64_t> dims() const;
  std::size_t rank() const { return known ? known->dims.size() : x.shape().rank(); }
  /// The dimension of the graph's tensor that corresponds to ONNX's dimension `axis`.
  std::size_t graph_axis(std::size_t axis) const;
};

/// An element-wise computation on a model's tokens, before the model looks up rows of a table.
/// Keras, for example, adds the size of the table to negative tokens.
struct onnx_of_tokens {
  expression tokens;
  std::function<double(double)> of;
  onnx_constant::kind type = onnx_constant::kind::integer;
  /// The same values as a tensor of real numbers. Truth values are 0 or 1. Whole numbers are exact
  /// up to 2^24.
  expression real = {};
};

/// True if the value consists of whole numbers that are computed from the tokens. Most operators
/// cannot read it: they would compute with real numbers, but a division, for example, rounds.
bool is_only_of_tokens(const onnx_value& v) noexcept;

/// v with its dimensions separate, not merged.
onnx_value unfolded(onnx_value v);

/// The extents in ONNX's order, as elements of an ONNX shape. An extent that includes the batch is
/// a multiple of onnx_constant::batch_size. Merged dimensions are one extent.
std::vector<double> extents_of(const onnx_value& v);

/// Brings dimensions from ONNX's order into the order of the graph, which has the batch in front.
shape in_graph_order(const std::vector<std::int64_t>& dims, std::size_t batch_at);

/// Turns a constant into a tensor of the graph (see onnx_value::made). Returns a tensor of the
/// graph unchanged. Throws input_error for a constant of whole numbers or truth values.
expression to_tensor(const onnx_value& v, graph& g);

/// Like the function above, with the position of the batch.
onnx_value as_tensor(const onnx_value& v, graph& g);

/// Repeats the tensor along dimensions of extent 1, as NumPy does. Both shapes have the same rank.
/// Throws input_error if the result does not have the shape `dims`.
expression expand(expression x, const shape& dims);

/// The shape to which two shapes of the same rank broadcast. Throws input_error if they do not fit.
shape common_shape(const shape& a, const shape& b);

/// Two operands of the same rank, with the batch at the same position.
struct onnx_operands {
  expression a;
  expression b;
  std::size_t batch_at = 0;
};

/// Adds dimensions of extent 1 in front of the operand with the lower rank, as NumPy does. Throws
/// input_error if both operands have a batch at different positions, or if one operand has more
/// than one element along the batch dimension of the other operand.
onnx_operands aligned(const onnx_value& a, const onnx_value& b, graph& g);

enum class arithmetic : std::uint8_t { add, subtract, multiply, divide, maximum, minimum };

/// Computes a + b, a - b, and so on, with NumPy's broadcasting. If both are constants, the result
/// is computed at once. For a bias or a factor, the graph's special operations are used.
onnx_value combine(arithmetic how, const onnx_value& a, const onnx_value& b, graph& g,
                   std::size_t limit);

/// a + b, a - b and so on, for whole numbers or multiples of onnx_constant::batch_size (a
/// placeholder for the number of samples). If the result is neither of these, it is NaN (unknown).
double combine_whole(arithmetic how, double a, double b);

/// Applies f to each pair of elements of two constants, with broadcasting. Throws input_error if
/// the shapes do not fit or the result has more than `limit` elements.
onnx_constant combine(const onnx_constant& a, const onnx_constant& b,
                      const std::function<double(double, double)>& f, std::size_t limit);

} // namespace troupe
