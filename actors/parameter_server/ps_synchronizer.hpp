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

/// Gives a synchronizer access to the weights of a shard in the same process, so that it can write
/// to them (protocol `hogwild`). Sent before the first step.
struct shared_weights {
  std::uint32_t shard = 0;
  std::shared_ptr<live_weights> weights;
};

/// A message that the synchronizer sends to itself after a delay. If the worker has not begun a
/// gradient after gradient `after` by then, the worker counts as idle.
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
  /// The board that shows what the worker does and which tasks it waits for.
  std::shared_ptr<activity_board> board = std::make_shared<activity_board>();
  /// True if each update takes a gradient from every worker. The shards announce the update with
  /// `Advanced`.
  bool in_step = false;
  /// Chooses the factors by which shards scale this worker's gradients. It uses what shard 0
  /// reports about the gradients of all workers. If null, gradients are not scaled.
  std::shared_ptr<worker_policy> policy;
  /// True if the shards keep this worker from getting too far ahead of slower workers. If a pull
  /// comes too early, the shard sends no weights. The worker pulls again when the shard sends
  /// `Advanced`. In each step, the worker pulls from shard 0 first, and from the other shards once
  /// shard 0 has sent weights.
  bool bounded = false;
  /// A worker asks for its weights this number of steps early. Cannot be combined with `in_step` or
  /// `writes`.
  std::size_t pull_ahead = 0;
  /// True if the worker reads and writes the shards' weights directly (`shared_weights`). It
  /// commits its gradients at the shards without sending them.
  bool writes = false;
  /// True if shard 0 admits or rejects each gradient, because the job limits staleness.
  bool admission = false;
  /// Only with `in_step`: shard 0 decides whether a gradient is in time, and the other shards get
  /// the commit after this decision. All weights of a step have the same version, which is newer
  /// than that of the step before.
  bool first_decides = false;
  /// Only with `in_step` and without `first_decides`: shards on other hosts get the gradient in
  /// pieces, and send new weights in pieces.
  bool in_pieces = false;
};

