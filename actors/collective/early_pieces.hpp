#pragma once

#include "actors/ring/ring_collective.hpp"
#include "messages/proto/collective.pb.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace troupe {

/// Options of a member. They must be the same on all ranks, except for `rank`.
struct member_options {
  std::size_t rank = 0;
  std::size_t ranks = 1;
  /// The schedule of all vectors. If absent, schedule_for() chooses one for each vector.
  std::optional<all_reduce_schedule> schedule = {};
  /// True if all ranks read each other's memory.
  bool in_shared_memory = true;
  /// Size of a chunk in bytes; at least 8.
  std::size_t chunk_bytes = std::size_t{256} << 10;
  /// The largest length of a vector in bytes. A rank refuses pieces of longer vectors. So this also
  /// limits the memory for pieces that arrive before the rank's program has passed its own vector
  /// (early_pieces).
  std::size_t max_bytes = std::size_t{16} << 30;
  /// How long a rank waits for a piece. All ranks must therefore begin an all-reduce within this
  /// time. If a rank dies or stops, all others get an error within twice this time.
  std::chrono::milliseconds deadline{10'000};
};

/// The fields that all pieces of an all-reduce share.
proto::CollectivePiece whole_of(const member_options& options, std::uint64_t number,
                                element_kind kind, std::size_t elements);

/// Describes the first setting that differs between `theirs` and `known`, as text for an error.
/// Empty if all settings are equal.
/// @param of names the sender of `known`, such as "this rank"
std::string misfit(const proto::CollectivePiece& theirs, const proto::CollectivePiece& known,
                   const std::string& of);

/// The text of an error: the piece `x` does not fit, because of `why`. For example "sent a piece
/// that does not fit (segment 1, chunk 0, step 2): its size is wrong".
std::string misfit(const proto::CollectivePiece& x, const std::string& why);

/// Keeps pieces of the next all-reduce, from ranks that have begun it before this rank. This is a
/// plain object, not an actor. It refuses pieces that the schedule cannot send so early. All kept
/// pieces must belong to vectors of the same length and kind. So they are together at most as long
/// as one vector. With the schedule `one_shot`, they are at most as long as the vectors of all
/// other ranks together.
class early_pieces {
public:
  struct early_piece {
    proto::CollectivePiece header;
    payload data;
  };

  explicit early_pieces(const member_options& options) : options_(options) {}

  /// Returns the reason why the piece is refused. Empty if it is kept, or if the same piece was
  /// kept before.
  std::string keep(const proto::CollectivePiece& x, const payload& data);

  /// Removes and returns the pieces. Called when this rank begins the all-reduce.
  std::vector<early_piece> take();

private:
  std::string refusal(const proto::CollectivePiece& x, const payload& data) const;

  member_options options_;
  std::vector<early_piece> pieces_;
  /// Rank, segment, chunk and step of each piece that is kept.
  std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>> came_;
};

} // namespace troupe
