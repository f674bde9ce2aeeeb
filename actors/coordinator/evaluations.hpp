#pragma once

#include "actors/ask.hpp"
#include "actors/coordinator/evaluator.hpp"
#include "actors/output/run_report.hpp"
#include "actors/spawner.hpp"
#include "messages/interfaces.hpp"

#include <map>
#include <memory>
#include <string>

namespace troupe {

/// The cluster's evaluator task is ready. From now on, it evaluates the snapshots.
struct use_evaluator {
  task_name task;
  evaluation_actor handle;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::use_evaluator)

namespace troupe {

/// The messages that `evaluations` accepts from the coordinator.
using evaluations_actor =
  evaluator_actor::extend<rpc<void, proto::Evaluated>, rpc<void, use_evaluator>>;
using evaluations_shell = evaluations_actor::extend<rpc<void, evaluated>, rpc<void, input_ready>>;

struct evaluations_options {
  std::shared_ptr<const job_context> context;
  data_source source;
  testing_device device;
  evaluation_listener listener;
  /// May be null.
  run_observer observer;
  patience requests;
  troupe::spawner spawner;
};

/// Passes snapshots to the cluster's evaluator task. If there is no such task, passes them to an
/// evaluator on this node. If the evaluator task is lost, this node evaluates the snapshots that
/// the task has not finished.
class evaluations : public evaluations_shell::base {
public:
  using super = evaluations_shell::base;

  evaluations(caf::actor_config& cfg, evaluations_options options);

  const char* name() const override { return "troupe.evaluations"; }

protected:
  behavior_type make_behavior() override;
  /// Ends the evaluator of this node.
  void on_exit() override;

private:
  void on_evaluate(const evaluate& x);
  void on_remote(const proto::Evaluated& x);
  void on_use(const use_evaluator& x);
  void on_down(const caf::down_msg& x);
  void give_up(const std::string& reason);
  void notice(const std::string& text);

  evaluations_options options_;
  evaluator_actor local_;
  evaluation_actor remote_;
  task_name remote_task_;
  /// The snapshots that the evaluator task has not finished, by number.
  std::map<std::uint64_t, evaluate> owed_;
};

} // namespace troupe
