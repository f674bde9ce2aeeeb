// A program that uses only troupe's parameter store. It finds the coefficients of a linear relation
// by its own stochastic gradient descent. Servers keep the coefficients and update them with
// momentum. Clients have the data and compute gradients. Clients do not wait for each other.
//
//   store                                    two servers and three clients, threads of this process
//   store server INDEX HOST:PORT ...         a server; runs until it is killed
//   store client NUMBER HOST:PORT ...        a client
//
// The addresses HOST:PORT are those of all servers.

#include <troupe/actors/store/store.hpp>
#include <troupe/messages/configure.hpp>

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

constexpr std::size_t features = 4;
constexpr std::size_t clients = 3;
constexpr std::size_t steps = 1000;
constexpr std::size_t batch = 50;

// Writes the features of row i to x. Returns the target: the sum of the features, with the
// coefficients 1, 2, 3, 4. The first feature is the constant 1.
double read_row(std::size_t i, double* x) {
  double y = 0;
  for (std::size_t k = 0; k < features; ++k) {
    x[k] = k == 0 ? 1 : std::sin(static_cast<double>((i + 1) * k));
    y += x[k] * static_cast<double>(k + 1);
  }
  return y;
}

// The gradient of half the mean squared error of `batch` rows, from row `first` on.
troupe::payload gradient_at(const troupe::payload& weights, std::size_t first) {
  auto result = troupe::payload::floats(features);
  const auto gradient = result.as_mutable_floats();
  std::fill(gradient.begin(), gradient.end(), 0.0F);
  double x[features];
  for (auto i = first; i < first + batch; ++i) {
    double error = -read_row(i, x);
    for (std::size_t k = 0; k < features; ++k)
      error += x[k] * weights.as_floats()[k];
    for (std::size_t k = 0; k < features; ++k)
      gradient[k] += static_cast<float>(error * x[k] / batch);
  }
  return result;
}

// Runs one client. Other clients push at the same time, so the weights of this client are soon out
// of date.
troupe::payload train(troupe::store_client& store, std::size_t client) {
  const troupe::store_client::ranges all{{0, features}};
  auto weights = store.wait(store.pull(all)).values;
  for (std::size_t step = 0; step < steps; ++step) {
    auto gradient = gradient_at(weights, (step * clients + client) * batch);
    weights = store.wait(store.push_pull(all, std::move(gradient))).values;
  }
  return weights;
}

int report(const troupe::payload& weights) {
  double error = 0;
  std::cout << std::fixed << std::setprecision(3);
  for (std::size_t k = 0; k < features; ++k) {
    const double weight = weights.as_floats()[k];
    std::cout << weight << (k + 1 < features ? ' ' : '\n');
    error = std::max(error, std::abs(weight - static_cast<double>(k + 1)));
  }
  return error < 1e-3 ? 0 : 1;
}

troupe::store_options make_options() {
  troupe::store_options options;
  options.elements = features;
  options.rule.update = troupe::optimizer{.kind = troupe::optimizer_kind::momentum};
  options.rule.update->momentum = 0.5F;
  options.rule.rate = 0.05;
  return options;
}

int with_threads(caf::actor_system& sys) {
  const auto servers = troupe::store_host::in_one_system(sys, 2, make_options());
  std::vector<troupe::payload> results(clients);
  std::vector<std::thread> threads;
  for (std::size_t c = 0; c < clients; ++c)
    threads.emplace_back([&, c] {
      auto store = troupe::store_client::in_one_system(sys, servers);
      results[c] = train(store, c);
    });
  for (auto& x : threads)
    x.join();
  return report(results[0]) + report(results[1]) + report(results[2]);
}

int as_process(caf::actor_system& sys, int count, char** arguments) {
  auto options = make_options();
  options.addresses.assign(arguments + 3, arguments + count);
  const auto number = std::stoul(arguments[2]);
  if (arguments[1] == std::string{"server"}) {
    const auto server = troupe::store_host::listen(sys, number, options);
    for (;;)
      std::this_thread::sleep_for(std::chrono::hours{1});
  }
  auto store = troupe::store_client::connect(sys, options);
  return report(train(store, number));
}

int main(int count, char** arguments) {
  caf::actor_system_config cfg;
  troupe::configure(cfg);
  cfg.load<caf::io::middleman>();
  caf::actor_system sys{cfg};
  try {
    return count > 3 ? as_process(sys, count, arguments) : with_threads(sys);
  } catch (const troupe::store_error& error) {
    std::cerr << "server " << error.failure().server << " has failed: " << error.what() << '\n';
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
  }
  return 1;
}
