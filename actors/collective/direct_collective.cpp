#include "actors/collective/direct_collective.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

/// Number of elements to add up at a time, so that the sum stays in the first-level cache.
constexpr std::size_t block = 2048;

} // namespace

direct_collective::direct_collective(all_reduce_schedule how, const ring_place& place, payload own,
                                     std::vector<addressed_piece>& send)
  : how_(how), place_(place), cut_(own.size() / bytes_of(place.elements),
                                   segments_of(how, place.ranks), place.chunk_elements),
    own_(std::move(own)) {
  if (place_.ranks == 1) {
    sum_ = own_;
    return;
  }
  sum_ = payload::allocate(own_.size());
  came_.resize(cut_.number(cut_.ranks(), 0));
  missing_ = came_.size();
  to_add_ = cut_.chunks(mine());
  gathering_.resize(to_add_);
  for (std::uint32_t c = 0; c < to_add_; ++c) {
    auto& x = gathering_[c];
    const auto where = cut_.where(mine(), c);
    x.parts.resize(place_.ranks);
    x.parts[place_.rank] = slice_elements(own_, place_.elements, where.begin, where.size());
    x.came.resize(place_.ranks);
    x.came[place_.rank] = true;
    x.missing = place_.ranks - 1;
  }
  for (const auto& x : moves_of(how_, place_.rank, place_.ranks, cut_))
    if (x.step == 1 && x.from == place_.rank)
      send.push_back({x.to,
                      {x.segment, x.chunk, 1, 0,
                       slice_elements(own_, place_.elements, x.where.begin, x.where.size())}});
  own_ = {};
}

piece_fate direct_collective::judge(std::size_t from, const ring_piece& piece) const {
  if (piece.segment >= cut_.ranks())
    return piece_fate::no_such_segment;
  if (piece.chunk >= cut_.chunks(piece.segment))
    return piece_fate::no_such_chunk;
  const bool part = piece.hop == 1 && piece.segment == mine();
  const bool sum = !one_shot() && piece.hop == 2 && piece.segment == from;
  if (from >= place_.ranks || from == place_.rank || (!part && !sum))
    return piece_fate::not_due;
  if (piece.data.size()
      != cut_.where(piece.segment, piece.chunk).size() * bytes_of(place_.elements))
    return piece_fate::wrong_size;
  const bool came =
    sum ? came_[cut_.number(piece.segment, piece.chunk)] : gathering_[piece.chunk].came[from];
  return came ? piece_fate::repeated : piece_fate::taken;
}

piece_fate direct_collective::receive(std::size_t from, ring_piece piece,
                                      std::vector<addressed_piece>& send) {
  if (const auto fate = judge(from, piece); fate != piece_fate::taken)
    return fate;
  if (piece.hop == 1) {
    gather(from, std::move(piece), send);
    return piece_fate::taken;
  }
  const auto where = cut_.where(piece.segment, piece.chunk);
  std::ranges::copy(
    piece.data.bytes(),
    slice_elements(sum_, place_.elements, where.begin, where.size()).mutable_data());
  came_[cut_.number(piece.segment, piece.chunk)] = true;
  --missing_;
  return piece_fate::taken;
}

void direct_collective::gather(std::size_t from, ring_piece piece,
                               std::vector<addressed_piece>& send) {
  auto& x = gathering_[piece.chunk];
  x.parts[from] = std::move(piece.data);
  x.came[from] = true;
  if (--x.missing > 0)
    return;
  const auto where = cut_.where(mine(), piece.chunk);
  const auto total = slice_elements(sum_, place_.elements, where.begin, where.size());
  add_up(std::exchange(x.parts, {}), total);
  came_[cut_.number(mine(), piece.chunk)] = true;
  --to_add_;
  --missing_;
  for (std::size_t k = 1; k < place_.ranks && !one_shot(); ++k)
    send.push_back({(place_.rank + k) % place_.ranks, {mine(), piece.chunk, 2, 0, total}});
}

void direct_collective::add_up(const std::vector<payload>& parts, payload total) const {
  const auto bytes = block * bytes_of(place_.elements);
  for (std::size_t begin = 0; begin < total.size(); begin += bytes) {
    const auto size = std::min(bytes, total.size() - begin);
    auto sum = total.slice(begin, size);
    add(place_.elements, parts[0].slice(begin, size), parts[1].slice(begin, size), sum);
    for (std::size_t k = 2; k < parts.size(); ++k)
      add(place_.elements, sum, parts[k].slice(begin, size), sum);
  }
}

std::uint32_t direct_collective::awaited_hop() const noexcept {
  return to_add_ > 0 ? 1 : missing_ > 0 ? 2 : 0;
}

std::vector<std::size_t> direct_collective::awaited_ranks() const {
  const auto hop = awaited_hop();
  std::vector<std::size_t> result;
  for (std::size_t r = 0; hop > 0 && r < place_.ranks; ++r) {
    bool awaited = false;
    for (const auto& x : gathering_)
      awaited = awaited || (hop == 1 && !x.came[r]);
    for (std::uint32_t c = 0; hop == 2 && c < cut_.chunks(r); ++c)
      awaited = awaited || !came_[cut_.number(r, c)];
    if (awaited)
      result.push_back(r);
  }
  return result;
}

} // namespace troupe
