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

} // namespace

BOOST_AUTO_TEST_SUITE(checkpoint_assembly)

// Seven parameters in three parts of 3, 2 and 2.
BOOST_AUTO_TEST_CASE(complete_when_all_slots_of_all_parts_are_there) {
  troupe::checkpoint_assembly x{split_evenly(7, 3), 2, false};
  const std::size_t sizes[] = {3, 2, 2};
  std::vector<payload> sent;
  for (std::uint32_t slot = 0; slot < 2; ++slot)
    for (const std::uint32_t part : {2, 0, 1}) {
      sent.push_back(payload::floats(sizes[part]));
      BOOST_TEST(x.add(header(50, part, slot), sent.back())
                 == (sent.size() == 6 ? outcome::complete : outcome::taken));
      BOOST_TEST(x.add(header(50, part, slot), sent.back()) == outcome::repeated);
    }
  const auto whole = x.take(50);
  BOOST_TEST(whole.version == 50U);
  BOOST_TEST_REQUIRE(whole.slots.size() == 2U);
  // In order of parts, and not copied.
  BOOST_TEST((whole.slots[0][0].data() == sent[1].data()));
  BOOST_TEST((whole.slots[0][2].data() == sent[0].data()));
  BOOST_TEST((whole.slots[1][1].data() == sent[5].data()));
  BOOST_TEST(x.open().empty());
  BOOST_TEST(x.add(header(50, 0, 0), payload::floats(3)) == outcome::settled);
}

BOOST_AUTO_TEST_CASE(what_does_not_fit) {
  troupe::checkpoint_assembly x{split_evenly(7, 3), 2, false};
  BOOST_TEST(x.add(header(1, 3, 0), payload::floats(2)) == outcome::misfit);
  BOOST_TEST(x.add(header(1, 0, 2), payload::floats(3)) == outcome::misfit);
  BOOST_TEST(x.add(header(1, 0, 0), payload::floats(2)) == outcome::misfit);
  BOOST_TEST(x.open().empty());
}

BOOST_AUTO_TEST_CASE(parts_may_be_empty) {
  troupe::checkpoint_assembly x{split_evenly(1, 2), 1, false};
  BOOST_TEST(x.add(header(1, 1, 0), {}) == outcome::taken);
  BOOST_TEST(x.add(header(1, 0, 0), payload::floats(1)) == outcome::complete);
}

BOOST_AUTO_TEST_CASE(versions_are_apart) {
  troupe::checkpoint_assembly x{split_evenly(2, 2), 1, false};
  x.add(header(50, 0, 0), payload::floats(1));
  x.add(header(100, 0, 0), payload::floats(1));
  BOOST_TEST(x.add(header(100, 1, 0), payload::floats(1)) == outcome::complete);
  x.take(100);
  BOOST_TEST((x.open() == std::vector<std::uint64_t>{50}));
  x.drop(50);
  BOOST_TEST(x.add(header(50, 1, 0), payload::floats(1)) == outcome::settled);
  BOOST_TEST(x.add(header(150, 1, 0), payload::floats(1)) == outcome::taken);
}

BOOST_AUTO_TEST_CASE(the_least_mark_of_all_shards_counts) {
  troupe::checkpoint_assembly x{split_evenly(2, 2), 1, false};
  auto first = header(1, 0, 0);
  mark(first, 0, 7, 3);
  mark(first, 1, 2, 4);
  auto second = header(1, 1, 0);
  mark(second, 0, 6, 2);
  x.add(first, payload::floats(1));
  x.add(second, payload::floats(1));
  const auto whole = x.take(1);
  BOOST_TEST(whole.least(0, 10).sequence() == 6U);
  BOOST_TEST(whole.least(0, 10).lease() == 2U);
  BOOST_TEST(whole.least(0, 99).lease() == 0U, "another incarnation");
  BOOST_TEST(whole.least(1, 11).lease() == 0U, "the second shard has nothing of this worker");
  BOOST_TEST(whole.newest_lease() == 4U);
}

BOOST_AUTO_TEST_CASE(ranks_speak_of_their_own_worker) {
  troupe::checkpoint_assembly x{split_evenly(2, 2), 1, true};
  for (const std::uint32_t rank : {0, 1}) {
    auto part = header(1, rank, 0);
    mark(part, rank, 5, 8 + rank);
    x.add(part, payload::floats(1));
  }
  const auto whole = x.take(1);
  BOOST_TEST(whole.least(0, 10).lease() == 8U);
  BOOST_TEST(whole.least(1, 11).lease() == 9U);
  BOOST_TEST(whole.least(2, 12).lease() == 0U);
}

BOOST_AUTO_TEST_CASE(two_captures_may_be_open) {
  proto::Job job;
  BOOST_TEST(!checkpoint_schedule::of_checkpoints(job).due(50));
  BOOST_TEST(!checkpoint_schedule::of_evaluations(job).due(50));
  BOOST_TEST(checkpoint_schedule::most_open_of(job) == 0u);
  job.mutable_checkpoint()->set_every_steps(50);
  job.mutable_evaluate()->set_every_steps(7);
  BOOST_TEST(checkpoint_schedule::of_evaluations(job).due(14));
  BOOST_TEST(checkpoint_schedule::most_open_of(job) == 4u);
  auto x = checkpoint_schedule::of_checkpoints(job);
  BOOST_TEST(x.due(50));
  BOOST_TEST(!x.due(51));
  for (const std::uint64_t version : {50, 100}) {
    BOOST_TEST(x.allows(version));
    x.began(version);
  }
  BOOST_TEST(x.allows(149));
  BOOST_TEST(!x.allows(150));
  BOOST_TEST(x.newest() == 100U);
  x.ended();
  BOOST_TEST(x.allows(150));
}

BOOST_AUTO_TEST_SUITE_END()
