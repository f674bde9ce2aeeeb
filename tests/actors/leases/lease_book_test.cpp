#include "actors/leases/lease_book.hpp"

#include "actors/leases/lease_cursor.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <deque>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(lease_book)

namespace {

constexpr std::uint32_t epochs = 2;

/// Trains a job in a random way. A lease_book gives out leases: ranges of batches for one worker.
/// The workers have random speeds, and some of them are lost.
class run {
public:
  run(const lease_book::options& how, std::uint64_t salt)
    : how_(how), book_(how), random_(seed() + salt, "lease_book"), workers_(how.workers) {
    for (auto& w : workers_)
      w.speed = 1 + random_.below(20);
  }

  /// Asynchronous training: workers take batches at any time. Some workers vanish, but at least one
  /// remains.
  void asynchronously() {
    for (std::uint32_t epoch = 0; epoch < epochs; ++epoch) {
      open(epoch);
      while (!book_.epoch_done())
        if (random_.below(200) == 0)
          lose(random_.below(workers_.size()));
        else
          step_of_one(pick());
      check_epoch(epoch);
    }
  }

  /// Synchronous training: all workers take their batches together. They may ask for leases at any
  /// time.
  void in_step() {
    for (std::uint32_t epoch = 0; epoch < epochs; ++epoch) {
      open(epoch);
      while (!book_.epoch_done()) {
        for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
          ask(rank);
          if (random_.below(2) == 0)
            ask(rank);
        }
        step_of_all();
      }
      check_epoch(epoch);
    }
  }

  std::size_t lost() const { return lost_; }
  std::size_t empty_batches() const { return empty_batches_; }

private:
  struct worker_state {
    std::uint64_t speed = 1;
    bool present = true;
    std::deque<proto::Lease> leases;
    /// How many batches of its oldest lease the worker has trained.
    std::uint64_t batch = 0;
  };

  void open(std::uint32_t epoch) {
    book_.open_epoch(epoch);
    committed_.assign(how_.records, 0);
  }

  void ask(std::size_t rank) {
    auto& w = workers_[rank];
    if (w.leases.size() >= 2)
      return;
    if (auto lease = book_.next(rank, 1 + random_.below(troupe::lease_book::most_batches))) {
      BOOST_REQUIRE(lease->begin() < lease->end());
      BOOST_REQUIRE(lease->end() <= how_.records);
      BOOST_REQUIRE(lease->batch() == how_.batch);
      w.leases.push_back(*lease);
    }
  }

  /// A random worker that has not vanished. Faster workers are drawn more often.
  std::size_t pick() {
    std::uint64_t all = 0;
    for (auto& w : workers_)
      all += w.present ? w.speed : 0;
    auto ticket = random_.below(all);
    for (std::size_t i = 0;; ++i)
      if (workers_[i].present) {
        if (ticket < workers_[i].speed)
          return i;
        ticket -= workers_[i].speed;
      }
  }

