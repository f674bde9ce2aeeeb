#include "actors/parameter_server/gradient_journal.hpp"

#include <algorithm>

namespace troupe {

// Mixes the bits with the last part of SplitMix64 (Steele, Lea, Flood 2014).
std::uint64_t fingerprint(std::uint64_t incarnation, std::uint64_t sequence) noexcept {
  std::uint64_t x = incarnation * 0x9e3779b97f4a7c15 + sequence;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

bool gradient_journal::incarnation_state::over(std::uint64_t sequence) const noexcept {
  return sequence <= mark || (sequence - mark <= reach && (bits >> (sequence - mark - 1) & 1) != 0);
}

void gradient_journal::incarnation_state::note(std::uint64_t sequence) noexcept {
  if (sequence <= mark)
    return;
  if (sequence - mark > reach) {
    const auto shift = sequence - mark - reach;
    bits = shift < reach ? bits >> shift : 0;
    mark += shift;
  }
  bits |= std::uint64_t{1} << (sequence - mark - 1);
  while ((bits & 1) != 0) {
    bits >>= 1;
    ++mark;
  }
}

std::optional<proto::Pushed> gradient_journal::find(const proto::GradientId& id) {
  auto i = incarnations_.find({id.worker(), id.incarnation()});
  if (i == incarnations_.end() || !i->second.over(id.sequence()))
    return std::nullopt;
  const auto& [sequence, answer] = i->second.answers[id.sequence() % window];
  // A gradient may be rejected before all of its buckets have arrived. These are no repetitions.
  if (sequence != id.sequence() || answer.outcome() != proto::REJECTED_STALE)
    ++duplicates_;
  proto::Pushed result;
  // If the answer is no longer stored, the worker has sent newer gradients since then. So it
  // already got the answer, and the outcome of this repetition does not matter.
  if (sequence == id.sequence())
    result = answer;
  else
    result.set_outcome(proto::APPLIED);
  result.set_duplicate(true);
  return result;
}

void gradient_journal::record(const proto::GradientId& id, const proto::Pushed& answer,
                              std::uint64_t lease, std::uint64_t batch,
                              const proto::LossScaleState* scale) {
  auto& state = incarnations_[{id.worker(), id.incarnation()}];
  state.note(id.sequence());
  state.answers[id.sequence() % window] = {id.sequence(), answer};
  auto& decided = state.decided;
  const auto trained = [&] {
    decided.set_sequence(id.sequence());
    decided.set_lease(lease);
    decided.set_batch(batch);
    if (scale != nullptr)
      *decided.mutable_loss_scale() = *scale;
  };
  switch (answer.outcome()) {
  case proto::QUARANTINED:
    decided.set_quarantined(decided.quarantined() + 1);
    trained();
    break;
  case proto::APPLIED:
    decided.set_applied(decided.applied() + 1);
    trained();
    decided.set_fingerprint(decided.fingerprint() + fingerprint(id.incarnation(), id.sequence()));
    break;
  case proto::REJECTED_STALE:
  case proto::LATE_DROPPED:
  case proto::LATE_REQUEUED:
    decided.set_rejected_stale(decided.rejected_stale() + 1);
    break;
  default:
    decided.set_lost(decided.lost() + 1);
  }
}

void gradient_journal::fence(std::uint32_t worker, std::uint64_t incarnation) {
  incarnations_[{worker, incarnation}].fenced = true;
}

bool gradient_journal::fenced(const proto::GradientId& id) const {
  auto i = incarnations_.find({id.worker(), id.incarnation()});
  return i != incarnations_.end() && i->second.fenced;
}

proto::Decided gradient_journal::decided(std::uint32_t worker, std::uint64_t incarnation) const {
  proto::Decided result;
  if (auto i = incarnations_.find({worker, incarnation}); i != incarnations_.end())
    result = i->second.decided;
  result.set_worker(worker);
  result.set_incarnation(incarnation);
  return result;
}

std::vector<proto::Decided> gradient_journal::decided() const {
  std::vector<proto::Decided> result;
  for (auto& [id, state] : incarnations_)
    result.push_back(decided(id.first, id.second));
  return result;
}

} // namespace troupe
