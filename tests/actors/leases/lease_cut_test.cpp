// Tests of cuts. A mark is the last position that one worker has trained. From the marks of all
// workers, a cut is computed: the samples that remain. A resumed run trains these samples.

#include "actors/leases/lease_book.hpp"
#include "actors/leases/lease_cursor.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <deque>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(lease_cut)

namespace {

/// Workers that train the leases of a lease_book, and the marks that a checkpoint would contain.
class crew {
public:
  crew(const lease_book::options& how, random_stream& random)
    : how_(how), book_(how), random_(random), workers_(how.workers), marks_(how.workers) {}

  lease_book& book() { return book_; }
  const std::vector<lease_mark>& marks() const { return marks_; }
  std::uint64_t newest() const { return newest_; }

  /// One worker trains a batch. With synchronous steps, all workers do. `trained` counts how often
  /// each position was trained.
  void step(std::vector<int>& trained) {
    const auto one = random_.below(workers_.size());
    for (std::size_t rank = 0; rank < workers_.size(); ++rank)
      if (how_.in_step || rank == one)
        train(rank, trained);
  }

  /// Loses an asynchronous worker. Batches up to its mark count as trained, and its other leases
  /// are given back.
  void lose() {
    const auto rank = random_.below(workers_.size());
    for (auto& lease : book_.held_by(rank)) {
      const auto batches = marks_[rank].lease == lease.id() ? marks_[rank].batch + 1 : 0;
      BOOST_REQUIRE(book_.settle(lease.id(), batches, samples_of(lease, batches)));
    }
    workers_[rank] = {};
  }

private:
  struct worker_state {
    std::deque<proto::Lease> leases;
    std::uint64_t batch = 0;
  };

  void train(std::size_t rank, std::vector<int>& trained) {
    auto& w = workers_[rank];
    while (w.leases.size() < 2)
      if (auto lease = book_.next(rank, 1 + random_.below(troupe::lease_book::most_batches)))
        w.leases.push_back(*lease);
      else
        break;
    if (w.leases.empty())
      return;
    const auto& lease = w.leases.front();
    const auto where = batch_of(lease, w.batch);
    for (auto i = where.begin; i < where.end; ++i)
      ++trained[i];
    marks_[rank] = {lease.id(), w.batch};
    newest_ = std::max<std::uint64_t>(newest_, lease.id());
    if (++w.batch < batches_of(lease))
      return;
    BOOST_REQUIRE(book_.settle(lease.id(), w.batch, samples_of(lease, w.batch)));
    w.leases.pop_front();
    w.batch = 0;
  }

