#pragma once

#include "actors/model/job_context.hpp"
#include "actors/parameter_server/version_pool.hpp"
#include "messages/proto/wire.pb.h"

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

namespace troupe {

/// The weights of a shard as its workers get them with Job.exchange_precision BFLOAT16: trainable
/// parameters are rounded to bfloat16. whole() keeps the two newest rounded versions, because most
/// workers read the same ones. Thread-safe.
class rounded_versions {
public:
  /// @param where the shard's range of the parameters
  rounded_versions(std::shared_ptr<const job_context> context, range where)
    : context_(std::move(context)), where_(where) {}

  /// The whole range, rounded.
  payload whole(const version_pool::snapshot& x);

  /// A part of the range, rounded.
  /// @param values the part.size() elements of the part
  payload part(range part, std::span<const float> values) const;

  /// The selected elements of the range, rounded.
  /// @param values all elements of the range
  payload rows(const proto::Selection& x, std::span<const float> values) const;

private:
  std::shared_ptr<const job_context> context_;
  range where_;
  std::mutex mutex_;
  /// The newest version first.
  std::array<std::optional<version_pool::snapshot>, 2> kept_;
};

} // namespace troupe
