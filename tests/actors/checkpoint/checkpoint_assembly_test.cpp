#include "actors/checkpoint/checkpoint_assembly.hpp"

#include "actors/checkpoint/checkpoint_schedule.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using outcome = checkpoint_assembly::outcome;

BOOST_TEST_DONT_PRINT_LOG_VALUE(outcome)

namespace {

proto::CheckpointPart header(std::uint64_t version, std::uint32_t part, std::uint32_t slot) {
  proto::CheckpointPart result;
  result.set_version(version);
  result.set_part(part);
  result.set_slot(slot);
  return result;
}

void mark(proto::CheckpointPart& x, std::uint32_t worker, std::uint64_t sequence,
          std::uint64_t lease) {
  auto* m = x.add_mark();
  m->set_worker(worker);
  m->set_incarnation(worker + 10);
  m->set_sequence(sequence);
  m->set_lease(lease);
}

troupe::checkpoint_assembly assembly(std::size_t parameters, std::size_t parts,
                                     std::size_t slots = 1, std::uint64_t every = 1,
                                     bool one_worker_each = false) {
  return troupe::checkpoint_assembly{
    {split_evenly(parameters, parts), slots, every, one_worker_each, 0, 0}};
}

const troupe::checkpoint_assembly::time_point now{};

/// Adds a part that holds one parameter, in slot 0 (the weights).
outcome add(troupe::checkpoint_assembly& x, std::uint64_t version, std::uint32_t part) {
  return x.add(header(version, part, 0), payload::floats(1), now);
}

std::uint64_t next(troupe::checkpoint_assembly& x) {
  const auto whole = x.next();
  return whole ? whole->version : 0;
}

} // namespace

BOOST_AUTO_TEST_SUITE(checkpoint_assembly)

BOOST_AUTO_TEST_CASE(versions_after_the_end_of_the_job_do_not_fit) {
  troupe::checkpoint_assembly::options how{split_evenly(1, 1)};
  how.last = 40;
  const troupe::checkpoint_assembly x{how};
  BOOST_TEST(x.problem(header(40, 0, 0), 4) == "");
  BOOST_TEST(x.problem(header(41, 0, 0), 4) == "version 41, but this job ends before version 41");
}

// Shards and ranks that hold parts of the state are called holders. Slot 0 (the weights) has three
// parts, one from each holder. Slots 1 to 3 have one part each: slot i is the state of holder i -
// 1.
BOOST_AUTO_TEST_CASE(slots_in_one_piece) {
  troupe::checkpoint_assembly x{{split_evenly(7, 3), 4, 1, true, 0, 0, 3}};
  const std::size_t sizes[] = {3, 2, 2};
  BOOST_TEST(x.problem(header(1, 2, 2), 8)
             == "8 bytes in part 2 of version 1, which holds parameters 0 to 7 and has 28");
  for (const std::uint32_t holder : {1, 2, 0}) {
    BOOST_TEST(x.problem(header(1, holder, 0), sizes[holder] * 4) == "");
    BOOST_TEST(x.add(header(1, holder, 0), payload::floats(sizes[holder]), now) == outcome::taken);
    const auto own = header(1, holder, 1 + holder);
    BOOST_TEST(x.wants(own));
    BOOST_TEST(x.problem(own, 28) == "");
    BOOST_TEST(x.add(own, payload::floats(7), now)
               == (holder == 0 ? outcome::complete : outcome::taken));
    BOOST_TEST(!x.wants(own));
  }
  const auto whole = x.next();
  BOOST_TEST_REQUIRE(whole.has_value());
  for (std::size_t slot = 0; slot < 4; ++slot)
    BOOST_TEST(whole->slots[slot].size() == (slot == 0 ? 3U : 1U));
}

// Holder 1 sends parts of version 1. Holder 0 sends version 2 without having sent version 1. So
// version 1 can never be complete, and its other parts are refused.
BOOST_AUTO_TEST_CASE(a_version_is_skipped_though_slots_in_one_piece_came) {
  troupe::checkpoint_assembly x{{split_evenly(4, 2), 3, 1, true, 0, 0, 2}};
  x.add(header(1, 1, 0), payload::floats(2), now);
  x.add(header(1, 1, 2), payload::floats(4), now);
  BOOST_TEST(x.open() == 1U);
  x.add(header(2, 0, 0), payload::floats(2), now);
  BOOST_TEST(!x.wants(header(1, 1, 1)));
}

