#pragma once

#include "actors/model/data_shape.hpp"
#include "actors/model/model_builder.hpp"
#include "actors/model/optimizer_builder.hpp"
#include "actors/model/protocol_traits.hpp"
#include "kernels/devices/device_replica.hpp"
#include "kernels/devices/device_updater.hpp"
#include "kernels/graph/orthogonal.hpp"
#include "kernels/optimizers/optimizer.hpp"
#include "kernels/optimizers/schedule.hpp"
#include "kernels/plan/plan.hpp"
#include "kernels/range.hpp"
#include "messages/proto/data.pb.h"
#include "messages/proto/job.pb.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// A job and everything built from it. All actors of a node share it. It is read-only and may be
/// used by any thread.
struct job_context {
  proto::Job job;
  std::string hash;
  /// Metadata for files of weights: metadata_of(). Empty if the data is not known.
  std::map<std::string, std::string> metadata;
  /// The traits of the job's protocol, adjusted to the job (adapted_traits).
  protocol_traits protocol;
  data_shape data;
  /// The fingerprint of the coordinator's data; nothing if it is not known.
  std::optional<proto::DataFingerprint> fingerprint;
  built_model model;
  /// Computes the loss and the gradients of a worker's batch.
  std::shared_ptr<const plan> training;
  optimizer rule;
  /// If empty, `rule` applies to all parameters.
  parameter_groups groups;
  learning_rate rate;

  /// The update rule of a tensor, given by its position in the layout.
  group_rule rule_of(std::size_t tensor) const {
    return groups.rules.empty() ? group_rule{rule, 1} : groups.rules[groups.of_tensor[tensor]];
  }

  /// The options of the plan `training` for a device.
  /// @param fusion says which operations the device can fuse
  plan_options training_options(const fusion_table& fusion) const;

  /// Number of samples in a batch.
  std::size_t batch() const noexcept {
    const std::uint32_t given = job.data().batch();
    return given == 0 ? static_cast<std::size_t>(data.train_records) : given;
  }

  /// Number of samples in a gradient that a worker sends: the samples of `accumulate` batches.
  std::size_t gradient_samples() const noexcept { return batch() * job.accumulate(); }

  const layout& parameters() const noexcept { return training->parameters(); }

  /// Writes the initial values of the parameters in the range `part`. Orthogonal matrices are
  /// computed once for all parts.
  void initialize(range part, std::span<float> out) const;

  /// Divides the parameters, in order, into `count` ranges, one for each shard. With `placement:
  /// BY_TENSOR`, or if the optimizer needs whole tensors, no tensor is divided. Some ranges may be
  /// empty.
  std::vector<range> shards(std::size_t count) const;
  range shard(std::size_t index, std::size_t count) const { return shards(count)[index]; }

  /// The buckets of the flat gradient. A bucket is a range of elements that is exchanged as soon as
  /// the backward pass has computed it. The buckets are in the order in which the backward pass
  /// completes them.
  std::vector<range> buckets() const;

private:
  std::shared_ptr<orthogonal_matrices> orthogonal_ = std::make_shared<orthogonal_matrices>();
};

/// Builds the model, its plan and its optimizer. Throws the input_error of the builders that it
/// calls. Also throws input_error if the model has no parameters to train.
/// @param own protocols that the program adds (protocol CUSTOM)
/// @param metadata metadata of the data, for files of weights
/// @param fingerprint the fingerprint of the coordinator's data
std::shared_ptr<const job_context>
make_job_context(const proto::Job& job, const data_shape& data,
                 std::span<const protocol_traits> own = {},
                 std::map<std::string, std::string> metadata = {},
                 std::optional<proto::DataFingerprint> fingerprint = std::nullopt);

/// True if the job has tables (plan::row_sparse_gradients), and an update of a shard changes only
/// their rows whose gradient is not 0.
bool updates_rows(const job_context& context);

/// Applies gradients to a range of parameters. It holds the rules of the optimizer, their state,
/// and the position in the learning-rate schedule. A step uses the learning rate of the schedule at
/// the middle between its first and its last sample. The rate is therefore not 0 in the first step
/// of a warm-up or in the last step of a decay to 0.
///
/// State tensors, such as running means, are not optimized. They follow the statistics of the
/// batches. Frozen tensors do not change (parameter_kind). All other tensors are updated by the
/// rule of their group.
class range_updater {
public:
  /// Options of an update. The defaults give a plain update.
  struct terms {
    /// Factor on the gradient of trainable parameters: clip_factor().
    double factor = 1;
    /// Factor on the learning rate.
    double rate_factor = 1;
    /// The first moment of all elements, if the caller keeps it (optimizer::moment_slot).
    std::span<float> moment = {};
    /// Number of updates of this moment, including the current update.
    std::uint64_t moment_step = 0;
    /// See update_arguments::look_ahead.
    bool look_ahead = false;
    /// A vector that is added to the gradient. It is as long as the range. Empty if nothing is
    /// added.
    std::span<const float> addend = {};
    /// If this pointer is not null, apply() sets the value to false if an element of the gradient
    /// is not finite.
    bool* finite = nullptr;
    /// See range_update::only.
    const range_list* only = nullptr;
    /// Samples that other workers train in the same step, for their own replicas. Only the schedule
    /// counts them.
    std::uint64_t others = 0;
  };

