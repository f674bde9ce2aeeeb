#pragma once

#include "actors/parameter_server/version_pool.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace troupe {

/// Stores the versions of the weights that each worker last read from a shard. Some corrections for
/// staleness compare the newest weights with those from which a gradient was computed. The shard's
/// reader records each version that a worker pulls. The shard records each version that it sends
/// without a pull. Thread-safe.
class pulled_versions {
public:
  /// @param workers the workers that read from this shard; other workers are ignored
  /// @param kept number of versions to store per worker, at least 1
  explicit pulled_versions(std::set<std::uint32_t> workers, std::size_t kept = 1)
    : workers_(std::move(workers)), kept_(kept) {}

  void note(std::uint32_t worker, const version_pool::snapshot& x) {
    const std::scoped_lock lock{mutex_};
    if (!workers_.contains(worker) || held(worker, x.version))
      return;
    auto& all = pulled_[worker];
    if (all.size() == kept_)
      all.pop_front();
    all.push_back(x);
  }

  /// The weights of a version that the worker has read. Empty if the worker has not read this
  /// version, or has read `kept` newer versions since then.
  payload find(std::uint32_t worker, std::uint64_t version) const {
    const std::scoped_lock lock{mutex_};
    const auto* found = held(worker, version);
    return found ? found->data : payload{};
  }

  void drop(std::uint32_t worker) {
    const std::scoped_lock lock{mutex_};
    pulled_.erase(worker);
  }

private:
  const version_pool::snapshot* held(std::uint32_t worker, std::uint64_t version) const {
    const auto i = pulled_.find(worker);
    if (i == pulled_.end())
      return nullptr;
    const auto found = std::ranges::find(i->second, version, &version_pool::snapshot::version);
    return found == i->second.end() ? nullptr : &*found;
  }

  std::set<std::uint32_t> workers_;
  std::size_t kept_;
  mutable std::mutex mutex_;
  /// Oldest first.
  std::map<std::uint32_t, std::deque<version_pool::snapshot>> pulled_;
};

} // namespace troupe
