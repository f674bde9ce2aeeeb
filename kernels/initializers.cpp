#include "kernels/initializers.hpp"

#include "kernels/layout.hpp"
#include "kernels/random.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace troupe {

namespace {

struct fans {
  double in = 1;
  double out = 1;
};

fans fans_of(const shape& dims) {
  const auto n = static_cast<double>(dims.elements());
  if (dims.rank() < 2)
    return {std::max(n, 1.0), std::max(n, 1.0)};
  return {std::max(n / std::max(static_cast<double>(dims[0]), 1.0), 1.0),
          std::max(n / std::max(static_cast<double>(dims[1]), 1.0), 1.0)};
}

/// Each element has a stream of its own, so that a slice costs no more than its size.
template <class Draw>
void fill(std::uint64_t key, range part, std::span<float> out, Draw draw) {
  for (std::size_t i = 0; i < part.size(); ++i) {
    random_stream stream(key, {part.begin + i});
    out[i] = static_cast<float>(draw(stream));
  }
}

} // namespace

std::string to_string(const initializer& x) {
  switch (x.how) {
  case initializer::kind::constant:
    return x.value == 0 ? "zeros" : "constant(" + std::to_string(x.value) + ")";
  case initializer::kind::glorot_uniform:
    return "glorot_uniform";
  case initializer::kind::he_uniform:
    return "he_uniform";
  case initializer::kind::he_normal:
    return "he_normal";
  }
  return "invalid";
}

void initialize(const initializer& how, std::uint64_t seed, std::string_view name,
                const shape& dims, range part, std::span<float> out) {
  const auto fan = fans_of(dims);
  const auto key = stream_key(seed, name);
  auto uniform = [&](double a) {
    fill(key, part, out, [a](random_stream& stream) { return stream.uniform(-a, a); });
  };
  switch (how.how) {
  case initializer::kind::constant:
    std::fill(out.begin(), out.end(), static_cast<float>(how.value));
    break;
  case initializer::kind::glorot_uniform:
    uniform(std::sqrt(6 / (fan.in + fan.out)));
    break;
  case initializer::kind::he_uniform:
    uniform(std::sqrt(6 / fan.in));
    break;
  case initializer::kind::he_normal:
    fill(key, part, out, [sigma = std::sqrt(2 / fan.in)](random_stream& stream) {
      return sigma * stream.normal();
    });
    break;
  }
}

void initialize(const layout& parameters, range part, std::uint64_t seed, std::span<float> out) {
  if (part.begin > part.end || part.end > parameters.size() || out.size() != part.size())
    throw std::invalid_argument("initialize: the range is outside of the layout, or the output is "
                                "not of its size");
  for (const auto& entry : parameters.entries()) {
    const auto common = intersect(entry.elements(), part);
    if (common.empty())
      continue;
    initialize(entry.initial, seed, entry.name, entry.shape,
               {common.begin - entry.offset, common.end - entry.offset},
               out.subspan(common.begin - part.begin, common.size()));
  }
}

} // namespace troupe
