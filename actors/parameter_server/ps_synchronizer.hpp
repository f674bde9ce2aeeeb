#pragma once

#include "actors/ask.hpp"
#include "actors/model/job_context.hpp"
#include "actors/parameter_server/live_weights.hpp"
#include "actors/parameter_server/range_pieces.hpp"
#include "actors/parameter_server/worker_policy.hpp"
#include "actors/status/activity_board.hpp"
#include "actors/tick.hpp"
#include "actors/view.hpp"
#include "messages/interfaces.hpp"
#include "messages/pieces.hpp"

#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace troupe {

/// A shard's weights, for synchronizers in its process that write to them. Sent before the first
/// step.
struct shared_weights {
  std::uint32_t shard = 0;
  std::shared_ptr<live_weights> weights;
};

/// A message from the synchronizer to itself: it checks whether the worker has done anything since
/// this gradient.
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
  /// The worker's board.
  std::shared_ptr<activity_board> board = std::make_shared<activity_board>();
  /// Each update takes a gradient from every worker. The shards announce the update with
  /// `Advanced`.
  bool in_step = false;
  /// Decides how shards scale this worker's gradients, from what shard 0 reports about the
  /// gradients of all workers. Null: no scaling.
  std::shared_ptr<worker_policy> policy;
  /// The shards keep this worker from getting too far ahead of others. If a pull is too early, the
  /// worker pulls again after the shard's `Advanced`. It pulls from shard 0 first.
  bool bounded = false;
  /// A worker asks for its weights this number of steps early. Cannot be combined with `in_step` or
  /// `writes`.
  std::size_t pull_ahead = 0;
  /// The worker reads and writes the shards' weights directly (`shared_weights`). It announces its
  /// gradients to the shards without sending them.
  bool writes = false;
  /// Shard 0 admits or rejects each gradient.
  bool admission = false;
  /// Only with `in_step`: shard 0 decides whether a gradient is in time, and the other shards get
  /// the commit after this decision. A step is computed from weights of one version, and each
  /// version is used once.
  bool first_decides = false;
  /// Only with `in_step` and without `first_decides`: shards on other hosts get the gradient in
  /// pieces, and send new weights in pieces.
  bool in_pieces = false;
};

