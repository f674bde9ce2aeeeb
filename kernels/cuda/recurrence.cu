#include "kernels/cuda/recurrence.hpp"

#include "kernels/cpu/math.hpp"
#include "kernels/cuda/divider.hpp"
#include "kernels/cuda/kernel.hpp"

namespace troupe::cuda {

namespace {

/// The number of the part of a step's stored values that contains c of lstm, or h of gru. Parts are
/// counted from 0, and each part has `hidden` values.
constexpr unsigned kept_part = 4;

/// Applies the gates of one time step. Each thread handles one unit of one sample at a time.
struct recurrence_kernel {
  view<const float> z;        // (batch, time, gates * hidden)
  view<const float> products; // (batch, gates * hidden): previous h times w^T; unused in step 0
  view<const float> b;        // (gates * hidden), gru only
  view<float> states;         // (batch, time, stored * hidden)
  view<float> h;              // (batch, hidden): for the product of the next step
  divider units;
  std::size_t step, time, gates, stored;
  cell how;

  /// Element i of the products. They are 0 in the first step, because the previous h is 0.
  TROUPE_DEVICE float product(std::size_t i) const { return step > 0 ? products.load(i) : 0.0F; }

  // The next functions store all parts of `states` except h, which they return. They load all
  // values before they divide: a division contains a branch, and a load after the branch would wait
  // for the division.

  TROUPE_DEVICE float lstm(std::size_t in, std::size_t a, std::size_t out, float before) const {
    const auto hidden = units.divisor();
    float x[4];
    TROUPE_UNROLL
    for (unsigned k = 0; k < 4; ++k)
      x[k] = z.load(in + k * hidden) + product(a + k * hidden);
    const float i = cpu::sigmoid(x[0]);
    const float f = cpu::sigmoid(x[1]);
    const float g = cpu::tanh(x[2]);
    const float o = cpu::sigmoid(x[3]);
    const float c = f * before + i * g;
    states.store(out, i);
    states.store(out + hidden, f);
    states.store(out + 2 * hidden, g);
    states.store(out + 3 * hidden, o);
    states.store(out + 4 * hidden, c);
    return o * cpu::tanh(c);
  }

  TROUPE_DEVICE float gru(std::size_t in, std::size_t a, std::size_t j, std::size_t out,
                          float before) const {
    const auto hidden = units.divisor();
    const float x_r = z.load(in) + product(a) + b.load(j);
    const float x_u = z.load(in + hidden) + product(a + hidden) + b.load(j + hidden);
    const float a_n = product(a + 2 * hidden) + b.load(j + 2 * hidden);
    const float z_n = z.load(in + 2 * hidden);
    const float r = cpu::sigmoid(x_r);
    const float u = cpu::sigmoid(x_u);
    const float n = cpu::tanh(z_n + r * a_n);
    states.store(out, r);
    states.store(out + hidden, u);
    states.store(out + 2 * hidden, n);
    states.store(out + 3 * hidden, a_n);
    return (1 - u) * n + u * before;
  }

  TROUPE_DEVICE float apply_gates(std::size_t sample, std::size_t j, std::size_t out) const {
    const auto hidden = units.divisor();
    const auto in = (sample * time + step) * gates * hidden + j;
    const auto a = sample * gates * hidden + j;
    if (how == cell::rnn)
      return cpu::tanh(z.load(in) + product(a));
    const float before = step > 0 ? states.load(out - stored * hidden + kept_part * hidden) : 0.0F;
    return how == cell::lstm ? lstm(in, a, out, before) : gru(in, a, j, out, before);
  }

  TROUPE_DEVICE void operator()(const thread& t) const {
    const auto hidden = units.divisor();
    for (auto i = t.first(); i < h.size; i += t.stride()) {
      const auto [sample, j] = units(i);
      const auto out = (sample * time + step) * stored * hidden + j;
      const float y = apply_gates(sample, j, out);
      states.store(out + (stored - 1) * hidden, y);
      h.store(i, y);
    }
  }
};

/// Computes the gradients of the gates of one time step. Each thread handles one unit of one sample
/// at a time.
struct recurrence_gradient_kernel {
  view<const float> dh;     // (batch, time, hidden)
  view<const float> states; // (batch, time, stored * hidden)
  view<float> out;          // (batch, time, parts * hidden)
  /// The gradient of the product of this step, for the product with w that follows.
  view<float> by_product; // (batch, gates * hidden)
  /// Gradients that come from the next time step. They are unused in the last step. `back` is the
  /// gradient of h that comes through the product with w. `through` is the gradient that comes
  /// without this product: of c for lstm, and of h for gru. The kernel replaces `through` by the
  /// value for the previous step.
  view<const float> back; // (batch, hidden)
  view<float> through;    // (batch, hidden), lstm and gru only
  divider units;
  std::size_t step, time, gates, stored, parts;
  cell how;

  // The argument s of the next functions is the first four parts of the stored values of a time
  // step.

