#pragma once

#include "actors/parameter_server/version_pool.hpp"

#include <map>
#include <mutex>

namespace troupe {

/// The versions that workers read last of a shard, one for each: what their next gradients are
/// computed from. Noted by the reader, asked by the writer. Thread-safe.
class pulled_versions {
public:
  void note(std::uint32_t worker, const version_pool::snapshot& x) {
    const std::scoped_lock lock{mutex_};
    pulled_[worker] = x;
  }

  /// Empty where the worker has read another version since, or none.
  payload find(std::uint32_t worker, std::uint64_t version) const {
    const std::scoped_lock lock{mutex_};
    const auto i = pulled_.find(worker);
    return i != pulled_.end() && i->second.version == version ? i->second.data : payload{};
  }

  void drop(std::uint32_t worker) {
    const std::scoped_lock lock{mutex_};
    pulled_.erase(worker);
  }

private:
  mutable std::mutex mutex_;
  std::map<std::uint32_t, version_pool::snapshot> pulled_;
};

} // namespace troupe
