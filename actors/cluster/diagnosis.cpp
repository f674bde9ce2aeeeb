#include "actors/cluster/diagnosis.hpp"

#include "actors/cluster/address.hpp"

#include <algorithm>

namespace troupe {

namespace {

using proto::Reach;

bool holds(const google::protobuf::RepeatedPtrField<proto::TaskName>& tasks,
           const cluster_process& process) {
  return std::ranges::any_of(tasks, [&](auto& x) {
    task_name task;
    return from_proto(x, task) && task == process.tasks.front();
  });
}

bool is_loopback(const std::string& address) {
  std::string host;
  std::uint16_t port = 0;
  split_address(address, host, port);
  return host.starts_with("127.") || host == "localhost" || host == "::1";
}

std::string names_of(const google::protobuf::RepeatedPtrField<proto::TaskName>& tasks) {
  std::string result;
  for (auto& x : tasks)
    result += (result.empty() ? "" : " and ") + x.job() + '/' + std::to_string(x.index());
  return result;
}

/// Combines the observations of one cluster.
class physician {
public:
  physician(const cluster_spec& cluster, const observations& x, const std::string& version,
            const std::string& name)
    : cluster_(cluster), x_(x), version_(version), name_(name) {}

  diagnosis run() {
    const auto n = cluster_.processes.size();
    for (std::size_t i = 0; i < n; ++i)
      result_.processes.push_back(seen_from_here(i));
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t k = 0; k < n; ++k)
        if (cluster_.processes[i].tasks.front() < cluster_.processes[k].tasks.front())
          result_.pairs.push_back(examine(i, k));
    result_.well = std::ranges::none_of(
      result_.pairs, [](auto& p) { return p.needed && p.is != pair_finding::state::reached; });
    compare_files();
    return std::move(result_);
  }

private:
  std::string called(std::size_t i) const { return to_string(cluster_.processes[i].name); }

  /// The problem with the answer of process `to`; empty if there is no problem.
  std::string problem_of(const Reach& r, std::size_t to) const {
    switch (r.problem()) {
    case Reach::REACHED:
      if (!r.version().empty() && r.version() != version_)
        return "troupe " + r.version() + " answers, this is " + version_;
      if (r.hosted_size() > 0 && !holds(r.hosted(), cluster_.processes[to]))
        return names_of(r.hosted()) + " answers";
      return "";
    case Reach::UNKNOWN_PORT:
      return "its port is known once it has joined";
    case Reach::UNRESOLVED:
      return "the name does not resolve: " + r.detail();
    case Reach::LOOPBACK_ONLY:
      return "listens on loopback only";
    case Reach::TIMED_OUT:
      return "no answer within seconds";
    case Reach::FOREIGN:
      return "something else listens there";
    default:
      return r.detail();
    }
  }

  /// The problem with the process's port for channels (the faster, second connections); empty if
  /// there is no problem.
  static std::string lack_of(const Reach& r) {
    if (r.channel_port() == 0 || r.channel_problem() == Reach::REACHED)
      return "";
    return "no second connection (port " + std::to_string(r.channel_port()) + ": "
      + (r.channel_problem() == Reach::TIMED_OUT ? "no answer within seconds" : r.channel_detail())
      + ')';
  }

  std::string seen_from_here(std::size_t i) {
    const auto& r = x_.here[i];
    auto problem = problem_of(r, i);
    if (r.problem() != Reach::UNKNOWN_PORT)
      advise(r, i, "");
    if (!problem.empty())
      return problem;
    return r.version().empty() ? "a node of another program"
                               : "troupe " + r.version() + ", " + names_of(r.hosted());
  }

  /// What process `from` has observed about process `to`; null if nothing.
  const Reach* said(std::size_t from, std::size_t to) const {
    const auto i = x_.said.find(from);
    if (i == x_.said.end())
      return nullptr;
    for (auto& r : i->second.reach()) {
      task_name task;
      if (from_proto(r.task(), task) && task == cluster_.processes[to].tasks.front())
        return &r;
    }
    return nullptr;
  }

  pair_finding examine(std::size_t from, std::size_t to) {
    pair_finding result;
    result.from = from;
    result.to = to;
    result.needed = needs_connection(cluster_, cluster_.processes[from], cluster_.processes[to]);
    const auto* there = said(from, to);
    const auto* back = said(to, from);
    const bool connected = (there && there->connected()) || (back && back->connected());
    if (!there && x_.self == from)
      there = &x_.here[to];
    if (there)
      result.resolved = there->resolved();
    if (there && there->problem() != Reach::UNKNOWN_PORT) {
      result.problem = problem_of(*there, to);
      result.is =
        result.problem.empty() ? pair_finding::state::reached : pair_finding::state::failed;
      advise(*there, to, called(from));
    } else {
      result.problem = there ? problem_of(*there, to) : why_silent(from, to);
    }
    if (connected) {
      result.is = pair_finding::state::reached;
      result.problem.clear();
    }
    if (there && result.is == pair_finding::state::reached)
      result.problem = lack_of(*there);
    return result;
  }

