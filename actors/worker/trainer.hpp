#pragma once

#include "actors/model/job_context.hpp"
#include "actors/worker/input_reader.hpp"
#include "kernels/cpu/executor.hpp"
#include "messages/synchronizer.hpp"

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// Run forward and backward on a batch, with weights as acquired, as far as they are there;
/// contribute each bucket to the synchronizer meanwhile.
struct train_batch {
  step_number step;
  std::vector<weight_range> weights;
  /// No more of them come in this step.
  bool last = true;
  batch_read batch;
};

/// Other weights of the step under way.
struct more_weights {
  step_number step;
  std::vector<weight_range> weights;
  bool last = true;
};

/// All buckets of the step are contributed.
struct batch_trained {
  step_number step;
  std::uint64_t samples = 0;
  double loss_sum = 0;
  /// Of the gradient, summed over the samples; statistics of layers are left out.
  double squared_norm = 0;
  /// Where loss or gradient are not finite: what was found first that is not.
  std::string not_finite;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::train_batch)
TROUPE_LOCAL_MESSAGE(troupe::more_weights)
TROUPE_LOCAL_MESSAGE(troupe::batch_trained)

namespace troupe {

using trainer_actor = caf::typed_actor<rpc<void, train_batch>, rpc<void, more_weights>>;
using trainer_listener = caf::typed_actor<rpc<void, batch_trained>>;

/// Points to each tensor of a layout in ranges of weights that come one by one, perhaps from
/// several shards: directly where a tensor lies within one range, through a gathered copy where it
/// straddles two.
class weight_binding {
public:
  explicit weight_binding(const layout& parameters);

  /// Forgets all ranges.
  void clear();

  /// Takes one more range, which is held until `clear`. Ranges must not overlap.
  void add(const weight_range& x);

  /// One pointer per layout entry; null where some of its ranges are not there yet. Valid until
  /// `clear`.
  std::span<const float* const> pointers() const noexcept { return pointers_; }

private:
  const layout* parameters_;
  std::vector<weight_range> ranges_;
  std::vector<const float*> pointers_;
  /// Elements of each entry that are not there yet.
  std::vector<std::size_t> missing_;
  std::vector<payload> gathered_;
};

/// Computes gradients, on a thread of its own. The gradients of several batches are added up; while
/// the last of them runs backward, their sum is contributed.
///
/// If the loss is not finite, neither is the gradient that it contributes. So the sum of several
/// workers' gradients alone shows that one of them must be left out.
class trainer : public trainer_actor::base {
public:
  using super = trainer_actor::base;

  trainer(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
          synchronizer_actor synchronizer, trainer_listener listener);

  const char* name() const override { return "troupe.trainer"; }
  /// A batch is under way.
  bool computing() const noexcept { return !gradient_.empty(); }

protected:
  behavior_type make_behavior() override;

private:
  void on_train(const train_batch& x);
  void on_weights(const more_weights& x);
  void begin_batch();
  void on_bucket(std::size_t bucket);
  void hand_over(std::size_t bucket);
  void end_batch(const run_result& result);
  void finish();
  bool last_batch() const noexcept { return at_ + 1 == batch_.batches.size(); }
  run_arguments<float> arguments();
  std::string loss_not_finite();

  std::shared_ptr<const job_context> context_;
  synchronizer_actor synchronizer_;
  trainer_listener listener_;
  executor<float> executor_;
  weight_binding binding_;

  // -- the step under way --
  batch_read batch_;
  /// Which of its batches is under way.
  std::size_t at_ = 0;
  std::array<feed<float>, 2> feeds_;
  payload gradient_;
  /// Of the batches before; empty where a gradient is of one batch.
  std::vector<float> sum_;
  batch_trained done_;
};

} // namespace troupe
