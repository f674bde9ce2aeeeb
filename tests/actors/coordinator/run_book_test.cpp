#include "actors/coordinator/run_book.hpp"

#include "actors/leases/lease_cursor.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>

using namespace troupe;
using namespace std::chrono_literals;
using boost::test_tools::per_element;
using outcome = troupe::run_book::outcome;

BOOST_TEST_DONT_PRINT_LOG_VALUE(outcome)

BOOST_AUTO_TEST_SUITE(run_book)

namespace {

/// A run of two workers, with 100 records in batches of 10 and two epochs.
troupe::run_book book(bool in_step = false) {
  return troupe::run_book{{100, 10, 2, in_step, true}, {{0, 7}, {1, 8}}};
}

const troupe::run_book::time_point start{};

proto::LeaseDone done(const proto::Lease& lease, std::uint64_t batches, double loss = 0) {
  proto::LeaseDone result;
  result.set_lease(lease.id());
  result.set_batches(batches);
  result.set_samples(std::min(batches * 10, lease.end() - lease.begin()));
  result.set_loss_sum(loss);
  result.set_loss_samples(result.samples());
  return result;
}

/// The worker trains until it gets no more leases.
void train_all(troupe::run_book& x, std::uint32_t worker) {
  x.find(worker)->asked = 1000;
  while (auto next = x.next_lease(start)) {
    const auto& lease = next->second;
    const auto batches = (lease.end() - lease.begin() + 9) / 10;
    BOOST_TEST(x.settle(*x.find(worker), done(lease, batches), start) == outcome::counted);
  }
}

} // namespace

BOOST_AUTO_TEST_CASE(two_epochs) {
  auto x = book();
  x.begin(2, std::nullopt, start);
  BOOST_TEST(!x.next_lease(start).has_value(), "nobody has asked");
  train_all(x, 1);
  BOOST_TEST(x.epoch_done());
  BOOST_TEST(!x.last_epoch());
  x.open_epoch(1, start + 1s);
  BOOST_TEST(x.last_epoch());
  BOOST_TEST(!x.epoch_done());
  train_all(x, 1);
  BOOST_TEST(x.epoch_done());
  BOOST_TEST(x.samples() == 200U);
}

BOOST_AUTO_TEST_CASE(totals_of_an_epoch) {
  auto x = book();
  x.begin(1, std::nullopt, start);
  BOOST_TEST(std::isnan(x.totals(start, false).train_loss));
  auto& worker = *x.find(0);
  worker.asked = 2;
  const auto lease = x.next_lease(start)->second;
  const auto second = x.next_lease(start)->second;
  BOOST_TEST(x.anybody_waits() == false);
  BOOST_TEST((x.holders() == std::vector<task_name>{{job_kind::worker, 0}}));
  worker.live_samples = 5;
  worker.live_loss = 20;
  worker.live_loss_samples = 4; // 4 of 5 samples: the gradient of one was not finite
  BOOST_TEST(x.totals(start + 2s, true).train_loss == 5.0);
  const auto batches = (lease.end() - lease.begin() + 9) / 10;
  const auto samples = static_cast<double>(lease.end() - lease.begin());
  BOOST_TEST(x.settle(worker, done(lease, batches, 3 * samples), start) == outcome::counted);
  const auto now = x.totals(start + 2s, true);
  BOOST_TEST(now.train_loss == 3.0);
  BOOST_TEST(now.samples_per_second == samples / 2);
  BOOST_TEST(now.epochs_trained == samples / 100);
  BOOST_TEST(x.settle(worker, done(lease, batches), start) == outcome::repeated);
  BOOST_TEST(x.settle(worker, done(second, 1000), start) == outcome::wrong);
}

