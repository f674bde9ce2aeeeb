#include "actors/coordinator/task_table.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>

using namespace troupe;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(task_table)

namespace {

constexpr task_name first_worker{job_kind::worker, 0};
constexpr task_name second_worker{job_kind::worker, 1};
constexpr task_name first_shard{job_kind::ps, 0};
constexpr task_name second_shard{job_kind::ps, 1};
const std::vector<task_name> all{first_worker, second_worker, first_shard, second_shard};

proto::Progress progress(std::uint64_t applied, std::vector<std::uint64_t> staleness = {}) {
  proto::Progress result;
  result.set_produced(applied);
  result.set_applied(applied);
  result.set_samples(10 * applied);
  result.set_computing(2);
  for (std::size_t i = 0; i < staleness.size(); ++i) {
    result.add_staleness(staleness[i]);
    result.set_staleness_sum(result.staleness_sum() + staleness[i] * staleness_bounds[i]);
  }
  return result;
}

proto::TaskStatus updates(std::uint64_t n) {
  proto::TaskStatus result;
  result.set_doing(proto::TaskStatus::WAITING_FOR_GRADIENTS);
  result.set_seconds(1);
  result.set_steps(n);
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(what_tasks_tell_is_put_together) {
  const auto t = troupe::task_table::time_point{} + 1h;
  troupe::task_table table;
  table.begin(all, {}, t);
  table.hear(first_worker, progress(4, {1, 3}), t + 1s);
  table.hear(second_worker, progress(2, {1, 0, 1}), t + 1s);
  table.hear(first_shard, updates(6), t + 1s);
  table.hear(second_shard, updates(5), t + 1s);
  table.hear(task_name{job_kind::worker, 7}, progress(9), t + 1s); // an unknown task
  BOOST_TEST(table.updates() == 5U);
  BOOST_TEST(table.staleness()[0] == 2U);
  BOOST_TEST(table.staleness()[1] == 3U);
  BOOST_TEST(table.staleness()[2] == 1U);
  BOOST_TEST(table.staleness_mean() == 5.0 / 6);
  const auto tasks = table.tasks(t + 2s);
  BOOST_TEST_REQUIRE(tasks.size() == 4U);
  BOOST_TEST((tasks[0].task == first_worker));
  BOOST_TEST(tasks[0].steps == 4U);
  BOOST_TEST(tasks[0].samples == 40U);
  BOOST_TEST(tasks[0].staleness_mean == 0.75);
  BOOST_TEST(tasks[0].computing == 2);
  BOOST_TEST(tasks[0].samples_per_second == 20);
  BOOST_TEST((tasks[3].task == second_shard));
  BOOST_TEST(tasks[3].steps == 5U);
  BOOST_TEST(tasks[3].activity == "waits for gradients");
  // The report said that the task had waited for one second. Another second has passed since.
  BOOST_TEST(tasks[3].activity_seconds == 2);
}

BOOST_AUTO_TEST_CASE(norms_of_gradients) {
  const auto t = troupe::task_table::time_point{} + 1h;
  troupe::task_table table;
  table.begin(all, {}, t);
  table.hear(first_worker, progress(4), t + 1s);
  BOOST_TEST(!table.gradient_norm());
  auto clipped = progress(5);
  clipped.set_gradient_norm(3);
  table.hear(first_worker, clipped, t + 1s);
  BOOST_TEST(table.gradient_norm().value() == 3);
  clipped.set_gradient_norm(0);
  table.hear(second_worker, clipped, t + 1s);
  BOOST_TEST(table.gradient_norm().value() == 1.5);
}

BOOST_AUTO_TEST_CASE(late_news_are_no_news) {
  const auto t = troupe::task_table::time_point{} + 1h;
  troupe::task_table table;
  table.begin(all, {}, t);
  table.hear(first_worker, progress(4), t + 1s);
  table.hear(first_worker, progress(3), t + 1s);
  BOOST_TEST(table.tasks(t + 1s)[0].steps == 4U);
}

BOOST_AUTO_TEST_CASE(rates_are_of_late_and_in_the_end_of_all) {
  const auto t = troupe::task_table::time_point{} + 1h;
  troupe::task_table table;
  table.begin(all, {}, t);
  // 100 samples in ten seconds, then 10 samples in ten seconds.
  for (int i = 1; i <= 10; ++i)
    table.hear(first_worker, progress(static_cast<std::uint64_t>(10 * i)), t + i * 1s);
  for (int i = 11; i <= 20; ++i)
    table.hear(first_worker, progress(static_cast<std::uint64_t>(90 + i)), t + i * 1s);
  BOOST_TEST(table.tasks(t + 20s)[0].samples_per_second == 10);
  BOOST_TEST(table.tasks_at_end(t + 20s)[0].samples_per_second == 1100.0 / 20);
}

BOOST_AUTO_TEST_CASE(steps_have_rates) {
  const auto t = troupe::task_table::time_point{} + 1h;
  troupe::task_table table;
  table.begin(all, {}, t);
  // Ten seconds with 10 updates a second, then ten seconds with one update a second.
  for (int i = 1; i <= 20; ++i)
    table.hear(first_shard, updates(static_cast<std::uint64_t>(i <= 10 ? 10 * i : 90 + i)),
               t + i * 1s);
  BOOST_TEST(table.tasks(t + 20s)[2].steps_per_second == 1);
  BOOST_TEST(table.tasks_at_end(t + 20s)[2].steps_per_second == 110.0 / 20);
}

// A shard is "hot" if it has carried many bytes, and more than twice as many as the mean of the
// other shards.
BOOST_AUTO_TEST_CASE(a_hot_shard) {
  constexpr std::uint64_t mib = 1 << 20;
  const task_name third_shard{job_kind::ps, 2};
  const auto hottest = [&](std::vector<std::uint64_t> bytes, std::vector<task_name> idle = {}) {
    const auto t = troupe::task_table::time_point{} + 1h;
    troupe::task_table table;
    table.begin({first_worker, first_shard, second_shard, third_shard}, idle, t);
    for (std::uint32_t i = 0; i < bytes.size(); ++i) {
      auto x = updates(1);
      x.set_bytes_sent(bytes[i] / 4);
      x.set_bytes_received(bytes[i] - bytes[i] / 4);
      table.hear(task_name{job_kind::ps, i}, x, t + 1s);
    }
    auto worker = updates(1);
    worker.set_bytes_sent(1000 * mib);
    table.hear(first_worker, worker, t + 1s);
    return table.hottest_shard(t + 2s);
  };
  BOOST_TEST(!hottest({}));
  BOOST_TEST(!hottest({20 * mib, 20 * mib, 20 * mib}));
  BOOST_TEST(!hottest({20 * mib, 40 * mib, 20 * mib}), "just twice the mean of the others");
  const auto found = hottest({19 * mib, 41 * mib, 21 * mib});
  BOOST_TEST_REQUIRE(found.has_value());
  BOOST_TEST((found->task == second_shard));
  BOOST_TEST(found->times_others == 41.0 / 20);
  BOOST_TEST(found->bytes_per_second == 41.0 * mib / 2);
  BOOST_TEST(!hottest({0, 0, 16 * mib - 1}), "too little to matter");
  BOOST_TEST(std::isinf(hottest({0, 0, 16 * mib}).value().times_others));
  // The same rule with only two active shards.
  BOOST_TEST(!hottest({20 * mib, 40 * mib}, {third_shard}));
  BOOST_TEST(hottest({20 * mib, 41 * mib}, {third_shard}).has_value());
  BOOST_TEST(!hottest({0, 20 * mib}, {first_shard, third_shard}), "there is no other");
  BOOST_TEST(!hottest({0, 0, 16 * mib}, {first_shard, second_shard, third_shard}));
}

BOOST_AUTO_TEST_CASE(idle_and_ended_tasks) {
  const auto t = troupe::task_table::time_point{} + 1h;
  troupe::task_table table;
  table.begin(all, {first_shard, second_shard}, t);
  for (const auto& task : {first_worker, second_worker})
    table.hear(task, updates(7), t + 1s);
  BOOST_TEST(table.updates() == 7U); // in a ring, the workers make the updates
  table.end(second_worker, "left");
  const auto tasks = table.tasks(t + 1s);
  BOOST_TEST(tasks[1].activity == "left");
  BOOST_TEST(tasks[2].activity == "is not needed");
}

BOOST_AUTO_TEST_CASE(staleness_has_a_bucket) {
  for (std::size_t i = 0; i < staleness_bounds.size(); ++i) {
    BOOST_TEST(staleness_bucket(staleness_bounds[i]) == i);
    if (i > 0)
      BOOST_TEST(staleness_bucket(staleness_bounds[i] - 1) == i - 1);
  }
  BOOST_TEST(staleness_bucket(1'000'000) == staleness_bounds.size() - 1);
}

BOOST_AUTO_TEST_SUITE_END()
