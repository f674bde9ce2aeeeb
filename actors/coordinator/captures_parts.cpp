#include "actors/checkpoint/checkpoint_schedule.hpp"
#include "actors/checkpoint/resume.hpp"
#include "actors/coordinator/captures.hpp"
#include "actors/model/job_file.hpp"
#include "actors/model/replica_state.hpp"
#include "messages/configure.hpp"
#include "messages/problems.hpp"

#include <utility>

// This file: captures. Shards and ranks send their parts of a version of the weights. During an
// epoch, they send the parts by themselves; at the end of a run, they are asked for the last
// version. A complete version is evaluated, or it is written as a checkpoint. The coordinator adds
// the state of the run (`capture_context`): for an evaluation, the epoch's totals; for a
// checkpoint, the samples that remain to be trained.

namespace troupe {

namespace {

/// Versions of at most this many bytes are copied if they must wait (checkpoint_assembly), because
/// copying them takes little time.
constexpr std::size_t small = std::size_t{8} << 20;

} // namespace

void captures::on_begin(const begin_run& x) {
  handles_ = x.handles;
  if (!handles_)
    return; // No task trains.
  end_if_worse(options_.first_version);
  checkpoint_assembly::options how;
  how.parts = handles_->parts;
  how.one_worker_each = !options_.context->protocol.uses_shards();
  how.first = options_.first_version;
  // The largest possible number of the last version: each update uses at least one sample.
  how.last = how.first + job().epochs() * options_.context->data.train_records;
  how.small = small;
  if (job().evaluate().every_steps() > 0) {
    how.every = job().evaluate().every_steps();
    to_evaluate_.emplace(how);
  }
  if (writer_) {
    const auto workers = view_.of(job_kind::worker).size();
    how.slots = 1 + state_names(*options_.context, workers).size();
    how.whole = own_states(*options_.context, workers);
    how.every = job().checkpoint().every_steps();
    checkpoints_.emplace(how);
  }
}

caf::result<proto::Ack> captures::on_part(const proto::CheckpointPart& x, const payload& data) {
  if (!x.to_evaluate() && !writer_ && job().has_checkpoint())
    return proto::Ack{}; // There is no output directory.
  auto& of = x.to_evaluate() ? to_evaluate_ : checkpoints_;
  const std::string what = x.to_evaluate() ? "a version to evaluate" : "a checkpoint";
  if (!of)
    return make_error(errc::malformed, "a part of " + what + ", but this job has none");
  auto problem = problem_of(x);
  if (problem.empty())
    problem = of->problem(x, data.size());
  if (!problem.empty())
    return make_error(errc::malformed, "a part of " + what + " does not fit: " + problem);
  // A message without data is a question: does this actor want this part?
  if (data.empty() && !handles_->parts[x.part()].empty()) {
    if (of->wants(x))
      return proto::Ack{};
    return make_error(errc::failed,
                      "version " + std::to_string(x.version()) + " needs no more of this part");
  }
  const auto outcome = of->add(x, data, clock().now());
  if (x.to_evaluate())
    next_evaluation();
  else
    next_checkpoint();
  end_if_done();
  if (outcome == checkpoint_assembly::outcome::refused)
    return make_error(errc::failed, "version " + std::to_string(x.version()) + " is left out");
  return proto::Ack{};
}

// Warns the operator when the first version is skipped. The number of skipped versions is reported
// at the end of the run.
void captures::report_missed(checkpoint_assembly& of, std::uint64_t& told, bool to_evaluate) {
  if (told > 0 || of.missed() == 0)
    return;
  told = of.missed();
  notice(to_evaluate
           ? "some steps are not evaluated: evaluations take longer than the updates "
             "between them; raise evaluate.every_steps"
           : "some checkpoints are left out: sending and writing one takes longer than the "
             "updates between them; raise checkpoint.every_steps",
         notice_level::warning);
}

// -- evaluations --------------------------------------------------------------------------------

void captures::next_evaluation() {
  report_missed(*to_evaluate_, missed_evaluations_reported_, true);
  auto whole = to_evaluate_->next();
  if (!whole)
    return;
  const capture_question question{whole->version};
  ask(
    this, run_, requests(),
    [this, x = std::move(*whole)](const capture_context& context) {
      evaluate_version(x, context.report);
    },
    [this](const caf::error& error) { fail("cannot evaluate a version: " + explain(error)); },
    question);
}

void captures::evaluate_version(assembled_checkpoint whole, const epoch_report& report) {
  evaluate order;
  order.number = ++evaluations_begun_;
  order.epoch = report.epoch - 1;
  order.version = whole.version;
  order.midst = true;
  std::uint64_t begin = 0;
  for (auto& part : whole.slots[0]) {
    const auto size = part.as_floats().size();
    order.weights.push_back({begin, whole.version, std::move(part)});
    begin += size;
  }
  begin_evaluation(std::move(order), report);
}

// -- checkpoints --------------------------------------------------------------------------------

void captures::next_checkpoint() {
  report_missed(*checkpoints_, missed_checkpoints_reported_, false);
  auto whole = checkpoints_->next();
  if (!whole)
    return;
  capture_question question{whole->version, {}, whole->newest_lease()};
  std::vector<checkpoint_mark> marks;
  for (auto& worker : view_.of(job_kind::worker)) {
    const auto least = whole->least(worker.task.index, worker.incarnation);
    question.marks.push_back({least.lease(), least.batch()});
    marks.push_back(
      {worker.task.index, worker.incarnation, least.sequence(), least.lease(), least.batch()});
    if (least.has_updates())
      marks.back().updates = least.updates();
    if (least.has_loss_scale())
      marks.back().loss_scale = from_proto(least.loss_scale());
    else if (options_.context->training->loss_scale_feed())
      marks.back().loss_scale = resumed_scale(options_.resumed_marks, worker.task.index);
  }
  ask(
    this, run_, requests(),
    [this, x = std::move(*whole), marks = std::move(marks)](const capture_context& context) {
      if (context.cut)
        write(x, marks, *context.cut);
      else
        end_checkpoint(
          x.version,
          "its parts arrived so late, more than two epochs after this step, that it is "
          "no longer known which samples they contain");
    },
    [this](const caf::error& error) { fail("cannot write a checkpoint: " + explain(error)); },
    question);
}

void captures::write(const assembled_checkpoint& whole, std::vector<checkpoint_mark> marks,
                     const lease_cut& cut) {
  const auto& context = *options_.context;
  write_checkpoint order;
  order.manifest.marks = std::move(marks);
  order.manifest.step = whole.version;
  order.manifest.cut = cut;
  order.manifest.samples = context.data.train_records * (cut.epoch + 1) - cut.samples();
  order.manifest.view = view_.number;
  order.manifest.data = context.data;
  order.manifest.fingerprint = context.fingerprint;
  order.manifest.pacing = whole.pacing;
  order.manifest.job = job_text(job());
  order.manifest.job_hash = context.hash;
  order.manifest.troupe_version = version();
  order.slots = whole.slots;
  held_ = std::move(order);
  held_for_ = evaluations_begun_;
  write_held();
}

void captures::write_held() {
  const bool waits = compares() && !evaluating_.empty() && evaluating_.begin()->first <= held_for_
    && (!hold_limit_ || clock().now() < *hold_limit_);
  if (!held_ || waits)
    return;
  if (compares() && options_.best.step > 0)
    held_->manifest.best = options_.best;
  send(writer_, *std::exchange(held_, std::nullopt));
}

void captures::on_written(const checkpoint_written& x) {
  send(options_.progress, moved_on{});
  if (!x.kept_too_many.empty())
    notice("older checkpoints were not removed: " + x.kept_too_many, notice_level::warning);
  end_checkpoint(x.step, x.problem);
}

// Notes that a checkpoint was written, or why it was not. If several checkpoints in a row cannot be
// written, only the first failure is reported.
void captures::end_checkpoint(std::uint64_t version, const std::string& problem) {
  checkpoints_->done();
  if (problem.empty()) {
    checkpoints_failing_ = 0;
    const auto path = checkpoint_folder(options_.output) / checkpoint_name(version);
    send(run_, checkpoint_kept{path.string()});
  } else {
    ++checkpoints_failed_;
    if (++checkpoints_failing_ == 1)
      notice("the checkpoint of step " + std::to_string(version)
               + " was not written, and training "
                 "continues: "
               + problem,
             notice_level::warning);
  }
  next_checkpoint();
  end_if_done();
}

} // namespace troupe
