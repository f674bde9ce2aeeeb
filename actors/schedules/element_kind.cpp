#include "actors/schedules/element_kind.hpp"

#include "kernels/cpu/reduce.hpp"

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

namespace troupe {

namespace {

std::span<const double> as_doubles(const payload& x) {
  return {reinterpret_cast<const double*>(x.data()), x.size() / sizeof(double)};
}

} // namespace

const char* to_string(element_kind x) noexcept {
  return x == element_kind::float32 ? "float32" : "float64";
}

bool aligned(element_kind kind, const payload& x) noexcept {
  return reinterpret_cast<std::uintptr_t>(x.data()) % bytes_of(kind) == 0;
}

void add(element_kind kind, const payload& a, const payload& b, payload& out) {
  if (!aligned(kind, a) || !aligned(kind, b) || !aligned(kind, out))
    throw std::invalid_argument{std::string{"a vector of "} + to_string(kind)
                                + " does not begin at a multiple of its elements' size"};
  if (kind == element_kind::float32)
    add(a.as_floats(), b.as_floats(), out.as_mutable_floats());
  else
    add(as_doubles(a), as_doubles(b),
        std::span{reinterpret_cast<double*>(out.mutable_data()), out.size() / sizeof(double)});
}

} // namespace troupe
