#pragma once

#include "actors/parameter_server/version_pool.hpp"

#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace troupe {

/// The version that each worker last read from a shard: its next gradient is computed from this
/// version. The reader records it and the writer looks it up. Thread-safe.
class pulled_versions {
public:
  /// @param workers the workers that read here; no other worker holds a version
  explicit pulled_versions(std::set<std::uint32_t> workers) : workers_(std::move(workers)) {}

  void note(std::uint32_t worker, const version_pool::snapshot& x) {
    const std::scoped_lock lock{mutex_};
    if (workers_.contains(worker))
      pulled_[worker] = x;
  }

  /// Empty if the worker has since read another version, or has read none.
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
  std::set<std::uint32_t> workers_;
  mutable std::mutex mutex_;
  std::map<std::uint32_t, version_pool::snapshot> pulled_;
};

} // namespace troupe
