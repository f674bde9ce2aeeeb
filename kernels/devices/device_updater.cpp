#include "kernels/devices/device_updater.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace troupe {

namespace {

class cpu_updater final : public device_updater {
public:
  explicit cpu_updater(const updater_sizes& sizes)
    : sizes_(sizes), state_(sizes.slots * sizes.elements) {}

  void apply(const range_update& x) override { run(x, state_); }
  void stage(const range_update& x) override {
    staged_ = state_;
    run(x, staged_);
  }
  void publish() noexcept override { std::swap(state_, staged_); }
  void reserve_stage() override { staged_ = state_; }
  std::span<const float> state(std::size_t slot) override { return slot_of(slot); }
  void restore(std::size_t slot, std::span<const float> values) override {
    std::ranges::copy(values.first(sizes_.elements), slot_of(slot).begin());
  }

private:
  std::span<float> slot_of(std::size_t slot) {
    return std::span{state_}.subspan(slot * sizes_.elements, sizes_.elements);
  }

  void run(const range_update& x, std::span<float> state) const {
    for (const auto& part : x.parts) {
      const auto begin = part.where.begin;
      const auto n = part.where.size();
      update_arguments<float> arguments;
      arguments.weights = x.weights.subspan(begin, n);
      arguments.gradient = x.gradient.subspan(begin, n);
      arguments.updated = x.updated.subspan(begin, n);
      if (part.kind == parameter_kind::frozen) {
        if (arguments.updated.data() != arguments.weights.data())
          std::ranges::copy(arguments.weights, arguments.updated.begin());
        continue;
      }
      if (part.kind == parameter_kind::state) {
        update_statistics(arguments.weights, arguments.gradient, x.mean, part.decay,
                          arguments.updated);
        continue;
      }
      if (sizes_.slots > 0)
        arguments.state = state.subspan(begin, (sizes_.slots - 1) * sizes_.elements + n);
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
