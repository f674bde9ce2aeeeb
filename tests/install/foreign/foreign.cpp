// A program of another project that trains a model. It has its own actor system and message types.

#include <troupe/actors/cluster/training.hpp>
#include <troupe/actors/model/job_file.hpp>

#include <caf/all.hpp>

#include <iostream>

struct verdict {
  std::string text;
};

template <class Inspector>
auto inspect(Inspector& f, verdict& x) {
  return f(caf::meta::type_name("verdict"), x.text);
}

CAF_BEGIN_TYPE_ID_BLOCK(foreign, caf::first_custom_type_id)
CAF_ADD_TYPE_ID(foreign, (verdict))
CAF_END_TYPE_ID_BLOCK(foreign)

constexpr auto job_text = R"(
  model { layer { dense { units: 10 } } loss: SOFTMAX_CROSS_ENTROPY }
  data { digits { train: 500 test: 100 } batch: 20 }
  learning_rate { base: 0.1 }
)";

// Trains without blocking, and reports the result.
class judge : public caf::event_based_actor {
public:
  judge(caf::actor_config& cfg, caf::actor listener)
    : caf::event_based_actor(cfg), listener_(std::move(listener)) {}

  caf::behavior make_behavior() override {
    troupe::training_options run;
    run.job = troupe::parse_job(job_text, "job");
    run.workers = 2;
    request(troupe::spawn_training(system(), run), caf::infinite, troupe::begin_training{})
      .then(
        [this](const troupe::trained& x) {
          const auto good = x.summary.applied == 25 && x.weights.as_floats().size() == 7850;
          send(listener_, verdict{good ? "trained" : "trained otherwise than expected"});
        },
        [this](const caf::error& error) { send(listener_, verdict{troupe::explain(error)}); });
    return {[](caf::ok_atom) {}};
  }

private:
  caf::actor listener_;
};

int main() {
  caf::actor_system_config cfg;
  cfg.add_message_types<caf::id_block::foreign>();
  troupe::configure(cfg);
  caf::actor_system sys{cfg};
  caf::scoped_actor self{sys};
  sys.spawn<judge>(self);

  int result = 1;
  self->receive(
    [&](const verdict& x) {
      std::cout << x.text << '\n';
      result = x.text == "trained" ? 0 : 1;
    },
    caf::after(std::chrono::minutes{2}) >> [] { std::cout << "no answer\n"; });
  return result;
}
