#include "messages/selection.hpp"

#include <algorithm>
#include <ranges>

namespace troupe {

namespace {

/// The first selected row that contains `element` or lies after `element`.
auto first_row(const proto::Selection::Tensor& x, std::uint64_t element) {
  const auto row = element > x.begin() ? (element - x.begin()) / x.width() : 0;
  return std::ranges::lower_bound(x.row(), row);
}

/// Calls f(first, last) for each range [first, last) of selected elements in [begin, end), in
/// order.
template <class F>
void for_each_stretch(const proto::Selection& x, std::uint64_t begin, std::uint64_t end, F f) {
  auto at = begin;
  for (auto& tensor : x.tensor()) {
    if (tensor.end() <= at)
      continue;
    if (tensor.begin() >= end)
      break;
    if (tensor.begin() > at)
      f(at, tensor.begin());
    for (auto row = first_row(tensor, begin); row != tensor.row().end(); ++row) {
      const auto first = tensor.begin() + *row * tensor.width();
      if (first >= end)
        break;
      f(std::max(first, begin), std::min(first + tensor.width(), end));
    }
    at = std::min(tensor.end(), end);
  }
  if (at < end)
    f(at, end);
}

} // namespace

std::uint64_t selected(const proto::Selection& x, std::uint64_t begin, std::uint64_t end) {
  std::uint64_t result = 0;
  for_each_stretch(x, begin, end, [&](auto first, auto last) { result += last - first; });
  return result;
}

proto::Selection cut(const proto::Selection& x, std::uint64_t begin, std::uint64_t end) {
  proto::Selection result;
  for (auto& tensor : x.tensor()) {
    if (tensor.end() <= begin || tensor.begin() >= end)
      continue;
    auto& part = *result.add_tensor();
    part.set_begin(tensor.begin());
    part.set_end(tensor.end());
    part.set_width(tensor.width());
    const auto last = (std::min(end, tensor.end()) - 1 - tensor.begin()) / tensor.width();
    part.mutable_row()->Add(first_row(tensor, begin), std::ranges::upper_bound(tensor.row(), last));
  }
  return result;
}

std::vector<std::pair<std::uint64_t, std::uint64_t>>
stretches(const proto::Selection& x, std::uint64_t begin, std::uint64_t end) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> result;
  for_each_stretch(x, begin, end, [&](auto first, auto last) { result.emplace_back(first, last); });
  return result;
}

void gather(const proto::Selection& x, std::uint64_t begin, std::span<const float> all,
            std::span<float> out) {
  auto to = out.begin();
  for_each_stretch(x, begin, begin + all.size(), [&](auto first, auto last) {
    to = std::ranges::copy(all.subspan(first - begin, last - first), to).out;
  });
}

void scatter(const proto::Selection& x, std::uint64_t begin, std::span<const float> values,
             std::span<float> all) {
  for_each_stretch(x, begin, begin + all.size(), [&](auto first, auto last) {
    std::ranges::copy(values.first(last - first), all.subspan(first - begin).begin());
    values = values.subspan(last - first);
  });
}

std::string problem_of(const proto::Selection& x) {
  std::uint64_t before = 0;
  for (auto& tensor : x.tensor()) {
    const auto where = "rows of parameters " + std::to_string(tensor.begin()) + " to "
      + std::to_string(tensor.end());
    if (tensor.begin() < before || tensor.end() < tensor.begin())
      return where + " do not ascend";
    if (tensor.width() == 0 || (tensor.end() - tensor.begin()) % tensor.width() != 0)
      return where + " are " + std::to_string(tensor.width()) + " wide";
    const auto rows = (tensor.end() - tensor.begin()) / tensor.width();
    if (std::ranges::adjacent_find(tensor.row(), std::greater_equal<>{}) != tensor.row().end())
      return where + " do not ascend";
    if (!tensor.row().empty() && *tensor.row().rbegin() >= rows)
      return where + " are " + std::to_string(rows) + ", and number "
        + std::to_string(*tensor.row().rbegin()) + " is named";
    before = tensor.end();
  }
  return {};
}

} // namespace troupe
