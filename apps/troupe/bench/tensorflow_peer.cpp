#include "apps/troupe/bench/tensorflow_peer.hpp"

#include "apps/troupe/bench/python_process.hpp"
#include "kernels/error.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <numeric>
#include <stdexcept>

namespace troupe::bench {

/// The text of tensorflow_peer.py.
extern const std::string_view tensorflow_peer_script;

namespace {

constexpr auto ended = "the TensorFlow process has ended; see its messages above";

constexpr auto how_to_get = "; to get TensorFlow: `python3 -m venv tf && tf/bin/pip install "
                            "tensorflow-cpu`, then --python=tf/bin/python";

nlohmann::json describe(const tensorflow_options& how, const proto::Job& job,
                        const job_data& data) {
  auto layers = nlohmann::json::array();
  for (const auto& x : job.model().layer())
    layers.push_back(x.dense().units());
  return {{"workers", how.workers},
          {"seeds", how.seeds},
          {"processes", how.processes},
          {"processors", how.processors},
          {"steps", how.steps},
          {"epochs", job.epochs()},
          {"batch", job.data().batch()},
          {"rate", job.learning_rate().base()},
          {"warmup_epochs", job.learning_rate().warmup_epochs()},
          {"momentum", job.optimizer().momentum()},
          {"layers", layers},
          {"features", data.train->record().feature_width()},
          {"train", data.train->size()},
          {"test", data.test->size()}};
}

void tell_records(python_process& to, const dataset& records) {
  std::vector<std::uint64_t> numbers(records.size());
  std::iota(numbers.begin(), numbers.end(), std::uint64_t{0});
  std::vector<float> features(records.size() * records.record().feature_width());
  std::vector<std::int32_t> classes(records.size());
  label_batch labels;
  labels.classes = classes;
  records.read(numbers, std::span{features}, labels);
  to.tell(features.data(), features.size() * sizeof(float));
  to.tell(classes.data(), classes.size() * sizeof(std::int32_t));
}

tensorflow_result run_with(const std::string& python, const nlohmann::json& what,
                           const job_data& data) {
  python_process process{python, tensorflow_peer_script, 1};
  try {
    process.tell(what.dump() + '\n');
    tell_records(process, *data.train);
    tell_records(process, *data.test);
  } catch (const std::runtime_error&) {
    // The process has ended. The code below reports the reason.
  }
  const auto hello = nlohmann::json::parse(process.answer(), nullptr, false);
  if (!hello.is_object())
    throw input_error{python + " ended without an answer"};
  if (hello.contains("error"))
    throw input_error{hello["error"].get<std::string>()};
  tensorflow_result result;
  result.version = hello.at("version");
  for (std::uint32_t i = 0; i < what.at("seeds"); ++i) {
    const auto reply = nlohmann::json::parse(process.answer(), nullptr, false);
    if (!reply.is_object())
      throw std::runtime_error{ended};
    result.accuracies.push_back(reply.at("accuracy"));
    result.seconds.push_back(reply.at("seconds"));
    if (!(result.seconds.back() > 0))
      throw std::runtime_error{fmt::format(
        "TensorFlow: the training took {} s; expected more than 0", result.seconds.back())};
  }
  return result;
}

} // namespace

tensorflow_result run_tensorflow(const tensorflow_options& how, const proto::Job& job,
                                 const job_data& data) {
  const auto what = describe(how, job, data);
  std::string reasons;
  for (const auto& x : pythons(how.python)) {
    try {
      return run_with(x, what, data);
    } catch (const input_error& error) {
      reasons += (reasons.empty() ? "" : "; ") + std::string{error.what()};
    }
  }
  throw input_error{reasons + how_to_get};
}

} // namespace troupe::bench
