#pragma once

#include "actors/model/job_context.hpp"
#include "actors/ring/ring_node.hpp"
#include "actors/touched_rows.hpp"
#include "actors/worker/input_reader.hpp"
#include "actors/worker/loss_scale.hpp"
#include "kernels/devices/device_executor.hpp"
#include "messages/loss_scale_state.hpp"
#include "messages/residence.hpp"
#include "messages/synchronizer.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// The batch that the worker will probably train next, so that a GPU can copy it in advance. If the
/// next gradient has several batches, it is the first of them.
struct next_batch {
  /// See batch_read::ticket.
  std::uint64_t ticket = 0;
  sample_batch samples;
};

/// Tells the trainer to compute the gradient of a batch. The trainer begins with the weights that
/// have arrived, and contributes each bucket to the synchronizer as soon as it is computed.
struct train_batch {
  step_number step;
  std::vector<weight_range> weights;
  /// True if these are the last weights of this step.
  bool last = true;
  batch_read batch;
  /// The next batch, if it is already read. A GPU copies it while it computes this batch.
  std::optional<next_batch> next = std::nullopt;
  /// See acquired::where.
  residence where = residence::host;
};

/// More weights of the current step.
struct more_weights {
  step_number step;
  std::vector<weight_range> weights;
  bool last = true;
};

/// Reports that all buckets of the step have been contributed.
struct batch_trained {
  step_number step;
  std::uint64_t samples = 0;
  double loss_sum = 0;
  /// Squared norm of the gradient (summed over the samples), without statistics of layers.
  double squared_norm = 0;
  /// If the loss or the gradient is not finite: the name of the first tensor that is not finite.
  std::string not_finite;
  /// With float16: the loss scale for the next batch.
  std::optional<loss_scale_state> loss_scale = std::nullopt;
};

/// Reports that the trainer waits for other workers in the middle of a batch, or that it continues.
struct batch_waits {
  bool waits = false;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::train_batch)
TROUPE_LOCAL_MESSAGE(troupe::more_weights)
TROUPE_LOCAL_MESSAGE(troupe::batch_trained)
TROUPE_LOCAL_MESSAGE(troupe::batch_waits)

namespace troupe {

/// The messages to a trainer. The last two are results of its ring_node.
using trainer_actor = caf::typed_actor<rpc<void, train_batch>, rpc<void, more_weights>,
                                       rpc<void, reduction>, rpc<void, broken>>;
using trainer_listener =
  caf::typed_actor<rpc<void, batch_trained>, rpc<void, batch_waits>, rpc<void, broken>>;

/// Provides a pointer to each tensor of a layout, while the weights arrive in ranges, perhaps from
/// several shards. If a range contains the whole tensor, the pointer points into this range. If the
/// rows of a tensor are divided among several ranges, parts() has a pointer into each range. For
/// this, the executor must accept such parts (`takes_rows`), and each range must contain whole
/// rows, more than one. Otherwise, the tensor is copied into one buffer.
class weight_binding {
public:
  /// @param takes_rows for each layout entry: true if the executor can read its rows from several
  /// ranges
  weight_binding(const layout& parameters, std::vector<bool> takes_rows);

  /// Forgets all ranges.
  void clear();

  /// Adds a range, and keeps a reference to it until `clear`. Ranges must not overlap.
  void add(const weight_range& x);

  /// One pointer per layout entry. Null if a part of the entry has not arrived. Valid until
  /// `clear`.
  std::span<const float* const> pointers() const noexcept { return pointers_; }

  /// For complete entries whose rows are in several ranges: the rows in each range
  /// (run_arguments::parts). Valid until `add` or `clear`.
  std::span<const weight_rows<float>> parts() const noexcept { return parts_; }

  /// Copies each entry that has parts() into one buffer, so that it has a single pointer.
  void gather();

private:
  void join(std::size_t entry);
  void gather(std::size_t entry);

  const layout* parameters_;
  std::vector<bool> takes_rows_;
  /// The ranges that have arrived, in ascending order.
  std::vector<weight_range> ranges_;
  std::vector<const float*> pointers_;
  std::vector<weight_rows<float>> parts_;
  /// Number of elements of each entry that have not arrived.
  std::vector<std::size_t> missing_;
  std::vector<payload> gathered_;
};

/// The device on which a trainer computes.
struct trainer_device {
  /// The task and its device, for errors: "worker/0 on GPU:1".
  std::string name;
  /// Called once, on the trainer's thread. May throw device_error or input_error.
  std::function<std::unique_ptr<device_executor>()> make_executor;
};

/// Computes gradients on its own thread. A step may have several batches. The trainer adds up their
/// gradients, and contributes the sum bucket by bucket during the backward pass of the last batch.
///
/// If the loss is not finite, the trainer also makes the contributed gradient not finite. The sum
/// over workers then shows that a gradient must be left out.
///
/// Layers may need sums over the batches of all workers (batch_norm.sync). The trainer passes its
/// part to a ring_node and continues when it gets the sum. Its thread is not blocked. All workers
/// must request the same sums in the same order. Therefore each worker runs Job.accumulate batches
/// in a step. If its samples fill fewer batches, the remaining batches are empty.
///
/// With Job.exchange_precision BFLOAT16, it rounds each bucket before it contributes the bucket.
///
/// With float16 (Job.precision), a gradient is checked and divided by the loss scale before it is
/// contributed. So all buckets are contributed at the end of the step. If the gradient of a batch
/// overflows, the batch is computed again (loss_scale).
///
/// If the weights stay on a GPU (residence), the executor reads them there. If the gradients also
/// stay on the GPU, the GPU removes the loss scale and adds up the gradients of several batches.
/// The trainer contributes empty buckets at the end of the step, and gets the norm from the GPU.
///
/// If the device fails, the trainer sends `broken` to its listener, and computes no more.
class trainer : public trainer_actor::base {
public:
  using super = trainer_actor::base;