  /// A GPU may throw device_error here and in each function below that is not noexcept.
  /// device_updater::apply says what then happens to the weights.
  /// @param where must be a range of whole tensors if the optimizer requires that
  /// (optimizer::by_tensor)
  /// @param moment_apart true if the caller keeps the first moment, and passes it with each update
  /// @param on makes the updater of the device; if it is empty, the CPU makes the updates
  /// @param gradient_there, in_ring see updater_sizes
  range_updater(const job_context& context, range where, bool moment_apart = false,
                const updater_maker& on = {}, bool gradient_there = false, bool in_ring = false);

  /// The sizes of the vectors that the updater allocates on its device.
  static updater_sizes sizes_of(const job_context& context, std::size_t elements,
                                bool moment_apart);

  /// Bytes of optimizer state for this many parameters.
  static std::size_t memory_bytes(const job_context& context, std::size_t elements) noexcept {
    return context.rule.slots() * elements * sizeof(float);
  }

  /// Makes one update from `gradient`, which is summed over `samples` > 0 samples. `updated` may be
  /// `weights`.
  void apply(std::span<const float> weights, std::span<const float> gradient, std::uint64_t samples,
             std::span<float> updated, const terms& how);
  void apply(std::span<const float> weights, std::span<const float> gradient, std::uint64_t samples,
             std::span<float> updated, double factor = 1) {
    apply(weights, gradient, samples, updated, terms{.factor = factor});
  }

  /// Computes the same update as apply(), bit for bit, but does not make it take effect: the state
  /// does not change until publish(). With 0 samples, the update changes neither the weights nor
  /// the state. Must not be called if the caller keeps the moment.
  /// @param updated must not overlap `weights`. If the updater's device holds the weights
  /// (device_replica), `weights` and `updated` are empty, and the gradient may be empty too: see
  /// range_update
  void stage(std::span<const float> weights, std::span<const float> gradient, std::uint64_t samples,
             std::span<float> updated, const terms& how);
  void stage(std::span<const float> weights, std::span<const float> gradient, std::uint64_t samples,
             std::span<float> updated, double factor = 1) {
    stage(weights, gradient, samples, updated, terms{.factor = factor});
  }

  /// Like stage() with more than 0 samples and a gradient on the GPU, but only returns the update.
  /// The caller passes it to device_replica::stage() before the next call of any function.
  device_replica::staged_update prepare(std::uint64_t samples, const terms& how);

  /// Makes the staged update take effect. It counts as an update even with 0 samples. Does nothing
  /// if no update is staged.
  void publish() noexcept;

  /// Drops the staged update.
  void discard() noexcept { staged_.reset(); }

  /// Allocates the memory for stage() now instead of in the first step.
  void reserve_stage() { device_->reserve_stage(); }

  /// Advances the schedule by samples whose gradient was left out.
  void skip(std::uint64_t samples) noexcept { samples_ += samples; }

  /// Sets the position in the schedule.
  void set_samples(std::uint64_t samples) noexcept { samples_ = samples; }

  /// Counts an update without samples. It changes no weights.
  void count_update() noexcept { ++updates_; }

  /// Samples trained or left out so far, including those of earlier runs. This is the position in
  /// the schedule.
  std::uint64_t samples() const noexcept { return samples_; }

  /// Number of updates so far, including those of earlier runs.
  std::uint64_t updates() const noexcept { return updates_; }

  /// One slot (vector) of the optimizer's state, for all elements. The slot must not be a moment
  /// that the caller keeps. Valid until the next call.
  std::span<const float> state(std::size_t slot) const { return device_->state(kept(slot)); }

  /// These functions copy the newest weights from, or to, a device that holds them
  /// (device_replica).
  void read_weights(std::span<float> out) const { device_->read_weights(out); }
  void write_weights(std::span<const float> values) { device_->write_weights(values); }

  /// These functions are for the sum of the gradients of all replicas of a ring: see
  /// device_updater.
  void add_up() { device_->add_up(); }
  void gather() { device_->gather(); }
  double squared_norm_of_sum() { return device_->squared_norm_of_sum(); }
  void clear_gradient() { device_->clear_gradient(); }

  /// Both functions restore the state of an earlier run. The first function sets the numbers of
  /// samples and updates. The second function sets one slot of the optimizer's state, for all
  /// elements.
  void restore(std::uint64_t samples, std::uint64_t updates) noexcept {
    samples_ = samples;
    updates_ = updates;
    device_->forget_weights();
  }
  void restore(std::size_t slot, std::span<const float> values) {
    device_->restore(kept(slot), values);
  }

private:
  /// The number of a slot among the slots that the device holds.
  std::size_t kept(std::size_t slot) const noexcept {
    return slot - (apart_ && slot > *apart_ ? 1 : 0);
  }

  range_update arguments_of(std::span<const float> weights, std::span<const float> gradient,
                            std::uint64_t samples, std::span<float> updated, const terms& how);

  learning_rate rate_;
  std::uint64_t train_records_;
  std::uint64_t samples_ = 0;
  std::uint64_t updates_ = 0;
  std::vector<update_part> parts_;
  /// For each part in `parts_`, the factor on the learning rate.
  std::vector<double> rate_scales_;
  /// The slot that the caller keeps. The device does not hold it. Nothing if the device holds all
  /// slots.
  std::optional<std::size_t> apart_;
  std::unique_ptr<device_updater> device_;
  /// The sum of the gradient and terms::addend, if the device does not compute this sum.
  std::vector<float> sum_;
  /// The numbers of samples of the staged update (see terms::others); nothing if no update is
  /// staged.
  struct staged {
    std::uint64_t samples = 0;
    std::uint64_t others = 0;
  };
  std::optional<staged> staged_;
};

} // namespace troupe
