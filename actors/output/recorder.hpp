#pragma once

#include "actors/checkpoint/checkpoint.hpp"
#include "actors/model/job_context.hpp"
#include "actors/output/report_page.hpp"
#include "actors/output/run_report.hpp"
#include "actors/output/run_timeline.hpp"
#include "actors/output/tensorboard.hpp"
#include "actors/storage/storage.hpp"

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

namespace troupe {

/// The weights at the end of an epoch, or of the best evaluation: one flat vector, float32.
struct record_weights {
  std::uint64_t version = 0;
  payload weights;
  /// Number of the epoch, from 1.
  std::uint32_t epoch = 0;
  /// Set if these are the weights of the best evaluation so far. They go to best.safetensors, other
  /// weights to weights.safetensors.
  std::optional<best_evaluation> best = std::nullopt;
};

/// The answer to record_flush: all records that were sent before it are on disk. If something could
/// not be written, `problem` describes it.
struct record_done {
  std::string problem;
  /// The version and the epoch of weights.safetensors; nothing if this run did not write the file.
  std::optional<std::pair<std::uint64_t, std::uint32_t>> weights;
  /// The version of best.safetensors; nothing if the file is missing, or belongs to another run.
  std::optional<std::uint64_t> best;
};

struct record_flush {};

/// The newest activities of all tasks.
struct record_timeline {
  std::shared_ptr<const run_timeline> timeline;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::record_weights)
TROUPE_LOCAL_MESSAGE(troupe::record_done)
TROUPE_LOCAL_MESSAGE(troupe::record_flush)
TROUPE_LOCAL_MESSAGE(troupe::record_timeline)

namespace troupe {

using recorder_actor = run_observer::extend<rpc<void, record_weights>, rpc<void, record_timeline>,
                                            rpc<record_done, record_flush>>;

/// Writes the output directory: metrics.jsonl, TensorBoard's event file, weights.safetensors,
/// best.safetensors if the job has early_stopping or checkpoint.keep_best, timeline.json.gz, and
/// report.html at the end. A disk error does not end the run. The first error is reported at the
/// end of the run.
class recorder : public recorder_actor::base {
public:
  using super = recorder_actor::base;

  /// Starts a new metrics.jsonl. If the run continues from a checkpoint in `directory`, the
  /// recorder continues the metrics.jsonl there instead. The directory must exist.
  recorder(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
           std::shared_ptr<storage> where, std::filesystem::path directory, run_origin origin,
           std::shared_ptr<const checkpoint> resume);

  const char* name() const override { return "troupe.recorder"; }

protected:
  behavior_type make_behavior() override;

private:
  void begin();
  void begin_metrics();
  void on_progress(const run_progress& x);
  void on_epoch(const epoch_report& x);
  void on_weights(const record_weights& x);
  void on_notice(const run_notice& x);
  void on_timeline(const record_timeline& x);
  void write_timeline(const run_timeline& x);
  void on_summary(const run_summary& x);
  void write_report(const std::string& page);
  void find_best();

  template <class F>
  void attempt(F write);
  void append_line(const std::string& line);
  void append_events(const std::string& records);
  double seconds() const;
  /// Seconds since 1970.
  double time() const;

  std::shared_ptr<const job_context> context_;
  std::shared_ptr<storage> storage_;
  std::filesystem::path directory_;
  std::filesystem::path events_file_;
  std::optional<std::pair<std::uint64_t, std::uint32_t>> weights_;
  std::optional<std::uint64_t> best_;
  run_origin origin_;
  std::shared_ptr<const checkpoint> resume_;
  std::chrono::steady_clock::time_point began_;
  std::optional<std::chrono::steady_clock::time_point> last_progress_;
  tensorboard_log events_;
  run_history history_;
  std::shared_ptr<const run_timeline> timeline_;
  std::string problem_;
};

} // namespace troupe
