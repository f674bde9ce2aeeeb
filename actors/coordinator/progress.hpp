#pragma once

#include "actors/coordinator/coordinator_parts.hpp"
#include "actors/coordinator/task_table.hpp"
#include "actors/coordinator/timeline.hpp"
#include "actors/output/record_queue.hpp"
#include "actors/spawner.hpp"

#include <map>
#include <memory>
#include <optional>
#include <string>

namespace troupe {

struct progress_options {
  std::shared_ptr<const job_context> context;
  /// Output directory. Empty if the run writes no output.
  std::string output;
  std::shared_ptr<storage> files;
  run_origin origin;
  std::shared_ptr<const checkpoint> resume;
  /// The best evaluation before this run, if this run continues an earlier run.
  std::optional<best_evaluation> best;
  /// May be null.
  run_observer observer;
  troupe::spawner spawner;
  conclusion_listener listener;
};

/// The last of the coordinator's four actors. It combines the reports of tasks into the state of
/// the run, informs the operator, finds the cause of a stall, and records everything.
///
/// It writes one record at a time. The queue of waiting records is bounded (record_queue), so that
/// a slow disk delays no task. At the end, the run waits until everything is written, without a
/// time limit.
class progress : public progress_actor::base {
public:
  using super = progress_actor::base;

  progress(caf::actor_config& cfg, progress_options options);

  const char* name() const override { return "troupe.progress"; }
  std::uint64_t view_number() const noexcept { return view_; }

protected:
  behavior_type make_behavior() override;
  /// Ends the recorder. Drops handles to actors that hold a handle to this actor, because CAF never
  /// frees actors that hold handles to each other.
  void on_exit() override;

private:
  void on_status(const proto::TaskStatus& x);
  void on_watch(const watch_tasks& x);
  void on_state(const run_state& x);
  void publish(run_progress x);
  void report_hot_shard();
  void summarize_tasks();

  // -- the output --
  template <class T>
  void record(T x);
  void record_next();
  void await_disk();
  void on_conclude(const conclude_run& x);
  void record_end();
  void report_unwritten();
  void notice(const run_notice& x);

  progress_options options_;
  std::uint64_t view_ = 0;
  /// How often an asynchronous protocol has halved the learning rate because the loss grew.
  std::uint64_t halvings_ = 0;
  bool hot_shard_reported_ = false;
  task_table tasks_;
  stall_judge stalls_;
  timeline timeline_;
  /// See watch_tasks::links.
  std::map<task_name, std::shared_ptr<payload_meter>> links_;
  coordinator_wait captures_wait_;

  recorder_actor recorder_;
  record_queue queue_;
  /// True while the recorder writes a record.
  bool recording_ = false;
  /// The files that could not be written; empty if all were written.
  std::string problem_;
  /// The newest version of the weights that was sent to the recorder; and the newest version on
  /// disk, with its epoch.
  std::optional<std::uint64_t> newest_weights_;
  std::optional<std::pair<std::uint64_t, std::uint32_t>> weights_on_disk_;
  std::optional<std::uint64_t> best_on_disk_;
  bool problem_reported_ = false;

  /// The states of the tasks when training ended.
  std::optional<run_summary> at_end_;
  /// True if the timeline is to be written once no other record waits.
  bool timeline_due_ = false;
  enum class ending { none, flushed, summary, over };
  ending ending_ = ending::none;
  std::optional<run_summary> summary_;
  std::chrono::steady_clock::time_point concluded_;
};

} // namespace troupe
