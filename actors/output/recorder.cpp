#include "actors/output/recorder.hpp"

#include "actors/checkpoint/own_checkpoint.hpp"
#include "actors/model/device_placement.hpp"
#include "actors/model/job_file.hpp"
#include "actors/model/model_file.hpp"
#include "actors/model/model_source.hpp"
#include "actors/seconds.hpp"
#include "kernels/formats/file.hpp"
#include "kernels/formats/gzip.hpp"
#include "messages/configure.hpp"

#include <algorithm>
#include <cctype>
#include <system_error>

#include <nlohmann/json.hpp>

namespace troupe {

namespace {

/// Shortest interval between progress records. Reports arrive four times a second, and every fourth
/// is recorded. The interval is a little less than a second, so that a report that arrives slightly
/// early is also recorded.
constexpr std::chrono::milliseconds progress_interval{900};

constexpr auto best_file = "best.safetensors";

/// The name of TensorBoard's file. TensorBoard recognizes its files by "tfevents" in their names,
/// and reads the files of a directory in alphabetical order. So the name has the start time after
/// "tfevents".
std::string events_name(const run_origin& origin) {
  const auto seconds =
    std::chrono::duration_cast<std::chrono::seconds>(origin.started.time_since_epoch()).count();
  auto host = origin.host;
  std::ranges::replace_if(
    host, [](unsigned char c) { return !std::isalnum(c) && c != '-' && c != '.'; }, '_');
  return "events.out.tfevents." + std::to_string(seconds) + '.' + host;
}

std::span<const std::byte> bytes_of(const std::string& x) {
  return std::as_bytes(std::span{x});
}

/// The line of metrics.jsonl with the device of each worker, and of each other task that has a GPU.
std::string devices_line(const proto::Job& job, const std::vector<task_status>& tasks) {
  nlohmann::ordered_json result{{"event", "devices"}};
  const auto add = [&](const task_name& task) {
    const auto device = device_of(job, task);
    if (device.gpu || task.job == job_kind::worker)
      result[to_string(task)] =
        to_string(device) + (device.gpu && job.soft_placement() ? " or CPU:0" : "");
  };
  for (const auto& x : tasks)
    add(x.task);
  add(coordinator_task);
  return result.dump();
}

} // namespace

recorder::recorder(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
                   std::shared_ptr<storage> where, std::filesystem::path directory,
                   run_origin origin, std::shared_ptr<const checkpoint> resume)
  : super(cfg), context_(std::move(context)), storage_(std::move(where)),
    directory_(std::move(directory)), events_file_(directory_ / events_name(origin)),
    origin_(std::move(origin)), resume_(std::move(resume)), events_(context_->data.train_records) {}

recorder::behavior_type recorder::make_behavior() {
  began_ = clock().now();
  begin();
  return {
    [this](const run_progress& x) { on_progress(x); },
    [this](const epoch_report& x) { on_epoch(x); },
    [this](const run_summary& x) { on_summary(x); },
    [this](const run_notice& x) { on_notice(x); },
    [this](const record_weights& x) { on_weights(x); },
    [this](const record_timeline& x) { on_timeline(x); },
    [this](record_flush) {
      return record_done{problem_, weights_, best_};
    },
  };
}

void recorder::begin() {
  attempt([&] { begin_metrics(); });
  // Replaces the files of an earlier run, in case this run ends without writing its own.
  write_timeline({});
  report_data unfinished;
  unfinished.name = context_->job.name();
  unfinished.origin = origin_;
  write_report(render_unfinished(unfinished));
  std::int64_t step = 0;
  if (resume_) {
    const auto& cut = resume_->manifest.cut;
    step =
      static_cast<std::int64_t>((cut.epoch + 1) * context_->data.train_records - cut.samples());
  }
  if (resume_ && resume_->manifest.best && is_own_checkpoint(*resume_, directory_))
    find_best();
  events_.begin_at(step);
  const auto header = tensorboard_log::header(time(), step);
  attempt([&] { storage_->replace(events_file_, bytes_of(header)); });
  resume_.reset();
}

// A run that was killed may have written best.safetensors after the checkpoint from which this run
// continues.
void recorder::find_best() {
  const auto file = directory_ / best_file;
  try {
    best_ = read_model_info(storage_->read(file), file.string()).version;
  } catch (const std::exception&) { // std::system_error, input_error
    best_.reset();
  }
}

void recorder::begin_metrics() {
  const auto metrics = directory_ / "metrics.jsonl";
  if (!resume_) {
    storage_->replace(metrics, {});
    return;
  }
  std::vector<std::byte> old;
  const bool continued = is_own_checkpoint(*resume_, directory_);
  try {
    if (continued) // The files of another run in this directory are not part of this run's history.
      old = storage_->read(metrics);
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::no_such_file_or_directory)
      throw;
  }
  const auto text =
    resumed_metrics({reinterpret_cast<const char*>(old.data()), old.size()}, *resume_);
  storage_->replace(metrics, as_byte_span(text));
}

void recorder::on_progress(const run_progress& x) {
  history_.add(x);
  const auto now = clock().now();
  if (last_progress_ && now - *last_progress_ < progress_interval)
    return;
  last_progress_ = now;
  append_line(to_json(x));
  append_events(events_.add(x, time()));
}

void recorder::on_epoch(const epoch_report& x) {
  history_.add(x);
  append_line(to_json(x));
  append_events(events_.add(x, time()));
}

void recorder::on_weights(const record_weights& x) {
  attempt([&] {
    const model_info info{x.version, context_->hash, context_->metadata};
    storage_->replace(directory_ / (x.best ? best_file : "weights.safetensors"),
                      write_model(context_->parameters(), x.weights.as_floats(), info));
    if (x.best)
      best_ = x.version;
    else
      weights_ = {x.version, x.epoch};
  });
}

void recorder::on_notice(const run_notice& x) {
  history_.add({seconds(), x.text});
}

void recorder::on_timeline(const record_timeline& x) {
  timeline_ = x.timeline;
  write_timeline(*timeline_);
}

void recorder::write_timeline(const run_timeline& x) {
  const auto events = trace_events(x);
  attempt([&] { storage_->replace(directory_ / "timeline.json.gz", gzip(bytes_of(events))); });
}

void recorder::on_summary(const run_summary& x) {
  if (context_->job.device_size() > 0)
    append_line(devices_line(context_->job, x.tasks));
  append_line(to_json(x));
  append_events(events_.add(x, time()));
  write_report(render_report({context_->job.name(), version(), origin_,
                              job_text(without_structure(context_->job)), context_->hash, history_,
                              x, timeline_}));
}

void recorder::write_report(const std::string& page) {
  attempt([&] { storage_->replace(directory_ / "report.html", bytes_of(page)); });
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

void recorder::append_line(const std::string& line) {
  attempt([&] { storage_->append_line(directory_ / "metrics.jsonl", line); });
}

void recorder::append_events(const std::string& records) {
  if (!records.empty())
    attempt([&] { storage_->append(events_file_, bytes_of(records)); });
}

double recorder::seconds() const {
  return to_seconds(clock().now() - began_);
}

double recorder::time() const {
  return to_seconds(origin_.started.time_since_epoch()) + seconds();
}

} // namespace troupe
