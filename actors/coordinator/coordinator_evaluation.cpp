#include "actors/checkpoint/checkpoint_schedule.hpp"
#include "actors/coordinator/coordinator.hpp"

#include <algorithm>

// Evaluations in the midst of an epoch: whoever holds the weights sends those of a version that is
// due by itself, as for a checkpoint. It hears when they are evaluated, and so makes no more
// versions than are evaluated meanwhile.

namespace troupe {

caf::result<proto::Ack> coordinator::on_part_to_evaluate(const proto::CheckpointPart& x,
                                                         const payload& data) {
  if (!step_parts_ || phase_ == phase::done)
    return proto::Ack{};
  const auto outcome = step_parts_->add(x, data);
  if (outcome == checkpoint_assembly::outcome::misfit)
    return make_error(errc::malformed,
                      "part " + std::to_string(x.part())
                        + " of a version to evaluate does not fit");
  if (outcome == checkpoint_assembly::outcome::settled && !step_evaluations_.contains(x.version()))
    return proto::Ack{};
  auto& state =
    step_evaluations_.try_emplace(x.version(), open_checkpoint{clock().now(), {}}).first->second;
  auto answer = make_response_promise<proto::Ack>();
  state.answers.push_back(answer);
  if (outcome != checkpoint_assembly::outcome::complete)
    return answer;
  auto whole = step_parts_->take(x.version());
  // Those who sent the others ran out of patience, and made more.
  if (step_evaluations_.size() > checkpoint_schedule::most_open) {
    notice("step " + std::to_string(x.version())
             + " is not evaluated: evaluations take longer than the updates between them; raise "
               "evaluate.every_steps",
           notice_level::warning);
    end_step_evaluation(x.version());
    return answer;
  }
  evaluate order;
  order.number = ++evaluations_begun_;
  order.epoch = epoch_;
  order.version = x.version();
  order.midst = true;
  std::uint64_t begin = 0;
  for (auto& part : whole.slots[0]) {
    const auto size = part.as_floats().size();
    order.weights.push_back({begin, x.version(), std::move(part)});
    begin += size;
  }
  begin_evaluation(std::move(order), report_in_the_midst(x.version()));
  return answer;
}

/// With what workers have trained of leases that are not settled yet, as far as it is known.
epoch_report coordinator::report_in_the_midst(std::uint64_t step) {
  auto result = report_now();
  result.step = step;
  auto samples = epoch_samples_;
  auto loss_samples = epoch_loss_samples_;
  auto loss = epoch_loss_;
  for (auto& worker : workers_)
    if (worker.present) {
      samples += worker.live_samples;
      loss_samples += worker.live_samples;
      loss += worker.live_loss;
    }
  result.train_loss = loss / static_cast<double>(loss_samples);
  result.samples_per_second =
    static_cast<double>(samples) / std::max(seconds_since(epoch_began_), 1e-9);
  const auto records = options_.context->data.train_records;
  const auto trained = std::min(epoch_trained_before_ + samples, records);
  result.epochs_trained =
    static_cast<double>(epoch_) + static_cast<double>(trained) / static_cast<double>(records);
  return result;
}

void coordinator::end_step_evaluation(std::uint64_t version) {
  if (auto done = step_evaluations_.extract(version))
    for (auto& answer : done.mapped().answers)
      answer.deliver(proto::Ack{});
}

// As with checkpoints, a part may never come.
void coordinator::drop_late_evaluations() {
  if (!step_parts_)
    return;
  const auto how = requests().for_bytes(options_.context->parameters().size() * sizeof(float));
  bool dropped = false;
  for (const auto version : step_parts_->open())
    if (auto i = step_evaluations_.find(version); i != step_evaluations_.end()
        && clock().now() - i->second.since > how.timeout * how.attempts) {
      step_parts_->drop(version);
      end_step_evaluation(version);
      dropped = true;
    }
  if (dropped && phase_ == phase::finishing && reports_missing_ == 0 && !reports_.empty())
    await_checkpoints();
}

// At the end, when no more are made.
void coordinator::drop_incomplete_evaluations() {
  auto complete_up_to = reports_.front().captured_to_evaluate();
  for (auto& x : reports_)
    complete_up_to = std::min<std::uint64_t>(complete_up_to, x.captured_to_evaluate());
  for (const auto version : step_parts_->open())
    if (version > complete_up_to) {
      step_parts_->drop(version);
      end_step_evaluation(version);
    }
}

} // namespace troupe
