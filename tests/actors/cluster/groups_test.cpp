// Runs with frozen parameters, and with groups of parameters that have their own optimizer
// settings.

#include "actors/model/job_file.hpp"
#include "actors/model/model_file.hpp"
#include "kernels/formats/file.hpp"
#include "tests/actors/cluster/ways.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(groups)

namespace {

/// A job in which the first dense layer and the statistics of the batch normalization after it are
/// frozen.
proto::Job job_with(proto::Protocol protocol, const std::vector<std::string>& changes) {
  auto result = parse_job(R"(
    model {
      layer { name: "first" dense { units: 12 } }
      layer { name: "norm" batch_norm {} }
      layer { name: "head" dense { units: 10 } }
      loss: SOFTMAX_CROSS_ENTROPY
      freeze: "first.*"
      freeze: "norm.running_*"
    }
    data { digits { train: 48 test: 20 } batch: 20 }
    optimizer {
      weight_decay: 0.1
      group { match: "*.bias" weight_decay: 0 learning_rate_scale: 0.25 }
      group { match: "norm.*" weight_decay: 0.5 }
    }
    learning_rate { base: 0.1 }
    epochs: 3
    output: "out")",
                          "job");
  result.set_protocol(protocol);
  for (auto& x : changes)
    apply_override(result, x);
  validate(result);
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(one_worker_equals_a_serial_loop) {
  for (const auto* const rule : {"SGD", "ADAMW", "LAMB"})
    for (const auto protocol : all_protocols)
      check_equals_serial(job_with(protocol, {"optimizer.kind=" + std::string{rule}}));
}

// Trains with three workers, because a mean of three equal numbers may differ from them in the last
// bit. Some jobs use clipping, a momentum per worker, or a compensation of staleness.
BOOST_AUTO_TEST_CASE(frozen_parameters_keep_their_bits) {
  std::vector<std::pair<proto::Protocol, std::string>> runs{
    {proto::ASYNC_PS, "async_ps.compensation=DC"}, {proto::LOCAL_SGD, "local_sgd.every=2"}};
  for (const auto protocol : all_protocols)
    for (const auto* const change : {"optimizer.kind=MOMENTUM", "optimizer.clip_norm=0.5"})
      runs.emplace_back(protocol, change);
  for (const auto& [protocol, change] : runs) {
    const auto job = job_with(protocol, {change});
    simulation run{simulated(job, 3, 2)};
    BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol) << ", " << change) {
      BOOST_TEST(run.run().summary.failure == "");
      const auto context = make_job_context(job, shape_of(*build_data(job).train));
      const auto& parameters = context->parameters();
      const auto file = run.files().contents("out/weights.safetensors");
      const auto weights = read_model(as_byte_span(file), parameters, "weights").weights;
      std::vector<float> first(parameters.size());
      context->initialize({0, parameters.size()}, first);
      for (const auto& tensor : parameters.entries()) {
        const auto begin = static_cast<std::ptrdiff_t>(tensor.offset);
        const auto end = begin + static_cast<std::ptrdiff_t>(tensor.size);
        const bool same =
          std::equal(weights.begin() + begin, weights.begin() + end, first.begin() + begin);
        BOOST_TEST(same == (tensor.kind == parameter_kind::frozen), tensor.name);
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
