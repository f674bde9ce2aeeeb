#include "kernels/cpu/gemm.hpp"
#include "kernels/cpu/math.hpp"
#include "kernels/cpu/sequences.hpp"
#include "kernels/cpu/vectorize.hpp"

#include <algorithm>

namespace troupe::cpu {

namespace {

std::size_t round_up(std::size_t n) {
  return (n + 15) / 16 * 16;
}

/// The parts of a recurrence's scratch space.
template <class T>
struct workspace {
  workspace(const recurrence& size, T* scratch)
    : gemm(scratch), weights(scratch + gemm_scratch_elements<T>()),
      gates(weights
            + packed_elements<T>(round_up(size.gates() * size.hidden), round_up(size.hidden))),
      dh(gates + round_up(size.batch * size.gates() * size.hidden)),
      through(dh + round_up(size.batch * size.hidden)) {}

  T* gemm;
  /// Packed, for the products of every step.
  T* weights;
  /// (batch, gates * hidden)
  T* gates;
  /// (batch, hidden): the gradient that the next step sends back, first to h through the product
  /// with w, then the direct one, to c (lstm) or to h (gru).
  T* dh;
  T* through;
};

/// The row of a sample at a time step in (batch, time, width).
template <class T>
T* row(T* x, const recurrence& size, std::size_t sample, std::size_t t, std::size_t width) {
  return x + (sample * size.time + t) * width;
}

/// space.gates = h_{t-1} w^T; 0 at the first step.
template <class T>
void from_last_step(const recurrence& size, std::size_t t, const T* states,
                    const workspace<T>& space) {
  const auto width = size.stored() * size.hidden;
  const auto gates = size.gates() * size.hidden;
  if (t == 0) {
    std::fill_n(space.gates, size.batch * gates, T(0));
    return;
  }
  const T* const h = states + t * width - size.hidden;
  gemm_packed<T>(size.batch, gates, size.hidden, {h, size.time * width, 1}, space.weights,
                 space.gates, gates, space.gemm);
}

// One sample and one step. `a` is the product from the previous step, `before` is that step's c or
// h, or nullptr.

template <class T>
void rnn_step(std::size_t hidden, const T* z, const T* a, T* states) {
  TROUPE_INDEPENDENT
  for (std::size_t j = 0; j < hidden; ++j)
    states[j] = cpu::tanh(z[j] + a[j]);
}

/// states: i, f, g, o, c, h.
template <class T>
void lstm_step(std::size_t hidden, const T* z, const T* a, const T* before, T* states) {
  TROUPE_INDEPENDENT
  for (std::size_t j = 0; j < hidden; ++j) {
    const T i = cpu::sigmoid(z[j] + a[j]);
    const T f = cpu::sigmoid(z[hidden + j] + a[hidden + j]);
    const T g = cpu::tanh(z[2 * hidden + j] + a[2 * hidden + j]);
    const T o = cpu::sigmoid(z[3 * hidden + j] + a[3 * hidden + j]);
    const T c = f * (before != nullptr ? before[j] : T(0)) + i * g;
    states[j] = i;
    states[hidden + j] = f;
    states[2 * hidden + j] = g;
    states[3 * hidden + j] = o;
    states[4 * hidden + j] = c;
    states[5 * hidden + j] = o * cpu::tanh(c);
  }
}

/// states: r, u, n, a_n, h.
template <class T>
void gru_step(std::size_t hidden, const T* z, const T* a, const T* b, const T* before, T* states) {
  TROUPE_INDEPENDENT
  for (std::size_t j = 0; j < hidden; ++j) {
    const T r = cpu::sigmoid(z[j] + a[j] + b[j]);
    const T u = cpu::sigmoid(z[hidden + j] + a[hidden + j] + b[hidden + j]);
    const T a_n = a[2 * hidden + j] + b[2 * hidden + j];
    const T n = cpu::tanh(z[2 * hidden + j] + r * a_n);
    states[j] = r;
    states[hidden + j] = u;
    states[2 * hidden + j] = n;
    states[3 * hidden + j] = a_n;
    states[4 * hidden + j] = (T(1) - u) * n + u * (before != nullptr ? before[j] : T(0));
  }
}

template <class T>
void rnn_back(std::size_t hidden, const T* dh, const T* states, T* out) {
  TROUPE_INDEPENDENT
  for (std::size_t j = 0; j < hidden; ++j)
    out[j] = cpu::tanh_gradient(dh[j], states[j]);
}

/// dc: on entry, the next step's part of the gradient by this step's c; on return, the gradient by
/// the previous step's c.
template <class T>
void lstm_back(std::size_t hidden, const T* dh, const T* states, const T* before, T* dc, T* out) {
  TROUPE_INDEPENDENT
  for (std::size_t j = 0; j < hidden; ++j) {
    const T i = states[j];
    const T f = states[hidden + j];
    const T g = states[2 * hidden + j];
    const T o = states[3 * hidden + j];
    const T s = cpu::tanh(states[4 * hidden + j]);
    const T d = dc[j] + cpu::tanh_gradient(dh[j] * o, s);
    out[j] = cpu::sigmoid_gradient(d * g, i);
    out[hidden + j] = cpu::sigmoid_gradient(d * (before != nullptr ? before[j] : T(0)), f);
    out[2 * hidden + j] = cpu::tanh_gradient(d * i, g);
    out[3 * hidden + j] = cpu::sigmoid_gradient(dh[j] * s, o);
    dc[j] = d * f;
  }
}

/// out: r, u, n, r n. by_product: r, u, r n, in the order of the product with w. direct: the
/// gradient by the previous h, through u.
template <class T>
void gru_back(std::size_t hidden, const T* dh, const T* states, const T* before, T* direct,
              T* by_product, T* out) {
  TROUPE_INDEPENDENT
  for (std::size_t j = 0; j < hidden; ++j) {
    const T r = states[j];
    const T u = states[hidden + j];
    const T n = states[2 * hidden + j];
    const T dn = cpu::tanh_gradient(dh[j] * (T(1) - u), n);
    const T dr = cpu::sigmoid_gradient(dn * states[3 * hidden + j], r);
    const T du = cpu::sigmoid_gradient(dh[j] * ((before != nullptr ? before[j] : T(0)) - n), u);
    out[j] = by_product[j] = dr;
    out[hidden + j] = by_product[hidden + j] = du;
    out[2 * hidden + j] = dn;
    out[3 * hidden + j] = by_product[2 * hidden + j] = dn * r;
    direct[j] = dh[j] * u;
  }
}

} // namespace

std::size_t recurrence::gates() const noexcept {
  return cell == troupe::cell::rnn ? 1 : cell == troupe::cell::lstm ? 4 : 3;
}

std::size_t recurrence::stored() const noexcept {
  return cell == troupe::cell::rnn ? 1 : cell == troupe::cell::lstm ? 6 : 5;
}

std::size_t recurrence::parts() const noexcept {
  return cell == troupe::cell::rnn ? 1 : 4;
}

template <class T>
std::size_t recurrent_scratch_elements(const recurrence& size) {
  const auto gates = size.gates() * size.hidden;
  // W is packed, either plain or transposed.
  return gemm_scratch_elements<T>() + packed_elements<T>(round_up(gates), round_up(size.hidden))
    + round_up(size.batch * gates) + 2 * round_up(size.batch * size.hidden);
}

template <class T>
void recurrent(const recurrence& size, const T* z, const T* w, const T* b, T* states, T* scratch) {
  const workspace<T> space(size, scratch);
  const auto h = size.hidden;
  const auto width = size.stored() * h;
  const auto gates = size.gates() * h;
  pack<T>(h, gates, matrix<T>{w, h, 1}.transposed(), space.weights);
  for (std::size_t t = 0; t < size.time; ++t) {
    from_last_step(size, t, states, space);
    for (std::size_t n = 0; n < size.batch; ++n) {
      const T* const in = row(z, size, n, t, gates);
      const T* const a = space.gates + n * gates;
      T* const out = row(states, size, n, t, width);
      // c of lstm and h of gru: in both, it is the fifth stored part.
      const T* const before = t > 0 ? out - width + 4 * h : nullptr;
      if (size.cell == cell::rnn)
        rnn_step(h, in, a, out);
      else if (size.cell == cell::lstm)
        lstm_step(h, in, a, before, out);
      else
        gru_step(h, in, a, b, before, out);
    }
  }
}

template <class T>
void recurrent_gradient(const recurrence& size, const T* dh, const T* states, const T* w, T* out,
                        T* scratch) {
  const workspace<T> space(size, scratch);
  const auto h = size.hidden;
  const auto width = size.stored() * h;
  const auto gates = size.gates() * h;
  const auto parts = size.parts() * h;
  pack<T>(gates, h, {w, h, 1}, space.weights);
  std::fill_n(space.dh, size.batch * h, T(0));
  std::fill_n(space.through, size.batch * h, T(0));
  for (auto t = size.time; t-- > 0;) {
    for (std::size_t n = 0; n < size.batch; ++n) {
      T* const total = space.dh + n * h;
      T* const through = space.through + n * h;
      const T* const given = row(dh, size, n, t, h);
      for (std::size_t j = 0; j < h; ++j)
        total[j] += given[j];
      const T* const s = row(states, size, n, t, width);
      const T* const before = t > 0 ? s - width + 4 * h : nullptr;
      T* const to = row(out, size, n, t, parts);
      if (size.cell == cell::rnn)
        rnn_back(h, total, s, to);
      else if (size.cell == cell::lstm)
        lstm_back(h, total, s, before, through, to);
      else
        gru_back(h, total, s, before, through, space.gates + n * gates, to);
    }
    const bool is_gru = size.cell == cell::gru;
    const matrix<T> d =
      is_gru ? matrix<T>{space.gates, gates, 1} : matrix<T>{out + t * parts, size.time * parts, 1};
    gemm_packed<T>(size.batch, h, gates, d, space.weights, space.dh, h, space.gemm);
    if (is_gru)
      for (std::size_t i = 0; i < size.batch * h; ++i)
        space.dh[i] += space.through[i];
  }
}

// NOLINTBEGIN(bugprone-macro-parentheses): a type in a declaration takes none
#define TROUPE_INSTANTIATE(T)                                                                      \
  template std::size_t recurrent_scratch_elements<T>(const recurrence&);                           \
  template void recurrent(const recurrence&, const T*, const T*, const T*, T*, T*);                \
  template void recurrent_gradient(const recurrence&, const T*, const T*, const T*, T*, T*);
// NOLINTEND(bugprone-macro-parentheses)

TROUPE_INSTANTIATE(float)
TROUPE_INSTANTIATE(double)
#undef TROUPE_INSTANTIATE

} // namespace troupe::cpu
