#pragma once

#include "actors/coordinator/lease_book.hpp"
#include "messages/buffer.hpp"
#include "messages/proto/wire.pb.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace troupe {

/// The state of all shards or ranks at one version of the weights.
struct assembled_checkpoint {
  std::uint64_t version = 0;
  /// Per slot (the weights first), the parts in order.
  std::vector<std::vector<payload>> slots;
  /// What each part's holder had decided.
  std::vector<std::vector<proto::Decided>> marks;
  /// Each holder speaks of its own worker, as ranks of a ring do; otherwise each of all workers.
  bool one_worker_each = false;

  /// The last gradient of a worker that all holders have applied, of those that speak of it: what
  /// one of them missed is trained again, rather than skipped. All zero where one has applied none.
  proto::Decided least(std::uint32_t worker, std::uint64_t incarnation) const;

  /// The newest lease in any mark; 0 for none.
  std::uint64_t newest_lease() const noexcept;
};

/// Brings together what holders of the state send of its versions, and bounds how many versions are
/// held. Holders send by themselves, at the same versions, each in its own time, and wait for
/// nobody; what is too much is left out here:
///
/// - At most two versions are open: they arrive, wait for their turn, or are out (being written or
///   evaluated, one at a time). A version that comes beyond that takes the place of a complete one
///   that waits; where there is none, it is refused, and stays so for all its parts.
/// - Small versions that wait are copied, up to eight of them, and hold up no others: a few that
/// are
///   due shortly after each other are all kept.
/// - An open version is given up when a newer one is complete, when one of its holders goes on to a
///   newer one without it, or after some time.
///
/// So the newest version that is complete is never left out at the end, however slow a disk is, and
/// one holder that lags behind cannot keep others from ever completing one.
class checkpoint_assembly {
public:
  using time_point = std::chrono::steady_clock::time_point;

  struct options {
    /// How the parameter vector is divided between its holders.
    std::vector<range> parts;
    /// Values of each parameter: the weights, and the optimizer's state.
    std::size_t slots = 1;
    /// Versions are multiples of this.
    std::uint64_t every = 1;
    /// See assembled_checkpoint.
    bool one_worker_each = false;
    /// The version that training begins with.
    std::uint64_t first = 0;
    /// Versions of so many bytes are copied where they wait.
    std::size_t small = 0;
  };

  explicit checkpoint_assembly(options how);

  enum class outcome { taken, repeated, complete, settled, refused };

  /// What is wrong with a part, for its sender; empty where it fits. `bytes`: of the payload; 0,
  /// where the part is not empty, asks whether it is wanted.
  std::string problem(const proto::CheckpointPart& header, std::size_t bytes) const;

  /// Whether a part is missing that would be taken.
  bool wants(const proto::CheckpointPart& header) const;

  /// Takes a part that fits. `complete`: it was the last one missing. `settled`: its version is
  /// over.
  outcome add(const proto::CheckpointPart& header, const payload& data, time_point now);

  /// The complete version whose turn it is; it is out until `done`. Nothing while another one is
  /// out, or none is complete.
  std::optional<assembled_checkpoint> next();
  void done();

  /// Gives up what arrives since longer than that.
  void drop_late(time_point now, std::chrono::nanoseconds limit);

  /// At the end: holders have sent all of what they have up to this version, or will; it is waited
  /// for, and newer ones that are not complete are not.
  void finish(std::uint64_t version, time_point now);

  /// Nothing is arriving, waiting or out.
  bool idle() const noexcept { return versions_.empty() && out_ == 0; }
  bool out() const noexcept { return out_ > 0; }

  /// Versions that were due and did not become complete, or lost their turn, so far; those after
  /// the newest complete one are not counted yet.
  std::uint64_t missed() const noexcept { return missed_; }

  /// Versions that hold payloads of their senders, the one that is out included.
  std::size_t open() const noexcept;

private:
  struct state {
    /// By slot and part.
    std::vector<std::vector<std::optional<payload>>> slots;
    std::vector<std::vector<proto::Decided>> marks;
    /// Payloads that are not there yet.
    std::size_t missing = 0;
    time_point since;
    /// Complete, and copied.
    bool copied = false;
  };

  bool over(std::uint64_t version) const;
  bool has_nothing_of(const state& x, std::uint32_t part) const;
  bool make_room(const proto::CheckpointPart& header);
  state& begin(std::uint64_t version, time_point now);
  void completed(std::uint64_t version);
  void copy_if_small(state& x);
  std::size_t copied() const noexcept;

  options how_;
  std::map<std::uint64_t, state> versions_;
  /// The version that is out; 0 for none.
  std::uint64_t out_ = 0;
  /// The newest that was complete, or the first of all.
  std::uint64_t newest_;
  /// Newer versions that were refused or given up. Bounded: they are few between two that become
  /// complete, and the oldest are forgotten.
  std::set<std::uint64_t> left_out_;
  std::uint64_t missed_ = 0;
};

} // namespace troupe
