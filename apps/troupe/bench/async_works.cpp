#include "apps/troupe/bench/async_works.hpp"

#include "actors/model/job_file.hpp"

namespace troupe::bench {

/// The texts of job files in apps/examples.
extern const std::string_view mnist_mlp_example;
extern const std::string_view digits_mlp_example;
extern const std::string_view a9a_logistic_example;
extern const std::string_view mnist_lenet_example;
extern const std::string_view shakespeare_lstm_example;

std::span<const async_work> async_works() {
  static const std::vector<async_work> result{
    {"mlp", "MLP 784-256-128-10, MNIST, momentum", &mnist_mlp_example, {"data.batch=32"}},
    {"nesterov",
     "the same, Nesterov",
     &mnist_mlp_example,
     {"data.batch=32", "optimizer.kind=NESTEROV"}},
    {"sgd",
     "the same, SGD, rate 0.1",
     &mnist_mlp_example,
     {"data.batch=32", "optimizer={kind: SGD}", "learning_rate.base=0.1"}},
    {"adam",
     "the same, Adam, rate 0.001",
     &mnist_mlp_example,
     {"data.batch=32", "optimizer={kind: ADAM}", "learning_rate.base=0.001"}},
    {"rate4",
     "the same, momentum, rate 0.2",
     &mnist_mlp_example,
     {"data.batch=32", "learning_rate.base=0.2"}},
    {"standardized",
     "the same, inputs of mean 0 and variance 1",
     &mnist_mlp_example,
     {"data.batch=32", "data.normalize.kind=STANDARDIZE"}},
    {"digits", "MLP 784-128-10, generated digits, momentum", &digits_mlp_example, {}},
    {"a9a", "logistic regression, a9a, SGD, batch 64", &a9a_logistic_example, {}},
    {"slow", "as mlp, one worker 5x slower", &mnist_mlp_example, {"data.batch=32"}, slowness::one},
    {"slow_in_turns",
     "as mlp; one worker is 5x slower, each worker in turn",
     &mnist_mlp_example,
     {"data.batch=32"},
     slowness::in_turns},
    {"lenet", "LeNet-5, MNIST, momentum, batch 64", &mnist_lenet_example, {}},
    {"lstm", "character LSTM, Shakespeare, Adam", &shakespeare_lstm_example, {}},
  };
  return result;
}

std::span<const async_recipe> async_recipes() {
  static const std::vector<async_recipe> result{
    {.name = "AUTO",
     .changes = {"async_ps.compensation=AUTO"},
     .paper = "DANA, Hakimi et al. 2019, arXiv 1907.11612; limit and guard without a paper",
     .safe = true},
    {.name = "BUFFERED",
     .changes = {"async_ps.compensation=AUTO", "async_ps.buffer=4"},
     .paper = "FedBuff, Nguyen et al. 2022, arXiv 2106.06639; limit and guard as of AUTO",
     .safe = true,
     .waits = true},
    {.name = "PULL_AHEAD",
     .changes = {"async_ps.compensation=AUTO", "pull_ahead=1"},
     .paper = "weights asked for one step early; updates as of AUTO",
     .safe = true},
    {.name = "NONE",
     .changes = {"async_ps.compensation=NONE"},
     .paper = "Downpour SGD, Dean et al. 2012"},
    {.name = "STALENESS_RATE",
     .changes = {"async_ps.compensation=STALENESS_RATE"},
     .paper = "Zhang et al. 2015, arXiv 1511.05950"},
    {.name = "GAP_AWARE",
     .changes = {"async_ps.compensation=GAP_AWARE"},
     .paper = "Barkai et al. 2020, arXiv 1909.10802"},
    {.name = "DC",
     .changes = {"async_ps.compensation=DC"},
     .paper = "DC-ASGD-a, Zheng et al. 2017, arXiv 1609.08326"},
    {.name = "SSP",
     .changes = {"protocol=SSP", "ssp.staleness=4"},
     .paper = "Ho et al. 2013; updates as of AUTO",
     .safe = true,
     .waits = true},
    {.name = "HOGWILD",
     .changes = {"protocol=HOGWILD"},
     .paper = "Niu et al. 2011, arXiv 1106.5730"},
    {.name = "SYNC_PS", .changes = {"protocol=SYNC_PS"}, .paper = "in step", .waits = true},
  };
  return result;
}

std::span<const replica_recipe> replica_recipes() {
  static const std::vector<replica_recipe> result{
    {"ring", {"protocol=RING"}},
    {"average, H = 8", {"protocol=LOCAL_SGD", "local_sgd={every: 8}"}},
    {"outer 0.7, 0.5, H = 8", {"protocol=LOCAL_SGD", "local_sgd={every: 8 outer {}}"}},
    {"outer 1.0, 0.5, H = 8",
     {"protocol=LOCAL_SGD", "local_sgd={every: 8 outer {rate: 1 momentum: 0.5}}"}},
    {"outer 1.0, 0.5, H = 8, 4 parts",
     {"protocol=LOCAL_SGD", "local_sgd={every: 8 fragments: 4 outer {rate: 1 momentum: 0.5}}"}},
    {"average, H = 50", {"protocol=LOCAL_SGD", "local_sgd={every: 50}"}},
    {"outer 0.7, 0.5, H = 50", {"protocol=LOCAL_SGD", "local_sgd={every: 50 outer {}}"}},
    {"outer 0.7, 0.9, H = 50",
     {"protocol=LOCAL_SGD", "local_sgd={every: 50 outer {momentum: 0.9}}"}},
    {"outer 1.0, 0.5, H = 50",
     {"protocol=LOCAL_SGD", "local_sgd={every: 50 outer {rate: 1 momentum: 0.5}}"}},
    {"outer 0.7, 0.9, H = 50, 4 parts",
     {"protocol=LOCAL_SGD", "local_sgd={every: 50 fragments: 4 outer {momentum: 0.9}}"}},
    {"outer 1.0, 0.5, H = 50, 4 parts",
     {"protocol=LOCAL_SGD", "local_sgd={every: 50 fragments: 4 outer {rate: 1 momentum: 0.5}}"}},
    {"outer 1.0, 0.5, H = 53",
     {"protocol=LOCAL_SGD", "local_sgd={every: 53 outer {rate: 1 momentum: 0.5}}"}},
    {"outer 1.0, 0.5, H = 55, 4 parts",
     {"protocol=LOCAL_SGD", "local_sgd={every: 55 fragments: 4 outer {rate: 1 momentum: 0.5}}"}},
  };
  return result;
}

proto::Job async_work::job(std::uint64_t seed, std::uint32_t epochs) const {
  auto result = parse_job(*example, name);
  for (const auto& x : changes)
    apply_override(result, x);
  result.set_protocol(proto::ASYNC_PS);
  result.set_seed(seed);
  result.clear_output();
  if (epochs > 0)
    result.set_epochs(epochs);
  validate(result);
  return result;
}

} // namespace troupe::bench
