#pragma once

#include "kernels/devices/device_error.hpp"
#include "kernels/graph/layout.hpp"
#include "kernels/optimizers/optimizer.hpp"
#include "kernels/range.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace troupe {

/// A part of a range of parameters that is updated in one way.
struct update_part {
  /// Elements of the range. If the rule needs whole tensors, one tensor.
  range where;
  parameter_kind kind = parameter_kind::trainable;
  /// For trainable parameters.
  optimizer rule;
  double rate = 0;
  /// For state: see update_statistics.
  double decay = 0;
};

/// One update of a range of n parameters. All memory is the host's, and is borrowed for the call.
/// An updater of a device_replica holds the weights itself, so `weights` and `updated` are empty.
struct range_update {
  std::span<const float> weights; ///< n
  /// n, summed over samples. Empty: the gradient of the device_replica's last run; in a
  /// device_ring, the sum over all replicas.
  std::span<const float> gradient;
  std::span<float> updated; ///< n; `weights`, or memory that does not overlap it
  /// All elements, each in one part, in order.
  std::span<const update_part> parts;
  /// 1 / samples, for statistics; and the factor on the gradient of trainable parameters.
  double mean = 1;
  double scale = 1;
  /// Number of updates of this range, including this one.
  std::uint64_t step = 1;
  /// See update_arguments. The moment is n elements, or empty.
  std::span<float> moment = {};
  std::uint64_t moment_step = 0;
  bool look_ahead = false;
  /// n elements that are added to the gradient, or empty. Only if the updater adds_up().
  std::span<const float> addend = {};
  /// If not null: becomes false if an element of the gradient is not finite. Only if the updater
  /// adds_up().
  bool* finite = nullptr;
};

/// What an updater allocates.
struct updater_sizes {
  /// Parameters of its range.
  std::size_t elements = 0;
  /// Slots of state that it holds, each of `elements`.
  std::size_t slots = 0;
  /// True if the caller holds the first moment, and passes it with each update.
  bool moment_apart = false;
  /// See optimizer::by_tensor.
  bool by_tensor = false;
  /// True if all gradients are those of runs of its device_replica.
  bool gradient_there = false;
  /// True if, in addition, they are added up over all replicas of a device_ring.
  bool in_ring = false;
};

/// Updates a range of parameters on a device, and holds the optimizer's state there, which starts
/// at 0. The bits are the same on all devices, except for lamb, whose norms round differently. One
/// thread at a time. A GPU throws device_error if it fails; the state is then undefined.
class device_updater {
public:
  device_updater() = default;
  device_updater(const device_updater&) = delete;
  device_updater& operator=(const device_updater&) = delete;
  virtual ~device_updater() = default;

  /// True if the updater takes range_update::addend and range_update::finite, for rules that do not
  /// need whole tensors. It then reads each element once.
  virtual bool adds_up() const noexcept { return false; }

  /// Makes an update. A GPU keeps a copy of `updated` and begins the next update with it, if that
  /// one's `weights` are the same memory; so the caller must not change them in between, unless it
  /// calls forget_weights().
  virtual void apply(const range_update& x) = 0;

  /// The same, but the state changes only with publish(). `updated` must not overlap `weights`.
  /// Without `moment`.
  virtual void stage(const range_update& x) = 0;
  virtual void publish() noexcept = 0;

  /// Allocates the memory for stage() now.
  virtual void reserve_stage() = 0;

  /// The next update reads its weights from the host's memory, even if `weights` is that of the
  /// last `updated`.
  virtual void forget_weights() noexcept {}

  /// Only for an updater of a device_replica: copies the newest weights, all elements, to the host
  /// or from there, and waits.
  virtual void read_weights(std::span<float>) {}
  virtual void write_weights(std::span<const float>) {}

  /// Only for an updater of a device_ring: adds up the gradients of the last runs of all R
  /// replicas. The order of additions is that of the ring between hosts
  /// (all_reduce_schedule::ring), so the sum has the same bits. There are three steps:
  /// 1. add_up(): this rank adds up segment `rank` of R (split_evenly), in the order of ranks
  ///    `rank`, `rank` + 1, ... It reads that segment from all replicas. Call it when the runs of
  ///    all ranks have ended.
  /// 2. gather(): it copies each other segment from the rank that adds it up. Call it when all
  /// ranks
  ///    have called add_up().
  /// 3. sum_is_finite() waits. True if all elements of the sum are finite. After that, this replica
  ///    may run again, or add up again.
  virtual void add_up() {}
  virtual void gather() {}
  virtual bool sum_is_finite() { return true; }
  /// Makes this replica's gradient 0, and waits. Call it after sum_is_finite() and before the next
  /// add_up() of any rank.
  virtual void clear_gradient() {}

  /// A slot of the state, all elements. Valid until the next call.
  virtual std::span<const float> state(std::size_t slot) = 0;
  virtual void restore(std::size_t slot, std::span<const float> values) = 0;
};

/// Makes updaters of one device. May throw device_error.
using updater_maker = std::function<std::unique_ptr<device_updater>(const updater_sizes&)>;

std::unique_ptr<device_updater> make_cpu_updater(const updater_sizes& sizes);

} // namespace troupe
