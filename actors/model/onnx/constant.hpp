#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace onnx {
class TensorProto;
}

namespace troupe {

/// A tensor that is known when a model is imported: constants, shapes, and values computed from
/// them. Internal to the sources named onnx_*.
struct onnx_constant {
  enum class kind : std::uint8_t { real, integer, boolean };

  /// As an extent: the number of samples, known at run time only.
  static constexpr std::int64_t batch = -1;
  /// As an element of an integer tensor: the same. Values computed from it are NaN: unknown.
  static constexpr double batch_size = std::numeric_limits<double>::infinity();

  kind type = kind::real;
  /// Row-major; empty for a scalar.
  std::vector<std::int64_t> dims;
  /// All elements, or one that is repeated for all.
  std::vector<double> values;

  bool uniform() const noexcept { return values.size() == 1; }
  double at(std::size_t i) const { return values[values.size() == 1 ? 0 : i]; }
  /// Product of the extents, the batch as 1.
  std::size_t elements() const;
};

/// Product of extents, the batch as 1. Throws input_error beyond 2^48.
std::size_t count_elements(const std::vector<std::int64_t>& dims);

/// Product of the extents [begin, end), which must not include the batch.
std::int64_t onnx_product(const std::vector<std::int64_t>& dims, std::size_t begin,
                          std::size_t end);

/// "(batch, 3)".
std::string onnx_dims_text(const std::vector<std::int64_t>& dims);

/// Throws input_error "NAME: tensor ..." unless the data are as long as the shape says, of a type
/// that is known here, and in the message itself. `may_be_empty`: without data, too.
void check_onnx_tensor(const onnx::TensorProto& x, std::string_view name, bool may_be_empty);

/// The values of a tensor that was checked.
onnx_constant read_onnx_tensor(const onnx::TensorProto& x);

/// An integer of a constant, cut to 64 bits.
std::int64_t onnx_integer(double x) noexcept;

} // namespace troupe
