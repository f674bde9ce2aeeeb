#include "actors/cluster/diagnosis.hpp"

#include "tests/support/input_errors.hpp"

BOOST_AUTO_TEST_SUITE(diagnosis_of_clusters)

using namespace troupe;
using namespace troupe::test;

namespace {

const std::string name = "cluster.json";

cluster_spec cluster_of(const std::string& jobs) {
  return parse_cluster("{\"cluster\": {" + jobs + "}}", name);
}

const std::string servers =
  R"("coordinator": ["a:1"], "ps": ["b:1", "c:1"], "worker": ["d:1", "e:1", "f:1", "g:1"])";
const std::string ring = R"("coordinator": ["a:1"], "worker": ["d:1", "e:1", "f:1", "g:1"])";

/// What is observed in a healthy cluster: every process answers as expected.
observations healthy(const cluster_spec& cluster) {
  observations result;
  for (auto& process : cluster.processes) {
    proto::Reach x;
    *x.mutable_task() = to_proto(process.tasks.front());
    x.set_address(process.address);
    x.set_resolved("10.0.0.1:1");
    x.set_version("1.0");
    for (auto& task : process.tasks)
      *x.add_hosted() = to_proto(task);
    result.here.push_back(x);
  }
  for (std::size_t i = 0; i < cluster.processes.size(); ++i)
    for (std::size_t k = 0; k < cluster.processes.size(); ++k)
      if (i != k)
        *result.said[i].add_reach() = result.here[k];
  return result;
}

std::size_t position(const cluster_spec& cluster, const std::string& process) {
  for (std::size_t i = 0; i < cluster.processes.size(); ++i)
    if (to_string(cluster.processes[i].name) == process)
      return i;
  BOOST_FAIL("no " + process);
  return 0;
}

pair_finding pair_of(const cluster_spec& cluster, const diagnosis& x, const std::string& from,
                     const std::string& to) {
  for (auto& pair : x.pairs)
    if (pair.from == position(cluster, from) && pair.to == position(cluster, to))
      return pair;
  BOOST_FAIL("no pair " + from + ", " + to);
  return {};
}

std::string advice_of(const diagnosis& x) {
  std::string result;
  for (auto& line : x.advice)
    result += line + "\n";
  return result;
}

/// The diagnosis if all other processes report this problem when they connect to `process`.
diagnosis with(const cluster_spec& cluster, const std::string& process,
               proto::Reach::Problem problem, const std::string& detail = "") {
  auto x = healthy(cluster);
  const auto i = position(cluster, process);
  const auto spoil = [&](proto::Reach& r) {
    r.set_problem(problem);
    r.set_detail(detail);
    r.clear_version();
    r.clear_hosted();
  };
  spoil(x.here[i]);
  x.said.erase(i);
  x.silent[i] = "not reached from here";
  for (auto& [from, said] : x.said)
    for (auto& r : *said.mutable_reach())
      if (r.task().SerializeAsString() == x.here[i].task().SerializeAsString())
        spoil(r);
  return diagnose(cluster, x, "1.0", name);
}

} // namespace

BOOST_AUTO_TEST_CASE(which_pairs_training_needs) {
  const auto needed = [](const std::string& jobs) {
    const auto cluster = cluster_of(jobs);
    const auto found = diagnose(cluster, healthy(cluster), "1.0", name);
    BOOST_TEST(found.well);
    BOOST_TEST(found.advice.empty());
    BOOST_TEST(found.pairs.size() == cluster.processes.size() * (cluster.processes.size() - 1) / 2);
    std::string result;
    for (auto& pair : found.pairs)
      if (pair.needed)
        result += to_string(cluster.processes[pair.from].name) + ">"
          + to_string(cluster.processes[pair.to].name) + " ";
    return result;
  };
  BOOST_TEST(needed(R"("coordinator": ["a:1"], "ps": ["b:1", "c:1"], "worker": ["d:1", "e:1"])")
             == "worker/0>coordinator/0 worker/0>ps/0 worker/0>ps/1 worker/1>coordinator/0 "
                "worker/1>ps/0 worker/1>ps/1 ps/0>coordinator/0 ps/1>coordinator/0 ");
  BOOST_TEST(needed(ring)
             == "worker/0>coordinator/0 worker/0>worker/1 worker/0>worker/3 "
                "worker/1>coordinator/0 worker/1>worker/2 worker/2>coordinator/0 "
                "worker/2>worker/3 worker/3>coordinator/0 ");
  BOOST_TEST(needed(R"("worker": ["a:1", "b:1", "c:1", "d:1"], "evaluator": ["e:1"])")
             == "worker/1>worker/0 worker/1>worker/2 worker/2>worker/0 worker/2>worker/3 "
                "worker/3>worker/0 evaluator/0>worker/0 ");
}

