#include "actors/collective/early_pieces.hpp"

#include <utility>

namespace troupe {

namespace {

std::string differ(const std::string& what, const std::string& theirs, const std::string& of,
                   const std::string& known) {
  return "has " + what + ' ' + theirs + ", " + of + ' ' + known
    + ": all ranks must make the same all-reduces, with the same options";
}

std::string vector_of(const proto::CollectivePiece& x) {
  return std::to_string(x.elements()) + ' ' + to_string(static_cast<element_kind>(x.kind()));
}

// True if this piece can arrive before this rank has sent anything. A sum that contains this rank's
// own elements cannot arrive so early.
bool is_possible(const proto::CollectivePiece& x, const member_options& own) {
  const auto how = static_cast<all_reduce_schedule>(x.schedule());
  if (how != all_reduce_schedule::ring)
    return x.step() == 1 && (how == all_reduce_schedule::one_shot || x.segment() == own.rank);
  return x.step() > 0 && x.step() < own.ranks && ring_receiver(x.from(), 1, own.ranks) == own.rank
    && ring_receiver(x.segment(), x.step(), own.ranks) == own.rank;
}

} // namespace

proto::CollectivePiece whole_of(const member_options& options, std::uint64_t number,
                                element_kind kind, std::size_t elements) {
  const auto bytes = elements * bytes_of(kind);
  proto::CollectivePiece result;
  result.set_number(number);
  result.set_from(static_cast<std::uint32_t>(options.rank));
  result.set_ranks(static_cast<std::uint32_t>(options.ranks));
  result.set_schedule(static_cast<std::uint32_t>(options.schedule.value_or(
    schedule_for(options.ranks, bytes, options.chunk_bytes, options.in_shared_memory))));
  result.set_kind(static_cast<std::uint32_t>(kind));
  result.set_elements(elements);
  result.set_chunk_elements(options.chunk_bytes / bytes_of(kind));
  return result;
}

std::string misfit(const proto::CollectivePiece& theirs, const proto::CollectivePiece& known,
                   const std::string& of) {
  if (theirs.ranks() != known.ranks())
    return differ("a number of ranks of", std::to_string(theirs.ranks()), of,
                  std::to_string(known.ranks()));
  if (theirs.elements() != known.elements() || theirs.kind() != known.kind())
    return differ("a vector of", vector_of(theirs), of, vector_of(known));
  if (theirs.schedule() != known.schedule())
    return differ("schedule", to_string(static_cast<all_reduce_schedule>(theirs.schedule())), of,
                  to_string(static_cast<all_reduce_schedule>(known.schedule())));
  if (theirs.chunk_elements() != known.chunk_elements())
    return differ("elements per chunk of", std::to_string(theirs.chunk_elements()), of,
                  std::to_string(known.chunk_elements()));
  return {};
}

std::string misfit(const proto::CollectivePiece& x, const std::string& why) {
  return "sent a piece that does not fit (segment " + std::to_string(x.segment()) + ", chunk "
    + std::to_string(x.chunk()) + ", step " + std::to_string(x.step()) + "): " + why;
}

std::string early_pieces::refusal(const proto::CollectivePiece& x, const payload& data) const {
  if (x.from() >= options_.ranks || x.from() == options_.rank)
    return misfit(x, "it says it is of rank " + std::to_string(x.from()));
  if (x.kind() > static_cast<std::uint32_t>(element_kind::float64))
    return misfit(x, "its elements are of an unknown kind");
  const auto kind = static_cast<element_kind>(x.kind());
  if (x.elements() > options_.max_bytes / bytes_of(kind))
    return "has a vector of " + vector_of(x) + ", longer than the "
      + std::to_string(options_.max_bytes) + " bytes that are allowed";
  if (auto text = misfit(x, whole_of(options_, x.number(), kind, x.elements()), "this rank");
      !text.empty())
    return text;
  if (!pieces_.empty())
    if (const auto& first = pieces_.front().header;
        x.elements() != first.elements() || x.kind() != first.kind())
      return misfit(x, first, "rank " + std::to_string(first.from()));
  const chunk_layout cut{
    x.elements(), segments_of(static_cast<all_reduce_schedule>(x.schedule()), options_.ranks),
    x.chunk_elements()};
  if (x.segment() >= cut.ranks())
    return misfit(x, describe(piece_fate::no_such_segment));
  if (x.chunk() >= cut.chunks(x.segment()))
    return misfit(x, describe(piece_fate::no_such_chunk));
  if (!is_possible(x, options_))
    return misfit(x, describe(piece_fate::not_due));
  if (data.size() != cut.where(x.segment(), x.chunk()).size() * bytes_of(kind))
    return misfit(x, describe(piece_fate::wrong_size));
  if (!aligned(kind, data))
    return misfit(x, "its bytes are not aligned");
  return {};
}

std::string early_pieces::keep(const proto::CollectivePiece& x, const payload& data) {
  auto result = refusal(x, data);
  if (result.empty() && came_.emplace(x.from(), x.segment(), x.chunk(), x.step()).second)
    pieces_.push_back({x, data});
  return result;
}

std::vector<early_pieces::early_piece> early_pieces::take() {
  came_.clear();
  return std::exchange(pieces_, {});
}

} // namespace troupe
