#include "actors/replica/replica_store.hpp"

#include "tests/actors/model/example_job.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <iterator>
#include <limits>
#include <vector>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(replica_store)

namespace {

/// A job with Adam, which has two slots of state, and a schedule. So an update depends on the
/// weights, the state, the samples and the number of updates. Each tensor is a bucket (a part that
/// is updated at once).
std::shared_ptr<const job_context> context() {
  auto job = digits_job();
  job.mutable_optimizer()->set_kind(proto::ADAM);
  job.mutable_optimizer()->clear_momentum();
  job.mutable_learning_rate()->mutable_cosine();
  job.mutable_runtime()->set_bucket_bytes(1);
  auto result = make_job_context(job, {{.dims = {1, 28, 28}, .label_width = 10}, 100});
  BOOST_TEST_REQUIRE(result->buckets().size() > 1);
  return result;
}

range all(const job_context& job) {
  return {0, job.parameters().size()};
}

payload gradient_of(const job_context& job, std::uint64_t step) {
  auto result = payload::floats(job.parameters().size());
  std::ranges::transform(random_values(job.parameters().size(), "gradient", step),
                         result.as_mutable_floats().begin(),
                         [](double x) { return static_cast<float>(x); });
  return result;
}

std::span<const float> cut(const payload& x, range where) {
  return x.as_floats().subspan(where.begin, where.size());
}

void stage(replica_store& store, const payload& gradient, std::uint64_t samples) {
  for (std::size_t b = 0; b < store.buckets(); ++b)
    store.stage(b, cut(gradient, store.where(b)), samples);
}

void step(replica_store& store, const job_context& job, std::uint64_t number,
          std::uint64_t samples = 8) {
  stage(store, gradient_of(job, number), samples);
  store.publish(number + 1);
}

/// Makes step i. Step 3 has no samples, and in step 5 some gradients are left out.
void uneven_step(replica_store& store, const job_context& job, std::uint64_t i) {
  stage(store, gradient_of(job, i), i == 3 ? 0 : 8);
  store.publish(i + 1, i == 5 ? 4 : 0);
}

/// The message that restores one slot of a checkpoint.
proto::Restore order(std::size_t slot, std::uint64_t version, std::uint64_t samples) {
  proto::Restore result;
  result.set_slot(static_cast<std::uint32_t>(slot));
  result.set_version(version);
  result.set_samples(samples);
  return result;
}

/// A copy of the weights and of all slots of the state.
std::vector<payload> everything(const replica_store& store) {
  std::size_t end = 0;
  for (std::size_t b = 0; b < store.buckets(); ++b)
    end = std::max(end, store.where(b).end);
  return store.capture({0, end}, true);
}

void check_same(const std::vector<payload>& a, const std::vector<payload>& b) {
  BOOST_TEST_REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    BOOST_TEST(same_bits(a[i].as_floats(), b[i].as_floats()), "slot " << i);
}

bool differs(const std::vector<payload>& a, const std::vector<payload>& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (same_bits(a[i].as_floats(), b[i].as_floats()))
      return false;
  return true;
}

} // namespace

BOOST_AUTO_TEST_CASE(has_the_bits_of_updates_in_place) {
  const auto job = context();
  troupe::replica_store store{job};
  range_updater serial{*job, all(*job)};
  std::vector<float> expected(job->parameters().size());
  job->initialize(all(*job), expected);
  BOOST_TEST(same_bits(store.weights(all(*job)).as_floats(), expected));
  for (std::uint64_t i = 0; i < 10; ++i) {
    const auto samples = i % 4 == 3 ? 5 : 8;
    serial.apply(expected, gradient_of(*job, i).as_floats(), samples, expected);
    step(store, *job, i, samples);
  }
  BOOST_TEST(store.version() == 10u);
  BOOST_TEST(same_bits(store.weights(all(*job)).as_floats(), expected));
  for (std::size_t slot = 0; slot < 2; ++slot)
    BOOST_TEST(same_bits(store.state(slot, all(*job)).as_floats(), serial.state(slot)));
}

