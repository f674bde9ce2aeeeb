// Sessions on a simulated GPU, compared with sessions on the CPU.

#include "kernels/cuda/gpus.hpp"
#include "kernels/devices/graph_session.hpp"
#include "kernels/graph/gradients.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sparse_operations.hpp"
#include "tests/kernels/cuda/simulated_device.hpp"
#include "tests/kernels/cuda/simulator.hpp"
#include "tests/kernels/cuda/sizes.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::test;

namespace {

/// A set that has only GPU 0.
std::shared_ptr<const gpu_set> one_gpu() {
  return cuda::make_gpus([](std::size_t index) -> std::unique_ptr<cuda::device> {
    if (index > 0)
      throw device_error("there is no GPU " + std::to_string(index));
    return std::make_unique<simulated_device>(3);
  });
}

template <class F>
std::string device_error_of(F f) {
  try {
    f();
  } catch (const device_error& error) {
    return error.what();
  }
  return "(no device_error)";
}

/// Runs both sessions and compares the fetches.
void compare(graph_session<float>& there, graph_session<float>& here,
             const std::vector<session_feed<float>>& feeds,
             const std::vector<expression>& fetches) {
  const auto before = launches();
  const auto found = there.run(feeds, fetches);
  BOOST_TEST((found[0].empty() || launches() > before));
  const auto expected = here.run(feeds, fetches);
  for (std::size_t i = 0; i < fetches.size(); ++i)
    check_close(found[i], as_doubles(expected[i]), 2e-6, 2e-6, "fetch " + std::to_string(i));
}

} // namespace

BOOST_AUTO_TEST_SUITE(cuda_session)

// Fetches are any nodes, a leaf, gradients, and the masks of dropout. Labels are int32. Sets of
// fetches alternate, and each set has its own device object.
BOOST_AUTO_TEST_CASE(fetches_are_those_of_the_cpu) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 7});
  const auto labels = g.placeholder("labels", {shape::batch}, dtype::int32);
  const auto hidden = dropout(dense_layer(x, "first", 5, activation::tanh), 0.5, "drop");
  const auto logits = dense_layer(hidden, "second", 3);
  const auto loss = softmax_cross_entropy(logits, labels);
  const auto slopes = gradients(loss, std::array{x});
  graph_session<float> there(g, one_gpu(), 0, 7);
  graph_session<float> here(g, 7);
  for (const std::size_t rows : {4, 2, 33, 33}) {
    const auto features = random_floats(rows * 7, "x");
    std::vector<std::int32_t> classes(rows);
    for (std::size_t i = 0; i < rows; ++i)
      classes[i] = static_cast<std::int32_t>(i % 3);
    compare(there, here, {{x, features}, {labels, classes}}, {loss, logits, slopes[0]});
    compare(there, here, {{x, features}}, {x, hidden});
  }
  BOOST_TEST(there.planned() == here.planned());
}

// Variables stay in the host's memory. A program writes them between runs, and adds new variables.
BOOST_AUTO_TEST_CASE(variables_change_between_runs) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 3});
  const auto y = dense_layer(x, "first", 2);
  graph_session<float> there(g, one_gpu(), 0);
  graph_session<float> here(g);
  const auto features = random_floats(5 * 3, "x");
  const std::vector<session_feed<float>> feeds{{x, features}};
  for (int i = 0; i < 3; ++i) { // The third run is recorded.
    for (auto* const s : {&there, &here})
      s->variable("first.weight")[1] = static_cast<float>(i) - 0.5F;
    compare(there, here, feeds, {y});
  }
  const auto z = dense_layer(y, "second", 4);
  compare(there, here, feeds, {z});
  compare(there, here, feeds, {y});
}

BOOST_AUTO_TEST_CASE(sparse_features) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 6}, dtype::sparse);
  const auto y = sparse_dense_layer(x, "dense", 4);
  graph_session<float> there(g, one_gpu(), 0);
  graph_session<float> here(g);
  const std::vector<std::int32_t> starts{0, 2, 2, 5};
  const std::vector<std::int32_t> columns{1, 5, 0, 3, 2};
  const std::vector<float> values{0.5F, -2, 1, 3, 0.25F};
  const sparse_rows<float> rows{starts.data(), columns.data(), values.data()};
  for (const std::size_t n : {3, 1, 0, 3})
    compare(there, here, {{x, rows, n}}, {y});
  BOOST_TEST(here.run({{x, rows, 3}}, {y})[0].size() == 3U * 4);
}

BOOST_AUTO_TEST_CASE(gpus_that_are_missing) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 3});
  const auto y = dense_layer(x, "first", 2);
  BOOST_TEST(device_error_of([&] {
               graph_session<float>(g, nullptr, 0);
             }).starts_with("this program was built without code for GPUs. "));
  graph_session<float> s(g, one_gpu(), 1);
  const auto features = random_floats(3, "x");
  BOOST_TEST(device_error_of([&] { s.run({{x, features}}, {y}); }) == "there is no GPU 1");
}

BOOST_AUTO_TEST_SUITE_END()
