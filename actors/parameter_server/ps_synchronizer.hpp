#pragma once

#include "actors/ask.hpp"
#include "actors/model/job_context.hpp"
#include "actors/status/activity_board.hpp"
#include "actors/tick.hpp"
#include "actors/view.hpp"
#include "messages/interfaces.hpp"

#include <memory>
#include <optional>
#include <vector>

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
};

/// The synchronizer of ASYNC_PS and SYNC_PS: acquires by pulling from the readers, contributes by
/// pushing to the shards. A shard's part of the gradient is pushed as soon as backward has passed
/// its range, while the rest is being computed. At most one gradient is on its way at a time.
///
/// Where the job bounds staleness, shard 0 admits or rejects each gradient for all shards before
/// any part is sent, so that its parts never differ.
///
/// Where an ASYNC_PS job clips by norm, pushes wait for the end of backward, when the norm of the
/// worker's gradient is known; each says it to its shard.
class ps_synchronizer
  : public synchronizer_actor::extend<rpc<void, proto::Advanced>, rpc<void, tick>>::base {
public:
  using super = synchronizer_actor::extend<rpc<void, proto::Advanced>, rpc<void, tick>>::base;

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
    std::uint64_t base_version = 0;
    /// Elements that backward has not handed over yet.
    std::size_t missing = 0;
    bool sent = false;
    bool decided = false;
  };

  void on_acquire(const acquire& x);
  void on_weights(std::size_t shard, const proto::Weights& header, const payload& data);
  void on_contribute(const contribute& x);
  void on_commit(const commit& x);
  void on_abandon(const abandon& x);
  void on_admission(const proto::Pushed& x);
  void on_advanced(const proto::Advanced& x);
  void on_tick();

  void ask_admission();
  void push_ready_parts();
  double own_norm() const;
  void push(std::size_t shard);
  void on_pushed(std::size_t shard, std::uint64_t sequence, const proto::Pushed& x);
  void decide(std::size_t shard, proto::Outcome outcome, std::uint64_t staleness);
  void finish_if_decided();
  void answer(proto::Outcome outcome);
  proto::GradientId gradient_id() const;
  void fail(const std::string& what, std::size_t shard, const caf::error& error);
  static task_name name_of(std::size_t shard);
  bool clips() const { return !in_step() && context_->rule.clip_norm > 0; }
  bool in_step() const { return context_->job.protocol() == proto::SYNC_PS; }

  std::shared_ptr<const job_context> context_;
  ps_synchronizer_options options_;
  worker_actor worker_;
  std::vector<part> parts_;

  // -- the gradient under way --
  std::uint64_t sequence_ = 0;
  acquire attributes_;
  std::vector<weight_range> ranges_;
  std::size_t pulls_open_ = 0;
  admission admission_ = admission::not_needed;
  payload gradient_;
  std::uint64_t samples_ = 0;
  std::uint64_t samples_of_step_ = 0;
  /// Where the job clips by norm: of the gradient handed over so far.
  double sum_of_squares_ = 0;
  std::optional<double> gradient_norm_;
  std::uint64_t staleness_ = 0;
  proto::Outcome outcome_ = proto::OUTCOME_UNSET;
  bool committed_ = false;
  /// SYNC_PS: updates of the weights before this one.
  std::uint64_t steps_ = 0;
  bool reminded_ = false;
};

} // namespace troupe