  TROUPE_DEVICE void lstm(const float (&s)[4], float c, std::size_t to, std::size_t product,
                          std::size_t own, float d_h, float d_c, float before) const {
    const auto hidden = units.divisor();
    const auto [i, f, g, o] = s;
    const float y = cpu::tanh(c);
    const float d = d_c + cpu::tanh_gradient(d_h * o, y);
    const float all[] = {cpu::sigmoid_gradient(d * g, i), cpu::sigmoid_gradient(d * before, f),
                         cpu::tanh_gradient(d * i, g), cpu::sigmoid_gradient(d_h * y, o)};
    TROUPE_UNROLL
    for (unsigned k = 0; k < 4; ++k) {
      out.store(to + k * hidden, all[k]);
      by_product.store(product + k * hidden, all[k]);
    }
    through.store(own, d * f);
  }

  TROUPE_DEVICE void gru(const float (&s)[4], std::size_t to, std::size_t product, std::size_t own,
                         float d_h, float before) const {
    const auto hidden = units.divisor();
    const auto [r, u, n, a_n] = s;
    const float dn = cpu::tanh_gradient(d_h * (1 - u), n);
    const float dr = cpu::sigmoid_gradient(dn * a_n, r);
    const float du = cpu::sigmoid_gradient(d_h * (before - n), u);
    out.store(to, dr);
    out.store(to + hidden, du);
    out.store(to + 2 * hidden, dn);
    out.store(to + 3 * hidden, dn * r);
    by_product.store(product, dr);
    by_product.store(product + hidden, du);
    by_product.store(product + 2 * hidden, dn * r);
    through.store(own, d_h * u);
  }

  TROUPE_DEVICE void through_gates(std::size_t own) const {
    const auto hidden = units.divisor();
    const auto [sample, j] = units(own);
    const auto row = sample * time + step;
    const auto from = row * stored * hidden + j;
    const auto to = row * parts * hidden + j;
    const auto product = sample * gates * hidden + j;
    const bool last = step + 1 == time;
    const float direct = last || how == cell::rnn ? 0.0F : through.load(own);
    float d_h = last ? 0.0F : back.load(own);
    if (how == cell::gru)
      d_h += direct;
    d_h += dh.load(row * hidden + j);
    if (how == cell::rnn) {
      const float d = cpu::tanh_gradient(d_h, states.load(from));
      out.store(to, d);
      by_product.store(product, d);
      return;
    }
    float s[4];
    TROUPE_UNROLL
    for (unsigned k = 0; k < 4; ++k)
      s[k] = states.load(from + k * hidden);
    const auto kept = from + kept_part * hidden;
    const float before = step > 0 ? states.load(kept - stored * hidden) : 0.0F;
    if (how == cell::lstm)
      lstm(s, states.load(kept), to, product, own, d_h, direct, before);
    else
      gru(s, to, product, own, d_h, before);
  }

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto i = t.first(); i < through.size; i += t.stride())
      through_gates(i);
  }
};

} // namespace

std::size_t recurrence_space(const cpu::recurrence& size) {
  // The forward pass needs (batch, gates * hidden) for products, and (batch, hidden) for h. The
  // backward pass needs (batch, gates * hidden) for by_product, and (batch, hidden) for each of
  // back and through.
  return size.batch * (size.gates() + 2) * size.hidden;
}

void recurrent(device& gpu, stream where, const cpu::recurrence& size, const float* z,
               const float* w, const float* b, float* states, float* space) {
  const auto rows = size.batch * size.time;
  const auto units = size.batch * size.hidden;
  const auto gates = size.gates() * size.hidden;
  float* const h = space;
  float* const products = space + units;
  for (std::size_t step = 0; step < size.time; ++step) {
    if (step > 0)
      gpu.multiply(where,
                   {.m = size.batch,
                    .n = gates,
                    .k = size.hidden,
                    .transpose_b = true,
                    .a = h,
                    .b = w,
                    .c = products});
    launch(where, "recurrent", {blocks_for(units)},
           recurrence_kernel{{z, rows * gates},
                             {products, size.batch * gates},
                             {b, size.cell == cell::gru ? gates : 0},
                             {states, rows * size.stored() * size.hidden},
                             {h, units},
                             {size.hidden, units},
                             step,
                             size.time,
                             size.gates(),
                             size.stored(),
                             size.cell});
  }
}

void recurrent_gradient(device& gpu, stream where, const cpu::recurrence& size, const float* dh,
                        const float* states, const float* w, float* out, float* space) {
  const auto rows = size.batch * size.time;
  const auto units = size.batch * size.hidden;
  const auto gates = size.gates() * size.hidden;
  float* const back = space;
  float* const through = space + units;
  float* const by_product = space + 2 * units;
  for (auto step = size.time; step-- > 0;) {
    launch(where, "recurrent_gradient", {blocks_for(units)},
           recurrence_gradient_kernel{{dh, rows * size.hidden},
                                      {states, rows * size.stored() * size.hidden},
                                      {out, rows * size.parts() * size.hidden},
                                      {by_product, size.batch * gates},
                                      {back, units},
                                      {through, units},
                                      {size.hidden, units},
                                      step,
                                      size.time,
                                      size.gates(),
                                      size.stored(),
                                      size.parts(),
                                      size.cell});
    if (step > 0)
      gpu.multiply(
        where, {.m = size.batch, .n = size.hidden, .k = gates, .a = by_product, .b = w, .c = back});
  }
}

} // namespace troupe::cuda
