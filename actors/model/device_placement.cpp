#include "actors/model/device_placement.hpp"

#include "kernels/error.hpp"

#include <charconv>

namespace troupe {

namespace {

constexpr auto accepted =
  "; expected /job:worker/task:N/device:GPU:N or /job:worker/task:N/device:CPU:0, with task:* for "
  "all workers";

/// Takes `word` from the front of `text`.
bool take(std::string_view& text, std::string_view word) {
  const bool there = text.starts_with(word);
  if (there)
    text.remove_prefix(word.size());
  return there;
}

/// Takes a number from the front of `text`.
std::optional<std::uint32_t> take_number(std::string_view& text) {
  std::uint32_t result = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), result);
  if (error != std::errc{})
    return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
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
  if (job == "ps" || job == "coordinator" || job == "evaluator")
    return fail(
      "names a task that only computes on the CPU: weights and results stay in the host's "
      "memory");
  if (job != "worker")
    return fail("has an unknown job, \"" + std::string{job} + "\"");
  take(rest, job);
  device_entry result;
  if (!take(rest, "/task:"))
    return fail("does not say which task");
  if (!take(rest, "*")) {
    result.worker = take_number(rest);
    if (!result.worker)
      return fail("has a task that is neither a number nor *");
  }
  result.device.gpu = take(rest, "/device:GPU:");
  if (!result.device.gpu && !take(rest, "/device:CPU:"))
    return fail("has no device of a known kind");
  const auto index = take_number(rest);
  if (!index || !rest.empty())
    return fail("does not end with the number of a device");
  result.device.index = *index;
  if (!result.device.gpu && *index > 0)
    return fail("names a second CPU; all processors of a host are CPU:0");
  return result;
}

device_name device_of_worker(const proto::Job& job, std::uint32_t worker) {
  device_name result;
  for (const auto& text : job.device())
    if (const auto entry = parse_device(text); !entry.worker || *entry.worker == worker)
      result = entry.device;
  return result;
}

} // namespace troupe