BOOST_AUTO_TEST_CASE(nothing_shows_before_it_is_published) {
  const auto job = context();
  troupe::replica_store store{job};
  step(store, *job, 0);
  const auto before = everything(store);
  const auto gradient = gradient_of(*job, 1);
  for (std::size_t b = 0; b < store.buckets(); ++b) {
    BOOST_TEST(!store.staged());
    store.stage(b, cut(gradient, store.where(b)), 8);
  }
  BOOST_TEST(store.staged());
  check_same(everything(store), before);
  BOOST_TEST(store.version() == 1u);
  for (const auto& x : store.newest())
    BOOST_TEST(x.version == 1u);
  store.publish(2);
  BOOST_TEST(differs(everything(store), before));
  for (const auto& x : store.newest())
    BOOST_TEST(x.version == 2u);
}

// Stages some or all buckets of a step and then discards them, also with a gradient that is not
// finite.
BOOST_AUTO_TEST_CASE(what_is_discarded_leaves_no_trace) {
  const auto job = context();
  for (std::size_t count = 1; count <= job->buckets().size(); ++count) {
    troupe::replica_store plain{job};
    troupe::replica_store store{job};
    auto bad = gradient_of(*job, 77);
    std::ranges::fill(bad.as_mutable_floats(), std::numeric_limits<float>::quiet_NaN());
    for (std::uint64_t i = 0; i < 4; ++i) {
      for (std::size_t b = 0; b < count; ++b)
        store.stage(b, cut(bad, store.where(b)), 1000);
      store.discard();
      BOOST_TEST(!store.staged());
      step(store, *job, i);
      step(plain, *job, i);
    }
    check_same(everything(store), everything(plain));
  }
}

BOOST_AUTO_TEST_CASE(staging_again_replaces) {
  const auto job = context();
  troupe::replica_store plain{job};
  troupe::replica_store store{job};
  stage(store, gradient_of(*job, 5), 3);
  step(store, *job, 0);
  step(plain, *job, 0);
  check_same(everything(store), everything(plain));
}

BOOST_AUTO_TEST_CASE(newest_covers_the_parameters) {
  const auto job = context();
  troupe::replica_store store{job};
  step(store, *job, 0);
  const auto flat = store.weights(all(*job));
  std::size_t end = 0;
  for (const auto& x : store.newest()) {
    BOOST_TEST(x.begin == end);
    end += x.data.as_floats().size();
    BOOST_TEST(same_bits(x.data.as_floats(), cut(flat, {x.begin, end})));
  }
  BOOST_TEST(end == all(*job).size());
}

BOOST_AUTO_TEST_CASE(versions_that_are_held_do_not_change) {
  const auto job = context();
  troupe::replica_store store{job};
  const auto first = store.weights(all(*job));
  std::vector<std::vector<troupe::replica_store::part>> held{store.newest()};
  step(store, *job, 0);
  held.push_back(store.newest());
  step(store, *job, 1);
  held.push_back(store.newest());
  step(store, *job, 2);
  for (const auto& x : held.front())
    BOOST_TEST(
      same_bits(x.data.as_floats(), cut(first, {x.begin, x.begin + x.data.as_floats().size()})));
  // Now readers hold all slots. The next versions get new memory.
  held.push_back(store.newest());
  std::vector<std::vector<float>> before;
  for (const auto& version : held)
    for (const auto& x : version)
      before.emplace_back(x.data.as_floats().begin(), x.data.as_floats().end());
  for (std::uint64_t i = 3; i < 6; ++i) {
    step(store, *job, i);
    store.replace(store.where(0), cut(gradient_of(*job, i), store.where(0)));
    held.push_back(store.newest());
  }
  auto expected = before.begin();
  for (const auto& version : std::span{held}.first(4))
    for (const auto& x : version)
      BOOST_TEST(same_bits(x.data.as_floats(), *expected++));
}

