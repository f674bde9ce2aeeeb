#include "apps/troupe/commands.hpp"

#include "actors/cluster/address.hpp"
#include "actors/cluster/diagnosis.hpp"
#include "actors/cluster/probe.hpp"
#include "apps/troupe/choose.hpp"
#include "apps/troupe/session.hpp"
#include "messages/configure.hpp"
#include "messages/errors.hpp"
#include "messages/interfaces.hpp"

#include <caf/io/all.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace troupe {

namespace {

/// How long a node may take to test the connections to its peers. Resolving host names can be slow.
constexpr std::chrono::seconds answer_limit{30};

using probing_actor = caf::typed_actor<rpc<proto::Probed, proto::Probe>>;

std::vector<proto::Reach> probe_from_here(const cluster_spec& cluster) {
  google::protobuf::RepeatedPtrField<proto::Reach> result;
  for (auto& process : cluster.processes) {
    auto& x = *result.Add();
    *x.mutable_task() = to_proto(process.tasks.front());
    x.set_address(process.address);
  }
  probe_all(result);
  return {result.begin(), result.end()};
}

/// True if this program can ask the process at this address: it is the expected task, and it has
/// the same version of troupe as this program.
bool is_ours(const proto::Reach& x) {
  return x.problem() == proto::Reach::REACHED && x.version() == version() && x.hosted_size() > 0
    && x.hosted(0).SerializeAsString() == x.task().SerializeAsString();
}

/// Asks all nodes that this program can reach which tasks they can reach themselves. Asks the nodes
/// in parallel.
void ask_nodes(observations& known) {
  caf::actor_system_config cfg;
  configure(cfg);
  tune(cfg);
  cfg.load<caf::io::middleman>();
  caf::actor_system sys{cfg};
  caf::scoped_actor self{sys};
  std::vector<std::pair<std::size_t, probing_actor>> nodes;
  for (std::size_t i = 0; i < known.here.size(); ++i) {
    std::string host;
    std::uint16_t port = 0;
    if (!is_ours(known.here[i]) || !split_address(known.here[i].resolved(), host, port)) {
      known.silent[i] = known.here[i].problem() == proto::Reach::UNKNOWN_PORT
        ? "its port is known once it has joined"
        : "not reached from here";
      continue;
    }
    if (auto node = sys.middleman().remote_actor(host, port))
      nodes.emplace_back(i, caf::actor_cast<probing_actor>(*node));
    else
      known.silent[i] = explain(node.error());
  }
  using answer = decltype(self->request(nodes[0].second, answer_limit, proto::Probe{}));
  std::vector<answer> answers;
  for (auto& [i, node] : nodes)
    answers.push_back(self->request(node, answer_limit, proto::Probe{}));
  for (std::size_t k = 0; k < nodes.size(); ++k)
    answers[k].receive(
      [&](const proto::Probed& x) { known.said[nodes[k].first] = x; },
      [&](const caf::error& error) { known.silent[nodes[k].first] = explain(error); });
}

void print(const cluster_choice& chosen, const observations& known, const diagnosis& found) {
  const auto& processes = chosen.cluster.processes;
  std::size_t width = 0;
  std::size_t address_width = 0;
  for (std::size_t i = 0; i < processes.size(); ++i) {
    width = std::max(width, to_string(processes[i].name).size());
    address_width = std::max(address_width, processes[i].address.size());
  }
  fmt::print("seen from here\n");
  for (std::size_t i = 0; i < processes.size(); ++i) {
    const auto& resolved = known.here[i].resolved();
    fmt::print("  {:<{}}  {:<{}}  {}{}\n", to_string(processes[i].name), width,
               processes[i].address, address_width, found.processes[i],
               resolved.empty() || resolved == processes[i].address ? "" : " (" + resolved + ')');
  }
  fmt::print("\nconnections between tasks (the one on the left connects)\n");
  for (auto& pair : found.pairs) {
    const auto* state = pair.is == pair_finding::state::reached ? "ok"
      : pair.is == pair_finding::state::failed                  ? "FAILED"
                                                                : "unknown";
    auto text = pair.resolved;
    if (!pair.problem.empty())
      text += (text.empty() ? "" : ": ") + pair.problem;
    fmt::print("  {:<{}}  ->  {:<{}}  {:<7}  {}{}\n", to_string(processes[pair.from].name), width,
               to_string(processes[pair.to].name), width, state, text,
               pair.needed ? "" : (text.empty() ? "" : "  ") + std::string{"(not needed)"});
  }
  if (!found.advice.empty())
    fmt::print("\nwhat to do\n");
  for (auto& line : found.advice)
    fmt::print("  {}\n", line);
  fmt::print("\n{}\n",
             found.well ? "All connections that training needs work."
                        : "Not all connections that training needs are known to work.");
}

} // namespace

int run(const doctor_command& x) {
  const auto chosen = choose(x.where);
  observations known;
  known.here = probe_from_here(chosen.cluster);
  if (chosen.process) {
    const auto i = std::ranges::find(chosen.cluster.processes, chosen.process->tasks,
                                     [](auto& process) { return process.tasks; });
    if (i != chosen.cluster.processes.end())
      known.self = static_cast<std::size_t>(i - chosen.cluster.processes.begin());
  }
  ask_nodes(known);
  const auto found = diagnose(chosen.cluster, known, version(), chosen.name);
  print(chosen, known, found);
  return found.well ? exit_done : exit_failed;
}

} // namespace troupe
