#include "actors/schedules/all_reduce_schedule.hpp"

namespace troupe {

namespace {

using moves = std::vector<all_reduce_move>;

void add_chunks(const chunk_layout& cut, all_reduce_move move, moves& result) {
  for (move.chunk = 0; move.chunk < cut.chunks(move.segment); ++move.chunk) {
    move.where = cut.where(move.segment, move.chunk);
    result.push_back(move);
  }
}

/// Up to these numbers of bytes, schedule_for() chooses `one_shot`.
constexpr std::size_t short_vector = std::size_t{4} << 10;
constexpr std::size_t short_vector_of_two = std::size_t{1} << 20;

moves ring_moves(std::size_t rank, std::size_t ranks, const chunk_layout& cut) {
  const auto left = (rank + ranks - 1) % ranks;
  const auto right = (rank + 1) % ranks;
  moves result;
  for (std::uint32_t step = 1; step <= steps_of(all_reduce_schedule::ring, ranks); ++step) {
    const bool adds = step < ranks;
    const auto out = static_cast<std::uint32_t>(ring_received(right, step, ranks));
    const auto in = static_cast<std::uint32_t>(ring_received(rank, step, ranks));
    add_chunks(cut, {step, rank, right, out, 0, {}, adds}, result);
    add_chunks(cut, {step, left, rank, in, 0, {}, adds}, result);
  }
  return result;
}

// Each rank begins with the rank after it, so that the ranks do not all read the same vector first.
moves direct_moves(std::size_t rank, std::size_t ranks, const chunk_layout& cut) {
  moves result;
  for (const std::uint32_t step : {1U, 2U})
    for (std::size_t k = 1; k < ranks; ++k) {
      const auto peer = (rank + k) % ranks;
      const auto out = static_cast<std::uint32_t>(step == 1 ? peer : rank);
      const auto in = static_cast<std::uint32_t>(step == 1 ? rank : peer);
      add_chunks(cut, {step, rank, peer, out, 0, {}, step == 1}, result);
      add_chunks(cut, {step, peer, rank, in, 0, {}, step == 1}, result);
    }
  return result;
}

moves one_shot_moves(std::size_t rank, std::size_t ranks, const chunk_layout& cut) {
  moves result;
  for (std::size_t k = 1; k < ranks; ++k) {
    const auto peer = (rank + k) % ranks;
    add_chunks(cut, {1, rank, peer, 0, 0, {}, true}, result);
    add_chunks(cut, {1, peer, rank, 0, 0, {}, true}, result);
  }
  return result;
}

} // namespace

const char* to_string(all_reduce_schedule x) noexcept {
  switch (x) {
  case all_reduce_schedule::direct:
    return "direct";
  case all_reduce_schedule::ring:
    return "ring";
  default:
    return "one_shot";
  }
}

all_reduce_schedule schedule_for(std::size_t ranks, std::size_t bytes, std::size_t chunk_bytes,
                                 bool in_shared_memory) noexcept {
  if (bytes <= short_vector || (ranks < 3 && (!in_shared_memory || bytes <= short_vector_of_two)))
    return all_reduce_schedule::one_shot;
  return in_shared_memory || bytes / ranks <= chunk_bytes ? all_reduce_schedule::direct
                                                          : all_reduce_schedule::ring;
}

std::uint32_t steps_of(all_reduce_schedule how, std::size_t ranks) noexcept {
  if (ranks < 2)
    return 0;
  switch (how) {
  case all_reduce_schedule::direct:
    return 2;
  case all_reduce_schedule::ring:
    return static_cast<std::uint32_t>(2 * (ranks - 1));
  default:
    return 1;
  }
}

moves moves_of(all_reduce_schedule how, std::size_t rank, std::size_t ranks,
               const chunk_layout& cut) {
  switch (how) {
  case all_reduce_schedule::direct:
    return direct_moves(rank, ranks, cut);
  case all_reduce_schedule::ring:
    return ring_moves(rank, ranks, cut);
  default:
    return one_shot_moves(rank, ranks, cut);
  }
}

} // namespace troupe
