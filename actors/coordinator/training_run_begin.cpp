#include "actors/coordinator/training_run.hpp"
#include "actors/link/port.hpp"
#include "actors/model/global_batch.hpp"
#include "actors/model/replica_state.hpp"
#include "actors/seconds.hpp"

#include <algorithm>
#include <utility>

// This file: the beginning of a run. A run starts from the weights of a checkpoint, from the
// initial weights of the program, or from the initializers of the layers. A run of the exact solver
// is also here.

namespace troupe {

void training_run::on_view(const view_opened& x) {
  view_ = x.view;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> workers;
  for (auto& y : view_.of(job_kind::worker))
    workers.emplace_back(y.task.index, y.incarnation);
  run_book::options how;
  how.records = options_.context->data.train_records;
  how.batch = static_cast<std::uint32_t>(options_.context->gradient_samples());
  how.epochs = job().epochs();
  how.in_step = options_.context->protocol.in_step;
  how.remember = job().has_checkpoint();
  book_.emplace(how, workers);
  loss_watch::options watched;
  watched.workers = workers.size();
  watched.guess = options_.constant_guess;
  watched.updates_per_epoch = static_cast<double>(how.records)
    / static_cast<double>(how.batch * (how.in_step ? workers.size() : 1));
  watched.features = options_.context->data.features;
  loss_watch_.emplace(job(), watched);
  // The first line of the run already reports the batch for all workers of the cluster. Report the
  // batch again if this view has fewer workers, or is not the first view.
  if (workers.size() < options_.workers || options_.views_before > 0)
    report_batch();
}

void training_run::report_batch() {
  notice("batch: " + batch_text(*options_.context, book_->present(), options_.workers));
}

void training_run::on_begin(const begin_run& x) {
  if (phase_ != phase::opening)
    return;
  handles_ = x.handles;
  delayed_send(this, tick_interval, tick{});
  if (handles_)
    restore();
  else
    start_solver();
}

void training_run::restore() {
  proto::Restore order;
  order.set_view(view_.number);
  if (const auto& from = options_.resume) {
    first_step_ = from->manifest.step;
    order.set_version(first_step_);
    order.set_samples(from->manifest.samples);
    if (const auto& pacing = from->manifest.pacing)
      *order.mutable_pacing() = *pacing;
    hand_over(order, states_of(*from));
  } else if (options_.initial.size() > 0) {
    const initial_state all{{std::exchange(options_.initial, {})}, {}};
    hand_over(order, std::vector(handles_->reporters.size(), all));
  } else {
    start_training();
  }
}

// Returns the state that each shard or rank receives. If the checkpoint has a separate optimizer
// state for each worker, each worker receives its own state instead of the shared one.
std::vector<training_run::initial_state> training_run::states_of(const checkpoint& from) {
  const auto& context = *options_.context;
  const auto workers = view_.of(job_kind::worker).size();
  const auto own = own_states(context, workers);
  const auto shared = 1 + state_names(context, 1).size();
  const bool each = own > 0 && from.slots.size() == shared + own;
  if (own > 0 && !each)
    notice("the checkpoint has no separate optimizer state for each of these workers; all workers "
           "begin with the same state");
  const auto& marks = from.manifest.marks;
  std::vector<initial_state> result(handles_->reporters.size());
  for (std::size_t i = 0; i < result.size(); ++i) {
    for (std::size_t slot = 0; slot < shared; ++slot) {
      const bool its = each && slot >= 1 && slot <= context.rule.slots();
      result[i].slots.push_back(
        from.slots[its ? shared + i * context.rule.slots() + slot - 1 : slot]);
    }
    if (each && i < marks.size())
      result[i].updates = marks[i].updates;
  }
  return result;
}

void training_run::hand_over(proto::Restore order, const std::vector<initial_state>& all) {
  std::size_t bytes = 0;
  auto missing = std::make_shared<std::size_t>(0);
  for (std::size_t i = 0; i < all.size(); ++i) {
    bytes += handles_->restored[i].size() * sizeof(float) * all[i].slots.size();
    *missing += all[i].slots.size();
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto where = handles_->restored[i];
    order.clear_updates();
    if (all[i].updates)
      order.set_updates(*all[i].updates);
    for (std::size_t slot = 0; slot < all[i].slots.size(); ++slot) {
      order.set_slot(static_cast<std::uint32_t>(slot));
      ask(
        this, handles_->reporters[i], requests().once(bytes),
        [this, missing](const proto::Ack&) {
          if (--*missing == 0 && phase_ == phase::opening)
            start_training();
        },
        [this](const caf::error& error) {
          fail_without_task("cannot send the initial weights: " + explain(error));
        },
        order, all[i].slots[slot].slice_floats(where.begin, where.size()));
    }
  }
}

void training_run::start_training() {
  phase_ = phase::training;
  began_ = clock().now();
  watch();
  std::optional<lease_cut> cut;
  if (options_.resume) {
    cut = options_.resume->manifest.cut;
    // All reporters have received the state of the checkpoint, so its memory can be freed.
    options_.resume.reset();
    const auto& protocol = options_.context->protocol;
    if (protocol.tells_idle)
      notice("continuing with backup workers: which gradients are late depends on timing, so the "
             "weights will differ a little from those of an uninterrupted run");
    else if (!protocol.in_step && book_->workers().size() > 1)
      notice(std::string{"continuing with several asynchronous workers: the weights will differ a "
                         "little from those of an uninterrupted run"}
             + (protocol.uses_shards()
                  ? "; workers with a momentum of their own continue from the mean of all"
                  : ""));
  }
  book_->begin(handles_->reporters.size(), cut, *began_);
  if (ends_soon())
    book_->stop();
  go_on();
}

void training_run::watch() {
  watch_tasks order;
  for (auto& x : view_.members) {
    order.all.push_back(x.task);
    const bool idle = x.task.job == job_kind::ps && !options_.context->protocol.uses_shards();
    (idle ? order.idle : order.at_work).push_back(x.task);
  }
  const auto add_link = [&](const task_name& task, const auto& handle) {
    if (const auto* to = port_of(handle)) {
      order.links[task] = to->meter();
      order.network = order.network || !to->on_this_host();
    }
  };
  for (std::size_t i = 0; i < handles_->readers.size(); ++i)
    add_link(handles_->reader_tasks[i], handles_->readers[i]);
  for (std::size_t i = 0; i < handles_->workers.size(); ++i)
    add_link(book_->workers()[i].name(), handles_->workers[i]);
  send(options_.progress, std::move(order));
}

// Starts the exact solver. There is no view, no lease and no gradient. The only snapshot is handled
// like a snapshot at the end of an epoch.
void training_run::start_solver() {
  phase_ = phase::solving;
  began_ = clock().now();
  solver_ = caf::actor_cast<caf::actor>(options_.spawner.spawn_heavy<exact_solver>(
    system(), options_.context, options_.data.train, options_.data.feature_names,
    caf::actor_cast<solved_listener>(this)));
  monitor(solver_);
}

void training_run::on_solved(const solved& x) {
  if (phase_ != phase::solving)
    return;
  demonitor(solver_.address());
  anon_send_exit(solver_, caf::exit_reason::user_shutdown);
  solver_ = nullptr;
  if (!x.problem.empty()) {
    fail(x.problem);
    return;
  }
  phase_ = phase::finishing;
  epoch_report report;
  report.epoch = report.epochs = 1;
  report.seconds = to_seconds(clock().now() - *began_);
  report.train_loss = x.train_loss;
  report.samples_per_second = static_cast<double>(x.samples) / std::max(report.seconds, 1e-9);
  report.validation = options_.data.validation != nullptr;
  summary_.samples = x.samples;
  summary_.seconds = report.seconds;
  summary_.train_loss = x.train_loss;
  send(options_.captures, evaluate_solution{report, x.weights});
  send(options_.captures, finish_captures{});
}

} // namespace troupe
