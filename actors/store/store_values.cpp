#include "actors/store/store_values.hpp"

#include "kernels/cpu/reduce.hpp"

#include <algorithm>

namespace troupe {

store_values::store_values(range where, const store_rule& rule)
  : where_(where), rule_(rule), values_(payload::floats(where.size())),
    state_((rule.update ? rule.update->slots() : 0) * where.size()) {
  std::ranges::fill(values_.as_mutable_floats(), 0.0F);
}

// Makes a new version of the values. For each range, calls `change(before, pushed, after, offset)`
// with the old values, the pushed values, the memory for the new values, and the position of the
// range in this server's part.
template <class Change>
void store_values::change(std::span<const range> ranges, std::span<const float> values,
                          Change change) {
  const bool in_place = values_.unique();
  auto next = in_place ? values_ : payload::floats(where_.size());
  ++version_;
  const auto before = values_.as_floats();
  const auto after = next.as_mutable_floats();
  std::size_t copied = 0;
  std::size_t taken = 0;
  const auto copy_to = [&](std::size_t end) {
    if (!in_place)
      std::ranges::copy(before.subspan(copied, end - copied), after.begin() + copied);
  };
  for (const auto& x : ranges) {
    const auto begin = x.begin - where_.begin;
    copy_to(begin);
    change(before.subspan(begin, x.size()), values.subspan(taken, x.size()),
           after.subspan(begin, x.size()), begin);
    copied = begin + x.size();
    taken += x.size();
  }
  copy_to(where_.size());
  values_ = std::move(next);
}

void store_values::push(std::span<const range> ranges, std::span<const float> values) {
  const auto step = ++pushes_;
  change(ranges, values, [&](auto before, auto pushed, auto after, std::size_t offset) {
    if (!rule_.update) {
      add(before, pushed, after);
      return;
    }
    update_arguments<float> how;
    how.weights = before;
    how.gradient = pushed;
    how.updated = after;
    how.stride = where_.size();
    if (const auto slots = rule_.update->slots(); slots > 0)
      how.state = std::span{state_}.subspan(offset, (slots - 1) * where_.size() + before.size());
    how.rate = rule_.rate;
    how.step = step;
    update(*rule_.update, how);
  });
}

void store_values::assign(std::span<const range> ranges, std::span<const float> values) {
  change(ranges, values, [](auto, auto pushed, auto after, std::size_t) {
    std::ranges::copy(pushed, after.begin());
  });
}

payload store_values::pull(std::span<const range> ranges) const {
  std::size_t count = 0;
  for (const auto& x : ranges)
    count += x.size();
  if (ranges.size() == 1 && 2 * count > where_.size())
    return values_.slice_floats(ranges[0].begin - where_.begin, count);
  auto result = payload::floats(count);
  auto out = result.as_mutable_floats().begin();
  for (const auto& x : ranges)
    out = std::ranges::copy(values_.as_floats().subspan(x.begin - where_.begin, x.size()), out).out;
  return result;
}

} // namespace troupe
