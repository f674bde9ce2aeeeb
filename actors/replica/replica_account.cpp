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
  : workers_(std::move(workers)), rank_(rank), all_(workers_.size()) {}

void replica_account::applied(std::uint64_t samples) {
  ++own_.steps;
  own_samples_ += samples;
}

void replica_account::quarantined(std::uint64_t samples) {
  applied(samples);
  ++own_.quarantined;
  own_.quarantined_samples += samples;
}

std::vector<float> replica_account::own_counts() const {
  std::vector<float> result(elements(), 0);
  const auto own = std::span{result}.subspan(rank_ * fields, fields);
  own[0] = static_cast<float>(own_.steps);
  own[1] = static_cast<float>(own_.quarantined);
  own[2] = static_cast<float>(own_.quarantined_samples);
  return result;
}

replica_account::tally replica_account::tally_of(std::span<const float> counts, std::size_t rank) {
  const auto x = counts.subspan(rank * fields, fields);
  return {whole(x[0]), whole(x[1]), whole(x[2])};
}

bool replica_account::fits(std::span<const float> counts, std::uint64_t samples,
                           std::uint64_t own) const noexcept {
  constexpr float most = 1 << 24;
  if (counts.size() != elements() || !std::ranges::all_of(counts, [](float x) {
        return x >= 0 && x <= most && x == std::floor(x);
      }))
    return false;
  const auto mine = tally_of(counts, rank_);
  return own <= own_samples_ && own <= samples && mine.steps <= own_.steps
    && mine.quarantined <= own_.quarantined && mine.quarantined_samples <= own_.quarantined_samples;
}

std::uint64_t replica_account::most_steps(std::span<const float> counts) const {
  std::uint64_t result = 0;
  for (std::size_t rank = 0; rank < workers_.size(); ++rank)
    result = std::max(result, tally_of(counts, rank).steps);
  return result;
}

void replica_account::exchanged(std::span<const float> counts, std::uint64_t samples,
                                std::uint64_t own) {
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    const auto x = tally_of(counts, rank);
    all_[rank].steps += x.steps;
    all_[rank].quarantined += x.quarantined;
    all_[rank].quarantined_samples += x.quarantined_samples;
  }
  const auto mine = tally_of(counts, rank_);
  own_.steps -= mine.steps;
  own_.quarantined -= mine.quarantined;
  own_.quarantined_samples -= mine.quarantined_samples;
  own_samples_ -= own;
  samples_ += samples;
}

proto::Report replica_account::report() const {
  proto::Report result;
  std::uint64_t quarantined_samples = 0;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const auto& x = all_[i];
    auto* decided = result.add_decided();
    decided->set_worker(workers_[i].index);
    decided->set_incarnation(workers_[i].incarnation);
    decided->set_applied(x.steps - x.quarantined);
    decided->set_quarantined(x.quarantined);
    decided->set_sequence(x.steps);
    decided->set_fingerprint(x.steps);
    quarantined_samples += x.quarantined_samples;
  }
  result.set_samples(samples_ - quarantined_samples);
  result.set_quarantined_samples(quarantined_samples);
  result.set_version(all_[rank_].steps);
  return result;
}

} // namespace troupe