/// Exchanges weights and gradients with the parameter shards, for one worker. It pulls weights from
/// the shards' readers and pushes gradients to the shards. With shards in other processes, it
/// exchanges only the rows of large tables that the batch reads. It pushes a shard's part of the
/// gradient as soon as the backward pass has computed this part. Shards apply their parts only
/// after the whole gradient is committed. A gradient that is not finite is quarantined: the shards
/// count it, but do not apply it. At most one gradient is in transit at a time.
///
/// If the job limits staleness (`admission`), the worker asks shard 0 before it commits a gradient.
/// Shard 0 admits or rejects the gradient for all shards, so that all of them decide the same.
///
/// With `first_decides`, a step does not wait for all workers. The worker commits a gradient at
/// shard 0 before the other shards. Shards may then be at different versions, so the worker pulls
/// again until all its weights have the same version.
///
/// With `pull_ahead` n, the worker asks for the weights of step s when the computation of step s -
/// n begins. The first n steps all use the weights of the first step. After a rejection, or if the
/// worker has no other batch, weights that were pulled early would be older than necessary. The
/// worker then drops them and begins as at the first step. Early pulls are for whole ranges,
/// because the batch is not known yet.
///
/// In asynchronous protocols without `pull_ahead`, the worker pulls the weights of its next step
/// together with the commit of this step. The reader answers once the gradient is decided. This
/// saves a round trip. It does not change the result of a run with a single worker. The worker does
/// not pull with its commit if it pulls only rows, writes the weights itself (`writes`: hogwild),
/// must not get too far ahead (`bounded`: ssp), or has no next batch. Shards that share memory with
/// this process (shares_memory) send the weights of the next step themselves, before they answer
/// the commit. If such a shard has not sent them, the worker pulls when it has the answer to the
/// commit.
///
/// With `pull_ahead`, a worker may also acquire the next step before its last gradient is decided
/// (protocol_traits::overlaps). It gets the weights that it pulled early. The synchronizer keeps
/// the contributions of this step, and the next early pull, until the last gradient is decided.
///
/// With `in_pieces`, a piece of the gradient is pushed as soon as the backward pass has computed
/// it. (Shards on this host, and shards with which only rows are exchanged, get their part as a
/// whole.) The shard sends a piece of the next weights as soon as it has this piece of all workers'
/// gradients, so a connection carries gradients and weights at the same time. If all pieces have
/// arrived when the worker acquires the next step, nothing is pulled. With `in_step`, but without
/// `first_decides`, shards that share memory with this process send their whole range after each
/// update.
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
    /// The rows of large tables that the batch reads and changes. Absent if they are a large part
    /// of the shard's range, or if the shard does not need them. A shard in this process gets the
    /// whole range together with the rows, because this takes no copy.
    std::optional<proto::Selection> rows = std::nullopt;
    /// The worker's copy of the shard's weights. Used if only rows are pulled, or if the worker
    /// writes the weights itself.
    payload kept = {};
    /// The newest version of the shard that this worker knows of. The shard names its version when
    /// it announces an update, and when it decides about a gradient.
    std::uint64_t told = 0;
    std::uint64_t base_version = 0;
    /// True if a pull has no answer yet.
    bool pulling = false;
    /// Number of elements that the backward pass has not computed yet.
    std::size_t missing = 0;
    /// True if the part was pushed. (A part without elements is pushed with the first
    /// contribution.)
    bool pushed = false;
    /// True if the part was pushed and the push has no answer yet.
    bool on_its_way = false;
    bool committed = false;
    bool decided = false;
    /// True if the pull came too early, because this worker is too far ahead. It is repeated later.
    bool waits = false;
    /// If this pull, or an early pull (pull_ahead), must wait: the slower workers that this worker
    /// waits for. `behind` is the number of steps from the step of the slowest worker to the step
    /// of the pull. Otherwise empty.
    std::vector<std::uint32_t> slow = {};
    std::uint64_t behind = 0;
    /// The step of the slowest worker, as the shard reported it last.
    std::uint64_t slowest = 0;
    /// True if the shard has accepted the part for the update of its step.
    bool taken = false;
    /// Number of commits sent since the last answer.
    int attempts = 0;
    /// Writes to the shard's weights. Null if workers do not write them directly.
    std::shared_ptr<live_writer> live = nullptr;
    /// If `kept` contains the live weights after this worker's last update: their version.
    std::optional<std::uint64_t> kept_version = std::nullopt;
    /// True if the weights of the next step were pulled together with the commit of this step.
    bool pulled_next = false;
    /// The weights of the next step, if they were pulled together with the commit and have arrived.
    std::optional<weight_range> next = std::nullopt;
  };

  /// The state of an exchange in pieces (in_pieces) with one shard. It also collects weights that
  /// the shard sends without a pull.
  struct piecewise_part {
    range_pieces pieces;
    /// True if the gradient of this step is pushed in pieces.
    bool pushes = false;
    /// True if a piece of the gradient was sent.
    bool sent = false;
    /// For each piece: number of elements that the backward pass has not computed yet.
    std::vector<std::size_t> missing = {};
    /// The newest version of which a piece of the weights has arrived.
    std::uint64_t version = 0;
    /// The pieces of this version that have arrived.
    piece_assembly weights;
  };

  /// A shard's part of weights that are pulled before their step.
  struct early_part {
    std::optional<weight_range> weights = std::nullopt;
    /// See the same fields of `part`.
    bool waits = false;
    std::vector<std::uint32_t> slow = {};
    std::uint64_t behind = 0;
  };

  /// The weights of a step that has not begun (`pull_ahead`). `ticket` identifies their pulls.
  struct early_weights {
    std::uint64_t ticket = 0;
    /// Only with `bounded`: the worker's step when it asked for these weights.
    std::uint64_t clock = 0;
    std::vector<early_part> parts;
  };

  /// A step that the worker begins before its last gradient is decided.
  struct later_step {
    acquire attributes;
    /// True if the weights were sent to the worker.
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
  /// Begins the later step, if there is one. Called when the last gradient is decided.
  void begin_later();
  void pull(std::size_t shard);
  bool pulls_next(std::size_t shard) const;
  /// True if this process can read the shard's memory. The shard is then expected to send the
  /// weights of the next step before it answers the commit.
  bool sends_weights(std::size_t shard) const;
  void pull_next(std::size_t shard);
  void on_next(std::size_t shard, gradient_sequence sequence, const proto::Weights& header,
               const payload& data);
  proto::Pull pull_header(std::size_t shard, std::uint64_t clock) const;
  patience patience_for_pull(std::size_t shard) const;
  void take_early();
  void ask_early();
  void pull_early(const early_weights& x, std::size_t shard);
  /// True if these are the weights of the current step, and the worker still waits for some of
  /// them.
  bool awaited(const early_weights& x) const;
  void show_early_wait(std::size_t shard);
  void on_early(std::uint64_t ticket, std::size_t shard, const proto::Weights& header,
                const payload& data);
  void pull_early_again(std::size_t shard);
  /// Called when all weights of the step have been passed to the worker. Begins the early pull for
  /// a later step.
  void begin_step();
  /// True if the shard is in another process.
  bool is_apart(std::size_t shard) const;
  bool pulls_rows(std::size_t shard) const;
  void on_too_early(std::size_t shard, const proto::Weights& x);
  /// Shows on the board which slower workers this worker waits for.
  void show_slow_workers();
  void remind();
  void on_idle_check(const idle_check& x);
  void begin_pulls();
  void on_weights(std::size_t shard, gradient_sequence sequence, const proto::Weights& header,
                  const payload& data);
  /// Returns true if the answer to a pull has `elements` parameters of the shard's range.
  /// Otherwise, the worker fails, and this returns false.
  bool fits(std::size_t shard, const proto::Weights& header, const payload& data,
            std::size_t elements);
  void use_weights(std::size_t shard, weight_range x);
  void read_live();
  void write_live();
  static std::span<float> kept_of(part& x);
  void choose_rows(std::size_t shard, const batch_rows& rows);
  payload complete_weights(std::size_t shard, const payload& data);
  payload gradient_for(std::size_t shard) const;
  void choose_pieces(std::size_t shard);
  void push_pieces(std::size_t shard, range arrived);
  void on_new_weights(const proto::NewWeights& x, const payload& values);
  /// The newest weights that the shard has sent, if all pieces have arrived. Each version is used
  /// once.
  std::optional<weight_range> take_new_weights(std::size_t shard);
  bool has_new_weights(std::size_t shard) const;
  /// Drops weights that shards have sent without a pull, because they would be older than
  /// necessary. Does nothing with `in_step`.
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
  /// True if the shard's part of the gradient is complete and must still be pushed.
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
  /// True while gradients, or weights of later steps, are in transit.
  bool exchanging() const;
  void report_exchange();
  void fail(const std::string& what, std::size_t shard, const caf::error& error);
  static task_name name_of(std::size_t shard);

  std::shared_ptr<const job_context> context_;
  bool updates_rows_;
  ps_synchronizer_options options_;
  worker_actor worker_;
  std::vector<part> parts_;
  /// One per shard, in order.
  std::vector<piecewise_part> piecewise_;

  // -- the current gradient --
  gradient_sequence sequence_;
  acquire attributes_;
  std::vector<weight_range> ranges_;
  std::size_t pulls_open_ = 0;
  /// True if the weights of this step were pulled early. They are then the first entry of `ahead_`.
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
  /// Only with `first_decides`: shard 0's announcement of an update, if it arrived too early. It is
  /// used when shard 0 has decided that this gradient is part of the update.
  std::optional<proto::Advanced> early_;
  bool reminded_ = false;
  /// Only with `pull_ahead`: the weights that are pulled early, in order of steps. Until the worker
  /// has the weights of the current step, the first entry is for this step.
  std::deque<early_weights> ahead_;
  std::optional<later_step> later_;
  std::uint64_t tickets_ = 0;
  /// Only with `bounded`: this worker's step.
  std::uint64_t clock_ = 0;
  /// Only with `bounded`: true if the worker has not begun yet, or was idle. The other workers then
  /// possibly do not wait for this worker.
  bool paused_ = true;
  /// Only with `bounded`: an idle worker reports to all shards that it pauses. This is the number
  /// of shards that have not answered this report. The worker pulls no weights until all have
  /// answered.
  std::size_t pauses_open_ = 0;
  bool pulls_due_ = false;
  /// The slower workers that the board currently shows as the reason why this worker waits.
  std::vector<std::uint32_t> shown_;
  /// The newest statistics about the gradients of all workers. Shard 0 sends them with its
  /// decisions about this worker's gradients.
  proto::Pacing pacing_;
};

} // namespace troupe
