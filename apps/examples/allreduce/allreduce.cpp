// A program that uses only troupe's all-reduce. It solves a ridge regression exactly. Each thread
// or process has a part of the rows, and sums over its part. A single all-reduce adds up these
// sums.
//
//   allreduce                                  three threads in this process
//   allreduce RANK HOST:PORT HOST:PORT ...     one process per rank; all get the same addresses

#include <troupe/actors/collective/collective.hpp>
#include <troupe/kernels/error.hpp>
#include <troupe/messages/configure.hpp>

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include <cmath>
#include <iomanip>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

constexpr std::size_t rows = 10'000;
constexpr std::size_t features = 4;
constexpr double ridge = 0.5;

/// The sums over rows: X'X (features, features) in row-major order, then X'y (features).
using sums = std::vector<double>;

// Writes the features of row i to x. Returns the target of the row. The first feature is the
// constant 1.
double read_row(std::size_t i, double* x) {
  double y = 0;
  for (std::size_t k = 0; k < features; ++k) {
    x[k] = k == 0 ? 1 : std::sin(static_cast<double>(i * features + k) * 12.9898) * 3;
    y += x[k] * static_cast<double>(k + 1);
  }
  return y + 0.1 * std::cos(static_cast<double>(i) * 78.233);
}

// The sums over some of the rows: number `first`, and from there every `step`-th row.
sums add_rows(std::size_t first, std::size_t step) {
  sums result((features + 1) * features);
  double x[features];
  for (auto i = first; i < rows; i += step) {
    const double y = read_row(i, x);
    for (std::size_t k = 0; k < features; ++k) {
      for (std::size_t l = 0; l < features; ++l)
        result[k * features + l] += x[k] * x[l];
      result[features * features + k] += x[k] * y;
    }
  }
  return result;
}

// Solves (X'X + ridge I) w = X'y by Gaussian elimination; the matrix is positive definite.
std::vector<double> solve(sums a) {
  auto* w = a.data() + features * features;
  for (std::size_t k = 0; k < features; ++k)
    a[k * features + k] += ridge;
  for (std::size_t k = 0; k < features; ++k)
    for (auto i = k + 1; i < features; ++i) {
      const double factor = a[i * features + k] / a[k * features + k];
      for (auto l = k; l < features; ++l)
        a[i * features + l] -= factor * a[k * features + l];
      w[i] -= factor * w[k];
    }
  for (auto k = features; k-- > 0;) {
    for (auto l = k + 1; l < features; ++l)
      w[k] -= a[k * features + l] * w[l];
    w[k] /= a[k * features + k];
  }
  return {w, w + features};
}

// Runs on each rank: computes the sums over the rank's own rows, and adds them to those of the
// other ranks with the all-reduce.
std::vector<double> regression(troupe::collective& group) {
  auto own = add_rows(group.rank(), group.ranks());
  group.all_reduce(own);
  return solve(std::move(own));
}

// Prints the coefficients, and compares them with the result of a serial loop over all rows.
int report(const std::vector<double>& coefficients) {
  const auto expected = solve(add_rows(0, 1));
  double error = 0;
  std::cout << std::fixed << std::setprecision(6);
  for (std::size_t k = 0; k < features; ++k) {
    std::cout << coefficients[k] << (k + 1 < features ? ' ' : '\n');
    error = std::max(error, std::abs(coefficients[k] - expected[k]));
  }
  return error < 1e-9 ? 0 : 1;
}

int with_threads(caf::actor_system& sys) {
  auto groups = troupe::collective::in_one_system(sys, 3);
  std::vector<std::vector<double>> results(groups.size());
  std::vector<std::thread> threads;
  for (auto& group : groups)
    threads.emplace_back([&] { results[group.rank()] = regression(group); });
  for (auto& x : threads)
    x.join();
  return results[0] == results[1] && results[0] == results[2] ? report(results[0]) : 1;
}

int as_process(caf::actor_system& sys, int count, char** arguments) {
  troupe::collective_options options;
  options.rank = std::stoul(arguments[1]);
  options.addresses.assign(arguments + 2, arguments + count);
  auto group = troupe::collective::connect(sys, options);
  return report(regression(group));
}

int main(int count, char** arguments) {
  caf::actor_system_config cfg;
  troupe::configure(cfg);
  cfg.load<caf::io::middleman>();
  caf::actor_system sys{cfg};
  try {
    return count > 1 ? as_process(sys, count, arguments) : with_threads(sys);
  } catch (const troupe::collective_error& error) {
    std::cerr << "rank " << error.failure().rank << " is at fault: " << error.what() << '\n';
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
  }
  return 1;
}
