#pragma once

#include "actors/checkpoint/best_evaluation.hpp"
#include "actors/model/measures.hpp"
#include "actors/status/ring_failure.hpp"
#include "messages/names.hpp"
#include "messages/synchronizer.hpp"
#include "messages/types.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// How asynchronous shards adapt to stale and large gradients (async_ps.compensation: AUTO).
/// Contains statistics over all gradients, and counts of the corrections.
struct pacing_status {
  /// Running mean of 1 + staleness.
  double staleness = 0;
  /// Running mean of the gradients' norms.
  double gradient_norm = 0;
  /// Factor on the learning rate.
  double rate_damping = 1;
  /// Number of gradients that lowered rate_damping, because updates overshot a minimum.
  std::uint64_t overshoots = 0;
  /// How often rate_damping was halved, because the loss grew.
  std::uint64_t rate_halvings = 0;
  /// Applied gradients that were scaled down because they were much larger than the others.
  std::uint64_t limited = 0;
};

/// The current activity of a task, and its totals since training began.
struct task_status {
  task_name task;
  /// A text for people: "computes", "waits for weights from ps/1", "waits for gradients of
  /// worker/2".
  std::string activity;
  /// Duration of this activity so far.
  double activity_seconds = 0;
  /// For workers, the number of gradients trained. For shards and ring ranks, the number of updates
  /// made.
  std::uint64_t steps = 0;
  /// Steps per second over the last few seconds. At the end of a run: over the whole run.
  double steps_per_second = 0;
  /// Bytes of gradients and weights to and from other tasks, over the last few seconds. At the end
  /// of a run, over the whole run.
  double bytes_sent_per_second = 0;
  double bytes_received_per_second = 0;
  /// Number of samples trained. This field and all fields below are for workers only.
  std::uint64_t samples = 0;
  /// Samples per second over the last few seconds. At the end of a run: over the whole run.
  double samples_per_second = 0;
  /// Mean number of updates between reading the weights for a gradient and applying it.
  double staleness_mean = 0;
  /// Time spent computing since training began. This field and the fields below are in seconds.
  double computing = 0;
  /// The part of `computing` during which gradients or weights of this worker were in transit.
  double exchanging_while_computing = 0;
  double waiting_for_lease = 0;
  double waiting_for_data = 0;
  double waiting_for_weights = 0;
  double waiting_for_update = 0;
};

/// The share of communication that overlaps with computing, over all workers. The share is E / (E +
/// W): E is the time of exchanges during computing, and W is the time spent waiting for weights and
/// updates. Empty if nothing was exchanged.
std::optional<double> hidden_share(const std::vector<task_status>& tasks);

/// The share of the workers' time during which they waited for data, over all workers. 0 without
/// workers.
double data_share(const std::vector<task_status>& tasks);

/// The buckets of a histogram of staleness (staleness_counts). Element i is the number of applied
/// gradients with a staleness from staleness_bounds[i] to staleness_bounds[i + 1] - 1. The last
/// bucket has no upper bound.
inline constexpr std::array<std::uint64_t, 16> staleness_bounds{0,  1,  2,  3,  4,  6,  8,   12,
                                                                16, 24, 32, 48, 64, 96, 128, 256};
using staleness_counts = std::array<std::uint64_t, staleness_bounds.size()>;

/// The index of the histogram's bucket for this staleness.
std::size_t staleness_bucket(std::uint64_t staleness) noexcept;

/// The progress of a run, reported a few times a second.
struct run_progress {
  /// Time since training began.
  double seconds = 0;
  /// Updates of the weights in this run: the smallest number over all shards.
  std::uint64_t updates = 0;
  double updates_per_second = 0;
  /// Number of gradients that were left out because they were not finite.
  std::uint64_t quarantined = 0;
  std::optional<pacing_status> pacing;
  /// Mean over the gradients applied so far.
  double staleness_mean = 0;
  staleness_counts staleness{};
  /// The mean norm of the newest gradients before clipping, if the job clips by norm.
  std::optional<double> gradient_norm;
  /// All tasks except the coordinator, in order.
  std::vector<task_status> tasks;
  std::uint32_t epoch = 0;
  std::uint32_t epochs = 0;
  /// Samples trained in this epoch, and the epoch's total.
  std::uint64_t samples = 0;
  std::uint64_t epoch_samples = 0;
  /// Mean over this epoch so far.
  double train_loss = 0;
  double samples_per_second = 0;
  /// The learning rate that the schedule gives for the newest step, without damping.
  double learning_rate = 0;
};

/// The name of the data that a run evaluates: "test" or "validation".
inline const char* evaluated_name(bool validation) noexcept {
  return validation ? "validation" : "test";
}

/// The result of an epoch, or of an evaluation within one.
struct epoch_report {
  /// Number of the epoch, from 1.
  std::uint32_t epoch = 0;
  std::uint32_t epochs = 0;
  /// Time since training began.
  double seconds = 0;
  double samples_per_second = 0;
  /// Mean over the samples of the epoch. The loss of a sample is computed with the weights of the
  /// step that trains it.
  double train_loss = 0;
  double test_loss = 0;
  /// Only for classification.
  std::optional<double> test_accuracy;
  measured measures;
  /// True if test_loss, test_accuracy and `measures` are for validation records.
  bool validation = false;
  /// For an evaluation within an epoch: the number of updates of the weights, including those of
  /// earlier runs. 0 for the evaluation at the end of an epoch.
  std::uint64_t step = 0;
  /// For an evaluation within an epoch: the epochs trained so far, about 1.5 in the middle of the
  /// second epoch.
  double epochs_trained = 0;

