#include "tests/kernels/cuda/simulated_streams.hpp"

#include "tests/kernels/cuda/simulator.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

namespace troupe::test {

namespace {

constexpr int not_copied = 0xa5;

/// Every call that runs tasks, or looks at them, holds this lock.
std::unique_lock<std::recursive_mutex> take_turn() {
  static std::recursive_mutex result;
  return std::unique_lock{result};
}

} // namespace

void submit(cuda::stream where, std::function<void()> work) {
  if (where.handle == nullptr) {
    work();
    return;
  }
  auto& x = *static_cast<simulated_stream*>(where.handle);
  x.owner->submit(x, std::move(work));
}

simulated_streams::simulated_streams(std::size_t streams, std::optional<std::uint64_t> seed)
  : streams_(streams) {
  for (std::size_t i = 0; i < streams; ++i) {
    streams_[i].owner = this;
    streams_[i].index = i;
    streams_[i].after.resize(streams);
  }
  if (seed) {
    order_.emplace(*seed, "streams");
    keeps_up_ = *seed % 5;
  }
}

// -- streams

bool simulated_streams::can_run(const simulated_stream& x) const {
  if (x.tasks.empty())
    return false;
  const auto& next = x.tasks.front();
  return !next.until || next.until->reached >= next.count;
}

void simulated_streams::run_next(simulated_stream& x) {
  const auto next = std::move(x.tasks.front());
  x.tasks.pop_front();
  ++x.after[x.index];
  if (next.until && next.until->owner == this)
    std::ranges::transform(x.after, next.until->after, x.after.begin(),
                           [](auto a, auto b) { return std::max(a, b); });
  if (!next.work)
    return;
  next.work();
  time_ += next.takes_time ? 1 : 0;
}

bool simulated_streams::run_any() {
  std::vector<simulated_stream*> ready;
  for (auto& x : streams_)
    if (can_run(x))
      ready.push_back(&x);
  if (ready.empty()) {
    const auto waits = [&](const auto& x) {
      return !x.tasks.empty() && x.tasks.front().until->owner != this;
    };
    const auto other = std::ranges::find_if(streams_, waits);
    return other != streams_.end() && other->tasks.front().until->owner->run_any();
  }
  run_next(*ready[order_ ? order_->below(ready.size()) : 0]);
  return true;
}

void simulated_streams::check_not_recorded() const {
  if (std::ranges::any_of(streams_, [](const auto& x) { return x.recorded.has_value(); }))
    throw simulation_error("a copy, an event, a wait or an allocation while a stream is recorded");
}

void simulated_streams::push(simulated_stream& x, simulated_stream::task task) {
  const auto turn = take_turn();
  check_not_recorded();
  x.tasks.push_back(std::move(task));
  if (!order_)
    drain();
  else
    while (order_->below(5) < keeps_up_ && run_any()) {
    }
}

void simulated_streams::submit(simulated_stream& x, std::function<void()> work) {
  check_submit();
  if (x.recorded) {
    x.recorded->push_back(std::move(work));
    return;
  }
  ++submitted_;
  push(x, {std::move(work), nullptr});
}

void simulated_streams::begin_recording(simulated_stream& x) {
  check_not_recorded();
  x.recorded.emplace();
}

std::vector<std::function<void()>> simulated_streams::end_recording(simulated_stream& x) {
  if (!x.recorded)
    throw simulation_error("the end of a recording that did not begin");
  auto result = std::move(*x.recorded);
  x.recorded.reset();
  return result;
}

void simulated_streams::record(simulated_stream& x, std::shared_ptr<stream_mark> mark) {
  const auto turn = take_turn();
  mark->owner = this;
  const auto count = ++mark->recorded;
  push(x,
       {[&x, mark = std::move(mark), count] {
          mark->reached = count;
          mark->after = x.after;
        },
        nullptr, 0, false});
}

void simulated_streams::record_time(simulated_stream& x, std::shared_ptr<std::uint64_t> time) {
  push(x, {[this, time = std::move(time)] { *time = time_; }, nullptr, 0, false});
}

void simulated_streams::hold(simulated_stream& x, std::shared_ptr<const stream_mark> mark) {
  const auto turn = take_turn();
  if (mark->recorded == 0)
    throw simulation_error("a stream waits for an event that was never recorded");
  const auto count = mark->recorded;
  push(x, {nullptr, std::move(mark), count});
}

void simulated_streams::wait(const stream_mark& mark) {
  const auto turn = take_turn();
  check_not_recorded();
  if (mark.recorded == 0)
    throw simulation_error("the host waits for an event that was never recorded");
  while (mark.reached < mark.recorded)
    run_any();
  publish(mark.after);
}

void simulated_streams::synchronize(simulated_stream& x) {
  const auto turn = take_turn();
  check_not_recorded();
  while (!x.tasks.empty())
    run_any();
  publish(x.after);
}

void simulated_streams::drain() {
  const auto turn = take_turn();
  while (run_any()) {
  }
}

// -- copies from and to pinned memory

simulated_streams::copy& simulated_streams::add_copy(const simulated_stream& x, std::byte* host,
                                                     std::size_t bytes) {
  check_not_recorded();
  // Tasks that are already in the stream run before this copy.
  copies_.push_back(
    {host, {host, host + bytes}, {}, x.index, x.after[x.index] + x.tasks.size() + 1});
  return copies_.back();
}

std::vector<simulated_streams::copy*> simulated_streams::copies_of(const void* memory,
                                                                   std::size_t bytes) {
  const auto* const first = static_cast<const std::byte*>(memory);
  std::vector<copy*> result;
  for (auto& x : copies_)
    if (std::less{}(x.host, first + bytes) && std::less{}(first, x.host + x.before.size()))
      result.push_back(&x);
  return result;
}

// Tasks keep pointers into the entries of copies_. This is safe: the elements of a std::list never
// move, and an entry stays until the host has waited for its task.

void simulated_streams::copy_in(simulated_stream& x, void* to, const void* from, std::size_t bytes,
                                std::function<void()> check) {
  const auto turn = take_turn();
  const auto* source = from;
  if (order_)
    source = add_copy(x, static_cast<std::byte*>(const_cast<void*>(from)), bytes).before.data();
  push(x,
       {[to, source, bytes, check = std::move(check)] {
          check();
          std::memcpy(to, source, bytes);
        },
        nullptr});
}

void simulated_streams::copy_out(simulated_stream& x, void* to, const void* from, std::size_t bytes,
                                 std::function<void()> check) {
  const auto turn = take_turn();
  auto* target = to;
  std::function<void()> check_order = [] {};
  if (order_) {
    stream_clock earlier(streams_.size());
    for (auto* const other : copies_of(to, bytes)) {
      other->replaced = true;
      earlier[other->stream] = std::max(earlier[other->stream], other->number);
    }
    check_order = [&x, earlier] {
      for (std::size_t i = 0; i < earlier.size(); ++i)
        if (x.after[i] < earlier[i])
          throw simulation_error("a copy to pinned memory runs beside another copy of it");
    };
    std::memset(to, not_copied, bytes);
    auto& added = add_copy(x, static_cast<std::byte*>(to), bytes);
    added.result.resize(bytes);
    target = added.result.data();
  }
  push(x,
       {[target, from, bytes, check = std::move(check), check_order] {
          check();
          check_order();
          std::memcpy(target, from, bytes);
        },
        nullptr});
}

void simulated_streams::publish(const stream_clock& done) {
  for (auto x = copies_.begin(); x != copies_.end();) {
    if (x->number > done[x->stream]) {
      ++x;
      continue;
    }
    if (!x->replaced) {
      if (!std::equal(x->before.begin(), x->before.end(), x->host))
        throw simulation_error("the host has changed pinned memory before it waited for a copy");
      std::ranges::copy(x->result, x->host);
    }
    x = copies_.erase(x);
  }
}

void simulated_streams::check_free(const void* memory, std::size_t bytes) {
  if (!copies_of(memory, bytes).empty())
    throw simulation_error("pinned memory is freed while a copy of it is under way");
}

} // namespace troupe::test