  lease_book::options how_;
  lease_book book_;
  random_stream& random_;
  std::vector<worker_state> workers_;
  std::vector<lease_mark> marks_;
  std::uint64_t newest_ = 0;
};

lease_book::options any_options(std::uint64_t records, random_stream& random) {
  return {records, static_cast<std::uint32_t>(1 + random.below(20)), 1 + random.below(4),
          random.below(2) == 0};
}

/// The positions that no worker has trained, as ranges.
std::vector<range> gaps(const std::vector<int>& trained) {
  std::vector<range> result;
  for (std::size_t i = 0; i < trained.size(); ++i)
    if (trained[i] == 0) {
      if (!result.empty() && result.back().end == i)
        result.back().end = i + 1;
      else
        result.push_back({i, i + 1});
    }
  return result;
}

/// Joins neighboring ranges that touch.
std::vector<range> joined(const std::vector<range>& x) {
  std::vector<range> result;
  for (auto& r : x)
    if (!result.empty() && result.back().end == r.begin)
      result.back().end = r.end;
    else
      result.push_back(r);
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(every_sample_is_trained_once_before_or_after) {
  std::size_t losses = 0;
  std::size_t ranges = 0;
  for (std::uint64_t salt = 0; salt < 400; ++salt)
    BOOST_TEST_CONTEXT("salt " << salt) {
      random_stream random{seed() + salt, "lease_cut"};
      const std::uint64_t records = 1 + random.below(2000);
      const auto how = any_options(records, random);
      crew before{how, random};
      std::vector<int> trained(records);
      before.book().open_epoch(5);
      const auto moves = 1 + random.below(2 * records / how.batch + 2);
      for (std::uint64_t i = 0; i < moves; ++i) {
        before.step(trained);
        if (!how.in_step && random.below(40) == 0) {
          before.lose();
          ++losses;
        }
      }
      const auto cut = before.book().cut(before.marks(), before.newest());
      BOOST_TEST_REQUIRE(cut.has_value());
      BOOST_TEST(cut->epoch == 5U);
      BOOST_TEST((joined(cut->remaining) == gaps(trained)));
      ranges = std::max(ranges, cut->remaining.size());
      // The run continues with any number of workers, synchronous or not.
      const auto other = any_options(records, random);
      crew after{other, random};
      after.book().resume_epoch(*cut);
      for (int i = 0; !after.book().epoch_done(); ++i) {
        BOOST_TEST_REQUIRE(i < 100'000);
        after.step(trained);
      }
      BOOST_TEST(std::ranges::count(trained, 1) == static_cast<std::ptrdiff_t>(records));
      BOOST_TEST(after.book().committed() == cut->samples());
      BOOST_TEST(after.book().leased() == cut->samples());
      // The next epoch has all samples again.
      after.book().open_epoch(6);
      BOOST_TEST(!after.book().epoch_done());
    }
  BOOST_TEST(losses > 100U);
  BOOST_TEST(ranges > 3U);
}

BOOST_AUTO_TEST_CASE(a_run_that_went_on_can_be_cut_again) {
  random_stream random{seed(), "lease_cut"};
  crew x{{1000, 10, 2, false}, random};
  std::vector<int> trained(1000);
  x.book().resume_epoch({3, {{0, 100}, {500, 620}, {800, 1000}}});
  for (int i = 0; i < 7; ++i)
    x.step(trained);
  const auto cut = x.book().cut(x.marks(), x.newest());
  BOOST_TEST_REQUIRE(cut.has_value());
  BOOST_TEST(cut->samples() == 420U - 70U);
  for (auto& r : cut->remaining)
    BOOST_TEST(
      (range{0, 100}.contains(r) || range{500, 620}.contains(r) || range{800, 1000}.contains(r)));
}

BOOST_AUTO_TEST_CASE(nothing_remains) {
  troupe::lease_book book{{100, 10, 1, false}};
  book.resume_epoch({2, {}});
  BOOST_TEST(book.epoch_done());
  BOOST_TEST(!book.next(0).has_value());
  book.open_epoch(3);
  BOOST_TEST(!book.epoch_done());
}

// A batch is trained again if one shard has not applied it, or, with synchronous steps, if only one
// worker has trained it.
BOOST_AUTO_TEST_CASE(marks_that_lag_behind) {
  troupe::lease_book book{{100, 10, 2, true}};
  book.open_epoch(0);
  const auto first = *book.next(0);
  const auto second = *book.next(1);
  const std::vector<lease_mark> even{{first.id(), 2}, {second.id(), 2}};
  BOOST_TEST((book.cut(even, second.id())->remaining == std::vector<range>{{60, 100}}));
  const std::vector<lease_mark> uneven{{first.id(), 2}, {second.id(), 1}};
  BOOST_TEST((book.cut(uneven, second.id())->remaining == std::vector<range>{{40, 100}}));
  const std::vector<lease_mark> none{{first.id(), 2}, {}};
  BOOST_TEST((book.cut(none, second.id())->remaining == std::vector<range>{{0, 100}}));
}

// Trains epochs whose leases have one batch. Returns the first epoch that is still remembered at
// the end.
std::uint32_t first_remembered(std::uint32_t epochs, std::uint64_t leases) {
  troupe::lease_book book{{10 * leases, 10, 1, false}};
  std::vector<std::uint64_t> ids;
  for (std::uint32_t epoch = 0; epoch < epochs; ++epoch) {
    book.open_epoch(epoch);
    while (const auto lease = book.next(0, 1)) {
      BOOST_REQUIRE(book.settle(lease->id(), 1, 10));
      ids.resize(epoch + 1, lease->id());
    }
  }
  std::uint32_t forgotten = 0;
  for (std::uint32_t epoch = 0; epoch < epochs; ++epoch) {
    // Only the first batch of the epoch is trained.
    const std::vector<lease_mark> marks{{ids[epoch], 0}};
    const auto cut = book.cut(marks, ids[epoch]);
    if (!cut)
      BOOST_REQUIRE(forgotten++ == epoch);
    else
      BOOST_REQUIRE(cut->epoch == epoch);
  }
  return forgotten;
}

BOOST_AUTO_TEST_CASE(epochs_that_are_remembered) {
  BOOST_TEST(first_remembered(4, 3000) == 1u, "two epochs back");
  BOOST_TEST(first_remembered(1000, 1) == 0u, "more epochs, because they are short");
  BOOST_TEST(first_remembered(5000, 1) == 5000u - 4096 - 1, "4096 leases before the last epoch");
}

BOOST_AUTO_TEST_SUITE_END()
