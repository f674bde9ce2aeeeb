#pragma once

#include "actors/ask.hpp"
#include "actors/checkpoint/checkpoint_schedule.hpp"
#include "actors/model/job_context.hpp"
#include "actors/parameter_server/gradient_journal.hpp"
#include "actors/parameter_server/norm_exchange.hpp"
#include "actors/parameter_server/piecewise_updater.hpp"
#include "actors/parameter_server/pulled_versions.hpp"
#include "actors/parameter_server/reader_front.hpp"
#include "actors/parameter_server/shard_policy.hpp"
#include "actors/parameter_server/staged_gradients.hpp"
#include "actors/parameter_server/step_pieces.hpp"
#include "actors/parameter_server/version_pool.hpp"
#include "actors/status/activity_board.hpp"
#include "actors/tick.hpp"
#include "actors/view.hpp"
#include "messages/interfaces.hpp"
#include "messages/pieces.hpp"
#include "messages/proto/job.pb.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// A worker's synchronizer (ps_synchronizer), as a shard sees it. The shard notifies it about each
/// synchronous update, or when its worker need no longer wait for slower workers. The shard may
/// also send new weights to the same actor (new_weights_taker).
using step_listener = caf::typed_actor<rpc<void, proto::Advanced>>;

/// The synchronizers of all workers and, if shards exchange messages, all shards, in order. The
/// shard gets this message after all these actors have started, and before the first step.
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
  /// Receives this shard's failures, and its captures: copies of weights and state for checkpoints
  /// and evaluations.
  coordinator_actor coordinator;
  /// The shard's reader (reader_front), if workers do not wait for each other at each step and may
  /// read at any time. Otherwise null.
  decision_listener reader;
  /// Records the versions that workers get from the shard itself; may be null.
  std::shared_ptr<pulled_versions> pulled = nullptr;
  /// How the protocol treats gradients. Not shared with other shards.
  std::shared_ptr<shard_policy> policy;
  /// True if gradients may arrive in pieces, and weights are sent in pieces. Requires that each
  /// update takes a gradient from every worker.
  bool in_pieces = false;
  /// Computes the shard's updates; from make_updates_of(). If null, the shard updates on the CPU.
  std::shared_ptr<piecewise_updater> updater = nullptr;
  /// The device of `updater`, for errors: "ps/0 on GPU:1".
  std::string device = {};
};

/// Makes the object that computes a shard's updates and holds the optimizer's state. `on`: see
/// range_updater.
std::shared_ptr<piecewise_updater> make_updates_of(const job_context& context,
                                                   const shard_options& shard,
                                                   const updater_maker& on = {});

using shard_shell = shard_actor::extend<rpc<void, proto::PushPiece, payload>,
                                        rpc<void, step_listeners>, rpc<void, tick>>;

/// Makes a version pool for a shard from which this number of workers pull. Version 0 has the
/// initial weights.
/// `held`: number of further versions that the protocol keeps in use.
std::shared_ptr<version_pool> make_versions(const job_context& context, range where,
                                            std::size_t workers, std::size_t held = 0);

/// Makes a version pool for the moving average of a shard's weights, from which only the
/// coordinator pulls. Null if the job has no moving average.
std::shared_ptr<version_pool> make_averages(const job_context& context, range where);

/// The only writer of a slice of the parameters. It also holds the optimizer's state. The shard
/// stages a pushed gradient: it stores the gradient, without any effect. The gradient takes effect
/// when its worker commits it. The shard decides each gradient once. The policy (shard_policy)
/// decides which gradients form an update. The update is computed in new memory as a new version,
/// which is then published. If workers make each step together and the job clips by norm, the
/// update waits until the shards have exchanged their parts of the norm. If the policy chooses
/// among the gradients of a step, shard 0 chooses for all shards.
///
/// If gradients arrive in pieces, the shard computes a piece of the next version as soon as it has
/// this piece of all gradients. It sends the new piece to the workers at once, so that they get new
/// weights while they still send gradients. The version is published, and the optimizer's state
/// changes, only when all gradients are committed. If a worker commits a gradient differently from
/// what it sent (because the gradient is not finite), the pieces are dropped, and the update is
/// made as usual.
///
/// Workers that share memory with this process (shares_memory) get the weights of their next step
/// before the announcement of the update or the answer to their commit. They need not pull. The
/// shard does not send these weights in five cases: shard 0 chooses among gradients, workers wait
/// for slower workers, `pull_ahead` is set, the worker exchanges only rows of large tables, or the
/// worker pauses.
///
/// When a checkpoint is due, the shard sends the coordinator a capture: the newest version and a
/// copy of the optimizer's state. Then it continues. At most two captures are in transit.
class parameter_shard : public shard_shell::base {
public:
  using super = shard_shell::base;

