// A rank of an all-reduce between processes. It repeats all-reduces until one fails.
// Usage: allreduce_rank RANK DEADLINE_MS SCHEDULE auto|tcp HOST:PORT ...

#include "actors/collective/collective.hpp"
#include "messages/configure.hpp"
#include "messages/errors.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include <algorithm>
#include <iostream>
#include <string>
#include <string_view>

int main(int count, char** arguments) {
  caf::actor_system_config cfg;
  troupe::configure(cfg);
  cfg.load<caf::io::middleman>();
  caf::actor_system sys{cfg};
  troupe::collective_options options;
  options.rank = std::stoul(arguments[1]);
  options.deadline = std::chrono::milliseconds{std::stol(arguments[2])};
  if (arguments[3] == std::string_view{"ring"})
    options.schedule = troupe::all_reduce_schedule::ring;
  options.share_memory = arguments[4] == std::string_view{"auto"};
  options.addresses.assign(arguments + 5, arguments + count);
  try {
    auto group = troupe::collective::connect(sys, options);
    std::vector<float> values(100'000);
    for (std::uint64_t k = 1;; ++k) {
      std::ranges::fill(values, static_cast<float>(options.rank + 1));
      group.all_reduce(values);
      const auto ranks = group.ranks();
      const auto expected = static_cast<float>(ranks * (ranks + 1) / 2);
      if (std::ranges::count(values, expected) != static_cast<std::ptrdiff_t>(values.size()))
        return 2;
      if (k == 20)
        std::cout << "works" << std::endl;
    }
  } catch (const troupe::collective_error& error) {
    const auto& x = error.failure();
    std::cout << to_string(x.code) << ", rank " << x.rank << ", step " << x.step << ", after "
              << x.waited.count() << " ms: " << x.text << std::endl;
    return 3;
  }
}
