// Where a process finds its cluster and its task: first in the command-line options, then in the
// cluster file, then in the environment (TF_CONFIG).

#include "actors/cluster/cluster_choice.hpp"

#include "tests/support/input_errors.hpp"
#include "tests/support/temporary_directory.hpp"

#include <fstream>

BOOST_AUTO_TEST_SUITE(choosing_a_cluster)

using namespace troupe;
using namespace troupe::test;

namespace {

const std::string in_file = R"("cluster": {"coordinator": ["file:1"], "ps": ["file:2", "file:3"],
                                           "worker": ["file:4", "file:5", "file:6"]})";
const std::string in_environment = R"("cluster": {"chief": ["env:1"], "worker": ["env:2"]})";

struct sources {
  temporary_directory folder;

  /// The task that this process runs, and its address; or the error.
  std::string chosen(const std::string& file, const std::string& environment,
                     std::optional<std::string> role = {},
                     std::optional<std::uint32_t> task = {}) const {
    cluster_sources from;
    from.role = std::move(role);
    from.task = task;
    if (!file.empty()) {
      from.file = (folder / "cluster.json").string();
      std::ofstream{from.file} << file;
    }
    if (!environment.empty())
      from.environment = environment;
    std::string result;
    const auto error = error_of([&] {
      const auto x = choose_cluster(from);
      result = x.process ? to_string(x.process->name) + " at " + x.process->address
                         : "nobody of " + x.name;
    });
    return result.empty() ? error : result;
  }
};

std::string text(const std::string& cluster, const std::string& task = "") {
  return "{" + cluster + (cluster.empty() || task.empty() ? "" : ", ")
    + (task.empty() ? "" : "\"task\": " + task) + "}";
}

} // namespace

BOOST_FIXTURE_TEST_CASE(one_source, sources) {
  const std::string ps1 = R"({"type": "ps", "index": 1})";
  BOOST_TEST(chosen(text(in_file), "", "ps", 1) == "ps/1 at file:3");
  BOOST_TEST(chosen(text(in_file), "", "ps") == "ps/0 at file:2");
  BOOST_TEST(chosen(text(in_file, ps1), "") == "ps/1 at file:3");
  BOOST_TEST(chosen("", text(in_environment, R"({"type": "worker"})")) == "worker/0 at env:2");
  BOOST_TEST(chosen("", text(in_environment), "chief") == "chief/0 at env:1");
  BOOST_TEST(contains(chosen(text(in_file), ""), "nobody of "));
}

BOOST_FIXTURE_TEST_CASE(flags_come_first, sources) {
  const auto file = text(in_file, R"({"type": "ps", "index": 1})");
  const auto environment = text(in_environment, R"({"type": "chief"})");
  BOOST_TEST(chosen(file, environment, "worker", 2) == "worker/2 at file:6");
  BOOST_TEST(chosen(file, environment, "worker") == "worker/0 at file:4");
  BOOST_TEST(chosen(file, environment, {}, 0) == "ps/0 at file:2");
  BOOST_TEST(chosen("", environment, "worker") == "worker/0 at env:2");
}

BOOST_FIXTURE_TEST_CASE(then_the_file, sources) {
  const auto environment = text(in_environment, R"({"type": "worker", "index": 0})");
  BOOST_TEST(chosen(text(in_file, R"({"type": "ps"})"), environment) == "ps/0 at file:2");
  // The file lists the cluster, but not the task of this process. So only this task comes from the
  // environment.
  BOOST_TEST(chosen(text(in_file), environment) == "worker/0 at file:4");
  BOOST_TEST(chosen(text(in_file), text("", R"({"type": "worker", "index": 2})"))
             == "worker/2 at file:6");
  BOOST_TEST(chosen(text(in_file), text("", R"({"type": "worker", "index": 2})"), {}, 1)
             == "worker/1 at file:5");
}

BOOST_FIXTURE_TEST_CASE(an_evaluator_that_the_cluster_does_not_name, sources) {
  BOOST_TEST(chosen("", text(in_environment, R"({"type": "evaluator", "index": 0})"))
             == "evaluator/0 at ");
}

BOOST_FIXTURE_TEST_CASE(errors_name_the_source, sources) {
  BOOST_TEST(contains(chosen("", ""), "--cluster=FILE"));
  BOOST_TEST(contains(chosen("", "{}"), "TF_CONFIG: cluster: missing"));
  BOOST_TEST(contains(chosen("", "{"), "TF_CONFIG:1:2: not valid JSON"));
  BOOST_TEST(contains(chosen("", text(in_environment, R"({"type": "ps", "index": 3})")),
                      "TF_CONFIG: task ps/3: TF_CONFIG has 0 such tasks"));
  BOOST_TEST(contains(chosen(text(in_file, R"({"type": "ps", "index": 3})"), ""),
                      "cluster.json: task ps/3: "));
  BOOST_TEST(contains(chosen(text(in_file), "", "ps", 3), "--role=ps --task=3: "));
  BOOST_TEST(contains(chosen(text(in_file), "", "ps", 3), "cluster.json has 2 such tasks"));
  BOOST_TEST(contains(chosen(text(in_file), "", {}, 1), "--task=1: the kind of task is missing"));
  // The file and the options supply all values, so the environment is not even parsed.
  BOOST_TEST(chosen(text(in_file), "{", "ps") == "ps/0 at file:2");
}

BOOST_AUTO_TEST_SUITE_END()
