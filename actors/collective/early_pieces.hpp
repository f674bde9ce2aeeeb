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

/// How a member works. All ranks need the same, except for `rank`.
struct member_options {
  std::size_t rank = 0;
  std::size_t ranks = 1;
  /// Absent: by the length of each vector, see schedule_for().
  std::optional<all_reduce_schedule> schedule = all_reduce_schedule::direct;
  /// Bytes of a chunk; at least 8.
  std::size_t chunk_bytes = std::size_t{256} << 10;
  /// Of the longest vector. A rank keeps pieces of others before its program passes its own vector:
  /// at most this much.
  std::size_t max_bytes = std::size_t{16} << 30;
  /// How long a rank waits for a piece; also how far ranks may come apart. Twice this after a rank
  /// has died or stopped, all others have an error.
  std::chrono::milliseconds deadline{10'000};
};

/// What every piece of an all-reduce says about the whole.
proto::CollectivePiece whole_of(const member_options& options, std::uint64_t number,
                                element_kind kind, std::size_t elements);

/// What all ranks must agree on and `theirs` has otherwise, for messages; empty if all is the same.
/// @param of of whom `known` is: "this rank"
std::string misfit(const proto::CollectivePiece& theirs, const proto::CollectivePiece& known,
                   const std::string& of);

/// "sent a piece that does not fit (segment 1, chunk 0, step 2): its size is wrong".
std::string misfit(const proto::CollectivePiece& x, const std::string& why);

/// Pieces of the next all-reduce, which other ranks have begun before this one. Plain state. Only
/// pieces that the schedule can bring so early are kept, each once, and all of one vector. So they
/// are no longer than that vector.
class early_pieces {
public:
  struct early_piece {
    proto::CollectivePiece header;
    payload data;
  };

  explicit early_pieces(const member_options& options) : options_(options) {}

  /// Why it is refused; empty if it is kept, or was kept before.
  std::string keep(const proto::CollectivePiece& x, const payload& data);

  /// This rank begins.
  std::vector<early_piece> take();

private:
  std::string refusal(const proto::CollectivePiece& x, const payload& data) const;

  member_options options_;
  std::vector<early_piece> pieces_;
  /// Rank, segment, chunk and step of each.
  std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>> came_;
};

} // namespace troupe
