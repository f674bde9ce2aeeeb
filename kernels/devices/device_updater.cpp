#include "kernels/devices/device_updater.hpp"

#include "kernels/cpu/reduce.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace troupe {

namespace {

class cpu_updater final : public device_updater {
public:
  explicit cpu_updater(const updater_sizes& sizes)
    : sizes_(sizes), state_(sizes.slots * sizes.elements) {}

  bool adds_up() const noexcept override { return true; }
  void apply(const range_update& x) override { run(x, state_, {}); }
  void stage(const range_update& x) override {
    reserve_stage();
    run(x, staged_, state_);
  }
  void publish() noexcept override { std::swap(state_, staged_); }
  void reserve_stage() override { staged_.resize(state_.size()); }
  std::span<const float> state(std::size_t slot) override { return slot_of(slot); }
  void restore(std::size_t slot, std::span<const float> values) override {
    std::ranges::copy(values.first(sizes_.elements), slot_of(slot).begin());
  }

private:
  std::span<float> slot_of(std::size_t slot) {
    return std::span{state_}.subspan(slot * sizes_.elements, sizes_.elements);
  }

  /// Calls visit(block, gradient) for each block of `where`. The gradient includes x.addend. Sets
  /// *x.finite to false if an element is not finite.
  template <class Visit>
  static void each_block(const range_update& x, range where, Visit visit) {
    constexpr std::size_t most = 1024;
    std::array<float, most> sum;
    for (auto i = where.begin; i < where.end; i += most) {
      const range here{i, std::min(i + most, where.end)};
      auto gradient = x.gradient.subspan(i, here.size());
      if (!x.addend.empty()) {
        const auto out = std::span{sum}.first(here.size());
        add(gradient, x.addend.subspan(i, here.size()), out);
        gradient = out;
      }
      if (x.finite != nullptr && !all_finite(gradient))
        *x.finite = false;
      visit(here, gradient);
    }
  }

  /// Updates statistics of layers (parameter_kind::state), or copies frozen parameters. No
  /// optimizer rule is involved.
  void follow(const range_update& x, const update_part& part, std::span<float> state,
              std::span<const float> old_state) const {
    for (std::size_t slot = 0; slot < sizes_.slots && !old_state.empty(); ++slot)
      std::ranges::copy(
        old_state.subspan(slot * sizes_.elements + part.where.begin, part.where.size()),
        state.subspan(slot * sizes_.elements + part.where.begin).begin());
    each_block(x, part.where, [&](range here, std::span<const float> gradient) {
      const auto weights = x.weights.subspan(here.begin, here.size());
      const auto updated = x.updated.subspan(here.begin, here.size());
      if (part.kind == parameter_kind::state)
        update_statistics(weights, gradient, x.mean, part.decay, updated);
      else if (updated.data() != weights.data())
        std::ranges::copy(weights, updated.begin());
    });
  }

  /// @param old_state the state before the update; empty if `state` contains it
  void run(const range_update& x, std::span<float> state, std::span<const float> old_state) const {
    const range_list all{{0, sizes_.elements}};
    const auto& only = x.only == nullptr ? all : *x.only;
    auto next = only.begin();
    for (auto part : x.parts) {
      const auto whole = part.where;
      while (next != only.end() && next->end <= whole.begin)
        ++next;
      for (auto i = next; i != only.end() && i->begin < whole.end; ++i) {
        part.where = intersect(*i, whole);
        run(x, part, state, old_state);
      }
    }
  }

  void run(const range_update& x, const update_part& part, std::span<float> state,
           std::span<const float> old_state) const {
    if (part.kind != parameter_kind::trainable) {
      follow(x, part, state, old_state);
      return;
    }
    const auto begin = part.where.begin;
    const auto n = part.where.size();
    update_arguments<float> arguments;
    arguments.weights = x.weights.subspan(begin, n);
    arguments.gradient = x.gradient.subspan(begin, n);
    arguments.updated = x.updated.subspan(begin, n);
    if (!x.addend.empty())
      arguments.addend = x.addend.subspan(begin, n);
    arguments.finite = x.finite;
    if (sizes_.slots > 0) {
      const auto size = (sizes_.slots - 1) * sizes_.elements + n;
      arguments.state = state.subspan(begin, size);
      if (!old_state.empty())
        arguments.old_state = old_state.subspan(begin, size);
    }
    arguments.stride = sizes_.elements;
    if (sizes_.moment_apart)
      arguments.moment = x.moment.subspan(begin, n);
    arguments.moment_step = x.moment_step;
    arguments.look_ahead = x.look_ahead;
    arguments.rate = part.rate;
    arguments.scale = x.scale;
    arguments.step = x.step;
    update(part.rule, arguments);
  }

  updater_sizes sizes_;
  std::vector<float> state_;
  /// The state after the staged update.
  std::vector<float> staged_;
};

} // namespace

std::unique_ptr<device_updater> make_cpu_updater(const updater_sizes& sizes) {
  return std::make_unique<cpu_updater>(sizes);
}

} // namespace troupe
