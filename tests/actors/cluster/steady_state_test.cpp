// A training step makes no large allocation: buffers for weights and gradients come from a pool and
// return to it.

#include "actors/cluster/local_cluster.hpp"
#include "messages/configure.hpp"
#include "tests/actors/cluster/ways.hpp"
#include "tests/support/allocations.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

#include <optional>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(steady_state)

namespace {

/// A whole cluster in one process, on a scheduler with one thread. A *move* handles one message or
/// timeout. Every run makes the same moves in the same order.
class cluster_in_steps {
public:
  explicit cluster_in_steps(const proto::Job& job) {
    configure(config_);
    config_.set("scheduler.policy", caf::atom("testing"));
    system_.emplace(config_);
    scheduler_ = &dynamic_cast<caf::scheduler::test_coordinator&>(system_->scheduler());
    coordinator_setup setup;
    setup.data = build_data(job);
    setup.context = make_job_context(job, shape_of(*setup.data.train));
    auto options = local_cluster(std::move(setup), 3, 2);
    options.spawner = spawner{spawner::kind::cooperative};
    options.on_end = [this](const run_summary& x) { ended_ = x; };
    node_ = caf::actor_cast<caf::actor>(system_->spawn<cluster_node>(std::move(options)));
    caf::anon_send(node_, begin_node{});
  }

  ~cluster_in_steps() {
    caf::anon_send(node_, crash_node{});
    while (scheduler_->try_run_once())
      ;
    scheduler_->clock().cancel_all();
  }

  /// Makes `count` moves, or fewer if the run ends. Returns the number of moves.
  std::size_t move(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      if (ended_ || (!scheduler_->try_run_once() && !scheduler_->trigger_timeout()))
        return i;
    return count;
  }

  const std::optional<run_summary>& ended() const { return ended_; }

private:
  caf::actor_system_config config_;
  std::optional<caf::actor_system> system_;
  caf::scheduler::test_coordinator* scheduler_ = nullptr;
  caf::actor node_;
  std::optional<run_summary> ended_;
};

} // namespace

BOOST_AUTO_TEST_CASE(steps_allocate_nothing_large) {
  for (const auto protocol : all_protocols)
    BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol)) {
      std::vector<std::string> changes{"data.digits={train: 1920 test: 20}", "data.batch=16",
                                       "epochs=1", "protocol=" + proto::Protocol_Name(protocol)};
      for (auto& x : equal_after_every_step(protocol))
        changes.push_back(x);
      const auto job = example_job("digits_mlp", changes);
      std::size_t moves = 0;
      {
        cluster_in_steps whole{job};
        moves = whole.move(~std::size_t{0});
        BOOST_TEST_REQUIRE(whole.ended().has_value());
        BOOST_TEST(whole.ended()->failure == "");
      }
      // In the second and third quarter of this run of 120 batches, nothing large is allocated.
      cluster_in_steps again{job};
      again.move(moves / 4);
      const auto before = large_allocations();
      again.move(moves / 2);
      BOOST_TEST(large_allocations() - before == 0U);
      const auto made = std::make_unique<std::byte[]>(large_allocation);
      BOOST_TEST(large_allocations() - before == 1U); // the counter of allocations works
    }
}

BOOST_AUTO_TEST_SUITE_END()
