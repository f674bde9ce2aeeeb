#include "kernels/graph/image_operations.hpp"

#include "kernels/error.hpp"
#include "kernels/graph/sequence_operations.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(image_operations)

namespace {

constexpr auto batch = shape::batch;

/// A tensor of images that depends on variables, so that gradients with respect to them can be
/// checked.
struct pictures {
  graph g;
  std::int64_t channels;
  expression x;

  pictures(std::int64_t channels, std::int64_t height, std::int64_t width) : channels(channels) {
    auto features = g.placeholder("features", {batch, 5});
    auto w = g.variable("w", {channels * height * width, 5});
    x = reshape(dense(features, w), {batch, channels, height, width});
  }

  expression weight(const window& how, std::int64_t filters) {
    return g.variable("filter", {filters, channels / how.groups, how.height, how.width});
  }
};

const std::vector<window> windows{
  {},
  {.height = 3, .width = 3, .pad_y = 1, .pad_x = 1},
  {.height = 3, .width = 2},
  {.height = 2, .width = 3, .stride_y = 2, .stride_x = 2, .pad_x = 2},
  {.height = 1, .width = 1, .stride_y = 3, .stride_x = 2},
  {.height = 5, .width = 4, .stride_x = 3, .pad_y = 4, .pad_x = 1},
};

const std::vector<window> dilated{
  {.height = 2, .width = 3, .dilation_y = 3, .dilation_x = 2},
  {.height = 3, .width = 2, .pad_y = 3, .pad_x = 2, .dilation_y = 2, .dilation_x = 3},
  {.height = 3, .width = 1, .stride_y = 2, .stride_x = 2, .pad_y = 1, .dilation_y = 2},
};

std::vector<window> with_ceil_mode() {
  auto result = windows;
  result.push_back({.height = 2, .width = 2, .stride_y = 2, .stride_x = 2});
  result.push_back({.height = 3, .width = 3, .stride_y = 3, .stride_x = 4, .pad_y = 1, .pad_x = 1});
  result.push_back({.height = 1, .width = 2, .stride_y = 4, .stride_x = 5, .pad_x = 1});
  for (auto& x : result)
    x.ceil_mode = true;
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(convolutions) {
  for (auto how : windows)
    for (std::int64_t groups : {1, 2}) {
      how.groups = groups;
      pictures p(4, 5, 6);
      check_both(p.g, conv2d(p.x, p.weight(how, 6), how));
    }
}

BOOST_AUTO_TEST_CASE(dilated_convolutions) {
  for (auto how : dilated) {
    for (std::int64_t groups : {1, 2}) {
      how.groups = groups;
      pictures p(4, 5, 6);
      check_both(p.g, conv2d(p.x, p.weight(how, 6), how));
    }
    how.groups = 1;
    pictures p(2, 5, 6);
    auto w = p.weight(how, 3);
    auto y = conv2d(p.x, w, how);
    check_both(p.g, conv2d_input_gradient(y, w, how, p.x.shape()), 2e-5);
    check_gradient(p.g, to_scalar(conv2d_weight_gradient(p.x, y, how)), 1e-3);
  }
}

BOOST_AUTO_TEST_CASE(transposed_convolutions) {
  auto all = windows;
  all.insert(all.end(), dilated.begin(), dilated.end());
  for (auto how : all)
    for (std::int64_t groups : {1, 2}) {
      how.groups = groups;
      pictures p(4, 5, 3);
      auto w = p.g.variable("filter", {4, 3, how.height, how.width});
      auto y = conv_transpose2d(p.x, w, how, how.stride_y - 1, how.stride_x / 2);
      BOOST_TEST(y.shape()[1] == 3 * groups);
      check_both(p.g, y, 2e-5);
    }
}

BOOST_AUTO_TEST_CASE(convolutions_with_bias_and_activation) {
  for (auto after : {activation::none, activation::relu, activation::tanh, activation::sigmoid,
                     activation::leaky_relu, activation::gelu, activation::silu})
    for (bool bias : {false, true}) {
      pictures p(2, 4, 4);
      auto h = conv2d_layer(p.x, "first", 3, windows[1], after, bias);
      check_both(p.g, conv2d_layer(h, "second", 2, windows[1], after, bias), 2e-5);
    }
}

BOOST_AUTO_TEST_CASE(gradients_of_convolutions_can_be_differentiated) {
  for (const auto& how : windows) {
    pictures p(2, 5, 6);
    auto w = p.weight(how, 3);
    auto y = conv2d(p.x, w, how);
    check_both(p.g, conv2d_input_gradient(y, w, how, p.x.shape()), 2e-5);
    check_gradient(p.g, to_scalar(conv2d_weight_gradient(p.x, y, how)), 1e-3);
  }
}

BOOST_AUTO_TEST_CASE(pooling) {
  for (const auto& how : windows) {
    pictures p(3, 5, 6);
    check_both(p.g, max_pool(p.x, how));
    check_both(p.g, average_pool(p.x, how));
    auto y = average_pool(p.x, how);
    check_both(p.g, max_pool_gradient(y * y, p.x, how));
    check_both(p.g, max_pool_select(p.x * p.x, p.x, how));
    check_both(p.g, average_pool_gradient(y * y, how, p.x.shape()));
  }
  pictures p(3, 5, 6);
  check_both(p.g, flatten(global_average_pool(p.x)));
}

// The expected sizes are from PyTorch, where the last window must begin in the image or in the
// padding before it.
BOOST_AUTO_TEST_CASE(sizes_with_ceil_mode) {
  const auto rows = [](std::int64_t image, std::int64_t size, std::int64_t stride,
                       std::int64_t pad) {
    return window{.height = size, .stride_y = stride, .pad_y = pad, .ceil_mode = true}.rows(image);
  };
  BOOST_TEST(rows(5, 2, 2, 0) == 3);
  BOOST_TEST(rows(6, 2, 2, 0) == 3);
  BOOST_TEST(rows(5, 3, 3, 1) == 2);
  BOOST_TEST(rows(6, 3, 3, 1) == 3);
  BOOST_TEST(rows(5, 1, 4, 0) == 2);
  BOOST_TEST(rows(2, 2, 3, 1) == 1);
  BOOST_TEST(rows(4, 2, 3, 1) == 2);
}

BOOST_AUTO_TEST_CASE(pooling_with_ceil_mode) {
  for (const auto& how : with_ceil_mode()) {
    pictures p(3, 5, 6);
    check_both(p.g, max_pool(p.x, how));
    check_both(p.g, average_pool(p.x, how));
    auto y = average_pool(p.x, how);
    check_both(p.g, max_pool_gradient(y * y, p.x, how));
    check_both(p.g, average_pool_gradient(y * y, how, p.x.shape()));
  }
}

BOOST_AUTO_TEST_CASE(channels) {
  pictures p(3, 2, 4);
  check_both(p.g, add_channel_bias(p.x, p.g.variable("b", {3})));
  check_both(p.g, sum_channels(p.x));
  check_both(p.g, broadcast_channels(sum_channels(p.x), {batch, 3, 2}));
}

BOOST_AUTO_TEST_CASE(reshaping) {
  pictures p(3, 2, 4);
  // A tensor is read in several shapes. In one shape it is overwritten in place, and in another it
  // is still needed.
  auto flat = flatten(p.x);
  check_both(p.g, tanh(flat) + flat * flat);
  check_both(p.g, reshape(sigmoid(reshape(p.x, {batch, 4, 6})), {batch, 24}));
  // An image can be a view of a feed, and weights can be a view of a parameter.
  auto x = p.g.placeholder("x", {batch, 12});
  auto image = reshape(x, {batch, 3, 2, 2});
  auto w = reshape(p.g.variable("v", {12}), {1, 3, 2, 2});
  check_both(p.g, conv2d(image, w, {.height = 2, .width = 2}));
  check_both(p.g, flatten(image) * dense(x, p.g.variable("u", {12, 12})));
}

BOOST_AUTO_TEST_CASE(a_small_network) {
  graph g;
  auto x = reshape(g.placeholder("x", {batch, 64}), {batch, 1, 8, 8});
  auto labels = g.placeholder("labels", {batch}, dtype::int32);
  const window same{.height = 3, .width = 3, .pad_y = 1, .pad_x = 1};
  const window half{.height = 2, .width = 2, .stride_y = 2, .stride_x = 2};
  auto h = max_pool(conv2d_layer(x, "conv_1", 4, same, activation::tanh), half);
  h = max_pool(conv2d_layer(h, "conv_2", 6, same, activation::tanh), half);
  auto loss = softmax_cross_entropy(dense_layer(flatten(h), "dense", 3), labels);
  check_forward(g, loss);
  check_gradient(g, loss, 1e-4);
}

BOOST_AUTO_TEST_CASE(nan_is_the_largest) {
  graph g;
  auto x = g.placeholder("x", {batch, 1, 1, 4});
  auto y = max_pool(x, {.width = 4});
  leaves values{1, {}, {{1, 5, NAN, 7}}};
  BOOST_TEST(std::isnan(execute<float>(g, values, {}, {y}, false).fetches[0][0]));
}

BOOST_AUTO_TEST_CASE(misfits) {
  graph g;
  auto x = g.placeholder("pictures", {batch, 4, 5, 6});
  const auto refused = [](auto f, const char* text) {
    BOOST_CHECK_EXCEPTION(f(), input_error, [text](const input_error& error) {
      return std::string(error.what()).find(text) != std::string::npos;
    });
  };
  auto w = g.variable("filter", {2, 3, 3, 3});
  const window three{.height = 3, .width = 3};
  refused([&] { conv2d(x, w, three); },
          "\"pictures\" (batch, 4, 5, 6) and \"filter\" (2, 3, 3, 3)");
  refused([&] { max_pool(x, {.height = 6}); }, "does not fit into images (batch, 4, 5, 6)");
  refused([&] { max_pool(x, {.height = 2, .pad_y = 2}); }, "padding smaller than the window");
  refused([&] { max_pool(slice(x, 2, 5, 5), {.height = 2, .pad_y = 1}); },
          "images (batch, 4, 0, 6) without pixels");
  refused([&] { average_pool(x, {.stride_x = 0}); }, "strides of at least 1");
  refused([&] { flatten(conv2d(flatten(x), w, three)); }, "(batch, channels, height, width)");
  refused([&] { reshape(x, {batch, 4, 5, 7}); }, "expected the same number of elements");
  refused([&] { conv2d_layer(x, "conv_1", 3, {.groups = 2}); }, "layer \"conv_1\"");
  refused(
    [&] {
      conv2d(x, g.variable("f", {4, 4, 3, 3}), {3, 3, 1, 1, 0, 0, 1, 3, 3});
    },
    "a window of 3 x 3, dilated by 3 and 3 does not fit into images (batch, 4, 5, 6)");
  refused([&] { max_pool(x, {.height = 2, .dilation_y = 2}); }, "only convolutions can have it");
  refused(
    [&] {
      conv2d(x, g.variable("h", {4, 4, 1, 1}), {.ceil_mode = true});
    },
    "ceil_mode is only for pooling");
  auto t = g.variable("transposed", {4, 2, 3, 3});
  refused([&] { conv_transpose2d(x, w, three); }, "weights of shape (4, filters / groups, 3, 3)");
  refused([&] { conv_transpose2d(x, t, three, 1); }, "output padding of 1 and 0");
  refused([&] { conv_transpose2d(x, t, {3, 3, std::int64_t{1} << 62}); }, "more than 2^48");
  refused([&] { add_channel_bias(x, g.variable("b", {5})); }, "a bias per channel");
}

BOOST_AUTO_TEST_SUITE_END()
