#include "kernels/cuda/dense_product.hpp"

#include "kernels/cuda/conversions.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/movement.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace troupe::cuda {

namespace {

/// Computes the product with an epilogue. Returns false, and computes nothing, if the device does
/// not have this epilogue.
bool multiply_at_once(device& gpu, stream where, const dense_product& x, void* space) {
  auto fused = x.what;
  fused.bias = x.bias;
  if (x.last.after == operation::add && x.last.type == fused.result)
    fused.addend = x.last.operand;
  else
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

/// The sizes of a matrix as it is stored, that is, before it is transposed for a product.
struct stored_matrix {
  std::size_t rows, columns;

  std::size_t elements() const { return rows * columns; }
  bool operator==(const stored_matrix&) const = default;
};

/// A product of 16-bit matrices. A matrix whose rows are not a multiple of `unit` elements is first
/// copied to the work space, and padded with zeros there.
class padded_product {
public:
  explicit padded_product(const product& x) : given_(x), padded_(x) {
    if (!is_narrow(x.operands) || x.batch != 1)
      return;
    // Copies save time only if the product uses each element often.
    constexpr std::size_t least = 256;
    if (std::min({x.m, x.n, x.k}) < least)
      return;
    // cuBLAS uses its fast algorithms only if the rows of all matrices begin at aligned addresses,
    // and if k is a multiple of `unit`, too.
    padded_.k = rounded_up(x.k);
    if (is_narrow(x.result))
      padded_.n = rounded_up(x.n);
    else if (!x.transpose_b)
      padded_.lead_b = rounded_up(x.n);
    if (x.transpose_a)
      padded_.lead_a = rounded_up(x.m);
  }

  std::size_t bytes() const {
    std::size_t result = 0;
    for (const auto& [from, to] : {pair_a(), pair_b(), pair_c()})
      result += from == to ? 0 : bytes_of(to);
    return result;
  }

  void multiply(device& gpu, stream where, void* space) const {
    auto* free = static_cast<std::byte*>(space);
    auto x = padded_;
    const auto pad = [&](const pair& sizes, const void* data) -> const void* {
      if (sizes.from == sizes.to)
        return data;
      auto* const to = std::exchange(free, free + bytes_of(sizes.to));
      resize_matrix(
        where, {data, sizes.from.rows, sizes.from.columns, to, sizes.to.rows, sizes.to.columns});
      return to;
    };
    x.a = pad(pair_a(), x.a);
    x.b = pad(pair_b(), x.b);
    const auto [c, padded_c] = pair_c();
    if (c != padded_c)
      x.c = free;
    gpu.multiply(where, x);
    if (c != padded_c)
      resize_matrix(where, {x.c, padded_c.rows, padded_c.columns, given_.c, c.rows, c.columns});
  }

private:
  /// The sizes of a matrix and of its padded copy. They are equal if the matrix needs no copy.
  struct pair {
    stored_matrix from, to;
  };

  static constexpr std::size_t unit = 8;
  static std::size_t rounded_up(std::size_t x) { return (x + unit - 1) / unit * unit; }
  static std::size_t bytes_of(const stored_matrix& x) {
    return x.elements() * size_of(dtype::bfloat16);
  }
  static stored_matrix stored(bool transposed, std::size_t rows, std::size_t columns,
                              std::size_t lead) {
    if (transposed)
      std::swap(rows, columns);
    return {rows, lead > 0 ? lead : columns};
  }
  static stored_matrix a_of(const product& x) { return stored(x.transpose_a, x.m, x.k, x.lead_a); }
  static stored_matrix b_of(const product& x) { return stored(x.transpose_b, x.k, x.n, x.lead_b); }
  pair pair_a() const { return {a_of(given_), a_of(padded_)}; }
  pair pair_b() const { return {b_of(given_), b_of(padded_)}; }
  pair pair_c() const { return {{given_.m, given_.n}, {padded_.m, padded_.n}}; }

  const product& given_;
  product padded_;
};

} // namespace

std::size_t product_space(const product& what, bool has_end) noexcept {
  const auto bias = has_end && is_narrow(what.result) ? what.n * size_of(what.result) : 0;
  return std::max(bias, padded_product(what).bytes());
}

void multiply(device& gpu, stream where, const dense_product& x, void* space) {
  const auto& what = x.what;
  const padded_product padded(what);
  const bool ends = x.bias != nullptr || x.last.after != operation::end;
  if (ends && padded.bytes() == 0 && multiply_at_once(gpu, where, x, space))
    return;
  padded.multiply(gpu, where, space);
  finish(where,
         {what.batch * what.m * what.n,
          what.n,
          1,
          {what.c, what.result},
          x.bias,
          x.last,
          {what.c, what.result}});
}

void finish(stream where, const product_end& x) {
  if (x.bias != nullptr) {
    by_channel(
      where, channel_operation::add,
      {x.n, x.channels, x.inner, x.x.data, x.bias, x.last, x.out.data, x.x.type, x.out.type});
  } else if (x.last.after != operation::end) {
    const mixed_input inputs[] = {
      x.x, x.last.operand != nullptr ? mixed_input{x.last.operand, x.last.type} : x.x};
    const element_step program[] = {{x.last.after, 0, 1, 1, 2}};
    elementwise(where, program, x.n, inputs, 0, x.out);
  }
}

} // namespace troupe::cuda