// A worker gets a lease (several batches) at a time. A run that is stopped waits for two leases of
// each worker, so leases must be short if steps are slow. With synchronous steps, all workers have
// equal leases.
BOOST_AUTO_TEST_CASE(leases_are_short_if_steps_are_slow) {
  for (const bool in_step : {false, true})
    BOOST_TEST_CONTEXT(in_step) {
      troupe::run_book x{{100'000, 10, 1, in_step, true}, {{0, 7}, {1, 8}}};
      x.begin(1, std::nullopt, start);
      // Both workers train one lease. `per_batch` is the time of a batch on each worker. Returns
      // the number of batches in each lease.
      const auto train = [&](auto now, std::array<std::chrono::nanoseconds, 2> per_batch) {
        std::array<proto::Lease, 2> leases;
        for (std::uint32_t i = 0; i < 2; ++i) {
          ++x.find(i)->asked;
          leases[i] = x.next_lease(now)->second;
        }
        std::array<std::uint64_t, 2> result{};
        for (std::uint32_t i = 0; i < 2; ++i) {
          result[i] = batches_of(leases[i]);
          BOOST_TEST(
            x.settle(*x.find(i), done(leases[i], result[i]), now + result[i] * per_batch[i])
            == outcome::counted);
        }
        return result;
      };
      using batches = std::array<std::uint64_t, 2>;
      // At first, the time of a batch is unknown, so a lease has one batch.
      BOOST_TEST(train(start, {100ms, 500ms}) == (batches{1, 1}), per_element{});
      BOOST_TEST(train(start + 1h, {100ms, 100ms}) == (batches{in_step ? 8U : 32U, 8}),
                 per_element{});
      BOOST_TEST(train(start + 2h, {10s, 10s}) == (batches{32, 32}), per_element{});
      BOOST_TEST(train(start + 3h, {10s, 10s}) == (batches{1, 1}), per_element{});
    }
}

BOOST_AUTO_TEST_CASE(a_worker_that_was_given_up_is_not_found) {
  auto x = book();
  x.begin(1, std::nullopt, start);
  BOOST_TEST(x.find(0, 7) != nullptr);
  BOOST_TEST(x.find(0, 8) == nullptr, "another incarnation");
  BOOST_TEST(x.find(2, 7) == nullptr);
  x.leave(*x.find(0));
  BOOST_TEST(x.find(0, 7) == nullptr);
  BOOST_TEST(x.anybody_present());
  x.vanish(*x.find(1));
  BOOST_TEST(!x.anybody_present());
}

BOOST_AUTO_TEST_CASE(others_train_what_a_worker_leaves) {
  auto x = book();
  x.begin(1, std::nullopt, start);
  x.find(0)->asked = 1;
  x.next_lease(start);
  x.leave(*x.find(0));
  train_all(x, 1);
  BOOST_TEST(x.epoch_done());
  BOOST_TEST(x.samples() == 100U);
}

// A worker vanishes after shard 1 has applied a gradient that shard 0 has not applied. The batch of
// this gradient counts as trained. At shard 0, the gradient counts as lost.
BOOST_AUTO_TEST_CASE(a_vanished_worker) {
  auto x = book();
  x.begin(2, std::nullopt, start);
  x.find(0)->asked = 2;
  // A lease has only one batch until the speeds of the workers are known.
  BOOST_TEST(x.settle(*x.find(0), done(x.next_lease(start)->second, 1), start) == outcome::counted);
  const auto lease = x.next_lease(start)->second;
  BOOST_TEST_REQUIRE(lease.end() - lease.begin() >= 20U);
  x.vanish(*x.find(0));
  BOOST_TEST(x.settling() == 1U);
  train_all(x, 1);
  BOOST_TEST(!x.epoch_done(), "its leases are in question");
  std::vector<proto::Decided> decided(2);
  for (std::uint64_t i = 0; i < 2; ++i) {
    decided[i].set_lease(lease.id());
    decided[i].set_batch(i);
  }
  x.settle_vanished(0, decided);
  train_all(x, 1);
  BOOST_TEST(x.epoch_done());
  BOOST_TEST(x.samples() == 100U);
  x.open_epoch(1, start);
  train_all(x, 1);
  // Shard 1 has applied 200 samples (20 batches). One batch is lost at shard 0. So the accounts
  // balance if shard 0 has applied 190 samples, and do not balance if it has applied 200.
  std::vector<proto::Report> reports(2);
  reports[1].set_samples(200);
  const auto problems = [&](std::uint64_t of_first) {
    reports[0].set_samples(of_first);
    return x.balance(reports).problems.size();
  };
  BOOST_TEST(problems(200) == problems(190) + 1);
}

// A run that ends early has trained only a part of the samples. If a worker is lost during the last
// evaluation, the accounts must still balance.
BOOST_AUTO_TEST_CASE(a_worker_is_lost_after_an_early_end) {
  auto x = book();
  x.begin(1, std::nullopt, start);
  auto& worker = *x.find(0);
  worker.asked = 1;
  auto report = done(x.next_lease(start)->second, 1);
  report.mutable_progress()->set_produced(1);
  BOOST_TEST(x.settle(worker, report, start) == outcome::counted);
  x.stop();
  BOOST_TEST(x.stopped());
  proto::Report of_shard;
  of_shard.set_samples(10);
  auto& decided = *of_shard.add_decided();
  decided.set_worker(0);
  decided.set_incarnation(7);
  decided.set_applied(1);
  BOOST_TEST(x.balance({of_shard}).problems.empty());
  x.vanish(*x.find(1));
  const auto problems = x.balance({of_shard}).problems;
  BOOST_TEST(problems.empty(), (problems.empty() ? "" : problems.front()));
}

BOOST_AUTO_TEST_CASE(going_on_behind_a_cut) {
  auto x = book();
  x.begin(1, lease_cut{1, {{40, 100}}}, start);
  BOOST_TEST(x.epoch() == 1U);
  BOOST_TEST(x.totals(start, false).samples == 40U);
  BOOST_TEST(x.totals(start, false).epochs_trained == 1.4);
  train_all(x, 0);
  BOOST_TEST(x.epoch_done());
  BOOST_TEST(x.samples() == 60U);
}

BOOST_AUTO_TEST_CASE(in_step_a_part_of_a_lease_is_no_end_of_it) {
  auto x = book(true);
  x.begin(1, std::nullopt, start);
  x.find(0)->asked = 2;
  BOOST_TEST(x.settle(*x.find(0), done(x.next_lease(start)->second, 1), start) == outcome::counted);
  const auto lease = x.next_lease(start)->second;
  BOOST_TEST_REQUIRE(batches_of(lease) > 1U);
  BOOST_TEST(x.settle(*x.find(0), done(lease, 1), start) == outcome::repeated);
}

BOOST_AUTO_TEST_SUITE_END()
