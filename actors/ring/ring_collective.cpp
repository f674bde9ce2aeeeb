#include "actors/ring/ring_collective.hpp"

#include "kernels/cpu/reduce.hpp"

#include <algorithm>

namespace troupe {

namespace {

constexpr std::uint8_t partial_came = 1;
constexpr std::uint8_t sum_came = 2;

/// So that sums over ranks fit.
constexpr std::uint64_t most_samples = std::uint64_t{1} << 48;

} // namespace

const char* describe(piece_fate x) noexcept {
  switch (x) {
  case piece_fate::no_such_bucket:
    return "there is no such bucket";
  case piece_fate::no_such_segment:
    return "there is no such segment";
  case piece_fate::no_such_chunk:
    return "there is no such chunk";
  case piece_fate::not_due:
    return "it is not due here";
  case piece_fate::wrong_size:
    return "its size is wrong";
  case piece_fate::wrong_samples:
    return "its number of samples is wrong";
  default:
    return "it fits";
  }
}

ring_collective::ring_collective(const ring_place& place, std::size_t elements)
  : place_(place), segments_(split_evenly(elements, place.ranks)) {
  for (std::uint32_t s = 0; s < place_.ranks; ++s) {
    first_.push_back(missing_);
    missing_ += chunks(s);
  }
  came_.resize(missing_);
}

// Segment 0 has a chunk even where there is nothing to add up, for the number of samples.
std::uint32_t ring_collective::chunks(std::uint32_t segment) const {
  const auto n = segments_[segment].size();
  const auto count = (n + place_.chunk_elements - 1) / place_.chunk_elements;
  return static_cast<std::uint32_t>(segment == 0 ? std::max<std::size_t>(count, 1) : count);
}

range ring_collective::where(std::uint32_t segment, std::uint32_t chunk) const {
  const auto& s = segments_[segment];
  const auto begin = s.begin + chunk * place_.chunk_elements;
  return {begin, std::min(begin + place_.chunk_elements, s.end)};
}

void ring_collective::contribute(payload own, std::uint64_t samples,
                                 std::vector<ring_piece>& send) {
  contributed_ = true;
  own_ = std::move(own);
  own_samples_ = samples;
  if (place_.ranks == 1) {
    sum_ = own_;
    samples_ = samples;
    missing_ = 0;
    return;
  }
  sum_ = payload::allocate(own_.size());
  const auto first = static_cast<std::uint32_t>(place_.rank);
  for (std::uint32_t c = 0; c < chunks(first); ++c) {
    const auto r = where(first, c);
    send.push_back({first, c, 1, samples, own_.slice_floats(r.begin, r.size())});
  }
  for (auto& piece : std::exchange(early_, {}))
    take(std::move(piece), send);
}

piece_fate ring_collective::judge(const ring_piece& piece) const {
  if (piece.segment >= segments_.size())
    return piece_fate::no_such_segment;
  if (piece.chunk >= chunks(piece.segment))
    return piece_fate::no_such_chunk;
  if (piece.hop == 0 || piece.hop > 2 * place_.ranks - 2
      || (piece.segment + std::size_t{piece.hop}) % place_.ranks != place_.rank)
    return piece_fate::not_due;
  if (piece.data.size() != where(piece.segment, piece.chunk).size() * sizeof(float))
    return piece_fate::wrong_size;
  if (piece.samples > most_samples
      || (!partial(piece) && contributed_ && piece.samples < own_samples_))
    return piece_fate::wrong_samples;
  if ((came(piece) & (partial(piece) ? partial_came : sum_came)) != 0)
    return piece_fate::repeated;
  // A sum holds this rank's part: it cannot come before the partial sum has left.
  const bool left =
    contributed_ && (piece.segment == place_.rank || (came(piece) & partial_came) != 0);
  return partial(piece) || left ? piece_fate::taken : piece_fate::not_due;
}

piece_fate ring_collective::receive(ring_piece piece, std::vector<ring_piece>& send) {
  if (const auto fate = judge(piece); fate != piece_fate::taken)
    return fate;
  came(piece) |= partial(piece) ? partial_came : sum_came;
  if (contributed_)
    take(std::move(piece), send);
  else
    early_.push_back(std::move(piece));
  return piece_fate::taken;
}

void ring_collective::take(ring_piece piece, std::vector<ring_piece>& send) {
  if (partial(piece)) {
    add_own(std::move(piece), send);
    return;
  }
  store(piece);
  if (piece.hop < 2 * place_.ranks - 2) {
    ++piece.hop;
    send.push_back(std::move(piece));
  }
}

// Reduce-scatter: partial + own -> partial for the next rank, or the sum.
void ring_collective::add_own(ring_piece piece, std::vector<ring_piece>& send) {
  const auto r = where(piece.segment, piece.chunk);
  const auto own = own_.slice_floats(r.begin, r.size());
  const bool last = piece.hop + 1 == place_.ranks;
  payload total = last ? sum_.slice_floats(r.begin, r.size()) : payload::floats(r.size());
  add(piece.data.as_floats(), own.as_floats(), total.as_mutable_floats());
  piece.data = std::move(total);
  piece.samples += own_samples_;
  ++piece.hop;
  if (last) {
    samples_ = piece.samples;
    --missing_;
  }
  send.push_back(std::move(piece));
}

// All-gather: another rank finished this chunk.
void ring_collective::store(const ring_piece& piece) {
  const auto r = where(piece.segment, piece.chunk);
  std::ranges::copy(piece.data.as_floats(),
                    sum_.as_mutable_floats().begin() + static_cast<std::ptrdiff_t>(r.begin));
  samples_ = piece.samples;
  --missing_;
}

} // namespace troupe
