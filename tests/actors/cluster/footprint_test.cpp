#include "actors/cluster/footprint.hpp"

#include "actors/model/job_file.hpp"
#include "actors/parameter_server/version_pool.hpp"
#include "kernels/cpu/executor.hpp"
#include "tests/actors/model/example_job.hpp"

#include <boost/test/unit_test.hpp>

BOOST_AUTO_TEST_SUITE(footprint)

using namespace troupe;
using namespace troupe::test;

namespace {

struct checked_job {
  explicit checked_job(proto::Protocol protocol, const std::vector<std::string>& changes = {}) {
    auto job = digits_job();
    job.set_protocol(protocol);
    for (auto& x : changes)
      apply_override(job, x);
    data = build_data(job);
    context = make_job_context(job, shape_of(*data.train));
    bytes = context->parameters().size() * sizeof(float);
  }

  troupe::footprint of(job_kind job, std::uint32_t index, const cluster_shape& cluster) const {
    return footprint_of({job, index}, *context, data, cluster);
  }

  job_data data;
  std::shared_ptr<const job_context> context;
  std::size_t bytes = 0;
};

} // namespace

BOOST_AUTO_TEST_CASE(a_shard_holds_a_version_per_reader) {
  const checked_job x{proto::ASYNC_PS};
  const cluster_shape cluster{3, 2, true, false};
  const auto first = x.of(job_kind::ps, 0, cluster);
  const auto second = x.of(job_kind::ps, 1, cluster);
  BOOST_TEST(first.weights + second.weights == shard_slots(3) * x.bytes);
  BOOST_TEST(first.optimizer + second.optimizer == 3 * x.bytes); // one momentum per worker
  BOOST_TEST(first.gradients + second.gradients == 3 * x.bytes);
  BOOST_TEST(first.data == 0u);
  // Small tensors are not divided. A shard exchanges weights and gradients with three workers (6
  // transfers), and sends weights to the coordinator (1). Each transfer counts twice: as a message
  // and in a buffer.
  BOOST_TEST(first.network + second.network == 2 * 7 * x.bytes);
}

// With `pull_ahead: 2`, a worker asks for weights two steps early. So the worker has two more
// copies of the weights, and the shard keeps a momentum for each copy.
BOOST_AUTO_TEST_CASE(weights_asked_for_early_take_memory) {
  const checked_job x{proto::ASYNC_PS, {"pull_ahead=2"}};
  const auto shard = x.of(job_kind::ps, 0, {3, 1, true, false});
  BOOST_TEST(shard.weights == (shard_slots(3) + 6) * x.bytes);
  BOOST_TEST(shard.optimizer == 9 * x.bytes);
  BOOST_TEST(x.of(job_kind::worker, 0, {3, 1, true, false}).weights == 3 * x.bytes);
  BOOST_TEST(x.of(job_kind::worker, 0, {3, 1, false, false}).weights == 0u);
}

BOOST_AUTO_TEST_CASE(a_worker_holds_a_gradient_and_what_the_plan_needs) {
  const checked_job x{proto::SYNC_PS};
  const auto apart = x.of(job_kind::worker, 0, {2, 1, true, false});
  // The worker has two copies of the weights, because pieces of the next weights arrive while it
  // uses the current weights.
  BOOST_TEST(apart.weights == 2 * x.bytes);
  // With clipping, the worker needs only one copy, because weights and gradients are exchanged as a
  // whole.
  const checked_job whole{proto::SYNC_PS, {"optimizer.clip_norm=1"}};
  BOOST_TEST(whole.of(job_kind::worker, 0, {2, 1, true, false}).weights == x.bytes);
  for (const auto& [how, versions] : {std::pair{&x, 2U}, {&whole, 1U}})
    BOOST_TEST(how->of(job_kind::ps, 0, {2, 1, true, false}).optimizer == versions * x.bytes);
  BOOST_TEST(x.of(job_kind::ps, 0, {2, 1, false, false}).optimizer == x.bytes);
  BOOST_TEST(apart.gradients == x.bytes);
  BOOST_TEST(apart.activations == executor<float>{x.context->training}.memory_bytes());
  BOOST_TEST(apart.data == 120u * 785); // 100 + 20 images and their labels
  // In one process, the worker shares the weights and the data with other tasks.
  const auto together = x.of(job_kind::worker, 0, {2, 1, false, false});
  BOOST_TEST(together.weights == 0u);
  BOOST_TEST(together.data == 0u);
  BOOST_TEST(together.network == 0u);
  // With two shards, the vector of weights is cut between two rows of the first tensor. This needs
  // no copy, neither on the CPU nor on a GPU.
  const checked_job gpu{proto::SYNC_PS, {"device[0]=/job:worker/task:0/device:GPU:0"}};
  for (const auto* job : {&x, &gpu})
    BOOST_TEST(job->of(job_kind::worker, 0, {2, 2, false, false}).weights == 0u);
}

