#pragma once

#include "actors/leases/lease_book.hpp"
#include "messages/buffer.hpp"
#include "messages/proto/wire.pb.h"

#include <chrono>
#include <cstdint>
#include <limits>
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
  std::optional<proto::PacingState> pacing = {};
  /// Each holder reports on its own worker, as ranks of a ring do. Otherwise each reports on all
  /// workers.
  bool one_worker_each = false;

  /// The last gradient of a worker that all holders have applied, among the holders that report on
  /// this worker. A gradient that one of them missed is trained again, rather than skipped. All
  /// zero if one holder has applied none.
  proto::Decided least(std::uint32_t worker, std::uint64_t incarnation) const;

  /// The newest lease in any mark; 0 for none.
  std::uint64_t newest_lease() const noexcept;
};

/// Joins the parts that holders of the state send for each version, and bounds how many versions
/// are held. Holders send on their own, at the same versions but at different times, and never
/// wait. What exceeds the bound is dropped here:
///
/// - At most two versions are open: arriving, waiting, or out (being written or evaluated, one at a
///   time). A further version replaces a complete one that waits. If there is none, all parts of
///   the further version are refused.
/// - Up to eight small versions that wait are copied and do not count: a few that are due shortly
/// after each other are all kept.
/// - An open version is given up when a newer one is complete, when one of its holders skips it, or
///   after some time.
///
/// So the newest complete version is always kept at the end, however slow the disk is, and one slow
/// holder cannot prevent all versions from completing.
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
    /// Waiting versions of up to this many bytes are copied.
    std::size_t small = 0;
    /// How many of the slots, at their end, come in one piece: the state of one holder each. Their
    /// `part` is any of that holder's.
    std::size_t whole = 0;
    /// No run of the job makes a newer version.
    std::uint64_t last = std::numeric_limits<std::uint64_t>::max();
  };

  explicit checkpoint_assembly(options how);

  enum class outcome { taken, repeated, complete, settled, refused };

  /// What is wrong with a part, as text for its sender; empty if it fits. `bytes`: size of the
  /// payload. 0 for a part that is not empty asks whether the part is wanted.
  std::string problem(const proto::CheckpointPart& header, std::size_t bytes) const;

  /// Whether this part is missing and would be taken.
  bool wants(const proto::CheckpointPart& header) const;

  /// Takes a part that fits. `complete`: it was the last one missing. `settled`: its version is
  /// over.
  outcome add(const proto::CheckpointPart& header, const payload& data, time_point now);

  /// The next complete version; it is out until `done`. Nothing while another one is out, or if
  /// none is complete.
  std::optional<assembled_checkpoint> next();
  void done();

  /// Gives up versions that have been arriving for longer than that.
  void drop_late(time_point now, std::chrono::nanoseconds limit);

  /// At the end of a run: holders have sent, or will send, everything up to this version. Waits for
  /// it, but not for newer versions that are incomplete.
  void finish(std::uint64_t version, time_point now);

  /// Nothing is arriving, waiting or out.
  bool idle() const noexcept { return versions_.empty() && out_ == 0; }
  bool out() const noexcept { return out_ > 0; }

  /// Versions so far that were due and never completed, or were replaced. Versions after the newest
  /// complete one are not counted yet.
  std::uint64_t missed() const noexcept { return missed_; }

  /// Versions that hold payloads of their senders, the one that is out included.
  std::size_t open() const noexcept;

private:
  struct state {
    /// By slot and part; one of slots in one piece.
    std::vector<std::vector<std::optional<payload>>> slots;
    std::vector<std::vector<proto::Decided>> marks;
    std::optional<proto::PacingState> pacing;
    /// Payloads that are not there yet.
    std::size_t missing = 0;
    time_point since;
    /// Complete, and copied.
    bool copied = false;
  };

  bool over(std::uint64_t version) const;
  bool in_one_piece(std::size_t slot) const noexcept { return slot + how_.whole >= how_.slots; }
  /// What a payload holds.
  range place_of(const proto::CheckpointPart& header) const;
  /// Payloads of a slot.
  std::size_t pieces(std::size_t slot) const noexcept {
    return in_one_piece(slot) ? 1 : how_.parts.size();
  }
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
  /// Newer versions that were refused or given up. Bounded: there are few between two complete
  /// ones, and the oldest are forgotten.
  std::set<std::uint64_t> left_out_;
  std::uint64_t missed_ = 0;
};

} // namespace troupe
