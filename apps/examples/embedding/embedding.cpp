// A program that trains models inside its own actor system, beside its own actors, with its own
// message types and data.

#include <troupe/actors/cluster/training.hpp>
#include <troupe/kernels/devices/graph_session.hpp>
#include <troupe/kernels/graph/gradients.hpp>
#include <troupe/kernels/graph/operations.hpp>

#include <caf/all.hpp>

#include <array>
#include <cmath>
#include <iostream>

// A message between the program's own actors.
struct headline {
  std::string text;
};

template <class Inspector>
auto inspect(Inspector& f, headline& x) {
  return f(caf::meta::type_name("headline"), x.text);
}

CAF_BEGIN_TYPE_ID_BLOCK(embedding, caf::first_custom_type_id)
CAF_ADD_TYPE_ID(embedding, (headline))
CAF_END_TYPE_ID_BLOCK(embedding)

// Points in a square, computed when they are read. Class 1 is inside a circle, class 0 is outside.
class points : public troupe::dataset {
public:
  points(std::uint64_t first, std::uint64_t count) : first_(first), count_(count) {}

  std::uint64_t size() const noexcept override { return count_; }
  const troupe::record_shape& record() const noexcept override { return record_; }

  void read(std::span<const std::uint64_t> records, troupe::feature_batch features,
            troupe::label_batch labels) const override {
    for (std::size_t i = 0; i < records.size(); ++i) {
      const auto n = static_cast<double>(first_ + records[i] + 1);
      const double x = 2 * std::fmod(n * 0.7548776662, 1.0) - 1;
      const double y = 2 * std::fmod(n * 0.5698402910, 1.0) - 1;
      features.numbers[2 * i] = static_cast<float>(x);
      features.numbers[2 * i + 1] = static_cast<float>(y);
      labels.classes[i] = x * x + y * y < 0.5 ? 1 : 0;
    }
  }

private:
  // A record has two numbers, and its label is one of two classes.
  troupe::record_shape record_{.dims = {2}, .label_width = 2};
  std::uint64_t first_;
  std::uint64_t count_;
};

troupe::proto::Job make_job() {
  troupe::proto::Job job;
  auto& hidden = *job.mutable_model()->add_layer()->mutable_dense();
  hidden.set_units(16);
  hidden.set_activation(troupe::proto::TANH);
  job.mutable_model()->add_layer()->mutable_dense()->set_units(2);
  job.mutable_model()->set_loss(troupe::proto::SOFTMAX_CROSS_ENTROPY);
  job.mutable_data()->set_batch(20);
  job.mutable_optimizer()->set_kind(troupe::proto::MOMENTUM);
  job.mutable_learning_rate()->set_base(0.02F);
  job.set_epochs(10);
  return job;
}

using news_desk = caf::typed_actor<caf::reacts_to<headline>>;

// Prints the headlines that it receives.
class printer : public news_desk::base {
public:
  using news_desk::base::base;

protected:
  behavior_type make_behavior() override {
    return {[](const headline& x) { std::cout << x.text << std::endl; }};
  }
};

// Receives troupe's reports about the run, and sends them to the news desk as the program's own
// messages.
class reporter : public troupe::run_observer::base {
public:
  reporter(caf::actor_config& cfg, news_desk desk)
    : troupe::run_observer::base(cfg), desk_(std::move(desk)) {}

protected:
  behavior_type make_behavior() override {
    return {
      [](const troupe::run_progress&) {}, // a few times a second
      [this](const troupe::epoch_report& x) {
        send(desk_,
             headline{"epoch " + std::to_string(x.epoch) + ": accuracy "
                      + std::to_string(x.test_accuracy.value_or(0))});
      },
      [](const troupe::run_summary&) {},
      [this](const troupe::run_notice& x) { send(desk_, headline{x.text}); },
    };
  }

private:
  news_desk desk_;
};

// Trains two models at the same time, each with its own workers, protocol and number of units.
bool train_two(caf::actor_system& sys) {
  caf::scoped_actor self{sys};
  troupe::training_options small;
  small.job = make_job();
  small.job.set_protocol(troupe::proto::SYNC_PS);
  small.data = {std::make_shared<points>(0, 4000), std::make_shared<points>(4000, 1000)};
  small.workers = 2;
  auto large = small;
  large.job.set_protocol(troupe::proto::RING);
  large.job.mutable_model()->mutable_layer(0)->mutable_dense()->set_units(64);

  auto first =
    self->request(troupe::spawn_training(sys, small), caf::infinite, troupe::begin_training{});
  auto second =
    self->request(troupe::spawn_training(sys, large), caf::infinite, troupe::begin_training{});
  int good = 0;
  const auto judge = [&](const troupe::trained& x) { good += x.summary.test_accuracy > 0.9; };
  const auto complain = [](const caf::error& error) {
    std::cerr << troupe::explain(error) << '\n';
  };
  first.receive(judge, complain);
  second.receive(judge, complain);
  return good == 2;
}

// Computes tanh(x) and its derivative for all x in `at`, without actors. Computes on the first GPU
// if there is one, otherwise on the CPU.
std::vector<std::vector<float>> tanh_and_slope(const std::vector<float>& at,
                                               std::shared_ptr<const troupe::gpu_set> gpus) {
  troupe::graph g;
  const auto x = g.placeholder("x", {troupe::shape::batch});
  const auto y = troupe::tanh(x);
  const auto slopes = troupe::gradients(troupe::sum(y), std::array{x});
  auto session = gpus ? troupe::graph_session<float>{g, gpus, 0} : troupe::graph_session<float>{g};
  return session.run({{x, at}}, {y, slopes[0]});
}

int main() {
  caf::actor_system_config cfg;
  cfg.add_message_types<caf::id_block::embedding>();
  troupe::configure(cfg);
  caf::actor_system sys{cfg};
  caf::scoped_actor self{sys};

  troupe::training_options run;
  run.job = make_job();
  run.data = {std::make_shared<points>(0, 4000), std::make_shared<points>(4000, 1000)};
  run.workers = 2;
  run.ps = 2;
  run.observer = sys.spawn<reporter>(sys.spawn<printer>());
  const auto training = troupe::spawn_training(sys, run);

  int result = 1;
  self->request(training, caf::infinite, troupe::begin_training{})
    .receive(
      [&](const troupe::trained& x) {
        std::cout << x.weights.as_floats().size() << " weights, first bias "
                  << x.tensor("dense_1.bias")[0] << '\n';
        result = x.summary.test_accuracy > 0.9 ? 0 : 1;
      },
      [](const caf::error& error) { std::cerr << troupe::explain(error) << '\n'; });
  const auto steepest = tanh_and_slope({-1, 0, 1}, run.gpus)[1][1];
  return result == 0 && train_two(sys) && steepest == 1 ? 0 : 1;
}
