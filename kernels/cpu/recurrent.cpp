#include "kernels/cpu/gemm.hpp"
#include "kernels/cpu/gemm_avx512.hpp"
#include "kernels/cpu/loops_avx512.hpp"
#include "kernels/cpu/recurrent_cells.hpp"
#include "kernels/cpu/sequences.hpp"

#include <algorithm>
#include <type_traits>

namespace troupe::cpu {

namespace {

std::size_t round_up(std::size_t n) {
  return (n + 15) / 16 * 16;
}

/// The parts of the scratch space of a recurrence.
template <class T>
struct workspace {
  workspace(const recurrence& size, T* scratch)
    : weights(scratch),
      gates(weights
            + packed_elements<T>(round_up(size.gates() * size.hidden), round_up(size.hidden))),
      dh(gates + round_up(size.batch * size.gates() * size.hidden)),
      through(dh + round_up(size.batch * size.hidden)) {}

  /// The weights w, packed once for the products of all time steps.
  T* weights;
  /// (batch, gates * hidden)
  T* gates;
  /// Gradients that the backward pass carries from a time step to the step before it, (batch,
  /// hidden) each.
  /// - dh: the part of the gradient with respect to the h of the earlier step that passes through
  ///   the product with w.
  /// - through: all other parts of the gradient with respect to the c (lstm) or the h (gru) of the
  ///   earlier step.
  T* dh;
  T* through;
};

/// The row of a sample at time step t in a tensor (batch, time, width).
template <class T>
T* row(T* x, const recurrence& size, std::size_t sample, std::size_t t, std::size_t width) {
  return x + (sample * size.time + t) * width;
}

/// The c of lstm, or the h of gru, at time step t - 1. `stored` points to the stored values of step
/// t. Null if t is 0, and for rnn, which does not need it.
template <class T>
const T* before(const recurrence& size, std::size_t t, const T* stored) {
  if (t == 0 || size.cell == cell::rnn)
    return nullptr;
  // The c of lstm and the h of gru are both the fifth of the vectors that a step stores.
  return stored - size.stored() * size.hidden + 4 * size.hidden;
}

/// Computes space.gates = h_{t-1} w^T. At the first time step, h_{t-1} is 0, and so is the result.
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
                 space.gates, gates);
}

template <class T>
cell_loops<T> fastest_loops(cell x) {
  if constexpr (std::is_same_v<T, float>)
    if (has_wide_vectors())
      return wide_loops_of_cell(x);
  return loops_of_cell<T>(x);
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
  // Enough space for packing w as it is (forward pass) or transposed (backward pass).
  return packed_elements<T>(round_up(gates), round_up(size.hidden)) + round_up(size.batch * gates)
    + 2 * round_up(size.batch * size.hidden);
}

template <class T>
void recurrent(const recurrence& size, const T* z, const T* w, const T* b, T* states, T* scratch) {
  const workspace<T> space(size, scratch);
  const auto h = size.hidden;
  const auto width = size.stored() * h;
  const auto gates = size.gates() * h;
  const auto loops = fastest_loops<T>(size.cell);
  pack<T>(h, gates, matrix<T>{w, h, 1}.transposed(), space.weights);
  for (std::size_t t = 0; t < size.time; ++t) {
    from_last_step(size, t, states, space);
    for (std::size_t n = 0; n < size.batch; ++n) {
      const T* const in = row(z, size, n, t, gates);
      const T* const a = space.gates + n * gates;
      T* const out = row(states, size, n, t, width);
      loops.step(h, in, a, b, before<T>(size, t, out), out);
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
  const auto loops = fastest_loops<T>(size.cell);
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
      T* const to = row(out, size, n, t, parts);
      loops.back(h, total, s, before<T>(size, t, s), through, space.gates + n * gates, to);
    }
    const bool is_gru = size.cell == cell::gru;
    const matrix<T> d =
      is_gru ? matrix<T>{space.gates, gates, 1} : matrix<T>{out + t * parts, size.time * parts, 1};
    gemm_packed<T>(size.batch, h, gates, d, space.weights, space.dh, h);
    if (is_gru)
      for (std::size_t i = 0; i < size.batch * h; ++i)
        space.dh[i] += space.through[i];
  }
}

// NOLINTBEGIN(bugprone-macro-parentheses): types in declarations must not be in parentheses
#define TROUPE_INSTANTIATE(T)                                                                      \
  template std::size_t recurrent_scratch_elements<T>(const recurrence&);                           \
  template void recurrent(const recurrence&, const T*, const T*, const T*, T*, T*);                \
  template void recurrent_gradient(const recurrence&, const T*, const T*, const T*, T*, T*);
// NOLINTEND(bugprone-macro-parentheses)

TROUPE_INSTANTIATE(float)
TROUPE_INSTANTIATE(double)
#undef TROUPE_INSTANTIATE

} // namespace troupe::cpu
