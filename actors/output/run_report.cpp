#include "actors/output/run_report.hpp"

#include "kernels/formats/printable.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

// JSON has no NaN and no infinity, so they become null.
nlohmann::ordered_json number_or_null(double x) {
  return std::isfinite(x) ? nlohmann::ordered_json(x) : nlohmann::ordered_json(nullptr);
}

// Reasons for failures contain file names, which may not be valid UTF-8. Invalid bytes are
// replaced.
std::string dump(const nlohmann::ordered_json& line) {
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

nlohmann::ordered_json to_object(const task_status& x) {
  nlohmann::ordered_json result{
    {"task", to_string(x.task)},
    {"steps", x.steps},
    {"steps_per_second", number_or_null(x.steps_per_second)},
    {"bytes_sent_per_second", number_or_null(x.bytes_sent_per_second)},
    {"bytes_received_per_second", number_or_null(x.bytes_received_per_second)}};
  if (x.task.job != job_kind::worker)
    return result;
  result["samples"] = x.samples;
  result["samples_per_second"] = number_or_null(x.samples_per_second);
  result["staleness_mean"] = number_or_null(x.staleness_mean);
  result["computing"] = number_or_null(x.computing);
  result["exchanging_while_computing"] = number_or_null(x.exchanging_while_computing);
  result["waiting_for_lease"] = number_or_null(x.waiting_for_lease);
  result["waiting_for_data"] = number_or_null(x.waiting_for_data);
  result["waiting_for_weights"] = number_or_null(x.waiting_for_weights);
  result["waiting_for_update"] = number_or_null(x.waiting_for_update);
  return result;
}

/// A histogram of staleness as a JSON list of pairs: the lowest staleness of a bucket, and the
/// number of gradients in it. A bucket ends where the next bucket begins.
nlohmann::ordered_json to_pairs(const staleness_counts& counts) {
  auto result = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < counts.size(); ++i)
    result.push_back({staleness_bounds[i], counts[i]});
  return result;
}

void add(nlohmann::ordered_json& line, const std::optional<pacing_status>& x) {
  if (!x)
    return;
  line["staleness_running"] = number_or_null(x->staleness);
  line["gradient_norm_running"] = number_or_null(x->gradient_norm);
  line["limited"] = x->limited;
  line["rate_damping"] = number_or_null(x->rate_damping);
  line["overshoots"] = x->overshoots;
  line["rate_halvings"] = x->rate_halvings;
}

void add(nlohmann::ordered_json& line, const std::string& prefix, const measured& x) {
  for (const auto& [name, value] : x.numbers())
    line[prefix + '_' + name] = number_or_null(value);
  if (x.confusion.empty())
    return;
  auto& rows = line[prefix + "_confusion"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < x.confusion.size(); ++i) {
    if (i % x.classes() == 0)
      rows.push_back(nlohmann::ordered_json::array());
    rows.back().push_back(x.confusion[i]);
  }
}

} // namespace

std::optional<double> hidden_share(const std::vector<task_status>& tasks) {
  double hidden = 0;
  double waiting = 0;
  for (const auto& x : tasks) {
    hidden += x.exchanging_while_computing;
    waiting += x.waiting_for_weights + x.waiting_for_update;
  }
  if (!(hidden + waiting > 0))
    return std::nullopt;
  return hidden / (hidden + waiting);
}

std::string class_name(const run_summary& x, std::size_t which) {
  return which < x.class_names.size() ? excerpt(x.class_names[which]) : std::to_string(which);
}

double data_share(const std::vector<task_status>& tasks) {
  double data = 0;
  double all = 0;
  for (const auto& x : tasks) {
    data += x.waiting_for_data;
    all += x.computing + x.waiting_for_lease + x.waiting_for_data + x.waiting_for_weights
      + x.waiting_for_update;
  }
  return all > 0 ? data / all : 0;
}

std::size_t staleness_bucket(std::uint64_t staleness) noexcept {
  return static_cast<std::size_t>(std::ranges::upper_bound(staleness_bounds, staleness)
                                  - staleness_bounds.begin())
    - 1;
}