BOOST_AUTO_TEST_CASE(captures_of_all_parts_are_the_whole) {
  const auto job = context();
  troupe::replica_store store{job};
  step(store, *job, 0);
  const auto whole = everything(store);
  BOOST_TEST_REQUIRE(whole.size() == 3u);
  for (const std::size_t count : {1, 2, 3, 7, 16}) {
    std::vector<std::vector<float>> joined(whole.size());
    for (std::size_t i = 0; i < count; ++i) {
      const auto share = part_of(job->parameters().size(), count, i);
      const auto part = store.capture(share, true);
      BOOST_TEST_REQUIRE(part.size() == whole.size());
      BOOST_TEST(store.capture(share, false).size() == 1u);
      for (std::size_t slot = 0; slot < part.size(); ++slot)
        std::ranges::copy(part[slot].as_floats(), std::back_inserter(joined[slot]));
    }
    for (std::size_t slot = 0; slot < whole.size(); ++slot)
      BOOST_TEST(same_bits(joined[slot], whole[slot].as_floats()), count << " parts");
  }
}

// Each replica updates only its part of each bucket. Then the replicas exchange these parts.
BOOST_AUTO_TEST_CASE(replicas_that_divide_the_state) {
  const auto job = context();
  for (const std::size_t count : {2, 3, 16}) {
    std::vector<std::unique_ptr<troupe::replica_store>> parts;
    troupe::replica_store reference{job};
    for (std::size_t i = 0; i < count; ++i)
      parts.push_back(std::make_unique<troupe::replica_store>(job, i, count));
    for (std::uint64_t i = 0; i < 6; ++i) {
      const auto gradient = gradient_of(*job, i);
      const std::uint64_t samples = i == 3 ? 0 : 8;
      stage(reference, gradient, samples);
      reference.publish(i + 1);
      for (std::size_t b = 0; b < reference.buckets(); ++b) {
        std::vector<float> next;
        for (auto& part : parts) {
          part->stage(b, cut(gradient, part->own(b)), samples);
          std::ranges::copy(part->staged_part(b).as_floats(), std::back_inserter(next));
        }
        for (auto& part : parts)
          part->complete(b, next);
      }
      for (auto& part : parts)
        part->publish(i + 1);
    }
    const auto expected = everything(reference);
    for (auto& part : parts) {
      BOOST_TEST(same_bits(part->weights(all(*job)).as_floats(), expected[0].as_floats()));
      for (std::size_t b = 0; b < reference.buckets(); ++b) {
        const auto found = part->capture(part->own(b), true);
        for (std::size_t slot = 0; slot < found.size(); ++slot)
          BOOST_TEST(same_bits(found[slot].as_floats(), cut(expected[slot], part->own(b))));
      }
    }
    // Restores a new replica from the whole state. Its next step must be the same.
    troupe::replica_store resumed{job, 1, count};
    for (std::size_t slot = 0; slot < expected.size(); ++slot)
      BOOST_TEST(resumed.restore(order(slot, 6, 40), expected[slot]));
    for (std::size_t b = 0; b < reference.buckets(); ++b)
      BOOST_TEST(same_bits(resumed.capture(resumed.own(b), true).back().as_floats(),
                           cut(expected.back(), resumed.own(b))));
  }
}

// A replica continues from a checkpoint, which has the number of samples. Its version is the number
// of updates.
BOOST_AUTO_TEST_CASE(resumed_at_every_step) {
  const auto job = context();
  troupe::replica_store uncut{job};
  for (std::uint64_t i = 0; i < 10; ++i)
    uneven_step(uncut, *job, i);
  for (std::uint64_t k = 1; k < 10; ++k) {
    troupe::replica_store before{job};
    for (std::uint64_t i = 0; i < k; ++i)
      uneven_step(before, *job, i);
    troupe::replica_store after{job};
    const auto saved = everything(before);
    const auto samples = 8 * (k - (k > 3 ? 1 : 0)) + (k > 5 ? 4 : 0);
    for (std::size_t repetition = 0; repetition < 2; ++repetition)
      for (std::size_t slot = 0; slot < saved.size(); ++slot)
        BOOST_REQUIRE(after.restore(order(slot, k, samples), saved[slot]));
    BOOST_TEST(after.version() == k);
    for (std::uint64_t i = k; i < 10; ++i)
      uneven_step(after, *job, i);
    check_same(everything(after), everything(uncut));
  }
}