BOOST_AUTO_TEST_CASE(a_rank_of_a_ring_holds_everything) {
  const checked_job x{proto::RING};
  const cluster_shape cluster{2, 1, true, false};
  const auto first = x.of(job_kind::worker, 0, cluster);
  const auto second = x.of(job_kind::worker, 1, cluster);
  BOOST_TEST(second.weights == replica_slots * x.bytes);
  BOOST_TEST(first.weights
             == second.weights + x.bytes); // rank 0 keeps one more copy, for the coordinator
  // Two copies of the momentum: current and next version.
  BOOST_TEST(second.optimizer == 2 * x.bytes);
  BOOST_TEST(x.of(job_kind::ps, 0, cluster).total() == 0u); // this task does nothing
}

// Two captures may be open for checkpoints, and two for evaluations.
BOOST_AUTO_TEST_CASE(replicas_are_copied_for_checkpoints) {
  const auto more = [](proto::Protocol protocol, const std::string& change, std::size_t workers) {
    const cluster_shape cluster{workers, 0, true, false};
    const auto with = checked_job{protocol, {change}}.of(job_kind::worker, 0, cluster);
    const checked_job plain{protocol};
    const auto without = plain.of(job_kind::worker, 0, cluster);
    return std::pair{(with.weights - without.weights) / plain.bytes,
                     (with.optimizer - without.optimizer) / plain.bytes};
  };
  using copies = std::pair<std::size_t, std::size_t>;
  const std::string checkpoints = "checkpoint={every_steps: 10}";
  BOOST_TEST((more(proto::RING, checkpoints, 1) == copies{2, 2}));
  BOOST_TEST((more(proto::RING, checkpoints, 2) == copies{1, 1}));
  BOOST_TEST((more(proto::RING, "evaluate={every_steps: 10}", 1) == copies{2, 0}));
  // Each worker sends all of its own state, and its part of the joint state.
  BOOST_TEST((more(proto::LOCAL_SGD, checkpoints, 2) == copies{1, 3}));
}

BOOST_AUTO_TEST_CASE(a_ring_divides_the_optimizers_state) {
  const checked_job x{proto::RING, {"ring.shard_optimizer=true"}};
  const auto optimizer = [&](std::size_t workers) {
    return x.of(job_kind::worker, 0, {workers, 0, true, false}).optimizer;
  };
  BOOST_TEST(optimizer(1) == 2 * x.bytes);
  for (const std::size_t workers : {2, 3, 4}) {
    BOOST_TEST(optimizer(workers) * workers >= 2 * x.bytes);
    BOOST_TEST(optimizer(workers) * workers < 2 * x.bytes + 8 * workers);
  }
}

// The state of an outer optimizer is the last average of the weights and the outer momentum.
BOOST_AUTO_TEST_CASE(an_outer_optimizer_has_state) {
  const auto optimizer = [&](const std::vector<std::string>& changes) {
    const checked_job x{proto::LOCAL_SGD, changes};
    const auto result = x.of(job_kind::worker, 1, {2, 0, true, false}).optimizer;
    BOOST_TEST(result % x.bytes == 0U);
    return result / x.bytes;
  };
  BOOST_TEST(optimizer({}) == 2U);
  BOOST_TEST(optimizer({"local_sgd.outer.kind=SGD"}) == 3U);
  BOOST_TEST(optimizer({"local_sgd.outer.kind=NESTEROV"}) == 4U);
}