  void step_of_one(std::size_t rank) {
    auto& w = workers_[rank];
    ask(rank);
    if (w.leases.empty()) {
      idle_ += 1;
      BOOST_REQUIRE_MESSAGE(idle_ < 100'000, "nobody gets a lease, and the epoch is not done");
      return;
    }
    idle_ = 0;
    if (++w.batch == batches_of(w.leases.front()))
      settle_front(rank);
  }

  void step_of_all() {
    std::uint64_t trained = 0;
    const auto& first = workers_[0];
    BOOST_REQUIRE(!first.leases.empty());
    for (auto& w : workers_) {
      BOOST_REQUIRE(!w.leases.empty());
      BOOST_REQUIRE(w.leases.front().begin() == first.leases.front().begin());
      BOOST_REQUIRE(w.leases.front().end() == first.leases.front().end());
      BOOST_REQUIRE(w.batch == first.batch);
      const auto size = batch_of(w.leases.front(), w.batch).size();
      BOOST_REQUIRE(size <= how_.batch);
      empty_batches_ += size == 0 ? 1 : 0;
      trained += size;
    }
    BOOST_REQUIRE_MESSAGE(trained > 0, "a step without samples");
    for (std::size_t rank = 0; rank < workers_.size(); ++rank)
      if (++workers_[rank].batch == batches_of(workers_[rank].leases.front()))
        settle_front(rank);
  }

  void settle_front(std::size_t rank) {
    auto& w = workers_[rank];
    commit(w.leases.front(), w.batch);
    w.leases.pop_front();
    w.batch = 0;
  }

  void commit(const proto::Lease& lease, std::uint64_t batches) {
    std::uint64_t samples = 0;
    for (std::uint64_t k = 0; k < batches; ++k) {
      const auto where = batch_of(lease, k);
      samples += where.size();
      for (auto i = where.begin; i < where.end; ++i)
        ++committed_[i];
    }
    BOOST_REQUIRE(book_.settle(lease.id(), batches, samples));
    BOOST_REQUIRE(!book_.settle(lease.id(), batches, samples));
  }

  void lose(std::size_t rank) {
    auto& w = workers_[rank];
    if (!w.present || std::ranges::count(workers_, true, &worker_state::present) == 1)
      return;
    w.present = false;
    ++lost_;
    const auto held = book_.held_by(rank);
    BOOST_REQUIRE(held.size() == w.leases.size());
    for (std::size_t i = 0; i < held.size(); ++i) {
      BOOST_REQUIRE(held[i].id() == w.leases[i].id());
      commit(held[i], i == 0 ? w.batch : 0);
    }
    BOOST_TEST(book_.held_by(rank).empty());
  }

  void check_epoch(std::uint32_t epoch) {
    BOOST_TEST(std::ranges::count(committed_, 1) == static_cast<std::ptrdiff_t>(how_.records));
    BOOST_TEST(book_.committed() == how_.records * (epoch + 1));
    BOOST_TEST(book_.leased() - book_.released() == how_.records * (epoch + 1));
    for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
      BOOST_TEST(book_.held_by(rank).empty());
      BOOST_TEST(!book_.next(rank).has_value());
    }
  }

  lease_book::options how_;
  lease_book book_;
  random_stream random_;
  std::vector<worker_state> workers_;
  /// How often each position (sample) of the epoch was trained.
  std::vector<int> committed_;
  std::size_t idle_ = 0;
  std::size_t lost_ = 0;
  std::size_t empty_batches_ = 0;
};