/// The worker's side of the exchange with parameter shards. It acquires weights by pulling from the
/// shards' readers, and contributes gradients by pushing to the shards. With shards on other nodes,
/// it exchanges only the rows of large tables that the batch reads. It pushes a shard's part of the
/// gradient as soon as backward has passed the shard's range, while the rest is still computed. The
/// part takes effect only when the whole gradient is committed at all shards. A gradient that is
/// not finite is quarantined: the shards count it, but do not apply it. At most one gradient is in
/// transit at a time.
///
/// If the job bounds staleness, shard 0 admits or rejects each gradient for all shards before its
/// commit, so that all shards decide the same.
///
/// If steps do not wait for all workers (`first_decides`), a gradient is committed at shard 0
/// before the other shards. The worker pulls again until the weights of all shards have the same
/// version.
///
/// With `pull_ahead` n, the worker asks for the weights of step s when the computation of step s -
/// n begins. The first n steps all use the weights that it asked for when the first step began.
/// After a rejection, or if the worker has no other batch, the worker drops the weights that it
/// asked for and begins as at the first step, because these weights would be older than necessary.
/// Early pulls are for whole ranges, because the batch is not known yet.
///
/// Without `pull_ahead`, if no worker waits for others, the worker pulls the weights of its next
/// step together with the commit of this one, unless it pulls only rows, writes the weights itself,
/// or has no next batch. The reader answers once the gradient is decided. This saves a round trip,
/// and a run with a single worker computes the same weights. Shards that share memory with this
/// process (shares_memory) send these weights before they answer the commit. If such a shard has
/// not sent them, the worker pulls as soon as it has the answer to the commit.
///
/// With `pull_ahead`, a worker may acquire a step before its last gradient is decided
/// (protocol_traits::overlaps). It gets the weights that it asked for early. Its contributions and
/// the next early pull go to the shards after that decision.
///
/// With `in_pieces`, a piece of the gradient is pushed as soon as backward has passed it, except to
/// shards with which only rows are exchanged. The shard sends a piece of the next weights as soon
/// as it has this piece of all workers' gradients, so a connection carries gradients and weights at
/// the same time. If all pieces have arrived when the worker acquires the next step, nothing is
/// pulled. With `in_step`, shards that share memory with this process send their whole range
/// instead.
///
/// If a commit gets no answer in time, it is sent again. The gradient itself is sent again only if
/// the shard does not have it.
class ps_synchronizer : public synchronizer_actor::extend<
                          rpc<void, proto::Advanced>, rpc<void, proto::NewWeights, payload>,
                          rpc<void, shared_weights>, rpc<void, idle_check>, rpc<void, tick>>::base {
public:
  using super =
    synchronizer_actor::extend<rpc<void, proto::Advanced>, rpc<void, proto::NewWeights, payload>,
                               rpc<void, shared_weights>, rpc<void, idle_check>,
                               rpc<void, tick>>::base;

  ps_synchronizer(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
                  ps_synchronizer_options options, worker_actor worker);

  const char* name() const override { return "troupe.ps_synchronizer"; }
  std::uint64_t view_number() const noexcept { return options_.view; }

protected:
  behavior_type make_behavior() override;

private:
  enum class admission { not_needed, asked, granted, refused };

  /// One shard's part of the gradient.
  struct part {
    range where;
    /// The rows that the batch reads and changes. Absent if they are not a small part, or if the
    /// shard is on this node.
    std::optional<proto::Selection> rows = std::nullopt;
    /// The weights pulled so far, if only rows are pulled.
    payload kept = {};
    /// The newest version that this worker knows of, from the shard's announcements of updates and
    /// its decisions about gradients.
    std::uint64_t told = 0;
    std::uint64_t base_version = 0;
    /// True if a pull has no answer yet.
    bool pulling = false;
    /// Number of elements that backward has not computed yet.
    std::size_t missing = 0;
    /// If the shard has no elements, its part is pushed with the first contribution.
    bool pushed = false;
    /// True if the part was pushed but not acknowledged.
    bool on_its_way = false;
    bool committed = false;
    bool decided = false;
    /// True if the shard answered that the pull came too early. It is then repeated later.
    bool waits = false;
    /// If this worker waits for slower workers, also after an early pull (pull_ahead): these
    /// workers, and how many steps the slowest of them is behind the step of the pull.
    std::vector<std::uint32_t> slow = {};
    std::uint64_t behind = 0;
    /// The slowest worker's step, from the newest message that the shard has sent since the pull.
    std::uint64_t slowest = 0;
    /// True if the shard has accepted the part for its step.
    bool taken = false;
    /// Number of commits sent since the last answer.
    int attempts = 0;
    /// Writes to the weights that the shard shares. Null if the shard does not share them.
    std::shared_ptr<live_writer> live = nullptr;
    /// If `kept` are the live weights after this worker's last update: their version.
    std::optional<std::uint64_t> kept_version = std::nullopt;
    /// True if the weights of the next step were pulled with the commit of this one.
    bool pulled_next = false;
    /// These weights, once they have arrived.
    std::optional<weight_range> next = std::nullopt;
  };

  /// The state of an exchange in pieces with a shard.
  struct piecewise_part {
    range_pieces pieces;
    /// True if the gradient of this step is pushed in pieces.
    bool pushes = false;
    /// True if a piece of the gradient was sent.
    bool sent = false;
    /// For each piece: number of elements that backward has not computed yet.
    std::vector<std::size_t> missing = {};
    /// The newest version of which a piece of the weights has arrived.
    std::uint64_t version = 0;
    /// The pieces of this version that have arrived.
    piece_assembly weights;
  };

  /// A shard's weights that the worker asked for before their step.
  struct early_part {
    std::optional<weight_range> weights = std::nullopt;
    /// These three fields have the same meaning as in `part`.
    bool waits = false;
    std::vector<std::uint32_t> slow = {};
    std::uint64_t behind = 0;
  };

  /// The weights of a step that has not begun.
  struct early_weights {
    std::uint64_t ticket = 0;
    /// Only with `bounded`: the worker's step when it asked for these weights.
    std::uint64_t clock = 0;
    std::vector<early_part> parts;
  };

  /// A step that the worker begins before its last gradient is decided.
  struct later_step {
    acquire attributes;
    /// True if the worker has the weights.
    bool served = false;
    std::vector<weights_version> versions;
    std::vector<contribute> contributions;
    std::optional<commit> done;
    bool abandoned = false;
  };

  void on_acquire(const acquire& x);
  /// Resets the state for the next gradient, and forgets everything about the last one.
  void begin_gradient(const acquire& x);
  void serve_later();
  bool is_later(step_number x) const { return later_ && x.value == sequence_.next().value; }
  /// Called when the last gradient is decided.
  void begin_later();
  void pull(std::size_t shard);
  bool pulls_next() const;
  /// True if this process can read the shard's memory, so the shard is expected to send the weights
  /// of the next step before it answers the commit.
  bool sends_weights(std::size_t shard) const;
  void pull_next(std::size_t shard);
  void on_next(std::size_t shard, gradient_sequence sequence, const proto::Weights& header,
               const payload& data);
  proto::Pull pull_header(std::size_t shard, std::uint64_t clock) const;
  patience patience_for_pull(std::size_t shard) const;
  void take_early();
  void ask_early();
  void pull_early(const early_weights& x, std::size_t shard);
  /// True if the worker waits for these weights now.
  bool awaited(const early_weights& x) const;
  void show_early_wait(std::size_t shard);
  void on_early(std::uint64_t ticket, std::size_t shard, const proto::Weights& header,
                const payload& data);
  void pull_early_again(std::size_t shard);
  /// Called when all weights of the step have been passed on.
  void begin_step();
  bool pulls_rows(const part& x) const { return x.rows && options_.pull_ahead == 0; }
  void on_too_early(std::size_t shard, const proto::Weights& x);
  /// Shows the workers that all waiting pulls wait for.
  void show_slow_workers();
  void remind();
  void on_idle_check(const idle_check& x);
  void begin_pulls();
  void on_weights(std::size_t shard, gradient_sequence sequence, const proto::Weights& header,
                  const payload& data);
  /// Checks that the answer to a pull has `elements` parameters of the shard. If it does not, the
  /// worker fails and the result is false.
  bool fits(std::size_t shard, const proto::Weights& header, const payload& data,
            std::size_t elements);
  void use_weights(std::size_t shard, weight_range x);
  void read_live();
  void write_live();
  static std::span<float> kept_of(part& x);
  void choose_rows(std::size_t shard, const batch_rows& rows);
  payload complete_weights(part& x, const payload& data);
  payload gradient_for(const part& x) const;
  void choose_pieces(std::size_t shard);
  void push_pieces(std::size_t shard, range arrived);
  void on_new_weights(const proto::NewWeights& x, const payload& values);
  /// The newest weights that the shard has sent, if all pieces have arrived. Each version is used
  /// once.
  std::optional<weight_range> take_new_weights(std::size_t shard);
  bool has_new_weights(std::size_t shard) const;
  /// Drops weights that shards have sent by themselves. Without `in_step`, they would be older than
  /// necessary.
  void forget_new_weights();
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
  /// True if this worker's gradient for the shard is complete, and must still be pushed.
  bool waits_for_push(std::size_t shard) const;
  void push_if_complete(std::size_t shard);
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
  /// True if gradients, or weights of later steps, are under way.
  bool exchanging() const;
  void report_exchange();
  void fail(const std::string& what, std::size_t shard, const caf::error& error);
  static task_name name_of(std::size_t shard);

  std::shared_ptr<const job_context> context_;
  ps_synchronizer_options options_;
  worker_actor worker_;
  std::vector<part> parts_;
  /// One per shard.
  std::vector<piecewise_part> piecewise_;

  // -- the current gradient --
  gradient_sequence sequence_;
  acquire attributes_;
  std::vector<weight_range> ranges_;
  std::size_t pulls_open_ = 0;
  /// True if the worker asked early for the weights of this step. They are then the first of
  /// `ahead_`.
  bool from_early_ = false;
  admission admission_ = admission::not_needed;
  payload gradient_;
  /// Number of elements of the gradient that the worker has contributed.
  std::uint64_t contributed_ = 0;
  std::uint64_t samples_ = 0;
  std::uint64_t samples_of_step_ = 0;
  /// The worker's commit at the end of the step.
  std::optional<commit> done_;
  /// The fields that this worker's commits at all shards have in common.
  proto::Commit header_;
  std::optional<double> gradient_norm_;
  std::uint64_t staleness_ = 0;
  proto::Outcome outcome_ = proto::OUTCOME_UNSET;
  /// Only with `in_step`: number of updates of the weights before this step.
  weights_version steps_;
  /// Only with `first_decides`: the smallest version from which the next gradient may be computed.
  std::uint64_t next_version_ = 0;
  /// Only with `first_decides`: shard 0's announcement of an update, if it arrived before shard 0's
  /// decision that this gradient is part of the update.
  std::optional<proto::Advanced> early_;
  bool reminded_ = false;
  /// Only with `pull_ahead`: the weights of this step until the worker gets them, and the weights
  /// of the next steps.
  std::deque<early_weights> ahead_;
  std::optional<later_step> later_;
  std::uint64_t tickets_ = 0;
  /// Only with `bounded`: this worker's step.
  std::uint64_t clock_ = 0;
  /// Only with `bounded`: true if other workers may have stopped waiting for this worker.
  bool paused_ = true;
  /// Only with `bounded`: the worker tells all shards that it pauses. This is the number of shards
  /// that have not answered yet. The worker pulls no weights until all have answered.
  std::size_t pauses_open_ = 0;
  bool pulls_due_ = false;
  /// The slow workers that the board shows as the reason why this worker waits.
  std::vector<std::uint32_t> shown_;
  /// Shard 0's newest statistics about all gradients, from its last decision.
  proto::Pacing pacing_;
};

} // namespace troupe
