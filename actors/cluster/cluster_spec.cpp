#include "actors/cluster/cluster_spec.hpp"

#include "actors/cluster/address.hpp"
#include "actors/model/device_placement.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/file.hpp"
#include "kernels/formats/json_text.hpp"
#include "kernels/formats/nearest_name.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

namespace troupe {

namespace {

using nlohmann::json;

constexpr std::size_t longest_file = std::size_t{16} << 20;

const std::vector<std::string> file_jobs{"coordinator", "ps",     "worker",   "ring",
                                         "chief",       "master", "evaluator"};

/// Reads the text of a cluster file. Each error contains the name of the text.
class reader {
public:
  explicit reader(std::string_view name) : name_(name) {}

  cluster_config read(std::string_view text) {
    const auto root = parse_json(text, name_);
    if (!root.is_object())
      throw input_error{name_ + ": expected an object, {\"cluster\": {...}}, got "
                        + json_kind(root)};
    cluster_config result;
    std::vector<std::string> devices;
    for (auto& [key, value] : root.items())
      if (key == "cluster")
        result.cluster = read_cluster(value);
      else if (key == "task")
        result.task = read_task(value);
      else if (key == "secret_file")
        result.secret_file = read_secret_file(value);
      else if (key == "device")
        devices = read_devices(value);
      else
        check_extra(key);
    if (!devices.empty())
      place(devices, result.cluster);
    return result;
  }

private:
  using addresses = std::vector<std::string>;

  [[noreturn]] void fail(const std::string& place, const std::string& what) const {
    throw input_error{name_ + ": " + place + ": " + what};
  }

  std::string read_secret_file(const json& x) const {
    if (!x.is_string() || x.get<std::string>().empty())
      fail("secret_file",
           std::string{"expected the name of a file, as in \"secret\", got "} + json_excerpt(x));
    return x.get<std::string>();
  }

  std::vector<std::string> read_devices(const json& x) const {
    const auto good = [](const json& y) { return y.is_string(); };
    if (!x.is_array() || !std::ranges::all_of(x, good))
      fail("device",
           std::string{R"(expected a list, as in ["/job:worker/task:0/device:GPU:1"], got )"}
             + json_excerpt(x));
    return x.get<std::vector<std::string>>();
  }

  /// Adds the devices to the cluster. Fails if a device belongs to a task that the cluster does not
  /// have.
  void place(const std::vector<std::string>& devices, std::optional<cluster_spec>& cluster) const {
    if (!cluster)
      fail("device", "names devices of tasks, and \"cluster\" is missing");
    for (std::size_t i = 0; i < devices.size(); ++i) {
      const auto element = json_element("device", i);
      device_entry entry;
      try {
        entry = parse_device(devices[i]);
      } catch (const input_error& error) {
        fail(element, error.what());
      }
      const task_name task{entry.job, entry.task.value_or(0)};
      // The cluster need not name an evaluator.
      if (entry.task && entry.job != job_kind::evaluator && !cluster->tasks.contains(task))
        fail(element,
             "there is no " + to_string(task) + "; the cluster has "
               + std::to_string(cluster->count(entry.job)) + " of them, counted from 0");
    }
    cluster->devices = devices;
  }

  /// Ignores an unknown key, because launchers for TensorFlow write other keys. Fails if the key
  /// looks like a misspelling of a known key.
  void check_extra(const std::string& key) const {
    const auto text =
      suggestion(key, std::vector<std::string>{"cluster", "task", "secret_file", "device"});
    if (text.starts_with("did you mean"))
      fail(key, "there is no such field; " + text);
  }