BOOST_AUTO_TEST_CASE(one_that_does_not_run) {
  const auto cluster = cluster_of(servers);
  const auto found = with(cluster, "ps/1", proto::Reach::REFUSED, "Connection refused");
  BOOST_TEST(!found.well);
  const auto pair = pair_of(cluster, found, "worker/2", "ps/1");
  BOOST_TEST((pair.is == pair_finding::state::failed));
  BOOST_TEST(pair.problem == "Connection refused");
  BOOST_TEST(pair.resolved == "10.0.0.1:1");
  BOOST_TEST((pair_of(cluster, found, "worker/2", "ps/0").is == pair_finding::state::reached));
  // This host does not reach ps/1, so it cannot ask ps/1 which peers that process reaches.
  const auto own = pair_of(cluster, found, "ps/1", "coordinator/0");
  BOOST_TEST((own.is == pair_finding::state::unknown));
  BOOST_TEST(own.problem == "ps/1 could not be asked: not reached from here");
  BOOST_TEST(found.advice.size() == 1U);
  BOOST_TEST(contains(advice_of(found),
                      "ps/1 at c:1: nothing listens there. Start it: troupe node "
                      "--role=ps --task=1"));
}

BOOST_AUTO_TEST_CASE(advice_for_each_problem) {
  const auto cluster = cluster_of(servers);
  const auto check = [&](proto::Reach::Problem problem, const std::string& detail,
                         const std::string& expected) {
    const auto found = with(cluster, "coordinator/0", problem, detail);
    BOOST_TEST(!found.well);
    BOOST_TEST(contains(advice_of(found), "coordinator/0 at a:1: " + expected));
  };
  check(proto::Reach::UNRESOLVED, "Name or service not known",
        "the name does not resolve (Name or service not known)");
  check(proto::Reach::TIMED_OUT, "", "no answer from 10.0.0.1:1");
  check(proto::Reach::UNREACHABLE, "No route to host", "cannot connect to 10.0.0.1:1 (No route");
  check(proto::Reach::LOOPBACK_ONLY, "", "listens on loopback only");
  check(proto::Reach::FOREIGN, "", "a program that is not a troupe node listens there");
}

// A node offers a second TCP connection for large messages. If that does not get through, training
// still works, but more slowly.
BOOST_AUTO_TEST_CASE(a_second_connection_that_does_not_get_through) {
  const auto cluster = cluster_of(servers);
  auto x = healthy(cluster);
  auto& node = x.here[position(cluster, "ps/0")];
  node.set_channel_port(7100);
  BOOST_TEST(diagnose(cluster, x, "1.0", name).advice.empty());
  node.set_channel_problem(proto::Reach::TIMED_OUT);
  const auto found = diagnose(cluster, x, "1.0", name);
  BOOST_TEST(found.well);
  BOOST_TEST_REQUIRE(found.advice.size() == 1U);
  BOOST_TEST(contains(advice_of(found),
                      "ps/0 at b:1: no second connection (port 7100: no answer "
                      "within seconds). Messages then share the first"));
  BOOST_TEST(contains(advice_of(found), "--channel-port=N"));
}

BOOST_AUTO_TEST_CASE(loopback_addresses_are_this_host) {
  const auto cluster = cluster_of(R"("coordinator": ["127.0.0.1:1"], "worker": ["localhost:2"])");
  const auto found = with(cluster, "coordinator/0", proto::Reach::REFUSED);
  BOOST_TEST(contains(advice_of(found), "a loopback address means this host only"));
}

