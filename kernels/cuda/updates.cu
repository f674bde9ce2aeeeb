#include "kernels/cuda/updates.hpp"

#include "kernels/cuda/divider.hpp"
#include "kernels/cuda/kernel.hpp"
#include "kernels/cuda/reductions.hpp"
#include "kernels/optimizers/update_formulas.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <vector>

namespace troupe::cuda {

namespace {

/// The vectors of an update, n elements each; null for state that the rule does not use. The old
/// state is the same memory as the new state if the update is in place.
struct update_vectors {
  view<const float> w;
  view<const float> g;
  view<const float> old0, old1;
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
  bool lazy;

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
/// element in the pack, keeps) for each element, and stores the state. If `keeps` is true, the
/// element keeps its weight, and the direction is 0.
template <unsigned W, class F>
TROUPE_DEVICE void update_pack(width<W> n, const update_vectors& x, const element_update& how,
                               std::size_t i, F f) {
  const bool has_s0 = x.s0.data != nullptr;
  const bool has_s1 = x.s1.data != nullptr;
  const auto w = load_floats(n, x.w, i);
  const auto gradients = load_floats(n, x.g, i);
  auto s0 = has_s0 ? load_floats(n, x.old0, i) : pack<float, W>{};
  auto s1 = has_s1 ? load_floats(n, x.old1, i) : pack<float, W>{};
  TROUPE_UNROLL
  for (unsigned k = 0; k < W; ++k) {
    const bool keeps = how.lazy && gradients.x[k] == 0;
    float step = 0;
    if (!keeps)
      step = how.direction(s0.x[k], s1.x[k], has_s1, w.x[k], how.gradient(gradients.x[k], w.x[k]));
    f(step, w.x[k], k, keeps);
  }
  if (has_s0)
    store_floats(x.s0, i, s0);
  if (has_s1)
    store_floats(x.s1, i, s1);
}

/// Updates elements [i, i + W).
template <unsigned W>
TROUPE_DEVICE void update_weights(width<W> n, const update_vectors& x, const element_update& how,
                                  std::size_t i) {
  pack<float, W> out;
  update_pack(n, x, how, i, [&](float step, float w, unsigned k, bool keeps) {
    out.x[k] = keeps ? w : std::fma(-how.f.rate, step, how.f.shrink * w);
  });
  store_floats(x.out, i, out);
}

struct update_kernel {
  update_vectors x;
  element_update how;
  element_loop all;

