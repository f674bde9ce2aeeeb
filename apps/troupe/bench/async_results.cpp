#include "apps/troupe/bench/async_results.hpp"

#include "apps/troupe/bench/async_runs.hpp"
#include "apps/troupe/text_table.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <optional>

namespace troupe::bench {

namespace {

/// Statistics of runs, one run per seed. Accuracies are in percent. Runs that ended with numbers
/// that are not finite are only counted.
struct summary {
  explicit summary(const std::vector<outcome>& runs) {
    for (const auto& x : runs) {
      if (x.not_finite) {
        ++not_finite;
        continue;
      }
      const double percent = 100 * x.accuracy;
      worst = std::min(worst, percent);
      mean += percent;
      staleness += x.staleness;
      speed += x.speed;
    }
    const auto finite = static_cast<double>(runs.size() - not_finite);
    mean /= finite;
    staleness /= finite;
    speed /= finite;
  }

  bool known() const { return not_finite == 0; }

  double mean = 0;
  double worst = 100;
  double staleness = 0;
  double speed = 0;
  std::size_t not_finite = 0;
};

std::vector<std::string> row_of(const std::string& recipe, std::uint32_t workers, const summary& x,
                                const summary& serial, bool in_turns) {
  if (!x.known())
    return {recipe, std::to_string(workers), "not finite", "", "", "", ""};
  return {recipe,
          std::to_string(workers),
          fmt::format("{:.2f}", x.mean),
          fmt::format("{:.2f}", x.worst),
          fmt::format("{:+.2f}", x.mean - serial.mean),
          in_turns ? fmt::format("{:.1f}", x.staleness) : "",
          in_turns ? fmt::format("{:.2f}", x.speed) : ""};
}

nlohmann::json json_of(const std::vector<outcome>& runs) {
  const summary x{runs};
  auto list = nlohmann::json::array();
  for (const auto& run : runs)
    list.push_back(run.not_finite ? nlohmann::json{} : nlohmann::json(run.accuracy));
  nlohmann::json result{{"accuracies", list}, {"not_finite", x.not_finite}};
  if (x.known()) {
    result["mean_percent"] = x.mean;
    result["worst_percent"] = x.worst;
    result["staleness"] = x.staleness;
    result["speed"] = x.speed;
  }
  return result;
}

nlohmann::json json_of(const work_results& x) {
  nlohmann::json result{{"work", x.what->name}, {"serial", json_of(x.serial)}};
  result["cells"] = nlohmann::json::array();
  const summary serial{x.serial};
  for (const auto& cell : x.cells) {
    auto row = json_of(cell.runs);
    row["recipe"] = cell.recipe->name;
    row["workers"] = cell.workers;
    if (row.contains("mean_percent"))
      row["difference"] = row["mean_percent"].get<double>() - serial.mean;
    result["cells"].push_back(std::move(row));
  }
  for (const auto& speed : x.speeds)
    result["speeds"].push_back({{"recipe", speed.recipe->name},
                                {"samples_per_second", speed.samples_per_second.median},
                                {"ratio", speed.ratio.median}});
  for (const auto& cell : x.peer_cells) {
    auto row = json_of(cell.runs);
    row.erase("staleness");
    row.erase("speed");
    row["workers"] = cell.workers;
    row["recipe"] = x.peer;
    result["peer"].push_back(std::move(row));
  }
  return result;
}

/// The median of the seconds until the goal. Absent if not all runs reached the goal.
std::optional<double> median_of(const std::vector<double>& seconds) {
  if (seconds.empty())
    return std::nullopt;
  const statistics x{seconds};
  return x.least > 0 ? std::optional{x.median} : std::nullopt;
}

} // namespace

void print(const work_results& x) {
  const summary serial{x.serial};
  fmt::print("\n{}: {}\n", x.what->name, x.what->what);
  fmt::print(
    "Test accuracy in percent after equal samples, {} seed{}. All gradients are computed "
    "one at a time on one thread,\nunder a virtual clock. The table shows their staleness. "
    "The numbers are the same on every machine.\n"
    "Speed: relative to one worker that is not slow.\n\n",
    x.serial.size(), x.serial.size() == 1 ? "" : "s");
  text_table table({"recipe", "workers", "mean", "worst", "to serial", "staleness", "speed"});
  table.add(row_of("serial", 1, serial, serial, true));
  for (const auto& cell : x.cells)
    table.add(
      row_of(std::string{cell.recipe->name}, cell.workers, summary{cell.runs}, serial, true));
  for (const auto& cell : x.peer_cells)
    table.add(row_of(x.peer, cell.workers, summary{cell.runs}, serial, false));
  table.print();
  if (!x.speeds.empty()) {
    fmt::print("\nSamples per second of two workers on threads, each epoch alternating with one of "
               "NONE; medians.\n\n");
    text_table speeds({"recipe", "samples/s", "to NONE", "least", "most", "from"});
    for (const auto& y : x.speeds)
      speeds.add({std::string{y.recipe->name}, fmt::format("{:.0f}", y.samples_per_second.median),
                  fmt::format("{:.2f}x", y.ratio.median), fmt::format("{:.2f}", y.ratio.least),
                  fmt::format("{:.2f}", y.ratio.most), std::string{y.recipe->paper}});
    speeds.print();
  }
  std::fflush(stdout);
}

void print(const replica_results& x) {
  const summary serial{x.serial};
  fmt::print("\nreplicas: MLP 784-256-128-10, MNIST, momentum; workers that hold the weights\n");
  fmt::print(
    "Test accuracy in percent after equal samples, {} seed{}, batch 32 per worker, and the "
    "bytes of gradients and weights that\nall workers send per sample, and in one all-reduce. "
    "The numbers are the same on every machine.\n\n",
    x.serial.size(), x.serial.size() == 1 ? "" : "s");
  text_table table({"recipe", "workers", "mean", "worst", "to serial", "bytes/sample",
                    "fewer than a ring", "KiB at once"});
  const auto row = [&](const std::string& name, std::uint32_t workers,
                       const std::vector<outcome>& runs) {
    auto result = row_of(name, workers, summary{runs}, serial, false);
    result.resize(5); // without staleness and speed
    return result;
  };
  table.add(row("serial", 1, x.serial));
  for (const auto& cell : x.cells) {
    const auto ring = std::ranges::find(x.cells, cell.workers, &replica_cell::workers);
    auto cells = row(std::string{cell.recipe->name}, cell.workers, cell.runs);
    cells.push_back(fmt::format("{:.0f}", cell.bytes_per_sample));
    cells.push_back(fmt::format("{:.1f}x", ring->bytes_per_sample / cell.bytes_per_sample));
    cells.push_back(fmt::format("{}", cell.bytes_at_once / 1024));
    table.add(std::move(cells));
  }
  table.print();
  std::fflush(stdout);
}

void print_stragglers(const std::vector<straggler_result>& x, double goal,
                      std::chrono::milliseconds delay) {
  const auto seeds = x.front().seconds.size();
  fmt::print("\nstraggler: MLP 784-256-128-10, MNIST, momentum; 4 workers, one {}x slower\n",
             slow_factor);
  fmt::print("Seconds until {:g} % of the test records are right, median of {} seed{}. Threads, "
             "real time: a batch is ready {} ms after\nthe one before it, the slow worker's {} ms, "
             "much longer than its gradient takes, so that two processors suffice.\n\n",
             100 * goal, seeds, seeds == 1 ? "" : "s", delay.count(), slow_factor * delay.count());
  text_table table({"protocol", "seconds", "to async_ps", "whole run", "accuracy at its end"});
  const auto first = median_of(x.front().seconds);
  for (const auto& row : x) {
    if (!row.failure.empty()) {
      table.add({row.protocol, "failed", "", "", ""});
      continue;
    }
    const auto seconds = median_of(row.seconds);
    table.add({row.protocol, seconds ? fmt::format("{:.1f}", *seconds) : "not reached",
               seconds && first ? fmt::format("{:.2f}x", *seconds / *first) : "",
               fmt::format("{:.1f}", statistics{row.totals}.median),
               fmt::format("{:.2f}", 100 * statistics{row.accuracies}.median)});
  }
  table.print();
}

void print_backups(const std::vector<backup_result>& x) {
  const auto seeds = x.front().speeds.size();
  fmt::print("\nbackup: MLP 784-256-128-10, MNIST, momentum; 4 workers, one {}x slower\n",
             slow_factor);
  fmt::print("Medians of {} seed{}, under a virtual clock on which a gradient takes 1 ms: the same "
             "numbers on every machine.\n\n",
             seeds, seeds == 1 ? "" : "s");
  text_table table(
    {"protocol", "samples/s", "to sync_ps", "accuracy", "to serial", "samples left out"});
  const auto percent = [](const std::vector<double>& parts) {
    return 100 * statistics{parts}.median;
  };
  for (const auto& row : x) {
    const auto speed = statistics{row.speeds}.median;
    table.add({row.name, fmt::format("{:.0f}", speed),
               fmt::format("{:.2f}x", speed / statistics{x[1].speeds}.median),
               fmt::format("{:.2f}", percent(row.accuracies)),
               fmt::format("{:+.2f}", percent(row.accuracies) - percent(x[0].accuracies)),
               fmt::format("{:.1f} %", percent(row.left_out))});
  }
  table.print();
}

std::string json_text(const async_results& x) {
  nlohmann::json result{{"seeds", x.seeds}, {"works", nlohmann::json::array()}};
  for (const auto& y : x.works)
    result["works"].push_back(json_of(y));
  for (const auto& y : x.replicas.cells) {
    auto cell = json_of(y.runs);
    cell.erase("staleness");
    cell["recipe"] = y.recipe->name;
    cell["workers"] = y.workers;
    cell["bytes_per_sample"] = y.bytes_per_sample;
    cell["bytes_at_once"] = y.bytes_at_once;
    result["replicas"].push_back(std::move(cell));
  }
  if (!x.replicas.serial.empty())
    result["replicas_serial"] = json_of(x.replicas.serial);
  for (const auto& y : x.stragglers)
    result["stragglers"].push_back({{"protocol", y.protocol},
                                    {"seconds_to_goal", y.seconds},
                                    {"seconds", y.totals},
                                    {"accuracies", y.accuracies},
                                    {"failure", y.failure}});
  for (const auto& y : x.backups)
    result["backups"].push_back({{"protocol", y.name},
                                 {"samples_per_second", y.speeds},
                                 {"accuracies", y.accuracies},
                                 {"left_out", y.left_out}});
  return result.dump(2);
}

} // namespace troupe::bench
