#include "actors/model/job_file.hpp"
#include "actors/model/layer_list.hpp"

#include "kernels/formats/file.hpp"
#include "tests/actors/model/example_job.hpp"
#include "tests/support/files.hpp"
#include "tests/support/input_errors.hpp"
#include "tests/support/temporary_directory.hpp"

#include <cstdlib>

#include <google/protobuf/text_format.h>

BOOST_AUTO_TEST_SUITE(job_file)

using namespace troupe;
using namespace troupe::test;

namespace {

std::string parse_error(const std::string& text) {
  return error_of([&] { parse_job(text, "x.textproto"); });
}

} // namespace

BOOST_AUTO_TEST_CASE(reads_text_format) {
  const auto job = digits_job();
  BOOST_TEST(job.model().layer_size() == 2);
  BOOST_TEST(job.model().layer(0).dense().units() == 16u);
  BOOST_TEST((job.model().layer(0).dense().activation() == proto::RELU));
  BOOST_TEST(job.learning_rate().step().factor() == 0.5F);
  BOOST_TEST((job.protocol() == proto::ASYNC_PS));
  BOOST_TEST(job.seed() == 1u);
}

BOOST_AUTO_TEST_CASE(unknown_names) {
  BOOST_TEST(contains(parse_error("model {\n  layer { dense { unit: 4 } }\n}"),
                      "x.textproto:2:23: no field \"unit\" in Dense; did you mean \"units\"?"));
  BOOST_TEST(
    contains(parse_error("optimizr { }"),
             "x.textproto:1:10: no field \"optimizr\" in Job; did you mean \"optimizer\"?"));
  BOOST_TEST(contains(parse_error("model { layer { dense { activation: RELLU } } }"),
                      "no value \"RELLU\" for field \"activation\"; did you mean \"RELU\"?"));
  BOOST_TEST(contains(parse_error("protocol: ASYNC"), "did you mean \"ASYNC_PS\"?"));
  // The error lists the valid values, without those that mean "not set".
  BOOST_TEST(!contains(parse_error("protocol: ASYNC"), "UNSET"));
}

// Several messages have a field `kind` with values of different types.
BOOST_AUTO_TEST_CASE(values_of_the_right_field) {
  const auto optimizer = parse_error("# { kind\noptimizer {\n  momentum: 0.5 kind: adam }");
  BOOST_TEST(contains(optimizer, "x.textproto:3:"));
  BOOST_TEST(contains(optimizer, "no value \"adam\" for field \"kind\"; did you mean \"ADAM\"?"));
  BOOST_TEST(contains(parse_error("data { csv { path: \"{\" } normalize < kind: STANDARD > }"),
                      "did you mean \"STANDARDIZE\"?"));
  BOOST_TEST(contains(parse_error("local_sgd { every: 2 outer { kind: adam } }"),
                      "valid: \"SGD\", \"MOMENTUM\", \"NESTEROV\""));
  BOOST_TEST(contains(parse_error("model { layer: [{ softmax {} }, { activation: RELLU }] }"),
                      "did you mean \"RELU\"?"));
  BOOST_TEST(contains(parse_error("optimizer { group { match: \"*\" } kind: adam"),
                      "did you mean \"ADAM\"?"));
}

BOOST_AUTO_TEST_CASE(fields_with_other_names_elsewhere) {
  const auto linear = parse_error("model { layer { linear { units: 4 } } }");
  BOOST_TEST(contains(linear, "no field \"linear\" in Layer; did you mean \"dense\"? valid: "));
  BOOST_TEST(!contains(linear, "\"line\""));
  BOOST_TEST(!contains(parse_error("model { x: 1 }"), "onnx_structure"));
  const std::string rate = "did you mean \"learning_rate.base\" of the job? valid: ";
  BOOST_TEST(contains(parse_error("optimizer { lr: 0.1 }"), rate));
  BOOST_TEST(contains(parse_error("lr: 0.1"), rate));
  BOOST_TEST(contains(parse_error("learning_rate { lr: 0.1 }"), "did you mean \"base\"?"));
  BOOST_TEST(contains(parse_error("batch_size: 8"), "did you mean \"data.batch\" of the job?"));
}