  TROUPE_DEVICE void operator()(const thread& t) const {
    all.visit(t, [&](auto n, std::size_t i) { update_weights(n, x, how, i); });
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
      update_pack(width<1>{}, x, how, i, [&](float direction, float w, unsigned, bool) {
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
          static_cast<float>(rule.l1), rule.lazy};
}

/// Checks the sizes, and returns the vectors of an update.
update_vectors vectors_of(const optimizer& rule, const update_arguments<float>& a) {
  const auto n = a.weights.size();
  const auto apart = a.moment.empty() ? std::nullopt : rule.moment_slot();
  const auto slots = rule.slots() - (apart ? 1 : 0);
  const auto stride = a.stride > 0 ? a.stride : n;
  require(a.updated.size() == n && (slots == 0 || a.state.size() == (slots - 1) * stride + n)
            && (a.old_state.empty() || a.old_state.size() == a.state.size())
            && (a.moment.empty() || a.moment.size() == n),
          "update: weights, state and result differ in size");
  const auto* const old_state = a.old_state.empty() ? a.state.data() : a.old_state.data();
  view<const float> old[2];
  view<float> found[2];
  for (std::size_t i = 0, in_state = 0; i < rule.slots(); ++i) {
    const bool is_apart = i == apart;
    const auto begin = is_apart ? 0 : stride * in_state++;
    old[i] = {is_apart ? a.moment.data() : old_state + begin, n};
    found[i] = {is_apart ? a.moment.data() : a.state.data() + begin, n};
  }
  return {{a.weights.data(), n},
          {a.gradient.data(), a.gradient.size()},
          old[0],
          old[1],
          found[0],
          found[1],
          {a.updated.data(), n}};
}

/// The loop over the elements of an update.
element_loop loop_over(const update_vectors& x) {
  return {
    x.out.size,
    {{x.w.data}, {x.g.data}, {x.old0.data}, {x.old1.data}, {x.s0.data}, {x.s1.data}, {x.out.data}}};
}

void update_elements(stream where, const update_vectors& x, const element_update& how) {
  const auto all = loop_over(x);
  launch(where, "update", {all.blocks()}, update_kernel{x, how, all});
}

} // namespace

void update(stream where, const optimizer& rule, const update_arguments<float>& arguments,
            double* space) {
  const auto n = arguments.weights.size();
  require(arguments.gradient.size() == n, "update: weights and gradient differ in size");
  require(!rule.by_tensor() || !rule.lazy, "update: lamb is not lazy");
  const auto x = vectors_of(rule, arguments);
  const auto how = element_update_of(rule, arguments);
  if (!rule.by_tensor()) {
    update_elements(where, x, how);
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

// -- several ranges in one launch

namespace {

/// The number of ranges of a launch. The arguments of a kernel are at most 4 KiB.
constexpr std::size_t most_ranges = 48;
/// Blocks process ranges in tiles of this many elements.
constexpr std::size_t tile_elements = std::size_t{block_threads} * pack_width;

/// update_vectors without the sizes of the views, because the arguments of a kernel have little
/// space.
struct update_range {
  const float* w;
  const float* g;
  const float* old0;
  const float* old1;
  float* s0;
  float* s1;
  float* out;
  std::size_t n;
  /// The number of the first tile of this range, counted over all ranges of the launch.
  std::uint32_t first;
  /// True if all addresses are aligned for packs.
  bool packs;

  TROUPE_DEVICE update_vectors vectors() const {
    return {{w, n}, {g, n}, {old0, n}, {old1, n}, {s0, n}, {s1, n}, {out, n}};
  }
};

/// Calls each(width<W>{}, vectors, i) for elements [i, i + W) of all ranges.
template <class Each>
struct ranges_kernel {
  update_range all[most_ranges];
  unsigned count = 0;
  std::size_t tiles = 0;
  Each each;

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto tile = t.block(); tile < tiles; tile += t.blocks()) {
      unsigned k = 0;
      while (k + 1 < count && all[k + 1].first <= tile)
        ++k;
      visit(t, all[k], (tile - all[k].first) * tile_elements);
    }
  }

  /// Visits the tile of the range that begins with element `begin`.
  TROUPE_DEVICE void visit(const thread& t, const update_range& x, std::size_t begin) const {
    const auto vectors = x.vectors();
    const auto end = begin + tile_elements < x.n ? begin + tile_elements : x.n;
    auto single = begin;
    if (x.packs) {
      single = end / pack_width * pack_width;
      if (const auto i = begin + std::size_t{t.index()} * pack_width; i < single)
        each(width<pack_width>{}, vectors, i);
    }
    for (auto i = single + t.index(); i < end; i += block_threads)
      each(width<1>{}, vectors, i);
  }
};

struct update_element {
  element_update how;

  template <unsigned W>
  TROUPE_DEVICE void operator()(width<W> n, const update_vectors& x, std::size_t i) const {
    update_weights(n, x, how, i);
  }
};

struct statistics_element {
  double scale, decay;

  template <unsigned W>
  TROUPE_DEVICE void operator()(width<W> n, const update_vectors& x, std::size_t i) const {
    const auto w = load_floats(n, x.w, i);
    const auto sum = load_floats(n, x.g, i);
    pack<float, W> out;
    TROUPE_UNROLL
    for (unsigned k = 0; k < W; ++k) {
      const double old = w.x[k];
      out.x[k] = static_cast<float>(old + decay * (scale * static_cast<double>(sum.x[k]) - old));
    }
    store_floats(x.out, i, out);
  }
};

struct copied_element {
  template <unsigned W>
  TROUPE_DEVICE void operator()(width<W> n, const update_vectors& x, std::size_t i) const {
    store_floats(x.out, i, load_floats(n, x.w, i));
  }
};

/// Launches `each` for all ranges, up to most_ranges at a time.
template <class Each>
void launch_ranges(stream where, const char* name, std::span<const update_vectors> all,
                   const Each& each) {
  while (!all.empty()) {
    const auto now = all.first(std::min(all.size(), most_ranges));
    all = all.subspan(now.size());
    ranges_kernel<Each> kernel{{}, 0, 0, each};
    for (const auto& x : now) {
      kernel.all[kernel.count++] = {x.w.data,
                                    x.g.data,
                                    x.old0.data,
                                    x.old1.data,
                                    x.s0.data,
                                    x.s1.data,
                                    x.out.data,
                                    x.out.size,
                                    static_cast<std::uint32_t>(kernel.tiles),
                                    loop_over(x).has_packs()};
      kernel.tiles += (x.out.size + tile_elements - 1) / tile_elements;
    }
    launch(where, name, {blocks_for(kernel.tiles, 1)}, kernel);
  }
}

/// Calls submit(x, vectors) for each group of updates that same(x, y) puts together. x is one
/// update of the group, and `vectors` has the vectors of all its updates.
template <class T, class Same, class Vectors, class Submit>
void by_groups(std::span<const T> all, Same same, Vectors vectors_of_update, Submit submit) {
  std::vector<const T*> left;
  for (const auto& x : all)
    left.push_back(&x);
  while (!left.empty()) {
    const auto& first = *left.front();
    std::vector<update_vectors> group;
    std::erase_if(left, [&](const T* x) {
      const bool here = same(*x, first);
      if (here)
        group.push_back(vectors_of_update(*x));
      return here;
    });
    submit(first, group);
  }
}

/// True if the updates of two ranges differ only in their vectors.
bool same_update(const range_step& a, const range_step& b) {
  const auto& x = a.arguments;
  const auto& y = b.arguments;
  return a.rule == b.rule && x.rate == y.rate && x.scale == y.scale && x.step == y.step
    && x.moment_step == y.moment_step && x.look_ahead == y.look_ahead;
}

update_vectors vectors_of_step(const range_step& x) {
  require(!x.rule.by_tensor(), "update: lamb updates one tensor at a time");
  require(x.arguments.gradient.size() == x.arguments.weights.size(),
          "update: weights and gradient differ in size");
  return vectors_of(x.rule, x.arguments);
}

update_vectors vectors_of_statistics(const statistics_step& x) {
  const auto n = x.weights.size();
  require(x.sum.size() == n && x.updated.size() == n,
          "update_statistics: the ranges differ in size");
  return {{x.weights.data(), n}, {x.sum.data(), n}, {}, {}, {}, {}, {x.updated.data(), n}};
}

} // namespace

void update(stream where, std::span<const range_step> all) {
  by_groups(all, same_update, vectors_of_step,
            [&](const range_step& x, std::span<const update_vectors> vectors) {
              const auto how = element_update_of(x.rule, x.arguments);
              if (vectors.size() == 1)
                update_elements(where, vectors.front(), how);
              else
                launch_ranges(where, "update_ranges", vectors, update_element{how});
            });
}

void update_statistics(stream where, std::span<const statistics_step> all) {
  const auto same = [](const statistics_step& x, const statistics_step& y) {
    return x.scale == y.scale && x.decay == y.decay;
  };
  by_groups(
    all, same, vectors_of_statistics,
    [&](const statistics_step& x, std::span<const update_vectors> vectors) {
      launch_ranges(where, "update_statistics", vectors, statistics_element{x.scale, x.decay});
    });
}

void copy_ranges(stream where, std::span<const range_copy> all) {
  std::vector<update_vectors> vectors;
  for (const auto& x : all)
    vectors.push_back({{x.from, x.n}, {}, {}, {}, {}, {}, {x.to, x.n}});
  launch_ranges(where, "copy_ranges", vectors, copied_element{});
}

// -- some elements of vectors

namespace {

struct range_positions {
  view<const std::uint32_t> begins;
  view<const std::uint32_t> firsts;

