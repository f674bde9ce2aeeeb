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

/// How training treats a parameter. Trainable parameters have gradients and are optimized. State,
/// such as the running statistics of batch normalization, follows the statistics of batches. Frozen
/// parameters keep their values, bit for bit: they have no gradient (their part of the flat
/// gradient is zero), and neither the optimizer nor its weight decay changes them.
///
/// In the flat gradient of a batch, the range of a state tensor contains samples * statistic.
/// Adding up the gradients of workers then weights each statistic by its samples. An update with
/// such a sum makes w' = w + decay * (sum / samples - w): a running mean of the mean over workers,
/// weighted by samples. The optimizer, learning rate, weight decay and clipping do not apply to it.
///
/// For a variance, this is the mean of the variances *within* the workers' batches. It does not
/// include the differences between the means of these batches, so it is smaller than the variance
/// of the joint batch by the variance of these means. It matches the variances with which the
/// workers normalized.
enum class parameter_kind : std::uint8_t { trainable, state, frozen };

/// "trainable", "state", "frozen".
std::string_view to_string(parameter_kind kind) noexcept;

/// A tensor of the flat parameter vector.
struct layout_entry {
  std::string name;
  troupe::shape shape;
  dtype type = dtype::float32;
  parameter_kind kind = parameter_kind::trainable;
  initializer initial;
  /// First element in the flat vector, and number of elements.
  std::size_t offset = 0;
  std::size_t size = 0;

  /// For state: the weight of the new value in an update.
  double decay = 0.1;

  range elements() const noexcept { return {offset, offset + size}; }
  bool operator==(const layout_entry&) const = default;
};

/// The layout table: the position of each tensor of a model in its flat float32 parameter vector.
/// Tensors follow each other without gaps, in the order in which they were added (from the input to
/// the output of the model). Shards, buckets, segments and codecs are ranges of this vector.
class layout {
public:
  /// Appends a tensor. Throws input_error if the name is empty or taken, or if the shape is
  /// symbolic.
  const layout_entry& add(std::string name, shape dims, initializer initial = {},
                          parameter_kind kind = parameter_kind::trainable, double decay = 0.1);

  /// Number of elements in the flat vector.
  std::size_t size() const noexcept { return size_; }
  const std::vector<layout_entry>& entries() const noexcept { return entries_; }
  /// The entry with this name, or nullptr.
  const layout_entry* find(std::string_view name) const noexcept;
  /// Position in entries() of the tensor that contains element `offset`. Requires offset < size().
  std::size_t entry_at(std::size_t offset) const noexcept;

  bool operator==(const layout&) const = default;

private:
  std::vector<layout_entry> entries_;
  std::size_t size_ = 0;
};

/// One line per tensor: name, shape, dtype, kind, offset.
std::string to_string(const layout& x);

/// The first difference between two layouts in words ("tensor 2: dense_2.weight (10, 128) here,
/// (10, 64) there"), or nothing.
std::optional<std::string> first_difference(const layout& here, const layout& there);

} // namespace troupe
