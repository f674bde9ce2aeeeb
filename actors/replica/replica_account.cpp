#include "actors/replica/replica_account.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {

namespace {

std::uint64_t whole(float x) {
  return static_cast<std::uint64_t>(std::llround(x));
}

} // namespace

replica_account::replica_account(std::vector<counted_worker> workers, std::size_t rank)
  : workers_(std::move(workers)), rank_(rank), quarantined_(workers_.size(), 0) {}

void replica_account::applied(std::uint64_t samples) {
  own_samples_ += samples;
}

void replica_account::quarantined(std::uint64_t samples) {
  own_samples_ += samples;
  own_quarantined_samples_ += samples;
  ++own_quarantined_;
}

std::vector<float> replica_account::own_counts() const {
  std::vector<float> result(elements(), 0);
  result[2 * rank_] = static_cast<float>(own_quarantined_);
  result[2 * rank_ + 1] = static_cast<float>(own_quarantined_samples_);
  return result;
}

bool replica_account::fits(std::span<const float> counts, std::uint64_t samples) const noexcept {
  constexpr float most = 1 << 24;
  return counts.size() == elements() && samples >= own_samples_
    && std::ranges::all_of(counts,
                           [](float x) { return x >= 0 && x <= most && x == std::floor(x); })
    && counts[2 * rank_] == static_cast<float>(own_quarantined_)
    && counts[2 * rank_ + 1] == static_cast<float>(own_quarantined_samples_);
}

void replica_account::exchanged(std::span<const float> counts, std::uint64_t samples) {
  samples_ += samples;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    quarantined_[i] += whole(counts[2 * i]);
    quarantined_samples_ += whole(counts[2 * i + 1]);
  }
  own_samples_ = own_quarantined_ = own_quarantined_samples_ = 0;
}

proto::Report replica_account::report(std::uint64_t steps) const {
  proto::Report result;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    auto* decided = result.add_decided();
    decided->set_worker(workers_[i].index);
    decided->set_incarnation(workers_[i].incarnation);
    decided->set_applied(steps - quarantined_[i]);
    decided->set_quarantined(quarantined_[i]);
    decided->set_sequence(steps);
    decided->set_fingerprint(steps);
  }
  result.set_samples(samples_ - quarantined_samples_);
  result.set_quarantined_samples(quarantined_samples_);
  result.set_version(steps);
  return result;
}

} // namespace troupe
