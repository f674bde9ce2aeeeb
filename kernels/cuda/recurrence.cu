#include "kernels/cuda/recurrence.hpp"

#include "kernels/cpu/math.hpp"
#include "kernels/cuda/kernel.hpp"

namespace troupe::cuda {

namespace {

/// Each step stores several parts of `hidden` values. c of lstm and h of gru are part 4 (counted
/// from 0).
constexpr unsigned kept_part = 4;

/// A block handles a sample at a time. In each time step, each warp multiplies rows of w by the
/// previous h. Then each thread applies the gates of its units.
struct recurrence_kernel {
  view<const float> z;  // (batch, time, gates * hidden)
  view<const float> w;  // (gates * hidden, hidden)
  view<const float> b;  // (gates * hidden), gru only
  view<float> states;   // (batch, time, stored * hidden)
  view<float> products; // (batch, gates * hidden)
  std::size_t batch, time, hidden, gates, stored;
  cell how;

  TROUPE_DEVICE void multiply(const thread& t, std::size_t sample, std::size_t step) const {
    const auto rows = gates * hidden;
    // The position of the previous h, which is the last part of the previous step.
    const auto h = (sample * time + step) * stored * hidden - hidden;
    for (std::size_t row = t.warp(); row < rows; row += block_warps) {
      float total = 0;
      for (std::size_t k = t.lane(); step > 0 && k < hidden; k += warp_threads)
        total += states.load(h + k) * w.load(row * hidden + k);
      total = warp_sum(t, total);
      if (t.lane() == 0)
        products.store(sample * rows + row, total);
    }
  }

  TROUPE_DEVICE void lstm(std::size_t in, std::size_t a, std::size_t out, float before) const {
    const float i = cpu::sigmoid(z.load(in) + products.load(a));
    const float f = cpu::sigmoid(z.load(in + hidden) + products.load(a + hidden));
    const float g = cpu::tanh(z.load(in + 2 * hidden) + products.load(a + 2 * hidden));
    const float o = cpu::sigmoid(z.load(in + 3 * hidden) + products.load(a + 3 * hidden));
    const float c = f * before + i * g;
    states.store(out, i);
    states.store(out + hidden, f);
    states.store(out + 2 * hidden, g);
    states.store(out + 3 * hidden, o);
    states.store(out + 4 * hidden, c);
    states.store(out + 5 * hidden, o * cpu::tanh(c));
  }

  TROUPE_DEVICE void gru(std::size_t in, std::size_t a, std::size_t j, std::size_t out,
                         float before) const {
    const float r = cpu::sigmoid(z.load(in) + products.load(a) + b.load(j));
    const float u =
      cpu::sigmoid(z.load(in + hidden) + products.load(a + hidden) + b.load(j + hidden));
    const float a_n = products.load(a + 2 * hidden) + b.load(j + 2 * hidden);
    const float n = cpu::tanh(z.load(in + 2 * hidden) + r * a_n);
    states.store(out, r);
    states.store(out + hidden, u);
    states.store(out + 2 * hidden, n);
    states.store(out + 3 * hidden, a_n);
    states.store(out + 4 * hidden, (1 - u) * n + u * before);
  }

  TROUPE_DEVICE void apply_gates(const thread& t, std::size_t sample, std::size_t step) const {
    const auto row = sample * time + step;
    const auto width = stored * hidden;
    for (std::size_t j = t.index(); j < hidden; j += block_threads) {
      const auto in = row * gates * hidden + j;
      const auto a = sample * gates * hidden + j;
      const auto out = row * width + j;
      if (how == cell::rnn) {
        states.store(out, cpu::tanh(z.load(in) + products.load(a)));
        continue;
      }
      const float before = step > 0 ? states.load(out - width + kept_part * hidden) : 0.0F;
      if (how == cell::lstm)
        lstm(in, a, out, before);
      else
        gru(in, a, j, out, before);
    }
  }

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto sample = t.block(); sample < batch; sample += t.blocks())
      for (std::size_t step = 0; step < time; ++step) {
        multiply(t, sample, step);
        t.barrier();
        apply_gates(t, sample, step);
        t.barrier();
      }
  }
};

/// A block handles a sample at a time, backward through time. Each thread computes its own units.
struct recurrence_gradient_kernel {
  view<const float> dh;     // (batch, time, hidden)
  view<const float> states; // (batch, time, stored * hidden)
  view<const float> w;      // (gates * hidden, hidden)
  view<float> out;          // (batch, time, parts * hidden)
  /// Gradients that come from the next time step. `back` is the gradient of h. `through` is the
  /// gradient that does not go through the product with w: of c (lstm) or of h (gru).
  view<float> back;       // (batch, hidden)
  view<float> through;    // (batch, hidden)
  view<float> by_product; // (batch, gates * hidden), gru only: of r, u, r n
  std::size_t batch, time, hidden, gates, stored, parts;
  cell how;

