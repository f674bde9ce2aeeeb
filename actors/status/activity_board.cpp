#include "actors/status/activity_board.hpp"

#include "actors/seconds.hpp"

#include <algorithm>

namespace troupe {

namespace {

/// Largest number of names in a list of tasks.
constexpr std::size_t most_names = 4;

} // namespace

void activity_board::enter(doing what, time_point now) {
  std::lock_guard guard{mutex_};
  if (doing_ == what)
    return;
  count_hidden(now);
  if (doing_ != proto::TaskStatus::DOING_UNSET) {
    spent_[static_cast<std::size_t>(doing_)] += now - since_;
    ended_.add({since_, now, doing_, steps_before_, arrived_});
  } else {
    last_step_ = now;
  }
  arrived_.reset();
  doing_ = what;
  since_ = now;
  steps_before_ = steps_;
}

void activity_board::exchange(bool under_way, time_point now) {
  std::lock_guard guard{mutex_};
  if (exchanging_ == under_way)
    return;
  count_hidden(now);
  if (exchanging_)
    exchanged_.add({.begin = exchanging_since_, .end = now, .step = steps_before_exchange_});
  exchanging_ = under_way;
  exchanging_since_ = now;
  steps_before_exchange_ = steps_;
}

// Several actors call this object, and each reads the clock itself. So `now` may be a little
// earlier than `hidden_until_`. The result is then 0.
std::chrono::nanoseconds activity_board::hidden_since(time_point now) const {
  return exchanging_ && doing_ == proto::TaskStatus::COMPUTING && now > hidden_until_
    ? now - hidden_until_
    : std::chrono::nanoseconds{0};
}

void activity_board::count_hidden(time_point now) {
  hidden_ += hidden_since(now);
  hidden_until_ = now;
}

void activity_board::await(const task_name& other) {
  std::lock_guard guard{mutex_};
  if (std::ranges::find(awaited_, other) == awaited_.end())
    awaited_.push_back(other);
}

void activity_board::arrived(const task_name& other) {
  std::lock_guard guard{mutex_};
  std::erase(awaited_, other);
  arrived_ = other;
}

void activity_board::forget(const task_name& other) {
  std::lock_guard guard{mutex_};
  std::erase(awaited_, other);
}

void activity_board::set_behind(std::uint64_t steps) {
  std::lock_guard guard{mutex_};
  behind_ = steps;
}

void activity_board::count_step(time_point now) {
  std::lock_guard guard{mutex_};
  ++steps_;
  last_step_ = now;
}

void activity_board::count_sent(std::uint64_t pieces) {
  std::lock_guard guard{mutex_};
  sent_ += pieces;
}

void activity_board::count_received(time_point now) {
  std::lock_guard guard{mutex_};
  ++received_;
  if (ring_)
    ring_->since = now;
}

void activity_board::set_ring(const ring_position& x) {
  std::lock_guard guard{mutex_};
  ring_ = x;
}

std::optional<ring_position> activity_board::ring() const {
  std::lock_guard guard{mutex_};
  return ring_;
}

void activity_board::count_bytes_sent(std::uint64_t bytes) {
  std::lock_guard guard{mutex_};
  bytes_sent_ += bytes;
}

void activity_board::count_bytes_received(std::uint64_t bytes) {
  std::lock_guard guard{mutex_};
  bytes_received_ += bytes;
}

void activity_board::set_pacing(const proto::Pacing& x) {
  std::lock_guard guard{mutex_};
  pacing_ = x;
}

double activity_board::seconds_in(doing what, time_point now) const {
  std::lock_guard guard{mutex_};
  auto result = spent_[static_cast<std::size_t>(what)];
  if (doing_ == what)
    result += now - since_;
  return to_seconds(result);
}

double activity_board::seconds_exchanging_while_computing(time_point now) const {
  std::lock_guard guard{mutex_};
  return to_seconds(hidden_ + hidden_since(now));
}

proto::TaskStatus activity_board::status(time_point now) const {
  std::lock_guard guard{mutex_};
  proto::TaskStatus result;
  result.set_doing(doing_);
  if (doing_ == proto::TaskStatus::DOING_UNSET)
    return result;
  result.set_seconds(to_seconds(now - since_));
  result.set_steps(steps_);
  result.set_step_seconds(to_seconds(now - last_step_));
  result.set_pieces_sent(sent_);
  result.set_pieces_received(received_);
  result.set_bytes_sent(bytes_sent_);
  result.set_bytes_received(bytes_received_);
  if (links_ && links_->bytes() > 0) {
    result.set_payload_bytes(links_->bytes());
    result.set_payload_seconds(std::max(to_seconds(now - links_->moved()), 0.0));
  }
  if (pacing_)
    *result.mutable_pacing() = *pacing_;
  if (doing_ == proto::TaskStatus::WAITING_FOR_WEIGHTS)
    result.set_behind(behind_);
  switch (doing_) {
  case proto::TaskStatus::WAITING_FOR_LEASE:
    *result.add_waits_for() = to_proto(coordinator_task);
    break;
  case proto::TaskStatus::WAITING_FOR_WEIGHTS:
  case proto::TaskStatus::WAITING_FOR_UPDATE:
  case proto::TaskStatus::WAITING_FOR_GRADIENTS:
  case proto::TaskStatus::WAITING_FOR_NORM:
    for (auto& x : awaited_)
      *result.add_waits_for() = to_proto(x);
    break;
  default:
    break;
  }
  return result;
}

activity_board::reported activity_board::add_ended(proto::TaskStatus& report,
                                                   const reported& before) const {
  std::lock_guard guard{mutex_};
  if (ended_.count() > before.done)
    *report.mutable_done() = encode(ended_.after(before.done));
  if (exchanged_.count() > before.exchanged)
    *report.mutable_exchanged() = encode(exchanged_.after(before.exchanged));
  report.set_step_before(steps_before_);
  if (exchanging_)
    report.set_exchanging_since(
      static_cast<std::uint64_t>(exchanging_since_.time_since_epoch().count()));
  return {ended_.count(), exchanged_.count()};
}

std::string enumerate(const std::vector<task_name>& tasks) {
  std::string result;
  const bool all = tasks.size() <= most_names;
  const auto shown = all ? tasks.size() : most_names - 1;
  for (std::size_t i = 0; i < shown; ++i)
    result += (i == 0 ? "" : all && i + 1 == tasks.size() ? " and " : ", ") + to_string(tasks[i]);
  if (!all)
    result += " and " + std::to_string(tasks.size() - shown) + " others";
  return result;
}

std::string describe(const proto::TaskStatus& x) {
  std::vector<task_name> others;
  for (auto& name : x.waits_for())
    if (task_name task; from_proto(name, task))
      others.push_back(task);
  const auto with = [&](const std::string& what, const char* preposition) {
    return others.empty() ? what : what + ' ' + preposition + ' ' + enumerate(others);
  };
  switch (x.doing()) {
  case proto::TaskStatus::COMPUTING:
    return "computes";
  case proto::TaskStatus::WAITING_FOR_LEASE:
    return "waits for a lease";
  case proto::TaskStatus::WAITING_FOR_DATA:
    return "waits for its data";
  case proto::TaskStatus::WAITING_FOR_WEIGHTS:
    if (x.behind() > 0)
      return with("waits", "for") + ", " + std::to_string(x.behind())
        + (x.behind() == 1 ? " step" : " steps") + " behind";
    return with("waits for weights", "from");
  case proto::TaskStatus::WAITING_FOR_UPDATE:
    return !others.empty() && others.front().job == job_kind::worker
      ? with("waits for gradients", "from")
      : with("waits for the update", "by");
  case proto::TaskStatus::WAITING_FOR_GRADIENTS:
    return with("waits for gradients", "of");
  case proto::TaskStatus::WAITING_FOR_NORM:
    return with("waits for the gradient's norm", "from");
  case proto::TaskStatus::UPDATING:
    return "updates its weights";
  case proto::TaskStatus::WAITING_FOR_READERS:
    return "waits for readers, which hold all versions of its weights";
  default:
    return "";
  }
}

} // namespace troupe
