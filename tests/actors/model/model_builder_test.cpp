#include "actors/model/job_file.hpp"
#include "actors/model/model_builder.hpp"

#include "tests/actors/model/example_job.hpp"
#include "tests/support/input_errors.hpp"

BOOST_AUTO_TEST_SUITE(model_builder)

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_CASE(classifier) {
  const auto model = build_model(digits_job().model(), {.dims = {1, 28, 28}, .label_width = 10});
  const auto& entries = model.graph->parameters().entries();
  BOOST_REQUIRE(entries.size() == 4u);
  BOOST_TEST(entries[0].name == "dense_1.weight");
  BOOST_TEST((entries[0].shape == shape{16, 784}));
  BOOST_TEST(entries[1].name == "dense_1.bias");
  BOOST_TEST(entries[2].name == "head.weight");
  BOOST_TEST((entries[3].shape == shape{10}));
  BOOST_TEST((model.output.shape() == shape{shape::batch, 10}));
  BOOST_TEST((model.loss.shape() == shape{}));
  BOOST_TEST(model.correct.valid());
  BOOST_TEST((model.labels.node().type == dtype::int32));
  BOOST_TEST(model.graph->placeholders()
             == (std::vector<std::uint32_t>{model.features.id(), model.labels.id()}));
}

BOOST_AUTO_TEST_CASE(regression) {
  auto job = csv_job("x");
  apply_override(job, "model.layer[0].dense.bias=false");
  apply_override(job, "model.layer[0].dense.units=3");
  const auto model =
    build_model(job.model(), {.dims = {2}, .labels = label_kind::targets, .label_width = 3});
  BOOST_TEST(model.graph->parameters().entries().size() == 1u);
  BOOST_TEST(!model.correct.valid());
  BOOST_TEST((model.labels.shape() == shape{shape::batch, 3}));
}

// Nodes refer to their graph. So the graph must keep its address when a model is moved.
BOOST_AUTO_TEST_CASE(models_move) {
  auto model = build_model(digits_job().model(), {.dims = {1, 28, 28}, .label_width = 10});
  const auto moved = std::move(model);
  BOOST_TEST(&moved.loss.owner() == moved.graph.get());
}

BOOST_AUTO_TEST_CASE(linear_models) {
  BOOST_TEST(is_linear(csv_job("x").model()));
  BOOST_TEST(!is_linear(digits_job().model()));
  auto job = csv_job("x");
  apply_override(job, "model.layer[0].dense.activation=TANH");
  BOOST_TEST(!is_linear(job.model()));
  BOOST_TEST(!is_linear({}));
}

BOOST_AUTO_TEST_CASE(notice_about_logits) {
  const auto notice = [](const std::string& last, const std::string& loss) {
    const auto job = parse_job("model { layer { dense { units: 2 activation: RELU } } layer { "
                                 + last + " } loss: " + loss + " }",
                               "job");
    return logits_notice(job.model());
  };
  const auto relu = "dense { units: 1 activation: RELU }";
  const auto sigmoid = "dense { units: 1 activation: SIGMOID }";
  BOOST_TEST(
    notice("softmax {}", "SOFTMAX_CROSS_ENTROPY")
    == "the last layer, \"softmax_2\", has outputs of 0 to 1 (softmax), but "
       "SOFTMAX_CROSS_ENTROPY takes logits, which are any numbers, and applies the softmax "
       "itself; leave out the layer (line 1)");
  BOOST_TEST(contains(notice(sigmoid, "BINARY_CROSS_ENTROPY"),
                      "applies the sigmoid itself; leave out the activation"));
  BOOST_TEST(
    contains(notice("activation: SIGMOID", "BINARY_CROSS_ENTROPY"), "leave out the layer"));
  BOOST_TEST(contains(notice(relu, "SOFTMAX_CROSS_ENTROPY"),
                      "outputs of 0 or more (RELU), but SOFTMAX_CROSS_ENTROPY takes logits, which "
                      "are any numbers; leave out the activation"));
  BOOST_TEST(contains(notice("block { times: 2 layer { " + std::string{relu} + " } }", "HINGE"),
                      "HINGE needs outputs below 0, too; leave out"));
  BOOST_TEST(notice("dense { units: 2 }", "SOFTMAX_CROSS_ENTROPY").empty());
  BOOST_TEST(notice(relu, "MEAN_SQUARED_ERROR").empty());
}

BOOST_AUTO_TEST_CASE(errors) {
  const auto fail = [](const proto::Model& model, std::int64_t width, label_kind labels,
                       std::size_t k) {
    return error_of(
      [&] { build_model(model, {.dims = {width}, .labels = labels, .label_width = k}); });
  };
  const auto digits = digits_job().model();
  const auto linear = csv_job("x").model();
  BOOST_TEST(contains(fail(digits, 784, label_kind::classes, 11),
                      "layer \"head\" has 10 units, but the data has 11 classes"));
  BOOST_TEST(contains(fail(digits, 784, label_kind::targets, 1), "needs classes"));
  BOOST_TEST(contains(fail(linear, 3, label_kind::classes, 2), "needs targets"));
  BOOST_TEST(contains(fail(linear, 3, label_kind::classes, 2), "such as y.astype(\"<f4\")"));
  BOOST_TEST(contains(fail(linear, 3, label_kind::targets, 2),
                      "layer \"dense_1\" has 1 units, but the data has 2 targets"));
  BOOST_TEST(contains(fail(linear, 0, label_kind::targets, 1), "no features"));
  BOOST_TEST(contains(fail({}, 1, label_kind::targets, 1), "no layers"));
  auto job = digits_job();
  apply_override(job, "model.layer[1].name=dense_1");
  BOOST_TEST(contains(fail(job.model(), 784, label_kind::classes, 10),
                      "\"dense_1\" is the name of another layer"));
}

BOOST_AUTO_TEST_SUITE_END()
