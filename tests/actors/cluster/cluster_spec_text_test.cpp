#include "actors/cluster/cluster_spec.hpp"

#include "actors/cluster/secret_file.hpp"
#include "kernels/formats/json_text.hpp"
#include "tests/support/input_errors.hpp"
#include "tests/support/temporary_directory.hpp"

#include <nlohmann/json.hpp>

#include <fstream>

BOOST_AUTO_TEST_SUITE(cluster_spec_text)

using namespace troupe;
using namespace troupe::test;

namespace {

std::string parse_error(const std::string& text) {
  return error_of([&] { parse_cluster_config(text, "x.json"); });
}

/// The error that a cluster file with these jobs gives.
std::string jobs_error(const std::string& jobs) {
  return parse_error("{\"cluster\": {" + jobs + "}}");
}

/// The processes of a cluster with these jobs, each as "name address = its tasks". Example:
/// "chief/0 a:1 = coordinator/0 worker/0; ...". The order of the processes does not depend on the
/// order of the jobs in the file.
std::string described(const std::string& jobs) {
  const auto cluster = parse_cluster("{\"cluster\": {" + jobs + "}}", "x.json");
  std::string result;
  for (auto& process : cluster.processes) {
    result += (result.empty() ? "" : "; ") + to_string(process.name) + " " + process.address + " =";
    for (auto& task : process.tasks) {
      result += " " + to_string(task);
      BOOST_TEST(cluster.tasks.at(task) == process.address);
    }
  }
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(a_coordinator_of_its_own) {
  BOOST_TEST(described(R"("worker": ["c:1", "d:1"], "ps": ["b:1"], "coordinator": ["a:1"])")
             == "coordinator/0 a:1 = coordinator/0; worker/0 c:1 = worker/0; worker/1 d:1 = "
                "worker/1; ps/0 b:1 = ps/0");
  BOOST_TEST(described(R"("coordinator": ["a:1"], "ring": ["b:1", "c:0"])")
             == "coordinator/0 a:1 = coordinator/0; ring/0 b:1 = worker/0; ring/1 c:0 = worker/1");
  BOOST_TEST(described(R"("coordinator": ["a:1"], "worker": ["b:0"], "evaluator": ["e:0"])")
             == "coordinator/0 a:1 = coordinator/0; worker/0 b:0 = worker/0; evaluator/0 e:0 = "
                "evaluator/0");
}

BOOST_AUTO_TEST_CASE(parameter_server_strategy) {
  for (const std::string chief : {"chief", "master"})
    BOOST_TEST(described('"' + chief + R"(": ["a:1"], "ps": ["b:1"], "worker": ["c:1", "d:1"])")
               == chief
                 + "/0 a:1 = coordinator/0; worker/0 c:1 = worker/0; worker/1 d:1 = "
                   "worker/1; ps/0 b:1 = ps/0");
}

BOOST_AUTO_TEST_CASE(multi_worker_mirrored_strategy) {
  for (const std::string chief : {"chief", "master"}) {
    BOOST_TEST(described('"' + chief + R"(": ["a:1"], "worker": ["c:1", "d:1"])")
               == chief
                 + "/0 a:1 = coordinator/0 worker/0; worker/0 c:1 = worker/1; worker/1 "
                   "d:1 = worker/2");
    BOOST_TEST(described('"' + chief + R"(": ["a:1"], "ps": [])")
               == chief + "/0 a:1 = coordinator/0 worker/0");
  }
}

BOOST_AUTO_TEST_CASE(workers_only) {
  BOOST_TEST(described(R"("worker": ["c:1", "d:1"])")
             == "worker/0 c:1 = coordinator/0 worker/0; worker/1 d:1 = worker/1");
  BOOST_TEST(described(R"("worker": ["c:1", "d:0"], "ps": ["b:0"])")
             == "worker/0 c:1 = coordinator/0 worker/0; worker/1 d:0 = worker/1; ps/0 b:0 = ps/0");
}

BOOST_AUTO_TEST_CASE(what_launchers_write) {
  const auto x = parse_cluster_config(
    R"({"cluster": {"chief": ["job-chief-0.ns.svc:2222"], "ps": ["job-ps-0.ns.svc:2222"],
        "worker": ["job-worker-0.ns.svc:2222"]}, "task": {"type": "ps", "index": 0},
        "environment": "cloud", "rpc_layer": "grpc", "job": {"trial": "3"}})",
    "TF_CONFIG");
  BOOST_TEST_REQUIRE(x.cluster.has_value());
  BOOST_TEST_REQUIRE(x.task.has_value());
  BOOST_TEST(to_string(*x.task) == "ps/0");
  BOOST_TEST(x.cluster->tasks.at({job_kind::ps, 0}) == "job-ps-0.ns.svc:2222");
  const auto only_task = parse_cluster_config(R"({"task": {"type": "evaluator"}})", "TF_CONFIG");
  BOOST_TEST(!only_task.cluster.has_value());
  BOOST_TEST(to_string(*only_task.task) == "evaluator/0");
}