  task_choice read_task(const json& x) const {
    task_choice result;
    if (!x.is_object())
      fail("task", std::string{R"(expected {"type": "worker", "index": 0}, got )"} + json_kind(x));
    const auto type = x.find("type");
    if (type == x.end())
      fail("task.type", "missing: expected the job of this task, such as \"worker\"");
    if (!type->is_string())
      fail("task.type", std::string{"expected a string, got "} + json_kind(*type));
    result.type = type->get<std::string>();
    if (std::ranges::find(file_jobs, result.type) == file_jobs.end())
      fail("task.type",
           "there is no job \"" + result.type + "\"; " + suggestion(result.type, file_jobs));
    if (const auto index = x.find("index"); index != x.end()) {
      // Some launchers write the index as a string.
      const auto digits = index->is_string() ? index->get<std::string>() : index->dump();
      const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), result.index);
      if (error != std::errc{} || end != digits.data() + digits.size())
        fail("task.index", "expected a number from 0, got " + json_excerpt(*index));
    }
    for (auto& [key, value] : x.items())
      if (const auto text = suggestion(key, std::vector<std::string>{"type", "index"});
          key != "type" && key != "index" && text.starts_with("did you mean"))
        fail("task." + key, "there is no such field; " + text);
    return result;
  }

  cluster_spec read_cluster(const json& x) {
    if (!x.is_object())
      fail("cluster",
           std::string{R"(expected {"coordinator": ["host:port"], "ps": [...], )"}
             + "\"worker\": [...]}, got " + json_kind(x));
    for (auto& [job, list] : x.items())
      jobs_[job] = read_addresses(job, list);
    refuse_both("coordinator", "chief");
    refuse_both("coordinator", "master");
    refuse_both("chief", "master");
    refuse_both("worker", "ring");
    for (const auto* job : {"coordinator", "chief", "master", "evaluator"})
      if (const auto i = jobs_.find(job); i != jobs_.end() && i->second.size() > 1)
        fail(json_element(json_field("cluster", job), 1),
             std::string{"a cluster has only one "} + job);
    auto result = shape();
    check(result);
    return result;
  }

  addresses read_addresses(const std::string& job, const json& list) {
    const auto place = json_field("cluster", job);
    if (std::ranges::find(file_jobs, job) == file_jobs.end())
      fail(place, "there is no such job; " + suggestion(job, file_jobs));
    if (!list.is_array())
      fail(place,
           std::string{"expected a list of addresses, as in [\"host:port\"], got "}
             + json_kind(list));
    addresses result;
    for (auto& x : list) {
      const auto element = json_element(place, result.size());
      std::string host;
      std::uint16_t port = 0;
      if (!x.is_string() || !split_address(x.get<std::string>(), host, port))
        fail(element, json_excerpt(x) + " is not \"host:port\"");
      const auto address = x.get<std::string>();
      if (host == "0.0.0.0" || host == "::")
        fail(element,
             address
               + " is not an address that other hosts can reach; write the name or address of this "
                 "host (with --insecure, the node still listens on all addresses of the host)");
      const auto [first, added] = seen_.emplace(address, element);
      if (!added && port != 0)
        fail(element, address + " is given to two tasks; the first is " + first->second);
      result.push_back(address);
    }
    return result;
  }

  void refuse_both(const std::string& a, const std::string& b) const {
    if (has(a) && has(b))
      fail("cluster." + b, "\"" + a + "\" and \"" + b + "\" mean the same; leave out one of them");
  }

  bool has(const std::string& job) const {
    const auto i = jobs_.find(job);
    return i != jobs_.end() && !i->second.empty();
  }

  /// Maps the jobs of the text to troupe's jobs.
  cluster_spec shape() const {
    const bool chief_trains = !has("ps");
    cluster_spec result;
    bool led = has("coordinator") || has("chief") || has("master");
    std::uint32_t workers = 0;
    const auto add = [&](const std::string& job, auto&& tasks_of) {
      const auto i = jobs_.find(job);
      for (std::uint32_t k = 0; i != jobs_.end() && k < i->second.size(); ++k)
        result.add({{job, k}, i->second[k], tasks_of(k)});
    };
    using tasks = std::vector<task_name>;
    add("coordinator", [](std::uint32_t) { return tasks{coordinator_task}; });
    for (const auto* job : {"chief", "master"})
      add(job, [&](std::uint32_t) {
        return chief_trains ? tasks{coordinator_task, {job_kind::worker, workers++}}
                            : tasks{coordinator_task};
      });
    for (const auto* job : {"worker", "ring"})
      add(job, [&](std::uint32_t) {
        const task_name worker{job_kind::worker, workers++};
        return std::exchange(led, true) ? tasks{worker} : tasks{coordinator_task, worker};
      });
    add("ps", [](std::uint32_t k) { return tasks{{job_kind::ps, k}}; });
    add("evaluator", [](std::uint32_t k) { return tasks{{job_kind::evaluator, k}}; });
    return result;
  }

