// The results of `troupe predict` on a simulated GPU.

#include "actors/model/data_builder.hpp"
#include "actors/worker/task_device.hpp"
#include "kernels/random.hpp"
#include "tests/actors/devices/gpu_jobs.hpp"
#include "tests/actors/model/text_model.hpp"
#include "tests/kernels/cuda/simulator.hpp"
#include "tests/support/input_errors.hpp"

#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(predictions)

namespace {

const device_name first_gpu{true, 0};

std::vector<float> some_weights(const job_context& context) {
  std::vector<float> result(context.parameters().size());
  random_stream random{3, "weights"};
  for (auto& x : result)
    x = static_cast<float>(random.normal());
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(a_gpu_continues_texts_like_the_cpu) {
  for (const std::string layer :
       {"lstm { hidden: 6 }", "gru { hidden: 5 }", "attention { heads: 2 }"}) {
    const auto context = text_model("layer { embedding { width: 4 } } layer { " + layer
                                    + " } layer { dense { units: 3 } }");
    const auto weights = some_weights(*context);
    const std::vector<std::int32_t> prompt{1, 0};
    const auto text_on = [&](const device_name& device, const std::vector<float>& x) {
      return make_generator(*context, device, gpus(1).get()).run(x, prompt, {40, 0, 1});
    };
    const auto before = launches();
    BOOST_TEST(text_on(first_gpu, weights) == text_on({}, weights),
               layer << boost::test_tools::per_element());
    BOOST_TEST(launches() > before);
    // The same generator also accepts other weights.
    auto both = make_generator(*context, first_gpu, gpus(1).get());
    both.run(weights, prompt, {3, 0, 1});
    auto others = weights;
    for (auto& x : others)
      x = -x;
    BOOST_TEST((both.run(others, prompt, {40, 0, 1}) == text_on({}, others)), layer);
  }
  const auto ahead = text_model("layer { embedding { width: 4 } } layer { attention { heads: 1 "
                                "causal: false } } layer { dense { units: 3 } }");
  BOOST_TEST(contains(error_of([&] {
                        make_generator(*ahead, first_gpu, gpus(1).get())
                          .run(some_weights(*ahead), std::vector<std::int32_t>{1, 0}, {});
                      }),
                      "the model looks ahead"));
}

BOOST_AUTO_TEST_CASE(predictions_are_those_of_the_cpu) {
  for (const auto& model : {mlp, cnn, lstm}) {
    const auto job = job_with(model, {});
    const auto data = build_data(job);
    const auto context = context_of(job);
    std::vector<float> weights(context->parameters().size());
    context->initialize({0, weights.size()}, weights);
    const auto outputs_on = [&](const device_name& device) {
      std::vector<float> result;
      make_tester(*context, device, gpus(1).get())
        ->run(weights, *data.test, [&](const tested_records& x) {
          result.insert(result.end(), x.outputs.begin(), x.outputs.end());
        });
      return result;
    };
    const auto before = launches();
    const auto there = outputs_on(first_gpu);
    BOOST_TEST(launches() > before);
    BOOST_TEST(there.size() == 8U * 10);
    BOOST_TEST(distance(there, outputs_on({})) <= 1e-5);
  }
}

BOOST_AUTO_TEST_CASE(gpus_that_cannot_be_used) {
  const auto text = text_model("layer { embedding { width: 3 } }");
  const auto digits = context_of(job_with(mlp, {}));
  for (const auto& [machine, reason] :
       {std::pair{std::shared_ptr<const gpu_set>{}, "this program was built without code for GPUs"},
        std::pair{gpus(0), "there is no GPU 0: this machine has 0"},
        std::pair{gpus(1, {.allocations = 0}), "out of memory of the GPU"}}) {
    const auto* const here = machine.get();
    BOOST_TEST(contains(device_error_of([&] { make_generator(*text, first_gpu, here); }), reason));
    BOOST_TEST(contains(device_error_of([&] { make_tester(*digits, first_gpu, here); }), reason));
  }
}

BOOST_AUTO_TEST_SUITE_END()
