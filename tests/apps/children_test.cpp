#include "apps/troupe/children.hpp"

#include <boost/test/unit_test.hpp>

#include <csignal>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(children_of_a_run)

// Tests which ends of child processes are reported as problems. A child may be killed by somebody.
// It may fail if it is a worker and the run has continued without it, or if it is excused.
BOOST_AUTO_TEST_CASE(bad_ends) {
  const std::vector<task_name> gone{{job_kind::worker, 1}, {job_kind::worker, 12}};
  const auto problem = [&](const std::string& name, std::optional<int> code,
                           std::optional<int> signal = {}, bool excused = false) {
    return problem_of({{"worker/12", 1}, {name, code, signal, excused}}, gone);
  };
  BOOST_TEST(problem_of({}, gone) == "");
  BOOST_TEST(problem("worker/1", 1) == "");
  BOOST_TEST(problem("worker/1", {}) == "");
  BOOST_TEST(problem("worker/1", {}, SIGKILL) == "");
  BOOST_TEST(problem("worker/1", 2) == "worker/1 ended with exit code 2");
  BOOST_TEST(problem("worker/2", 1) == "worker/2 ended with exit code 1");
  BOOST_TEST(problem("worker/2", {}) == "worker/2 did not end, and was killed");
  BOOST_TEST(problem("worker/2", {}, SIGKILL) == "");
  BOOST_TEST(problem("ps/0", {}, SIGTERM) == "");
  BOOST_TEST(problem("worker/2", {}, SIGSEGV)
             == "worker/2 was killed by signal 11 (Segmentation fault)");
  BOOST_TEST(problem("worker/2", 1, {}, true) == "");
  BOOST_TEST(problem("worker/2", 2, {}, true) == "worker/2 ended with exit code 2");
  BOOST_TEST(problem("worker/2", {}, {}, true) == "worker/2 did not end, and was killed");
  BOOST_TEST(problem("ps/1", 1) == "ps/1 ended with exit code 1");
}

BOOST_AUTO_TEST_SUITE_END()
