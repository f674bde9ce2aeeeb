#include "actors/coordinator/exact_solver.hpp"

#include <algorithm>
#include <exception>

namespace troupe {

exact_solver::exact_solver(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
                           std::shared_ptr<const dataset> train,
                           std::vector<std::string> feature_names, solved_listener listener)
  : super(cfg), context_(std::move(context)), train_(std::move(train)),
    feature_names_(std::move(feature_names)), listener_(std::move(listener)) {}

exact_solver::behavior_type exact_solver::make_behavior() {
  send(this, tick{});
  return {[this](tick) { on_tick(); }};
}

void exact_solver::on_exit() {
  listener_ = nullptr;
}

void exact_solver::on_tick() {
  solved result;
  try {
    if (!solution_)
      solution_.emplace(*context_, *train_, feature_names_);
    if (solution_->read_some()) {
      send(this, tick{});
      return;
    }
    const auto x = solution_->solve();
    result.weights = payload::floats(x.weights.size());
    std::ranges::copy(x.weights, result.weights.as_mutable_floats().begin());
    result.samples = solution_->samples_read();
    result.train_loss = x.train_loss;
  } catch (const std::exception& error) {
    result.problem = error.what();
  }
  send(listener_, std::move(result));
}

} // namespace troupe
