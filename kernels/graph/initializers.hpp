#pragma once

#include "kernels/graph/shape.hpp"
#include "kernels/range.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

class layout;
class orthogonal_matrices;

/// How the initial values of a tensor are computed. fan_in and fan_out follow PyTorch, where
/// weights have the shape (units, inputs...): fan_in = elements / dimension 0, fan_out = elements /
/// dimension 1. For a tensor with fewer than two dimensions, both are its number of elements. With
/// `inputs_first`, weights have the shape (inputs, units), as for sparse features. Then fan_in and
/// fan_out are swapped.
///
/// | kind           | values                                                                    |
/// |----------------|---------------------------------------------------------------------------|
/// | constant       | `value`                                                                   |
/// | glorot_uniform | U(-a, a), a = sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio, 2010)      |
/// | he_uniform     | U(-a, a), a = sqrt(6 / fan_in) (He et al., 2015)                          |
/// | he_normal      | N(0, 2 / fan_in) (He et al., 2015)                                        |
/// | glorot_normal  | N(0, 2 / (fan_in + fan_out))                                              |
/// | normal         | N(0, value^2)                                                             |
/// | uniform        | U(-value, value)                                                          |
/// | orthogonal     | `value` times a matrix with orthonormal rows (Saxe et al., 2014).         |
/// |                | Dimension 0 gives its rows, all other dimensions together its columns. If |
/// |                | it has fewer columns than rows, its columns are orthonormal instead. It   |
/// |                | is Q of the QR decomposition of a matrix of numbers from N(0, 1); the     |
/// |                | diagonal of R is positive.                                                |
struct initializer {
  enum class kind : std::uint8_t {
    constant,
    glorot_uniform,
    he_uniform,
    he_normal,
    glorot_normal,
    normal,
    uniform,
    orthogonal,
  };

  kind how = kind::constant;
  double value = 0;
  bool inputs_first = false;

  static initializer zeros() { return {}; }
  static initializer constant(double value) { return {kind::constant, value}; }
  static initializer glorot_uniform() { return {kind::glorot_uniform, 0}; }
  static initializer he_uniform() { return {kind::he_uniform, 0}; }
  static initializer he_normal() { return {kind::he_normal, 0}; }
  static initializer glorot_normal() { return {kind::glorot_normal, 0}; }
  static initializer normal(double deviation) { return {kind::normal, deviation}; }
  static initializer uniform(double bound) { return {kind::uniform, bound}; }
  static initializer orthogonal(double gain = 1) { return {kind::orthogonal, gain}; }

  bool operator==(const initializer&) const = default;
};

/// For example "zeros", "constant(0.500000)", "glorot_uniform".
std::string to_string(const initializer& x);

/// Writes the initial values of elements `part` of the tensor `name`. Element i depends only on
/// (how, seed, name, shape, i). The cost is proportional to the size of `part`. An orthogonal
/// tensor is an exception: it is always computed as a whole. Requires out.size() == part.size().
/// @param made keeps orthogonal tensors for later calls. If it is null, they are not kept.
void initialize(const initializer& how, std::uint64_t seed, std::string_view name,
                const shape& dims, range part, std::span<float> out,
                orthogonal_matrices* made = nullptr);

/// Writes the initial values of elements `part` of the flat parameter vector. The values are the
/// same, bit for bit, as if the whole vector were computed. The values of a tensor do not depend on
/// the other tensors of the layout. Throws std::invalid_argument if `part` is not within the layout
/// or out.size() != part.size().
void initialize(const layout& parameters, range part, std::uint64_t seed, std::span<float> out,
                orthogonal_matrices* made = nullptr);

} // namespace troupe