BOOST_AUTO_TEST_CASE(syntax_errors_have_a_place) {
  BOOST_TEST(contains(parse_error("epochs: 1\nseed: x\n"), "x.textproto:2:7: "));
  BOOST_TEST(contains(parse_error("epochs: -1"), "x.textproto:1:9: "));
  BOOST_TEST(contains(parse_error("model {"), "x.textproto:1:"));
  BOOST_TEST(contains(parse_error("name: \"open"), "x.textproto:1:"));
  BOOST_TEST(contains(parse_error("epochs: 1 epochs: 2"), "multiple times"));
  BOOST_TEST(contains(parse_error("data { csv {} digits {} }"), "oneof"));
  BOOST_TEST(contains(parse_error("seed: 18446744073709551616"), "x.textproto:1:7: "));
}

BOOST_AUTO_TEST_CASE(an_empty_text_is_an_empty_job) {
  BOOST_TEST(parse_error("") == "(no error)");
  BOOST_TEST(parse_error("# a comment") == "(no error)");
}

BOOST_AUTO_TEST_CASE(hostile_input) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(digits_job(), &text);
  survive_hostile_variants(bytes_of(text), [](auto bytes) {
    parse_job({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "x");
  });
  std::string deep;
  for (int i = 0; i < 100'000; ++i)
    deep += "model {";
  BOOST_TEST(contains(parse_error(deep), "x.textproto"));
  BOOST_TEST(contains(parse_error(std::string(100'000, '{')), "x.textproto"));
  BOOST_TEST(contains(parse_error(std::string(1000, '\0')), "x.textproto"));
  BOOST_TEST(parse_error(std::string(200'000, '$')).size() < 100'000u);
}

BOOST_AUTO_TEST_CASE(files) {
  const temporary_directory folder;
  write_file(folder / "a.textproto", bytes_of("epochs: 7"));
  BOOST_TEST(load_job(folder / "a.textproto").epochs() == 7u);
  BOOST_TEST(contains(error_of([&] { load_job(folder / "b"); }), "/b: cannot open"));
  write_file(folder / "c", bytes_of("epoch: 7"));
  BOOST_TEST(contains(error_of([&] { load_job(folder / "c"); }), "/c:1:6: no field \"epoch\""));
}

BOOST_AUTO_TEST_CASE(environment) {
  ::setenv("TROUPE_TEST_A", "/data", 1);
  ::setenv("TROUPE_TEST_EMPTY", "", 1);
  ::unsetenv("TROUPE_TEST_UNSET");
  BOOST_TEST(expand_environment("${TROUPE_TEST_A}/x${TROUPE_TEST_EMPTY}y", "f") == "/data/xy");
  BOOST_TEST(expand_environment("$HOME $ {x}", "f") == "$HOME $ {x}");
  BOOST_TEST(expand_environment("", "f").empty());
  BOOST_TEST(
    contains(error_of([] { expand_environment("a/${TROUPE_TEST_UNSET}/b", "data.csv.path"); }),
             "data.csv.path: \"a/${TROUPE_TEST_UNSET}/b\": the environment variable "
             "TROUPE_TEST_UNSET is not set"));
  BOOST_TEST(contains(error_of([] { expand_environment("${A", "f"); }), "without \"}\""));
}

BOOST_AUTO_TEST_CASE(layer_names) {
  const auto job = digits_job();
  BOOST_TEST(layer_name(job.model().layer(0), 0) == "dense_1");
  BOOST_TEST(layer_name(job.model().layer(1), 1) == "head");
}

BOOST_AUTO_TEST_SUITE_END()
