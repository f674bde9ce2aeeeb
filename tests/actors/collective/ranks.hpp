#pragma once

#include "actors/collective/collective.hpp"

#include "messages/configure.hpp"

#include <caf/actor_system_config.hpp>
#include <caf/io/middleman.hpp>

#include <functional>
#include <optional>
#include <thread>
#include <vector>

namespace troupe::test {

struct config : caf::actor_system_config {
  explicit config(bool network = false) {
    configure(*this);
    if (network)
      load<caf::io::middleman>();
  }
};

/// Calls `body(group)` in one thread per rank. Returns for each rank the exception that `body`
/// threw, or nullopt.
inline std::vector<std::optional<collective_failure>>
run(std::vector<collective>& groups, const std::function<void(collective&)>& body) {
  std::vector<std::optional<collective_failure>> result(groups.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < groups.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        body(groups[r]);
      } catch (const collective_error& error) {
        result[r] = error.failure();
      }
    });
  for (auto& x : threads)
    x.join();
  return result;
}

/// Adds up vectors of several sizes. Returns true if all sums are right.
template <class T>
bool sums_are_right(collective& group, std::size_t most = 100'003) {
  bool right = true;
  const auto ranks = group.ranks();
  for (const auto n : {std::size_t{3}, std::size_t{0}, ranks - 1, most}) {
    std::vector<T> x(n);
    for (std::size_t i = 0; i < n; ++i)
      x[i] = static_cast<T>(group.rank() + 1 + i % 7);
    group.all_reduce(x);
    for (std::size_t i = 0; i < n; ++i)
      right = right && x[i] == static_cast<T>(ranks * (ranks + 1) / 2 + ranks * (i % 7));
  }
  return right;
}

} // namespace troupe::test
