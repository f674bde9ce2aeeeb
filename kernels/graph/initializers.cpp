#include "kernels/graph/initializers.hpp"

#include "kernels/graph/layout.hpp"
#include "kernels/graph/orthogonal.hpp"
#include "kernels/random.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

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

/// Sets out[i] to draw(stream of element part.begin + i). Each element has its own random stream,
/// so the cost of a slice depends only on its size.
template <class Draw>
void fill(std::uint64_t key, range part, std::span<float> out, Draw draw) {
  for (std::size_t i = 0; i < part.size(); ++i) {
    random_stream stream(key, {part.begin + i});
    out[i] = static_cast<float>(draw(stream));
  }
}

/// Writes the elements `part` of an orthogonal tensor of shape `dims`. The tensor is treated as a
/// matrix: dimension 0 gives its rows, and all other dimensions together give its columns.
void fill_orthogonal(std::uint64_t key, double gain, const shape& dims, range part,
                     std::span<float> out, orthogonal_matrices* made) {
  if (part.empty())
    return;
  const auto rows = dims.rank() < 2 ? 1 : static_cast<std::size_t>(dims[0]);
  orthogonal_matrices own;
  const auto matrix = (made != nullptr ? *made : own).get(key, gain, rows, dims.elements() / rows);
  std::ranges::copy(matrix.subspan(part.begin, part.size()), out.begin());
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
  case initializer::kind::glorot_normal:
    return "glorot_normal";
  case initializer::kind::normal:
    return "normal(" + std::to_string(x.value) + ")";
  case initializer::kind::uniform:
    return "uniform(" + std::to_string(x.value) + ")";
  case initializer::kind::orthogonal:
    return x.value == 1 ? "orthogonal" : "orthogonal(" + std::to_string(x.value) + ")";
  }
  return "invalid";
}

void initialize(const initializer& how, std::uint64_t seed, std::string_view name,
                const shape& dims, range part, std::span<float> out, orthogonal_matrices* made) {
  auto fan = fans_of(dims);
  if (how.inputs_first)
    std::swap(fan.in, fan.out);
  const auto key = stream_key(seed, name);
  auto uniform = [&](double a) {
    fill(key, part, out, [a](random_stream& stream) { return stream.uniform(-a, a); });
  };
  auto normal = [&](double sigma) {
    fill(key, part, out, [sigma](random_stream& stream) { return sigma * stream.normal(); });
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
    normal(std::sqrt(2 / fan.in));
    break;
  case initializer::kind::glorot_normal:
    normal(std::sqrt(2 / (fan.in + fan.out)));
    break;
  case initializer::kind::normal:
    normal(how.value);
    break;
  case initializer::kind::uniform:
    uniform(how.value);
    break;
  case initializer::kind::orthogonal:
    fill_orthogonal(key, how.value, dims, part, out, made);
    break;
  }
}

void initialize(const layout& parameters, range part, std::uint64_t seed, std::span<float> out,
                orthogonal_matrices* made) {
  if (part.begin > part.end || part.end > parameters.size() || out.size() != part.size())
    throw std::invalid_argument("initialize: the range is outside of the layout, or the output is "
                                "not of its size");
  for (const auto& entry : parameters.entries()) {
    const auto common = intersect(entry.elements(), part);
    if (common.empty())
      continue;
    initialize(entry.initial, seed, entry.name, entry.shape,
               {common.begin - entry.offset, common.end - entry.offset},
               out.subspan(common.begin - part.begin, common.size()), made);
  }
}

} // namespace troupe
