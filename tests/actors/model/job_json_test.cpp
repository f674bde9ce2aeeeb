#include "actors/model/job_json.hpp"

#include "actors/model/job_file.hpp"
#include "tests/actors/model/example_job.hpp"
#include "tests/support/input_errors.hpp"
#include "tests/support/temporary_directory.hpp"

#include <fstream>

#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>

BOOST_AUTO_TEST_SUITE(job_json)

using namespace troupe;
using namespace troupe::test;

namespace {

std::string parse_error(const std::string& text) {
  return error_of([&] { parse_job(text, "x.json"); });
}

std::string json_of(const proto::Job& job, bool schema_names) {
  google::protobuf::util::JsonPrintOptions how;
  how.preserve_proto_field_names = schema_names;
  how.add_whitespace = true;
  std::string result;
  BOOST_TEST_REQUIRE(google::protobuf::util::MessageToJsonString(job, &result, how).ok());
  return result;
}

/// True if two jobs are equal, except for the line numbers of layers, which a job in JSON does not
/// have.
bool same(const proto::Job& a, const proto::Job& b) {
  google::protobuf::util::MessageDifferencer differencer;
  differencer.IgnoreField(proto::Layer::descriptor()->FindFieldByName("line"));
  return differencer.Compare(a, b);
}

} // namespace

BOOST_AUTO_TEST_CASE(equals_the_text_format) {
  auto job = digits_job();
  job.set_seed(std::uint64_t{1} << 63);
  for (const bool schema_names : {true, false}) {
    BOOST_TEST(same(parse_job(json_of(job, schema_names), "x.json"), job));
    // The format is recognized without the file extension, too.
    BOOST_TEST(same(parse_job("\n " + json_of(job, schema_names), "a job"), job));
  }
  BOOST_TEST(same(parse_job("{}", "a job"), proto::Job{}));
  BOOST_TEST(same(parse_job(R"({"seed": null, "epochs": 3})", "a job"), [] {
    proto::Job x;
    x.set_epochs(3);
    return x;
  }()));
}

BOOST_AUTO_TEST_CASE(files_and_overrides) {
  const temporary_directory folder;
  std::ofstream{folder / "job.json"} << json_of(digits_job(), true);
  auto job = load_job(folder / "job.json");
  apply_override(job, "optimizer.momentum=0.25");
  BOOST_TEST(job.optimizer().momentum() == 0.25F);
  BOOST_TEST(job_hash(load_job(folder / "job.json")) == job_hash(digits_job()));
}

BOOST_AUTO_TEST_CASE(unknown_names) {
  BOOST_TEST(
    parse_error(R"({"model": {"layer": [{"dense": {"units": 4}}, {"dense": {"unit": 4}}]}})")
    == "x.json: model.layer[1].dense.unit: no field \"unit\" in Dense; did you mean "
       "\"units\"? valid: \"units\", \"activation\", \"bias\", \"weights\"");
  BOOST_TEST(
    contains(parse_error(R"({"optimizr": {}})"),
             "x.json: optimizr: no field \"optimizr\" in Job; did you mean \"optimizer\"?"));
  BOOST_TEST(contains(parse_error(R"({"protocol": "ASYNC"})"),
                      "x.json: protocol: no value \"ASYNC\"; did you mean \"ASYNC_PS\"?"));
  BOOST_TEST(!contains(parse_error(R"({"protocol": "ASYNC"})"), "UNSET"));
}

BOOST_AUTO_TEST_CASE(wrong_types) {
  const auto check = [](const std::string& text, const std::string& expected) {
    BOOST_TEST(contains(parse_error(text), "x.json: " + expected));
  };
  check("[]", "job: expected an object, got []");
  check(R"({"epochs": "many"})",
        "epochs: expected a whole number from 0 to 4294967295, got \"many\"");
  check(R"({"epochs": -1})", "epochs: expected a whole number");
  check(R"({"epochs": 4294967296})", "epochs: expected a whole number");
  check(R"({"epochs": 1.5})", "epochs: expected a whole number");
  check(R"({"epochs": true})", "epochs: expected a whole number");
  check(R"({"model": []})", "model: expected an object");
  check(R"({"model": {"layer": {}}})", "model.layer: expected a list");
  check(R"({"model": {"layer": [1]}})", "model.layer[0]: expected an object");
  check(R"({"model": {"layer": [null]}})", "model.layer[0]: expected an object");
  check(R"({"name": 1})", "name: expected a string");
  check(R"({"learning_rate": {"base": "fast"}})", "learning_rate.base: expected a number");
  check(R"({"learningRate": {"base": 1e39}})", "learningRate.base: expected a number");
  check(R"({"data": {"csv": {"standardize": 1}}})", "data.csv.standardize: expected true or false");
  check(R"({"protocol": 3})", "protocol: expected one of the names of Protocol");
}

BOOST_AUTO_TEST_CASE(conflicts) {
  BOOST_TEST(contains(parse_error(R"({"data": {"csv": {}, "digits": {}}})"),
                      "x.json: data.digits: excludes \"csv\""));
  BOOST_TEST(contains(parse_error(R"({"epochs": 1, "epochs": 2})"), "epochs: occurs twice"));
  BOOST_TEST(contains(parse_error(R"({"learning_rate": {}, "learningRate": {}})"),
                      "occurs twice, under two spellings"));
}

BOOST_AUTO_TEST_CASE(all_errors_are_told) {
  const auto text = parse_error(R"({"epochs": -1, "optimizr": {}, "model": {"loss": 7}})");
  for (const auto* part : {"epochs", "optimizr", "model.loss"})
    BOOST_TEST(contains(text, part));
}

BOOST_AUTO_TEST_CASE(syntax_errors_have_a_place) {
  BOOST_TEST(
    contains(parse_error("{\"epochs\": 1,\n \"seed\": x}"), "x.json:2:10: not valid JSON"));
  BOOST_TEST(contains(parse_error(""), "x.json:1:1: not valid JSON"));
}

BOOST_AUTO_TEST_CASE(survives_hostile_variants) {
  const auto good = bytes_of(json_of(digits_job(), true));
  survive_hostile_variants(good, [](std::span<const std::byte> x) {
    parse_job({reinterpret_cast<const char*>(x.data()), x.size()}, "x.json");
  });
}

BOOST_AUTO_TEST_SUITE_END()
