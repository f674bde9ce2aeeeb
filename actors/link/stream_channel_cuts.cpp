// A part of stream_channel: what it does if its socket breaks, or if its peer takes no data.

#include "actors/link/stream_channel.hpp"
#include "actors/link/stream_records.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

namespace troupe {

std::string beyond_window(std::uint64_t window) {
  return "more than " + std::to_string(window >> 20) + " MiB wait for it, and it takes nothing";
}

bool stream_channel::keep_alive(std::chrono::nanoseconds suspect_after) {
  const auto time = now();
  const std::lock_guard guard{mutex_};
  if (suspect_after != suspicion_) {
    suspicion_ = suspect_after;
    suspicion_since_ = time;
    longest_suspicion_ = std::max(longest_suspicion_, suspect_after);
  } else if (time - suspicion_since_ > longest_suspicion_) {
    longest_suspicion_ = suspect_after;
  }
  if (broken_ || cut_)
    return true;
  measure_waiting(time);
  if (time - said_ >= suspect_after / 4) {
    push({records::make(proto::PING), {}, -1, {}, false});
    write(queue_.size() - 1);
  }
  if (time - heard_.load() <= suspect_after)
    return true;
  // The peer is also alive if its data has arrived but has not been read yet.
  int waiting = 0;
  if (::ioctl(socket_.get(), FIONREAD, &waiting) == 0 && waiting > 0)
    return true;
  // After the shutdown, the reading thread notices that the connection broke.
  if (options_.resumes)
    ::shutdown(socket_.get(), SHUT_RDWR);
  return options_.resumes;
}

// The system may hold several MiB of a payload after they were written. On a slow network, they
// move for many seconds more. So report a movement if fewer bytes wait than before. A few bytes do
// not count: they are small messages.
void stream_channel::measure_waiting(clock::time_point time) {
  int waiting = 0;
  if (::ioctl(socket_.get(), SIOCOUTQ, &waiting) != 0)
    return;
  if (meter_ && waiting < waited_ && waited_ >= static_cast<int>(large))
    meter_->count(0, time);
  waited_ = waiting;
}

// The peer notices a break in keep_alive(), when it has heard nothing for the time
// `longest_suspicion_`. Its link calls keep_alive() only eight times within this time, so add a
// quarter of it.
std::chrono::nanoseconds stream_channel::unnoticed_for() const {
  const std::lock_guard guard{mutex_};
  return longest_suspicion_ * 5 / 4;
}

bool stream_channel::cut() const {
  const std::lock_guard guard{mutex_};
  return cut_;
}

bool stream_channel::resumed() const {
  const std::lock_guard guard{mutex_};
  return !cut_ && !holding_;
}

bool stream_channel::works() const {
  const std::lock_guard guard{mutex_};
  if (cut_ || holding_ || first_sent_ >= to_arrive_)
    return !cut_ && !holding_;
  // A large record takes long on a slow network. The peer acknowledges it only at its end.
  constexpr std::uint64_t much = std::uint64_t{256} << 10;
  int waiting = 0;
  return ::ioctl(socket_.get(), SIOCOUTQ, &waiting) == 0
    && written_to_socket_ >= static_cast<std::uint64_t>(waiting) + much;
}

file_descriptor stream_channel::release_socket() {
  const std::lock_guard guard{mutex_};
  if (!std::exchange(cut_, true))
    ++cuts_;
  return std::move(socket_);
}

void stream_channel::resume(file_descriptor socket, const proto::Greeting* greeting,
                            const std::string& token) {
  reader_.clear();
  body_read_ = 0;
  body_ = {};
  content_ = {};
  std::deque<outgoing> dropped;
  bool possible = true;
  {
    const std::lock_guard guard{mutex_};
    socket_ = std::move(socket);
    cut_ = false;
    heard_ = now();
    written_ = 0;
    written_to_socket_ = 0;
    std::erase_if(queue_, [this](auto& x) {
      if (!x.numbered)
        waiting_ -= x.bytes();
      return !x.numbered;
    });
    holding_ = greeting == nullptr;
    if (greeting != nullptr)
      possible = acknowledge(greeting->received(), dropped);
    resend();
    proto::Greeting x;
    x.set_token(token);
    x.set_received(acknowledged_ = received_.load());
    queue_.push_front({records::make(proto::GREETING, x), {}, -1, {}, false});
    waiting_ += queue_.front().bytes();
    flush();
  }
  if (end_overflow())
    return;
  if (!possible)
    mistrust("a number of records that it cannot have received");
}

bool stream_channel::acknowledge(std::uint64_t received, std::deque<outgoing>& dropped) {
  if (received < first_sent_ || received - first_sent_ > sent_.size())
    return false;
  for (; first_sent_ < received; ++first_sent_) {
    waiting_ -= sent_.front().bytes();
    dropped.push_back(std::move(sent_.front()));
    sent_.pop_front();
  }
  return true;
}

void stream_channel::resend() {
  if (holding_)
    return;
  queue_.insert(queue_.begin(), std::make_move_iterator(sent_.begin()),
                std::make_move_iterator(sent_.end()));
  sent_.clear();
  const bool waits = std::ranges::any_of(queue_, &outgoing::numbered);
  to_arrive_ = first_sent_ + (waits ? 1 : 0);
}

void stream_channel::give_up(const std::string& reason) {
  std::deque<outgoing> not_sent;
  std::deque<outgoing> not_acknowledged;
  {
    const std::lock_guard guard{mutex_};
    broken_ = true;
    queue_.swap(not_sent);
    sent_.swap(not_acknowledged);
  }
  fail(reason);
}

// Ends the channel if too many bytes wait for its peer. Drops all records of which no byte is
// written, and the loans in these records. If the peer may still read memory of other loans, the
// socket stays open until the peer has returned this memory or has ended. Returns true if this call
// ended the channel.
bool stream_channel::end_overflow() {
  std::deque<outgoing> not_sent;
  std::deque<outgoing> not_acknowledged;
  std::uint64_t window = 0;
  {
    const std::lock_guard guard{mutex_};
    if (!overflowed_ || broken_ || std::exchange(overflow_ended_, true))
      return false;
    window = limits_.window;
    const std::size_t begun = written_ > 0 ? 1 : 0;
    for (std::size_t i = begun; i < queue_.size(); ++i)
      lent_.erase(queue_[i].loan);
    broken_ = lent_.empty();
    if (broken_) {
      queue_.swap(not_sent);
    } else {
      for (; queue_.size() > begun; queue_.pop_back())
        not_sent.push_back(std::move(queue_.back()));
    }
    sent_.swap(not_acknowledged);
  }
  fail(beyond_window(window));
  options_.wake(); // The reading thread then closes the socket.
  return true;
}

} // namespace troupe
