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

/// How training treats a parameter: trainable ones have gradients and are optimized; state, such as
/// the running statistics of batch normalization, follows what batches measure; frozen ones keep
/// their values, bit for bit: they have no gradient (zeros in the flat gradient of a batch), and
/// neither the optimizer nor its weight decay changes them.
///
/// In the flat gradient of a batch, the range of a state tensor holds samples * statistic, so that
/// adding up the gradients of workers weights each statistic by its samples. An update with such a
/// sum makes w' = w + decay * (sum / samples - w): a running mean of the mean over workers,
/// weighted by samples. The optimizer, learning rate, weight decay and clipping do not apply to it.
///
/// For a variance, this is the mean of the variances *within* the batches of the workers. It
/// ignores how much their means differ, and is smaller than the variance of the joint batch by the
/// variance of these means. It matches the batches with which each worker normalized.
enum class parameter_kind : std::uint8_t { trainable, state, frozen };

/// "trainable", "state", "frozen".
std::string_view to_string(parameter_kind kind) noexcept;

/// One tensor of the flat parameter vector.
struct layout_entry {
  std::string name;
  troupe::shape shape;
  dtype type = dtype::float32;
  parameter_kind kind = parameter_kind::trainable;
  initializer initial;
  /// First element within the flat vector, and the number of elements.
  std::size_t offset = 0;
  std::size_t size = 0;

  /// State: the share of the new in an update.
  double decay = 0.1;

  range elements() const noexcept { return {offset, offset + size}; }
  bool operator==(const layout_entry&) const = default;
};

/// The layout table: the position of each tensor of a model in its flat float32 parameter vector.
/// Tensors follow each other without gaps, in the order in which they were added (from the input to
/// the output of the model). Shards, buckets, segments and codecs are ranges of that vector.
class layout {
public:
  /// Appends a tensor. Throws input_error for a name that is empty or taken, and for a symbolic
  /// shape.
  const layout_entry& add(std::string name, shape dims, initializer initial = {},
                          parameter_kind kind = parameter_kind::trainable, double decay = 0.1);

  /// Elements of the flat vector.
  std::size_t size() const noexcept { return size_; }
  const std::vector<layout_entry>& entries() const noexcept { return entries_; }
  /// The entry of that name, or nullptr.
  const layout_entry* find(std::string_view name) const noexcept;
  /// Position in entries() of the tensor that holds element `offset`. Requires offset < size().
  std::size_t entry_at(std::size_t offset) const noexcept;

  bool operator==(const layout&) const = default;

private:
  std::vector<layout_entry> entries_;
  std::size_t size_ = 0;
};

/// One line per tensor: name, shape, dtype, kind, offset.
std::string to_string(const layout& x);

/// The first difference of two layouts in words ("tensor 2: dense_2.weight (10, 128) here, (10, 64)
/// there"), or nothing.
std::optional<std::string> first_difference(const layout& here, const layout& there);

} // namespace troupe