// Three holders have 3, 2 and 2 of the seven parameters.
BOOST_AUTO_TEST_CASE(complete_when_all_slots_of_all_parts_are_there) {
  auto x = assembly(7, 3, 2);
  const std::size_t sizes[] = {3, 2, 2};
  std::vector<payload> sent;
  for (std::uint32_t slot = 0; slot < 2; ++slot)
    for (const std::uint32_t part : {2, 0, 1}) {
      BOOST_TEST(x.wants(header(50, part, slot)));
      BOOST_TEST(!x.next().has_value());
      sent.push_back(payload::floats(sizes[part]));
      BOOST_TEST(x.add(header(50, part, slot), sent.back(), now)
                 == (sent.size() == 6 ? outcome::complete : outcome::taken));
      BOOST_TEST(x.add(header(50, part, slot), sent.back(), now) == outcome::repeated);
      BOOST_TEST(!x.wants(header(50, part, slot)));
    }
  const auto whole = x.next();
  BOOST_TEST_REQUIRE(whole.has_value());
  BOOST_TEST(whole->version == 50U);
  BOOST_TEST_REQUIRE(whole->slots.size() == 2U);
  // In each slot, the parts are in the order of their numbers. They share memory with the messages:
  // nothing was copied.
  BOOST_TEST((whole->slots[0][0].data() == sent[1].data()));
  BOOST_TEST((whole->slots[0][2].data() == sent[0].data()));
  BOOST_TEST((whole->slots[1][1].data() == sent[5].data()));
  BOOST_TEST(!x.idle());
  x.done();
  BOOST_TEST(x.idle());
  BOOST_TEST(!x.wants(header(50, 0, 0)));
  BOOST_TEST(x.add(header(50, 0, 0), payload::floats(3), now) == outcome::settled);
}

BOOST_AUTO_TEST_CASE(what_does_not_fit) {
  troupe::checkpoint_assembly x{{split_evenly(7, 3), 2, 10, false, 20, 0}};
  BOOST_TEST(x.problem(header(30, 0, 0), 12) == "");
  BOOST_TEST(x.problem(header(30, 0, 0), 0) == "", "a question");
  BOOST_TEST(x.problem(header(30, 3, 0), 8) == "part 3 of version 30, but there are 3 parts");
  BOOST_TEST(x.problem(header(30, 0, 2), 12)
             == "slot 2 of version 30, but the optimizer has 1 slots besides the weights");
  BOOST_TEST(x.problem(header(30, 1, 0), 12)
             == "12 bytes in part 1 of version 30, which holds parameters 3 to 5 and has 8");
  for (const std::uint64_t version : {0, 10, 20, 31})
    BOOST_TEST(x.problem(header(version, 0, 0), 12)
               == "version " + std::to_string(version) + ": expected a multiple of 10 after 20");
}

BOOST_AUTO_TEST_CASE(parts_may_be_empty) {
  auto x = assembly(1, 2);
  BOOST_TEST(x.add(header(1, 1, 0), {}, now) == outcome::taken);
  BOOST_TEST(x.add(header(1, 0, 0), payload::floats(1), now) == outcome::complete);
}

BOOST_AUTO_TEST_CASE(one_is_out_at_a_time) {
  auto x = assembly(1, 1);
  add(x, 1, 0);
  BOOST_TEST(next(x) == 1U);
  add(x, 2, 0);
  BOOST_TEST(next(x) == 0U);
  x.done();
  BOOST_TEST(next(x) == 2U);
}

// The disk is slow. It writes the newest complete version next. At most two versions are in memory.
BOOST_AUTO_TEST_CASE(a_newer_one_takes_the_place_of_one_that_waits) {
  auto x = assembly(2, 2, 1, 10);
  for (std::uint64_t version = 10; version <= 100; version += 10)
    for (const std::uint32_t part : {0, 1}) {
      add(x, version, part);
      if (version == 10)
        next(x);
      BOOST_TEST(x.open() <= checkpoint_schedule::most_open);
    }
  BOOST_TEST(x.missed() == 8U);
  x.done();
  BOOST_TEST(next(x) == 100U);
}

