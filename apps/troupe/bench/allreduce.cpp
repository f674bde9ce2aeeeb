#include "actors/collective/collective.hpp"
#include "apps/troupe/bench/all_reduce_peer.hpp"
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
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>

namespace troupe {

namespace {

using namespace bench;

/// The measurements of each size are divided into this number of turns. After each turn of troupe,
/// the peer (the other library) has a turn.
constexpr std::uint32_t turns = 4;
constexpr std::uint32_t warm_up_turns = 5;
/// How long ranks other than 0 wait while rank 0 measures the peer (the other library).
constexpr std::chrono::minutes allreduce_deadline{10};

/// A rank's vectors of one size. There are two vectors with different sums, and all-reduces
/// alternate between them. So a stale result of the previous all-reduce is never mistaken for the
/// right result. All sums are exact.
class vectors {
public:
  vectors(const collective& group, std::size_t elements) : ranks_(group.ranks()) {
    for (std::size_t k = 0; k < own_.size(); ++k) {
      own_[k] = payload::floats(elements);
      const auto factor = static_cast<float>((group.rank() + 1) * (k + 1));
      auto out = own_[k].as_mutable_floats();
      for (std::size_t i = 0; i < elements; ++i)
        out[i] = factor * static_cast<float>(i % 5 + 1);
    }
  }

  const payload& own(std::size_t k) const { return own_[k % 2]; }

