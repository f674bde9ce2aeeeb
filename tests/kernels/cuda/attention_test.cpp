#include "kernels/cuda/attention.hpp"

#include "kernels/cpu/attention.hpp"
#include "tests/kernels/cuda/narrow.hpp"
#include "tests/kernels/cuda/simulator.hpp"
#include "tests/kernels/cuda/sizes.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace troupe;
using namespace troupe::test;

namespace {

/// The relative error of a share (an attention probability). A share is the exponential of a score,
/// so its relative error is the absolute error of the score: a few units of 2^-24 for each product
/// that is added.
double share_tolerance(const attention_layout& size) {
  return std::max(2e-6, 6e-8 * static_cast<double>(size.width));
}

/// The layout (batch, time, 3 heads * width): one tensor contains queries, keys and values of
/// self-attention.
attention_layout packed_layout(std::size_t heads, std::size_t time, std::size_t width,
                               bool causal) {
  attention_layout result;
  result.batch = 2;
  result.heads = heads;
  result.width = width;
  result.queries = result.keys = time;
  result.causal = causal;
  result.factor = 0.8;
  const auto columns = heads * width;
  const auto part = [&](std::size_t i) {
    return head_rows{i * columns, time * 3 * columns, width, 3 * columns};
  };
  result.q = part(0);
  result.k = part(1);
  result.v = part(2);
  result.y = {0, time * columns, width, columns};
  return result;
}

/// The layout (batch, heads, time, width), with a tensor for each operand.
attention_layout head_layout(std::size_t heads, std::size_t queries, std::size_t keys,
                             std::size_t width) {
  attention_layout result;
  result.batch = 2;
  result.heads = heads;
  result.width = width;
  result.queries = queries;
  result.keys = keys;
  result.factor = -0.6;
  result.q = result.y = {0, heads * queries * width, queries * width, width};
  result.k = result.v = {0, heads * keys * width, keys * width, width};
  return result;
}

/// The operands of attention in some layout, and the expected results in double.
struct attention_trial {
  attention_layout size;
  std::vector<float> q, k, v, dy;
  std::vector<double> y, statistics, dq, dk, dv;

  attention_trial(const attention_layout& layout, bool packed) : size(layout) {
    q = random_floats(elements(size.q), "q");
    k = packed ? q : random_floats(elements(size.k), "k");
    v = packed ? q : random_floats(elements(size.v), "v");
    dy = random_floats(elements(size.y), "dy");
    compute();
  }

  std::size_t elements(const head_rows& x) const { return size.batch * x.sample; }
  range all() const { return {0, size.batch * size.heads}; }
  std::size_t rows() const { return size.batch * size.heads * size.queries; }

