#include "kernels/graph/shape.hpp"

#include "kernels/error.hpp"
#include "kernels/text.hpp"

#include <utility>

namespace troupe {

namespace {

void check(const std::vector<std::int64_t>& extents) {
  constexpr auto limit = std::int64_t{1} << 48;
  std::int64_t product = 1;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const auto n = extents[i];
    if (n < 0 && !(i == 0 && n == shape::batch))
      throw input_error("a shape has the negative extent " + std::to_string(n) + " in dimension "
                        + std::to_string(i));
    if (n > 1 && product > limit / n)
      throw input_error("a shape has more than 2^48 elements");
    if (n > 1)
      product *= n;
  }
}

} // namespace

shape::shape(std::initializer_list<std::int64_t> extents) : extents_(extents) {
  check(extents_);
}

shape::shape(std::vector<std::int64_t> extents) : extents_(std::move(extents)) {
  check(extents_);
}

std::size_t shape::elements(std::size_t rows) const noexcept {
  std::size_t product = 1;
  for (auto n : extents_)
    product *= n == batch ? rows : static_cast<std::size_t>(n);
  return product;
}

std::string to_string(const shape& x) {
  return shape_text(x.extents());
}

} // namespace troupe
