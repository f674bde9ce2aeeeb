#include "actors/parameter_server/gradient_journal.hpp"

#include "tests/support/allocations.hpp"

#include <boost/test/unit_test.hpp>

#include <set>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(gradient_journal)

namespace {

proto::GradientId gradient(std::uint64_t sequence, std::uint32_t worker = 3,
                           std::uint64_t incarnation = 99) {
  proto::GradientId result;
  result.set_worker(worker);
  result.set_incarnation(incarnation);
  result.set_sequence(sequence);
  return result;
}

/// An answer of a shard. Answers with different versions differ.
proto::Pushed answer(std::uint64_t version, proto::Outcome outcome = proto::APPLIED) {
  proto::Pushed result;
  result.set_outcome(outcome);
  result.set_version(version);
  result.set_staleness(version % 5);
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(repetitions_get_the_first_answer) {
  troupe::gradient_journal journal;
  BOOST_TEST(!journal.find(gradient(1)).has_value());
  journal.record(gradient(1), answer(11), 5, 0);
  for (int i = 1; i <= 3; ++i) {
    const auto found = journal.find(gradient(1));
    BOOST_REQUIRE(found.has_value());
    BOOST_TEST(found->duplicate());
    BOOST_TEST(found->outcome() == proto::APPLIED);
    BOOST_TEST(found->version() == 11u);
    BOOST_TEST(found->staleness() == 1u);
    BOOST_TEST(journal.duplicates() == static_cast<std::uint64_t>(i));
  }
  BOOST_TEST(!journal.find(gradient(2)).has_value());
  BOOST_TEST(!journal.find(gradient(1, 4)).has_value(), "another worker");
  BOOST_TEST(!journal.find(gradient(1, 3, 100)).has_value(), "another life of this worker");
  BOOST_TEST(journal.duplicates() == 3u);
}

BOOST_AUTO_TEST_CASE(refusals_are_repeated_too) {
  troupe::gradient_journal journal;
  journal.record(gradient(1), answer(1, proto::REJECTED_STALE), 5, 0);
  journal.record(gradient(2), answer(2, proto::LOST), 5, 0);
  BOOST_TEST(journal.find(gradient(1))->outcome() == proto::REJECTED_STALE);
  BOOST_TEST(journal.find(gradient(2))->outcome() == proto::LOST);
}

BOOST_AUTO_TEST_CASE(the_last_eight_answers_are_remembered) {
  troupe::gradient_journal journal;
  for (std::uint64_t s = 1; s <= 20; ++s)
    journal.record(gradient(s), answer(100 + s, s <= 12 ? proto::APPLIED : proto::LOST), 5, s);
  for (std::uint64_t s = 13; s <= 20; ++s)
    BOOST_TEST(journal.find(gradient(s))->version() == 100 + s);
  for (std::uint64_t s = 1; s <= 12; ++s) {
    const auto found = journal.find(gradient(s));
    BOOST_REQUIRE(found.has_value());
    BOOST_TEST(found->duplicate());
    BOOST_TEST(found->outcome() == proto::APPLIED);
  }
}

// It is possible that this shard never receives a gradient, because the first shard rejected it. So
// the recorded numbers have gaps.
BOOST_AUTO_TEST_CASE(gaps_in_the_sequence) {
  troupe::gradient_journal journal;
  journal.record(gradient(1), answer(1), 5, 0);
  journal.record(gradient(4), answer(2), 5, 1);
  BOOST_TEST(!journal.find(gradient(2)).has_value(), "not decided: it may still come");
  BOOST_TEST(!journal.find(gradient(3)).has_value());
  BOOST_TEST(journal.find(gradient(4))->version() == 2u);
  BOOST_TEST(!journal.find(gradient(5)).has_value());
  const auto decided = journal.decided(3, 99);
  BOOST_TEST(decided.applied() == 2u);
  BOOST_TEST(decided.sequence() == 4u);
}

BOOST_AUTO_TEST_CASE(gaps_that_are_filled_late) {
  troupe::gradient_journal journal;
  for (const std::uint64_t s : {2, 5, 3, 1, 70, 4, 71})
    journal.record(gradient(s), answer(s), 5, s);
  for (const std::uint64_t s : {1, 2, 3, 4, 5, 70, 71})
    BOOST_TEST(journal.find(gradient(s)).has_value(), s);
  for (const std::uint64_t s : {8, 69, 72})
    BOOST_TEST(!journal.find(gradient(s)).has_value(), s);
  BOOST_TEST(journal.find(gradient(7)).has_value(), "over: 64 behind the newest");
  journal.record(gradient(std::uint64_t{1} << 40), answer(9), 5, 0);
  BOOST_TEST(journal.find(gradient(72)).has_value());
  BOOST_TEST(!journal.find(gradient((std::uint64_t{1} << 40) - 1)).has_value());
}

BOOST_AUTO_TEST_CASE(quarantined_gradients_count_as_trained) {
  troupe::gradient_journal journal;
  journal.record(gradient(1), answer(1), 5, 0);
  journal.record(gradient(2), answer(1, proto::QUARANTINED), 5, 1);
  const auto x = journal.decided(3, 99);
  BOOST_TEST(x.applied() == 1u);
  BOOST_TEST(x.quarantined() == 1u);
  BOOST_TEST(x.batch() == 1u);
  BOOST_TEST(x.fingerprint() == fingerprint(99, 1));
}

BOOST_AUTO_TEST_CASE(what_was_decided) {
  troupe::gradient_journal journal;
  const auto none = journal.decided(3, 99);
  BOOST_TEST(none.worker() == 3u);
  BOOST_TEST(none.incarnation() == 99u);
  BOOST_TEST(none.applied() + none.rejected_stale() + none.lost() + none.fingerprint() == 0u);
  BOOST_TEST(journal.decided().empty());
  journal.record(gradient(1), answer(1), 5, 0);
  journal.record(gradient(2), answer(2), 5, 1);
  journal.record(gradient(3), answer(2, proto::REJECTED_STALE), 6, 2);
  journal.record(gradient(4), answer(2, proto::LOST), 7, 3);
  journal.record(gradient(1, 0), answer(3), 8, 4);
  const auto x = journal.decided(3, 99);
  BOOST_TEST(x.applied() == 2u);
  BOOST_TEST(x.rejected_stale() == 1u);
  BOOST_TEST(x.lost() == 1u);
  BOOST_TEST(x.sequence() == 2u, "the last one applied");
  BOOST_TEST(x.lease() == 5u);
  BOOST_TEST(x.batch() == 1u);
  BOOST_TEST(x.fingerprint() == fingerprint(99, 1) + fingerprint(99, 2));
  const auto all = journal.decided();
  BOOST_REQUIRE(all.size() == 2u);
  BOOST_TEST(all[0].worker() == 0u);
  BOOST_TEST(all[1].worker() == 3u);
}

BOOST_AUTO_TEST_CASE(fences) {
  troupe::gradient_journal journal;
  BOOST_TEST(!journal.fenced(gradient(1)));
  journal.record(gradient(1), answer(1), 5, 0);
  journal.fence(3, 99);
  journal.fence(8, 1);
  BOOST_TEST(journal.fenced(gradient(2)));
  BOOST_TEST(!journal.fenced(gradient(2, 3, 100)), "its next life may work again");
  BOOST_TEST(!journal.fenced(gradient(2, 4)));
  BOOST_TEST(journal.fenced(gradient(1, 8, 1)), "one that never sent anything");
  BOOST_TEST(journal.decided(3, 99).applied() == 1u);
  BOOST_TEST(journal.find(gradient(1)).has_value(), "decided before the fence");
}

BOOST_AUTO_TEST_CASE(fingerprints_tell_sets_apart) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t incarnation = 1; incarnation <= 100; ++incarnation)
    for (std::uint64_t sequence = 1; sequence <= 100; ++sequence)
      seen.insert(fingerprint(incarnation, sequence));
  BOOST_TEST(seen.size() == 10'000u);
  BOOST_TEST(fingerprint(1, 1) + fingerprint(1, 4) != fingerprint(1, 2) + fingerprint(1, 3));
}

BOOST_AUTO_TEST_CASE(memory_does_not_grow) {
  troupe::gradient_journal journal;
  for (std::uint32_t worker = 0; worker < 4; ++worker)
    journal.record(gradient(1, worker), answer(1), 1, 0);
  const auto before = allocations();
  std::uint64_t found = 0;
  for (std::uint64_t s = 2; s <= 20'000; ++s)
    for (std::uint32_t worker = 0; worker < 4; ++worker) {
      const auto id = gradient(s, worker);
      journal.record(id, answer(s), s / 32, s % 32);
      found += journal.find(id).has_value() ? 1 : 0;
    }
  BOOST_TEST(allocations() - before == 0u);
  BOOST_TEST(found == 4u * 19'999u);
  BOOST_TEST(journal.decided().size() == 4u);
}

BOOST_AUTO_TEST_SUITE_END()
