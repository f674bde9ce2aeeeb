#include "apps/troupe/bench/gpu_values.hpp"

#include "kernels/cpu/conversions.hpp"
#include "kernels/random.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace troupe::bench {

namespace {

std::vector<std::byte> in_type(dtype type, std::span<const float> x) {
  std::vector<std::byte> result(x.size() * size_of(type));
  if (is_narrow(type))
    cpu::narrow(type, x.size(), x.data(), result.data());
  else
    std::memcpy(result.data(), x.data(), result.size());
  return result;
}

std::vector<float> in_float(dtype type, std::size_t n, const std::byte* x) {
  std::vector<float> result(n);
  if (is_narrow(type))
    cpu::widen(type, n, x, result.data());
  else
    std::memcpy(result.data(), x, n * sizeof(float));
  return result;
}

} // namespace

std::vector<float> random_pattern(std::size_t n, std::string_view name, dtype type) {
  random_stream random{1, name};
  std::vector<float> result(n);
  for (auto& x : result)
    x = static_cast<float>(random.uniform(-1, 1));
  return is_narrow(type) ? in_float(type, n, in_type(type, result).data()) : result;
}

gpu_values::gpu_values(cuda::device& gpu, std::size_t n, dtype type)
  : gpu_(&gpu), size_(n), type_(type), memory_(gpu, n * size_of(type)) {}

void gpu_values::fill(std::span<const float> pattern) {
  const auto where = gpu_->main_stream();
  const auto bytes = in_type(type_, pattern.first(std::min(pattern.size(), size_)));
  gpu_->copy_in(where, memory_.data(), bytes.data(), bytes.size());
  // Each copy doubles the part of the memory that has the pattern.
  for (auto filled = bytes.size(); filled < memory_.size(); filled *= 2)
    gpu_->copy_inside(where, memory_.data() + filled, memory_.data(),
                      std::min(filled, memory_.size() - filled));
  gpu_->synchronize(where);
}

std::vector<float> gpu_values::read(std::size_t first, std::size_t n) const {
  const auto where = gpu_->main_stream();
  const auto each = size_of(type_);
  std::vector<std::byte> bytes(n * each);
  gpu_->copy_out(where, bytes.data(), memory_.data() + first * each, bytes.size());
  gpu_->synchronize(where);
  return in_float(type_, n, bytes.data());
}

std::string gpu_values::differs(std::span<const float> pattern, double absolute, double relative,
                                std::size_t first, std::size_t n) const {
  n = std::min(n, size_ - first);
  const auto period = pattern.size();
  const auto last = (n - 1) / period * period;
  for (const auto begin : {std::size_t{0}, n / 2 / period * period, last}) {
    const auto actual = read(first + begin, std::min(period, n - begin));
    for (std::size_t i = 0; i < actual.size(); ++i) {
      const auto expected = static_cast<double>(pattern[i]);
      const auto difference = std::abs(static_cast<double>(actual[i]) - expected);
      if (!(difference <= absolute + relative * std::abs(expected)))
        return fmt::format("element {} is {}; expected {}", begin + i, actual[i], expected);
    }
  }
  return {};
}

} // namespace troupe::bench
