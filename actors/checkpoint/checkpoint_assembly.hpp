#pragma once

#include "actors/coordinator/lease_book.hpp"
#include "messages/buffer.hpp"
#include "messages/proto/wire.pb.h"

#include <cstdint>
#include <map>
#include <optional>
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

/// Collects the parts of checkpoints. Holders of the state send them by themselves, at the same
/// versions, each in its own time; a checkpoint is complete when all parts of a version are there.
class checkpoint_assembly {
public:
  /// For a parameter vector that is held in these parts, with `slots` values each (the weights, and
  /// the optimizer's).
  checkpoint_assembly(std::vector<range> parts, std::size_t slots, bool one_worker_each);

  enum class outcome { taken, repeated, complete, settled, misfit };

  /// Takes a part. `complete`: it was the last one missing. `settled`: its version was taken out or
  /// dropped before. `misfit`: no such part or slot, or another size.
  outcome add(const proto::CheckpointPart& header, const payload& data);

  /// A complete version; it is settled from now on, as are older ones of which nothing has come.
  assembled_checkpoint take(std::uint64_t version);

  /// Versions of which parts are missing, the oldest first.
  std::vector<std::uint64_t> open() const;

  void drop(std::uint64_t version);

private:
  struct state {
    /// By slot and part.
    std::vector<std::vector<std::optional<payload>>> slots;
    std::vector<std::vector<proto::Decided>> marks;
    /// Payloads that are not there yet.
    std::size_t missing = 0;
  };

  std::vector<range> parts_;
  std::size_t slots_;
  bool one_worker_each_;
  std::map<std::uint64_t, state> versions_;
  /// The newest one that was settled.
  std::uint64_t settled_ = 0;
};

} // namespace troupe