// Versions with few bytes are copied while the disk is busy. At most eight copies wait. They are
// written in order.
BOOST_AUTO_TEST_CASE(small_versions_that_wait_hold_up_no_others) {
  troupe::checkpoint_assembly x{{split_evenly(2, 2), 1, 10, false, 0, 8}};
  std::vector<payload> sent;
  for (std::uint64_t version = 10; version <= 150; version += 10)
    for (const std::uint32_t part : {0, 1}) {
      sent.push_back(payload::floats(1));
      sent.back().as_mutable_floats()[0] = static_cast<float>(version + part);
      x.add(header(version, part, 0), sent.back(), now);
      if (version == 10)
        next(x);
      BOOST_TEST(x.open() <= checkpoint_schedule::most_open);
    }
  // Version 10 is being written, and the next eight versions are copied and wait. Of all later
  // versions, only the newest is kept.
  BOOST_TEST(x.missed() == 5U);
  for (const std::uint64_t version : {20, 30, 40, 50, 60, 70, 80, 90, 150}) {
    x.done();
    const auto whole = x.next();
    BOOST_TEST_REQUIRE(whole.has_value());
    BOOST_TEST(whole->version == version);
    for (std::size_t part = 0; part < 2; ++part) {
      const auto& given = sent[2 * (version / 10 - 1) + part];
      BOOST_TEST(whole->slots[0][part].as_floats()[0] == given.as_floats()[0]);
      BOOST_TEST((whole->slots[0][part].data() != given.data()) == (version <= 90));
    }
  }
  x.done();
  BOOST_TEST(x.idle());
}

// Holder 1 (a shard or rank) is slow: it sends some versions late and skips others.
BOOST_AUTO_TEST_CASE(a_holder_that_lags_behind) {
  auto x = assembly(2, 2, 1, 10);
  for (const std::uint64_t version : {10, 20})
    BOOST_TEST(add(x, version, 0) == outcome::taken);
  BOOST_TEST(add(x, 30, 0) == outcome::refused);
  BOOST_TEST(add(x, 10, 1) == outcome::complete);
  BOOST_TEST(next(x) == 10U);
  x.done();
  // Part 0 of version 30 was refused, so part 1 is refused, too.
  BOOST_TEST(!x.wants(header(30, 1, 0)));
  BOOST_TEST(add(x, 30, 1) == outcome::refused);
  BOOST_TEST(add(x, 40, 0) == outcome::taken);
  // Part 1 of version 50 arrives. Each shard or rank sends its versions in order, so part 1 of
  // versions 20 and 40 will not arrive any more.
  BOOST_TEST(add(x, 50, 1) == outcome::taken);
  BOOST_TEST(x.open() == 1U);
  BOOST_TEST(add(x, 40, 1) == outcome::refused);
  BOOST_TEST(add(x, 50, 0) == outcome::complete);
  BOOST_TEST(x.missed() == 3U);
}

// Some versions become complete even if one shard or rank sends its parts late or skips versions.
BOOST_AUTO_TEST_CASE(nobody_starves) {
  for (const std::uint64_t lag : {0, 1, 2, 3, 5, 8}) {
    auto x = assembly(2, 2);
    struct capture {
      std::uint64_t version;
      std::uint64_t arrives;
    };
    std::vector<capture> on_the_way;
    std::size_t completed = 0;
    for (std::uint64_t version = 1; version <= 200; ++version) {
      std::erase_if(on_the_way, [&](auto& y) {
        if (y.arrives > version)
          return false;
        completed += add(x, y.version, 1) == outcome::complete ? 1 : 0;
        return true;
      });
      if (on_the_way.size() < checkpoint_schedule::most_open)
        on_the_way.push_back({version, version + lag});
      completed += add(x, version, 0) == outcome::complete ? 1 : 0;
      while (next(x) > 0)
        x.done();
      BOOST_TEST(x.open() <= checkpoint_schedule::most_open);
    }
    BOOST_TEST(completed >= 200 / (3 * (lag + 1)), "lag " << lag << ": " << completed);
  }
}

BOOST_AUTO_TEST_CASE(what_comes_late_is_given_up) {
  using namespace std::chrono_literals;
  auto x = assembly(2, 2);
  add(x, 1, 0);
  x.drop_late(now + 10s, 10s);
  BOOST_TEST(!x.idle());
  x.drop_late(now + 11s, 10s);
  BOOST_TEST(x.idle());
  BOOST_TEST(add(x, 1, 1) == outcome::refused);
}