  /// `sums`: the ring_node that adds up over the batches of all workers. Null if no layer needs
  /// such sums. `scale`: the loss scale at the end of an earlier run. If absent, the job's initial
  /// scale is used.
  trainer(caf::actor_config& cfg, std::shared_ptr<const job_context> context, trainer_device device,
          synchronizer_actor synchronizer, trainer_listener listener, ring_node_actor sums,
          const std::optional<loss_scale_state>& scale);

  const char* name() const override { return "troupe.trainer"; }
  /// True while the trainer computes a step.
  bool computing() const noexcept { return computing_; }

protected:
  behavior_type make_behavior() override;
  /// Drops the handle to an actor that holds a handle to this one. Otherwise, the two actors would
  /// keep each other alive.
  void on_exit() override;

private:
  void on_train(const train_batch& x);
  void make_gradient();
  void on_weights(const more_weights& x);
  void on_sums(const reduction& x);
  void request_sums(std::span<const double> own);
  void proceed();
  void compute();
  void fail(const std::exception& error);
  void begin_batch();
  bool overflows(const run_result& result);
  void on_bucket(std::size_t bucket);
  void add_bucket(std::size_t bucket);
  void hand_over(std::size_t bucket);
  void end_batch(const run_result& result);
  void finish();
  bool last_batch() const noexcept { return at_ + 1 == batch_.batches.size(); }
  /// The inputs (feeds) of a batch: features and labels. The loss scale, which is also an input, is
  /// not included, because it is known only when the batch begins.
  std::vector<feed<float>> feeds_of(const sample_batch& batch) const;
  void announce();
  run_arguments<float> arguments();
  bool stays() const noexcept { return where_ == residence::gradients_on_gpu; }
  void check_gradient();
  void spoil_gradient();
  std::string loss_not_finite();

  std::shared_ptr<const job_context> context_;
  synchronizer_actor synchronizer_;
  trainer_listener listener_;
  ring_node_actor sums_;
  trainer_device device_;
  /// True if the gradient is rounded to bfloat16 (Job.exchange_precision).
  bool rounds_;
  std::optional<weight_binding> binding_;
  /// Number of steps computed in this run. The sums over workers are numbered by step.
  std::uint64_t steps_ = 0;
  /// The tables of which a batch may read only some rows, and the memory for gradients of such
  /// batches.
  range_list tables_;
  cleared_memory memory_;
  /// Chooses the loss scale. Only with float16.
  std::optional<loss_scale> scale_;
  /// The loss scale of the current batch. An entry of `feeds_` points to it.
  float fed_scale_ = 1;

  // -- the current step --
  bool computing_ = false;
  batch_read batch_;
  /// Index of the current batch in the step.
  std::size_t at_ = 0;
  std::vector<feed<float>> feeds_;
  std::optional<next_batch> next_;
  /// The feeds of the batch after the current one.
  std::vector<feed<float>> next_feeds_;
  announced_feeds<float> announced_;
  residence where_ = residence::host;
  /// True if the weights stay on the device and the executor has taken the weights of this step.
  /// Also true if the weights are in the host's memory.
  bool taken_ = true;
  /// The gradient; empty if it stays on the device.
  payload gradient_;
  /// The gradient is 0 in all other elements. Nothing if this is not known (batch_read::touched).
  std::optional<range_list> touched_;
  /// The part of `touched_` in tables_, for run_arguments::table_rows.
  range_list table_rows_;
  /// True if the step's last weights have arrived.
  bool weights_complete_ = false;
  /// True if the executor has run a batch with the step's weights.
  bool ran_ = false;
  /// True if the current batch is computed again, because its gradient overflowed (loss_scale).
  bool repeats_ = false;
  /// Number of sums over workers that this step has requested.
  std::uint32_t sums_asked_ = 0;
  /// The sum of the gradients of the step's earlier batches. Not used if a gradient has only one
  /// batch.
  std::vector<float> sum_;
  batch_trained done_;

  /// The batch that was announced in the previous step. Until the current step has ended, a GPU may
  /// still be copying this batch, so its memory must not change.
  std::optional<next_batch> uploading_;
  /// Null if the device has failed. The last member, because its destructor waits for the GPU,
  /// which may be copying batches from the members above.
  std::unique_ptr<device_executor> executor_;
};

} // namespace troupe
