#pragma once

// The element-wise part of recurrent.cpp, for vectors of any width. The functions have internal
// linkage; element_loops.hpp gives the reason.

#include "kernels/cpu/math.hpp"
#include "kernels/cpu/vectorize.hpp"
#include "kernels/graph/graph.hpp"

#include <cstddef>

namespace troupe::cpu {

/// The functions that compute one time step of one sample, for one kind of cell.
template <class T>
struct cell_loops {
  /// The forward step.
  /// - z and b: as in `recurrent`.
  /// - a: the product of w and the h of the previous step.
  /// - before: the c (lstm) or h (gru) of the previous step. Null at the first step and for rnn.
  /// - states: receives the values of this step that are stored.
  void (*step)(std::size_t hidden, const T* z, const T* a, const T* b, const T* before, T* states);
  /// The backward step.
  /// - dh: the gradient with respect to the h of this step.
  /// - states: the stored values of this step.
  /// - before: as in the forward step.
  /// - direct: receives the gradient with respect to the c (lstm) or h (gru) of the previous step,
  ///   without the part that goes through the product with w. For lstm, the caller first stores in
  ///   `direct` the gradient with respect to the c of this step.
  /// - by_product: receives the gradient with respect to the product with w. Only for gru. For the
  ///   other cells, this gradient is `out`.
  /// - out: receives the gradient with respect to the inputs of the activations.
  void (*back)(std::size_t hidden, const T* dh, const T* states, const T* before, T* direct,
               T* by_product, T* out);
};

namespace {

template <class T>
void rnn_step(std::size_t hidden, const T* z, const T* a, const T*, const T*, T* states) {
  TROUPE_INDEPENDENT
  for (std::size_t j = 0; j < hidden; ++j)
    states[j] = cpu::tanh(z[j] + a[j]);
}

/// states receives i, f, g, o, c and h, one vector after the other.
template <class T>
void lstm_step(std::size_t hidden, const T* z, const T* a, const T*, const T* before, T* states) {
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

/// states receives r, u, n, a_n and h, one vector after the other.
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
void rnn_back(std::size_t hidden, const T* dh, const T* states, const T*, T*, T*, T* out) {
  TROUPE_INDEPENDENT
  for (std::size_t j = 0; j < hidden; ++j)
    out[j] = cpu::tanh_gradient(dh[j], states[j]);
}

/// Before the call, dc contains the part of the gradient with respect to the c of this step that
/// comes from the next step. After the call, dc contains the same part for the previous step.
template <class T>
void lstm_back(std::size_t hidden, const T* dh, const T* states, const T* before, T* dc, T*,
               T* out) {
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

/// - out: receives four vectors: the gradients with respect to the inputs of the activations r, u
///   and n, and the third of these gradients times r.
/// - by_product: receives the gradients with respect to the three parts r, u and n of the product
///   with w.
/// - direct: receives the part of the gradient with respect to the previous h that comes from the
///   term u h_{t-1} of the new h.
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

template <class T>
cell_loops<T> loops_of_cell(cell x) {
  switch (x) {
  case cell::rnn:
    return {rnn_step<T>, rnn_back<T>};
  case cell::lstm:
    return {lstm_step<T>, lstm_back<T>};
  case cell::gru:
    break;
  }
  return {gru_step<T>, gru_back<T>};
}

} // namespace

} // namespace troupe::cpu
