#include "actors/output/tensorboard.hpp"

#include "actors/output/tensorboard.pb.h"

#include <boost/crc.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>

namespace troupe {

namespace {

using tensorboard::Event;

using crc32c = boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true>;

void append_masked_crc(std::string& out, std::string_view data) {
  crc32c crc;
  crc.process_bytes(data.data(), data.size());
  const std::uint32_t masked = std::rotr(crc.checksum(), 15) + 0xa282ead8U;
  char bytes[sizeof masked];
  std::memcpy(bytes, &masked, sizeof masked);
  out.append(bytes, sizeof bytes);
}

std::string record(const Event& x) {
  return tf_record(x.SerializeAsString());
}

/// TensorBoard draws only finite values, so other values are left out.
void add_scalar(Event& event, std::string tag, double value) {
  if (!std::isfinite(value))
    return;
  auto& x = *event.mutable_summary()->add_value();
  x.set_tag(std::move(tag));
  x.set_simple_value(static_cast<float>(value));
}

/// The edges of a histogram bucket lie halfway between whole numbers: 0 is in (-0.5, 0.5], 4 and 5
/// are in (3.5, 5.5].
double lower_edge(std::size_t bucket) {
  return static_cast<double>(staleness_bounds[bucket]) - 0.5;
}

double upper_edge(std::size_t bucket) {
  return bucket + 1 < staleness_bounds.size() ? lower_edge(bucket + 1) : 2 * lower_edge(bucket);
}

void add_histogram(Event& event, std::string tag, const staleness_counts& counts) {
  const auto is_used = [](auto n) { return n > 0; };
  const auto first = std::ranges::find_if(counts, is_used) - counts.begin();
  if (first == std::ssize(counts))
    return;
  auto last = std::ssize(counts) - 1;
  while (counts[static_cast<std::size_t>(last)] == 0)
    --last;
  auto& value = *event.mutable_summary()->add_value();
  value.set_tag(std::move(tag));
  auto& x = *value.mutable_histo();
  for (auto i = static_cast<std::size_t>(first); i <= static_cast<std::size_t>(last); ++i) {
    const auto n = static_cast<double>(counts[i]);
    const auto middle = (lower_edge(i) + upper_edge(i)) / 2;
    x.set_num(x.num() + n);
    x.set_sum(x.sum() + n * middle);
    x.set_sum_squares(x.sum_squares() + n * middle * middle);
    x.add_bucket_limit(upper_edge(i));
    x.add_bucket(n);
  }
  x.set_min(lower_edge(static_cast<std::size_t>(first)));
  x.set_max(upper_edge(static_cast<std::size_t>(last)));
}

/// The counts since `before`. Sets `before` to `now`.
staleness_counts since(staleness_counts& before, const staleness_counts& now) {
  staleness_counts result{};
  for (std::size_t i = 0; i < now.size(); ++i)
    result[i] = now[i] - std::min(now[i], before[i]);
  before = now;
  return result;
}

std::string finish(const Event& event) {
  return event.has_summary() ? record(event) : "";
}

} // namespace

std::string tf_record(std::string_view data) {
  static_assert(std::endian::native == std::endian::little);
  const std::uint64_t length = data.size();
  std::string result(sizeof length, '\0');
  std::memcpy(result.data(), &length, sizeof length);
  append_masked_crc(result, std::string{result});
  result += data;
  append_masked_crc(result, data);
  return result;
}

double waiting_seconds(const task_status& x) {
  return x.waiting_for_lease + x.waiting_for_data + x.waiting_for_weights + x.waiting_for_update;
}

std::string tensorboard_log::header(double time, std::int64_t step) {
  Event version;
  version.set_wall_time(time);
  version.set_file_version("brain.Event:2");
  Event start;
  start.set_wall_time(time);
  start.set_step(step);
  start.mutable_session_log()->set_status(tensorboard::SessionLog::START);
  return record(version) + record(start);
}

std::string tensorboard_log::add(const run_progress& x, double time) {
  // x.samples may decrease: when a worker is lost, the samples that it was training (its lease) no
  // longer count. The step must not decrease, so the largest value is kept.
  step_ = std::max(
    step_, static_cast<std::int64_t>((std::max(x.epoch, 1U) - 1) * epoch_samples_ + x.samples));
  Event event;
  event.set_wall_time(time);
  event.set_step(step_);
  if (x.samples > 0) {
    add_scalar(event, "loss/train", x.train_loss);
    add_scalar(event, "samples_per_second/all", x.samples_per_second);
    add_scalar(event, "learning_rate/schedule", x.learning_rate);
  }
  if (x.updates > 0) {
    add_scalar(event, "staleness/mean", x.staleness_mean);
    add_scalar(event, "updates_per_second/all", x.updates_per_second);
  }
  if (x.quarantined > 0)
    add_scalar(event, "gradient/quarantined", static_cast<double>(x.quarantined));
  if (x.pacing) {
    add_scalar(event, "staleness/running", x.pacing->staleness);
    add_scalar(event, "gradient/norm_running", x.pacing->gradient_norm);
    add_scalar(event, "gradient/limited", static_cast<double>(x.pacing->limited));
    add_scalar(event, "learning_rate/damping", x.pacing->rate_damping);
  }
  if (x.gradient_norm)
    add_scalar(event, "gradient/norm", *x.gradient_norm);
  add_histogram(event, "staleness/distribution", since(staleness_, x.staleness));
  for (auto& task : x.tasks) {
    const auto name = to_string(task.task);
    if (task.bytes_sent_per_second + task.bytes_received_per_second > 0) {
      add_scalar(event, "bytes_per_second/" + name + "/sent", task.bytes_sent_per_second);
      add_scalar(event, "bytes_per_second/" + name + "/received", task.bytes_received_per_second);
    }
    if (task.task.job == job_kind::ps && task.steps > 0)
      add_scalar(event, "updates_per_second/" + name, task.steps_per_second);
    if (task.task.job != job_kind::worker)
      continue;
    add_scalar(event, "samples_per_second/" + name, task.samples_per_second);
    auto& spent = spent_[task.task];
    const auto computing = task.computing - spent.computing;
    const auto waiting = waiting_seconds(task) - spent.waiting;
    if (computing + waiting > 0)
      add_scalar(event, "waiting_share/" + name,
                 std::clamp(waiting / (computing + waiting), 0.0, 1.0));
    spent = {task.computing, waiting_seconds(task)};
  }
  return finish(event);
}

std::string tensorboard_log::add(const epoch_report& x, double time) {
  Event event;
  event.set_wall_time(time);
  const std::string evaluated = evaluated_name(x.validation);
  if (x.step > 0) {
    event.set_step(
      static_cast<std::int64_t>(x.epochs_trained * static_cast<double>(epoch_samples_)));
  } else {
    event.set_step(static_cast<std::int64_t>(x.epoch * epoch_samples_));
    add_scalar(event, "loss/train_epoch", x.train_loss);
  }
  add_scalar(event, "loss/" + evaluated, x.test_loss);
  if (x.test_accuracy)
    add_scalar(event, "accuracy/" + evaluated, *x.test_accuracy);
  for (const auto& [name, value] : x.measures.numbers())
    add_scalar(event, name + '/' + evaluated, value);
  return finish(event);
}

std::string tensorboard_log::add(const run_summary& x, double time) {
  step_ = std::max(step_, first_ + static_cast<std::int64_t>(x.samples));
  Event event;
  event.set_wall_time(time);
  event.set_step(step_);
  add_histogram(event, "staleness/distribution", since(staleness_, x.staleness));
  return finish(event);
}

} // namespace troupe
