#pragma once

#include "actors/model/data_builder.hpp"
#include "actors/model/job_context.hpp"
#include "actors/model/model_tester.hpp"
#include "actors/worker/input_reader.hpp"
#include "messages/caf_shim.hpp"
#include "messages/synchronizer.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// A consistent snapshot of the weights, divided into ranges.
struct evaluate {
  /// Number of this snapshot, counted by the coordinator.
  std::uint64_t number = 0;
  std::uint32_t epoch = 0;
  std::uint64_t version = 0;
  std::vector<weight_range> weights;
  /// True if these are the weights at the end of the run.
  bool last = false;
  /// True if the snapshot was taken within an epoch, not at its end.
  bool midst = false;
};

/// The result of evaluating a snapshot on the data that training evaluates (job_data::evaluated).
struct evaluated {
  std::uint64_t number = 0;
  std::uint64_t version = 0;
  /// A copy of the snapshot as one flat vector, so that the shards can reuse their versions.
  payload weights;
  /// True for validation records, false for test records.
  bool validation = false;
  /// Mean over the samples.
  double loss = 0;
  std::optional<double> accuracy;
  measured measures;
  /// The result on the test data. Only for the last snapshot of a run that evaluates on other data.
  std::optional<test_result> test;
  std::string weights_sha256;
  /// For linear models, in the units of the data.
  std::vector<double> coefficients;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::evaluate)
TROUPE_LOCAL_MESSAGE(troupe::evaluated)

namespace troupe {

using evaluator_actor = caf::typed_actor<rpc<void, evaluate>>;
using evaluation_listener = caf::typed_actor<rpc<void, evaluated>>;
/// The evaluator also reports once that it is ready, or why it cannot load its data or use its
/// device. In the latter case it evaluates nothing.
using evaluator_owner = evaluation_listener::extend<rpc<void, input_ready>>;

/// The ranges of a snapshot as one vector of `size` floats.
payload flatten(const std::vector<weight_range>& ranges, std::size_t size);

/// The device of an evaluator.
struct testing_device {
  /// The name in errors, such as "coordinator/0 on GPU:1".
  std::string name;
  /// Called once, on the evaluator's thread. May throw device_error or input_error. If null, the
  /// evaluator uses the CPU.
  std::function<std::unique_ptr<model_tester>()> make_tester;
};

/// Computes the loss and accuracy of snapshots on its own thread. Reads the data first. If its
/// device fails, it ends with an error that names the device.
class evaluator : public evaluator_actor::base {
public:
  using super = evaluator_actor::base;

  evaluator(caf::actor_config& cfg, std::shared_ptr<const job_context> context, data_source source,
            testing_device device, evaluator_owner owner);

  const char* name() const override { return "troupe.evaluator"; }

protected:
  behavior_type make_behavior() override;

private:
  void load();
  void on_evaluate(const evaluate& x);
  evaluated result_of(const evaluate& x);

  std::shared_ptr<const job_context> context_;
  data_source source_;
  testing_device device_;
  evaluator_owner owner_;
  job_data data_;
  /// Null if it evaluates nothing.
  std::unique_ptr<model_tester> tester_;
};

} // namespace troupe
