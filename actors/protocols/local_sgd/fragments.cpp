#include "actors/protocols/local_sgd/fragments.hpp"

#include <algorithm>

namespace troupe {

weight_fragments::weight_fragments(const job_context& context)
  : every_(context.job.local_sgd().every()) {
  if (context.job.has_checkpoint())
    captures_.push_back(context.job.checkpoint().every_steps());
  if (context.job.has_evaluate())
    captures_.push_back(context.job.evaluate().every_steps());
  const auto buckets = context.buckets();
  for (auto& part :
       split_evenly(context.parameters().size(), context.job.local_sgd().fragments())) {
    const auto begin = pieces_.size();
    for (auto& bucket : buckets)
      if (const auto piece = intersect(part, bucket); !piece.empty())
        pieces_.push_back(piece);
    fragments_.push_back({begin, pieces_.size()});
  }
}

std::optional<range> weight_fragments::due(std::uint64_t step) const {
  const auto captured = [step](std::uint64_t x) { return x > 0 && step % x == 0; };
  if (std::ranges::any_of(captures_, captured))
    return all();
  for (std::size_t f = 0; f < fragments_.size(); ++f)
    if ((f + 1) * every_ / fragments_.size() % every_ == step % every_)
      return fragments_[f];
  return std::nullopt;
}

} // namespace troupe
