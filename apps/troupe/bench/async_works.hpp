#pragma once

#include "messages/proto/job.pb.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::bench {

/// A job that `troupe bench async` trains: one of the examples, with changes.
struct async_work {
  std::string_view name;
  std::string_view what;
  /// A job file's text.
  const std::string_view* example;
  /// As of --set.
  std::vector<std::string> changes;
  /// One of the workers is five times slower than the others.
  bool slow = false;

  /// With ASYNC_PS and without output.
  /// @param epochs 0: the example's
  proto::Job job(std::uint64_t seed, std::uint32_t epochs) const;
};

std::span<const async_work> async_works();

/// A way to compensate for staleness, and its source.
struct async_recipe {
  std::string_view name;
  proto::AsyncPs::Compensation kind;
  std::string_view paper;
};

/// The default first.
std::span<const async_recipe> async_recipes();

/// MNIST's perceptron, for `--work=straggler`.
inline constexpr std::string_view straggler_name = "straggler";

/// The same, for `--work=backup`.
inline constexpr std::string_view backup_name = "backup";

} // namespace troupe::bench