  void compute() {
    compute_results();
    compute_gradients();
  }
  void compute_results() {
    y.assign(dy.size(), 0);
    statistics.assign(rows(), 0);
    with_inputs([&](const cpu::attention_inputs<double>& x, double* scratch) {
      cpu::attention(size, all(), x, y.data(), statistics.data(), scratch);
    });
  }
  /// Computes the gradients from the results of compute_results().
  void compute_gradients() {
    dq.assign(q.size(), 0);
    dk.assign(k.size(), 0);
    dv.assign(v.size(), 0);
    with_inputs([&](const cpu::attention_inputs<double>& x, double* scratch) {
      cpu::attention_gradient(size, all(), x, as_doubles(dy).data(), y.data(), statistics.data(),
                              {dq.data(), dk.data(), dv.data()}, scratch);
    });
  }
  /// All gradients of a packed layout. Each gradient has its own columns of one tensor.
  std::vector<double> packed_gradients() const {
    std::vector<double> result(dq.size());
    for (std::size_t i = 0; i < result.size(); ++i)
      result[i] = dq[i] + dk[i] + dv[i];
    return result;
  }

private:
  template <class F>
  void with_inputs(F f) const {
    const auto wide_q = as_doubles(q);
    const auto wide_k = as_doubles(k);
    const auto wide_v = as_doubles(v);
    const auto bytes = cpu::attention_scratch_elements<double>(size) * sizeof(double);
    const std::unique_ptr<double[], void (*)(double*)> scratch(
      static_cast<double*>(::operator new (bytes, std::align_val_t{64})),
      [](double* p) { ::operator delete (p, std::align_val_t{64}); });
    f({wide_q.data(), wide_k.data(), wide_v.data()}, scratch.get());
  }
};

/// The results of a GPU as float32. In a packed layout, dq contains all three gradients.
struct gpu_results {
  std::vector<float> y, statistics, dq, dk, dv;
};

/// Device memory for elements of a type that is chosen at run time.
class device_elements {
public:
  device_elements(dtype type, const std::vector<float>& x) : type_(type) {
    if (type == dtype::float32)
      wide_ = std::make_unique<device_array<float>>(x);
    else
      narrow_ = std::make_unique<device_array<std::uint16_t>>(narrowed(type, x));
  }
  device_elements(dtype type, std::size_t n) : type_(type) {
    if (type == dtype::float32)
      wide_ = std::make_unique<device_array<float>>(n);
    else
      narrow_ = std::make_unique<device_array<std::uint16_t>>(n);
  }
  cuda::mixed_input in() const { return {data(), type_}; }
  cuda::mixed_output out() const { return {data(), type_}; }
  std::vector<float> values() const {
    return wide_ ? wide_->values() : widened_all(type_, narrow_->values());
  }

private:
  void* data() const { return wide_ ? static_cast<void*>(wide_->data()) : narrow_->data(); }
  dtype type_;
  std::unique_ptr<device_array<float>> wide_;
  std::unique_ptr<device_array<std::uint16_t>> narrow_;
};

gpu_results run_on_gpu(const attention_trial& x, dtype type, bool packed) {
  const device_elements q(type, x.q);
  const device_elements k(type, x.k);
  const device_elements v(type, x.v);
  const device_elements dy(type, x.dy);
  const device_elements y(type, x.dy.size());
  const device_elements dq(type, x.q.size());
  const device_elements dk(type, x.k.size());
  const device_elements dv(type, x.v.size());
  const device_array<float> statistics(x.rows());
  const device_array<float> products(x.rows());
  const cuda::attention_inputs in = packed ? cuda::attention_inputs{q.in(), q.in(), q.in()}
                                           : cuda::attention_inputs{q.in(), k.in(), v.in()};
  auto products_before = tensor_products();
  const auto check_tensor_cores = [&] {
    BOOST_TEST((tensor_products() > products_before) == is_narrow(type));
    products_before = tensor_products();
  };
  cuda::attention({}, x.size, in, y.out(), statistics.data());
  check_tensor_cores();
  const cuda::attention_gradients out = packed
    ? cuda::attention_gradients{dq.out(), dq.out(), dq.out()}
    : cuda::attention_gradients{dq.out(), dk.out(), dv.out()};
  cuda::attention_gradient({}, x.size, in, dy.in(), y.in(), statistics.data(), products.data(),
                           out);
  check_tensor_cores();
  return {y.values(), statistics.values(), dq.values(), packed ? dq.values() : dk.values(),
          packed ? dq.values() : dv.values()};
}

/// The rounding error of the operands of tensor cores, which have 16 bits. The operands include
/// shares and gradients of scores, which are rounded before they are multiplied.
double rounding_of(dtype type) {
  return type == dtype::float32 ? 0 : type == dtype::bfloat16 ? 1.0 / 512 : 1.0 / 4096;
}

void check_layout(const attention_layout& layout, bool packed, dtype type = dtype::float32) {
  attention_trial x(layout, packed);
  if (is_narrow(type)) {
    for (auto* values : {&x.q, &x.k, &x.v, &x.dy})
      *values = widened_all(type, narrowed(type, *values));
    x.compute();
  }
  const auto tolerance = share_tolerance(layout);
  // A result in 16 bits is rounded once more.
  const auto relative = tolerance + 2 * rounding_of(type);
  std::vector<float> first[2];
  in_all_orders([&] {
    const auto found = run_on_gpu(x, type, packed);
    check_close(found.y, x.y, relative, 5 * tolerance + 2 * rounding_of(type), "result");
    check_close(found.statistics, x.statistics, tolerance, 5 * tolerance, "statistics");
    // The gradient reads the rounded result of the forward pass.
    if (is_narrow(type)) {
      x.y = as_doubles(found.y);
      x.compute_gradients();
    }
    const auto check_gradient = [&](const std::vector<float>& y, const std::vector<double>& dy,
                                    const char* name) {
      double largest = 0;
      for (const auto one : dy)
        largest = std::max(largest, std::fabs(one));
      check_close(y, dy, relative, 20 * tolerance + 2 * rounding_of(type) * largest, name);
    };
    if (packed) {
      check_gradient(found.dq, x.packed_gradients(), "gradients");
    } else {
      check_gradient(found.dq, x.dq, "d queries");
      check_gradient(found.dk, x.dk, "d keys");
      check_gradient(found.dv, x.dv, "d values");
    }
    if (first[0].empty()) {
      first[0] = found.y;
      first[1] = found.dq;
    }
    BOOST_TEST(same_bits(found.y, first[0]));
    BOOST_TEST(same_bits(found.dq, first[1]));
  });
}

} // namespace

BOOST_AUTO_TEST_SUITE(cuda_attention)

// Tiles have 64 rows and 32 columns.
BOOST_AUTO_TEST_CASE(lengths_around_tiles) {
  for (const std::size_t time : {1, 2, 31, 32, 33, 63, 64, 65, 97, 160})
    for (const bool causal : {false, true})
      BOOST_TEST_CONTEXT(time << (causal ? " positions, causal" : " positions"))
  check_layout(packed_layout(time > 64 ? 1 : 2, time, 5, causal), true);
}