std::string to_json(const run_progress& x) {
  nlohmann::ordered_json line{
    {"event", "progress"},
    {"seconds", number_or_null(x.seconds)},
    {"epoch", x.epoch},
    {"samples", x.samples},
    {"train_loss", x.samples > 0 ? number_or_null(x.train_loss) : nullptr},
    {"samples_per_second", number_or_null(x.samples_per_second)},
    {"updates", x.updates},
    {"updates_per_second", number_or_null(x.updates_per_second)},
    {"quarantined", x.quarantined},
    {"staleness_mean", number_or_null(x.staleness_mean)},
    {"learning_rate", number_or_null(x.learning_rate)},
  };
  add(line, x.pacing);
  if (x.gradient_norm)
    line["gradient_norm"] = number_or_null(*x.gradient_norm);
  return dump(line);
}

std::string to_json(const epoch_report& x) {
  const std::string evaluated = evaluated_name(x.validation);
  nlohmann::ordered_json line{{"event", x.step > 0 ? "evaluation" : "epoch"}};
  if (x.step > 0)
    line["step"] = x.step;
  line["epoch"] = x.epoch;
  line["epochs"] = x.epochs;
  if (x.step > 0)
    line["epochs_trained"] = number_or_null(x.epochs_trained);
  line["seconds"] = number_or_null(x.seconds);
  line["samples_per_second"] = number_or_null(x.samples_per_second);
  line["train_loss"] = number_or_null(x.train_loss);
  line[evaluated + "_loss"] = number_or_null(x.test_loss);
  if (x.test_accuracy)
    line[evaluated + "_accuracy"] = number_or_null(*x.test_accuracy);
  add(line, evaluated, x.measures);
  return dump(line);
}

std::string to_json(const run_summary& x) {
  const auto counted = [&](std::uint64_t n) {
    return x.counted ? nlohmann::ordered_json(n) : nlohmann::ordered_json(nullptr);
  };
  nlohmann::ordered_json line{
    {"event", "end"},
    {"protocol", x.protocol},
    {"workers", x.workers},
    {"seconds", number_or_null(x.seconds)},
    {"samples", x.samples},
    {"samples_per_second", number_or_null(x.samples_per_second)},
    {"train_loss", number_or_null(x.train_loss)},
    {"test_loss", number_or_null(x.test_loss)},
    {"test_accuracy", x.test_accuracy ? number_or_null(*x.test_accuracy) : nullptr},
    {"applied", counted(x.applied)},
    {"rejected_stale", counted(x.rejected_stale)},
    {"requeued", counted(x.requeued)},
    {"lost", counted(x.lost)},
    {"quarantined", counted(x.quarantined)},
    {"dropped_samples", counted(x.dropped_samples)},
    {"split", counted(x.split)},
    {"duplicates", counted(x.duplicates)},
    {"staleness_mean", number_or_null(x.staleness_mean)},
    {"staleness", to_pairs(x.staleness)},
    {"updates_per_second", number_or_null(x.updates_per_second)},
    {"weights_sha256", x.weights_sha256},
  };
  if (x.views > 1)
    line["views"] = x.views;
  add(line, x.pacing);
  add(line, "test", x.measures);
  if (x.validation_loss)
    line["validation_loss"] = number_or_null(*x.validation_loss);
  if (x.validation_accuracy)
    line["validation_accuracy"] = number_or_null(*x.validation_accuracy);
  auto& tasks = line["tasks"] = nlohmann::ordered_json::array();
  for (auto& task : x.tasks)
    tasks.push_back(to_object(task));
  if (!x.coefficients.empty())
    line["coefficients"] = x.coefficients;
  if (!x.weights_file.empty())
    line["weights_file"] = x.weights_file;
  if (x.best)
    line["best"] = {{"step", x.best->step},
                    {"epoch", x.best->epoch},
                    {"loss", x.best->loss},
                    {"kept", x.best_kept}};
  if (!x.ended_early.empty())
    line["ended_early"] = x.ended_early;
  if (!x.failure.empty())
    line["failure"] = x.failure;
  return dump(line);
}

} // namespace troupe
