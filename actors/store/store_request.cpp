#include "actors/store/store_request.hpp"

#include <algorithm>
#include <stdexcept>

namespace troupe {

namespace {

std::string to_string(const range& x) {
  return '[' + std::to_string(x.begin) + ", " + std::to_string(x.end) + ')';
}

// Returns the reason why range `x` is invalid; empty if it is valid. `last` is the end of the range
// before `x`.
std::string problem_of(const range& x, std::size_t last, const range& within) {
  if (x.end < x.begin || !within.contains(x))
    return "elements " + to_string(x) + " are not in " + to_string(within);
  if (x.begin < last)
    return "elements " + to_string(x) + " begin before " + std::to_string(last)
      + ", where the range before them ends: ranges must ascend without overlap";
  return {};
}

void set_work(proto::StoreRequest& x, store_work what) {
  x.set_push(what == store_work::push || what == store_work::push_pull);
  x.set_assign(what == store_work::assign);
  x.set_pull(gets_values(what));
}

} // namespace

std::size_t elements_of(std::span<const range> ranges) noexcept {
  std::size_t result = 0;
  for (const auto& x : ranges)
    result += x.size();
  return result;
}

std::vector<store_part> cut(store_work what, std::span<const range> ranges, const payload& values,
                            std::span<const range> servers) {
  std::size_t last = 0;
  for (const auto& x : ranges) {
    if (const auto problem = problem_of(x, last, {0, servers.back().end}); !problem.empty())
      throw std::invalid_argument{problem};
    last = x.end;
  }
  const auto count = sends_values(what) ? elements_of(ranges) : 0;
  if (values.size() != count * sizeof(float))
    throw std::invalid_argument{std::to_string(values.size()) + " bytes of values for "
                                + std::to_string(count) + " float32 elements"};
  std::vector<store_part> result;
  std::size_t taken = 0;
  for (const auto& x : ranges)
    for (std::size_t s = 0; s < servers.size(); ++s) {
      const auto here = intersect(x, servers[s]);
      if (here.empty())
        continue;
      if (result.empty() || result.back().server != s) {
        result.push_back({.server = s, .header = {}, .values = {}, .begin = taken});
        set_work(result.back().header, what);
      }
      auto& part = result.back();
      part.header.add_begin(here.begin);
      part.header.add_count(here.size());
      part.count += here.size();
      taken += here.size();
    }
  if (sends_values(what))
    for (auto& x : result)
      x.values = values.slice_floats(x.begin, x.count);
  return result;
}

std::vector<range> ranges_of(const proto::StoreRequest& x, const payload& values,
                             const range& server, std::string& problem) {
  if (x.begin_size() != x.count_size())
    problem = std::to_string(x.begin_size()) + " ranges with " + std::to_string(x.count_size())
      + " lengths";
  else if (x.push() && x.assign())
    problem = "a push that is an assignment";
  else if (!x.push() && !x.assign() && !x.pull())
    problem = "nothing is to be done";
  std::vector<range> result;
  for (int i = 0; i < x.begin_size() && problem.empty(); ++i) {
    const range next{x.begin(i), x.begin(i) + x.count(i)};
    const auto last = result.empty() ? 0 : result.back().end;
    problem = problem_of(next, last, server);
    if (!result.empty() && next.begin == last)
      result.back().end = next.end;
    else
      result.push_back(next);
  }
  const auto expected = x.push() || x.assign() ? elements_of(result) * sizeof(float) : 0;
  if (problem.empty() && values.size() != expected)
    problem = std::to_string(values.size()) + " bytes of values where " + std::to_string(expected)
      + " were expected";
  if (problem.empty() && reinterpret_cast<std::uintptr_t>(values.data()) % alignof(float) != 0)
    problem = "values that do not begin at a multiple of 4 bytes";
  if (!problem.empty())
    result.clear();
  return result;
}

} // namespace troupe
