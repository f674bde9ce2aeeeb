#include "actors/model/device_placement.hpp"

#include "kernels/error.hpp"

#include <charconv>
#include <utility>

namespace troupe {

namespace {

constexpr auto accepted =
  "; expected /job:worker/task:N/device:GPU:N or /job:worker/task:N/device:CPU:0, with task:* for "
  "all workers; the same for ps, evaluator and coordinator";

/// Removes `word` from the front of `text`. Returns false if `text` does not begin with `word`.
bool take(std::string_view& text, std::string_view word) {
  const bool there = text.starts_with(word);
  if (there)
    text.remove_prefix(word.size());
  return there;
}

/// Removes the number at the front of `text`, and returns it. Returns nothing if there is no
/// number.
std::optional<std::uint32_t> take_number(std::string_view& text) {
  std::uint32_t result = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), result);
  if (error != std::errc{})
    return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return result;
}

/// The job (kind of task) that has this name in cluster files.
std::optional<job_kind> job_of(std::string_view name) {
  static constexpr std::pair<std::string_view, job_kind> jobs[] = {
    {"worker", job_kind::worker},           {"ps", job_kind::ps},
    {"coordinator", job_kind::coordinator}, {"chief", job_kind::coordinator},
    {"master", job_kind::coordinator},      {"evaluator", job_kind::evaluator}};
  for (const auto& [known, job] : jobs)
    if (name == known)
      return job;
  return std::nullopt;
}

/// Reads a device such as "GPU:1". `fail(what)` throws an error.
template <class Fail>
device_name read_device(std::string_view rest, const Fail& fail) {
  device_name result;
  result.gpu = take(rest, "GPU:");
  if (!result.gpu && !take(rest, "CPU:"))
    fail("has no device of a known kind");
  const auto index = take_number(rest);
  if (!index || !rest.empty())
    fail("does not end with the number of a device");
  result.index = index.value_or(0);
  if (!result.gpu && result.index > 0)
    fail("names a second CPU; all processors of a host are CPU:0");
  return result;
}

} // namespace

std::string to_string(const device_name& x) {
  return (x.gpu ? "GPU:" : "CPU:") + std::to_string(x.index);
}

device_entry parse_device(const std::string& text) {
  const auto fail = [&](const std::string& what) -> device_entry {
    throw input_error("\"" + text + "\" " + what + accepted);
  };
  std::string_view rest = text;
  if (!take(rest, "/job:"))
    return fail("does not begin with a job");
  const auto job = rest.substr(0, rest.find('/'));
  const auto kind = job_of(job);
  if (!kind)
    return fail("has an unknown job, \"" + std::string{job} + "\"");
  take(rest, job);
  device_entry result;
  result.job = *kind;
  if (!take(rest, "/task:"))
    return fail("does not say which task");
  if (!take(rest, "*")) {
    result.task = take_number(rest);
    if (!result.task)
      return fail("has a task that is neither a number nor *");
  }
  const bool single = *kind == job_kind::coordinator || *kind == job_kind::evaluator;
  if (single && result.task.value_or(0) > 0)
    return fail("names a second " + std::string{job} + "; there is only task:0");
  if (!take(rest, "/device:"))
    return fail("has no device of a known kind");
  result.device = read_device(rest, fail);
  return result;
}

device_name parse_device_name(const std::string& text) {
  return read_device(text, [&](const std::string& what) {
    throw input_error("\"" + text + "\" " + what + "; expected GPU:N or CPU:0");
  });
}

device_name device_of(const proto::Job& job, const task_name& task) {
  device_name result;
  for (const auto& text : job.device())
    if (const auto entry = parse_device(text);
        entry.job == task.job && entry.task.value_or(task.index) == task.index)
      result = entry.device;
  return result;
}

} // namespace troupe
