#include "apps/troupe/bench/gpu_report.hpp"

#include "apps/troupe/text_table.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace troupe::bench {

namespace {

std::string range_of(const statistics& x, double factor) {
  return fmt::format("{:.4g}-{:.4g}", factor * x.least, factor * x.most);
}

std::string percent(double x) {
  return x > 0 ? fmt::format("{:.0f} %", 100 * x) : "";
}

std::string times(double x) {
  return x > 0 ? fmt::format("{:.2f}x", x) : "";
}

std::string marked(std::string text, const std::string& fault) {
  return fault.empty() ? text : text + " (!)";
}

std::string text_of(const text_table& table) {
  std::string result;
  for (const auto& line : table.lines())
    result += line + '\n';
  return result + '\n';
}

std::string memory_table(const gpu_results& x) {
  text_table table({"limited by memory", "elements", "GB/s", "us", "least-most", "copy GB/s",
                    "of the copy", "goal"});
  for (const auto& r : x.memory)
    table.add({marked(r.what, r.fault), std::to_string(r.elements),
               fmt::format("{:.0f}", 1e-9 * r.speed()),
               fmt::format("{:.4g}", 1e6 * r.seconds.median), range_of(r.seconds, 1e6),
               fmt::format("{:.0f}", 1e-9 * r.copy_speed), percent(r.ratio()), percent(r.goal)});
  return text_of(table);
}

std::string name_of(const layer_size& x) {
  return fmt::format("{} x {} x {}, {}{}", x.m, x.n, x.k, to_string(x.precision),
                     x.after == operation::end ? "" : fmt::format(", {}", to_string(x.after)));
}

std::string layer_table(const gpu_results& x) {
  text_table table({"dense layer", "TFLOP/s", "us", "least-most", "product us", "least-most",
                    "of the product", "goal", "epilogue"});
  for (const auto& r : x.layers)
    table.add(
      {marked(name_of(r.size), r.fault), fmt::format("{:.4g}", 1e-12 * r.flop() / r.seconds.median),
       fmt::format("{:.4g}", 1e6 * r.seconds.median), range_of(r.seconds, 1e6),
       fmt::format("{:.4g}", 1e6 * r.product_seconds.median), range_of(r.product_seconds, 1e6),
       percent(r.ratio()), percent(r.goal), r.fused ? "yes" : "no"});
  return text_of(table);
}

double per_step(std::size_t count, const training_result& r, std::size_t rounds) {
  return static_cast<double>(count) / static_cast<double>(r.steps * rounds);
}

std::string training_table(const gpu_results& x) {
  text_table table({"training", "batch", "type", "samples/s", "least-most", "us/step",
                    "allocations/step", "waits/step", "graphs/step", "CPU differs by"});
  for (const auto& r : x.training) {
    const auto each = [&](std::size_t count) {
      return fmt::format("{:.3g}", per_step(count, r, x.rounds));
    };
    table.add({std::string{r.what.what.name}, std::to_string(r.what.what.batch),
               std::string{to_string(r.what.precision)}, fmt::format("{:.4g}", r.speed.median),
               range_of(r.speed, 1),
               fmt::format("{:.4g}", 1e6 * static_cast<double>(r.what.what.batch) / r.speed.median),
               each(r.counts.allocations), each(r.counts.waits), each(r.counts.replays),
               marked(fmt::format("{:.1e}", r.difference), r.fault)});
  }
  return text_of(table);
}

std::string peer_table(const gpu_results& x) {
  text_table table({"beside", "mode", "samples/s", "least-most", "theirs", "least-most", "ratio",
                    "goal", "losses differ by"});
  for (const auto& r : x.training)
    for (const auto& p : r.peers)
      if (p.unavailable.empty())
        table.add({std::string{r.what.what.name} + ": " + p.name, p.mode,
                   fmt::format("{:.4g}", p.ours.median), range_of(p.ours, 1),
                   fmt::format("{:.4g}", p.theirs.median), range_of(p.theirs, 1), times(p.ratio()),
                   times(p.goal), marked(fmt::format("{:.1e}", p.difference), p.fault)});
  return text_of(table);
}

std::string workers_table(const gpu_results& x) {
  text_table table({"workers on one GPU", "workers", "samples/s of one", "least-most",
                    "samples/s of all", "least-most", "ratio", "goal"});
  for (const auto& r : x.workers)
    table.add({marked(r.work, r.fault), std::to_string(r.workers),
               fmt::format("{:.4g}", r.one.median), range_of(r.one, 1),
               fmt::format("{:.4g}", r.all.median), range_of(r.all, 1), times(r.ratio()),
               times(r.goal)});
  return text_of(table);
}

bool has_peers(const gpu_results& x) {
  for (const auto& r : x.training)
    if (!r.peers.empty())
      return true;
  return false;
}

/// The list of measures that are missing, including the modes of peers that are not available.
std::vector<std::string> missing_in(const gpu_results& x) {
  auto result = x.missing;
  for (const auto& r : x.training)
    for (const auto& p : r.peers)
      if (!p.unavailable.empty())
        result.push_back(fmt::format("{}, {}: {}", r.what.what.name, p.mode, p.unavailable));
  return result;
}

// -- JSON

nlohmann::json json_of(const statistics& x) {
  return {{"least", x.least}, {"median", x.median}, {"most", x.most}};
}

nlohmann::json json_of(const memory_result& r) {
  return {{"what", r.what},
          {"elements", r.elements},
          {"bytes", r.bytes},
          {"seconds", json_of(r.seconds)},
          {"gigabytes_per_second", 1e-9 * r.speed()},
          {"copy_gigabytes_per_second", 1e-9 * r.copy_speed},
          {"of_copy", r.ratio()},
          {"goal", r.goal},
          {"fault", r.fault}};
}

nlohmann::json json_of(const layer_result& r) {
  return {{"what", name_of(r.size)},
          {"seconds", json_of(r.seconds)},
          {"product_seconds", json_of(r.product_seconds)},
          {"of_product", r.ratio()},
          {"fused", r.fused},
          {"goal", r.goal},
          {"fault", r.fault}};
}

nlohmann::json json_of(const peer_result& p) {
  if (!p.unavailable.empty())
    return {{"mode", p.mode}, {"unavailable", p.unavailable}};
  return {{"mode", p.mode},
          {"peer", p.name},
          {"samples_per_second", json_of(p.ours)},
          {"peer_samples_per_second", json_of(p.theirs)},
          {"ratio", p.ratio()},
          {"goal", p.goal},
          {"largest_relative_difference", p.difference},
          {"fault", p.fault}};
}

nlohmann::json json_of(const training_result& r, std::size_t rounds) {
  auto peers = nlohmann::json::array();
  for (const auto& p : r.peers)
    peers.push_back(json_of(p));
  return {{"work", r.what.what.name},
          {"batch", r.what.what.batch},
          {"precision", to_string(r.what.precision)},
          {"samples_per_second", json_of(r.speed)},
          {"steps_per_round", r.steps},
          {"first_loss", r.first_loss},
          {"last_loss", r.last_loss},
          {"allocations_per_step", per_step(r.counts.allocations, r, rounds)},
          {"waits_per_step", per_step(r.counts.waits, r, rounds)},
          {"graphs_per_step", per_step(r.counts.replays, r, rounds)},
          {"difference_to_cpu", r.difference},
          {"fault", r.fault},
          {"peers", peers}};
}

nlohmann::json json_of(const workers_result& r) {
  return {{"work", r.work},
          {"workers", r.workers},
          {"samples_per_second_of_one", json_of(r.one)},
          {"samples_per_second_of_all", json_of(r.all)},
          {"ratio", r.ratio()},
          {"goal", r.goal},
          {"fault", r.fault}};
}

} // namespace

