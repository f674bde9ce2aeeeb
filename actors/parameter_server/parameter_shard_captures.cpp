// How a shard captures its state for checkpoints and evaluations, and restores it from a
// checkpoint.

#include "actors/checkpoint/send_capture.hpp"
#include "actors/parameter_server/parameter_shard.hpp"
#include "messages/problems.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

// A capture shares the memory of the weights and of their average, because a version does not
// change. The optimizer's state, and weights that workers change directly, change in place. So they
// are copied.
void parameter_shard::capture_if_due() {
  if (!options_.coordinator)
    return;
  const auto version = versions_->version();
  if (evaluations_.due(version))
    capture(evaluations_, true, {averages_ ? averages_->newest().data : newest_weights()});
  if (checkpoints_.due(version))
    capture_state();
}

// Captures the state of the last version, unless it is already captured. Called when the
// coordinator asks for a report: all gradients are then decided.
void parameter_shard::capture_end() {
  const auto version = versions_->version();
  if (options_.coordinator && version > first_version_ && checkpoints_.due_at_end(version))
    capture_state();
}

void parameter_shard::capture_state() {
  auto slots = state_slots();
  slots.insert(slots.begin(), newest_weights());
  capture(checkpoints_, false, slots);
}

payload parameter_shard::newest_weights() const {
  return live_ ? live_->copy() : versions_->newest().data;
}

std::vector<payload> parameter_shard::state_slots() const {
  std::vector<payload> result;
  for (std::size_t i = 0; i < context_->rule.slots(); ++i) {
    if (policy_->keeps_moments() && i == context_->rule.moment_slot()) {
      result.push_back(policy_->moment(versions_->version()));
      continue;
    }
    result.push_back(updater_.state(i));
  }
  if (averages_)
    result.push_back(averages_->newest().data);
  return result;
}

/// The slot of the moving average in a checkpoint. It follows the weights and the optimizer's
/// state.
std::size_t parameter_shard::average_slot() const noexcept {
  return 1 + context_->rule.slots();
}

void parameter_shard::capture(checkpoint_schedule& schedule, bool to_evaluate,
                              const std::vector<payload>& slots) {
  proto::CheckpointPart header;
  header.set_view(options_.view.number);
  header.set_version(versions_->version());
  header.set_to_evaluate(to_evaluate);
  if (!to_evaluate) {
    for (auto& x : journal_.decided())
      *header.add_mark() = x;
    if (auto pacing = policy_->pacing_state())
      *header.mutable_pacing() = *std::move(pacing);
  }
  const auto version = versions_->version();
  schedule.began(version);
  send_capture(this, options_.coordinator, options_.requests, std::move(header),
               slots_of(options_.index, slots), [this, &schedule, version](bool kept) {
                 if (schedule.ended(version, kept))
                   capture_state();
               });
}

caf::result<proto::Ack> parameter_shard::on_restore(const proto::Restore& x,
                                                    const payload& values) {
  if (!problem_of(x).empty() || x.slot() >= average_slot() + (averages_ ? 1 : 0)
      || values.size() != options_.where.size() * sizeof(float))
    return make_error(errc::malformed,
                      "ps/" + std::to_string(options_.index) + " was given "
                        + describe(x, values.size()));
  if (versions_->version() > x.version())
    return proto::Ack{}; // Training has begun, so this is a late repetition.
  if (x.has_pacing() && !policy_->restore_pacing(x.pacing()))
    return make_error(errc::malformed,
                      "ps/" + std::to_string(options_.index)
                        + " got invalid values for the pace of training from a checkpoint: "
                        + x.pacing().ShortDebugString());
  if (x.slot() > 0 && policy_->keeps_moments() && x.slot() - 1 == context_->rule.moment_slot()) {
    policy_->restore_moment(values.as_floats(), x.version());
  } else if (x.slot() == average_slot()) {
    averages_->begin();
    std::ranges::copy(values.as_floats(), averages_->next().begin());
    averages_->publish(x.version());
  } else if (x.slot() > 0) {
    updater_.restore(x.slot() - 1, values.as_floats());
  } else if (!std::exchange(restored_, true)) {
    // There is a free slot, because no worker reads before training begins.
    versions_->begin();
    std::ranges::copy(values.as_floats(), versions_->next().begin());
    if (averages_ && x.version() == 0)
      std::ranges::copy(values.as_floats(), averages_->initial().begin());
    policy_->restored(values.as_floats(), x.samples(), x.version());
    versions_->publish(x.version());
  }
  updater_.restore(x.samples(), x.version());
  samples_before_ = x.samples();
  first_version_ = x.version();
  admitted_ = x.version() * context_->job.async_ps().buffer();
  return proto::Ack{};
}

} // namespace troupe
