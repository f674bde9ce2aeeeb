#include "actors/parameter_server/rounded_versions.hpp"

#include "kernels/cpu/rounding.hpp"
#include "messages/selection.hpp"

#include <utility>

namespace troupe {

payload rounded_versions::whole(const version_pool::snapshot& x) {
  {
    const std::scoped_lock lock{mutex_};
    for (const auto& kept : kept_)
      if (kept && kept->version == x.version)
        return kept->data;
  }
  auto result = part(where_, x.data.as_floats());
  const std::scoped_lock lock{mutex_};
  if (!kept_[0] || kept_[0]->version < x.version) {
    kept_[1] = std::move(kept_[0]);
    kept_[0] = {x.version, result};
  }
  return result;
}

payload rounded_versions::part(range part, std::span<const float> values) const {
  auto result = payload::floats(part.size());
  round_to_bfloat16(context_->parameters(), part, values, result.as_mutable_floats());
  result.mark_rounded();
  return result;
}

payload rounded_versions::rows(const proto::Selection& x, std::span<const float> values) const {
  auto result = payload::floats(selected(x, where_.begin, where_.end));
  auto out = result.as_mutable_floats();
  for (const auto& [begin, end] : stretches(x, where_.begin, where_.end)) {
    const auto from = values.subspan(begin - where_.begin, end - begin);
    round_to_bfloat16(context_->parameters(), {begin, end}, from, out.first(from.size()));
    out = out.subspan(from.size());
  }
  result.mark_rounded();
  return result;
}

} // namespace troupe