std::string gpu_tables(const gpu_results& x) {
  auto result = fmt::format("{}; medians of {} rounds{}\n\n", x.device, x.rounds,
                            x.faults().empty() ? "" : "; (!) marks wrong results");
  if (!x.memory.empty())
    result += memory_table(x);
  if (!x.layers.empty())
    result += layer_table(x);
  if (!x.training.empty())
    result += training_table(x);
  if (has_peers(x))
    result += peer_table(x);
  if (!x.workers.empty())
    result += workers_table(x);
  for (const auto& text : missing_in(x))
    result += "not measured: " + text + '\n';
  return result;
}

std::string gpu_json(const gpu_results& x) {
  nlohmann::json result{{"device", x.device}, {"rounds", x.rounds}, {"missing", missing_in(x)}};
  for (const auto* name : {"memory", "layers", "training", "workers"})
    result[name] = nlohmann::json::array();
  for (const auto& r : x.memory)
    result["memory"].push_back(json_of(r));
  for (const auto& r : x.layers)
    result["layers"].push_back(json_of(r));
  for (const auto& r : x.training)
    result["training"].push_back(json_of(r, x.rounds));
  for (const auto& r : x.workers)
    result["workers"].push_back(json_of(r));
  return result.dump(2);
}

} // namespace troupe::bench
