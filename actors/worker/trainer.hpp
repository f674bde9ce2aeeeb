#pragma once

#include "actors/model/job_context.hpp"
#include "actors/worker/input_reader.hpp"
#include "kernels/cpu/executor.hpp"
#include "messages/synchronizer.hpp"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// Run forward and backward on a batch, with weights as acquired; contribute each bucket to the
/// synchronizer meanwhile.
struct train_batch {
  step_number step;
  std::vector<weight_range> weights;
  batch_read batch;
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
TROUPE_LOCAL_MESSAGE(troupe::batch_trained)

namespace troupe {

using trainer_actor = caf::typed_actor<rpc<void, train_batch>>;
using trainer_listener = caf::typed_actor<rpc<void, batch_trained>>;

/// Points to each tensor of a layout in ranges of weights that came from several shards: directly
/// where a tensor lies within one range, through a gathered copy where it straddles two.
class weight_binding {
public:
  explicit weight_binding(const layout& parameters);

  /// One pointer per layout entry, valid while `ranges` are held and until the next call. Ranges
  /// must be ascending and cover the layout.
  std::span<const float* const> bind(std::span<const weight_range> ranges);

private:
  const layout* parameters_;
  std::vector<const float*> pointers_;
  std::vector<payload> gathered_;
};

/// Computes gradients, on a thread of its own.
///
/// If the loss is not finite, neither is the gradient that it contributes. So the sum of several
/// workers' gradients alone shows that one of them must be left out.
class trainer : public trainer_actor::base {
public:
  using super = trainer_actor::base;

  trainer(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
          synchronizer_actor synchronizer, trainer_listener listener);

  const char* name() const override { return "troupe.trainer"; }

protected:
  behavior_type make_behavior() override;

private:
  void on_train(const train_batch& x);
  void explain(batch_trained& x, run_arguments<float> arguments, const payload& gradient);

  std::shared_ptr<const job_context> context_;
  synchronizer_actor synchronizer_;
  trainer_listener listener_;
  executor<float> executor_;
  weight_binding binding_;
};

} // namespace troupe
