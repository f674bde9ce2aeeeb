#include "actors/model/text_generator.hpp"

#include "actors/model/data_builder.hpp"
#include "tests/actors/model/example_job.hpp"
#include "tests/actors/model/text_model.hpp"
#include "tests/support/input_errors.hpp"

#include <algorithm>

BOOST_AUTO_TEST_SUITE(text_generation)

using namespace troupe;
using namespace troupe::test;

namespace {

/// A model whose only tensor is a table with a row for each character: the logits of the next
/// character.
std::shared_ptr<const job_context> table_model() {
  return text_model("layer { embedding { width: 3 } }");
}

/// Weights of table_model. 0 is followed by 1, 1 by 2, and 2 by 0 or 1.
const std::vector<float> table{-50, 50, -50, -50, -50, 50, 1, 1, -50};

} // namespace

BOOST_AUTO_TEST_CASE(what_follows) {
  const auto context = table_model();
  BOOST_REQUIRE(context->parameters().size() == table.size());
  text_generator writer{*context};
  const std::vector<std::int32_t> prompt{1, 0};
  const auto likeliest = writer.run(table, prompt, {7, 0, 1});
  BOOST_TEST(likeliest == (std::vector<std::int32_t>{1, 2, 0, 1, 2, 0, 1}));
  // The same seed gives the same text, even if the text is longer than the window.
  const auto drawn = writer.run(table, prompt, {200, 1, 5});
  BOOST_TEST(drawn == writer.run(table, prompt, {200, 1, 5}));
  BOOST_TEST(drawn != writer.run(table, prompt, {200, 1, 6}));
  std::int32_t last = 0;
  for (const auto token : drawn) {
    BOOST_TEST((last == 2 ? token != 2 : token == last + 1));
    last = token;
  }
  BOOST_TEST(std::ranges::count(drawn, 0) > 20);
  BOOST_TEST(writer.run(table, prompt, {0, 1, 1}).empty());
}

// In models that read the whole window, the positions after the end of the text contain other
// characters. These must not change the result.
BOOST_AUTO_TEST_CASE(models_that_look_ahead) {
  const auto result_of = [](const std::string& layer, std::size_t prompt) {
    const auto context = text_model("layer { embedding { width: 3 } } layer { " + layer
                                    + " } layer { dense { units: 3 } }");
    std::vector<float> weights(context->parameters().size());
    for (std::size_t i = 0; i < weights.size(); ++i)
      weights[i] = static_cast<float>(i % 7) / 7 - 0.4F;
    text_generator writer{*context};
    const std::vector<std::int32_t> tokens{1, 0, 2, 1, 1};
    return error_of([&] { writer.run(weights, std::span{tokens}.first(prompt), {}); });
  };
  for (std::size_t prompt : {1, 5}) { // shorter and longer than the window
    for (const char* layer : {"lstm { hidden: 2 }", "attention { heads: 1 }"})
      BOOST_TEST(result_of(layer, prompt) == "(no error)");
    for (const char* layer :
         {"lstm { hidden: 2 bidirectional: true }", "attention { heads: 1 causal: false }"})
      BOOST_TEST(contains(result_of(layer, prompt), "the model looks ahead"));
  }
}

BOOST_AUTO_TEST_CASE(drawing) {
  const std::vector<float> logits{0, 1, -1000};
  BOOST_TEST(draw_token(logits, 1, 0) == 0);
  BOOST_TEST(draw_token(logits, 1, 0.26) == 0); // 1 / (1 + e) = 0.2689
  BOOST_TEST(draw_token(logits, 1, 0.27) == 1);
  BOOST_TEST(draw_token(logits, 1, 0.9999) == 1);
  BOOST_TEST(draw_token(logits, 0.1, 0.0001) == 1);
  BOOST_TEST(draw_token(logits, 0, 0) == 1);
}

BOOST_AUTO_TEST_CASE(other_models) {
  const auto digits = make_job_context(digits_job(), shape_of(*build_data(digits_job()).train));
  BOOST_TEST(contains(error_of([&] { text_generator{*digits}; }), "only a model that predicts"));
}

BOOST_AUTO_TEST_SUITE_END()
