#include "kernels/text.hpp"

#include <array>
#include <charconv>

namespace troupe {

namespace {

template <class T>
std::string shortest(T x) {
  std::array<char, 32> buffer{};
  return {buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), x).ptr};
}

/// `name` is a function from an extent to its text.
template <class T, class F>
std::string listed(std::span<const T> extents, F name) {
  std::string result = "(";
  for (const auto extent : extents)
    result += (result.size() > 1 ? ", " : "") + name(extent);
  return result + ")";
}

} // namespace

std::string number_text(float x) {
  return shortest(x);
}

std::string number_text(double x) {
  return shortest(x);
}

std::string shape_text(std::span<const std::int64_t> extents) {
  return listed(extents, [](std::int64_t x) { return x < 0 ? "batch" : std::to_string(x); });
}

std::string shape_text(std::span<const std::uint64_t> extents) {
  return listed(extents, [](std::uint64_t x) { return std::to_string(x); });
}

} // namespace troupe
