#include "kernels/optimizer.hpp"

#include <cmath>
#include <stdexcept>

namespace troupe {

namespace {

/// Scalars of an update in the type of its elements.
template <class T>
struct factors {
  T rate;
  T scale;
  T decay;
  T momentum;
};

// Explicit fused multiply-adds (this folder is compiled with -ffp-contract=off): vectors and the
// last elements of a range round alike.

template <class T>
T decayed_gradient(const factors<T>& f, T gradient, T weight) {
  return std::fma(f.decay, weight, f.scale * gradient);
}

template <class T>
void update_sgd(const factors<T>& f, std::size_t n, const T* w, const T* g, T* out) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < n; ++i)
    out[i] = std::fma(-f.rate, decayed_gradient(f, g[i], w[i]), w[i]);
}

template <bool nesterov, class T>
void update_momentum(const factors<T>& f, std::size_t n, const T* w, const T* g, T* v, T* out) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < n; ++i) {
    const T x = w[i];
    const T gradient = decayed_gradient(f, g[i], x);
    const T velocity = std::fma(f.momentum, v[i], gradient);
    const T direction = nesterov ? std::fma(f.momentum, velocity, gradient) : velocity;
    v[i] = velocity;
    out[i] = std::fma(-f.rate, direction, x);
  }
}

} // namespace

template <class T>
void update(const optimizer& rule, const update_arguments<T>& arguments) {
  const auto n = arguments.weights.size();
  if (arguments.gradient.size() != n || arguments.updated.size() != n
      || arguments.state.size() != rule.slots() * n)
    throw std::invalid_argument("update: weights, gradient, state and result are not of one size");
  const factors<T> f{static_cast<T>(arguments.rate), static_cast<T>(arguments.scale),
                     static_cast<T>(rule.weight_decay), static_cast<T>(rule.momentum)};
  const T* w = arguments.weights.data();
  const T* g = arguments.gradient.data();
  T* v = arguments.state.data();
  T* out = arguments.updated.data();
  switch (rule.kind) {
  case optimizer_kind::sgd:
    update_sgd(f, n, w, g, out);
    break;
  case optimizer_kind::momentum:
    update_momentum<false>(f, n, w, g, v, out);
    break;
  case optimizer_kind::nesterov:
    update_momentum<true>(f, n, w, g, v, out);
    break;
  }
}

template void update<float>(const optimizer&, const update_arguments<float>&);
template void update<double>(const optimizer&, const update_arguments<double>&);

} // namespace troupe