/// Calls `body` with many options: numbers of records and workers, batch sizes.
template <class Body>
void for_options(bool in_step, Body&& body) {
  std::uint64_t salt = 0;
  for (const std::uint64_t records : {1, 7, 64, 1000, 8000})
    for (const std::uint32_t batch : {1, 5, 64, 10'000})
      for (std::size_t workers = 1; workers <= 8; ++workers)
        BOOST_TEST_CONTEXT("records " << records << ", batch " << batch << ", workers " << workers)
  body(lease_book::options{records, batch, workers, in_step}, ++salt);
}

proto::Lease only_lease(lease_book& book) {
  auto result = book.next(0);
  BOOST_REQUIRE(result.has_value());
  return *result;
}

void settle_oldest(troupe::lease_book& book, std::size_t rank) {
  const auto lease = book.held_by(rank).front();
  const auto batches = batches_of(lease);
  BOOST_REQUIRE(book.settle(lease.id(), batches, samples_of(lease, batches)));
}

} // namespace

BOOST_AUTO_TEST_CASE(asynchronous_workers_of_all_speeds_that_vanish) {
  std::size_t lost = 0;
  for_options(false, [&](const auto& how, std::uint64_t salt) {
    run x{how, salt};
    x.asynchronously();
    lost += x.lost();
  });
  BOOST_TEST(lost > 100u, "only " << lost << " workers were lost: this tests nothing");
}

BOOST_AUTO_TEST_CASE(workers_in_step) {
  std::size_t empty = 0;
  for_options(true, [&](const auto& how, std::uint64_t salt) {
    run x{how, salt};
    x.in_step();
    empty += x.empty_batches();
  });
  BOOST_TEST(empty > 100u, "only " << empty << " empty batches");
}

BOOST_AUTO_TEST_CASE(nonsense_is_refused) {
  troupe::lease_book book{{1000, 10, 1, false}};
  BOOST_TEST(book.next(0).has_value() == false, "no epoch is open");
  book.open_epoch(3);
  const auto lease = only_lease(book);
  BOOST_TEST(lease.epoch() == 3u);
  const auto all = batches_of(lease);
  const auto samples = samples_of(lease, all);
  BOOST_REQUIRE(all >= 2);
  BOOST_TEST(!book.settle(lease.id() + 1, all, samples));
  BOOST_TEST(!book.settle(0, 0, 0));
  BOOST_TEST(!book.settle(lease.id(), all + 1, samples));
  BOOST_TEST(!book.settle(lease.id(), ~std::uint64_t{0}, samples));
  BOOST_TEST(!book.settle(lease.id(), all, samples - 1));
  BOOST_TEST(!book.settle(lease.id(), all, samples + 1));
  BOOST_TEST(!book.settle(lease.id(), 1, samples));
  BOOST_TEST(!book.settle(lease.id(), 0, 1));
  BOOST_TEST(book.committed() == 0u);
  BOOST_TEST(book.held_by(0).size() == 1u);
  BOOST_TEST(book.settle(lease.id(), all, samples));
  BOOST_TEST(!book.settle(lease.id(), all, samples));
  BOOST_TEST(book.committed() == samples);
}

BOOST_AUTO_TEST_CASE(workers_in_step_give_nothing_back) {
  troupe::lease_book book{{100, 10, 2, true}};
  book.open_epoch(0);
  const auto lease = only_lease(book);
  BOOST_TEST(batches_of(lease) == 5u);
  BOOST_TEST(!book.settle(lease.id(), 4, 40));
  BOOST_TEST(!book.settle(lease.id(), 0, 0));
  BOOST_TEST(book.settle(lease.id(), 5, 50));
}

BOOST_AUTO_TEST_CASE(what_is_given_back_is_leased_next) {
  troupe::lease_book book{{1000, 10, 1, false}};
  book.open_epoch(0);
  const auto first = only_lease(book);
  BOOST_REQUIRE(batches_of(first) > 3);
  BOOST_TEST(book.settle(first.id(), 3, 30));
  BOOST_TEST(book.released() == first.end() - 30);
  const auto again = only_lease(book);
  BOOST_TEST(again.begin() == 30u);
  BOOST_TEST(again.id() > first.id());
}

BOOST_AUTO_TEST_CASE(leases_shrink_toward_the_end) {
  for (const std::size_t workers : {1, 2, 5}) {
    troupe::lease_book book{{100'003, 16, workers, false}};
    book.open_epoch(0);
    std::vector<std::uint64_t> sizes;
    for (std::size_t i = 0; auto lease = book.next(i % workers); ++i) {
      sizes.push_back(lease->end() - lease->begin());
      if (i >= workers) // each worker holds one more lease
        settle_oldest(book, i % workers);
    }
    BOOST_TEST(std::ranges::max(sizes) == 32u * 16u, "at most 32 batches");
    BOOST_TEST(sizes.back() == 100'003u % 16u);
    // Toward the end, leases are single batches, so that all workers end together.
    BOOST_TEST(std::ranges::count(sizes, 16u) >= static_cast<std::ptrdiff_t>(workers));
    for (std::size_t i = 0; i + 1 < sizes.size(); ++i)
      BOOST_REQUIRE(sizes[i] % 16 == 0);
  }
}

// On one of four workers, a batch takes five times as long. It gets smaller leases, so all workers
// end at about the same time.
BOOST_AUTO_TEST_CASE(a_slow_worker_gets_small_leases) {
  constexpr std::size_t workers = 4;
  troupe::lease_book book{{8000, 32, workers, false}};
  for (std::uint32_t epoch = 0; epoch < 3; ++epoch) {
    book.open_epoch(epoch);
    // Each worker trains its oldest lease and holds one more. The unit of time is a batch on a fast
    // worker.
    std::array<std::uint64_t, workers> until{};
    for (std::size_t i = 0; i < 2 * workers; ++i)
      book.next(i % workers);
    while (!book.epoch_done()) {
      std::size_t next = workers;
      std::uint64_t when = 0;
      for (std::size_t i = 0; i < workers; ++i)
        if (const auto held = book.held_by(i); !held.empty()) {
          const auto end = until[i] + batches_of(held.front()) * (i == 0 ? 5 : 1);
          if (next == workers || end < when) {
            next = i;
            when = end;
          }
        }
      until[next] = when;
      settle_oldest(book, next);
      book.next(next);
    }
    // The workers train 3.2 batches per unit of time, so 250 batches take at least 78 units. The
    // slowest worker may end a little later. The limit of the first epoch is higher, because the
    // speeds are not known yet when it begins.
    BOOST_TEST(std::ranges::max(until) <= (epoch == 0 ? 100u : 90u), epoch);
  }
}

BOOST_AUTO_TEST_CASE(batches_of_a_lease) {
  // A lease of the second of two workers. It covers positions 10 to 43 in steps of 2 x 8, of which
  // this worker takes the second 8.
  proto::Lease x;
  x.set_begin(10);
  x.set_end(44);
  x.set_offset(8);
  x.set_stride(16);
  x.set_batch(8);
  BOOST_TEST(batches_of(x) == 3u);
  BOOST_TEST((batch_of(x, 0) == range{18, 26}));
  BOOST_TEST((batch_of(x, 1) == range{34, 42}));
  BOOST_TEST(batch_of(x, 2).empty());
  BOOST_TEST(samples_of(x, 3) == 16u);
  x.set_end(53);
  BOOST_TEST((batch_of(x, 2) == range{50, 53}));
  BOOST_TEST(samples_of(x, 3) == 19u);
}

// A dropped batch counts toward the end of the epoch. No worker gets it again.
BOOST_AUTO_TEST_CASE(a_batch_is_dropped) {
  troupe::lease_book book{{.records = 10, .batch = 2, .workers = 1}};
  book.open_epoch(0);
  std::uint64_t trained = 0;
  while (const auto lease = book.next(0)) {
    const bool drops = lease->begin() == 0;
    const auto batches = drops ? 0 : batches_of(*lease);
    BOOST_TEST(!book.settle(lease->id(), batches_of(*lease), lease->end() - lease->begin(), true));
    BOOST_TEST(book.settle(lease->id(), batches, samples_of(*lease, batches), drops));
    trained += samples_of(*lease, batches);
  }
  BOOST_TEST(trained == 8U);
  BOOST_TEST(book.dropped() == 2U);
  BOOST_TEST(book.committed() == 8U);
  BOOST_TEST(book.leased() - book.released() == 10U);
  BOOST_TEST(book.epoch_done());
}

// A stopped book gives out no new leases. With synchronous steps, a worker that lags behind still
// gets the leases that other workers already have, so all workers end with the same lease.
BOOST_AUTO_TEST_CASE(stopped) {
  for (const bool in_step : {false, true}) {
    troupe::lease_book book{{.records = 4'000, .batch = 2, .workers = 2, .in_step = in_step}};
    book.open_epoch(0);
    std::vector<proto::Lease> held{*book.next(0), *book.next(0)};
    BOOST_TEST(!book.stopped());
    book.stop();
    BOOST_TEST(!book.next(0));
    for (int i = 0; i < 2 && in_step; ++i) {
      const auto lease = book.next(1);
      BOOST_TEST_REQUIRE(lease.has_value());
      BOOST_TEST(lease->begin() == held[static_cast<std::size_t>(i)].begin());
      held.push_back(*lease);
    }
    BOOST_TEST(!book.next(1));
    for (auto& lease : held) {
      BOOST_TEST(!book.stopped());
      BOOST_TEST(book.settle(lease.id(), batches_of(lease), samples_of(lease, batches_of(lease))));
    }
    BOOST_TEST(book.stopped());
    BOOST_TEST(!book.epoch_done());
  }
}

BOOST_AUTO_TEST_SUITE_END()
