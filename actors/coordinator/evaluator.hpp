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

/// Asks for the evaluation of a snapshot: all weights of one version, divided into ranges.
struct evaluate {
  /// The number of this snapshot; the coordinator counts the snapshots.
  std::uint64_t number = 0;
  std::uint32_t epoch = 0;
  std::uint64_t version = 0;
  std::vector<weight_range> weights;
  /// True if these are the weights at the end of the run.
  bool last = false;
  /// True if the snapshot was taken within an epoch, not at its end.
  bool midst = false;
};

/// The result of the evaluation of a snapshot. It uses the validation records, or the test records
/// if there are none (job_data::evaluated).
struct evaluated {
  std::uint64_t number = 0;
  std::uint64_t version = 0;
  /// All weights of the snapshot, copied into one flat vector. The shards can then reuse the memory
  /// of the snapshot.
  payload weights;
  /// True if the records were validation records, false if they were test records.
  bool validation = false;
  /// Mean over the samples.
  double loss = 0;
  std::optional<double> accuracy;
  measured measures;
  /// The result on the test data, if `validation` is true. Set only for the last snapshot of a run.
  std::optional<test_result> test;
  std::string weights_sha256;
  /// The coefficients of a linear model, in the units of the data. Empty for other models.
  std::vector<double> coefficients;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::evaluate)
TROUPE_LOCAL_MESSAGE(troupe::evaluated)

namespace troupe {

using evaluator_actor = caf::typed_actor<rpc<void, evaluate>>;
using evaluation_listener = caf::typed_actor<rpc<void, evaluated>>;
/// The owner of an evaluator. It also receives one report: either the evaluator is ready, or it
/// cannot load its data or use its device, and evaluates nothing.
using evaluator_owner = evaluation_listener::extend<rpc<void, input_ready>>;

/// Copies the ranges of a snapshot into one vector of `size` floats.
payload flatten(const std::vector<weight_range>& ranges, std::size_t size);

/// The device on which an evaluator computes.
struct testing_device {
  /// The name of the device in errors, such as "coordinator/0 on GPU:1".
  std::string name;
  /// Makes the object that computes. Called once, on the evaluator's thread. May throw device_error
  /// or input_error. If null, the evaluator uses the CPU.
  std::function<std::unique_ptr<model_tester>()> make_tester;
};

/// Computes the loss and accuracy of snapshots on its own thread. Reads the data first. If its
/// device fails, this actor ends with an error that names the device.
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
  /// Null if the data or the device cannot be used.
  std::unique_ptr<model_tester> tester_;
};

} // namespace troupe