  /// Epochs trained at the time of the evaluation.
  double when() const noexcept { return step > 0 ? epochs_trained : epoch; }
};

/// The final report of a run.
struct run_summary {
  /// The reason why the run failed. Empty if everything was trained and every gradient is accounted
  /// for.
  std::string failure;
  /// The reason why the run ended early without failure; empty if the run did not end early.
  std::string ended_early;
  /// True if the operator stopped the run.
  bool interrupted = false;
  /// True if a loss, a gradient or the weights were not finite.
  bool not_finite = false;
  /// True if the run failed because a task failed, left, or was lost.
  bool lost_task = false;
  /// The task that failed, left or was lost, if a single task was the reason.
  std::optional<task_name> missing;
  /// What a ring rank of this node waited for when it could not continue without the task
  /// `missing`. Nothing if this node has no such rank.
  std::optional<ring_failure> ring;
  /// The newest checkpoint: the last one that this run wrote. If this run wrote none, the one from
  /// which it continued. Empty if there is no checkpoint.
  std::string checkpoint;
  std::string protocol;
  /// The tasks that decided about gradients, as text: "parameter server".
  std::string decided_by;
  /// Number of workers. If tasks were lost or have joined, the number in the last view (see
  /// `views`).
  std::uint64_t workers = 0;
  /// Number of views of this run. A view is the part of a run during which the same tasks take part
  /// (Job.elastic). Times, samples and gradients below are those of the last view.
  std::uint64_t views = 1;
  /// Workers that left, and workers that were lost while the run still had work for them. The run
  /// continued without them.
  std::vector<task_name> gone;
  /// Time from the first lease to the last update. It includes evaluations in between, but not the
  /// start-up.
  double seconds = 0;
  std::uint64_t samples = 0;
  double samples_per_second = 0;
  double train_loss = 0;
  /// Loss of the final weights on the test data.
  double test_loss = 0;
  std::optional<double> test_accuracy;
  /// Measures on the test data.
  measured measures;
  /// For a confusion matrix: the names of the classes. Empty if they have only numbers.
  std::vector<std::string> class_names;
  /// Loss and accuracy with the final weights on the validation records, if the job has any.
  std::optional<double> validation_loss;
  std::optional<double> validation_accuracy;
  /// What happened to the gradients (see ledger.hpp). Each gradient counts once per shard or rank.
  /// `counted` is false if the run ended early; the counts are then 0.
  bool counted = false;
  std::uint64_t applied = 0;
  std::uint64_t rejected_stale = 0;
  std::uint64_t requeued = 0;
  std::uint64_t lost = 0;
  std::uint64_t quarantined = 0;
  /// Number of samples whose gradient came too late and that were not trained again. A sample
  /// counts once, not once per shard.
  std::uint64_t dropped_samples = 0;
  std::uint64_t split = 0;
  std::uint64_t duplicates = 0;
  double staleness_mean = 0;
  staleness_counts staleness{};
  /// Updates of the weights per second of training.
  double updates_per_second = 0;
  std::optional<pacing_status> pacing;
  /// The states of all tasks when training ended.
  std::vector<task_status> tasks;
  std::string weights_sha256;
  /// Linear models: intercept, then one coefficient per feature, in the units of the data.
  std::vector<double> coefficients;
  /// The weight decay of a linear model as a parameter of scikit-learn: weight_decay_text().
  std::string ridge;
  /// The output directory; empty if nothing was written.
  std::string output;
  /// Files that could not be written; empty if all were written.
  std::string unwritten;
  /// If weights.safetensors does not contain the final weights, a description of its contents, such
  /// as "the weights of epoch 3 (version 120)".
  std::string weights_file;
  /// The best evaluation, if the job has early_stopping or checkpoint.keep_best.
  std::optional<best_evaluation> best;
  /// True if best.safetensors has the weights of the best evaluation. It may have others if an
  /// earlier run was killed after its last checkpoint, or if the file could not be written.
  bool best_kept = false;
};

/// The name of a class in the confusion matrix. If it has none, this is its number.
std::string class_name(const run_summary& x, std::size_t which);

/// The importance of a notice: `warning` if something went wrong, `error` if something is lost.
enum class notice_level : std::uint8_t { info, warning, error };

/// A message for the operator, shown once.
struct run_notice {
  std::string text;
  notice_level level = notice_level::info;
};

/// One line of metrics.jsonl, without the line break.
std::string to_json(const run_progress& x);
std::string to_json(const epoch_report& x);
std::string to_json(const run_summary& x);

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::run_progress)
TROUPE_LOCAL_MESSAGE(troupe::epoch_report)
TROUPE_LOCAL_MESSAGE(troupe::run_summary)
TROUPE_LOCAL_MESSAGE(troupe::run_notice)

namespace troupe {

/// Receives the reports of a run; for example a progress bar, or an actor of an embedding program.
using run_observer = caf::typed_actor<rpc<void, run_progress>, rpc<void, epoch_report>,
                                      rpc<void, run_summary>, rpc<void, run_notice>>;

} // namespace troupe