BOOST_AUTO_TEST_CASE(the_end_waits_for_what_is_on_its_way) {
  using namespace std::chrono_literals;
  for (const bool began : {false, true}) {
    auto x = assembly(2, 2, 1, 10);
    if (began) {
      add(x, 10, 0);
      add(x, 20, 0);
    }
    x.finish(10, now);
    BOOST_TEST(!x.idle(), "10 is on its way");
    BOOST_TEST(!x.next().has_value());
    for (const std::uint32_t part : {0, 1})
      add(x, 10, part);
    BOOST_TEST(next(x) == 10U);
    x.done();
    BOOST_TEST(x.idle());
    x.finish(10, now);
    BOOST_TEST(x.idle());
  }
}

// Holder 1 skips version 20, but sends version 30 before holder 0 sends version 20. So version 20
// is never complete, and the end does not wait for it.
BOOST_AUTO_TEST_CASE(the_end_does_not_wait_for_what_was_skipped) {
  for (const bool late : {false, true}) {
    auto x = assembly(2, 2, 1, 10);
    for (const std::uint32_t part : {0, 1})
      add(x, 10, part);
    BOOST_TEST(next(x) == 10U);
    x.done();
    if (!late)
      BOOST_TEST(add(x, 30, 1) == outcome::taken);
    BOOST_TEST(add(x, 20, 0) == (late ? outcome::taken : outcome::refused));
    x.finish(20, now);
    BOOST_TEST(x.idle() == !late);
    BOOST_TEST(add(x, 30, 1) == outcome::refused);
    BOOST_TEST(x.idle());
  }
}

// Holder 1 has sent nothing.
BOOST_AUTO_TEST_CASE(the_end_does_not_wait_if_a_holder_has_no_version) {
  auto x = assembly(2, 2, 1, 10);
  add(x, 10, 0);
  x.finish(0, now);
  BOOST_TEST(x.idle());
}

// A worker was lost. Therefore the shards or ranks ended at different versions, and no last version
// is complete. Version 20, which was due earlier, is still written.
BOOST_AUTO_TEST_CASE(a_due_version_is_kept_if_there_is_no_last_one) {
  auto x = assembly(2, 2, 1, 10);
  x.expect_end();
  add(x, 20, 0);
  add(x, 23, 0);
  x.finish(std::nullopt, now);
  BOOST_TEST(!x.idle());
  BOOST_TEST((add(x, 20, 1) == outcome::complete));
  BOOST_TEST(next(x) == 20U);
  x.done();
  BOOST_TEST(x.idle());
}

BOOST_AUTO_TEST_CASE(the_least_mark_of_all_shards_counts) {
  auto x = assembly(2, 2);
  auto first = header(1, 0, 0);
  mark(first, 0, 7, 3);
  mark(first, 1, 2, 4);
  auto second = header(1, 1, 0);
  mark(second, 0, 6, 2);
  x.add(first, payload::floats(1), now);
  x.add(second, payload::floats(1), now);
  const auto whole = *x.next();
  BOOST_TEST(whole.least(0, 10).sequence() == 6U);
  BOOST_TEST(whole.least(0, 10).lease() == 2U);
  BOOST_TEST(whole.least(0, 99).lease() == 0U, "another incarnation");
  BOOST_TEST(whole.least(1, 11).lease() == 0U, "the second shard has nothing of this worker");
  BOOST_TEST(whole.newest_lease() == 4U);
}

BOOST_AUTO_TEST_CASE(ranks_speak_of_their_own_worker) {
  auto x = assembly(2, 2, 1, 1, true);
  for (const std::uint32_t rank : {0, 1}) {
    auto part = header(1, rank, 0);
    mark(part, rank, 5, 8 + rank);
    x.add(part, payload::floats(1), now);
  }
  const auto whole = *x.next();
  BOOST_TEST(whole.least(0, 10).lease() == 8U);
  BOOST_TEST(whole.least(1, 11).lease() == 9U);
  BOOST_TEST(whole.least(2, 12).lease() == 0U);
}

