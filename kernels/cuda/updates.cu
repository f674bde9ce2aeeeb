#include "kernels/cuda/updates.hpp"

#include "kernels/cuda/divider.hpp"
#include "kernels/cuda/kernel.hpp"
#include "kernels/cuda/reductions.hpp"
#include "kernels/optimizers/update_formulas.hpp"

#include <cmath>
#include <optional>
#include <stdexcept>

namespace troupe::cuda {

namespace {

/// The vectors of an update, n elements each; null for state that the rule does not use.
struct update_vectors {
  view<const float> w;
  view<const float> g;
  view<float> s0, s1;
  view<float> out;
};

/// The values that are the same for all elements of an update.
struct element_update {
  optimizer_kind kind;
  /// The factors of the rule. Without a penalty l1 on absolute weights, `f` computes the complete
  /// gradient of a step, and `scaled` is not used. With the penalty, `scaled` computes the complete
  /// gradient. `f` then does not scale, clip or decay this gradient again.
  update_factors<float> f, scaled;
  float l1;

  TROUPE_DEVICE float gradient(float g, float w) const {
    return decayed_gradient(f, l1 != 0 ? penalized_gradient(scaled, l1, g, w) : g, w);
  }

  /// Updates the state of an element with weight w: s0 and s1, if the rule uses them. `d` is the
  /// complete gradient of the step. Returns the direction of the step, which is not yet multiplied
  /// by the rate.
  TROUPE_DEVICE float direction(float& s0, float& s1, bool has_s1, float w, float d) const {
    switch (kind) {
    case optimizer_kind::sgd:
      return d;
    case optimizer_kind::momentum:
    case optimizer_kind::nesterov:
      s0 = next_velocity(f, s0, d);
      return kind == optimizer_kind::nesterov || f.look_ahead ? next_velocity(f, s0, d) : s0;
    case optimizer_kind::adagrad:
      s0 = next_sum_of_squares(s0, d);
      return normalized_gradient(f, d, s0);
    case optimizer_kind::rmsprop: {
      s0 = next_mean_square(f, s0, d);
      const auto normalized = normalized_gradient(f, d, s0);
      if (!has_s1)
        return normalized;
      s1 = next_velocity(f, s1, normalized);
      return f.look_ahead ? next_velocity(f, s1, normalized) : s1;
    }
    default:
      s0 = next_mean(f, s0, d);
      s1 = next_mean_square(f, s1, d);
      return of_moments(w, f.look_ahead ? next_mean(f, s0, d) : s0, s1);
    }
  }
  TROUPE_DEVICE float of_moments(float w, float mean, float square) const {
    return kind == optimizer_kind::lamb ? lamb_direction(f, w, mean, square)
                                        : moments_direction(f, mean, square);
  }
};

/// Loads the weights and the state of elements [i, i + W), calls f(direction, weight, number of the
/// element in the pack) for each element, and stores the state. The gradients of the pack begin at
/// index g.
template <unsigned W, class F>
TROUPE_DEVICE void update_pack(width<W> n, const update_vectors& x, const element_update& how,
                               std::size_t i, std::size_t g, F f) {
  const bool has_s0 = x.s0.data != nullptr;
  const bool has_s1 = x.s1.data != nullptr;
  const auto w = load_floats(n, x.w, i);
  const auto gradients = load_floats(n, x.g, g);
  auto s0 = has_s0 ? load_floats(n, x.s0, i) : pack<float, W>{};
  auto s1 = has_s1 ? load_floats(n, x.s1, i) : pack<float, W>{};
  TROUPE_UNROLL
  for (unsigned k = 0; k < W; ++k)
    f(how.direction(s0.x[k], s1.x[k], has_s1, w.x[k], how.gradient(gradients.x[k], w.x[k])), w.x[k],
      k);
  if (has_s0)
    store_floats(x.s0, i, s0);
  if (has_s1)
    store_floats(x.s1, i, s1);
}

/// Updates elements [i, i + W).
template <unsigned W>
TROUPE_DEVICE void update_weights(width<W> n, const update_vectors& x, const element_update& how,
                                  std::size_t i, std::size_t g) {
  pack<float, W> out;
  update_pack(n, x, how, i, g, [&](float step, float w, unsigned k) {
    out.x[k] = std::fma(-how.f.rate, step, how.f.shrink * w);
  });
  store_floats(x.out, i, out);
}

struct update_kernel {
  update_vectors x;
  element_update how;
  element_loop all;

  TROUPE_DEVICE void operator()(const thread& t) const {
    all.visit(t, [&](auto n, std::size_t i) { update_weights(n, x, how, i, i); });
  }
};

struct update_rows_kernel {
  update_vectors x; // g (ids, columns), the others (rows, columns)
  element_update how;
  view<const std::int32_t> ids;
  divider columns;

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto k = t.first(); k < x.g.size; k += t.stride()) {
      const auto [row, column] = columns(k);
      const auto i = static_cast<std::size_t>(ids.load(row)) * columns.divisor() + column;
      update_weights(width<1>{}, x, how, i, k);
    }
  }
};

// -- lamb: one kernel for state and norms, one for the trust ratio, one for the weights

constexpr std::size_t norm_blocks = block_threads;
static_assert(2 * norm_blocks <= sum_space);

struct lamb_state_kernel {
  update_vectors x;
  element_update how;
  view<double> norms; // (2, norm_blocks): sums of squares of weights, of directions

