#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace troupe {

/// The extents of a tensor in row-major order: the last dimension is contiguous. `shape{}` is a
/// scalar.
///
/// Dimension 0 of per-sample tensors is `shape::batch`. It is symbolic when a graph is built, and
/// becomes the number of rows when the graph runs. No other dimension may be symbolic.
class shape {
public:
  /// The symbolic number of samples (rows) of a run.
  static constexpr std::int64_t batch = -1;

  shape() = default;
  /// Throws input_error if an extent is negative, or if there are more than 2^48 elements. The
  /// first extent may be `batch`.
  shape(std::initializer_list<std::int64_t> extents);
  explicit shape(std::vector<std::int64_t> extents);

  std::size_t rank() const noexcept { return extents_.size(); }
  std::int64_t operator[](std::size_t axis) const { return extents_[axis]; }
  const std::vector<std::int64_t>& extents() const noexcept { return extents_; }
  /// Extent of the last dimension. 1 for a scalar.
  std::int64_t last() const noexcept { return extents_.empty() ? 1 : extents_.back(); }

  /// True for per-sample tensors.
  bool has_batch() const noexcept { return !extents_.empty() && extents_[0] == batch; }
  /// Number of elements in a run of `rows` samples. `rows` matters only if has_batch().
  std::size_t elements(std::size_t rows = 1) const noexcept;

  bool operator==(const shape&) const = default;

private:
  std::vector<std::int64_t> extents_;
};

/// For example "(batch, 784)", or "()" for a scalar.
std::string to_string(const shape& x);

} // namespace troupe
