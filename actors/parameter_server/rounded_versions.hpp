#pragma once

#include "actors/parameter_server/version_pool.hpp"
#include "kernels/cpu/rounding.hpp"

#include <mutex>
#include <optional>

namespace troupe {

/// The weights of a shard as its workers get them with Job.exchange_precision BFLOAT16: rounded to
/// bfloat16. The newest rounded version is kept, because most workers read the same version.
/// Thread-safe.
class rounded_versions {
public:
  /// @param parameters must outlive this object
  /// @param where the shard's range of the parameters
  rounded_versions(const layout& parameters, range where)
    : parameters_(parameters), where_(where) {}

  /// The whole range, rounded.
  payload whole(const version_pool::snapshot& x) {
    const std::scoped_lock lock{mutex_};
    if (!newest_ || newest_->version != x.version)
      newest_ = {x.version, part(where_, x.data.as_floats())};
    return newest_->data;
  }

  /// A part of the range, rounded.
  /// @param values the part.size() elements of the part
  payload part(range part, std::span<const float> values) const {
    auto result = payload::floats(part.size());
    round_to_bfloat16(parameters_, part, values, result.as_mutable_floats());
    result.mark_rounded();
    return result;
  }

private:
  const layout& parameters_;
  range where_;
  std::mutex mutex_;
  std::optional<version_pool::snapshot> newest_;
};

} // namespace troupe