  void check(const cluster_spec& x) const {
    if (x.count(job_kind::worker) == 0)
      fail("cluster.worker", "missing: expected at least one address");
    if (has("ring") && has("ps"))
      fail("cluster.ring", "\"ring\" is for clusters without ps tasks; call it \"worker\"");
    for (auto& process : x.processes)
      if (process.address.ends_with(":0") && process.tasks.front() == coordinator_task)
        fail(json_element(json_field("cluster", process.name.type), process.name.index),
             "needs a port, so that other nodes can find the coordinator");
  }

  std::string name_;
  std::map<std::string, addresses> jobs_;
  /// Where each address occurs in the text, to find addresses that occur twice.
  std::map<std::string, std::string> seen_;
};

std::string no_cluster(std::string_view name) {
  return std::string{name}
  + ": cluster: missing: expected {\"cluster\": {\"coordinator\": [\"host:port\"], \"ps\": "
    "[...], \"worker\": [...]}}";
}

/// True if a process has a task of this type (such as "ps") in the cluster file.
bool same_job(const cluster_process& x, const std::string& type) {
  if (type == "coordinator")
    return x.tasks.front() == coordinator_task;
  const auto plain = [](const std::string& t) { return t == "ring" ? "worker" : t; };
  return plain(x.name.type) == plain(type);
}

} // namespace

std::string to_string(const task_choice& x) {
  return x.type + '/' + std::to_string(x.index);
}

void cluster_spec::add(cluster_process process) {
  for (auto& task : process.tasks)
    tasks[task] = process.address;
  processes.push_back(std::move(process));
}

std::size_t cluster_spec::count(job_kind job) const {
  return static_cast<std::size_t>(
    std::ranges::count_if(tasks, [job](auto& x) { return x.first.job == job; }));
}

cluster_config parse_cluster_config(std::string_view text, std::string_view name) {
  return reader{name}.read(text);
}

cluster_spec parse_cluster(std::string_view text, std::string_view name) {
  auto result = parse_cluster_config(text, name);
  if (!result.cluster)
    throw input_error{no_cluster(name)};
  return std::move(*result.cluster);
}

cluster_config load_cluster_config(const std::filesystem::path& path) {
  const auto bytes = read_file(path, longest_file);
  auto result = parse_cluster_config({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                                     path.string());
  if (!result.cluster)
    throw input_error{no_cluster(path.string())};
  if (!result.secret_file.empty())
    result.secret_file = (path.parent_path() / result.secret_file).string();
  return result;
}

cluster_spec load_cluster(const std::filesystem::path& path) {
  return std::move(*load_cluster_config(path).cluster);
}

cluster_process find_process(const cluster_spec& cluster, const task_choice& choice,
                             std::string_view who, std::string_view name) {
  const auto fail = [&](const std::string& what) {
    throw input_error{std::string{who} + ": " + what};
  };
  if (std::ranges::find(file_jobs, choice.type) == file_jobs.end())
    fail("there is no such role; " + suggestion(choice.type, file_jobs));
  if (choice.type == "ring" && cluster.count(job_kind::ps) > 0)
    fail("the role \"ring\" is for clusters without ps tasks; use \"worker\"");
  std::size_t count = 0;
  for (auto& process : cluster.processes)
    if (same_job(process, choice.type)) {
      ++count;
      if (choice.type == "coordinator" ? choice.index == 0 : process.name.index == choice.index)
        return process;
    }
  if (choice.type == "evaluator" && choice.index == 0)
    return {choice, "", {{job_kind::evaluator, 0}}};
  throw input_error{std::string{who} + ": " + std::string{name} + " has " + std::to_string(count)
                    + " such task" + (count == 1 ? "" : "s")};
}

std::string to_json(const cluster_spec& x) {
  nlohmann::ordered_json cluster;
  for (auto& process : x.processes)
    cluster[process.name.type].push_back(process.address);
  nlohmann::ordered_json result{{"cluster", cluster}};
  if (!x.devices.empty())
    result["device"] = x.devices;
  return result.dump(2);
}

} // namespace troupe