BOOST_AUTO_TEST_CASE(two_captures_may_be_on_their_way) {
  proto::Job job;
  BOOST_TEST(!checkpoint_schedule::of_checkpoints(job).due(50));
  BOOST_TEST(!checkpoint_schedule::of_evaluations(job).due(50));
  BOOST_TEST(checkpoint_schedule::most_open_of(job) == 0u);
  job.mutable_checkpoint()->set_every_steps(50);
  job.mutable_evaluate()->set_every_steps(7);
  BOOST_TEST(checkpoint_schedule::of_evaluations(job).due(14));
  BOOST_TEST(checkpoint_schedule::most_open_of(job) == 4u);
  auto x = checkpoint_schedule::of_checkpoints(job);
  BOOST_TEST(!x.due(51));
  for (const std::uint64_t version : {50, 100}) {
    BOOST_TEST(x.due(version));
    x.began(version);
  }
  // Two captures are still open, so version 150 is not captured. Calls of `ended` follow only for
  // versions that were captured.
  BOOST_TEST(!x.due(150));
  BOOST_TEST(x.newest() == 100U);
  BOOST_TEST(!x.ended(50, true));
  BOOST_TEST(x.due(200));
}

// The last version, 30, is also due by the schedule. It was refused because two other versions were
// still arriving or being written. The holder (a shard or rank) sends it again at the end.
BOOST_AUTO_TEST_CASE(the_last_version_was_left_out) {
  auto x = assembly(2, 2, 1, 10);
  add(x, 10, 0);
  add(x, 10, 1);
  BOOST_TEST(next(x) == 10U);
  add(x, 20, 0);
  BOOST_TEST((add(x, 30, 0) == outcome::refused));
  BOOST_TEST((add(x, 30, 1) == outcome::refused));
  x.expect_end();
  BOOST_TEST(x.wants(header(30, 0, 0)));
  x.finish(30, now);
  x.done();
  BOOST_TEST(!x.idle());
  BOOST_TEST((add(x, 30, 0) == outcome::taken));
  BOOST_TEST((add(x, 30, 1) == outcome::complete));
  BOOST_TEST(next(x) == 30U);
  x.done();
  BOOST_TEST(x.idle());

  // The holder may hear that version 30 was refused (`ended(30, false)`) before or after the end of
  // the run.
  auto before = checkpoint_schedule{10};
  before.began(30);
  BOOST_TEST(!before.ended(30, false));
  BOOST_TEST(before.due_at_end(30));
  auto after = checkpoint_schedule{10};
  after.began(20);
  after.began(30);
  BOOST_TEST(!after.due_at_end(30));
  BOOST_TEST(!after.ended(20, false));
  BOOST_TEST(after.ended(30, false));
  after.began(30);
  BOOST_TEST(!after.ended(30, false), "it is sent again only once");
  auto kept = checkpoint_schedule{10};
  kept.began(30);
  BOOST_TEST(!kept.ended(30, true));
  BOOST_TEST(!kept.due_at_end(30));
}

// A run may end at any step. The coordinator takes the last version even if two other versions are
// still arriving or being written.
BOOST_AUTO_TEST_CASE(the_last_version) {
  auto x = assembly(2, 2, 1, 10);
  add(x, 10, 0);
  add(x, 10, 1);
  BOOST_TEST(next(x) == 10U);
  add(x, 20, 0);
  BOOST_TEST(x.problem(header(25, 0, 0), 4) == "version 25: expected a multiple of 10");
  BOOST_TEST(x.open() == checkpoint_schedule::most_open);
  x.expect_end();
  BOOST_TEST(x.problem(header(25, 0, 0), 4) == "");
  BOOST_TEST((add(x, 25, 0) == outcome::taken));
  BOOST_TEST((add(x, 25, 1) == outcome::complete));
  x.finish(25, now);
  x.done();
  BOOST_TEST(next(x) == 25U);
  x.done();
  BOOST_TEST(x.idle());
  BOOST_TEST(x.missed() == 1U);

  auto schedule = checkpoint_schedule{10};
  BOOST_TEST(schedule.due_at_end(25));
  for (const std::uint64_t version : {10, 20})
    schedule.began(version);
  BOOST_TEST(!schedule.due(30));
  BOOST_TEST(schedule.due_at_end(30));
  BOOST_TEST(!schedule.due_at_end(20));
  BOOST_TEST(!checkpoint_schedule{0}.due_at_end(25));
}

BOOST_AUTO_TEST_SUITE_END()
