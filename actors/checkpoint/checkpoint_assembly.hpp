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

/// The state of the run at one version of the weights. Each shard or rank of a ring holds a part of
/// it; below, shards and ranks are called holders.
struct assembled_checkpoint {
  std::uint64_t version = 0;
  /// For each slot (the weights come first), the parts in order.
  std::vector<std::vector<payload>> slots;
  /// For each part, the decisions about gradients that its holder made up to this version.
  std::vector<std::vector<proto::Decided>> marks;
  std::optional<proto::PacingState> pacing = {};
  /// True if each holder reports only on its own worker, as the ranks of a ring do. Otherwise, each
  /// holder reports on all workers.
  bool one_worker_each = false;

  /// The last gradient of a worker that every holder has applied. Only holders that report on this
  /// worker count. A gradient that one holder missed is trained again, not skipped. All fields are
  /// 0 if a holder has applied none.
  proto::Decided least(std::uint32_t worker, std::uint64_t incarnation) const;

  /// The newest lease (number of a range of samples given to a worker) in any mark; 0 if there is
  /// none.
  std::uint64_t newest_lease() const noexcept;
};

/// Joins the parts that the holders of the state send for each version, and bounds the number of
/// versions in memory. All holders send the same versions, but at different times, and never wait.
/// These rules keep the bound:
///
/// - At most two versions are open. An open version is arriving, is complete and waits, or is out:
///   it is being written or evaluated. Only one version at a time is out. A third version replaces
///   a complete version that waits. If no complete version waits, all parts of the third version
///   are refused.
/// - Up to eight small versions are copied while they wait, and do not count as open. So a few
///   versions that are due shortly after each other are all kept.
/// - The version at which the run ends is always taken. It does not have to be a multiple of
///   `every`.
/// - An open version is given up if a newer one is complete, if one of its holders skips it, or
///   after some time.
///
/// Therefore the newest complete version is always kept at the end, however slow the disk is, and a
/// slow holder delays some versions but not all.
class checkpoint_assembly {
public:
  using time_point = std::chrono::steady_clock::time_point;

  struct options {
    /// How the parameter vector is divided among its holders.
    std::vector<range> parts;
    /// Number of values for each parameter: the weights, and the slots of the optimizer's state.
    std::size_t slots = 1;
    /// All versions are multiples of this, except the one at which the run ends.
    std::uint64_t every = 1;
    /// See assembled_checkpoint::one_worker_each.
    bool one_worker_each = false;
    /// The version at which training begins.
    std::uint64_t first = 0;
    /// Versions up to this size in bytes are copied while they wait.
    std::size_t small = 0;
    /// The last `whole` slots are not divided into parts: each is the state of one holder. A
    /// message with such a slot may name any part of that holder.
    std::size_t whole = 0;
    /// The last version that the run can make.
    std::uint64_t last = std::numeric_limits<std::uint64_t>::max();
  };

  explicit checkpoint_assembly(options how);

  enum class outcome { taken, repeated, complete, settled, refused };

  /// The problem with a part, as text for its sender; empty if there is none. `bytes` is the size
  /// of the payload. If it is 0 and the part is not empty, the message asks whether the part is
  /// wanted.
  std::string problem(const proto::CheckpointPart& header, std::size_t bytes) const;

  /// True if this part is missing and would be accepted.
  bool wants(const proto::CheckpointPart& header) const;

  /// Takes a part for which `problem` is empty. The result is `repeated` if this part had already
  /// arrived, `complete` if it was the last missing part of its version, `settled` if this version
  /// or a newer one was completed earlier, and `refused` if this version is left out.
  outcome add(const proto::CheckpointPart& header, const payload& data, time_point now);

  /// The next complete version. It is out until done() is called. The result is empty if another
  /// version is out, or if no version is complete.
  std::optional<assembled_checkpoint> next();
  void done();

  /// Call this before holders are asked for the version at which the run ends. If that version was
  /// left out, they send it again.
  void expect_end() noexcept {
    at_end_ = true;
    left_out_.clear();
  }

  /// Gives up versions that have been arriving for longer than `limit`.
  void drop_late(time_point now, std::chrono::nanoseconds limit);

  /// Call this at the end of a run: holders have sent, or will send, everything up to this version.
  /// The assembly waits for this version, but not for newer incomplete versions. `version` is 0 if
  /// the holders have no last version in common. The assembly then waits for all arriving versions
  /// that are multiples of `every`.
  void finish(std::uint64_t version, time_point now);

  /// True if nothing is arriving, waiting or out.
  bool idle() const noexcept { return versions_.empty() && out_ == 0; }
  bool out() const noexcept { return out_ > 0; }

  /// Number of versions so far that were due but never completed, or were replaced. Versions after
  /// the newest complete one are not counted yet.
  std::uint64_t missed() const noexcept { return missed_; }

  /// Number of versions that still hold their senders' payloads, including the one that is out.
  std::size_t open() const noexcept;

private:
  struct state {
    /// Payloads by slot and part. A slot in one piece has a single element.
    std::vector<std::vector<std::optional<payload>>> slots;
    std::vector<std::vector<proto::Decided>> marks;
    std::optional<proto::PacingState> pacing;
    /// Number of payloads that have not arrived.
    std::size_t missing = 0;
    time_point since;
    /// True if the version is complete and copied.
    bool copied = false;
  };

  bool over(std::uint64_t version) const;
  bool in_one_piece(std::size_t slot) const noexcept { return slot + how_.whole >= how_.slots; }
  /// The range of parameters in a payload.
  range place_of(const proto::CheckpointPart& header) const;
  /// Number of payloads in a slot.
  std::size_t pieces(std::size_t slot) const noexcept {
    return in_one_piece(slot) ? 1 : how_.parts.size();
  }
  bool has_nothing_of(const state& x, std::uint32_t part) const;
  bool make_room(const proto::CheckpointPart& header);
  state& begin(std::uint64_t version, time_point now);
  void leave_out(std::uint64_t version);
  void completed(std::uint64_t version);
  void copy_if_small(state& x);
  std::size_t copied() const noexcept;

  options how_;
  std::map<std::uint64_t, state> versions_;
  /// The version that is out; 0 if none is.
  std::uint64_t out_ = 0;
  /// The newest complete version. If no version is complete, the version at which training began.
  std::uint64_t newest_;
  /// Versions after `newest_` that were refused or given up. If there are too many, the oldest
  /// entries are dropped.
  std::set<std::uint64_t> left_out_;
  std::uint64_t missed_ = 0;
  /// True if holders will send the version at which the run ends.
  bool at_end_ = false;
};

} // namespace troupe
