#include "actors/output/recorder.hpp"

#include "actors/model/model_file.hpp"

#include <system_error>

namespace troupe {

recorder::recorder(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
                   std::shared_ptr<storage> where, std::filesystem::path directory)
  : super(cfg), context_(std::move(context)), storage_(std::move(where)),
    directory_(std::move(directory)) {}

recorder::behavior_type recorder::make_behavior() {
  const auto metrics = directory_ / "metrics.jsonl";
  attempt([&] { storage_->replace(metrics, {}); });
  return {
    [this, metrics](const epoch_report& x) {
      attempt([&] { storage_->append_line(metrics, to_json(x)); });
    },
    [this, metrics](const run_summary& x) {
      attempt([&] { storage_->append_line(metrics, to_json(x)); });
    },
    [this](const record_weights& x) {
      attempt([&] {
        const model_info info{x.version, context_->hash};
        storage_->replace(directory_ / "weights.safetensors",
                          write_model(context_->parameters(), x.weights.as_floats(), info));
      });
    },
    [this](record_flush) { return record_done{problem_}; },
  };
}

template <class F>
void recorder::attempt(F write) {
  try {
    write();
  } catch (const std::system_error& error) {
    if (problem_.empty())
      problem_ = error.what();
  }
}

} // namespace troupe
