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

/// For each stream, the number of its tasks that have run.
using stream_clock = std::vector<std::uint64_t>;

/// The state of an event: the position in a stream at which it was recorded last.
struct stream_mark {
  /// The streams of one device. One of these streams recorded the mark last.
  simulated_streams* owner = nullptr;
  /// `recorded` is how often the mark was recorded. `reached` is how many of these recordings the
  /// stream has passed.
  std::uint64_t recorded = 0;
  std::uint64_t reached = 0;
  /// All tasks that are done when the stream passes the last recording.
  stream_clock after;
};

/// The contents of a stream. stream::handle points to it.
struct simulated_stream {
  struct task {
    std::function<void()> work;
    /// The task can run when this mark was reached `count` times. Null if the task can run at any
    /// time.
    std::shared_ptr<const stream_mark> until;
    std::uint64_t count = 0;
    /// False for marks, which take no time.
    bool takes_time = true;
  };

  simulated_streams* owner = nullptr;
  std::size_t index = 0;
  std::deque<task> tasks;
  /// For each stream, the number of its tasks that are known to be done: the tasks that have run in
  /// this stream, and the tasks of other streams for which this stream has waited.
  stream_clock after;
  /// While the stream is recorded, the work since the beginning of the recording.
  std::optional<std::vector<std::function<void()>>> recorded;
};

/// Runs work on a stream. A null stream runs all work at once.
void submit(cuda::stream where, std::function<void()> work);

/// The streams of a simulated device.
///
/// Without a seed, work runs when it is submitted. With a seed, work runs later: some of it during
/// other calls, and the rest when the host waits. The seed chooses which stream runs next, and how
/// soon work runs after it was submitted. So streams interleave in any order that the events
/// permit.
///
/// With a seed, these faults are also found (simulation_error):
/// - the host changes pinned memory of a copy before it has waited for the copy;
/// - a copy writes to pinned memory, and no event orders it after an earlier copy of this memory;
/// - pinned memory is freed while a copy of it is under way;
/// - a stream or the host waits for an event that was never recorded.
/// Another fault is found with and without a seed: work other than kernels and products is
/// submitted while a stream is recorded. If the host reads pinned memory before it has waited for a
/// copy to this memory, it reads only bytes 0xa5, even if the copy has already run.
///
/// A stream may wait for a mark of another device. If all streams of a device wait, it runs the
/// other device. So two threads may use two such devices, and the calls of all devices take turns.
class simulated_streams {
public:
  simulated_streams(std::size_t streams, std::optional<std::uint64_t> seed);
  simulated_streams(const simulated_streams&) = delete;
  simulated_streams& operator=(const simulated_streams&) = delete;

  cuda::stream handle(std::size_t index) { return {&streams_[index]}; }

  /// Throws if no kernel or product may be submitted now.
  std::function<void()> check_submit = [] {};
  /// Runs the work after the earlier work of the stream, or records it.
  void submit(simulated_stream& x, std::function<void()> work);
  /// The number of submissions that were run and not recorded.
  std::size_t submitted() const noexcept { return submitted_; }
  void begin_recording(simulated_stream& x);
  /// Throws if a stream is recorded.
  void check_not_recorded() const;
  std::vector<std::function<void()>> end_recording(simulated_stream& x);

  void record(simulated_stream& x, std::shared_ptr<stream_mark> mark);
  /// When the stream gets here, writes the simulated time: the number of kernels, copies and
  /// products that the device has run so far.
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
  /// A copy for which the host has not waited yet.
  struct copy {
    std::byte* host = nullptr;
    /// `before` is the contents that the host's memory must have until the host has waited.
    /// `result` is the contents that the copy has brought.
    std::vector<std::byte> before;
    std::vector<std::byte> result;
    /// The task of the copy: its stream and its number.
    std::size_t stream = 0;
    std::uint64_t number = 0;
    /// True if a later copy overwrites the memory.
    bool replaced = false;
  };

  void push(simulated_stream& x, simulated_stream::task task);
  copy& add_copy(const simulated_stream& x, std::byte* host, std::size_t bytes);
  std::vector<copy*> copies_of(const void* memory, std::size_t bytes);
  bool can_run(const simulated_stream& x) const;
  /// Runs a task of any stream. If all streams wait for another device, runs a task of that device.
  /// Returns false if there is no task. A stream only waits for earlier calls, so some task can
  /// always run.
  bool run_any();
  void run_next(simulated_stream& x);
  /// Called when the host has waited until these tasks were done. Makes the results of their copies
  /// visible in pinned memory. Before that, checks that the host has not changed this memory.
  void publish(const stream_clock& done);

  std::deque<simulated_stream> streams_;
  std::list<copy> copies_;
  std::optional<random_stream> order_;
  /// A number k from 0 to 4. After each submission, a task runs with probability k / 5. If it runs,
  /// the next task runs with the same probability, and so on.
  std::uint64_t keeps_up_ = 0;
  std::size_t submitted_ = 0;
  /// The amount of work that has run.
  std::uint64_t time_ = 0;
};

} // namespace troupe::test
