#include "apps/troupe/bench/eigen_product.hpp"
#include "apps/troupe/bench/openblas.hpp"
#include "apps/troupe/bench/statistics.hpp"
#include "apps/troupe/bench/stopwatch.hpp"
#include "apps/troupe/commands.hpp"
#include "apps/troupe/exit_code.hpp"
#include "apps/troupe/text_table.hpp"
#include "kernels/cpu/elementwise.hpp"
#include "kernels/cpu/gemm.hpp"
#include "kernels/cpu/losses.hpp"
#include "kernels/cpu/sequences.hpp"
#include "kernels/error.hpp"
#include "kernels/optimizers/optimizer.hpp"
#include "kernels/random.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

namespace troupe {

namespace {

using namespace bench;

/// The median seconds of each function on one thread. The functions are measured alternately and in
/// processor time, so that other programs on the machine have little influence.
std::vector<double> measure(const bench_kernels_command& x,
                            const std::vector<std::function<void()>>& what) {
  const auto time = [](const std::function<void()>& f, std::size_t times) {
    const stopwatch watch(passing::processor_time);
    for (std::size_t i = 0; i < times; ++i)
      f();
    return watch.seconds() / static_cast<double>(times);
  };
  std::vector<std::size_t> times;
  for (const auto& f : what) {
    f();
    const double share = x.seconds / x.rounds / static_cast<double>(what.size());
    times.push_back(static_cast<std::size_t>(std::clamp(share / time(f, 1), 1.0, 1e6)));
  }
  std::vector<std::vector<double>> all(what.size());
  for (std::uint32_t r = 0; r < x.rounds; ++r)
    for (std::size_t i = 0; i < what.size(); ++i)
      all[i].push_back(time(what[i], times[i]));
  std::vector<double> result;
  for (const auto& x : all)
    result.push_back(statistics{x}.median);
  return result;
}

std::vector<float> random_floats(std::size_t n, std::string_view name) {
  random_stream random{1, name};
  std::vector<float> result(n);
  for (auto& x : result)
    x = static_cast<float>(random.uniform(-1, 1));
  return result;
}

// -- products of matrices -----------------------------------------------------------------------

/// A matrix product c (m, n) = op(a) op(b), over k terms. op transposes its matrix or does nothing.
struct product {
  std::string_view what;
  int m, n, k;
  bool transpose_a, transpose_b;
};

/// The matrix products that occur in `bench train`.
constexpr std::array products{
  product{"softmax 64, forward", 64, 10, 784, false, true},
  product{"softmax 64, weights' gradient", 10, 784, 64, true, false},
  product{"mlp 64, forward 1", 64, 256, 784, false, true},
  product{"mlp 64, forward 2", 64, 128, 256, false, true},
  product{"mlp 64, weights' gradient 1", 256, 784, 64, true, false},
  product{"mlp 64, weights' gradient 2", 128, 256, 64, true, false},
  product{"mlp 64, gradient 2", 64, 256, 128, false, false},
  product{"mlp 256, forward 1", 256, 256, 784, false, true},
  product{"mlp 256, weights' gradient 1", 256, 784, 256, true, false},
  product{"lstm, input projections", 2048, 1024, 64, false, true},
  product{"lstm, a step", 32, 1024, 256, false, true},
  product{"lstm, a step back", 32, 256, 1024, false, false},
  product{"lstm, weights' gradient", 1024, 256, 2048, true, false},
  product{"gpt, queries, keys and values", 1024, 384, 128, false, true},
  product{"gpt, inner", 1024, 512, 128, false, true},
  product{"gpt, outer", 1024, 128, 512, false, true},
  product{"gpt, outer weights' gradient", 128, 512, 1024, true, false},
  product{"gpt, head", 1024, 65, 128, false, true},
  product{"gpt, a head's scores", 64, 64, 32, false, true},
  product{"gpt, a head's values", 64, 32, 64, false, false},
  product{"large", 1024, 1024, 1024, false, false},
};

struct product_result {
  product what;
  /// The next three values are in GFLOP/s. 0 if this implementation is not available.
  double ours = 0;
  double eigen = 0;
  double openblas = 0;
  /// The largest difference between elements of the results of two implementations, divided by k.
  double difference = 0;

