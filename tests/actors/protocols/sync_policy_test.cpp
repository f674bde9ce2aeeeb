#include "actors/protocols/sync_ps/sync_policy.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(sync_policy_test)

namespace {

contribution gradient(std::uint32_t worker, std::uint64_t step, float value,
                      std::uint64_t samples = 2) {
  contribution x;
  x.header.mutable_id()->set_worker(worker);
  x.header.mutable_id()->set_sequence(step + 1);
  x.header.set_step(step);
  x.header.set_samples(samples);
  x.gradient = payload::floats(1);
  x.gradient.values.as_mutable_floats()[0] = value;
  return x;
}

proto::SyncPs with(std::uint32_t backup, proto::SyncPs::Late late = proto::SyncPs::REQUEUE) {
  proto::SyncPs result;
  result.set_backup_workers(backup);
  result.set_late(late);
  return result;
}

sync_policy shard(std::size_t index, const proto::SyncPs& how) {
  return {range{0, 1}, index, {0, 1, 2, 3}, how};
}

planned_update update(sync_policy& x, std::uint64_t version) {
  const std::vector<float> weights(1);
  return x.plan(weights, version);
}

/// Element 0 of the sum of gradients in an update.
float sum_of(const planned_update& x) {
  return x.gradient[0] + (x.terms.addend.empty() ? 0 : x.terms.addend[0]);
}

void make(sync_policy& x) {
  x.made({}, {}, {});
}

} // namespace

BOOST_AUTO_TEST_CASE(a_step_takes_all_without_backups) {
  auto x = shard(0, {});
  for (const std::uint32_t worker : {2, 0, 3}) {
    BOOST_TEST(x.take(gradient(worker, 0, 1)));
    BOOST_TEST(!x.ready());
  }
  BOOST_TEST(!x.take(gradient(3, 0, 1)));
  BOOST_TEST(x.take(gradient(1, 0, 1)));
  BOOST_TEST(x.ready());
  BOOST_TEST(!x.late(gradient(1, 0, 1).header, 1).has_value());
  BOOST_TEST(x.refusal(gradient(1, 0, 1).header, 1).has_value());
}

BOOST_AUTO_TEST_CASE(the_first_make_the_update) {
  auto x = shard(0, with(1));
  for (const std::uint32_t worker : {3, 0, 1}) {
    BOOST_TEST(!x.ready());
    x.take(gradient(worker, 0, static_cast<float>(worker)));
  }
  BOOST_TEST(x.ready());
  // Three other gradients make the update. So the gradient of worker 2 is late, whether it arrives
  // before or after the update.
  BOOST_TEST((x.late(gradient(2, 0, 9).header, 0) == proto::LATE_REQUEUED));
  BOOST_TEST(!x.late(gradient(0, 0, 0).header, 0).has_value());
  const auto made = update(x, 0);
  BOOST_TEST(made.samples == 6U);
  BOOST_TEST(sum_of(made) == 4.0F);
  make(x);
  BOOST_TEST(!x.ready());
  BOOST_TEST((x.late(gradient(2, 0, 9).header, 1) == proto::LATE_REQUEUED));
  BOOST_TEST(!x.late(gradient(2, 1, 9).header, 1).has_value());
  BOOST_TEST(!x.refusal(gradient(2, 0, 9).header, 1).has_value());
  BOOST_TEST(x.refusal(gradient(2, 2, 9).header, 1).has_value());
}

BOOST_AUTO_TEST_CASE(late_ones_are_dropped_where_the_job_says_so) {
  auto x = shard(0, with(3, proto::SyncPs::REJECT));
  x.take(gradient(1, 0, 1));
  BOOST_TEST(x.ready());
  BOOST_TEST((x.late(gradient(2, 0, 9).header, 0) == proto::LATE_DROPPED));
}