  TROUPE_DEVICE void lstm(std::size_t s, std::size_t to, std::size_t direct, float d_h, float d_c,
                          float before) const {
    const float i = states.load(s);
    const float f = states.load(s + hidden);
    const float g = states.load(s + 2 * hidden);
    const float o = states.load(s + 3 * hidden);
    const float c = cpu::tanh(states.load(s + 4 * hidden));
    const float d = d_c + cpu::tanh_gradient(d_h * o, c);
    out.store(to, cpu::sigmoid_gradient(d * g, i));
    out.store(to + hidden, cpu::sigmoid_gradient(d * before, f));
    out.store(to + 2 * hidden, cpu::tanh_gradient(d * i, g));
    out.store(to + 3 * hidden, cpu::sigmoid_gradient(d_h * c, o));
    through.store(direct, d * f);
  }

  TROUPE_DEVICE void gru(std::size_t s, std::size_t to, std::size_t direct, std::size_t product,
                         float d_h, float before) const {
    const float r = states.load(s);
    const float u = states.load(s + hidden);
    const float n = states.load(s + 2 * hidden);
    const float dn = cpu::tanh_gradient(d_h * (1 - u), n);
    const float dr = cpu::sigmoid_gradient(dn * states.load(s + 3 * hidden), r);
    const float du = cpu::sigmoid_gradient(d_h * (before - n), u);
    out.store(to, dr);
    out.store(to + hidden, du);
    out.store(to + 2 * hidden, dn);
    out.store(to + 3 * hidden, dn * r);
    by_product.store(product, dr);
    by_product.store(product + hidden, du);
    by_product.store(product + 2 * hidden, dn * r);
    through.store(direct, d_h * u);
  }

  TROUPE_DEVICE void through_gates(const thread& t, std::size_t sample, std::size_t step) const {
    const auto row = sample * time + step;
    const auto width = stored * hidden;
    const bool last = step + 1 == time;
    for (std::size_t j = t.index(); j < hidden; j += block_threads) {
      const auto own = sample * hidden + j;
      const float d_h = dh.load(row * hidden + j) + (last ? 0.0F : back.load(own));
      const auto s = row * width + j;
      const auto to = row * parts * hidden + j;
      if (how == cell::rnn) {
        out.store(to, cpu::tanh_gradient(d_h, states.load(s)));
        continue;
      }
      const float before = step > 0 ? states.load(s - width + kept_part * hidden) : 0.0F;
      if (how == cell::lstm)
        lstm(s, to, own, d_h, last ? 0.0F : through.load(own), before);
      else
        gru(s, to, own, sample * gates * hidden + j, d_h, before);
    }
  }

  /// Computes `back`: the gradients of the gates times w, plus `through` for gru.
  TROUPE_DEVICE void through_product(const thread& t, std::size_t sample, std::size_t step) const {
    const auto d = (sample * time + step) * parts * hidden;
    for (std::size_t k = t.index(); k < hidden; k += block_threads) {
      float total = how == cell::gru ? through.load(sample * hidden + k) : 0.0F;
      for (std::size_t r = 0; r < gates * hidden; ++r)
        total += (how == cell::gru ? by_product.load(sample * gates * hidden + r) : out.load(d + r))
          * w.load(r * hidden + k);
      back.store(sample * hidden + k, total);
    }
  }

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto sample = t.block(); sample < batch; sample += t.blocks())
      for (auto step = time; step-- > 0;) {
        through_gates(t, sample, step);
        t.barrier();
        through_product(t, sample, step);
        t.barrier();
      }
  }
};

} // namespace

std::size_t recurrence_space(const cpu::recurrence& size) {
  return size.batch * (size.gates() + 2) * size.hidden;
}

void recurrent(stream where, const cpu::recurrence& size, const float* z, const float* w,
               const float* b, float* states, float* space) {
  const auto rows = size.batch * size.time;
  const auto gates = size.gates() * size.hidden;
  launch(where, "recurrent", {blocks_for(size.batch, 1)},
         recurrence_kernel{{z, rows * gates},
                           {w, gates * size.hidden},
                           {b, size.cell == cell::gru ? gates : 0},
                           {states, rows * size.stored() * size.hidden},
                           {space, size.batch * gates},
                           size.batch,
                           size.time,
                           size.hidden,
                           size.gates(),
                           size.stored(),
                           size.cell});
}

void recurrent_gradient(stream where, const cpu::recurrence& size, const float* dh,
                        const float* states, const float* w, float* out, float* space) {
  const auto rows = size.batch * size.time;
  const auto units = size.batch * size.hidden;
  const auto gates = size.gates() * size.hidden;
  launch(where, "recurrent_gradient", {blocks_for(size.batch, 1)},
         recurrence_gradient_kernel{{dh, rows * size.hidden},
                                    {states, rows * size.stored() * size.hidden},
                                    {w, gates * size.hidden},
                                    {out, rows * size.parts() * size.hidden},
                                    {space, units},
                                    {space + units, units},
                                    {space + 2 * units, size.batch * gates},
                                    size.batch,
                                    size.time,
                                    size.hidden,
                                    size.gates(),
                                    size.stored(),
                                    size.parts(),
                                    size.cell});
}

} // namespace troupe::cuda
