#include "actors/model/replica_state.hpp"
#include "actors/protocols/local_sgd/local_sgd_synchronizer.hpp"
#include "messages/problems.hpp"

#include <algorithm>

// How the state of a replica is captured for checkpoints and evaluations, and restored.

namespace troupe {

// Returns what this worker sends for a checkpoint or an evaluation. The weights and the outer
// momentum are equal on all workers, so each worker sends a part of them. The optimizer's state
// differs, so each worker sends all of its own state.
//
// For a run that continues with another number of workers, each worker also sends a part of its
// optimizer state. Such a run assumes that each step was an update. So this part is converted from
// the number of updates to the number of steps (recount).
std::vector<captured> local_sgd_synchronizer::captured_state(bool with_state) const {
  const auto rank = static_cast<std::uint32_t>(options_.rank);
  const auto share = replica_parts(*context_, workers_)[rank];
  auto slots = replica_.capture(share, with_state);
  if (!with_state)
    return slots_of(rank, std::move(slots));
  for (std::size_t slot = 0; slot < context_->rule.slots(); ++slot) {
    const auto factor = context_->rule.recount(slot, replica_.updates(), step_);
    for (auto& x : slots[1 + slot].as_mutable_floats())
      x = static_cast<float>(x * factor);
  }
  if (outer_ && !outer_->momentum().empty()) {
    slots.push_back(payload::floats(share.size()));
    std::ranges::copy(outer_->momentum().subspan(share.begin, share.size()),
                      slots.back().as_mutable_floats().begin());
  }
  auto result = slots_of(rank, std::move(slots));
  if (own_states(*context_, workers_) == 0)
    return result;
  const auto own = static_cast<std::uint32_t>(context_->rule.slots());
  const auto first = static_cast<std::uint32_t>(result.size()) + rank * own;
  for (std::uint32_t slot = 0; slot < own; ++slot)
    result.push_back(
      {rank, first + slot, replica_.state(slot, {0, context_->parameters().size()})});
  return result;
}

// Captures the replica if a checkpoint or an evaluation is due. Called after each average, but
// captures only after an average of all weights: all replicas are equal then. Another average may
// follow at the same step, so a step that is already captured is not captured again.
void local_sgd_synchronizer::capture_due() {
  if (apart_ || !options_.coordinator || step_ == first_step_)
    return;
  if (evaluations_.due(step_) && evaluations_.newest() != step_)
    capture(evaluations_, true);
  if (checkpoints_.due(step_) && checkpoints_.newest() != step_)
    capture(checkpoints_, false);
}

void local_sgd_synchronizer::capture(checkpoint_schedule& schedule, bool to_evaluate) {
  const auto workers = options_.view.of(job_kind::worker);
  proto::CheckpointPart header;
  header.set_view(view_number());
  header.set_version(step_);
  header.set_to_evaluate(to_evaluate);
  auto* mark = header.add_mark();
  mark->set_worker(options_.worker);
  mark->set_incarnation(workers[options_.rank].incarnation);
  mark->set_applied(account_.steps());
  mark->set_sequence(account_.steps());
  mark->set_lease(trained_.lease);
  mark->set_batch(trained_.batch);
  mark->set_updates(replica_.updates());
  if (loss_scale_)
    *mark->mutable_loss_scale() = to_proto(*loss_scale_);
  schedule.began(step_);
  send_capture(this, options_.coordinator, options_.requests, std::move(header),
               captured_state(!to_evaluate), [this, &schedule, step = step_](bool kept) {
                 if (schedule.ended(step, kept))
                   capture(checkpoints_, false);
               });
}

// The weights of a checkpoint are also the outer weights, because checkpoints follow an average.
bool local_sgd_synchronizer::restore(const proto::Restore& x, const payload& values) {
  const bool outer = outer_ && values.size() == context_->parameters().size() * sizeof(float);
  if (outer && x.slot() == context_->rule.slots() + 1 && !outer_->momentum().empty()) {
    outer_->restore_momentum(values.as_floats());
    return true;
  }
  if (!replica_.restore(x, values))
    return false;
  passed_samples_ = x.samples();
  averaged_ = x.version();
  if (outer && x.slot() == 0)
    outer_->restore_weights(values.as_floats());
  return true;
}

caf::result<proto::Ack> local_sgd_synchronizer::on_restore(const proto::Restore& x,
                                                           const payload& values) {
  if (step_ > x.version())
    return proto::Ack{}; // Training has begun, so this is a late repetition.
  if (!problem_of(x).empty() || !restore(x, values))
    return make_error(errc::malformed,
                      "worker/" + std::to_string(options_.worker) + " was given "
                        + describe(x, values.size()));
  step_ = first_step_ = x.version();
  return proto::Ack{};
}

} // namespace troupe