  std::string why_silent(std::size_t from, std::size_t to) const {
    if (x_.said.contains(from))
      return called(from) + " does not know " + called(to);
    const auto i = x_.silent.find(from);
    return called(from) + " could not be asked" + (i == x_.silent.end() ? "" : ": " + i->second);
  }

  /// Adds the advice for a problem of process `to`, once per process.
  void advise(const Reach& r, std::size_t to, const std::string& from) {
    const auto& process = cluster_.processes[to];
    const auto text = remedy(r, to);
    if (text.empty())
      return;
    const auto line = called(to) + " at " + process.address + ": " + text;
    if (std::ranges::find(advised_, line) != advised_.end())
      return;
    advised_.push_back(line);
    result_.advice.push_back(from.empty() ? line : "from " + from + ": " + line);
  }

  std::string remedy(const Reach& r, std::size_t to) const {
    const auto& process = cluster_.processes[to];
    const auto port = process.address.substr(process.address.rfind(':') + 1);
    switch (r.problem()) {
    case Reach::REACHED:
      if (!r.version().empty() && r.version() != version_)
        return "troupe " + r.version() + " runs there, but this is " + version_
          + ". Install the same version on all hosts";
      if (r.hosted_size() > 0 && !holds(r.hosted(), process))
        return names_of(r.hosted())
          + " answers there. Start each task on its own host, with the same cluster file on all";
      if (const auto lack = lack_of(r); !lack.empty())
        return lack
          + ". Messages then share the first connection, which is slower, and the run loses the "
            "task if it breaks. Start the task with --channel-port=N, and open port N in the "
            "firewall";
      return "";
    case Reach::UNKNOWN_PORT:
      return "";
    case Reach::UNRESOLVED:
      return "the name does not resolve (" + r.detail() + "). Check how it is written in " + name_
        + ", and that it is known to DNS or /etc/hosts";
    case Reach::REFUSED:
      return "nothing listens there. Start it: troupe node --role=" + process.name.type
        + " --task=" + std::to_string(process.name.index)
        + " --cluster=" + (name_ == "TF_CONFIG" ? "FILE" : name_)
        + (is_loopback(process.address)
             ? " (a loopback address means this host only: if the task runs elsewhere, write "
               "the address of its host)"
             : "; if it runs, it has another port there, or listens on loopback only");
    case Reach::LOOPBACK_ONLY:
      return "listens on loopback only. Start it with --insecure, and with an address in " + name_
        + " that other hosts can reach";
    case Reach::TIMED_OUT:
      return "no answer from " + r.resolved() + ". Is that the right address, is the host "
        + "up, and does a firewall let port " + port + " through?";
    case Reach::FOREIGN:
      return "a program that is not a troupe node listens there. End it (`ss -ltnp` shows it), or "
             "give the task another port in "
        + name_;
    default:
      return "cannot connect to " + r.resolved() + " (" + r.detail()
        + "). Check the address, and the routes between the hosts";
    }
  }

  /// Finds nodes that were started with another cluster file.
  void compare_files() {
    for (auto& [i, probed] : x_.said)
      for (auto& r : probed.reach()) {
        task_name task;
        const auto known =
          from_proto(r.task(), task) ? cluster_.tasks.find(task) : cluster_.tasks.end();
        if (known == cluster_.tasks.end() || known->second == r.address()
            || known->second.ends_with(":0") || r.address().empty())
          continue;
        result_.advice.push_back(called(i) + " was started with another cluster file: "
                                 + to_string(task) + " is at " + r.address() + " there, and at "
                                 + known->second + " here. Give all hosts the same file");
      }
  }

  const cluster_spec& cluster_;
  const observations& x_;
  const std::string& version_;
  const std::string& name_;
  std::vector<std::string> advised_;
  diagnosis result_;
};

} // namespace

bool needs_connection(const cluster_spec& cluster, const cluster_process& a,
                      const cluster_process& b) {
  const auto workers = static_cast<std::uint32_t>(cluster.count(job_kind::worker));
  const bool ring = cluster.count(job_kind::ps) == 0;
  const auto needs = [&](const task_name& x, const task_name& y) {
    if (x == coordinator_task || y == coordinator_task)
      return true;
    if (x.job != job_kind::worker)
      return false;
    if (y.job == job_kind::ps)
      return true;
    return ring && y.job == job_kind::worker
      && ((x.index + 1) % workers == y.index || (y.index + 1) % workers == x.index);
  };
  return std::ranges::any_of(a.tasks, [&](auto& x) {
    return std::ranges::any_of(b.tasks, [&](auto& y) { return needs(x, y) || needs(y, x); });
  });
}

diagnosis diagnose(const cluster_spec& cluster, const observations& x, const std::string& version,
                   const std::string& name) {
  return physician{cluster, x, version, name}.run();
}

} // namespace troupe
