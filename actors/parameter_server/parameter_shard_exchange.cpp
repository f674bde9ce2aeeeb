#include "actors/parameter_server/parameter_shard.hpp"

#include "kernels/optimizers/gradient_norm.hpp"
#include "messages/problems.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <utility>

// Messages between shards: the choice of gradients for an update, the damping of the learning rate,
// and parts of the gradient's norm.

namespace troupe {

bool parameter_shard::clips_in_step() const {
  return context_->rule.clip_norm > 0 && policy_->in_step();
}

// Shard 0 sends its choice of gradients for the next update to all shards.
void parameter_shard::send_parts() {
  if (options_.index != 0 || !policy_->chooses() || std::exchange(parts_sent_, true))
    return;
  proto::StepParts news;
  news.set_view(options_.view.number);
  news.set_step(versions_->version());
  for (auto& part : policy_->parts())
    *news.add_part() = part.header.id();
  for (auto& x : workers_)
    options_.board->forget(x.task);
  for (std::size_t i = 1; i < shards_.size(); ++i)
    ask(
      this, shards_[i], options_.requests, [](const proto::Ack&) {},
      [this, i](const caf::error& error) {
        fail("cannot send to " + to_string(task_name{job_kind::ps, static_cast<std::uint32_t>(i)})
             + " which gradients make an update: " + explain(error));
      },
      news);
}

caf::result<proto::Ack> parameter_shard::on_step_parts(const proto::StepParts& x) {
  if (!policy_->chooses() || options_.index == 0)
    return make_error(
      errc::malformed,
      "ps/" + std::to_string(options_.index)
        + " received a choice of gradients for an update, but it chooses them itself");
  // Shard 0 can be at most one step ahead, because a step begins only after all shards have made
  // the previous update.
  if (x.step() > versions_->version() + 1)
    return make_error(errc::malformed,
                      "ps/" + std::to_string(options_.index) + " is at step "
                        + std::to_string(versions_->version())
                        + ", but received the gradients of step " + std::to_string(x.step()));
  if (x.step() < versions_->version())
    return proto::Ack{};
  policy_->choose(x.step(), {x.part().begin(), x.part().end()});
  if (x.step() == versions_->version())
    for (auto& worker : workers_)
      if (std::ranges::none_of(x.part(),
                               [&](auto& id) { return id.worker() == worker.task.index; }))
        options_.board->forget(worker.task);
  make_updates();
  return proto::Ack{};
}

void parameter_shard::send_damping() {
  auto news = policy_->new_damping();
  if (!news)
    return;
  news->set_view(options_.view.number);
  for (std::size_t i = 1; i < shards_.size(); ++i)
    send(shards_[i], *news);
}

void parameter_shard::on_damping(const proto::Damping& x) {
  if (const auto problem = problem_of(x); problem.empty())
    policy_->set_damping(x);
  else
    spdlog::warn("ps/{} ignores {} from ps/0", options_.index, problem);
}

// Sends this shard's part of the gradient's norm to the other shards. Each shard needs the parts of
// all shards, because it clips by the norm of the whole gradient.
void parameter_shard::share_norm() {
  if (!clips_in_step() || norm_shared_ || !policy_->ready())
    return;
  const auto update = policy_->plan(versions_->published(), versions_->version());
  // If no shard has samples, no norm is needed. With backup workers, this shard alone may have no
  // samples: other shards may have the gradient of a worker that was lost.
  if (update.samples == 0 && !policy_->chooses())
    return;
  proto::PartialNorm part;
  part.set_view(options_.view.number);
  part.set_step(versions_->version());
  part.set_shard(options_.index);
  const auto& parameters = context_->parameters();
  const auto touched = update.touched ? *update.touched : range_list{{0, options_.where.size()}};
  part.set_squares(squared_norm(parameters, options_.where, update.gradient, touched));
  if (!std::isfinite(part.squares())) {
    fail("the gradient of step " + std::to_string(part.step() + 1)
           + " is not finite after summation, first in "
           + first_not_finite(parameters, options_.where, update.gradient, touched),
         true);
    return;
  }
  norm_shared_ = true;
  norms_.add(part.step(), part.step(), options_.index, part.squares());
  for (std::size_t i = 0; i < shards_.size(); ++i)
    if (i != options_.index)
      send_norm(i, part);
}

void parameter_shard::send_norm(std::size_t shard, const proto::PartialNorm& part) {
  const task_name other{job_kind::ps, static_cast<std::uint32_t>(shard)};
  if (!norms_.has(part.step(), shard))
    options_.board->await(other);
  ask(
    this, shards_[shard], options_.requests, [](const proto::Ack&) {},
    [this, other](const caf::error& error) {
      fail("cannot send to " + to_string(other)
           + " a part of the gradient's norm: " + explain(error));
    },
    part);
}

caf::result<proto::Ack> parameter_shard::on_partial_norm(const proto::PartialNorm& x) {
  if (const auto problem = problem_of(x); !problem.empty())
    return make_error(errc::malformed, "ps/" + std::to_string(x.shard()) + " reports " + problem);
  if (!norms_.add(versions_->version(), x.step(), x.shard(), x.squares()))
    return make_error(errc::malformed,
                      "ps/" + std::to_string(x.shard()) + " reports the norm of step "
                        + std::to_string(x.step()) + ", but ps/" + std::to_string(options_.index)
                        + " is at step " + std::to_string(versions_->version()));
  if (norms_.has(versions_->version(), x.shard()))
    options_.board->arrived({job_kind::ps, x.shard()});
  make_updates();
  return proto::Ack{};
}

} // namespace troupe
