#include "actors/collective/all_reduce_part.hpp"

#include <utility>

namespace troupe {

namespace {

using state = std::variant<ring_collective, direct_collective>;

void send_right(const ring_place& place, std::vector<ring_piece> pieces,
                std::vector<addressed_piece>& send) {
  for (auto& x : pieces)
    send.push_back({(place.rank + 1) % place.ranks, std::move(x)});
}

state begin(all_reduce_schedule how, const ring_place& place, payload own,
            std::vector<addressed_piece>& send) {
  if (how != all_reduce_schedule::ring)
    return direct_collective{how, place, std::move(own), send};
  ring_collective ring{place, own.size() / bytes_of(place.elements)};
  std::vector<ring_piece> pieces;
  ring.contribute(std::move(own), 1, pieces);
  send_right(place, std::move(pieces), send);
  return ring;
}

} // namespace

all_reduce_part::all_reduce_part(all_reduce_schedule how, const ring_place& place, payload own,
                                 std::vector<addressed_piece>& send)
  : place_(place), state_(begin(how, place, std::move(own), send)) {}

piece_fate all_reduce_part::receive(std::size_t from, ring_piece piece,
                                    std::vector<addressed_piece>& send) {
  if (auto* direct = std::get_if<direct_collective>(&state_))
    return direct->receive(from, std::move(piece), send);
  if (ring_receiver(from, 1, place_.ranks) != place_.rank)
    return piece_fate::not_due;
  // A ring_collective also checks the number of samples in each sum. An all-reduce has no samples,
  // so each rank that is in the sum counts as one sample.
  piece.samples = piece.hop < place_.ranks ? piece.hop : place_.ranks;
  std::vector<ring_piece> pieces;
  const auto fate = std::get<ring_collective>(state_).receive(std::move(piece), pieces);
  send_right(place_, std::move(pieces), send);
  return fate;
}

bool all_reduce_part::complete() const noexcept {
  return std::visit([](auto& x) { return x.complete(); }, state_);
}

const payload& all_reduce_part::sum() const noexcept {
  return std::visit([](auto& x) -> const payload& { return x.sum(); }, state_);
}

std::uint32_t all_reduce_part::awaited_step() const {
  return complete() ? 0 : std::visit([](auto& x) { return x.awaited_hop(); }, state_);
}

std::vector<std::size_t> all_reduce_part::awaited_ranks() const {
  if (complete())
    return {};
  if (auto* direct = std::get_if<direct_collective>(&state_))
    return direct->awaited_ranks();
  return {(place_.rank + place_.ranks - 1) % place_.ranks};
}

} // namespace troupe