  double others() const { return std::max(eigen, openblas); }
};

product_result measure_product(const product& x, const openblas& blas,
                               const bench_kernels_command& how) {
  const auto m = static_cast<std::size_t>(x.m);
  const auto n = static_cast<std::size_t>(x.n);
  const auto k = static_cast<std::size_t>(x.k);
  const auto a = random_floats(m * k, "a");
  const auto b = random_floats(k * n, "b");
  std::vector<float> ours(m * n);
  std::vector<float> theirs(m * n);
  std::vector<float> blas_result(m * n);
  std::vector<float> scratch(cpu::gemm_scratch_elements<float>() + 16);
  auto* aligned = scratch.data();
  while (reinterpret_cast<std::uintptr_t>(aligned) % 64 != 0)
    ++aligned;
  cpu::matrix<float> left{a.data(), x.transpose_a ? m : k, 1};
  cpu::matrix<float> right{b.data(), x.transpose_b ? k : n, 1};
  if (x.transpose_a)
    left = left.transposed();
  if (x.transpose_b)
    right = right.transposed();
  std::vector<std::function<void()>> candidates{
    [&] { cpu::gemm<float>(m, n, k, left, right, ours.data(), n, aligned); },
    [&] { cpu::eigen_product(m, n, k, left, right, theirs.data()); }};
  if (blas.found())
    candidates.emplace_back([&] {
      blas.multiply(x.transpose_a, x.transpose_b, x.m, x.n, x.k, a.data(),
                    x.transpose_a ? x.m : x.k, b.data(), x.transpose_b ? x.k : x.n,
                    blas_result.data(), x.n);
    });
  const auto times = measure(how, candidates);
  const double work = 2e-9 * x.m * x.n * x.k;
  product_result result{x, work / times[0], work / times[1], 0, 0};
  const auto compare = [&](const std::vector<float>& other) {
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const double difference = std::abs(static_cast<double>(ours[i] - other[i])) / x.k;
      if (!(difference <= result.difference))
        result.difference = difference;
    }
  };
  compare(theirs);
  if (blas.found()) {
    result.openblas = work / times[2];
    compare(blas_result);
  }
  return result;
}

// -- work whose speed depends on the memory -----------------------------------------------------

struct stream_result {
  std::string what;
  std::size_t elements = 0;
  /// GB/s read and written.
  double bandwidth = 0;
  /// GB/s read and written by a plain copy of the same number of bytes.
  double copy = 0;
};

/// @param arrays how many arrays f reads or writes; each has n floats
stream_result measure_stream(std::string what, std::size_t n, std::size_t arrays,
                             const bench_kernels_command& how, const std::function<void()>& f) {
  const auto half = n * arrays / 2;
  const std::vector<float> from(half, 1);
  std::vector<float> to(half);
  const auto times =
    measure(how, {f, [&] { std::memcpy(to.data(), from.data(), half * sizeof(float)); }});
  const double bytes = static_cast<double>(n * arrays * sizeof(float));
  return {std::move(what), n, 1e-9 * bytes / times[0], 1e-9 * bytes / times[1]};
}

constexpr std::array<std::pair<std::string_view, optimizer_kind>, 7> rules{{
  {"SGD", optimizer_kind::sgd},
  {"momentum", optimizer_kind::momentum},
  {"Nesterov", optimizer_kind::nesterov},
  {"Adagrad", optimizer_kind::adagrad},
  {"RMSProp", optimizer_kind::rmsprop},
  {"Adam", optimizer_kind::adam},
  {"AdamW", optimizer_kind::adamw},
}};

void measure_updates(std::size_t n, const bench_kernels_command& how,
                     std::vector<stream_result>& results) {
  for (const auto& [name, kind] : rules) {
    optimizer rule{.kind = kind};
    if (kind == optimizer_kind::rmsprop)
      rule.momentum = 0;
    const auto weights = random_floats(n, "weights");
    const auto gradient = random_floats(n, "gradient");
    std::vector<float> state(n * rule.slots());
    std::vector<float> updated(n);
    // An update reads weights, gradient and state, and writes weights and state.
    results.push_back(
      measure_stream(fmt::format("{} update", name), n, 3 + 2 * rule.slots(), how, [&] {
        update<float>(rule, {weights, gradient, state, updated, 0.01, 1, 100});
      }));
  }
}

void measure_operations(std::size_t n, const bench_kernels_command& how,
                        std::vector<stream_result>& results) {
  const auto a = random_floats(n, "a");
  const auto b = random_floats(n, "b");
  std::vector<float> out(n);
  constexpr std::size_t columns = 128;
  const auto rows = n / columns;
  const auto add = [&](std::string_view name, std::size_t arrays, const std::function<void()>& f) {
    results.push_back(measure_stream(std::string{name}, n, arrays, how, f));
  };
  const auto elements = [&](operation op, std::size_t arrays) {
    add(to_string(op), arrays, [&, loop = cpu::loop_of<float>(op)] {
      loop(n, a.data(), b.data(), nullptr, 1, out.data());
    });
  };
  for (auto op : {operation::relu, operation::tanh, operation::sigmoid, operation::exp})
    elements(op, 2);
  for (auto op : {operation::add, operation::multiply, operation::relu_gradient})
    elements(op, 3);
  add("softmax of rows of 128", 2,
      [&] { cpu::softmax<float>(rows, columns, a.data(), out.data()); });
  add("normalize_rows of 128", 2,
      [&] { cpu::normalize_rows<float>(rows, columns, a.data(), 1e-5, out.data()); });
}

// -- output -------------------------------------------------------------------------------------

void print(const std::vector<product_result>& products, const std::vector<stream_result>& streams,
           const openblas& blas, double peak) {
  fmt::print(
    "Products of float32 matrices on one thread, GFLOP/s ({}); the most of all: {:.0f}\n\n",
    blas.found() ? blas.name() : "no OpenBLAS found", peak);
  text_table table(
    {"product", "m", "n", "k", "troupe", "Eigen", "OpenBLAS", "of the better one", "of the most"});
  for (const auto& r : products)
    table.add({std::string{r.what.what}, std::to_string(r.what.m), std::to_string(r.what.n),
               std::to_string(r.what.k), fmt::format("{:.1f}", r.ours),
               fmt::format("{:.1f}", r.eigen),
               r.openblas > 0 ? fmt::format("{:.1f}", r.openblas) : "-",
               fmt::format("{:.0f} %", 100 * r.ours / r.others()),
               fmt::format("{:.0f} %", 100 * r.ours / peak)});
  table.print();
  fmt::print("\nUpdates and operations, GB/s read and written, compared with a plain copy of as "
             "many bytes\n\n");
  text_table more({"what", "elements", "GB/s", "copy", "of the copy"});
  for (const auto& r : streams)
    more.add({r.what, std::to_string(r.elements), fmt::format("{:.1f}", r.bandwidth),
              fmt::format("{:.1f}", r.copy), fmt::format("{:.0f} %", 100 * r.bandwidth / r.copy)});
  more.print();
}

void print_json(const std::vector<product_result>& products,
                const std::vector<stream_result>& streams, const openblas& blas, double peak) {
  nlohmann::json result{{"peak_gflops", peak}, {"openblas", blas.name()}};
  for (const auto& r : products)
    result["products"].push_back({{"what", r.what.what},
                                  {"m", r.what.m},
                                  {"n", r.what.n},
                                  {"k", r.what.k},
                                  {"gflops", r.ours},
                                  {"eigen_gflops", r.eigen},
                                  {"openblas_gflops", r.openblas},
                                  {"of_better", r.ours / r.others()},
                                  {"difference", r.difference}});
  for (const auto& r : streams)
    result["streams"].push_back({{"what", r.what},
                                 {"elements", r.elements},
                                 {"gigabytes_per_second", r.bandwidth},
                                 {"copy_gigabytes_per_second", r.copy},
                                 {"of_copy", r.bandwidth / r.copy}});
  fmt::print("{}\n", result.dump(2));
}

} // namespace

