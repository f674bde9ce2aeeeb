#include "kernels/initializers.hpp"

#include "kernels/layout.hpp"
#include "kernels/random.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

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

/// Sums of products in 8 lanes: the same on any machine, unlike those of libraries whose blocks
/// follow the size of caches.
double dot(std::span<const double> a, std::span<const double> b) {
  constexpr std::size_t width = 8;
  double lanes[width] = {};
  std::size_t i = 0;
  for (; i + width <= a.size(); i += width)
    for (std::size_t k = 0; k < width; ++k)
      lanes[k] += a[i + k] * b[i + k];
  double result = 0;
  for (const double lane : lanes)
    result += lane;
  for (; i < a.size(); ++i)
    result += a[i] * b[i];
  return result;
}

/// Makes vectors of `length` elements, one after another and not more than that, orthonormal by
/// modified Gram-Schmidt, twice: then they are so up to rounding (Giraud et al., 2005). In a
/// decomposition A = Q R of the matrix with these columns, R has a positive diagonal.
void orthonormalize(std::span<double> vectors, std::size_t length) {
  const auto at = [&](std::size_t i) { return vectors.subspan(i * length, length); };
  for (std::size_t i = 0; i * length < vectors.size(); ++i) {
    const auto x = at(i);
    for (int pass = 0; pass < 2; ++pass)
      for (std::size_t k = 0; k < i; ++k) {
        const auto other = at(k);
        const double along = dot(x, other);
        for (std::size_t j = 0; j < length; ++j)
          x[j] -= along * other[j];
      }
    const double norm = std::sqrt(dot(x, x));
    for (auto& value : x)
      value /= norm;
  }
}

/// Elements `part` of an orthogonal (rows, columns) matrix.
void fill_orthogonal(std::uint64_t key, double gain, const shape& dims, range part,
                     std::span<float> out) {
  const std::size_t n = dims.elements();
  const std::size_t rows = dims.rank() < 2 ? 1 : static_cast<std::size_t>(dims[0]);
  const std::size_t columns = n / std::max<std::size_t>(rows, 1);
  if (part.empty())
    return;
  const bool wide = rows <= columns;
  const auto length = std::max(rows, columns);
  const auto place = [&](std::size_t i) { return wide ? i : i % columns * length + i / columns; };
  std::vector<double> matrix(n);
  for (std::size_t i = 0; i < n; ++i)
    matrix[place(i)] = random_stream(key, {i}).normal();
  orthonormalize(matrix, length);
  for (std::size_t i = part.begin; i < part.end; ++i)
    out[i - part.begin] = static_cast<float>(gain * matrix[place(i)]);
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
                const shape& dims, range part, std::span<float> out) {
  const auto fan = fans_of(dims);
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
    fill_orthogonal(key, how.value, dims, part, out);
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
