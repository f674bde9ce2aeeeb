#pragma once

#include "actors/checkpoint/resume.hpp"
#include "actors/model/model_file.hpp"
#include "kernels/formats/file.hpp"
#include "tests/actors/cluster/ways.hpp"
#include "tests/kernels/numeric.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <string>
#include <vector>

// Small jobs and runs of LOCAL_SGD.

namespace troupe::test {

inline constexpr std::size_t workers = 4;

/// A job of 4 epochs with 5 steps each. A step has 16 samples on each of 4 workers.
inline proto::Job twenty_steps(proto::Protocol protocol,
                               const std::vector<std::string>& more = {}) {
  std::vector<std::string> changes{"data.digits={train: 320 test: 20}",
                                   "data.batch=16",
                                   "epochs=4",
                                   "output=out",
                                   "model.layer[0].dense.units=12",
                                   "optimizer={kind: SGD}",
                                   "learning_rate={base: 0.1}",
                                   "protocol=" + proto::Protocol_Name(protocol)};
  changes.insert(changes.end(), more.begin(), more.end());
  return example_job("digits_mlp", changes);
}

inline proto::Job local(std::uint32_t every, const std::vector<std::string>& more = {}) {
  auto changes = more;
  changes.push_back("local_sgd.every=" + std::to_string(every));
  return twenty_steps(proto::LOCAL_SGD, changes);
}

inline std::vector<float> weights_of(const proto::Job& job, std::size_t crew = workers) {
  simulation run{simulated(job, crew, 0)};
  BOOST_TEST(run.run().summary.failure == "");
  const auto context = make_job_context(job, shape_of(*build_data(job).train));
  const auto file = run.files().contents("out/weights.safetensors");
  return read_model(as_byte_span(file), context->parameters(), "weights").weights;
}

inline void check_near(const std::vector<float>& found, const std::vector<float>& expected,
                       double within = 1e-6) {
  const std::vector<double> reference(expected.begin(), expected.end());
  check_close(std::span<const float>{found}, reference, 0, within, "weights");
}

/// A run that writes a checkpoint after each average. `options.files` holds its files.
struct kept_run {
  kept_run(const proto::Job& what, std::size_t crew) : options(simulated(what, crew, 0)) {
    options.files = std::make_shared<memory_storage>();
    whole = simulate(options).summary;
    BOOST_TEST_REQUIRE(whole.failure == "");
  }

  /// Continues from the checkpoint of a step, with another job and number of workers.
  run_summary resumed(std::uint64_t step, const proto::Job& job, std::size_t crew) {
    auto how = options;
    how.files = nullptr;
    how.job = job;
    how.workers = crew;
    const auto context = make_job_context(job, shape_of(*options.data.train));
    how.resume = std::make_shared<checkpoint>(fit_checkpoint(
      read_checkpoint(*options.files, checkpoint_folder("out") / checkpoint_name(step)), *context));
    simulation run{how};
    auto result = run.run().summary;
    notices = run.seen().notices;
    return result;
  }

  bool told(const std::string& part) const {
    return std::ranges::any_of(notices,
                               [&](auto& x) { return x.text.find(part) != std::string::npos; });
  }

  simulation_options options;
  run_summary whole;
  std::vector<simulated_notice> notices;
};

inline proto::Job kept(std::uint32_t every, const std::vector<std::string>& more) {
  auto changes = more;
  changes.insert(changes.begin(),
                 "checkpoint={every_steps: " + std::to_string(every) + " keep: 40}");
  changes.emplace_back("learning_rate={base: 0.02 cosine {}}");
  return local(every, changes);
}

} // namespace troupe::test
