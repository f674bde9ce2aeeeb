#pragma once

#include "actors/ask.hpp"
#include "actors/model/job_context.hpp"
#include "actors/parameter_server/live_weights.hpp"
#include "actors/parameter_server/worker_policy.hpp"
#include "actors/status/activity_board.hpp"
#include "actors/tick.hpp"
#include "actors/view.hpp"
#include "messages/interfaces.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace troupe {

/// A shard's weights, for synchronizers of its process that write them. Comes before the first
/// step.
struct shared_weights {
  std::uint32_t shard = 0;
  std::shared_ptr<live_weights> weights;
};

/// From a synchronizer to itself: does the worker still do nothing since this gradient?
struct idle_check {
  gradient_sequence after;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::shared_weights)
TROUPE_LOCAL_MESSAGE(troupe::idle_check)

namespace troupe {

struct ps_synchronizer_options {
  std::uint64_t view = 0;
  std::uint32_t worker = 0;
  std::uint64_t incarnation = 0;
  patience requests;
  /// One per shard, in order.
  std::vector<shard_actor> shards;
  std::vector<reader_actor> readers;
  /// The worker's.
  std::shared_ptr<activity_board> board = std::make_shared<activity_board>();
  /// Each update takes a gradient of every worker: the shards tell of it with `Advanced`.
  bool in_step = false;
  /// Says how shards scale this worker's gradients, by what shard 0 knows of all of them; null:
  /// they are applied as they are.
  std::shared_ptr<worker_policy> policy;
  /// Shards say when this worker may read, so that it is not too far ahead of others: a pull that
  /// is too early is repeated when they tell, with `Advanced`, that it is not any more. Shard 0 is
  /// asked first.
  bool bounded = false;
  /// Reads and writes the weights of shards itself, which share them (`shared_weights`): they are
  /// told of gradients, and not sent any.
  bool writes = false;
  /// Shard 0 admits or rejects each gradient.
  bool admission = false;
  /// In step: shard 0 decides whether a gradient is in time, and other shards hear of it only then.
  /// A step is computed from weights of one version, and each version is used once.
  bool first_decides = false;
};

/// A worker's side of parameter shards: acquires by pulling from the readers, contributes by
/// pushing to the shards. From shards on other nodes only the rows of large tables travel that the
/// batch reads, and to them only these rows of the gradient. A shard's part of the gradient is
/// pushed as soon as backward has passed its range, while the rest is being computed, and stays
/// without effect until the whole gradient is committed at all shards. One that is not finite is
/// quarantined at all of them. At most one gradient is on its way at a time.
///
/// Where the job bounds staleness, shard 0 admits or rejects each gradient for all shards before it
/// is committed, so that its parts never differ.
///
/// Where steps do not wait for all workers (`first_decides`), a gradient is committed at shard 0
/// before the others, and weights are pulled again until they are all of one version.
///
/// A commit that is not answered in time is asked again; the part itself is only sent again if the
/// shard has not got it.
class ps_synchronizer
  : public synchronizer_actor::extend<rpc<void, proto::Advanced>, rpc<void, shared_weights>,
                                      rpc<void, idle_check>, rpc<void, tick>>::base {
public:
  using super = synchronizer_actor::extend<rpc<void, proto::Advanced>, rpc<void, shared_weights>,
                                           rpc<void, idle_check>, rpc<void, tick>>::base;

  ps_synchronizer(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
                  ps_synchronizer_options options, worker_actor worker);

  const char* name() const override { return "troupe.ps_synchronizer"; }
  std::uint64_t view_number() const noexcept { return options_.view; }

protected:
  behavior_type make_behavior() override;

private:
  enum class admission { not_needed, asked, granted, refused };

  /// The gradient's part for one shard.
  struct part {
    range where;
    /// What of it the batch reads and changes, where that is little, and the shard on another node.
    std::optional<proto::Selection> rows = std::nullopt;
    /// The weights as far as they were pulled, where only rows are.
    payload kept = {};
    /// first_decides: the newest version that the shard has told of.
    std::uint64_t told = 0;
    std::uint64_t base_version = 0;
    /// Asked for its weights.
    bool pulling = false;
    /// Elements that backward has not handed over yet.
    std::size_t missing = 0;
    /// A shard may have no elements: its part is pushed with the first contribution.
    bool pushed = false;
    /// Pushed, and not acknowledged yet.
    bool on_its_way = false;
    bool committed = false;
    bool decided = false;
    /// The pull came too early, and waits to be repeated. These workers are too slow, the slowest
    /// by so many steps.
    bool waits = false;
    std::vector<std::uint32_t> slow = {};
    std::uint64_t behind = 0;
    /// The slowest worker's step, as the shard told since the pull.
    std::uint64_t slowest = 0;
    /// The shard has taken it for its step.
    bool taken = false;
    /// Commits since the last answer.
    int attempts = 0;
    /// Shared by the shard.
    std::shared_ptr<live_writer> live = nullptr;
  };

  void on_acquire(const acquire& x);
  void pull(std::size_t shard);
  void on_too_early(std::size_t shard, const proto::Weights& x);
  /// Of all pulls that wait.
  void show_slow_workers();
  void remind();
  void on_idle_check(const idle_check& x);
  void begin_pulls();
  void on_weights(std::size_t shard, gradient_sequence sequence, const proto::Weights& header,
                  const payload& data);
  void read_live();
  void write_live();
  void choose_rows(std::size_t shard, const batch_rows& rows);
  payload complete_weights(part& x, const payload& data);
  payload gradient_for(const part& x) const;
  void on_contribute(const contribute& x);
  void on_commit(const commit& x);
  void on_abandon(const abandon& x);
  void on_admission(const proto::Pushed& x);
  void on_advanced(const proto::Advanced& x);
  void on_tick();

  void hand_on(std::size_t shard);
  void hand_on_if_of_one_version(bool ask_again = false);
  void accepted(std::size_t shard);
  void ask_admission();
  void push(std::size_t shard);
  void commit_parts();
  void commit_part(std::size_t shard);
  void complete_header();
  proto::Commit commit_header(std::size_t shard) const;
  void on_decided(std::size_t shard, gradient_sequence sequence, const proto::Pushed& x);
  void on_no_answer(std::size_t shard, gradient_sequence sequence, const caf::error& error);
  void decide(std::size_t shard, proto::Outcome outcome, std::uint64_t staleness);
  void finish_if_decided();
  void answer(proto::Outcome outcome);
  proto::GradientId gradient_id() const;
  void fail(const std::string& what, std::size_t shard, const caf::error& error);
  static task_name name_of(std::size_t shard);

  std::shared_ptr<const job_context> context_;
  ps_synchronizer_options options_;
  worker_actor worker_;
  std::vector<part> parts_;

  // -- the gradient under way --
  gradient_sequence sequence_;
  acquire attributes_;
  std::vector<weight_range> ranges_;
  std::size_t pulls_open_ = 0;
  admission admission_ = admission::not_needed;
  payload gradient_;
  std::uint64_t samples_ = 0;
  std::uint64_t samples_of_step_ = 0;
  /// What the worker said at the end of the step.
  std::optional<commit> done_;
  /// Of its commits at all shards.
  proto::Commit header_;
  std::optional<double> gradient_norm_;
  std::uint64_t staleness_ = 0;
  proto::Outcome outcome_ = proto::OUTCOME_UNSET;
  /// In step: updates of the weights before this one.
  weights_version steps_;
  /// first_decides: the least version that the next gradient may be computed from; and what was
  /// told of the update of shard 0 before this gradient was known to be part of it.
  std::uint64_t next_version_ = 0;
  std::optional<proto::Advanced> early_;
  bool reminded_ = false;
  /// Bounded: the step that this worker makes, and whether others may have stopped waiting for it.
  std::uint64_t clock_ = 0;
  bool paused_ = true;
  /// Shards that have yet to hear of a pause; pulls come after that.
  std::size_t pauses_open_ = 0;
  bool pulls_due_ = false;
  /// On the board.
  std::vector<std::uint32_t> shown_;
  /// As shard 0 said with its last decision.
  proto::Pacing pacing_;
};

} // namespace troupe
