#include "actors/ring/ring_collective.hpp"

#include <algorithm>

namespace troupe {

namespace {

constexpr std::uint8_t partial_came = 1;
constexpr std::uint8_t sum_came = 2;

/// The largest number of samples in a piece. The limit keeps sums over ranks from overflowing.
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

ring_collective::ring_collective(const ring_place& place, std::size_t elements, ring_work work)
  : place_(place), work_(work),
    cut_(elements, work == ring_work::exchange ? 1 : place.ranks,
         adds_later() ? std::max<std::size_t>(elements, 1) : place.chunk_elements),
    came_(cut_.number(cut_.ranks(), 0)) {
  for (std::size_t s = 0; s < cut_.ranks(); ++s) {
    const bool begins_here = (work_ == ring_work::reduce_scatter && s == place_.rank)
      || (work_ == ring_work::all_gather && s == own_segment(place_));
    missing_ += begins_here ? 0 : cut_.chunks(s);
  }
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
  const auto mine = exchanges() ? range{} : cut_.segment(own_segment(place_));
  if (!adds_later())
    sum_ = payload::allocate((work_ == ring_work::reduce_scatter ? mine.size() : cut_.elements())
                             * bytes_of(place_.elements));
  if (work_ == ring_work::all_gather) {
    samples_ = samples;
    std::ranges::copy(own_.bytes(), slice(sum_, mine.begin, mine.size()).mutable_data());
    send_own(own_segment(place_), static_cast<std::uint32_t>(place_.ranks), mine.begin, send);
  } else {
    send_own(exchanges() ? 0 : place_.rank, 1, 0, send);
  }
  for (auto& piece : std::exchange(early_, {}))
    take(std::move(piece), send);
}

void ring_collective::send_own(std::size_t segment, std::uint32_t hop, std::size_t offset,
                               std::vector<ring_piece>& send) const {
  const auto s = static_cast<std::uint32_t>(segment);
  for (std::uint32_t c = 0; c < cut_.chunks(s); ++c) {
    const auto r = cut_.where(s, c);
    send.push_back({s, c, hop, own_samples_, slice(own_, r.begin - offset, r.size())});
  }
}

bool ring_collective::comes_here(const ring_piece& piece) const {
  if (exchanges())
    return piece.hop == 1;
  return piece.hop > 0 && piece.hop <= steps_of(all_reduce_schedule::ring, place_.ranks)
    && (work_ != ring_work::reduce_scatter || partial(piece))
    && (work_ != ring_work::all_gather || !partial(piece))
    && ring_receiver(piece.segment, piece.hop, place_.ranks) == place_.rank;
}

piece_fate ring_collective::judge(const ring_piece& piece) const {
  if (piece.segment >= cut_.ranks())
    return piece_fate::no_such_segment;
  if (piece.chunk >= cut_.chunks(piece.segment))
    return piece_fate::no_such_chunk;
  if (!comes_here(piece))
    return piece_fate::not_due;
  if (piece.data.size()
      != cut_.where(piece.segment, piece.chunk).size() * bytes_of(place_.elements))
    return piece_fate::wrong_size;
  if (piece.samples > most_samples
      || (!partial(piece) && contributed_ && piece.samples < own_samples_))
    return piece_fate::wrong_samples;
  if ((came(piece) & (partial(piece) ? partial_came : sum_came)) != 0)
    return piece_fate::repeated;
  // A complete sum includes this rank's part, so it cannot arrive before this rank has sent that
  // part.
  const bool left = work_ == ring_work::all_gather
    || (contributed_ && (piece.segment == place_.rank || (came(piece) & partial_came) != 0));
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
  if (adds_later()) {
    keep_terms(std::move(piece));
    return;
  }
  if (partial(piece)) {
    add_own(std::move(piece), send);
    return;
  }
  store(piece);
  if (piece.hop < steps_of(all_reduce_schedule::ring, place_.ranks)) {
    if (place_.round)
      piece.data.mark_rounded();
    ++piece.hop;
    send.push_back(std::move(piece));
  }
}

// Adds this rank's elements to a partial sum. The result goes to the next rank, or is the complete
// sum. Not used in an all_gather.
void ring_collective::add_own(ring_piece piece, std::vector<ring_piece>& send) {
  const auto r = cut_.where(piece.segment, piece.chunk);
  const auto own = slice(own_, r.begin, r.size());
  const bool last = piece.hop + 1 == place_.ranks;
  const bool scatters = work_ == ring_work::reduce_scatter;
  const auto offset = scatters ? cut_.segment(own_segment(place_)).begin : 0;
  payload total =
    last ? slice(sum_, r.begin - offset, r.size()) : payload::allocate(piece.data.size());
  // In an exchange, both ranks add in the order of ranks, so that they get the same bits. (The bits
  // of a NaN depend on the order.)
  const bool own_first = exchanges() && place_.rank == 0;
  add(place_.elements, own_first ? own : piece.data, own_first ? piece.data : own, total);
  piece.data = std::move(total);
  if (place_.round && !exchanges()) {
    place_.round(place_.bucket, r, piece.data.as_mutable_floats());
    piece.data.mark_rounded();
  }
  piece.samples += own_samples_;
  ++piece.hop;
  if (last)
    samples_ = piece.samples;
  if (last || scatters)
    --missing_;
  if (!(last && scatters) && !exchanges())
    send.push_back(std::move(piece));
}

// Keeps the vectors of both ranks without adding them (ring_place::adds_later). `sum_` is the
// vector of rank 0.
void ring_collective::keep_terms(ring_piece piece) {
  const bool own_first = place_.rank == 0;
  sum_ = own_first ? own_ : piece.data;
  addend_ = own_first ? std::move(piece.data) : own_;
  samples_ = piece.samples + own_samples_;
  --missing_;
}

// Stores a chunk of the result that another rank has completed. Used in an all_gather and in the
// second half of an all_reduce.
void ring_collective::store(const ring_piece& piece) {
  const auto r = cut_.where(piece.segment, piece.chunk);
  std::ranges::copy(piece.data.bytes(), slice(sum_, r.begin, r.size()).mutable_data());
  samples_ = piece.samples;
  --missing_;
}

std::uint32_t ring_collective::awaited_hop() const {
  if (exchanges())
    return std::ranges::find(came_, 0) != came_.end() ? 1 : 0;
  const auto ranks = static_cast<std::uint32_t>(place_.ranks);
  const auto end = work_ == ring_work::reduce_scatter ? ranks : 2 * ranks - 1;
  for (auto hop = work_ == ring_work::all_gather ? ranks : 1; hop < end; ++hop) {
    const auto segment = static_cast<std::uint32_t>(ring_received(place_.rank, hop, ranks));
    for (std::uint32_t chunk = 0; chunk < cut_.chunks(segment); ++chunk) {
      const ring_piece piece{segment, chunk, hop, 0, {}};
      if ((came(piece) & (partial(piece) ? partial_came : sum_came)) == 0)
        return hop;
    }
  }
  return 0;
}

} // namespace troupe
