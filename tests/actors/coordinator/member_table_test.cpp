#include "actors/coordinator/member_table.hpp"

#include "actors/model/data_builder.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr auto version = "1.2.3";

const task_name worker{job_kind::worker, 0};
const task_name ps{job_kind::ps, 0};
const task_name evaluator{job_kind::evaluator, 0};

struct table_fixture {
  table_fixture() {
    const auto job = example_job("digits_mlp", {"data.digits={train: 64 test: 20}"});
    context = make_job_context(job, shape_of(*build_data(job).train));
    members.emplace(std::vector<expected_task>{{worker, "a:1"}, {ps, ""}}, context, version);
  }

  proto::Join join(std::uint64_t incarnation = 1) const {
    proto::Join result;
    result.set_version(version);
    result.set_incarnation(incarnation);
    return result;
  }

  std::string refusal(const proto::Join& x, const task_name& task) const {
    return members->refusal(x, task).value_or("");
  }

  std::shared_ptr<const job_context> context;
  std::optional<troupe::member_table> members;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

} // namespace

BOOST_FIXTURE_TEST_SUITE(member_table, table_fixture)

BOOST_AUTO_TEST_CASE(until_all_have_joined) {
  BOOST_TEST(members->missing() == "worker/0 (a:1), ps/0");
  BOOST_TEST(members->join(worker, 1, "a:1"));
  BOOST_TEST(!members->join(worker, 1, "a:1"), "a repetition");
  BOOST_TEST(!members->all_joined());
  BOOST_TEST(members->missing() == "ps/0");
  BOOST_TEST(members->join(ps, 1, "b:1"));
  BOOST_TEST(members->all_joined());
  members->leave(worker);
  BOOST_TEST(members->missing() == "worker/0 (a:1)");
  BOOST_TEST(members->expected_of(job_kind::worker) == 1U);
}

BOOST_AUTO_TEST_CASE(who_may_join) {
  BOOST_TEST(refusal(join(), worker) == "");
  BOOST_TEST(refusal(join(), evaluator) == "", "nobody needs to name it");
  BOOST_TEST(refusal(join(), {job_kind::worker, 1})
             == "worker/1 is not in the cluster of this coordinator");
  auto old = join();
  old.set_version("0.0.0");
  BOOST_TEST(contains(refusal(old, worker), "install the same version"));
  members->join(worker, 1, "a:1");
  BOOST_TEST(refusal(join(1), worker) == "");
  BOOST_TEST(!members->has_other_start(worker, 1));
  BOOST_TEST(members->has_other_start(worker, 2));
  BOOST_TEST(!members->has_other_start(ps, 2));
  BOOST_TEST(contains(refusal(join(2), worker), "has joined already, from a:1"));
}

BOOST_AUTO_TEST_CASE(another_job) {
  auto x = join();
  x.set_job_hash(context->hash);
  BOOST_TEST(refusal(x, worker) == "");
  auto other = context->job;
  other.set_epochs(other.epochs() + 1);
  x.set_job_hash("0123456789abcdef");
  x.set_job_text(other.DebugString());
  const auto text = refusal(x, worker);
  BOOST_TEST(contains(text, "was given another job (hash 0123456789ab"), text);
  BOOST_TEST(contains(text, "epochs"), text);
  x.set_job_text("what is this");
  BOOST_TEST(contains(refusal(x, worker), "was given another job"));
}

BOOST_AUTO_TEST_SUITE_END()
