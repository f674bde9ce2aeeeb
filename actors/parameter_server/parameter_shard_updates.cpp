#include "actors/parameter_server/parameter_shard.hpp"

#include "actors/link/sent_together.hpp"
#include "actors/model/moving_average.hpp"
#include "kernels/optimizers/gradient_norm.hpp"
#include "messages/scheduler.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

// How a shard makes updates and publishes the new versions of the weights.

namespace troupe {

namespace {

/// If readers use all slots for versions, the shard checks again after this time.
constexpr std::chrono::microseconds slot_poll{500};

} // namespace

// Makes the next update. find_slot() has reserved a slot for the new version.
void parameter_shard::advance() {
  proto::Advanced news;
  news.set_view(options_.view.number);
  news.set_shard(options_.index);
  news.set_step(versions_->version());
  const auto before = versions_->published();
  const bool is_prepared = prepared();
  auto update = is_prepared ? planned_update{{}, pieces_.samples(), {}}
                            : policy_->plan(before, versions_->version());
  news.set_samples(update.samples);
  if (norm_shared_) {
    const double norm = update.samples == 0
      ? 0
      : std::sqrt(norms_.sum(news.step())) / static_cast<double>(update.samples);
    news.set_gradient_norm(norm);
    update.terms.factor *= clip_factor(context_->rule.clip_norm, norm);
  }
  const std::vector<contribution> parts(policy_->parts().begin(), policy_->parts().end());
  std::vector<proto::Pushed> answers;
  for (const auto& part : parts)
    answers.push_back(decide(part));
  if (update.complete)
    make_version(update, is_prepared);
  for (const auto& part : parts)
    if (part.header.quarantine())
      skip(part.header.samples());
  pieces_.clear();
  norms_.forget(news.step());
  norm_shared_ = parts_sent_ = false;
  policy_->made(before, versions_->published(), answers.empty() ? proto::Pushed{} : answers[0]);
  // An update without new gradients applies all gradients that are left in the policy's buffer. So
  // all admitted gradients are applied now.
  if (parts.empty())
    admitted_ = versions_->version() * context_->job.async_ps().buffer();
  news.set_version(versions_->version());
  answer_workers(parts, answers, news);
  report_admitted();
  if (const auto pacing = policy_->pacing())
    options_.board->set_pacing(*pacing);
  send_damping();
  if (update.complete)
    capture_if_due();
  answer_fences();
}

// Sends a worker its next weights and the answer to its commit together, so that the worker's
// thread wakes only once.
void parameter_shard::answer_workers(const std::vector<contribution>& parts,
                                     std::vector<proto::Pushed>& answers,
                                     const proto::Advanced& news) {
  const sent_together both;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto& answer = answers[i];
    answer.set_version(versions_->version());
    if (const auto pacing = policy_->pacing())
      *answer.mutable_pacing() = *pacing;
    const auto& header = parts[i].header;
    journal_.record(header, answer);
    staged_.take(header.id()); // It may have been pushed again while it waited for its update.
    send_next_weights(header);
    deliver(header.id(), answer);
    notify_reader(header.id());
  }
  if (policy_->in_step())
    for (std::size_t rank = 0; rank < listeners_.size(); ++rank) {
      send_whole(rank);
      send(listeners_[rank], news);
    }
}

proto::Pushed parameter_shard::decide(const contribution& x) {
  proto::Pushed answer;
  answer.set_outcome(x.header.quarantine() ? proto::QUARANTINED : proto::APPLIED);
  if (x.header.quarantine())
    quarantined_samples_ += x.header.samples();
  else if (!policy_->in_step())
    answer.set_staleness(staleness(x.header.base_version()));
  staleness_sum_ += answer.staleness();
  return answer;
}

/// True if everything for the next update has arrived.
bool parameter_shard::update_ready() {
  if (!policy_->ready())
    return false;
  send_parts();
  share_norm();
  return !norm_shared_ || norms_.complete(versions_->version());
}

// Computes the next version and publishes it. versions_->begin() has reserved its slot. An update
// without samples does not change the weights.
void parameter_shard::make_version(const planned_update& update, bool is_prepared) {
  options_.board->enter(proto::TaskStatus::UPDATING, clock().now());
  const auto version = versions_->version() + 1;
  if (is_prepared) {
    updater_.publish();
    slot_reserved_ = false;
    send_piece(last_piece_, version);
    publish(version);
  } else if (live_) {
    updater_.skip(update.samples);
    if (averages_)
      live_->read(versions_->next());
    publish(version);
  } else if (update.samples == 0) {
    // The optimizer counts it, like a replica of a ring, and like a run that continues from here.
    updater_.count_update();
    versions_->copy_newest();
    publish(version, range_list{});
  } else if (update.touched) {
    versions_->copy_newest();
    apply(update);
    publish(version, *update.touched);
  } else {
    apply(update);
    publish(version);
  }
  renew_turn();
  options_.board->count_step(clock().now());
  await_gradients();
}

void parameter_shard::apply(const planned_update& update) {
  auto how = update.terms;
  how.only = update.touched.get();
  updater_.apply(versions_->published(), update.gradient, update.samples, versions_->next(), how);
}

/// Publishes the next weights. Their average is published first, so that a reader of averages finds
/// the average of every version that exists.
/// @param changed the elements that differ from the version before; nothing if this is not known
void parameter_shard::publish(std::uint64_t version, std::optional<range_list> changed) {
  if (averages_) {
    average_weights(*context_, options_.where, version, averages_->published(), versions_->next(),
                    averages_->next());
    averages_->publish(version);
  }
  // Rounds on this thread, because the reader runs on threads that must not compute.
  if (options_.rounded && is_pulled_whole())
    options_.rounded->whole({version, versions_->part_of_next(0, options_.where.size())});
  if (changed)
    versions_->publish_changes(version, *std::move(changed));
  else
    versions_->publish(version);
}

// True if workers may pull the whole range: those that get the weights neither in pieces nor in
// shared memory, and do not pull rows.
bool parameter_shard::is_pulled_whole() const {
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    const bool gets_weights = options_.in_pieces && rank < listeners_.size()
      && (pieces_.sends_pieces(rank) || shares_memory(listeners_[rank]));
    if (!gets_weights && !with_rows_.contains(workers_[rank].task.index))
      return true;
  }
  return false;
}

void parameter_shard::await_gradients() {
  if (policy_->in_step())
    for (auto& x : workers_)
      options_.board->await(x.task);
  options_.board->enter(proto::TaskStatus::WAITING_FOR_GRADIENTS, clock().now());
}

bool parameter_shard::find_slot() {
  prepare_pieces();
  if (!prepared())
    drop_pieces();
  const bool found = (prepared() || versions_->begin()) && (!averages_ || averages_->begin());
  if (!found)
    options_.board->enter(proto::TaskStatus::WAITING_FOR_READERS, clock().now());
  return found;
}

void parameter_shard::make_updates() {
  bool ready = update_ready();
  while (ready && find_slot()) {
    advance();
    ready = update_ready();
  }
  if (ready) {
    retry_soon();
    return;
  }
  for (auto& x : std::exchange(idle_answers_, {}))
    x.deliver(proto::Ack{});
  if (norm_shared_)
    options_.board->enter(proto::TaskStatus::WAITING_FOR_NORM, clock().now());
  else
    options_.board->enter(proto::TaskStatus::WAITING_FOR_GRADIENTS, clock().now());
}

void parameter_shard::retry_soon() {
  if (retrying_)
    return;
  retrying_ = true;
  delayed_send(this, slot_poll, tick{});
}

} // namespace troupe
