#include "actors/cluster/cluster_spec.hpp"

#include "actors/cluster/address.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/file.hpp"
#include "kernels/formats/nearest_name.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

namespace troupe {

namespace {

constexpr std::size_t longest_file = std::size_t{16} << 20;

/// Where an error is, for the reader of the file.
std::string at(std::string_view name, const std::string& place) {
  return std::string{name} + ": " + place + ": ";
}

void add_job(cluster_spec& result, const std::string& job, const nlohmann::json& addresses,
             std::string_view name) {
  const auto place = "cluster." + job;
  task_name task;
  const auto canonical = job == "ring" ? std::string{"worker"} : job;
  if (!parse_job(canonical, task.job)) {
    const std::vector<std::string> known{"coordinator", "ps", "worker", "ring"};
    throw input_error{at(name, place) + "there is no such job; " + suggestion(job, known)};
  }
  if (!addresses.is_array())
    throw input_error{at(name, place) + "expected a list of addresses, as in [\"host:port\"]"};
  for (auto& x : addresses) {
    const auto element = place + '[' + std::to_string(task.index) + ']';
    std::string host;
    std::uint16_t port = 0;
    if (!x.is_string() || !split_address(x.get<std::string>(), host, port))
      throw input_error{at(name, element) + x.dump() + " is not \"host:port\""};
    if (!result.tasks.emplace(task, x.get<std::string>()).second)
      throw input_error{at(name, element) + to_string(task)
                        + " stands there twice: \"ring\" and \"worker\" mean the same"};
    ++task.index;
  }
}

void check(const cluster_spec& x, std::string_view name) {
  if (x.count(job_kind::coordinator) != 1)
    throw input_error{at(name, "cluster.coordinator") + "expected one address, got "
                      + std::to_string(x.count(job_kind::coordinator))};
  if (x.count(job_kind::worker) == 0)
    throw input_error{at(name, "cluster.worker") + "expected at least one address"};
  std::set<std::string> seen;
  for (auto& [task, address] : x.tasks) {
    const bool any_port = address.ends_with(":0");
    if (any_port && task == coordinator_task)
      throw input_error{at(name, "cluster.coordinator[0]") + "needs a port: others must find it"};
    if (!any_port && !seen.insert(address).second)
      throw input_error{at(name, "cluster") + address + " is given to two tasks; the second is "
                        + to_string(task)};
  }
}

} // namespace

std::size_t cluster_spec::count(job_kind job) const {
  return static_cast<std::size_t>(
    std::ranges::count_if(tasks, [job](auto& x) { return x.first.job == job; }));
}

cluster_spec parse_cluster(std::string_view text, std::string_view name) {
  nlohmann::json root;
  try {
    root = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    throw input_error{std::string{name} + ": not valid JSON: " + error.what()};
  }
  if (!root.is_object() || !root.contains("cluster") || !root["cluster"].is_object())
    throw input_error{at(name, "cluster")
                      + "missing: expected {\"cluster\": {\"coordinator\": [\"host:port\"], "
                        "\"ps\": [...], \"worker\": [...]}}"};
  cluster_spec result;
  for (auto& [job, addresses] : root["cluster"].items())
    add_job(result, job, addresses, name);
  check(result, name);
  return result;
}

cluster_spec load_cluster(const std::filesystem::path& path) {
  const auto bytes = read_file(path, longest_file);
  return parse_cluster({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
}

std::string to_json(const cluster_spec& x) {
  nlohmann::ordered_json cluster;
  for (auto& [task, address] : x.tasks)
    cluster[to_string(task.job)].push_back(address);
  return nlohmann::ordered_json{{"cluster", cluster}}.dump(2);
}

} // namespace troupe
