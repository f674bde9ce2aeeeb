#pragma once

#include "kernels/text.hpp"

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

/// A tensor whose value is known during the import of a model: a constant, a shape, or a value
/// computed from them. Internal to actors/model/onnx.
struct onnx_constant {
  enum class kind : std::uint8_t { real, integer, boolean };

  /// The extent of the batch dimension: the number of samples, which is known only at run time.
  static constexpr std::int64_t batch = -1;
  /// A placeholder for the number of samples in an integer tensor, such as a shape. The placeholder
  /// is larger than all 64-bit integers. k times the placeholder stands for k times the number of
  /// samples. If the number of samples cancels out, as in batch_size / batch_size = 1, the result
  /// is an ordinary number. Other results of arithmetic, for example batch_size + 1, are NaN, which
  /// means unknown.
  static constexpr double batch_size = 0x1p80;

  /// k if x is k times the number of samples, otherwise 0.
  static constexpr std::int64_t batches(double x) noexcept {
    const bool beyond = x >= 0x1p70 || x <= -0x1p70;
    const bool exact = x <= 0x1p120 && x >= -0x1p120;
    return beyond && exact ? static_cast<std::int64_t>(x / batch_size) : 0;
  }
  /// True if x is a known number.
  static constexpr bool is_number(double x) noexcept { return x < 0x1p70 && x > -0x1p70; }

  kind type = kind::real;
  /// The extents; empty for a scalar. One extent may be the batch; the elements are then the same
  /// for each sample.
  std::vector<std::int64_t> dims;
  /// All elements of a sample, row-major, or a single element that is repeated.
  std::vector<double> values;

  bool uniform() const noexcept { return values.size() == 1; }
  double at(std::size_t i) const { return values[values.size() == 1 ? 0 : i]; }
  /// Product of the extents. The batch counts as 1.
  std::size_t elements() const;
};

/// Product of the extents. The batch counts as 1. Throws input_error above 2^48.
std::size_t count_elements(const std::vector<std::int64_t>& dims);

/// Product of the extents [begin, end). The batch counts as 1.
std::int64_t onnx_product(const std::vector<std::int64_t>& dims, std::size_t begin,
                          std::size_t end);

/// The extents, with 1 in place of the batch.
std::vector<std::int64_t> onnx_dims_of_a_sample(std::vector<std::int64_t> dims);

/// Checks that the data of a tensor match its shape, have a supported type, and are not stored in
/// another file. With `may_be_empty`, missing data is accepted.
/// @throws input_error "NAME: tensor ..."
void check_onnx_tensor(const onnx::TensorProto& x, std::string_view name, bool may_be_empty);

/// The number of bytes that the elements of a tensor take. Throws input_error "NAME: tensor ..."
/// for an unknown type, a negative extent, or more than 2^48 elements.
std::uint64_t onnx_raw_bytes(const onnx::TensorProto& x, std::string_view name);

/// True for the types of real numbers: FLOAT, FLOAT16, BFLOAT16 and DOUBLE.
/// @param data_type a TensorProto::DataType
bool is_onnx_real(int data_type) noexcept;

/// Reads the values of a tensor that has been checked.
onnx_constant read_onnx_tensor(const onnx::TensorProto& x);

/// An element as an integer. Values beyond 64 bits become the largest or smallest integer; NaN
/// becomes the smallest.
std::int64_t onnx_integer(double x) noexcept;

} // namespace troupe
