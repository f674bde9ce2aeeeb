#include "actors/collective/collective.hpp"
#include "actors/store/store.hpp"
#include "apps/troupe/bench/free_addresses.hpp"
#include "apps/troupe/bench/parse_size.hpp"
#include "apps/troupe/bench/statistics.hpp"
#include "apps/troupe/bench/stopwatch.hpp"
#include "apps/troupe/children.hpp"
#include "apps/troupe/commands.hpp"
#include "apps/troupe/exit_code.hpp"
#include "apps/troupe/text_table.hpp"
#include "kernels/error.hpp"
#include "messages/configure.hpp"

#include <caf/io/all.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <thread>

#include <unistd.h>

namespace troupe {

namespace {

using namespace bench;

constexpr std::uint32_t warm_up_rounds = 5;
constexpr std::chrono::minutes ps_deadline{10};
/// Limits for pushes that have no answer yet: their number, and their total size in bytes.
constexpr std::size_t most_pushes = 5'000;
constexpr std::size_t most_pushed_bytes = std::size_t{256} << 20;

constexpr float momentum = 0.5F;
constexpr double rate = 1.0 / 1024;

/// The ranges of one push or pull.
struct push_work {
  std::size_t bytes = 0;
  /// Number of elements in the store.
  std::size_t elements = 0;
  store_client::ranges where;
};

std::vector<push_work> works_of(const bench_ps_command& x) {
  std::vector<push_work> result;
  if (x.keys > 0) {
    const auto length = x.bytes_per_key / sizeof(float);
    auto& one = result.emplace_back();
    one.bytes = x.keys * length * sizeof(float);
    // There is a gap of one element between ranges, so that a server cannot treat neighbouring
    // ranges as one.
    one.elements = x.keys * (length + 1);
    for (std::size_t k = 0; k < x.keys; ++k)
      one.where.push_back({k * (length + 1), k * (length + 1) + length});
    return result;
  }
  for (const auto& text : x.bytes) {
    const auto bytes = parse_size("--bytes", text);
    const auto elements = bytes / sizeof(float);
    result.push_back({bytes, elements, {{0, elements}}});
  }
  return result;
}

store_options options_of(const bench_ps_command& x, std::size_t elements) {
  using transport = peer_host_options::transport;
  store_options result;
  result.elements = elements;
  result.deadline = ps_deadline;
  result.transport = x.transport == "auto" ? transport::automatic
    : x.transport == "tcp"                 ? transport::tcp
                                           : transport::basp;
  result.rule = {optimizer{.kind = optimizer_kind::momentum, .momentum = momentum}, rate};
  return result;
}

/// The value of every element after this number of pushes, if all elements of a push are 1. It is
/// -rate times the sum of the velocities v_k = (1 - m^k) / (1 - m).
double expected(std::uint64_t pushes) {
  const auto t = static_cast<double>(pushes);
  constexpr double m = momentum;
  return -rate / (1 - m) * (t - m * (1 - std::pow(m, t)) / (1 - m));
}

/// Checks that each value is right for the number of pushes that its server has counted.
void check_values(const push_work& what, std::size_t servers, const store_result& found) {
  const auto parts = split_evenly(what.elements, servers);
  const auto values = found.values.as_floats();
  std::size_t taken = 0;
  for (const auto& x : what.where)
    for (std::size_t s = 0; s < servers; ++s) {
      const double wanted = expected(found.versions[s]);
      for (const auto end = taken + intersect(x, parts[s]).size(); taken < end; ++taken)
        if (!(std::abs(values[taken] - wanted) <= 1e-5 * std::abs(wanted)))
          throw std::runtime_error{fmt::format("server {} has {} after {} pushes; expected {}", s,
                                               values[taken], found.versions[s], wanted)};
    }
  if (taken != values.size())
    throw std::runtime_error{"a pull returned a wrong number of values"};
}

struct ps_measurement {
  std::size_t bytes = 0;
  /// Durations of successive round trips.
  std::vector<double> seconds;
  /// Pushes of all workers together. To measure this, workers do not wait for the answer to a push
  /// before they send the next push.
  double pushes_per_second = 0;
};

/// Measures one worker. Its pushes and pulls all have the size `what.bytes`. All workers run this
/// function at the same time, and synchronize through `group`.
ps_measurement run_worker(store_client& client, collective& group, const push_work& what,
                          std::uint32_t rounds) {
  auto ones = payload::floats(elements_of(what.where));
  std::ranges::fill(ones.as_mutable_floats(), 1.0F);
  std::array<float, 1> all{};
  ps_measurement result{what.bytes, {}, 0};
  const auto trip = [&] { return client.wait(client.push_pull(what.where, ones)); };
  for (std::uint32_t k = 0; k < warm_up_rounds; ++k)
    check_values(what, client.servers(), trip());
  group.all_reduce(all);
  for (std::uint32_t k = 0; k < rounds; ++k) {
    const stopwatch watch(passing::time);
    const auto found = trip();
    result.seconds.push_back(watch.seconds());
    check_values(what, client.servers(), found);
  }
  const auto pushes = std::clamp<std::size_t>(most_pushed_bytes / what.bytes, 1, most_pushes);
  group.all_reduce(all);
  const stopwatch watch(passing::time);
  store_ticket last;
  for (std::size_t k = 0; k < pushes; ++k)
    last = client.push(what.where, ones);
  client.wait(last);
  group.all_reduce(all);
  result.pushes_per_second = static_cast<double>(pushes * group.ranks()) / watch.seconds();
  const auto found = client.wait(client.pull(what.where));
  check_values(what, client.servers(), found);
  const auto made = group.ranks() * (warm_up_rounds + rounds + pushes);
  const auto parts = split_evenly(what.elements, client.servers());
  for (std::size_t s = 0; s < parts.size(); ++s) {
    // If there are few values, a server may have none of them, and gets no pushes.
    const bool has_values = std::ranges::any_of(
      what.where, [&](const range& x) { return intersect(x, parts[s]).size() > 0; });
    if (has_values && found.versions[s] != made)
      throw std::runtime_error{fmt::format("{} pushes were made, and server {} has counted {}",
                                           made, s, found.versions[s])};
  }
  // No worker ends before all workers have checked their values.
  group.all_reduce(all);
  return result;
}

/// Calls `body(rank)` for each rank in its own thread. If threads throw, rethrows one of their
/// exceptions.
void in_threads(std::size_t count, const std::function<void(std::size_t)>& body) {
  std::vector<std::exception_ptr> problems(count);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < count; ++r)
    threads.emplace_back([&, r] {
      try {
        body(r);
      } catch (...) {
        problems[r] = std::current_exception();
      }
    });
  for (auto& thread : threads)
    thread.join();
  for (const auto& problem : problems)
    if (problem)
      std::rethrow_exception(problem);
}

std::vector<ps_measurement> run_threads(caf::actor_system& sys, const bench_ps_command& x) {
  std::vector<ps_measurement> results;
  for (const auto& what : works_of(x)) {
    const auto hosts = store_host::in_one_system(sys, x.servers, options_of(x, what.elements));
    collective_options meeting;
    meeting.deadline = ps_deadline;
    auto groups = collective::in_one_system(sys, x.workers, meeting);
    ps_measurement first;
    in_threads(x.workers, [&](std::size_t w) {
      // The thread owns its collective. If the thread fails, the collective is destroyed, so that
      // the other ranks do not wait for this rank.
      const auto group = std::make_unique<collective>(std::move(groups[w]));
      auto client = store_client::in_one_system(sys, hosts);
      auto found = run_worker(client, *group, what, x.rounds);
      if (w == 0)
        first = std::move(found);
    });
    results.push_back(std::move(first));
  }
  return results;
}

// -- processes ----------------------------------------------------------------------------------

/// The addresses of the servers for one size of pushes. There is a separate store for each size.
std::vector<std::string> addresses_of(const bench_ps_command& x, std::size_t size) {
  const auto begin = x.stores.begin() + static_cast<std::ptrdiff_t>(size * x.servers);
  return {begin, begin + x.servers};
}

/// Runs one server for each store. Does not return: the process that has started this process ends
/// it.
int run_server(caf::actor_system& sys, const bench_ps_command& x) {
  const auto works = works_of(x);
  std::vector<store_host> hosts;
  for (std::size_t k = 0; k < works.size(); ++k) {
    auto options = options_of(x, works[k].elements);
    options.addresses = addresses_of(x, k);
    hosts.push_back(store_host::listen(sys, *x.server, options));
  }
  for (;;)
    ::pause();
}

std::vector<ps_measurement> run_worker_of_processes(caf::actor_system& sys,
                                                    const bench_ps_command& x) {
  collective_options meeting;
  meeting.rank = x.worker;
  meeting.addresses = x.meeting;
  meeting.deadline = ps_deadline;
  auto group = collective::connect(sys, meeting);
  const auto works = works_of(x);
  std::vector<ps_measurement> results;
  for (std::size_t k = 0; k < works.size(); ++k) {
    auto options = options_of(x, works[k].elements);
    options.addresses = addresses_of(x, k);
    auto client = store_client::connect(sys, options);
    results.push_back(run_worker(client, group, works[k], x.rounds));
  }
  return results;
}

std::vector<std::string> arguments_of_child(const bench_ps_command& x) {
  std::vector<std::string> result{"bench",
                                  "ps",
                                  fmt::format("--servers={}", x.servers),
                                  fmt::format("--workers={}", x.workers),
                                  fmt::format("--rounds={}", x.rounds),
                                  fmt::format("--transport={}", x.transport),
                                  "--processes",
                                  fmt::format("--parent={}", ::getpid()),
                                  fmt::format("--stores={}", fmt::join(x.stores, ",")),
                                  fmt::format("--meeting={}", fmt::join(x.meeting, ","))};
  if (x.keys > 0) {
    result.push_back(fmt::format("--keys={}", x.keys));
    result.push_back(fmt::format("--bytes-per-key={}", x.bytes_per_key));
  } else {
    result.push_back(fmt::format("--bytes={}", fmt::join(x.bytes, ",")));
  }
  return result;
}

std::vector<ps_measurement> run_processes(caf::actor_system& sys, bench_ps_command x) {
  const auto sizes = works_of(x).size();
  const auto addresses = free_addresses(sizes * x.servers + x.workers);
  const auto first_worker = addresses.begin() + static_cast<std::ptrdiff_t>(sizes * x.servers);
  x.stores.assign(addresses.begin(), first_worker);
  x.meeting.assign(first_worker, addresses.end());
  const auto arguments = arguments_of_child(x);
  const auto start = [&](children& group, const char* what, std::size_t number) {
    auto own = arguments;
    own.push_back(fmt::format("--{}={}", what, number));
    group.start(fmt::format("{} {}", what, number), own);
  };
  children servers;
  children workers;
  for (std::size_t s = 0; s < x.servers; ++s)
    start(servers, "server", s);
  for (std::size_t w = 1; w < x.workers; ++w)
    start(workers, "worker", w);
  std::vector<ps_measurement> result;
  try {
    result = run_worker_of_processes(sys, x);
  } catch (const std::runtime_error& error) {
    auto said = servers.said();
    std::ranges::copy(workers.said(), std::back_inserter(said));
    if (said.empty())
      throw;
    throw std::runtime_error{
      fmt::format("{}; the other processes wrote: {}", error.what(), fmt::join(said, "; "))};
  }
  if (!workers.wait(std::chrono::seconds{10}).empty())
    throw std::runtime_error{
      fmt::format("a process of another worker has failed: {}", fmt::join(workers.said(), "; "))};
  return result;
}

// -- output -------------------------------------------------------------------------------------

/// The bytes that a round trip pushes, plus the bytes that it pulls, in GB/s.
double bandwidth(std::size_t bytes, double seconds) {
  return 2e-9 * static_cast<double>(bytes) / seconds;
}

void print(const bench_ps_command& x, const std::vector<ps_measurement>& results) {
  fmt::print("Push, momentum update and pull of float32: {} servers and {} workers as {}{}; median "
             "of {}, with least and most\n",
             x.servers, x.workers, x.processes ? "processes" : "threads",
             x.processes ? ", transport " + x.transport : "", x.rounds);
  if (x.keys > 0)
    fmt::print("{} ranges of {} bytes in each push\n", x.keys, x.bytes_per_key);
  fmt::print("pushes/s: of all workers together, without waiting for each answer\n\n");
  text_table table({"bytes", "us", "least", "most", "GB/s", "pushes/s"});
  for (const auto& r : results) {
    const statistics own{r.seconds};
    table.add({std::to_string(r.bytes), fmt::format("{:.1f}", 1e6 * own.median),
               fmt::format("{:.1f}", 1e6 * own.least), fmt::format("{:.1f}", 1e6 * own.most),
               fmt::format("{:.2f}", bandwidth(r.bytes, own.median)),
               fmt::format("{:.0f}", r.pushes_per_second)});
  }
  table.print();
}

void print_json(const bench_ps_command& x, const std::vector<ps_measurement>& results) {
  auto all = nlohmann::json::array();
  for (const auto& r : results) {
    const statistics own{r.seconds};
    nlohmann::json row{
      {"bytes", r.bytes},
      {"servers", x.servers},
      {"workers", x.workers},
      {"processes", x.processes},
      {"times", r.seconds.size()},
      {"microseconds",
       {{"least", 1e6 * own.least}, {"median", 1e6 * own.median}, {"most", 1e6 * own.most}}},
      {"gb_per_second", bandwidth(r.bytes, own.median)},
      {"pushes_per_second", r.pushes_per_second}};
    if (x.processes)
      row["transport"] = x.transport;
    if (x.keys > 0)
      row["keys"] = x.keys;
    all.push_back(std::move(row));
  }
  fmt::print("{}\n", all.dump(2));
}

void check(const bench_ps_command& x) {
  constexpr std::uint32_t most = 64;
  if (x.servers < 1 || x.servers > most || x.workers < 1 || x.workers > most)
    throw input_error{fmt::format("--servers and --workers must be 1 to {}", most)};
  if (x.rounds < 1)
    throw input_error{"--rounds must be at least 1"};
  if (x.keys > 1'000'000 || x.bytes_per_key == 0 || x.bytes_per_key % sizeof(float) != 0
      || x.bytes_per_key > (1U << 20))
    throw input_error{fmt::format("--keys={} --bytes-per-key={}: at most 1000000 keys were "
                                  "expected, of a multiple of {} bytes and at most 1 MiB",
                                  x.keys, x.bytes_per_key, sizeof(float))};
  works_of(x);
  if (x.transport != "auto" && x.transport != "tcp" && x.transport != "basp")
    throw input_error{fmt::format("--transport={}: auto, tcp or basp was expected", x.transport)};
  if (x.transport != "auto" && !x.processes)
    throw input_error{fmt::format("--transport={} is for --processes", x.transport)};
}

} // namespace

int run(const bench_ps_command& x) {
  check(x);
  if (x.parent != 0)
    end_with_parent(x.parent);
  caf::actor_system_config cfg;
  configure(cfg);
  tune(cfg);
  cfg.load<caf::io::middleman>();
  caf::actor_system sys{cfg};
  if (x.server)
    return run_server(sys, x);
  if (x.parent != 0) {
    run_worker_of_processes(sys, x);
    return exit_done;
  }
  const auto results = x.processes ? run_processes(sys, x) : run_threads(sys, x);
  if (x.json)
    print_json(x, results);
  else
    print(x, results);
  return exit_done;
}

} // namespace troupe
