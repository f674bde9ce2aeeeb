#pragma once

#include "kernels/devices/device_error.hpp"
#include "kernels/graph/layout.hpp"
#include "kernels/optimizers/gradient_norm.hpp"
#include "kernels/optimizers/optimizer.hpp"
#include "kernels/range.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace troupe {

/// A part of a range of parameters whose elements are all updated in the same way.
struct update_part {
  /// The positions of the part in the range. If the rule needs whole tensors
  /// (optimizer::by_tensor), the part is exactly one tensor.
  range where;
  parameter_kind kind = parameter_kind::trainable;
  /// For trainable parameters: the update rule and the learning rate.
  optimizer rule;
  double rate = 0;
  /// For parameter_kind::state: the argument of update_statistics().
  double decay = 0;
};

/// One update of a range of n parameters. All memory is memory of the host, and is borrowed for the
/// call. An updater of a device_replica holds the weights itself; `weights` and `updated` are then
/// empty.
struct range_update {
  std::span<const float> weights; ///< n
  /// n elements, summed over samples. If it is empty, the updater uses the gradient of the last run
  /// of its device_replica, or in a device_ring, the sum of these gradients over all replicas.
  std::span<const float> gradient;
  std::span<float> updated; ///< n; this is `weights`, or does not overlap it
  /// The parts of the range, in order. Each element is in exactly one part. All updates of an
  /// updater have parts with the same positions and kinds.
  std::span<const update_part> parts;
  /// `mean` is 1 / samples; it is used for parameter_kind::state. `scale` is the factor on the
  /// gradient of trainable parameters.
  double mean = 1;
  double scale = 1;
  /// Number of updates of this range, including this one.
  std::uint64_t step = 1;
  /// See update_arguments (kernels/optimizers/optimizer.hpp). `moment` is the first moment: n
  /// elements, or empty.
  std::span<float> moment = {};
  std::uint64_t moment_step = 0;
  bool look_ahead = false;
  /// n elements that are added to the gradient. Empty if nothing is added. It must be empty if
  /// device_updater::adds_up() is false.
  std::span<const float> addend = {};
  /// If an element of the gradient is not finite, *finite becomes false. Null if the caller does
  /// not need this check. It must be null if device_updater::adds_up() is false.
  bool* finite = nullptr;
  /// If it is not null, the update need not change other elements: their gradient is 0, their rule
  /// keeps them (optimizer::keeps_zero_gradients), and `updated` has their weights already. The
  /// updater may ignore this and update all elements.
  const range_list* only = nullptr;
};

/// The sizes that determine how much memory an updater allocates.
struct updater_sizes {
  /// Number of parameters of the range.
  std::size_t elements = 0;
  /// Number of vectors of optimizer state (slots) that the updater holds. Each has `elements`
  /// elements.
  std::size_t slots = 0;
  /// True if the caller holds the first moment, and passes it with each update
  /// (range_update::moment).
  bool moment_apart = false;
  /// See optimizer::by_tensor.
  bool by_tensor = false;
  /// True if all gradients come from runs of the device_replica (range_update::gradient is always
  /// empty).
  bool gradient_there = false;
  /// True if gradient_there is true, and the gradients are added up over all replicas of a
  /// device_ring.
  bool in_ring = false;
  /// Used only if in_ring is true: the parts of the range, for the norm of the sum.
  std::vector<norm_part> norm_parts = {};
  /// True if no update sets range_update::only. A GPU then needs no memory for the positions of
  /// these elements.
  bool whole = false;
};

/// Updates a range of parameters on a device, and holds the optimizer's state there. The state
/// starts at 0. All devices compute the same bits, except for lamb, because devices add up its
/// norms in different orders. Only one thread at a time may use an updater. If a GPU fails,
/// functions throw device_error, and the state is undefined.
class device_updater {
public:
  device_updater() = default;
  device_updater(const device_updater&) = delete;
  device_updater& operator=(const device_updater&) = delete;
  virtual ~device_updater() = default;

  /// True if the updater accepts range_update::addend and range_update::finite. The sum, the check
  /// and the update are then computed in a single pass over the elements. This is possible only for
  /// rules that do not need whole tensors (optimizer::by_tensor).
  virtual bool adds_up() const noexcept { return false; }

  /// Makes an update. A GPU keeps a copy of `updated`. If `weights` of the next update is the same
  /// memory, the GPU uses its copy. Therefore, the caller must not change this memory between the
  /// two updates without calling forget_weights().
  virtual void apply(const range_update& x) = 0;

  /// Makes an update like apply(), but the new state takes effect only when publish() is called.
  /// `updated` must not overlap `weights`, and `moment` must be empty.
  virtual void stage(const range_update& x) = 0;
  virtual void publish() noexcept = 0;

  /// Allocates the memory for stage() now.
  virtual void reserve_stage() = 0;

  /// Makes the next update read range_update::weights from the host's memory, even if this memory
  /// is `updated` of the last update.
  virtual void forget_weights() noexcept {}

  /// Only for an updater of a device_replica. read_weights() copies the newest weights of the whole
  /// range to the host. write_weights() replaces the weights by values from the host. When a call
  /// returns, the caller may use or change the memory of the host.
  virtual void read_weights(std::span<float>) {}
  virtual void write_weights(std::span<const float>) {}

  /// Only for an updater of a device_ring. These functions add up the gradients of the last runs of
  /// all R replicas. The order of additions is the same as in the ring between hosts
  /// (all_reduce_schedule::ring), so the sum has the same bits. There are three steps:
  /// 1. add_up(): The range is divided into R segments (split_evenly). This rank reads segment
  ///    number `rank` of all replicas, and adds up in the order of ranks `rank`, `rank` + 1, ...
  ///    Call it when the runs of all ranks have ended.
  /// 2. gather(): This rank copies each other segment from the rank that adds it up. Call it when
  ///    all ranks have called add_up().
  /// 3. squared_norm_of_sum(): Waits for the sum. Returns the sum of squares of its elements,
  ///    without statistics of layers. It is NaN if an element is not finite. (Elements of frozen
  ///    parameters do not matter.) All replicas get the same bits. After that, this replica may
  ///    run again, or add up again.
  virtual void add_up() {}
  virtual void gather() {}
  virtual double squared_norm_of_sum() { return 0; }
  /// Sets the gradient of this replica to 0 in the range of this updater, and waits. Call it after
  /// squared_norm_of_sum(), and before any rank calls add_up() again.
  virtual void clear_gradient() {}

  /// All elements of a slot of the state. Valid until the next call of any function.
  virtual std::span<const float> state(std::size_t slot) = 0;
  virtual void restore(std::size_t slot, std::span<const float> values) = 0;
};

/// A function that makes updaters on one device. It may throw device_error.
using updater_maker = std::function<std::unique_ptr<device_updater>(const updater_sizes&)>;

std::unique_ptr<device_updater> make_cpu_updater(const updater_sizes& sizes);

} // namespace troupe