  parameter_shard(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
                  shard_options options, std::shared_ptr<version_pool> versions,
                  std::shared_ptr<version_pool> averages = nullptr);

  const char* name() const override { return "troupe.shard"; }
  std::uint64_t view_number() const noexcept { return options_.view.number; }

protected:
  behavior_type make_behavior() override;
  /// Answers waiting requests, and drops handles to actors that hold a handle to this one.
  void on_exit() override;

private:
  using decision = caf::typed_response_promise<proto::Pushed>;
  /// Worker and incarnation.
  using incarnation_key = std::pair<std::uint32_t, std::uint64_t>;

  /// A commit without an answer: its gradient is missing, or its update has not been made.
  struct open_commit {
    proto::Commit header;
    decision answer;
    bool staged = false;
  };

  caf::result<proto::Pushed> on_push(const proto::Push& x, const payload& gradient);
  void on_push_piece(const proto::PushPiece& x, const payload& values);
  caf::result<proto::Pushed> on_commit(const proto::Commit& x);
  caf::result<proto::Pushed> on_push_and_commit(const proto::Commit& x, const payload& gradient);
  caf::result<proto::Pushed> on_admit(const proto::Admit& x);
  caf::result<proto::Fenced> on_fence(const proto::Fence& x);
  caf::result<proto::Report> on_report(const proto::ReportRequest& x);
  caf::result<proto::Ack> on_restore(const proto::Restore& x, const payload& values);
  caf::result<proto::Ack> on_partial_norm(const proto::PartialNorm& x);
  caf::result<proto::Ack> on_step_parts(const proto::StepParts& x);
  caf::result<proto::Ack> on_idle_workers(const proto::IdleWorkers& x);
  void on_damping(const proto::Damping& x);

  /// The reason to refuse the elements of a gradient, if there is one. `expected`: the number of
  /// elements that should have been sent.
  std::optional<caf::error> misfit(const proto::GradientId& id, const payload& gradient,
                                   std::size_t expected) const;
  /// The reason to refuse a gradient: `problem` if it is not empty, or that the view has no worker
  /// with this id.
  std::optional<caf::error> refusal(const proto::GradientId& id, std::string problem = {}) const;

