#include "messages/names.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <vector>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(names)

BOOST_AUTO_TEST_CASE(to_and_from_headers) {
  for (const auto job : {job_kind::worker, job_kind::ps, job_kind::coordinator})
    for (const std::uint32_t index : {0U, 7U, ~0U}) {
      const task_name task{job, index};
      task_name task_back;
      BOOST_TEST(from_proto(to_proto(task), task_back));
      BOOST_TEST((task_back == task));
      for (int s = proto::Service_MIN; s <= proto::Service_MAX; ++s) {
        const endpoint x{task, static_cast<proto::Service>(s)};
        endpoint back;
        BOOST_TEST(from_proto(to_proto(x), back));
        BOOST_TEST((back == x));
      }
    }
}

BOOST_AUTO_TEST_CASE(unknown_jobs) {
  for (const char* job : {"", "Worker", "worker ", "chief", "ring"}) {
    proto::TaskName x;
    x.set_job(job);
    task_name result;
    BOOST_TEST(!from_proto(x, result));
    proto::Endpoint y;
    *y.mutable_task() = x;
    endpoint to;
    BOOST_TEST(!from_proto(y, to));
    job_kind kind{};
    BOOST_TEST(!parse_job(job, kind));
  }
}

BOOST_AUTO_TEST_CASE(the_order_of_dialling) {
  const std::vector<task_name> ascending{
    {job_kind::worker, 0}, {job_kind::worker, 1}, {job_kind::worker, 10},
    {job_kind::ps, 0},     {job_kind::ps, 2},     coordinator_task,
  };
  for (std::size_t i = 0; i < ascending.size(); ++i)
    for (std::size_t k = 0; k < ascending.size(); ++k)
      BOOST_TEST(((ascending[i] < ascending[k]) == (i < k)));
  BOOST_TEST((endpoint{{job_kind::worker, 9}, proto::NODE}
              < endpoint{{job_kind::ps, 0}, proto::COORDINATOR}));
  BOOST_TEST(
    (endpoint{coordinator_task, proto::COORDINATOR} < endpoint{coordinator_task, proto::NODE}));
}

BOOST_AUTO_TEST_CASE(texts) {
  BOOST_TEST(to_string(task_name{job_kind::ps, 12}) == "ps/12");
  BOOST_TEST(to_string(coordinator_task) == "coordinator/0");
  BOOST_TEST(to_string(endpoint{{job_kind::worker, 1}, proto::RING_NODE})
             == "worker/1 (ring node)");
  for (const auto job : {job_kind::worker, job_kind::ps, job_kind::coordinator}) {
    job_kind back{};
    BOOST_TEST(parse_job(to_string(job), back));
    BOOST_TEST((back == job));
  }
}

BOOST_AUTO_TEST_SUITE_END()
