#pragma once

#include "kernels/cuda/kernel.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>

namespace troupe::cuda {

/// Divides by a number that the host knows before the launch. Use it in loops over elements. GPUs
/// have no instruction for the division of integers: a division of 64 bits takes a call and about a
/// hundred instructions. This class needs only a product and a shift (Granlund and Montgomery 1994,
/// "Division by invariant integers using multiplication", figure 4.1). If the divisor and
/// the limit of the dividends are at most 2^31, the factors of the product have 32 bits,
/// otherwise 64. All threads use the same divider, so they take the same branch.
class divider {
public:
  divider() = default;
  /// @param divisor at most 2^63; 0 counts as 1, because kernels without elements may pass 0
  /// @param limit all dividends are less than this; at most 2^63
  divider(std::size_t divisor, std::size_t limit)
    : divisor_(divisor > 0 ? divisor : 1), short_(limit <= most_short && divisor_ <= most_short),
      shift_(static_cast<std::uint32_t>(std::bit_width(divisor_ - 1))) {
    // The factor is less than 2^width, because 2^shift is less than twice the divisor.
    __extension__ using wide = unsigned __int128;
    const auto width = short_ ? 32 : 64;
    const auto above = (wide{1} << shift_) - divisor_;
    factor_ = static_cast<std::uint64_t>((above << width) / divisor_ + 1);
  }

  struct result {
    std::size_t quotient, rest;
  };
  TROUPE_DEVICE result operator()(std::size_t x) const {
    const auto q = quotient(x);
    return {q, x - q * divisor_};
  }
  // The sums of `upper half of the product` + x do not overflow: the upper half is at most x, and x
  // is less than 2^31 (if short_ is true) or 2^63.
  TROUPE_DEVICE std::size_t quotient(std::size_t x) const {
    if (!short_)
      return (upper_half(x, factor_) + x) >> shift_;
    const auto n = static_cast<std::uint32_t>(x);
    const auto f = static_cast<std::uint32_t>(factor_);
    return (static_cast<std::uint32_t>((std::uint64_t{n} * f) >> 32) + n) >> shift_;
  }
  TROUPE_DEVICE std::size_t divisor() const { return divisor_; }

private:
  TROUPE_DEVICE static std::uint64_t upper_half(std::uint64_t a, std::uint64_t b) {
#ifdef __CUDACC__
    return __umul64hi(a, b);
#else
    __extension__ using wide = unsigned __int128;
    return static_cast<std::uint64_t>((wide{a} * b) >> 64);
#endif
  }

  static constexpr std::size_t most_short = std::size_t{1} << 31;

  std::size_t divisor_ = 1;
  std::uint64_t factor_ = 1;
  bool short_ = false;
  std::uint32_t shift_ = 0;
};

} // namespace troupe::cuda