BOOST_AUTO_TEST_CASE(files_with_devices) {
  const std::string cluster =
    R"({"cluster": {"coordinator": ["a:1"], "ps": ["b:1"], "worker": ["a:2", "b:2"]}, "device": )";
  const auto x = parse_cluster(cluster
                                 + R"(["/job:worker/task:*/device:GPU:0", )"
                                   R"("/job:worker/task:1/device:GPU:1", )"
                                   R"("/job:evaluator/task:0/device:GPU:0"]})",
                               "x.json");
  BOOST_TEST_REQUIRE(x.devices.size() == 3U);
  BOOST_TEST(x.devices[1] == "/job:worker/task:1/device:GPU:1");
  BOOST_TEST(parse_cluster(to_json(x), "again").devices == x.devices,
             boost::test_tools::per_element());
  const auto error_with = [&](const std::string& device) {
    return parse_error(cluster + device + "}");
  };
  BOOST_TEST(contains(error_with("1"), "x.json: device: expected a list"));
  BOOST_TEST(contains(error_with("[1]"), "x.json: device: expected a list"));
  BOOST_TEST(contains(error_with(R"(["/job:cook/task:0/device:GPU:0"])"),
                      "x.json: device[0]: \"/job:cook/task:0/device:GPU:0\" has an unknown job"));
  BOOST_TEST(contains(error_with(R"(["/job:ps/task:1/device:GPU:0"])"),
                      "x.json: device[0]: there is no ps/1; the cluster has 1 of them"));
  BOOST_TEST(contains(parse_error(R"({"device": ["/job:ps/task:0/device:GPU:0"]})"),
                      "x.json: device: names devices of tasks"));
  BOOST_TEST(contains(parse_error(R"({"devise": [], "cluster": {"worker": ["a:1"]}})"),
                      "did you mean \"device\""));
}

BOOST_AUTO_TEST_CASE(files_with_secrets) {
  const temporary_directory folder;
  const std::string cluster = R"({"cluster": {"worker": ["a:1"]})";
  const auto with = [&](const std::string& name) {
    std::ofstream{folder / "x.json"} << cluster << ", \"secret_file\": \"" << name << "\"}";
    return load_cluster_config(folder / "x.json").secret_file;
  };
  BOOST_TEST(with("key") == (folder / "key").string());
  BOOST_TEST(with("/etc/key") == "/etc/key");
  BOOST_TEST(parse_cluster_config(cluster + "}", "x.json").secret_file == "");
  for (const std::string wrong : {"1", "\"\"", "[\"a\"]"})
    BOOST_TEST(contains(parse_error(cluster + ", \"secret_file\": " + wrong + "}"),
                        "x.json: secret_file: expected the name of a file"));
  BOOST_TEST(contains(parse_error(cluster + R"(, "secretfile": "a"})"), "did you mean"));

  std::ofstream{folder / "key"} << "0123456789abcdef \n\n";
  std::filesystem::permissions(folder / "key", std::filesystem::perms{0600});
  BOOST_TEST(read_secret(folder / "key").text == "0123456789abcdef");
  BOOST_TEST(read_secret(folder / "key").warning == "");
  for (const unsigned mode : {0640U, 0604U, 0644U}) {
    std::filesystem::permissions(folder / "key", std::filesystem::perms{mode});
    BOOST_TEST(contains(read_secret(folder / "key").warning, "chmod 600"));
  }
  std::ofstream{folder / "key"} << "0123456789abcde\n";
  BOOST_TEST(contains(error_of([&] { read_secret(folder / "key"); }), "at least 16"));
  BOOST_TEST(contains(error_of([&] { read_secret(folder / "none"); }), "none"));
}

