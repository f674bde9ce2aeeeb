#pragma once

#include "actors/ask.hpp"
#include "actors/checkpoint/checkpoint_schedule.hpp"
#include "actors/model/job_context.hpp"
#include "actors/parameter_server/gradient_journal.hpp"
#include "actors/parameter_server/norm_exchange.hpp"
#include "actors/parameter_server/shard_policy.hpp"
#include "actors/parameter_server/staged_gradients.hpp"
#include "actors/parameter_server/version_pool.hpp"
#include "actors/status/activity_board.hpp"
#include "actors/tick.hpp"
#include "actors/view.hpp"
#include "messages/interfaces.hpp"
#include "messages/proto/job.pb.h"

#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace troupe {

/// A synchronizer as a shard sees it: told of each synchronous update, or of the end of its wait
/// for slower workers.
using step_listener = caf::typed_actor<rpc<void, proto::Advanced>>;

/// Synchronizers of all workers, and where shards talk to each other all shards, in order. Comes
/// after the start, since they are started in any order, and before the first step.
struct step_listeners {
  std::vector<step_listener> actors;
  std::vector<shard_actor> shards;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::step_listeners)

namespace troupe {

struct shard_options {
  troupe::view view;
  std::uint32_t index = 0;
  range where;
  std::shared_ptr<activity_board> board = std::make_shared<activity_board>();
  patience requests;
  /// Receives what checkpoints and evaluations need, and hears of failures.
  coordinator_actor coordinator;
  /// What the protocol makes of gradients; this shard's alone.
  std::shared_ptr<shard_policy> policy;
};

using shard_shell = shard_actor::extend<rpc<void, step_listeners>, rpc<void, tick>>;

/// A version pool for a shard that so many workers pull from, with the initial weights as version
/// 0. `held`: versions that the protocol holds besides.
std::shared_ptr<version_pool> make_versions(const job_context& context, range where,
                                            std::size_t workers, std::size_t held = 0);

/// The one writer of a slice of the parameters, with its optimizer state. A gradient is staged when
/// it is pushed, and takes effect when its worker commits it; it is decided once. Which gradients
/// make an update is the policy's. The update is made out of place, as a new version, and then
/// published. Where workers go in step and the job clips by norm, it is not made before the shards
/// have told each other their parts of the norm. Where the policy chooses among the gradients of a
/// step, shard 0 does so for all shards.
///
/// For a checkpoint it sends a version that is due to the coordinator by itself, with a copy of the
/// optimizer's state, and goes on; while two are on their way, none is sent.
class parameter_shard : public shard_shell::base {
public:
  using super = shard_shell::base;

  parameter_shard(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
                  shard_options options, std::shared_ptr<version_pool> versions);

  const char* name() const override { return "troupe.shard"; }
  std::uint64_t view_number() const noexcept { return options_.view.number; }

protected:
  behavior_type make_behavior() override;
  /// Answers what waits, and drops handles to actors that hold one of this.
  void on_exit() override;

private:
  using decision = caf::typed_response_promise<proto::Pushed>;
  /// Worker and incarnation.
  using incarnation_key = std::pair<std::uint32_t, std::uint64_t>;

  /// A commit that is not answered yet: its gradient is not here, or its update is not made.
  struct open_commit {
    proto::Commit header;
    decision answer;
    bool staged = false;
  };

  caf::result<proto::Pushed> on_push(const proto::Push& x, const payload& gradient);
  caf::result<proto::Pushed> on_commit(const proto::Commit& x);
  caf::result<proto::Pushed> on_admit(const proto::Admit& x);
  caf::result<proto::Fenced> on_fence(const proto::Fence& x);
  caf::result<proto::Report> on_report(const proto::ReportRequest& x);
  caf::result<proto::Ack> on_restore(const proto::Restore& x, const payload& values);
  caf::result<proto::Ack> on_partial_norm(const proto::PartialNorm& x);
  caf::result<proto::Ack> on_step_parts(const proto::StepParts& x);
  caf::result<proto::Ack> on_idle_workers(const proto::IdleWorkers& x);

  /// Why a gradient of that name is not taken: `problem`, or that no worker of the view has it.
  std::optional<caf::error> refusal(const proto::GradientId& id, std::string problem = {}) const;

  /// The answer to a gradient that was decided before, or whose worker is fenced off.
  std::optional<proto::Pushed> decided(const proto::GradientId& id);
  payload spread(const proto::Selection& rows, const payload& values) const;
  proto::Pushed quarantine(const proto::Commit& x);
  std::optional<proto::Pushed> turn_away(const proto::Commit& x);
  void finish(const proto::Fence& x);
  void take(const proto::Commit& x);
  void tell_admitted();
  void deliver(const proto::GradientId& id, const proto::Pushed& answer);
  bool clips_in_step() const;
  void advance();
  proto::Pushed decide(const contribution& x);
  void tell_parts();
  void share_norm();
  void tell_norm(std::size_t shard, const proto::PartialNorm& part);
  bool update_ready();
  void make_version(const planned_update& update);
  void fail(const std::string& reason, bool not_finite = false);
  void capture_if_due();
  void capture(checkpoint_schedule& schedule, bool to_evaluate, const std::vector<payload>& slots);
  std::vector<payload> state_slots() const;
  void make_updates();
  bool find_slot();
  void await_gradients();
  void retry_soon();

  std::uint64_t staleness(std::uint64_t base_version) const noexcept;

  std::shared_ptr<const job_context> context_;
  shard_options options_;
  std::vector<member> workers_;
  std::vector<step_listener> listeners_;
  std::vector<shard_actor> shards_;
  std::shared_ptr<version_pool> versions_;
  std::shared_ptr<shard_policy> policy_;
  range_updater updater_;
  gradient_journal journal_;
  staged_gradients staged_;
  std::vector<open_commit> open_;
  /// In step, clipping by norm: parts of the norms, and whether this shard has told its own.
  norm_exchange norms_;
  bool norm_shared_ = false;
  /// Shard 0 has told the others which gradients make the next update.
  bool parts_told_ = false;
  /// Of the newest proto::IdleWorkers; not in step, these are answered once the update that they
  /// caused is made.
  std::uint64_t idle_told_ = 0;
  std::vector<caf::typed_response_promise<proto::Ack>> idle_answers_;
  bool retrying_ = false;
  checkpoint_schedule checkpoints_;
  checkpoint_schedule evaluations_;
  /// Of the weights that training went on from, and the samples trained before.
  std::uint64_t first_version_ = 0;
  /// The weights to begin with were handed over.
  bool restored_ = false;
  std::uint64_t samples_before_ = 0;
  std::uint64_t staleness_sum_ = 0;
  std::uint64_t quarantined_samples_ = 0;
  /// With a bound on staleness: gradients admitted so far, applied or still on their way, and each
  /// incarnation's last one.
  std::uint64_t admitted_ = 0;
  std::map<incarnation_key, std::uint64_t> last_admitted_;
  /// Not in step: each incarnation's last gradient that was taken.
  std::map<incarnation_key, proto::Commit> last_taken_;
};

} // namespace troupe
