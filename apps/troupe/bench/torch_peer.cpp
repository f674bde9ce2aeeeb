#include "apps/troupe/bench/torch_peer.hpp"

#include "apps/troupe/bench/free_addresses.hpp"
#include "kernels/error.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <string_view>

namespace troupe::bench {

/// The text of torch_peer.py.
extern const std::string_view torch_peer_script;

namespace {

nlohmann::json describe(const work& what, const material& data, const torch_options& options) {
  auto tensors = nlohmann::json::array();
  for (const auto& x : data.parameters.entries())
    tensors.push_back({x.name, x.shape.extents()});
  const auto kind = what.rule.kind;
  return {{"work", what.name},
          {"threads", options.threads},
          {"processor_time", options.how == passing::processor_time},
          {"device", options.device},
          {"mode", options.mode},
          {"precision", to_string(options.precision)},
          {"tensors", tensors},
          {"batches", batches},
          {"batch", what.batch},
          {"inputs", what.inputs},
          {"ids", what.takes_ids},
          {"labels", what.labels},
          {"optimizer",
           {{"rate", what.rate},
            {"kind",
             kind == optimizer_kind::sgd          ? "sgd"
               : kind == optimizer_kind::momentum ? "momentum"
               : kind == optimizer_kind::adam     ? "adam"
                                                  : "adamw"}}}};
}

} // namespace

torch_peer::torch_peer(const std::string& python, const work& what, const material& data,
                       const torch_options& options) {
  std::string reasons;
  for (const auto& x : pythons(python)) {
    try {
      start(x, what, data, options);
      return;
    } catch (const input_error& error) {
      processes_.clear();
      reasons += (reasons.empty() ? "" : "; ") + std::string{error.what()};
    }
  }
  throw input_error{"--peer needs a Python that has PyTorch (on Debian: apt-get install "
                    "python3-torch), given by --python=PATH: "
                    + reasons};
}

void torch_peer::start(const std::string& python, const work& what, const material& data,
                       const torch_options& options) {
  const auto ranks = options.ranks;
  auto task = describe(what, data, options);
  task["ranks"] = ranks;
  task["address"] = ranks > 1 ? free_addresses(1).front() : "";
  for (std::size_t r = 0; r < ranks; ++r) {
    processes_.push_back(
      std::make_unique<python_process>(python, torch_peer_script, options.threads));
    auto& process = *processes_.back();
    task["rank"] = r;
    if (!options.processors.empty())
      task["processor"] = options.processors.at(r);
    try {
      process.tell(task.dump() + '\n');
      process.tell(data.weights.data(), data.weights.size() * sizeof(float));
      process.tell(data.features.data(), data.features.size() * sizeof(float));
      process.tell(data.ids.data(), data.ids.size() * sizeof(std::int32_t));
      process.tell(data.labels.data(), data.labels.size() * sizeof(std::int32_t));
    } catch (const std::runtime_error&) {
      // The process has ended. The code below reports the reason.
    }
  }
  for (auto& process : processes_) {
    const auto hello = nlohmann::json::parse(process->answer(), nullptr, false);
    if (!hello.is_object())
      throw input_error{python + " ended without an answer"};
    if (hello.contains("error"))
      throw input_error{hello["error"].get<std::string>()};
    if (hello.contains("unavailable"))
      throw torch_unavailable{hello["unavailable"].get<std::string>()};
    version_ = hello.at("version");
    blas_ = hello.at("blas");
  }
  if (blas_ == "reference BLAS" && options.device == "cpu")
    fmt::print(stderr,
               "troupe: this PyTorch multiplies with the reference BLAS, which is slow; for a fair "
               "comparison: apt-get install libopenblas0-pthread\n");
  for (auto& process : processes_)
    process->pause();
}

round torch_peer::run(std::size_t steps) {
  for (auto& process : processes_)
    process->go_on();
  for (auto& process : processes_)
    process->tell(std::to_string(steps) + '\n');
  // Rounds may be long (--seconds).
  const auto expected = std::chrono::duration<double>{10 * step_ * static_cast<double>(steps)};
  const auto deadline =
    longest_answer + std::chrono::duration_cast<std::chrono::milliseconds>(expected);
  round result;
  for (auto& process : processes_) {
    const auto reply = nlohmann::json::parse(process->answer(deadline), nullptr, false);
    if (!reply.is_object())
      throw std::runtime_error{"the PyTorch process has ended; see its messages above"};
    result.seconds = std::max(result.seconds, reply.at("seconds").get<double>());
    for (const auto& x : reply.at("losses"))
      if (process == processes_.front())
        result.losses.push_back(x.is_number() ? x.get<double>() : std::nan(""));
  }
  for (auto& process : processes_)
    process->pause();
  if (result.losses.size() != steps || !(result.seconds > 0))
    throw std::runtime_error{
      fmt::format("PyTorch has answered {} losses and {} s for {} steps; expected a loss per step "
                  "and a time above 0",
                  result.losses.size(), result.seconds, steps)};
  step_ = result.seconds / static_cast<double>(steps);
  return result;
}

} // namespace troupe::bench