  /// The position, in a vector, of element k of a packed vector.
  TROUPE_DEVICE std::size_t operator()(std::size_t k) const {
    std::size_t range = 0; // the last range that begins at or before k
    for (std::size_t end = firsts.size; end - range > 1;) {
      const auto middle = range + (end - range) / 2;
      if (firsts.load(middle) <= k)
        range = middle;
      else
        end = middle;
    }
    return begins.load(range) + (k - firsts.load(range));
  }
};

range_positions positions_of(const packed_ranges& which) {
  return {{which.begins.data(), which.begins.size()}, {which.firsts.data(), which.firsts.size()}};
}

template <bool packs>
struct packed_ranges_kernel {
  range_positions position;
  divider elements;
  std::size_t n;
  view<const float> from;
  view<float> to;

  TROUPE_DEVICE void operator()(const thread& t) const {
    const auto all = packs ? to.size : from.size;
    for (auto k = t.first(); k < all; k += t.stride()) {
      const auto [vector, element] = elements(k);
      const auto i = vector * n + position(element);
      if constexpr (packs)
        to.store(k, from.load(i));
      else
        to.store(i, from.load(k));
    }
  }
};

struct clear_ranges_kernel {
  range_positions position;
  std::size_t elements;
  view<float> to;

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto k = t.first(); k < elements; k += t.stride())
      to.store(position(k), 0);
  }
};

} // namespace

void pack_ranges(stream where, const packed_ranges& which, std::size_t vectors, std::size_t n,
                 const float* from, float* to) {
  const auto all = vectors * which.elements;
  launch(where, "pack_ranges", {blocks_for(all)},
         packed_ranges_kernel<true>{
           positions_of(which), {which.elements, all}, n, {from, vectors * n}, {to, all}});
}

void unpack_ranges(stream where, const packed_ranges& which, std::size_t vectors, std::size_t n,
                   const float* from, float* to) {
  const auto all = vectors * which.elements;
  launch(where, "unpack_ranges", {blocks_for(all)},
         packed_ranges_kernel<false>{
           positions_of(which), {which.elements, all}, n, {from, all}, {to, vectors * n}});
}

void clear_ranges(stream where, const packed_ranges& which, std::size_t n, float* to) {
  launch(where, "clear_ranges", {blocks_for(which.elements)},
         clear_ranges_kernel{positions_of(which), which.elements, {to, n}});
}

} // namespace troupe::cuda
