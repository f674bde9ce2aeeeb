#pragma once

#include "actors/cluster/local_cluster.hpp"
#include "messages/configure.hpp"
#include "messages/errors.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

// Everything a program needs to train a model in its own actor system.

namespace troupe {

struct training_options {
  /// The job to train. If `data` is set, the job may omit its data source.
  proto::Job job;
  /// The program's own training and test records. If there are none, the job's data source is read.
  /// If there are only training records, they are also used for testing.
  job_data data;
  std::uint32_t workers = 1;
  /// Number of parameter shards. The shards are idle if the protocol keeps the weights on the
  /// workers.
  std::uint32_t ps = 1;
  /// The program's own protocols (protocol CUSTOM).
  std::vector<protocol> protocols;
  /// The program's GPUs, for jobs that place tasks on them. Null if the program has no GPUs.
  std::shared_ptr<const gpu_set> gpus;
  /// The checkpoint to continue from. If absent, the run starts from the beginning. An empty text
  /// means the newest checkpoint in the job's output directory. For other texts, see
  /// choose_checkpoint.
  std::optional<std::string> resume;
  /// Receives reports: progress a few times a second, each epoch, notices, and the end. May be
  /// null.
  run_observer observer;
  /// Receives the weights after each epoch. The weights are shared, not copied. May be null.
  weights_listener weights;
};

/// Starts the run. The answer comes once, at the end.
struct begin_training {};

/// Result of a successful run.
struct trained {
  run_summary summary;
  /// The job and everything built from it: the model, the layout of the parameters.
  std::shared_ptr<const job_context> context;
  /// All parameters as one flat vector, float32, in the order of `context->parameters()`. It is
  /// shared, not copied, and valid as long as this object or a copy of it exists.
  payload weights;

  /// The values of a tensor, row-major, such as "dense_1.weight" (units, inputs) or "dense_1.bias"
  /// (units). Empty if there is no tensor with this name. Valid as long as `weights` exists.
  std::span<const float> tensor(std::string_view name) const;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::begin_training)
TROUPE_LOCAL_MESSAGE(troupe::trained)

namespace troupe {

/// A run in the program's own actor system. It answers `begin_training` after the run, with
/// `trained` or an error. The error is `errc::bad_input` if job and data do not fit (no actor has
/// started then). It is `errc::interrupted` after a `stop_run`, and `errc::failed` in all other
/// cases. `explain(error)` gives the reason. A run may take hours, so give the request no deadline
/// (`caf::infinite`). It is answered even if other code of the program ends the run's actors or
/// this actor.
using training_actor = caf::typed_actor<rpc<trained, begin_training>, rpc<void, stop_run>>;

/// Spawns a run: a coordinator, `workers` workers and `ps` parameter shards, which share the
/// program's data in memory and exchange payloads without copies. The run starts with
/// `begin_training`. After the answer, the spawned actor ends by itself and leaves no other actor
/// behind. An exit message ends it at once.
///
/// An actor system may have any number of runs, at the same time or one after the other. Its
/// configuration must have gone through `configure`. Actors that compute have their own threads, so
/// they do not delay the program's actors.
training_actor spawn_training(caf::actor_system& sys, training_options options);

using training_shell = training_actor::extend<rpc<void, run_summary>, rpc<void, epoch_weights>>;

/// The actor behind `spawn_training`.
class training : public training_shell::base {
public:
  using super = training_shell::base;

  training(caf::actor_config& cfg, training_options options);

  const char* name() const override { return "troupe.training"; }

protected:
  behavior_type make_behavior() override;
  void on_exit() override;

private:
  caf::result<trained> on_begin();
  void start();
  void on_stop(const stop_run& x);
  void on_weights(const epoch_weights& x);
  void on_summary(const run_summary& x);
  void on_node_down();
  void finish(const caf::error& error);

  training_options options_;
  std::shared_ptr<const job_context> context_;
  caf::actor node_;
  caf::typed_response_promise<trained> answer_;
  bool begun_ = false;
  /// The reason, if the run was stopped before it started.
  std::optional<std::string> stopped_;
  run_summary summary_;
  payload weights_;
};

} // namespace troupe