BOOST_AUTO_TEST_CASE(wrong_texts) {
  const auto check = [](const std::string& error, const std::string& expected) {
    BOOST_TEST(contains(error, expected));
  };
  check(parse_error("{\"cluster\": "), "x.json:1:13: not valid JSON");
  check(parse_error("[]"), "x.json: expected an object");
  check(parse_error("{\"cluster\": []}"), "x.json: cluster: expected {");
  check(parse_error("{\"clutser\": {}}"),
        "x.json: clutser: there is no such field; did you mean "
        "\"cluster\"?");
  check(parse_error(R"({"cluster": {}, "cluster": {}})"), "x.json: cluster: occurs twice");
  check(error_of([] { parse_cluster("{}", "x.json"); }), "x.json: cluster: missing");
  check(parse_error(R"({"task": 1})"), "x.json: task: expected {\"type\"");
  check(parse_error(R"({"task": {}})"), "x.json: task.type: missing");
  check(parse_error(R"({"task": {"type": 1}})"), "x.json: task.type: expected a string");
  check(parse_error(R"({"task": {"type": "wroker"}})"),
        "x.json: task.type: there is no job \"wroker\"; did you mean \"worker\"?");
  for (const std::string index : {"-1", "1.5", "\"x\"", "4294967296", "null"})
    check(parse_error(R"({"task": {"type": "ps", "index": )" + index + "}}"),
          "x.json: task.index: expected a number from 0, got " + index);
  check(parse_error(R"({"task": {"type": "ps", "idnex": 1}})"), "x.json: task.idnex: ");
}

BOOST_AUTO_TEST_CASE(wrong_clusters) {
  const auto check = [](const std::string& jobs, const std::string& expected) {
    BOOST_TEST(contains(jobs_error(jobs), "x.json: " + expected));
  };
  const std::string worker = R"(, "worker": ["z:1"])";
  check(R"("wroker": ["a:1"])", "cluster.wroker: there is no such job; did you mean \"worker\"?");
  check(R"("worker": "a:1")", "cluster.worker: expected a list of addresses");
  check(R"("worker": ["a:1", 2])", "cluster.worker[1]: 2 is not \"host:port\"");
  check(R"("worker": ["a:1", "b"])", "cluster.worker[1]: \"b\" is not \"host:port\"");
  check(R"("worker": ["a:70000"])", "cluster.worker[0]: \"a:70000\" is not");
  check(R"("worker": ["a:1"], "worker": ["b:1"])", "cluster.worker: occurs twice");
  check(R"("ps": ["a:1"], "coordinator": ["a:1"])" + worker,
        "cluster.ps[0]: a:1 is given to two tasks");
  check(R"("worker": ["a:1", "b:1", "a:1"])",
        "cluster.worker[2]: a:1 is given to two tasks; the first is cluster.worker[0]");
  check(R"("coordinator": ["a:1"])", "cluster.worker: missing");
  check(R"("coordinator": ["a:1", "b:1"])" + worker, "cluster.coordinator[1]: a cluster has only");
  check(R"("chief": ["a:1", "b:1"])" + worker, "cluster.chief[1]: a cluster has only one chief");
  check(R"("evaluator": ["a:1", "b:1"])" + worker, "cluster.evaluator[1]: a cluster has only");
  check(R"("chief": ["a:1"], "coordinator": ["b:1"])" + worker, "cluster.chief: ");
  check(R"("chief": ["a:1"], "master": ["b:1"])" + worker, "cluster.master: ");
  check(R"("coordinator": ["a:0"])" + worker, "cluster.coordinator[0]: needs a port");
  check(R"("chief": ["a:0"])" + worker, "cluster.chief[0]: needs a port");
  check(R"("worker": ["a:0"])", "cluster.worker[0]: needs a port");
  check(R"("worker": ["0.0.0.0:1"])",
        "cluster.worker[0]: 0.0.0.0:1 is not an address that other hosts can");
  check(R"("worker": ["[::]:1"])", "cluster.worker[0]: [::]:1 is not an address");
  check(R"("ring": ["a:1"], "ps": ["b:1"])", "cluster.ring: ");
  BOOST_TEST(jobs_error(R"("worker": ["a:1", "b:0", "b:0"])") == "(no error)");
}

