#pragma once

#include "kernels/cuda/stream.hpp"
#include "kernels/random.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <vector>

namespace troupe::test {

class simulated_streams;

/// The number of tasks of each stream that have run.
using stream_clock = std::vector<std::uint64_t>;

/// What events refer to.
struct stream_mark {
  /// The streams of the device that recorded it last.
  simulated_streams* owner = nullptr;
  /// How often it was recorded, and how many of these tasks have run.
  std::uint64_t recorded = 0;
  std::uint64_t reached = 0;
  /// What is done when the last of them has run.
  stream_clock after;
};

/// stream::handle points to it.
struct simulated_stream {
  struct task {
    std::function<void()> work;
    /// The task can run when this mark was reached so often; null if it can run at any time.
    std::shared_ptr<const stream_mark> until;
    std::uint64_t count = 0;
    /// False for marks.
    bool takes_time = true;
  };

  simulated_streams* owner = nullptr;
  std::size_t index = 0;
  std::deque<task> tasks;
  /// What is done when all tasks that have run are done: those of this stream, and those of others
  /// that it waited for.
  stream_clock after;
  /// Work since the beginning of a recording.
  std::optional<std::vector<std::function<void()>>> recorded;
};

/// Runs work on a stream. Null is a stream that runs everything at once.
void submit(cuda::stream where, std::function<void()> work);

/// The streams of a simulated device.
///
/// Without a seed, work runs when it is submitted. With a seed, it runs later: some of it at other
/// calls, the rest when the host waits. The seed chooses the next stream, and how far the device
/// keeps up with the host. So streams interleave in any order that the events permit.
///
/// With a seed, these faults are also found (simulation_error):
/// - the host changes pinned memory of a copy before it has waited for the copy;
/// - a copy writes to pinned memory, and no event orders it after an earlier copy of this memory;
/// - pinned memory is freed while a copy of it is under way;
/// - a stream or the host waits for an event that was never recorded.
/// With and without a seed, this is a fault: something else than kernels and products while a
/// stream is recorded. If the host reads pinned memory before it has waited for a copy to it, it
/// reads only bytes 0xa5, even if the copy has already run.
///
/// A stream may wait for a mark of another device. A device whose streams all wait runs the other
/// device, so two threads may use two such devices: calls of all devices take turns.
class simulated_streams {
public:
  simulated_streams(std::size_t streams, std::optional<std::uint64_t> seed);
  simulated_streams(const simulated_streams&) = delete;
  simulated_streams& operator=(const simulated_streams&) = delete;

  cuda::stream handle(std::size_t index) { return {&streams_[index]}; }

  /// Throws if kernels and products may not be submitted now.
  std::function<void()> check_submit = [] {};
  /// Runs the work when the earlier work of the stream is done, or records it.
  void submit(simulated_stream& x, std::function<void()> work);
  /// Number of these calls that did not record.
  std::size_t submitted() const noexcept { return submitted_; }
  void begin_recording(simulated_stream& x);
  /// Throws if a stream is recorded.
  void check_not_recorded() const;
  std::vector<std::function<void()>> end_recording(simulated_stream& x);

  void record(simulated_stream& x, std::shared_ptr<stream_mark> mark);
  /// Writes the time of this place in the stream: the number of kernels, copies and products that
  /// the device has run before.
  void record_time(simulated_stream& x, std::shared_ptr<std::uint64_t> time);
  void hold(simulated_stream& x, std::shared_ptr<const stream_mark> mark);
  void wait(const stream_mark& mark);
  void synchronize(simulated_stream& x);
  /// Runs all work.
  void drain();

  /// Copies from and to pinned memory. `check` runs just before the bytes are copied.
  void copy_in(simulated_stream& x, void* to, const void* from, std::size_t bytes,
               std::function<void()> check);
  void copy_out(simulated_stream& x, void* to, const void* from, std::size_t bytes,
                std::function<void()> check);
  /// Throws if a copy of this memory is under way.
  void check_free(const void* memory, std::size_t bytes);

private:
  /// A copy that the host has not waited for.
  struct copy {
    std::byte* host = nullptr;
    /// The expected contents of the host's memory, and those that a copy to it has brought.
    std::vector<std::byte> before;
    std::vector<std::byte> result;
    /// The task.
    std::size_t stream = 0;
    std::uint64_t number = 0;
    /// True if a later copy overwrites the memory.
    bool replaced = false;
  };

  void push(simulated_stream& x, simulated_stream::task task);
  copy& add_copy(const simulated_stream& x, std::byte* host, std::size_t bytes);
  std::vector<copy*> copies_of(const void* memory, std::size_t bytes);
  bool can_run(const simulated_stream& x) const;
  /// Runs a task of any stream, or of another device for which all of them wait. False if there is
  /// none. A stream never waits for a later call, so there is always one that can run.
  bool run_any();
  void run_next(simulated_stream& x);
  /// The host has waited for this.
  void publish(const stream_clock& done);

  std::deque<simulated_stream> streams_;
  std::list<copy> copies_;
  std::optional<random_stream> order_;
  /// 0 to 4: after each submission, another task runs with a probability of a fifth of this, again
  /// and again.
  std::uint64_t keeps_up_ = 0;
  std::size_t submitted_ = 0;
  /// Work that has run.
  std::uint64_t time_ = 0;
};

} // namespace troupe::test