BOOST_AUTO_TEST_CASE(others_answer) {
  const auto cluster = cluster_of(servers);
  auto x = healthy(cluster);
  x.here[position(cluster, "ps/0")].set_version("0.9");
  const auto other_version = diagnose(cluster, x, "1.0", name);
  BOOST_TEST(
    contains(advice_of(other_version), "ps/0 at b:1: troupe 0.9 runs there, but this is 1.0"));

  x = healthy(cluster);
  x.here[position(cluster, "ps/0")].mutable_hosted(0)->set_index(1);
  BOOST_TEST(contains(advice_of(diagnose(cluster, x, "1.0", name)), "ps/1 answers there"));

  // Here, worker/1 instead of this host observes that ps/0 is another version of troupe.
  x = healthy(cluster);
  auto& said = x.said[position(cluster, "worker/1")];
  for (auto& r : *said.mutable_reach())
    if (r.task().job() == "ps" && r.task().index() == 0)
      r.set_version("0.9");
  const auto found = diagnose(cluster, x, "1.0", name);
  BOOST_TEST(!found.well);
  BOOST_TEST((pair_of(cluster, found, "worker/1", "ps/0").is == pair_finding::state::failed));
  BOOST_TEST((pair_of(cluster, found, "worker/0", "ps/0").is == pair_finding::state::reached));
  BOOST_TEST(contains(advice_of(found), "from worker/1: ps/0 at b:1: troupe 0.9 runs there"));
}

BOOST_AUTO_TEST_CASE(a_failure_that_training_does_not_notice) {
  const auto cluster = cluster_of(ring);
  auto x = healthy(cluster);
  for (auto& r : *x.said[position(cluster, "worker/0")].mutable_reach())
    if (r.task().job() == "worker" && r.task().index() == 2)
      r.set_problem(proto::Reach::TIMED_OUT);
  const auto found = diagnose(cluster, x, "1.0", name);
  BOOST_TEST(found.well);
  BOOST_TEST((pair_of(cluster, found, "worker/0", "worker/2").is == pair_finding::state::failed));
}

BOOST_AUTO_TEST_CASE(before_anything_runs) {
  const auto cluster = cluster_of(servers);
  observations x;
  x.here = healthy(cluster).here;
  x.self = position(cluster, "worker/1");
  const auto found = diagnose(cluster, x, "1.0", name);
  // The task worker/1 will run on this host. So the observations of this host stand for worker/1,
  // and nothing is known about what worker/0 reaches.
  BOOST_TEST((pair_of(cluster, found, "worker/1", "ps/0").is == pair_finding::state::reached));
  BOOST_TEST((pair_of(cluster, found, "worker/0", "ps/0").is == pair_finding::state::unknown));
  BOOST_TEST(!found.well);
}

BOOST_AUTO_TEST_CASE(a_connection_that_stands_counts) {
  const auto cluster = cluster_of(R"("coordinator": ["a:1"], "worker": ["d:0"])");
  auto x = healthy(cluster);
  const auto worker = position(cluster, "worker/0");
  x.said.erase(worker);
  x.here[worker].set_problem(proto::Reach::UNKNOWN_PORT);
  BOOST_TEST(!diagnose(cluster, x, "1.0", name).well);
  x.said[position(cluster, "coordinator/0")].mutable_reach(0)->set_connected(true);
  BOOST_TEST(diagnose(cluster, x, "1.0", name).well);
}

BOOST_AUTO_TEST_CASE(another_cluster_file) {
  const auto cluster = cluster_of(servers);
  auto x = healthy(cluster);
  x.said[position(cluster, "ps/1")].mutable_reach(0)->set_address("z:9");
  BOOST_TEST(contains(advice_of(diagnose(cluster, x, "1.0", name)),
                      "ps/1 was started with another cluster file: coordinator/0 is at z:9 there, "
                      "and at a:1 here"));
}

BOOST_AUTO_TEST_SUITE_END()