BOOST_AUTO_TEST_CASE(nobody_waits_for_the_idle) {
  auto x = shard(0, with(1));
  x.take(gradient(1, 0, 1));
  x.set_idle({0, 2});
  BOOST_TEST(!x.ready());
  x.set_idle({0, 2, 3});
  BOOST_TEST(x.ready());
  // The step is ready, so other shards already know which gradients it uses. If workers get data
  // again, this step does not change.
  x.set_idle({});
  BOOST_TEST(x.ready());
  make(x);
  x.set_idle({0, 1, 2, 3});
  BOOST_TEST(!x.ready());
}

BOOST_AUTO_TEST_CASE(other_shards_wait_for_what_was_chosen) {
  for (const bool told_first : {true, false}) {
    auto x = shard(1, with(1));
    const std::vector chosen{gradient(2, 0, 1).header.id(), gradient(0, 0, 1).header.id()};
    if (told_first)
      x.choose(0, chosen);
    x.take(gradient(0, 0, 1));
    BOOST_TEST(!x.ready());
    x.take(gradient(2, 0, 1));
    x.choose(0, chosen);
    BOOST_TEST(x.ready());
    make(x);
    BOOST_TEST(!x.ready());
    x.take(gradient(2, 1, 1));
    BOOST_TEST(!x.ready());
    x.choose(1, {gradient(2, 1, 1).header.id()});
    BOOST_TEST(x.ready());
  }
}

BOOST_AUTO_TEST_CASE(a_lost_workers_gradient_is_taken_out) {
  auto x = shard(0, with(1));
  x.take(gradient(2, 0, 4));
  x.take(gradient(0, 0, 1));
  BOOST_TEST(x.withdraw(2));
  BOOST_TEST(!x.withdraw(2));
  BOOST_TEST(x.parts().size() == 1U);
  // No more gradients can arrive, because worker 3 is lost, too. So the step is ready.
  x.take(gradient(1, 0, 2));
  BOOST_TEST(!x.ready());
  BOOST_TEST(!x.withdraw(3));
  BOOST_TEST(x.ready());
  BOOST_TEST(sum_of(update(x, 0)) == 3.0F);
  BOOST_TEST(update(x, 0).samples == 4U);
  // It is too late to withdraw the gradient of worker 1: other shards may already know that the
  // step uses it.
  BOOST_TEST(!x.withdraw(1));
  BOOST_TEST(x.parts().size() == 2U);
}

BOOST_AUTO_TEST_CASE(other_shards_hear_whether_it_counts) {
  const auto ids = [](std::initializer_list<std::uint32_t> workers) {
    std::vector<proto::GradientId> result;
    for (const auto i : workers)
      result.push_back(gradient(i, 0, 0).header.id());
    return result;
  };
  // Worker 2 is lost, and its gradient must not be applied. The gradient of worker 1 has not
  // arrived yet.
  auto x = shard(1, with(2));
  x.take(gradient(2, 0, 4));
  x.take(gradient(0, 0, 1));
  x.choose(0, ids({0, 1}));
  BOOST_TEST(!x.ready());
  x.settle(2, 0);
  BOOST_TEST(!x.ready());
  x.take(gradient(1, 0, 2));
  BOOST_TEST(x.ready());
  BOOST_TEST(sum_of(update(x, 0)) == 3.0F);
  // Worker 2 is lost, but its gradient must be applied and has arrived.
  auto y = shard(1, with(2));
  y.take(gradient(2, 0, 4));
  y.settle(2, 1);
  y.choose(0, ids({0, 2}));
  BOOST_TEST(!y.ready());
  y.take(gradient(0, 0, 1));
  BOOST_TEST(sum_of(update(y, 0)) == 5.0F);
  // Worker 2 is lost before or after shard 0 chooses the gradients of the step. The gradient of
  // worker 2 must be applied, but it never arrives at this shard.
  for (const bool before : {true, false}) {
    auto z = shard(1, with(3));
    if (before)
      z.settle(2, 1);
    z.choose(0, ids({2}));
    BOOST_TEST(z.ready() == before);
    z.settle(2, 1);
    BOOST_TEST(z.ready());
    BOOST_TEST(update(z, 0).samples == 0U);
    make(z);
    BOOST_TEST(!z.ready());
  }
}

BOOST_AUTO_TEST_SUITE_END()
