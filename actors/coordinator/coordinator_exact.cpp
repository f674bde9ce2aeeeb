#include "actors/coordinator/coordinator.hpp"

#include <algorithm>

// A run that solves for the weights: no view, no leases, no gradients. Its one snapshot goes the
// way of those that end an epoch. Whoever joined has nothing to do, and ends with the run.

namespace troupe {

void coordinator::solve() {
  phase_ = phase::solving;
  training_began_ = epoch_began_ = clock().now();
  // All nodes, so that they can be told of the end.
  auto missing = std::make_shared<std::size_t>(joined_.size() + 1);
  const auto one_less = [this, missing] {
    if (--*missing == 0 && phase_ == phase::solving)
      start_solver();
  };
  for (auto& [task, x] : joined_)
    reach<node_actor>({task, proto::NODE}, [this, task = task, one_less](node_actor node) {
      nodes_[task] = std::move(node);
      one_less();
    });
  one_less();
}

void coordinator::start_solver() {
  solver_ = caf::actor_cast<caf::actor>(options_.spawner.spawn_heavy<exact_solver>(
    system(), options_.context, options_.data.train, caf::actor_cast<solved_listener>(this)));
  monitor(solver_);
}

void coordinator::on_solved(const solved& x) {
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
  report.seconds = seconds_since(training_began_);
  report.train_loss = x.train_loss;
  report.samples_per_second = static_cast<double>(x.samples) / std::max(report.seconds, 1e-9);
  summary_.samples = x.samples;
  summary_.seconds = report.seconds;
  summary_.train_loss = x.train_loss;
  report.validation = options_.data.validation != nullptr;
  begin_evaluation({++evaluations_begun_, 0, 1, {{0, 1, x.weights}}, true}, report);
}

} // namespace troupe
