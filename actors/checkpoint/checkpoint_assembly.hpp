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
  /// For each slot, its parts in order. The first slot is the weights. The other slots are vectors
  /// of optimizer state.
  std::vector<std::vector<payload>> slots;
  /// For each part, a *mark* per worker: what the part's holder decided about the worker's
  /// gradients up to this version (applied, rejected or lost).
  std::vector<std::vector<proto::Decided>> marks;
  std::optional<proto::PacingState> pacing = {};
  /// The last gradient of this worker that all holders have applied. A resumed run continues after
  /// this gradient. It therefore repeats later gradients that only some holders have applied. All
  /// fields are 0 if a holder has applied no gradient of the worker. With `one_worker_each`, only
  /// the holder that has a mark for this worker counts.
  bool one_worker_each = false;

  /// The largest lease number in all marks; 0 if there is no mark. (A lease is a range of samples
  /// that a worker trains.)
  proto::Decided least(std::uint32_t worker, std::uint64_t incarnation) const;

  /// The number of the newest lease (a range of samples that a worker trains) in any mark. 0 if
  /// there is no mark.
  std::uint64_t newest_lease() const noexcept;
};

/// Joins the parts of each version that the holders send, and limits the number of versions in
/// memory. All holders send the same versions, but at different times, and they never wait for each
/// other. These rules enforce the limit:
///
/// - At most two versions are open. An open version has one of three states: its parts are
///   arriving; it is complete and waits; or it is *out*, which means that next() has returned it to
///   be written or evaluated. Only one version at a time is out.
/// - A third version replaces a complete version that waits. If no complete version waits, all
///   parts of the third version are refused.
/// - Up to eight small versions are copied while they wait, and copies do not count as open.
///   Therefore, a few versions that are due shortly after each other are all kept.
/// - The last version of the run is always accepted, even if it is not a multiple of `every`.
/// - An incomplete version is given up if a newer version is complete, if a holder skips it, or if
///   it takes too long (drop_late).
///
/// Therefore, the newest complete version is always kept at the end, even if the disk is slow. A
/// slow holder delays some versions, but not all.
class checkpoint_assembly {
public:
  using time_point = std::chrono::steady_clock::time_point;

  struct options {
    /// The range of each part in the parameter vector. A holder sends one or more parts.
    std::vector<range> parts;
    /// Number of slots: the weights, and the vectors of the optimizer's state.
    std::size_t slots = 1;
    /// All versions except the last version of the run are multiples of this.
    std::uint64_t every = 1;
    /// See assembled_checkpoint::one_worker_each.
    bool one_worker_each = false;
    /// The version at which training begins.
    std::uint64_t first = 0;
    /// Complete versions up to this size in bytes are copied while they wait to be written or
    /// evaluated.
    std::size_t small = 0;
    /// The last `whole` slots are not divided into parts. Each of these slots is optimizer state of
    /// one holder, which sends the slot in one message. The header of this message may have the
    /// number of any part of that holder.
    std::size_t whole = 0;
    /// The last version that the run can make.
    std::uint64_t last = std::numeric_limits<std::uint64_t>::max();
  };

  explicit checkpoint_assembly(options how);

  enum class outcome { taken, repeated, complete, settled, refused };

  /// Describes what is wrong with a message that brings a part, as text for its sender. Empty if
  /// nothing is wrong.
  /// @param bytes size of the payload. 0 is allowed: a sender that only asks whether wants() is
  /// true sends no payload.
  std::string problem(const proto::CheckpointPart& header, std::size_t bytes) const;

  /// True if this part is missing and would be accepted.
  bool wants(const proto::CheckpointPart& header) const;

  /// Takes a part for which problem() is empty. The result is `repeated` if this part had already
  /// arrived, `complete` if it was the last missing part of its version, and `taken` if other parts
  /// are still missing. It is `settled` if this version or a newer one was completed earlier, and
  /// `refused` if there is no room for this version or it was given up.
  outcome add(const proto::CheckpointPart& header, const payload& data, time_point now);

  /// Returns the oldest complete version, to be written or evaluated. This version is *out* until
  /// done() is called. The result is empty if another version is out, or if no version is complete.
  std::optional<assembled_checkpoint> next();
  void done();

  /// Call this before holders are asked for the last version of the run. From then on, this version
  /// is accepted even if it was refused before, because the holders send it again.
  void expect_end() noexcept {
    at_end_ = true;
    left_out_.clear();
  }

  /// Gives up versions that have been arriving for longer than `limit`. The time until `moved` does
  /// not count: the holders' payloads moved until then.
  void drop_late(time_point now, std::chrono::nanoseconds limit, time_point moved = {});

  /// Call this at the end of a run. From then on, the assembly waits at most for `last`, and drops
  /// newer incomplete versions.
  /// @param last the smallest of the holders' newest versions: no later version can become
  /// complete. 0 if a holder has sent nothing. Empty if the holders ended at different versions.
  /// The assembly then keeps incomplete versions that are multiples of `every`, until they are
  /// complete.
  void finish(std::optional<std::uint64_t> last, time_point now);

  /// True if nothing is arriving, waiting or out.
  bool idle() const noexcept { return versions_.empty() && out_ == 0; }
  bool out() const noexcept { return out_ > 0; }

  /// Number of versions that are lost so far: they were due but never became complete, or a newer
  /// version replaced them. Versions after the newest complete one are not counted yet.
  std::uint64_t missed() const noexcept { return missed_; }

  /// Number of open versions, including the version that is out. Each open version occupies memory
  /// of its holders.
  std::size_t open() const noexcept;

private:
  struct state {
    /// Payloads by slot and part. A slot that is not divided into parts has a single element.
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
  /// The range of parameters that a payload covers.
  range place_of(const proto::CheckpointPart& header) const;
  /// Number of payloads in a slot.
  std::size_t pieces(std::size_t slot) const noexcept {
    return in_one_piece(slot) ? 1 : how_.parts.size();
  }
  bool has_nothing_of(const state& x, std::uint32_t part) const;
  void note_order(const proto::CheckpointPart& header);
  bool is_skipped(std::uint64_t version) const noexcept;
  bool make_room(const proto::CheckpointPart& header);
  state& begin(std::uint64_t version, time_point now);
  void leave_out(std::uint64_t version);
  void completed(std::uint64_t version);
  void copy_if_small(state& x);
  std::size_t copied() const noexcept;

  options how_;
  std::map<std::uint64_t, state> versions_;
  /// The version that is out; 0 if no version is out.
  std::uint64_t out_ = 0;
  /// The newest complete version. If no version is complete, the version at which training began.
  std::uint64_t newest_;
  /// Versions after `newest_` that were refused or given up. If there are too many, the oldest
  /// entries are dropped.
  std::set<std::uint64_t> left_out_;
  std::uint64_t missed_ = 0;
  /// By part: the newest version of which this part has arrived, even if it was refused.
  std::vector<std::uint64_t> sent_;
  /// See finish(). Until then, the largest number.
  std::uint64_t ends_at_ = std::numeric_limits<std::uint64_t>::max();
  /// True after expect_end(): holders will send the last version of the run.
  bool at_end_ = false;
};

} // namespace troupe
