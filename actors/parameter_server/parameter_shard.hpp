#pragma once

#include "actors/ask.hpp"
#include "actors/checkpoint/checkpoint_schedule.hpp"
#include "actors/model/job_context.hpp"
#include "actors/parameter_server/gradient_journal.hpp"
#include "actors/parameter_server/norm_exchange.hpp"
#include "actors/parameter_server/piecewise_updater.hpp"
#include "actors/parameter_server/pulled_versions.hpp"
#include "actors/parameter_server/reader_front.hpp"
#include "actors/parameter_server/rounded_versions.hpp"
#include "actors/parameter_server/shard_policy.hpp"
#include "actors/parameter_server/staged_gradients.hpp"
#include "actors/parameter_server/step_pieces.hpp"
#include "actors/parameter_server/version_pool.hpp"
#include "actors/status/activity_board.hpp"
#include "actors/tick.hpp"
#include "actors/touched_rows.hpp"
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

/// A worker's synchronizer (ps_synchronizer), as the receiver of notices from shards. In
/// synchronous protocols, a notice announces an update. If workers wait for slower workers (SSP), a
/// notice says that this worker may continue. Shards may also send new weights to this synchronizer
/// (new_weights_taker).
using step_listener = caf::typed_actor<rpc<void, proto::Advanced>>;

/// Gives a shard the handles of the synchronizers of all workers, in order of rank. `shards` has
/// all shards in order of index, or is empty if shards exchange no messages. The shard gets this
/// message before the first step, once all these actors have started.
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
  /// The shard's reader (reader_front). The shard tells the reader when a gradient is decided. Null
  /// if workers wait for each other, or for slower workers.
  decision_listener reader;
  /// Records the versions that the shard sends to workers without a pull. May be null.
  std::shared_ptr<pulled_versions> pulled = nullptr;
  /// Rounds the weights for workers (Job.exchange_precision). Null if they are not rounded.
  std::shared_ptr<rounded_versions> rounded = nullptr;
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

/// Makes the object that computes a shard's updates and holds the optimizer's state.
/// @param on makes the updater of the shard's device; if empty, the CPU makes the updates
std::shared_ptr<piecewise_updater> make_updates_of(const job_context& context,
                                                   const shard_options& shard,
                                                   const updater_maker& on = {});

using shard_shell = shard_actor::extend<rpc<void, proto::PushPiece, payload>,
                                        rpc<void, step_listeners>, rpc<void, tick>>;

/// Makes a version pool for a shard from which this number of workers pull. Version 0 has the
/// initial weights.
/// @param held number of further versions that the protocol's own objects hold
std::shared_ptr<version_pool> make_versions(const job_context& context, range where,
                                            std::size_t workers, std::size_t held = 0);

/// Makes a version pool for the moving average of a shard's weights, from which only the
/// coordinator pulls. Null if the job has no moving average.
std::shared_ptr<version_pool> make_averages(const job_context& context, range where);

/// Holds a range of the weights and their optimizer state. No other actor writes them. When a
/// worker pushes a gradient, the shard only stores ("stages") it. The gradient takes effect when
/// the worker commits it. The shard decides once about each gradient. The policy (shard_policy)
/// decides which gradients form an update. The update is computed in new memory as a new version,
/// which is then published.
///
/// In a synchronous protocol that clips by norm, the update waits until the shards have exchanged
/// their parts of the norm. With backup workers, a step does not use the gradients of all workers.
/// Shard 0 then chooses the gradients for all shards.
///
/// If gradients arrive in pieces, the shard computes a piece of the next version as soon as it has
/// this piece of all gradients. It sends the new piece to the workers at once, so that they get new
/// weights while they still send gradients. When all gradients are committed, the version is
/// published and the optimizer's state changes. A commit may not match the pieces that were sent,
/// for example if the gradient is not finite. The shard then drops the computed pieces and makes
/// the update from the committed gradients.
///
/// Workers that share memory with this process (shares_memory) need not pull: the shard sends them
/// the weights of their next step. In synchronous protocols, these weights arrive before the
/// announcement of the update; in asynchronous protocols, before the answer to the commit. The
/// shard does not send them in five cases: shard 0 chooses among gradients, workers wait for slower
/// workers, `pull_ahead` is set, the worker exchanges only rows of large tables, or the worker
/// pauses.
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
  /// Answers waiting requests with an error. Drops handles to actors that hold a handle to this
  /// one. Otherwise, these actors would keep each other alive.
  void on_exit() override;

