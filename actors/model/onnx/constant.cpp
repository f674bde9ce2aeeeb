#include "actors/model/onnx/constant.hpp"

#include "kernels/error.hpp"
#include "kernels/narrow_float.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace troupe {

namespace {

using onnx::TensorProto;

constexpr std::uint64_t most_elements = std::uint64_t{1} << 48;

std::size_t raw_size(int type) {
  switch (type) {
  case TensorProto::BOOL:
    return 1;
  case TensorProto::FLOAT16:
  case TensorProto::BFLOAT16:
    return 2;
  case TensorProto::FLOAT:
  case TensorProto::INT32:
    return 4;
  case TensorProto::DOUBLE:
  case TensorProto::INT64:
    return 8;
  default:
    return 0;
  }
}

/// The number of elements in the typed field of the tensor (such as float_data). A tensor stores
/// its elements in this field if it has no raw bytes.
int typed_count(const TensorProto& x) {
  switch (x.data_type()) {
  case TensorProto::FLOAT:
    return x.float_data_size();
  case TensorProto::DOUBLE:
    return x.double_data_size();
  case TensorProto::INT64:
    return x.int64_data_size();
  default:
    return x.int32_data_size();
  }
}

double typed_value(const TensorProto& x, int i) {
  switch (x.data_type()) {
  case TensorProto::FLOAT16:
    return double{widened(float16{static_cast<std::uint16_t>(x.int32_data(i))})};
  case TensorProto::BFLOAT16:
    return double{widened(bfloat16{static_cast<std::uint16_t>(x.int32_data(i))})};
  case TensorProto::FLOAT:
    return x.float_data(i);
  case TensorProto::DOUBLE:
    return x.double_data(i);
  case TensorProto::INT64:
    return static_cast<double>(x.int64_data(i));
  default:
    return x.int32_data(i);
  }
}

template <class T>
T bits_at(const char* from) {
  static_assert(std::endian::native == std::endian::little, "raw data are little-endian");
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
double load(const char* from) {
  return static_cast<double>(bits_at<T>(from));
}

double raw_value(const TensorProto& x, std::size_t i) {
  const char* from = x.raw_data().data() + i * raw_size(x.data_type());
  switch (x.data_type()) {
  case TensorProto::FLOAT16:
    return double{widened(bits_at<float16>(from))};
  case TensorProto::BFLOAT16:
    return double{widened(bits_at<bfloat16>(from))};
  case TensorProto::FLOAT:
    return load<float>(from);
  case TensorProto::DOUBLE:
    return load<double>(from);
  case TensorProto::INT64:
    return load<std::int64_t>(from);
  case TensorProto::INT32:
    return load<std::int32_t>(from);
  default:
    return *from != 0 ? 1 : 0;
  }
}

std::vector<std::int64_t> dims_of(const TensorProto& x) {
  return {x.dims().begin(), x.dims().end()};
}

} // namespace

std::size_t count_elements(const std::vector<std::int64_t>& dims) {
  // An extent of 0 makes the product 0. The tensor is then not refused, even if other extents are
  // large.
  for (const auto extent : dims)
    if (extent == 0)
      return 0;
  std::uint64_t result = 1;
  for (const auto extent : dims) {
    if (extent == onnx_constant::batch)
      continue;
    if (extent < 0 || static_cast<std::uint64_t>(extent) > most_elements / result)
      throw input_error("a tensor of shape " + shape_text(dims)
                        + " has a negative extent, or more than 2^48 elements");
    result *= static_cast<std::uint64_t>(extent);
  }
  return result;
}

std::int64_t onnx_product(const std::vector<std::int64_t>& dims, std::size_t begin,
                          std::size_t end) {
  std::int64_t result = 1;
  for (auto i = begin; i < end; ++i)
    result *= dims[i] == onnx_constant::batch ? 1 : dims[i];
  return result;
}

std::vector<std::int64_t> onnx_dims_of_a_sample(std::vector<std::int64_t> dims) {
  std::ranges::replace(dims, onnx_constant::batch, std::int64_t{1});
  return dims;
}

std::size_t onnx_constant::elements() const {
  return count_elements(dims);
}

namespace {

[[noreturn]] void refuse(const TensorProto& x, std::string_view name, const std::string& what) {
  throw input_error(std::string{name} + ": tensor \"" + x.name() + "\" " + what);
}

std::size_t elements_of(const TensorProto& x, std::string_view name) {
  if (raw_size(x.data_type()) == 0)
    refuse(x, name,
           "has elements of the type "
             + (TensorProto::DataType_IsValid(x.data_type())
                  ? TensorProto::DataType_Name(static_cast<TensorProto::DataType>(x.data_type()))
                  : std::to_string(x.data_type()))
             + "; known are FLOAT, FLOAT16, BFLOAT16, DOUBLE, INT64, INT32 and BOOL");
  for (const auto extent : x.dims())
    if (extent < 0)
      refuse(x, name, "has the negative extent " + std::to_string(extent));
  try {
    return count_elements(dims_of(x));
  } catch (const input_error&) {
    refuse(x, name, "of shape " + shape_text(dims_of(x)) + " has more than 2^48 elements");
  }
}

} // namespace

std::uint64_t onnx_raw_bytes(const TensorProto& x, std::string_view name) {
  return std::uint64_t{elements_of(x, name)} * raw_size(x.data_type());
}

void check_onnx_tensor(const TensorProto& x, std::string_view name, bool may_be_empty) {
  if (x.data_location() == TensorProto::EXTERNAL || x.external_data_size() > 0)
    refuse(x, name, "is stored in another file; save the model as one file");
  const auto elements = elements_of(x, name);
  const auto size = raw_size(x.data_type());
  const std::size_t found =
    x.has_raw_data() ? x.raw_data().size() / size : static_cast<std::size_t>(typed_count(x));
  const bool whole = !x.has_raw_data() || x.raw_data().size() % size == 0;
  const bool empty = may_be_empty && found == 0 && whole;
  if (!empty && (found != elements || !whole))
    refuse(x, name,
           "of shape " + shape_text(dims_of(x)) + " needs " + std::to_string(elements)
             + " elements, but the file holds "
             + (x.has_raw_data() ? std::to_string(x.raw_data().size()) + " bytes, with "
                    + std::to_string(size) + " per element"
                                 : std::to_string(found)));
}

bool is_onnx_real(int type) noexcept {
  return type == TensorProto::FLOAT || type == TensorProto::FLOAT16 || type == TensorProto::BFLOAT16
    || type == TensorProto::DOUBLE;
}

onnx_constant read_onnx_tensor(const TensorProto& x) {
  onnx_constant result;
  const auto type = x.data_type();
  if (type == TensorProto::BOOL)
    result.type = onnx_constant::kind::boolean;
  else if (type == TensorProto::INT32 || type == TensorProto::INT64)
    result.type = onnx_constant::kind::integer;
  result.dims = dims_of(x);
  const auto n = count_elements(result.dims);
  result.values.resize(n);
  for (std::size_t i = 0; i < n; ++i)
    result.values[i] = x.has_raw_data() ? raw_value(x, i) : typed_value(x, static_cast<int>(i));
  return result;
}

std::int64_t onnx_integer(double x) noexcept {
  constexpr double limit = 9.2e18;
  if (!(x > -limit))
    return std::numeric_limits<std::int64_t>::min();
  return x < limit ? static_cast<std::int64_t>(x) : std::numeric_limits<std::int64_t>::max();
}

} // namespace troupe