  TROUPE_DEVICE void operator()(const thread& t) const {
    double weights = 0;
    double directions = 0;
    for (auto i = t.first(); i < x.out.size; i += t.stride())
      update_pack(width<1>{}, x, how, i, i, [&](float direction, float w, unsigned) {
        const auto d = static_cast<double>(direction);
        weights += static_cast<double>(w) * static_cast<double>(w);
        directions += d * d;
      });
    const auto space = t.shared<double>(block_warps);
    weights = block_sum(t, weights, space);
    directions = block_sum(t, directions, space);
    if (t.index() == 0) {
      norms.store(t.block(), weights);
      norms.store(norm_blocks + t.block(), directions);
    }
  }
};

/// Computes the trust ratio, and writes it to norms[0].
struct lamb_trust_kernel {
  view<double> norms;
  std::size_t blocks;

  TROUPE_DEVICE void operator()(const thread& t) const {
    const bool mine = t.index() < blocks;
    const auto space = t.shared<double>(block_warps);
    const auto weights = block_sum(t, mine ? norms.load(t.index()) : 0, space);
    const auto directions = block_sum(t, mine ? norms.load(norm_blocks + t.index()) : 0, space);
    if (t.index() == 0)
      norms.store(0, weights > 0 && directions > 0 ? std::sqrt(weights / directions) : 1);
  }
};

struct lamb_weights_kernel {
  update_vectors x;
  element_update how;
  view<const double> norms;
  double rate;

  TROUPE_DEVICE void operator()(const thread& t) const {
    const auto step = static_cast<float>(rate * norms.load(0));
    for (auto i = t.first(); i < x.out.size; i += t.stride()) {
      const auto w = x.w.load(i);
      auto mean = x.s0.load(i);
      if (how.f.look_ahead)
        mean = next_mean(how.f, mean, how.gradient(x.g.load(i), w));
      x.out.store(i, std::fma(-step, how.of_moments(w, mean, x.s1.load(i)), w));
    }
  }
};

void require(bool condition, const char* what) {
  if (!condition)
    throw std::invalid_argument(what);
}

element_update element_update_of(const optimizer& rule, const update_arguments<float>& arguments) {
  const auto scaled = update_factors_of(rule, arguments);
  return {rule.kind, rule.l1 != 0 ? for_whole_gradients(scaled) : scaled, scaled,
          static_cast<float>(rule.l1)};
}

/// Checks the sizes, and returns the vectors of an update.
update_vectors vectors_of(const optimizer& rule, const update_arguments<float>& a) {
  const auto n = a.weights.size();
  const auto apart = a.moment.empty() ? std::nullopt : rule.moment_slot();
  const auto slots = rule.slots() - (apart ? 1 : 0);
  const auto stride = a.stride > 0 ? a.stride : n;
  require(a.updated.size() == n && (slots == 0 || a.state.size() == (slots - 1) * stride + n)
            && (a.moment.empty() || a.moment.size() == n),
          "update: weights, state and result differ in size");
  view<float> found[2];
  for (std::size_t i = 0, in_state = 0; i < rule.slots(); ++i)
    found[i] = {i == apart ? a.moment.data() : a.state.data() + stride * in_state++, n};
  return {{a.weights.data(), n},
          {a.gradient.data(), a.gradient.size()},
          found[0],
          found[1],
          {a.updated.data(), n}};
}

} // namespace

void update(stream where, const optimizer& rule, const update_arguments<float>& arguments,
            double* space) {
  const auto n = arguments.weights.size();
  require(arguments.gradient.size() == n, "update: weights and gradient differ in size");
  const auto x = vectors_of(rule, arguments);
  const auto how = element_update_of(rule, arguments);
  if (!rule.by_tensor()) {
    const element_loop all(n, {{x.w.data}, {x.g.data}, {x.s0.data}, {x.s1.data}, {x.out.data}});
    launch(where, "update", {all.blocks()}, update_kernel{x, how, all});
    return;
  }
  const auto blocks = std::min(blocks_for(n), norm_blocks);
  constexpr auto shared = block_warps * sizeof(double);
  const view<double> norms{space, sum_space};
  launch(where, "lamb_state", {blocks, shared}, lamb_state_kernel{x, how, norms});
  launch(where, "lamb_trust", {1, shared}, lamb_trust_kernel{norms, blocks});
  launch(where, "lamb_weights", {blocks_for(n)},
         lamb_weights_kernel{x, how, {space, sum_space}, arguments.rate});
}

void update_rows(stream where, const optimizer& rule, const update_arguments<float>& arguments,
                 std::span<const std::int32_t> ids, std::size_t columns) {
  require(!rule.by_tensor(), "update_rows: this rule works on whole tensors");
  require(arguments.gradient.size() == ids.size() * columns,
          "update_rows: ids and gradient differ in size");
  require(arguments.updated.data() == arguments.weights.data(), "update_rows: it works in place");
  launch(where, "update_rows", {blocks_for(arguments.gradient.size())},
         update_rows_kernel{vectors_of(rule, arguments),
                            element_update_of(rule, arguments),
                            {ids.data(), ids.size()},
                            {columns, arguments.gradient.size()}});
}

namespace {

struct statistics_kernel {
  view<const float> w, sum;
  view<float> out;
  double scale, decay;

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto i = t.first(); i < out.size; i += t.stride()) {
      const double old = w.load(i);
      out.store(i,
                static_cast<float>(old + decay * (scale * static_cast<double>(sum.load(i)) - old)));
    }
  }
};

} // namespace

void update_statistics(stream where, std::span<const float> weights, std::span<const float> sum,
                       double scale, double decay, std::span<float> updated) {
  const auto n = weights.size();
  require(sum.size() == n && updated.size() == n, "update_statistics: the ranges differ in size");
  launch(
    where, "update_statistics", {blocks_for(n)},
    statistics_kernel{{weights.data(), n}, {sum.data(), n}, {updated.data(), n}, scale, decay});
}

} // namespace troupe::cuda