BOOST_AUTO_TEST_CASE(other_numbers_of_keys) {
  for (const auto& [queries, keys] :
       std::vector<std::pair<std::size_t, std::size_t>>{{1, 70}, {70, 1}, {33, 64}, {65, 31}})
    check_layout(head_layout(2, queries, keys, 4), false);
  for (const std::size_t n : {257, 997}) {
    check_layout(head_layout(1, n, 3, 2), false);
    check_layout(head_layout(1, 3, n, 2), false);
  }
}

BOOST_AUTO_TEST_CASE(numbers_of_heads_and_samples) {
  for (const std::size_t n : {1, 33}) {
    check_layout(head_layout(n, 2, 3, 2), false);
    auto layout = head_layout(2, 2, 3, 2);
    layout.batch = n;
    check_layout(layout, false);
  }
  auto none = head_layout(2, 2, 3, 2);
  none.batch = 0;
  check_layout(none, false);
}

// Each width has its own kernel. Some heads are narrower than their kernel, and one has the largest
// width.
BOOST_AUTO_TEST_CASE(widths_of_heads) {
  for (const std::size_t width : {1, 31, 32, 33, 64, 65, 128})
    BOOST_TEST_CONTEXT(width << " columns")
  check_layout(packed_layout(1, 34, width, true), true);
  const device_array<float> x(129);
  auto layout = head_layout(1, 1, 1, 129);
  layout.batch = 1;
  BOOST_CHECK_THROW(cuda::attention({}, layout, {x.data(), x.data(), x.data()}, x.data(), nullptr),
                    std::invalid_argument);
}

// With tensor cores, tiles have 128 rows (16 for each warp), and a step has 64 keys.
BOOST_AUTO_TEST_CASE(lengths_around_tiles_of_16_bits) {
  for (const std::size_t time : {1, 16, 17, 64, 65, 128, 129, 200})
    for (const bool causal : {false, true})
      BOOST_TEST_CONTEXT(time << (causal ? " positions, causal" : " positions"))
  check_layout(packed_layout(time > 17 ? 1 : 2, time, 6, causal), true, dtype::bfloat16);
}

// If the width is a multiple of 8, rows are loaded 8 elements at a time.
BOOST_AUTO_TEST_CASE(other_shapes_of_16_bits) {
  for (const auto type : narrow_types)
    BOOST_TEST_CONTEXT(to_string(type)) {
      for (const auto& [queries, keys] :
           std::vector<std::pair<std::size_t, std::size_t>>{{1, 130}, {130, 1}, {65, 31}})
        check_layout(head_layout(1, queries, keys, 4), false, type);
      for (const std::size_t width : {8, 31, 40, 127, 128})
        check_layout(packed_layout(1, 34, width, true), true, type);
    }
}

// If operands have different types, they are computed in float32.
BOOST_AUTO_TEST_CASE(operands_of_two_types) {
  const attention_trial x(head_layout(1, 40, 35, 3), false);
  const device_elements q(dtype::bfloat16, x.q);
  const device_elements wide_q(dtype::float32, q.values());
  const device_elements k(dtype::float32, x.k);
  const device_elements v(dtype::float32, x.v);
  const device_elements y(dtype::float32, x.dy.size());
  const device_elements expected(dtype::float32, x.dy.size());
  cuda::attention({}, x.size, {q.in(), k.in(), v.in()}, y.out(), nullptr);
  cuda::attention({}, x.size, {wide_q.in(), k.in(), v.in()}, expected.out(), nullptr);
  BOOST_TEST(same_bits(y.values(), expected.values()));
}

BOOST_AUTO_TEST_CASE(results_that_are_not_needed) {
  const attention_trial x(head_layout(1, 40, 35, 3), false);
  const auto tolerance = share_tolerance(x.size);
  const device_array<float> q(x.q);
  const device_array<float> k(x.k);
  const device_array<float> v(x.v);
  const device_array<float> dy(x.dy);
  const device_array<float> y(x.dy.size());
  const device_array<float> statistics(x.rows());
  const device_array<float> products(x.rows());
  const cuda::attention_inputs in{q.data(), k.data(), v.data()};
  cuda::attention({}, x.size, in, static_cast<float*>(nullptr), statistics.data());
  check_close(statistics.values(), x.statistics, tolerance, 5 * tolerance, "statistics");
  cuda::attention({}, x.size, in, y.data(), nullptr);
  check_close(y.values(), x.y, tolerance, 5 * tolerance, "result");
  const device_array<float> dk(x.k.size());
  cuda::attention_gradient({}, x.size, in, dy.data(), y.data(), statistics.data(), products.data(),
                           {{}, dk.data(), {}});
  check_close(dk.values(), x.dk, tolerance, 20 * tolerance, "d keys");
  const device_array<float> dq(x.q.size());
  const auto before = launches();
  cuda::attention_gradient({}, x.size, in, dy.data(), y.data(), statistics.data(), products.data(),
                           {dq.data(), {}, {}});
  BOOST_TEST(launches() - before == 1U);
  check_close(dq.values(), x.dq, tolerance, 20 * tolerance, "d queries");
}

BOOST_AUTO_TEST_SUITE_END()
