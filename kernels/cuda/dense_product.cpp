#include "kernels/cuda/dense_product.hpp"

#include "kernels/cuda/conversions.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/movement.hpp"

#include <cstddef>

namespace troupe::cuda {

namespace {

/// Computes the product with an epilogue. Returns false if the device does not have this epilogue.
bool multiply_at_once(device& gpu, stream where, const dense_product& x, void* space) {
  auto fused = x.what;
  fused.bias = x.bias;
  fused.after = x.last.after;
  // cublasLt accepts only a bias of the same type as the result.
  const bool rounds = x.bias != nullptr && is_narrow(fused.result);
  if (rounds)
    fused.bias = space;
  if (!gpu.fuses(fused))
    return false;
  if (rounds) {
    const converted bias[] = {{x.bias, dtype::float32, space, fused.result, fused.n}};
    convert(where, bias);
  }
  gpu.multiply(where, fused);
  return true;
}

/// A matrix of a product, as it is stored.
struct stored_matrix {
  std::size_t rows, columns;
  dtype type;

  std::size_t padded_columns() const {
    const auto unit = row_bytes / size_of(type);
    return (columns + unit - 1) / unit * unit;
  }
  std::size_t padded_bytes() const { return rows * padded_columns() * size_of(type); }
  /// True if a copy with aligned rows pays off. `uses` is how often the product reads or adds to
  /// each element.
  bool needs_padding(std::size_t uses) const {
    constexpr std::size_t least = 256;
    return is_narrow(type) && columns != padded_columns() && columns >= least && uses >= least;
  }

  static constexpr std::size_t row_bytes = 16;
};

/// The padded copies of the matrices of a product, one after the other in the work space.
class padded_product {
public:
  explicit padded_product(const product& x)
    : x_(x), a_{x.transpose_a ? x.k : x.m, x.transpose_a ? x.m : x.k, x.operands},
      b_{x.transpose_b ? x.n : x.k, x.transpose_b ? x.k : x.n, x.operands}, c_{x.m, x.n, x.result},
      pads_a_(x.batch == 1 && a_.needs_padding(x.n)),
      pads_b_(x.batch == 1 && b_.needs_padding(x.m)),
      pads_c_(x.batch == 1 && c_.needs_padding(x.k)) {}

  std::size_t bytes() const {
    return (pads_a_ ? a_.padded_bytes() : 0) + (pads_b_ ? b_.padded_bytes() : 0)
      + (pads_c_ ? c_.padded_bytes() : 0);
  }

  void multiply(device& gpu, stream where, void* space) const {
    auto* free = static_cast<std::byte*>(space);
    auto padded = x_;
    if (pads_a_) {
      padded.a = pad(where, a_, x_.a, free);
      padded.lead_a = a_.padded_columns();
      free += a_.padded_bytes();
    }
    if (pads_b_) {
      padded.b = pad(where, b_, x_.b, free);
      padded.lead_b = b_.padded_columns();
      free += b_.padded_bytes();
    }
    if (pads_c_) {
      padded.c = free;
      padded.lead_c = c_.padded_columns();
    }
    gpu.multiply(where, padded);
    if (pads_c_)
      copy_rows(
        where,
        {c_.rows, c_.columns, {free, c_.type}, c_.padded_columns(), {x_.c, c_.type}, c_.columns});
  }

private:
  static void* pad(stream where, const stored_matrix& x, const void* from, void* to) {
    copy_rows(where,
              {x.rows, x.columns, {from, x.type}, x.columns, {to, x.type}, x.padded_columns()});
    return to;
  }

  const product& x_;
  stored_matrix a_, b_, c_;
  bool pads_a_, pads_b_, pads_c_;
};

} // namespace

std::size_t product_space(const product& what, bool has_end) noexcept {
  if (has_end)
    return is_narrow(what.result) ? what.batch * what.m * what.n * sizeof(float) : 0;
  return padded_product(what).bytes();
}

void multiply(device& gpu, stream where, const dense_product& x, void* space) {
  const bool ends = x.bias != nullptr || x.last.after != operation::end;
  if (ends && multiply_at_once(gpu, where, x, space))
    return;
  if (!ends) {
    padded_product(x.what).multiply(gpu, where, space);
    return;
  }
  auto plain = x.what;
  if (is_narrow(plain.result)) {
    plain.c = space;
    plain.result = dtype::float32;
  }
  gpu.multiply(where, plain);
  finish(where,
         {plain.batch * plain.m * plain.n,
          plain.n,
          1,
          static_cast<const float*>(plain.c),
          x.bias,
          x.last,
          {x.what.c, x.what.result}});
}

void finish(stream where, const product_end& x) {
  if (x.bias != nullptr) {
    by_channel(
      where, channel_operation::add,
      {x.n, x.channels, x.inner, x.x, x.bias, x.last, x.out.data, dtype::float32, x.out.type});
  } else if (x.last.after != operation::end) {
    const mixed_input first{x.x};
    const mixed_input inputs[] = {
      first, x.last.operand != nullptr ? mixed_input{x.last.operand, x.last.type} : first};
    const element_step program[] = {{x.last.after, 0, 1, 1, 2}};
    elementwise(where, program, x.n, inputs, 0, x.out);
  }
}

} // namespace troupe::cuda
