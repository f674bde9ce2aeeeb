#pragma once

#include "actors/ask.hpp"
#include "actors/coordinator/evaluator.hpp"
#include "actors/output/run_report.hpp"
#include "actors/spawner.hpp"
#include "messages/interfaces.hpp"
#include "messages/names.hpp"

#include <map>
#include <memory>
#include <string>

namespace troupe {

/// Reports that an evaluator task has loaded its test data. If it could not load the data,
/// `problem` is the reason.
struct evaluator_ready {
  task_name task;
  std::string problem;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::evaluator_ready)

namespace troupe {

using evaluation_service_shell =
  evaluation_actor::extend<rpc<void, evaluated>, rpc<void, input_ready>>;

/// The actor that receives the evaluations of snapshots.
using evaluation_sink = caf::typed_actor<rpc<proto::Ack, proto::Evaluated>>;

using evaluation_service_owner = caf::typed_actor<rpc<void, evaluator_ready>>;

struct evaluation_service_options {
  task_name task;
  std::shared_ptr<const job_context> context;
  data_source source;
  testing_device device;
  evaluation_sink coordinator;
  /// May be null.
  run_observer observer;
  patience requests;
  troupe::spawner spawner;
  evaluation_service_owner owner;
};

/// The actor of an evaluator task. It accepts snapshots, evaluates them on another thread, and
/// sends the results to the coordinator.
class evaluation_service : public evaluation_service_shell::base {
public:
  using super = evaluation_service_shell::base;

  evaluation_service(caf::actor_config& cfg, evaluation_service_options options);

  const char* name() const override { return "troupe.evaluation_service"; }

protected:
  behavior_type make_behavior() override;
  /// Ends the evaluator.
  void on_exit() override;

private:
  caf::result<proto::Ack> on_evaluate(const proto::Evaluate& x, const payload& weights);
  void on_evaluated(const evaluated& x);

  evaluation_service_options options_;
  evaluator_actor evaluator_;
  /// The snapshots accepted so far: number, and name in notices. A snapshot that arrives again is
  /// not evaluated again.
  std::map<std::uint64_t, std::string> taken_;
};

} // namespace troupe
