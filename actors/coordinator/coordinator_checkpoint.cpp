#include "actors/checkpoint/resume.hpp"
#include "actors/coordinator/coordinator.hpp"
#include "actors/model/job_file.hpp"
#include "messages/configure.hpp"

#include <algorithm>
#include <utility>

// Checkpoints: how a run goes on from one, and how others come about. Whoever holds the state sends
// its parts by itself; here they are brought together with what the book of leases knows.

namespace troupe {

// -- going on from one --------------------------------------------------------------------------

void coordinator::restore() {
  proto::Restore order;
  order.set_view(view_.number);
  if (const auto& from = options_.resume) {
    order.set_version(from->manifest.step);
    order.set_samples(from->manifest.samples);
    hand_over(order, from->slots);
  } else if (options_.initial.size() > 0) {
    hand_over(order, {std::exchange(options_.initial, {})});
  } else {
    start_training();
  }
}

void coordinator::hand_over(proto::Restore order, const std::vector<payload>& slots) {
  auto missing = std::make_shared<std::size_t>(reporters_.size() * slots.size());
  const auto copies = uses_shards() ? 1 : reporters_.size();
  const auto how = requests().for_bytes(copies * slots.size() * slots[0].size());
  for (std::size_t i = 0; i < reporters_.size(); ++i) {
    const auto all = options_.context->parameters().size();
    const auto where = uses_shards() ? options_.context->shard(i, shards_.size()) : range{0, all};
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
      order.set_slot(static_cast<std::uint32_t>(slot));
      ask(
        this, reporters_[i], how,
        [this, missing](const proto::Ack&) {
          if (--*missing == 0 && phase_ == phase::opening)
            start_training();
        },
        [this](const caf::error& error) {
          fail("cannot hand over the weights to begin with: " + explain(error));
        },
        order, slots[slot].slice_floats(where.begin, where.size()));
    }
  }
}

// -- making others ------------------------------------------------------------------------------

caf::result<proto::Ack> coordinator::on_checkpoint_part(const proto::CheckpointPart& x,
                                                        const payload& data) {
  if (x.to_evaluate())
    return on_part_to_evaluate(x, data);
  if (!checkpoint_writer_ || phase_ == phase::done)
    return proto::Ack{};
  const auto outcome = checkpoint_parts_->add(x, data);
  if (outcome == checkpoint_assembly::outcome::misfit)
    return make_error(errc::malformed,
                      "part " + std::to_string(x.part()) + " of a checkpoint does not fit");
  // One that is being written is settled for the assembly, but not for those who wait.
  if (outcome == checkpoint_assembly::outcome::settled && !checkpoints_.contains(x.version()))
    return proto::Ack{};
  auto& state =
    checkpoints_.try_emplace(x.version(), open_checkpoint{clock().now(), {}}).first->second;
  auto answer = make_response_promise<proto::Ack>();
  state.answers.push_back(answer);
  if (outcome == checkpoint_assembly::outcome::complete)
    write(checkpoint_parts_->take(x.version()));
  return answer;
}

void coordinator::write(const assembled_checkpoint& x) {
  std::vector<lease_mark> marks;
  write_checkpoint order;
  for (auto& worker : workers_) {
    const auto least = x.least(worker.account.worker, worker.account.incarnation);
    marks.push_back({least.lease(), least.batch()});
    order.manifest.marks.push_back({worker.account.worker, worker.account.incarnation,
                                    least.sequence(), least.lease(), least.batch()});
  }
  const auto cut = leases_->cut(marks, x.newest_lease());
  if (!cut) {
    end_checkpoint(x.version, "its parts came more than two epochs late");
    return;
  }
  const auto& context = *options_.context;
  order.manifest.step = x.version;
  order.manifest.cut = *cut;
  order.manifest.samples = context.data.train_records * (cut->epoch + 1) - cut->samples();
  order.manifest.view = view_.number;
  order.manifest.data = context.data;
  order.manifest.job = job_text(job());
  order.manifest.job_hash = context.hash;
  order.manifest.troupe_version = version();
  order.slots = x.slots;
  send(checkpoint_writer_, std::move(order));
}

void coordinator::on_checkpoint_written(const checkpoint_written& x) {
  stalls_.moved(clock().now());
  if (!x.kept_too_many.empty())
    notice("older checkpoints were not removed: " + x.kept_too_many, notice_level::warning);
  end_checkpoint(x.step, x.problem);
}

// A disk that fails is told of once, not with every checkpoint.
void coordinator::end_checkpoint(std::uint64_t version, const std::string& problem) {
  auto done = checkpoints_.extract(version);
  if (done)
    for (auto& answer : done.mapped().answers)
      answer.deliver(proto::Ack{});
  if (problem.empty()) {
    checkpoints_failing_ = 0;
    last_checkpoint_ = (checkpoint_folder(options_.output) / checkpoint_name(version)).string();
  } else {
    ++checkpoints_failed_;
    if (++checkpoints_failing_ == 1)
      notice("the checkpoint of step " + std::to_string(version)
               + " was not written, and training "
                 "goes on: "
               + problem,
             notice_level::warning);
  }
  if (phase_ == phase::finishing && reports_missing_ == 0 && !reports_.empty())
    await_checkpoints();
}

// A part may never come: its holder is gone, or has missed gradients of a worker that vanished, and
// so makes other versions than the others.
void coordinator::drop_late_checkpoints() {
  if (!checkpoint_parts_)
    return;
  const auto limit = requests().timeout * requests().attempts;
  for (const auto version : checkpoint_parts_->open())
    if (auto i = checkpoints_.find(version);
        i != checkpoints_.end() && clock().now() - i->second.since > limit) {
      checkpoint_parts_->drop(version);
      end_checkpoint(version, "some of its parts did not come");
    }
}

// At the end, when no more are made: waits for what is under way.
void coordinator::await_checkpoints() {
  auto complete_up_to = reports_.front().captured();
  for (auto& x : reports_)
    complete_up_to = std::min<std::uint64_t>(complete_up_to, x.captured());
  for (const auto version : checkpoint_parts_->open())
    if (version > complete_up_to) {
      checkpoint_parts_->drop(version);
      end_checkpoint(version, "some of its parts were not made");
      return;
    }
  drop_incomplete_evaluations();
  if (!checkpoints_.empty() || !step_evaluations_.empty())
    return;
  if (checkpoints_failed_ > 1)
    notice(std::to_string(checkpoints_failed_) + " checkpoints were not written",
           notice_level::warning);
  settle_accounts();
}

} // namespace troupe
