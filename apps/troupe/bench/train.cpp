#include "apps/troupe/bench/runner.hpp"
#include "apps/troupe/bench/statistics.hpp"
#include "apps/troupe/bench/torch_peer.hpp"
#include "apps/troupe/commands.hpp"
#include "apps/troupe/exit_code.hpp"
#include "apps/troupe/text_table.hpp"
#include "kernels/error.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>

namespace troupe {

namespace {

using namespace bench;

/// Before the measurement, the losses of this number of steps are compared with the losses of the
/// peer. `accepted_difference` is the largest accepted difference, relative to the first loss. It
/// is large because rounding errors grow from step to step.
constexpr std::size_t compared_steps = 10;
constexpr double accepted_difference = 1e-3;

/// The results for one work. Speeds are in samples per second, one per round.
struct train_measurement {
  const work* what = nullptr;
  std::size_t steps = 0;
  std::vector<double> speeds;
  std::vector<double> peer_speeds;
  double first_loss = 0;
  double last_loss = 0;
  double difference = 0;
  std::string peer;
  /// Seconds of each instruction of a training step. The last entry is for the update.
  std::vector<double> profile;
  std::vector<std::string> names;

  double ratio() const { return statistics{speeds}.median / statistics{peer_speeds}.median; }
  bool agrees() const { return peer_speeds.empty() || difference <= accepted_difference; }
};

std::vector<const work*> chosen(const std::vector<std::string>& names) {
  std::vector<const work*> result;
  std::string known;
  for (const auto& x : works()) {
    known += (known.empty() ? "" : ", ") + std::string{x.name};
    if (names.empty())
      result.push_back(&x);
  }
  for (const auto& name : names) {
    const auto found = std::ranges::find(works(), name, &work::name);
    if (found == works().end())
      throw input_error{fmt::format("--work={}: there is no such work; known are {}", name, known)};
    result.push_back(&*found);
  }
  return result;
}

double largest_difference(const round& a, const round& b, double scale) {
  double result = 0;
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    const double difference = std::abs(a.losses[i] - b.losses[i]) / scale;
    if (!(difference <= result)) // also true for NaN
      result = difference;
  }
  return result;
}

/// Measures the work in rounds. If there is a peer, each round also measures the peer.
train_measurement measure(const work& what, const bench_train_command& x) {
  train_measurement result;
  result.what = &what;
  const material data(what);
  const auto how = x.processor_time ? passing::processor_time : passing::time;
  runner ours(what, data, x.threads, how);
  std::optional<torch_peer> peer;
  if (!x.peer.empty()) {
    peer.emplace(x.python, what, data, torch_options{.threads = x.threads, .how = how});
    result.peer = fmt::format("PyTorch {}, {}", peer->version(), peer->blas());
  }
  const auto turn = [&](std::size_t steps, bool timed) {
    const auto a = ours.run(steps);
    const auto samples = static_cast<double>(steps * what.batch);
    if (result.first_loss == 0)
      result.first_loss = a.losses.front();
    result.last_loss = a.losses.back();
    if (timed)
      result.speeds.push_back(samples / a.seconds);
    if (peer) {
      const auto b = peer->run(steps);
      if (timed)
        result.peer_speeds.push_back(samples / b.seconds);
      else
        result.difference = largest_difference(a, b, std::abs(result.first_loss));
    }
    return a.seconds / static_cast<double>(steps);
  };
  turn(compared_steps, false);
  const double step = turn(1, true);
  result.speeds.clear();
  result.peer_speeds.clear();
  result.steps = static_cast<std::size_t>(std::clamp(x.seconds / step, 1.0, 1e6));
  for (std::uint32_t i = 0; i < x.rounds; ++i)
    turn(result.steps, true);
  if (x.profile) {
    result.profile = ours.profile(result.steps);
    result.names = ours.names();
  }
  return result;
}

// -- output -------------------------------------------------------------------------------------

std::string speed(double x) {
  return x >= 1e4 ? fmt::format("{:.4g} k", x / 1e3) : fmt::format("{:.4g}", x);
}

void print_table(const std::vector<train_measurement>& results, const bench_train_command& x) {
  const bool peer = !x.peer.empty();
  fmt::print("Samples per second, {} thread{}, float32; forward, backward and update; {} rounds of "
             "at least {:g} s{}{}\n\n",
             x.threads, x.threads == 1 ? "" : "s", x.rounds, x.seconds,
             x.processor_time ? " of processor time" : "",
             peer ? ", alternating with " + results.front().peer : "");
  std::vector<std::string> header{"work", "batch", "us/step", "median", "least", "most"};
  if (peer)
    for (const auto* name : {"torch", "least", "most", "ratio", "losses differ by"})
      header.emplace_back(name);
  text_table table(std::move(header));
  for (const auto& r : results) {
    const statistics ours{r.speeds};
    std::vector<std::string> row{
      std::string{r.what->name},
      std::to_string(r.what->batch),
      fmt::format("{:.0f}", 1e6 * static_cast<double>(r.what->batch) / ours.median),
      speed(ours.median),
      speed(ours.least),
      speed(ours.most)};
    if (peer) {
      const statistics theirs{r.peer_speeds};
      for (double v : {theirs.median, theirs.least, theirs.most})
        row.push_back(speed(v));
      row.push_back(fmt::format("{:.2f}x", r.ratio()));
      row.push_back(fmt::format("{:.1e}{}", r.difference, r.agrees() ? "" : " (!)"));
    }
    table.add(std::move(row));
  }
  table.print();
}

/// Prints the time of each instruction of a step. The longest instruction comes first.
void print_profile(const train_measurement& r) {
  double total = 0;
  for (double seconds : r.profile)
    total += seconds;
  std::vector<std::size_t> order(r.profile.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, std::greater{}, [&](auto i) { return r.profile[i]; });
  fmt::print("\n{}: {:.0f} us\n", r.what->name, 1e6 * total);
  text_table table({"instruction", "us", "share"});
  for (auto i : order)
    table.add({r.names[i], fmt::format("{:.1f}", 1e6 * r.profile[i]),
               fmt::format("{:.1f} %", 100 * r.profile[i] / total)});
  table.print();
}

nlohmann::json json_of(const statistics& x) {
  return {{"least", x.least}, {"median", x.median}, {"most", x.most}};
}

nlohmann::json json_of(const train_measurement& r, const bench_train_command& x) {
  nlohmann::json result{
    {"work", r.what->name},       {"batch", r.what->batch},
    {"threads", x.threads},       {"rounds", x.rounds},
    {"steps_per_round", r.steps}, {"first_loss", r.first_loss},
    {"last_loss", r.last_loss},   {"samples_per_second", json_of(statistics{r.speeds})}};
  if (!r.peer_speeds.empty()) {
    result["peer"] = r.peer;
    result["peer_samples_per_second"] = json_of(statistics{r.peer_speeds});
    result["ratio"] = r.ratio();
    result["largest_relative_difference"] = r.difference;
    result["agrees"] = r.agrees();
  }
  for (std::size_t i = 0; i < r.profile.size(); ++i)
    result["profile"].push_back(
      {{"instruction", r.names[i]}, {"microseconds", 1e6 * r.profile[i]}});
  return result;
}

} // namespace

int run(const bench_train_command& x) {
  if (!x.peer.empty() && x.peer != "torch")
    throw input_error{"--peer=" + x.peer + ": expected torch"};
  if (x.threads == 0 || x.rounds == 0)
    throw input_error{"--threads and --rounds must be at least 1"};
  if (x.processor_time && x.threads != 1)
    throw input_error{"--processor-time is that of one thread; expected --threads=1"};
  std::vector<train_measurement> results;
  for (const auto* what : chosen(x.works))
    results.push_back(measure(*what, x));
  if (x.json) {
    auto list = nlohmann::json::array();
    for (const auto& r : results)
      list.push_back(json_of(r, x));
    fmt::print("{}\n", list.dump(2));
  } else {
    print_table(results, x);
    for (const auto& r : results)
      if (x.profile)
        print_profile(r);
  }
  int code = exit_done;
  for (const auto& r : results)
    if (!r.agrees()) {
      fmt::print(stderr,
                 "troupe: {}: the losses of the first {} steps differ from PyTorch's by {:.1e} of "
                 "the first loss; expected at most {:g}: one of the two computes wrong results\n",
                 r.what->name, compared_steps, r.difference, accepted_difference);
      code = exit_failed;
    }
  return code;
}

} // namespace troupe