BOOST_AUTO_TEST_CASE(all_is_the_sum_of_the_tasks) {
  for (const auto protocol : {proto::ASYNC_PS, proto::RING})
    for (const bool separate : {false, true}) {
      const checked_job x{protocol, {"device[0]=/job:worker/task:1/device:GPU:0"}};
      const cluster_shape cluster{3, 2, separate, true};
      auto sum = x.of(job_kind::coordinator, 0, cluster);
      for (std::uint32_t i = 0; i < 3; ++i)
        sum += x.of(job_kind::worker, i, cluster);
      for (std::uint32_t i = 0; i < 2; ++i)
        sum += x.of(job_kind::ps, i, cluster);
      BOOST_TEST(footprint_of_all(*x.context, x.data, cluster).total() == sum.total());
    }
}

BOOST_AUTO_TEST_CASE(tasks_are_on_one_host_if_their_addresses_say_so) {
  const task_name ps{job_kind::ps, 0};
  const task_name first{job_kind::worker, 0};
  const task_name second{job_kind::worker, 1};
  using tasks = std::vector<task_name>;
  std::map<task_name, std::string> cluster{
    {coordinator_task, "a:1"}, {ps, "b:1"}, {first, "b:2"}, {second, "a:2"}};
  BOOST_TEST((tasks_beside(cluster, ps) == tasks{first, ps}));
  BOOST_TEST((tasks_beside(cluster, coordinator_task) == tasks{second, coordinator_task}));
  // A task at a loopback address is on the coordinator's host only if the coordinator's address is
  // loopback, too.
  cluster = {
    {coordinator_task, "localhost:1"}, {ps, "[::1]:1"}, {first, "127.0.0.1:2"}, {second, "a:2"}};
  BOOST_TEST((tasks_beside(cluster, first) == tasks{first, ps, coordinator_task}));
  cluster[coordinator_task] = "a:1";
  BOOST_TEST((tasks_beside(cluster, first) == tasks{first}));
  // Both workers listen at 0.0.0.0, each on its own host. So equal addresses do not mean the same
  // host.
  cluster = {{coordinator_task, "a:1"}, {first, "0.0.0.0:0"}, {second, "0.0.0.0:0"}};
  BOOST_TEST((tasks_beside(cluster, first) == tasks{first}));
  // The cluster has no address for this evaluator.
  BOOST_TEST(tasks_beside(cluster, {job_kind::evaluator, 0}).empty());
}

// The activations of a worker on a GPU are in GPU memory. They do not count as memory of the host.
BOOST_AUTO_TEST_CASE(a_worker_on_a_gpu) {
  const std::string on_gpu = "device[0]=/job:worker/task:1/device:GPU:0";
  const cluster_shape cluster{2, 1, true, false};
  const checked_job x{proto::SYNC_PS, {on_gpu}};
  auto first = x.of(job_kind::worker, 0, cluster);
  BOOST_TEST(first.activations > 0U);
  first.activations = 0;
  BOOST_TEST(first.total() == x.of(job_kind::worker, 1, cluster).total());
  const checked_job soft{proto::SYNC_PS, {on_gpu, "soft_placement=true"}};
  BOOST_TEST(soft.of(job_kind::worker, 1, cluster).activations > 0U);
}

BOOST_AUTO_TEST_CASE(the_memory_of_tasks_is_that_of_each) {
  const checked_job x{proto::SYNC_PS, {"device[0]=/job:worker/task:2/device:GPU:0"}};
  const cluster_shape cluster{3, 1, true, false};
  const std::vector<task_name> tasks{
    coordinator_task, {job_kind::worker, 0}, {job_kind::worker, 1}, {job_kind::worker, 2}};
  const auto needed = memory_of(tasks, *x.context, x.data, cluster);
  std::size_t total = 0;
  BOOST_REQUIRE(needed.size() == tasks.size());
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    BOOST_TEST((needed[i].task == tasks[i]));
    const auto bytes = x.of(tasks[i].job, tasks[i].index, cluster).total();
    BOOST_TEST(needed[i].bytes == bytes);
    total += bytes;
  }
  BOOST_TEST(total_of(needed) == total);
}

BOOST_AUTO_TEST_SUITE_END()
