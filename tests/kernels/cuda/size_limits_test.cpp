#include "kernels/cuda/size_limits.hpp"

#include "kernels/cuda/executor.hpp"
#include "kernels/cuda/gpus.hpp"
#include "kernels/error.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sequence_operations.hpp"

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <string>

using namespace troupe;

namespace {

plan plan_of(const graph& g, expression y, std::size_t rows, bool gradients = false) {
  auto options = cuda::gpu_plan_options();
  options.max_rows = rows;
  options.gradients = gradients;
  if (gradients)
    options.loss = sum(multiply(y, y));
  else
    options.fetches = {y};
  return {g, options};
}

/// The text of the error for a plan that computes y with batches of this size, or "".
std::string error_of(const graph& g, expression y, std::size_t rows, bool gradients = false) {
  try {
    cuda::check_sizes(plan_of(g, y, rows, gradients));
    return "";
  } catch (const input_error& e) {
    return e.what();
  }
}

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

constexpr std::size_t limit = cuda::size_limit;

} // namespace

// No plan of these tests runs, so they need no memory for the batches.
BOOST_AUTO_TEST_SUITE(cuda_size_limits)

// The result of the convolution has 8 x 6 positions per sample, and the image has 9 x 7 pixels.
BOOST_AUTO_TEST_CASE(positions_of_convolutions) {
  graph g;
  const auto images = g.placeholder("x", {shape::batch, 2, 9, 7});
  const auto h = conv2d(images, g.variable("first.weight", {3, 2, 2, 2}), {2, 2});
  BOOST_TEST(error_of(g, h, limit / 48) == "");
  const auto text = error_of(g, h, limit / 48 + 1);
  BOOST_TEST(mentions(text, h.name()), text);
  BOOST_TEST(mentions(text, "conv2d of 44739243 samples has 2147483664 pixels in all samples"),
             text);
  BOOST_TEST(mentions(text, "fewer than 2147483648. Use smaller batches"), text);
  BOOST_TEST(error_of(g, h, limit / 48, true) == "");
  BOOST_TEST(mentions(error_of(g, h, limit / 48 + 1, true), "conv2d"));
  // The gradient of the first images counts pixels of the images.
  const auto first = conv2d(images, g.variable("a", {2, 2, 1, 1}), {1, 1});
  const auto y = conv2d(first, g.variable("b", {3, 2, 2, 2}), {2, 2});
  BOOST_TEST(error_of(g, y, limit / 63, true) == "");
  BOOST_TEST(mentions(error_of(g, y, limit / 63 + 1, true), "pixels in all samples"));
}

BOOST_AUTO_TEST_CASE(matrices_of_products) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 6, 2});
  const auto dense = matmul(x, g.variable("first.weight", {2, 3}));
  BOOST_TEST(error_of(g, dense, (limit - 1) / 6, true) == "");
  const auto text = error_of(g, dense, limit / 6 + 1);
  BOOST_TEST(mentions(text, "matmul of 357913942 samples has 2147483652 rows in a matrix"), text);
  const auto pairs = batched_matmul(g.placeholder("a", {shape::batch, 4, 2, 3}),
                                    g.placeholder("b", {shape::batch, 4, 3, 2}));
  BOOST_TEST(error_of(g, pairs, (limit - 1) / 4) == "");
  BOOST_TEST(mentions(error_of(g, pairs, limit / 4), "2147483648 matrices in all samples"));
}

BOOST_AUTO_TEST_CASE(images_of_convolutions) {
  graph g;
  const std::int64_t side = std::int64_t{1} << 15;
  const auto w = g.variable("w", {1, 2, 1, 1});
  const auto small = g.placeholder("small", {shape::batch, 2, side, side - 1});
  BOOST_TEST(error_of(g, conv2d(small, w, {1, 1}), 1) == "");
  const auto large = g.placeholder("large", {shape::batch, 2, side, side});
  const auto text = error_of(g, conv2d(large, w, {1, 1}), 1);
  BOOST_TEST(mentions(text, "conv2d has 2147483648 elements in an image"), text);
  BOOST_TEST(mentions(text, "Use a CPU for this model"), text);
  const auto channels = g.placeholder("channels", {shape::batch, 1 << 16, 1, 1});
  const auto filters = g.variable("filters", {1, 1 << 16, 1 << 8, 1 << 7});
  const window padded{
    .height = 1 << 8, .width = 1 << 7, .pad_y = (1 << 8) - 1, .pad_x = (1 << 7) - 1};
  BOOST_TEST(mentions(error_of(g, conv2d(channels, filters, padded), 1), "weights in a filter"));
}

// The window may begin as far behind the image as a stride.
BOOST_AUTO_TEST_CASE(images_of_pooling) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 1, 40, 40});
  window how{.height = 2, .width = 2, .stride_y = 2, .stride_x = 2};
  for (const auto pool : {max_pool, average_pool}) {
    how.stride_x = 2;
    // The number of samples has no limit.
    BOOST_TEST(error_of(g, pool(x, how), std::size_t{1} << 28) == "");
    how.stride_x = std::int64_t{1} << 40;
    const auto text = error_of(g, pool(x, how), 1);
    BOOST_TEST(mentions(text, "pixels in an image with its padding and one stride"), text);
  }
}

BOOST_AUTO_TEST_CASE(ids_of_embedding_gradients) {
  graph g;
  const auto ids = g.placeholder("ids", {shape::batch, 16}, dtype::int32);
  const auto y = embedding(g.variable("table", {10, 4}), ids);
  // Only the gradient sorts the ids.
  BOOST_TEST(error_of(g, y, limit / 16) == "");
  BOOST_TEST(error_of(g, y, limit / 16 - 1, true) == "");
  const auto text = error_of(g, y, limit / 16, true);
  BOOST_TEST(mentions(text, "embedding_gradient of 134217728 samples has 2147483648 ids"), text);
  BOOST_TEST(mentions(text, "Use smaller batches"), text);
}

BOOST_AUTO_TEST_CASE(heads_of_attention) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 8, 16});
  const auto y = causal_attention(x, x, x, 4);
  BOOST_TEST(error_of(g, y, limit / 32 - 1) == "");
  const auto text = error_of(g, y, limit / 32);
  BOOST_TEST(mentions(text, "attention of 67108864 samples has 2147483648 rows in all heads"),
             text);
}

// Programs check a plan before they open a GPU.
BOOST_AUTO_TEST_CASE(plans_are_checked_without_a_gpu) {
  const auto gpus = cuda::make_gpus(
    [](std::size_t) -> std::unique_ptr<cuda::device> { throw cuda::device_error("no GPU"); });
  graph g;
  const auto ids = g.placeholder("ids", {shape::batch}, dtype::int32);
  const auto y = embedding(g.variable("table", {10, 4}), ids);
  gpus->check(plan_of(g, y, limit - 1, true));
  BOOST_CHECK_THROW(gpus->check(plan_of(g, y, limit, true)), input_error);
  BOOST_CHECK_THROW(gpus->check(0, plan_of(g, y, limit, true)), input_error);
}

BOOST_AUTO_TEST_SUITE_END()
