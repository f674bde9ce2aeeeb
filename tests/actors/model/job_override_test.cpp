#include "actors/model/job_file.hpp"

#include "tests/actors/model/example_job.hpp"
#include "tests/support/input_errors.hpp"

BOOST_AUTO_TEST_SUITE(job_override)

using namespace troupe;
using namespace troupe::test;

namespace {

proto::Job with(const std::string& assignment, proto::Job job = digits_job()) {
  apply_override(job, assignment);
  return job;
}

std::string override_error(const std::string& assignment) {
  auto job = digits_job();
  const auto before = job.SerializeAsString();
  const auto text = error_of([&] { apply_override(job, assignment); });
  BOOST_TEST(job.SerializeAsString() == before, "changed by " << assignment);
  return text;
}

} // namespace

BOOST_AUTO_TEST_CASE(values_of_all_types) {
  BOOST_TEST(with("optimizer.momentum=0.8").optimizer().momentum() == 0.8F);
  BOOST_TEST(with("epochs=12").epochs() == 12u);
  BOOST_TEST(with("seed=18446744073709551615").seed() == ~std::uint64_t{0});
  BOOST_TEST(with("output=a b=${C}").output() == "a b=${C}");
  BOOST_TEST(with("output=").output().empty());
  BOOST_TEST(with("output=\"a b\"").output() == "a b");
  BOOST_TEST(with("output='a\"'").output() == "a\"");
  BOOST_TEST(with("output=\"a'").output() == "\"a'");
  BOOST_TEST(with("output=\"").output() == "\"");
  BOOST_TEST((with("protocol=RING").protocol() == proto::RING));
  BOOST_TEST((with("protocol=sync_ps").protocol() == proto::SYNC_PS));
  BOOST_TEST(!with("model.layer[1].dense.bias=false").model().layer(1).dense().bias());
  BOOST_TEST(with("runtime.join_timeout_ms=5").runtime().join_timeout_ms() == 5u);
}

BOOST_AUTO_TEST_CASE(lists) {
  BOOST_TEST(with("model.layer[0].dense.units=64").model().layer(0).dense().units() == 64u);
  const auto appended = with("model.layer[2].dense.units=5");
  BOOST_TEST(appended.model().layer_size() == 3);
  BOOST_TEST(appended.model().layer(2).dense().units() == 5u);
  auto job = csv_job("x");
  apply_override(job, "data.csv.features[0]=first");
  apply_override(job, "data.csv.features[2]=third");
  BOOST_TEST(job.data().csv().features_size() == 3);
  BOOST_TEST(job.data().csv().features(0) == "first");
  BOOST_TEST(job.data().csv().features(1) == "b");
  BOOST_TEST(job.data().csv().features(2) == "third");
}

BOOST_AUTO_TEST_CASE(oneofs_switch) {
  const auto job = with("data.csv.path=/tmp/x.csv");
  BOOST_TEST(job.data().has_csv());
  BOOST_TEST(!job.data().has_digits());
  BOOST_TEST(job.data().csv().path() == "/tmp/x.csv");
  BOOST_TEST(with("learning_rate.cosine={}").learning_rate().has_cosine());
  BOOST_TEST(with("learning_rate.cosine={ final: 0.5 }").learning_rate().cosine().final() == 0.5F);
}

BOOST_AUTO_TEST_CASE(errors) {
  BOOST_TEST(contains(override_error("epochs"), "expected FIELD.PATH=VALUE"));
  BOOST_TEST(contains(override_error("=3"), "expected FIELD.PATH=VALUE"));
  BOOST_TEST(
    contains(override_error("epoch=3"),
             "override \"epoch=3\": no field \"epoch\" in a job; did you mean \"epochs\"?"));
  BOOST_TEST(contains(override_error("optimizer.momentun=1"),
                      "no field \"momentun\" in \"optimizer\"; did you mean \"momentum\"?"));
  BOOST_TEST(contains(override_error("data.csvv.path=1"), "did you mean \"csv\"?"));
  // The field exists, but in another part of the job. The error says in which one.
  BOOST_TEST(
    contains(override_error("batch=3"),
             "no field \"batch\" in a job; did you mean \"data.batch\" of the job? valid: "));
  BOOST_TEST(contains(override_error("data.epochs=3"), "did you mean \"epochs\" of the job?"));
  BOOST_TEST(contains(override_error("optimizer.adam=1"), "did you mean \"kind: ADAM\"? valid: "));
  const auto number = override_error("epochs=" + std::string(300, '9'));
  BOOST_TEST(contains(number, "9...\": value: expected a smaller number, got 9999"));
  BOOST_TEST(number.size() < 200U);
  BOOST_TEST(contains(override_error("optimizer..x=1"), "no field \"\""));
  BOOST_TEST(contains(override_error("epochs.x=1"), "is a value and has no fields"));
  BOOST_TEST(contains(override_error("epochs=many"), "value: expected a whole number, got many"));
  BOOST_TEST(contains(override_error("epochs=-1"), "value: expected a whole number, 0 or more"));
  BOOST_TEST(contains(override_error("learning_rate.base=fast"), "expected a number, got fast"));
  BOOST_TEST(contains(override_error("epochs=1 2"), "override"));
  BOOST_TEST(contains(override_error("epochs="), "override"));
  BOOST_TEST(
    contains(override_error("protocol=rign"), "no value \"rign\"; did you mean \"RING\"?"));
  BOOST_TEST(contains(override_error("protocol=PROTOCOL_UNSET"), "no value"));
  BOOST_TEST(
    contains(override_error("optimizer=fast"),
             "\"optimizer\" has fields; expected one of them, or fields in braces, such as "
             "{}; valid: \"kind\""));
  BOOST_TEST(contains(override_error("optimizer=adam"), "such as optimizer.kind=adam, or"));
  BOOST_TEST(contains(override_error("learning_rate=0.1"), "such as learning_rate.base=0.1, or"));
  BOOST_TEST(contains(override_error("optimizer={ x: 1 }"), "no field \"x\" in Optimizer"));
  BOOST_TEST(contains(override_error("model.layer.dense.units=1"),
                      "is a list; name one element, such as model.layer[0].dense.units=1"));
  BOOST_TEST(contains(override_error("evaluate.measure=F1"),
                      "is a list; name one element, such as evaluate.measure[0]=F1"));
  BOOST_TEST(contains(override_error("model.layer[3].dense.units=1"), "index 3 is out of range"));
  BOOST_TEST(contains(override_error("model.layer[-1].dense.units=1"), "expected an index"));
  BOOST_TEST(
    contains(override_error("model.layer[99999999999].dense.units=1"), "expected an index"));
  BOOST_TEST(contains(override_error("model.layer[0.dense.units=1"), "expected an index"));
  BOOST_TEST(contains(override_error("model[0].layer=1"), "is not a list"));
}

BOOST_AUTO_TEST_SUITE_END()