int run(const bench_kernels_command& x) {
  // The accepted value of product_result::difference, for elements between -1 and 1. Results of
  // implementations differ because they add up in different orders.
  constexpr double tolerance = 1e-6;
  if (x.rounds == 0 || x.elements < 128)
    throw input_error{"--rounds must be at least 1, and --elements 128"};
  const openblas blas;
  std::vector<product_result> found;
  double peak = 0;
  int code = exit_done;
  for (const auto& what : products) {
    found.push_back(measure_product(what, blas, x));
    const auto& r = found.back();
    peak = std::max({peak, r.ours, r.others()});
    if (!(r.difference <= tolerance)) {
      fmt::print(stderr, "troupe: {}: the results differ by {:.1e} of k; expected at most {:g}\n",
                 what.what, r.difference, tolerance);
      code = exit_failed;
    }
  }
  std::vector<stream_result> streams;
  // The first size is the number of parameters of an MLP. The second size is too large for any
  // cache.
  for (std::size_t n : {std::size_t{235} << 10, std::size_t{x.elements}})
    measure_updates(n, x, streams);
  measure_operations(std::min(1U << 20, x.elements), x, streams);
  if (x.json)
    print_json(found, streams, blas, peak);
  else
    print(found, streams, blas, peak);
  return code;
}

} // namespace troupe