  void check(std::size_t k, const payload& sum) const {
    const auto factor = static_cast<float>(ranks_ * (ranks_ + 1) / 2 * (k % 2 + 1));
    const auto x = sum.as_floats();
    bool right = sum.size() == own_[0].size();
    for (std::size_t i = 0; right && i < x.size(); ++i)
      right = x[i] == factor * static_cast<float>(i % 5 + 1);
    if (!right)
      throw std::runtime_error{"an all-reduce returned a wrong sum"};
  }

private:
  std::size_t ranks_;
  std::array<payload, 2> own_;
};

/// Returns the seconds of each all-reduce. The ranks synchronize before each all-reduce.
std::vector<double> run_turn(collective& group, const vectors& data, std::uint32_t times) {
  std::vector<double> result;
  std::array<float, 1> meet{};
  for (std::uint32_t k = 0; k < times; ++k) {
    group.all_reduce(meet);
    const stopwatch watch(passing::time);
    const auto sum = group.all_reduce(data.own(k), element_kind::float32);
    result.push_back(watch.seconds());
    data.check(k, sum);
  }
  return result;
}

struct allreduce_measurement {
  std::size_t bytes = 0;
  std::vector<double> seconds;
  std::vector<double> peer_seconds;
};

/// Runs all measurements on one rank. `peer` is null except on rank 0.
std::vector<allreduce_measurement> run_rank(collective& group, const bench_allreduce_command& x,
                                            all_reduce_peer* peer) {
  std::vector<allreduce_measurement> results;
  const auto each = (x.rounds + turns - 1) / turns;
  for (const auto& text : x.sizes) {
    auto& result = results.emplace_back();
    result.bytes = parse_size("--sizes", text);
    const auto elements = result.bytes / sizeof(float);
    const vectors data{group, elements};
    run_turn(group, data, warm_up_turns);
    if (peer != nullptr)
      peer->run(elements, warm_up_turns);
    for (std::uint32_t t = 0; t < turns; ++t) {
      std::ranges::copy(run_turn(group, data, each), std::back_inserter(result.seconds));
      if (peer != nullptr)
        std::ranges::copy(peer->run(elements, each), std::back_inserter(result.peer_seconds));
    }
  }
  return results;
}

/// The schedule with this name. Absent for "auto", and for any text that is not a schedule.
std::optional<all_reduce_schedule> parse_schedule(const std::string& text) {
  for (const auto x :
       {all_reduce_schedule::direct, all_reduce_schedule::ring, all_reduce_schedule::one_shot})
    if (text == to_string(x))
      return x;
  return std::nullopt;
}

collective_options options_of(const bench_allreduce_command& x) {
  collective_options result;
  result.rank = x.rank;
  result.addresses = x.addresses;
  result.deadline = allreduce_deadline;
  result.share_memory = x.transport == "auto";
  result.schedule = parse_schedule(x.schedule);
  return result;
}

std::vector<allreduce_measurement>
run_threads(caf::actor_system& sys, const bench_allreduce_command& x, all_reduce_peer* peer) {
  auto groups = collective::in_one_system(sys, x.ranks, options_of(x));
  std::vector<allreduce_measurement> result;
  std::vector<std::exception_ptr> problems(groups.size());
  std::vector<std::thread> threads;
  for (auto& group : groups)
    threads.emplace_back([&, r = group.rank()] {
      try {
        auto found = run_rank(group, x, r == 0 ? peer : nullptr);
        if (r == 0)
          result = std::move(found);
      } catch (...) {
        problems[r] = std::current_exception();
        // Destroys the collective of this rank, so that the other ranks do not wait for this rank.
        const auto ended = std::move(group);
      }
    });
  for (auto& thread : threads)
    thread.join();
  for (const auto& problem : problems)
    if (problem)
      std::rethrow_exception(problem);
  return result;
}

std::vector<std::string> arguments_of_child(const bench_allreduce_command& x, std::size_t rank) {
  return {"bench",
          "allreduce",
          fmt::format("--ranks={}", x.ranks),
          fmt::format("--sizes={}", fmt::join(x.sizes, ",")),
          fmt::format("--rounds={}", x.rounds),
          fmt::format("--schedule={}", x.schedule),
          fmt::format("--transport={}", x.transport),
          fmt::format("--rank={}", rank),
          fmt::format("--parent={}", ::getpid()),
          fmt::format("--addresses={}", fmt::join(x.addresses, ","))};
}

std::vector<allreduce_measurement> run_processes(caf::actor_system& sys, bench_allreduce_command x,
                                                 all_reduce_peer* peer) {
  children others;
  if (x.addresses.empty()) {
    x.addresses = free_addresses(x.ranks);
    for (std::size_t r = 1; r < x.ranks; ++r)
      others.start(fmt::format("rank {}", r), arguments_of_child(x, r));
  }
  std::vector<allreduce_measurement> result;
  try {
    auto group = collective::connect(sys, options_of(x));
    result = run_rank(group, x, peer);
  } catch (const std::runtime_error& error) {
    const auto said = others.said();
    if (said.empty())
      throw;
    throw std::runtime_error{
      fmt::format("{}; the other ranks wrote: {}", error.what(), fmt::join(said, "; "))};
  }
  if (!others.wait(std::chrono::seconds{10}).empty())
    throw std::runtime_error{"a process of another rank has failed: "
                             + fmt::format("{}", fmt::join(others.said(), "; "))};
  return result;
}

// -- output -------------------------------------------------------------------------------------

/// The traffic in GiB/s that each of R ranks would send in a ring: 2 (R - 1) / R bytes for each
/// byte of the vector.
double bus_bandwidth(std::size_t ranks, std::size_t bytes, double seconds) {
  const auto share = 2.0 * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  return share * static_cast<double>(bytes) / seconds / static_cast<double>(1U << 30);
}

void print(const bench_allreduce_command& x, const std::vector<allreduce_measurement>& results,
           const all_reduce_peer* peer) {
  fmt::print("All-reduce of float32 over {} {}, schedule {}{}; median of {}, with least and most\n",
             x.ranks, x.processes ? "processes" : "threads", x.schedule,
             x.processes ? ", transport " + x.transport : "", results.front().seconds.size());
  if (peer != nullptr)
    fmt::print("Peer: {}, a process per rank\n", peer->title());
  fmt::print("\n");
  std::vector<std::string> header{"bytes", "us", "least", "most", "GiB/s"};
  if (peer != nullptr)
    header.insert(header.end(), {peer->name() + " us", peer->name() + " GiB/s", "times as fast"});
  text_table table(header);
  for (const auto& r : results) {
    const statistics own{r.seconds};
    std::vector<std::string> row{
      std::to_string(r.bytes), fmt::format("{:.1f}", 1e6 * own.median),
      fmt::format("{:.1f}", 1e6 * own.least), fmt::format("{:.1f}", 1e6 * own.most),
      fmt::format("{:.2f}", bus_bandwidth(x.ranks, r.bytes, own.median))};
    if (peer != nullptr) {
      const auto theirs = statistics{r.peer_seconds}.median;
      row.insert(row.end(),
                 {fmt::format("{:.1f}", 1e6 * theirs),
                  fmt::format("{:.2f}", bus_bandwidth(x.ranks, r.bytes, theirs)),
                  fmt::format("{:.2f}", theirs / own.median)});
    }
    table.add(std::move(row));
  }
  table.print();
}

void print_json(const bench_allreduce_command& x, const std::vector<allreduce_measurement>& results,
                const all_reduce_peer* peer) {
  auto all = nlohmann::json::array();
  for (const auto& r : results) {
    const statistics own{r.seconds};
    nlohmann::json row{
      {"bytes", r.bytes},
      {"ranks", x.ranks},
      {"processes", x.processes},
      {"schedule", x.schedule},
      {"times", r.seconds.size()},
      {"microseconds",
       {{"least", 1e6 * own.least}, {"median", 1e6 * own.median}, {"most", 1e6 * own.most}}},
      {"gib_per_second", bus_bandwidth(x.ranks, r.bytes, own.median)}};
    if (x.processes)
      row["transport"] = x.transport;
    if (peer != nullptr) {
      const auto theirs = statistics{r.peer_seconds}.median;
      row["peer"] = peer->title();
      row["peer_microseconds"] = 1e6 * theirs;
      row["ratio"] = theirs / own.median;
    }
    all.push_back(std::move(row));
  }
  fmt::print("{}\n", all.dump(2));
}

void check(const bench_allreduce_command& x) {
  if (x.ranks < 2 || x.ranks > 64)
    throw input_error{"--ranks must be 2 to 64"};
  if (x.rounds < turns)
    throw input_error{fmt::format("--rounds must be at least {}", turns)};
  for (const auto& text : x.sizes)
    parse_size("--sizes", text);
  if (x.schedule != "auto" && !parse_schedule(x.schedule))
    throw input_error{
      fmt::format("--schedule={}: auto, direct, ring or one_shot was expected", x.schedule)};
  if (x.transport != "auto" && x.transport != "tcp")
    throw input_error{fmt::format("--transport={}: expected auto or tcp", x.transport)};
  if (x.transport == "tcp" && !x.processes && x.addresses.empty())
    throw input_error{"--transport=tcp is for --processes"};
  if (!x.peer.empty() && !all_reduce_peer::has(x.peer))
    throw input_error{fmt::format("--peer={}: expected gloo or mpi", x.peer)};
}

} // namespace

int run(const bench_allreduce_command& x) {
  check(x);
  if (x.parent != 0)
    end_with_parent(x.parent);
  caf::actor_system_config cfg;
  configure(cfg);
  tune(cfg);
  cfg.load<caf::io::middleman>();
  caf::actor_system sys{cfg};
  std::optional<all_reduce_peer> peer;
  if (!x.peer.empty()) {
    const auto address = free_addresses(1).front();
    peer.emplace(x.peer, x.python, x.ranks,
                 static_cast<std::uint16_t>(std::stoul(address.substr(address.rfind(':') + 1))));
  }
  auto* other = peer ? &*peer : nullptr;
  const bool processes = x.processes || !x.addresses.empty();
  const auto results = processes ? run_processes(sys, x, other) : run_threads(sys, x, other);
  if (x.rank != 0)
    return exit_done;
  if (x.json)
    print_json(x, results, other);
  else
    print(x, results, other);
  return exit_done;
}

} // namespace troupe
