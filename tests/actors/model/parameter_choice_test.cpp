#include "actors/model/parameter_choice.hpp"

#include "actors/model/job_file.hpp"
#include "actors/model/model_builder.hpp"
#include "tests/support/input_errors.hpp"

BOOST_AUTO_TEST_SUITE(parameter_choice)

using namespace troupe;
using namespace troupe::test;

namespace {

built_model build(const std::string& choice) {
  const auto job = parse_job(R"(model {
      layer { name: "a" dense { units: 4 } }
      layer { name: "norm" batch_norm {} }
      layer { name: "head" dense { units: 2 } }
      loss: MEAN_SQUARED_ERROR )"
                               + choice + " }",
                             "job");
  return build_model(job.model(), {.dims = {3}, .labels = label_kind::targets, .label_width = 2});
}

std::string kinds(const std::string& choice) {
  const auto model = build(choice);
  std::string result;
  for (const auto& tensor : model.graph->parameters().entries())
    result += to_string(tensor.kind).substr(0, 1);
  return result;
}

std::string problems(const std::string& choice) {
  return error_of([&] { build(choice); });
}

} // namespace

// Each letter stands for a parameter: a.weight a.bias norm.weight norm.bias norm.running_mean
// norm.running_var head.weight head.bias. t: trained, f: frozen, s: state.
BOOST_AUTO_TEST_CASE(kinds_of_parameters) {
  BOOST_TEST(kinds("") == "ttttsstt");
  BOOST_TEST(kinds(R"(freeze: "a.*")") == "ffttsstt");
  BOOST_TEST(kinds(R"(freeze: "a.weight" freeze: "head.bias")") == "ftttsstf");
  BOOST_TEST(kinds(R"(freeze: "*" train: "head.*")") == "fffffftt");
  BOOST_TEST(kinds(R"(freeze: "*" train: "norm.*" train: "head.?ias")") == "ffttssft");
}

BOOST_AUTO_TEST_CASE(reasons) {
  const auto model = build(R"(freeze: "a.*" freeze: "*.bias")");
  BOOST_TEST(model.frozen.size() == 4U);
  BOOST_TEST(model.frozen.at("a.bias") == "model.freeze \"a.*\"");
  BOOST_TEST(model.frozen.at("head.bias") == "model.freeze \"*.bias\"");
}

BOOST_AUTO_TEST_CASE(frozen_statistics_are_not_measured) {
  BOOST_TEST(build("").graph->state_updates().size() == 2U);
  BOOST_TEST(build(R"(freeze: "norm.*")").graph->state_updates().empty());
  BOOST_TEST(contains(problems(R"(freeze: "norm.running_mean")"), "freeze both or neither"));
}

BOOST_AUTO_TEST_CASE(mistakes) {
  BOOST_TEST(problems(R"(freeze: "a.*" freeze: "hed.weight")")
             == "model.freeze[1]: \"hed.weight\" matches no parameter; did you mean "
                "\"head.weight\"? valid: \"a.weight\", \"a.bias\", \"norm.weight\", "
                "\"norm.bias\", \"norm.running_mean\", \"norm.running_var\", \"head.weight\", "
                "\"head.bias\"");
  BOOST_TEST(contains(problems(R"(freeze: "*" train: "b.*")"),
                      "model.train[0]: \"b.*\" matches no parameter"));
  BOOST_TEST(contains(problems(R"(train: "head.*")"), "model.train[0]: \"head.*\" has no effect"));
  BOOST_TEST(problems(R"(freeze: "*")")
             == "model.freeze: no parameter is left to train; name those that train with "
                "model.train");
  // Running statistics are state, not trained parameters. So a model must have other trained
  // parameters.
  BOOST_TEST(contains(problems(R"(freeze: "*" train: "*.running_*")"), "no parameter is left"));
}

BOOST_AUTO_TEST_SUITE_END()
