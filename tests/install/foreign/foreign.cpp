// A program with an actor system and message types of its own, which trains a model on the side.

#include <actors/cluster/local_cluster.hpp>
#include <actors/model/job_file.hpp>
#include <messages/configure.hpp>

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

int main() {
  caf::actor_system_config cfg;
  cfg.add_message_types<caf::id_block::foreign>();
  troupe::configure(cfg);
  caf::actor_system sys{cfg};
  caf::scoped_actor self{sys};

  // A whole cluster in this actor system: coordinator, two workers and a parameter server.
  const auto job = troupe::parse_job(job_text, "job");
  troupe::coordinator_setup setup;
  setup.data = troupe::build_data(job);
  setup.context = troupe::make_job_context(job, troupe::shape_of(*setup.data.train));
  auto node = troupe::local_cluster(std::move(setup), 2, 1);
  node.on_end = [self = caf::actor_cast<caf::actor>(self)](const troupe::run_summary& x) {
    caf::anon_send(
      self, verdict{x.failure.empty() && x.applied == 25 ? "trained" : "failed: " + x.failure});
  };
  caf::anon_send(sys.spawn<troupe::cluster_node>(node), troupe::begin_node{});

  int result = 1;
  self->receive(
    [&](const verdict& x) {
      std::cout << x.text << '\n';
      result = x.text == "trained" ? 0 : 1;
    },
    caf::after(std::chrono::minutes{1}) >> [] { std::cout << "no answer\n"; });
  return result;
}