// Some steps made no update. So the number of updates is smaller than the version, and is restored
// separately.
BOOST_AUTO_TEST_CASE(resumed_with_fewer_updates_than_versions) {
  const auto job = context();
  troupe::replica_store uncut{job};
  for (std::uint64_t i = 0; i < 3; ++i)
    step(uncut, *job, i);
  const auto saved = everything(uncut);
  step(uncut, *job, 3);
  for (const bool told : {true, false}) {
    troupe::replica_store after{job};
    for (std::size_t slot = 0; slot < saved.size(); ++slot) {
      auto x = order(slot, 7, 24);
      if (told)
        x.set_updates(3);
      BOOST_REQUIRE(after.restore(x, saved[slot]));
    }
    BOOST_TEST(after.version() == 7U);
    BOOST_TEST(after.updates() == (told ? 3U : 7U));
    step(after, *job, 3);
    BOOST_TEST(same_bits(after.weights(all(*job)).as_floats(), uncut.weights(all(*job)).as_floats())
               == told);
  }
}

BOOST_AUTO_TEST_CASE(no_samples_no_change) {
  const auto job = context();
  troupe::replica_store store{job};
  step(store, *job, 0);
  const auto before = everything(store);
  step(store, *job, 1, 0);
  check_same(everything(store), before);
  BOOST_TEST(store.version() == 2u);
}

// Two workers make some steps each, and then replace their weights by the average.
BOOST_AUTO_TEST_CASE(weights_can_be_replaced) {
  const auto job = context();
  troupe::replica_store a{job};
  troupe::replica_store b{job};
  for (std::uint64_t i = 0; i < 3; ++i) {
    step(a, *job, i);
    step(b, *job, i + 100);
  }
  const auto before = everything(a);
  auto average = a.weights(all(*job));
  const auto other = b.weights(all(*job));
  for (std::size_t i = 0; i < all(*job).size(); ++i)
    average.as_mutable_floats()[i] = (average.as_floats()[i] + other.as_floats()[i]) / 2;
  // Replaces the weights in parts that end inside buckets.
  for (const auto part : troupe::split_evenly(all(*job).size(), 3))
    a.replace(part, cut(average, part));
  BOOST_TEST(a.version() == 3U);
  auto after = everything(a);
  BOOST_TEST(same_bits(after[0].as_floats(), average.as_floats()));
  after[0] = before[0];
  check_same(after, before);

  // Replacing the weights does not count as an update. So a replica that starts from these weights
  // makes the same next step.
  troupe::replica_store restored{job};
  const auto saved = everything(a);
  for (std::size_t slot = 0; slot < saved.size(); ++slot)
    BOOST_REQUIRE(restored.restore(order(slot, 3, 24), saved[slot]));
  step(a, *job, 3);
  step(restored, *job, 3);
  check_same(everything(a), everything(restored));
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_not_restored) {
  const auto job = context();
  troupe::replica_store store{job};
  const auto before = everything(store);
  const auto values = gradient_of(*job, 1);
  BOOST_TEST(!store.restore(order(3, 5, 40), values));
  BOOST_TEST(
    !store.restore(order(0, 5, 40), values.slice_floats(0, values.as_floats().size() - 1)));
  BOOST_TEST(!store.restore(order(0, 5, 40), {}));
  BOOST_TEST(store.version() == 0u);
  check_same(everything(store), before);
}

BOOST_AUTO_TEST_CASE(a_late_restore_changes_nothing) {
  const auto job = context();
  troupe::replica_store store{job};
  store.newest();
  const auto before = everything(store);
  stage(store, gradient_of(*job, 0), 8);
  BOOST_TEST(store.restore(order(0, 0, 0), gradient_of(*job, 1)));
  BOOST_TEST(store.restore(order(1, 0, 0), gradient_of(*job, 1)));
  check_same(everything(store), before);
  store.publish(1);
  troupe::replica_store plain{job};
  step(plain, *job, 0);
  check_same(everything(store), everything(plain));
}

BOOST_AUTO_TEST_CASE(buckets_are_found_by_their_range) {
  const auto job = context();
  const troupe::replica_store store{job};
  for (std::size_t b = 0; b < store.buckets(); ++b)
    BOOST_TEST((store.find(store.where(b)) == b));
  BOOST_TEST(!store.find({0, all(*job).size()}));
  BOOST_TEST(!store.find({store.where(0).begin, store.where(0).end - 1}));
}

BOOST_AUTO_TEST_SUITE_END()
