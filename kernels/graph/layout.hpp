#pragma once

#include "kernels/graph/dtype.hpp"
#include "kernels/graph/initializers.hpp"
#include "kernels/graph/shape.hpp"
#include "kernels/range.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// How training treats a parameter.
///
/// - Trainable: the parameter has a gradient, and the optimizer updates it.
/// - State, such as the running statistics of batch normalization: each update moves the parameter
///   towards a statistic of the batch.
/// - Frozen: the parameter keeps its value, bit for bit. It has no gradient (its part of the flat
///   gradient is zero), and neither the optimizer nor its weight decay changes it.
///
/// State is updated through the flat gradient of a batch: the range of a state tensor contains the
/// statistic times the number of samples of the worker. These products are added up over all
/// workers. Their sum, divided by the total number of samples, is the weighted mean of the workers'
/// statistics. An update computes w' = w + decay * (sum / samples - w), so the parameter is a
/// running mean of these weighted means. The optimizer, learning rate, weight decay and clipping do
/// not apply to state.
///
/// If each worker normalizes its own batch (channel_moments without `all_workers`), the state of a
/// variance follows the mean of the variances *within* the workers' batches. This mean is smaller
/// than the variance of the joint batch, by the variance of the means of the workers' batches. It
/// matches the variances with which the workers normalized.
enum class parameter_kind : std::uint8_t { trainable, state, frozen };

/// "trainable", "state", "frozen".
std::string_view to_string(parameter_kind kind) noexcept;

/// A tensor in the flat parameter vector.
struct layout_entry {
  std::string name;
  troupe::shape shape;
  dtype type = dtype::float32;
  parameter_kind kind = parameter_kind::trainable;
  initializer initial;
  /// Position of the first element in the flat vector, and number of elements.
  std::size_t offset = 0;
  std::size_t size = 0;

  /// For state: the weight of the new statistic in an update (see parameter_kind).
  double decay = 0.1;

  range elements() const noexcept { return {offset, offset + size}; }
  bool operator==(const layout_entry&) const = default;
};

/// The layout table: the position of each tensor of a model in its flat float32 parameter vector.
/// Tensors follow each other without gaps, in the order in which they were added (from the input to
/// the output of the model). Shards, buckets and segments are ranges of this vector.
class layout {
public:
  /// Appends a tensor. Throws input_error if the name is empty or already taken, or if the shape
  /// has a batch. The returned reference is valid until the next call.
  const layout_entry& add(std::string name, shape dims, initializer initial = {},
                          parameter_kind kind = parameter_kind::trainable, double decay = 0.1);

  /// Number of elements in the flat vector.
  std::size_t size() const noexcept { return size_; }
  const std::vector<layout_entry>& entries() const noexcept { return entries_; }
  /// The entry with this name. Null if no tensor has this name.
  const layout_entry* find(std::string_view name) const noexcept;
  /// Position in entries() of the tensor that contains element `offset`. Requires offset < size().
  std::size_t entry_at(std::size_t offset) const noexcept;

  bool operator==(const layout&) const = default;

private:
  std::vector<layout_entry> entries_;
  std::size_t size_ = 0;
};

/// One line per tensor: name, shape, dtype, kind, offset, initializer.
std::string to_string(const layout& x);

/// Describes the first tensor whose name, shape, dtype or kind differs between two layouts: "tensor
/// 2: dense_2.weight (10, 128) float32 trainable here, dense_2.weight (10, 64) float32 trainable
/// there". Returns nothing if all tensors are equal.
std::optional<std::string> first_difference(const layout& here, const layout& there);

} // namespace troupe
