#include "actors/parameter_server/step_pieces.hpp"

#include "kernels/cpu/reduce.hpp"

#include <algorithm>

namespace troupe {

step_pieces::step_pieces(const range_pieces& pieces, std::size_t ranks)
  : pieces_(pieces), ranks_(ranks) {
  clear();
}

void step_pieces::clear() {
  for (auto& x : ranks_)
    x = {.gradient = piece_assembly{pieces_}};
  contradicted_ = false;
}

/// The state of a rank, for this gradient. If the rank has sent pieces of another gradient, drops
/// those pieces first.
step_pieces::rank_state& step_pieces::of(std::size_t rank, const proto::GradientId& id,
                                         std::uint64_t samples) {
  auto& x = ranks_[rank];
  const bool same =
    x.incarnation == id.incarnation() && x.sequence == id.sequence() && x.samples == samples;
  if (same)
    return x;
  contradicted_ = contradicted_ || x.sequence != 0;
  x = {.incarnation = id.incarnation(),
       .sequence = id.sequence(),
       .samples = samples,
       .gradient = piece_assembly{pieces_}};
  return x;
}

payload step_pieces::add(std::size_t rank, const proto::GradientId& id, std::uint64_t samples,
                         std::size_t piece, std::span<const float> values) {
  auto& x = of(rank, id, samples);
  x.sends_pieces = true;
  if (x.gradient.has(piece))
    return {};
  x.gradient.add(piece, values);
  return x.gradient.complete() ? x.gradient.data() : payload{};
}

void step_pieces::settle(std::size_t rank, const proto::GradientId& id, std::uint64_t samples,
                         const payload& gradient) {
  auto& x = of(rank, id, samples);
  x.settled = true;
  if (!x.gradient.complete())
    x.gradient.set(gradient);
}

bool step_pieces::under_way() const {
  return std::ranges::any_of(ranks_, &rank_state::sends_pieces);
}

bool step_pieces::ready(std::size_t piece) const {
  return !contradicted_
    && std::ranges::all_of(ranks_, [&](auto& x) { return x.gradient.has(piece); });
}

std::span<const float> step_pieces::sum(std::size_t piece) {
  const auto [begin, end] = pieces_[piece];
  const auto offset = begin - pieces_.where().begin;
  std::vector<std::span<const float>> terms;
  for (auto& x : ranks_)
    if (x.samples > 0)
      terms.push_back(x.gradient.data().as_floats().subspan(offset, end - begin));
  if (terms.size() == 1)
    return terms[0];
  sum_.assign(end - begin, 0.0F);
  if (terms.empty())
    return sum_;
  troupe::add(terms[0], terms[1], sum_);
  for (std::size_t i = 2; i < terms.size(); ++i)
    accumulate(sum_, terms[i]);
  return sum_;
}

std::uint64_t step_pieces::samples() const noexcept {
  std::uint64_t result = 0;
  for (auto& x : ranks_)
    result += x.samples;
  return result;
}

bool step_pieces::settled() const {
  return !contradicted_ && std::ranges::all_of(ranks_, &rank_state::settled);
}

} // namespace troupe