  /// The answer to a gradient that was decided earlier, or whose worker is fenced off: the
  /// coordinator has declared the worker lost, and none of its gradients may take effect any more.
  std::optional<proto::Pushed> decided(const proto::GradientId& id);
  std::size_t rank_of(std::uint32_t worker) const;
  /// Stages a gradient that has arrived as a whole. If the update of the gradient's step was made
  /// without it, returns the answer.
  std::optional<proto::Pushed> stage(const proto::GradientId& id, payload gradient);
  payload spread(const proto::Selection& rows, const payload& values) const;
  proto::Pushed quarantine(const proto::Commit& x);
  std::optional<proto::Pushed> turn_away(const proto::Commit& x);
  void finish(const proto::Fence& x);
  proto::Fenced fenced(const proto::Fence& x);
  bool decides_later(const proto::Fence& x) const;
  void answer_fences();
  void take(const proto::Commit& x);
  void report_admitted();
  void deliver(const proto::GradientId& id, const proto::Pushed& answer);
  void notify_reader(const proto::GradientId& id);
  bool clips_in_step() const;
  void advance();
  proto::Pushed decide(const contribution& x);
  void answer_workers(const std::vector<contribution>& parts, std::vector<proto::Pushed>& answers,
                      const proto::Advanced& news);
  void send_parts();
  void send_damping();
  void share_norm();
  void send_norm(std::size_t shard, const proto::PartialNorm& part);
  bool update_ready();
  /// Computes and sends those pieces of the next version that can be computed.
  void prepare_pieces();
  /// True if the next version was computed in pieces from exactly the gradients of its update.
  bool prepared() const { return updater_.all_staged() && pieces_.settled(); }
  void drop_pieces();
  void send_piece(std::size_t piece, std::uint64_t version);
  /// Sends the newest weights if the worker can read them in this process's memory, needs all of
  /// them, and is not fenced off.
  void send_whole(std::size_t rank);
  /// Only if workers do not wait for each other at each step: sends the worker the newest weights,
  /// which it uses for its next step. Called before the answer to this commit.
  void send_next_weights(const proto::Commit& x);
  bool is_fenced(std::size_t rank) const;
  void make_version(const planned_update& update, bool is_prepared);
  void fail(const std::string& reason, bool not_finite = false);
  caf::error device_failed(const std::string& why);
  void capture_if_due();
  void capture_end();
  void capture_state();
  void capture(checkpoint_schedule& schedule, bool to_evaluate, const std::vector<payload>& slots);
  payload newest_weights() const;
  std::vector<payload> state_slots() const;
  void make_updates();
  bool find_slot();
  void publish(std::uint64_t version);
  std::size_t average_slot() const noexcept;
  void await_gradients();
  void retry_soon();

  std::uint64_t staleness(std::uint64_t base_version) const noexcept;

  std::shared_ptr<const job_context> context_;
  shard_options options_;
  std::vector<member> workers_;
  std::vector<step_listener> listeners_;
  std::vector<shard_actor> shards_;
  std::shared_ptr<version_pool> versions_;
  /// The moving average after each version; null if the job has none.
  std::shared_ptr<version_pool> averages_;
  std::shared_ptr<shard_policy> policy_;
  /// The result of shard_policy::live().
  std::shared_ptr<live_weights> live_;
  piecewise_updater& updater_;
  step_pieces pieces_;
  /// True if a slot is reserved for pieces of the next version.
  bool slot_reserved_ = false;
  /// Once all pieces are computed: the index of the last one, which is sent when the version is
  /// published.
  std::size_t last_piece_ = 0;
  gradient_journal journal_;
  staged_gradients staged_;
  /// Workers whose last pushed gradient has only rows. They also pull rows.
  std::set<std::uint32_t> with_rows_;
  std::vector<open_commit> open_;
  /// For synchronous jobs that clip by norm: the parts of the norms that have arrived.
  norm_exchange norms_;
  /// True if this shard has sent its own part of the norm.
  bool norm_shared_ = false;
  /// True if shard 0 has sent the other shards which gradients make the next update.
  bool parts_sent_ = false;
  /// Number of the newest proto::IdleWorkers message. If workers do not wait for each other at each
  /// step, the answer to such a message waits for the update that the message causes.
  std::uint64_t newest_idle_ = 0;
  std::vector<caf::typed_response_promise<proto::Ack>> idle_answers_;
  /// Unanswered requests to fence off workers that have a gradient in a pending update.
  std::vector<std::pair<proto::Fence, caf::typed_response_promise<proto::Fenced>>> fences_;
  bool retrying_ = false;
  checkpoint_schedule checkpoints_;
  checkpoint_schedule evaluations_;
  /// Version of the weights at the start of this run.
  std::uint64_t first_version_ = 0;
  /// True if the weights of a checkpoint were restored.
  bool restored_ = false;
  /// Number of samples trained before this run.
  std::uint64_t samples_before_ = 0;
  std::uint64_t staleness_sum_ = 0;
  std::uint64_t quarantined_samples_ = 0;
  /// If staleness is bounded: the number of gradients admitted so far (applied or in transit), and
  /// the last admitted gradient of each incarnation.
  std::uint64_t admitted_ = 0;
  std::map<incarnation_key, std::uint64_t> last_admitted_;
  /// Asynchronous protocols: each incarnation's last accepted gradient.
  std::map<incarnation_key, proto::Commit> last_taken_;
};

} // namespace troupe