private:
  using decision = caf::typed_response_promise<proto::Pushed>;
  /// Worker and incarnation.
  using incarnation_key = std::pair<std::uint32_t, std::uint64_t>;

  /// A commit that is not answered yet: its gradient is missing, or its update has not been made.
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

  /// An error if the gradient does not have the expected number of elements; otherwise nothing.
  std::optional<caf::error> misfit(const proto::GradientId& id, const payload& gradient,
                                   std::size_t expected) const;
  /// An error if `problem` is not empty, if the id is invalid, or if the view does not contain the
  /// gradient's worker. Otherwise nothing.
  std::optional<caf::error> refusal(const proto::GradientId& id, std::string problem = {}) const;

  /// The answer to a gradient that was already decided, or whose worker is fenced off. Nothing if
  /// the gradient is new. (A worker is fenced off if the coordinator considers it lost: none of its
  /// further gradients may take effect.)
  std::optional<proto::Pushed> decided(const proto::GradientId& id);
  bool is_undecided(const proto::GradientId& id) const;
  void skip(std::uint64_t samples);
  std::size_t rank_of(std::uint32_t worker) const;
  /// Stages a whole gradient. Returns an answer if the gradient is late: its commit arrived
  /// earlier, and the update of its step was made without the gradient.
  std::optional<proto::Pushed> stage(const proto::GradientId& id, shard_gradient gradient);
  shard_gradient spread(const proto::Selection& rows, const payload& values);
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
  /// Computes the pieces of the next version for which all gradients have arrived, and sends them.
  void prepare_pieces();
  /// True if all pieces of the next version are computed, from exactly the gradients that were
  /// committed.
  bool prepared() const { return updater_.all_staged() && pieces_.settled(); }
  void drop_pieces();
  void send_piece(std::size_t piece, std::uint64_t version);
  /// Sends the newest weights to a worker that can read them in this process's memory. Does nothing
  /// if the worker needs only rows of large tables, if the worker is fenced off, or if shard 0
  /// chooses the gradients of a step.
  void send_whole(std::size_t rank);
  /// In asynchronous protocols: sends the newest weights to the worker of this commit, for its next
  /// step. Called before the commit is answered.
  void send_next_weights(const proto::Commit& x);
  bool is_fenced(std::size_t rank) const;
  bool is_pulled_whole() const;
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
  void apply(const planned_update& update);
  void publish(std::uint64_t version, std::optional<range_list> changed = std::nullopt);
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
  /// The weights, if workers change them directly (shard_policy::live()). Otherwise null.
  std::shared_ptr<live_weights> live_;
  piecewise_updater& updater_;
  step_pieces pieces_;
  /// True if a slot of `versions_` is reserved for pieces of the next version.
  bool slot_reserved_ = false;
  /// The piece that was computed last. A piece is sent at once, except the last missing piece of a
  /// version: this piece is sent when the version is published.
  std::size_t last_piece_ = 0;
  gradient_journal journal_;
  staged_gradients staged_;
  /// True if updates may leave out rows of tables that no batch touched.
  bool updates_rows_;
  /// For gradients of which only rows were sent.
  cleared_memory memory_;
  /// Workers whose last pushed gradient has only rows of large tables. They also pull only rows.
  std::set<std::uint32_t> with_rows_;
  std::vector<open_commit> open_;
  /// In synchronous jobs that clip by norm: the parts of the norm that have arrived from the
  /// shards.
  norm_exchange norms_;
  /// True if this shard has sent its own part of the norm.
  bool norm_shared_ = false;
  /// On shard 0: true if it has told the other shards which gradients make the next update.
  bool parts_sent_ = false;
  /// The number of the newest proto::IdleWorkers message, and the answers that are still due. In
  /// asynchronous protocols, such a message is answered after the update that it causes.
  std::uint64_t newest_idle_ = 0;
  std::vector<caf::typed_response_promise<proto::Ack>> idle_answers_;
  /// Requests to fence off a worker that are not answered yet, because the worker has a gradient in
  /// a pending update.
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
  /// If the job limits staleness, on shard 0: the number of gradients admitted so far (applied or
  /// in transit), and the sequence number of each incarnation's last admitted gradient.
  std::uint64_t admitted_ = 0;
  std::map<incarnation_key, std::uint64_t> last_admitted_;
  /// Each incarnation's last accepted gradient. Filled in asynchronous protocols, and on shard 0 if
  /// it chooses the gradients of a step.
  std::map<incarnation_key, proto::Commit> last_taken_;
};

} // namespace troupe