BOOST_AUTO_TEST_CASE(finding_a_process) {
  const auto find = [](const std::string& jobs, const std::string& type, std::uint32_t index) {
    const auto cluster = parse_cluster("{\"cluster\": {" + jobs + "}}", "x.json");
    return to_string(
      find_process(cluster, {type, index}, "--role=" + type, "x.json").tasks.front());
  };
  const std::string chief = R"("chief": ["a:1"], "worker": ["c:1", "d:1"])";
  BOOST_TEST(find(chief, "chief", 0) == "coordinator/0");
  BOOST_TEST(find(chief, "coordinator", 0) == "coordinator/0");
  BOOST_TEST(find(chief, "worker", 1) == "worker/2");
  BOOST_TEST(find(chief, "ring", 0) == "worker/1");
  BOOST_TEST(find(chief, "evaluator", 0) == "evaluator/0");
  const std::string plain = R"("coordinator": ["a:1"], "ps": ["b:1", "c:1"], "worker": ["d:1"])";
  BOOST_TEST(find(plain, "ps", 1) == "ps/1");
  const auto error = [&](const std::string& type, std::uint32_t index) {
    return error_of([&] { find(plain, type, index); });
  };
  BOOST_TEST(error("ps", 2) == "--role=ps: x.json has 2 such tasks");
  BOOST_TEST(error("worker", 1) == "--role=worker: x.json has 1 such task");
  BOOST_TEST(error("coordinator", 1) == "--role=coordinator: x.json has 1 such task");
  BOOST_TEST(error("chief", 0) == "--role=chief: x.json has 0 such tasks");
  BOOST_TEST(error("evaluator", 1) == "--role=evaluator: x.json has 0 such tasks");
  BOOST_TEST(contains(error("wroker", 0), "there is no such role; did you mean \"worker\"?"));
  BOOST_TEST(contains(error("ring", 0), "use \"worker\""));
}

BOOST_AUTO_TEST_CASE(writing_and_reading_back) {
  for (const std::string jobs :
       {R"("coordinator": ["a:1"], "ps": ["b:1"], "worker": ["c:1", "d:0"], "evaluator": ["e:0"])",
        R"("chief": ["a:1"], "worker": ["c:1"])", R"("worker": ["c:1", "d:1"])"}) {
    const auto text = to_json(parse_cluster("{\"cluster\": {" + jobs + "}}", "x.json"));
    BOOST_TEST(parse_json(text, "a") == parse_json("{\"cluster\": {" + jobs + "}}", "b"));
  }
}

BOOST_AUTO_TEST_CASE(survives_hostile_variants) {
  const auto good = bytes_of(
    R"({"cluster": {"chief": ["a:1"], "ps": ["b:2"], "worker": ["[::1]:3", "d:0"]},
        "task": {"type": "worker", "index": 1}, "environment": "cloud"})");
  troupe::test::survive_hostile_variants(good, [](std::span<const std::byte> x) {
    parse_cluster_config({reinterpret_cast<const char*>(x.data()), x.size()}, "x.json");
  });
}

BOOST_AUTO_TEST_SUITE_END()
