#include "actors/touched_rows.hpp"

#include "messages/selection.hpp"
#include "messages/zero_pages.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

range_list ranges_of(const proto::Selection& x, range where) {
  range_list result;
  for (const auto& [first, last] : stretches(x, where.begin, where.end)) {
    const range part{first - where.begin, last - where.begin};
    if (!result.empty() && result.back().end == part.begin)
      result.back().end = part.end;
    else
      result.push_back(part);
  }
  return result;
}

range_list tables_of(const plan& training, range where) {
  range_list result;
  for (const auto& table : training.row_sparse_gradients()) {
    const auto here = intersect(training.parameters().entries()[table.parameter].elements(), where);
    if (!here.empty())
      result.push_back({here.begin - where.begin, here.end - where.begin});
  }
  return result;
}

payload cleared_memory::take(range_list written) {
  std::size_t unused = 0;
  std::erase_if(vectors_, [&](auto& x) { return x.data.unique() && ++unused > most_; });
  const auto found = std::ranges::find_if(vectors_, [](auto& x) { return x.data.unique(); });
  if (found == vectors_.end()) {
    auto data = zero_floats(elements_);
    vectors_.push_back({data, std::move(written)});
    return data;
  }
  const auto all = found->data.as_mutable_floats();
  for (const auto& part : found->written)
    std::ranges::fill(all.subspan(part.begin, part.size()), 0.0F);
  found->written = std::move(written);
  return found->data;
}

} // namespace troupe
