// Different ways to run a job that must give the same weights, bit for bit.

#include "actors/model/sha256.hpp"
#include "tests/actors/cluster/ways.hpp"
#include "tests/actors/model/serial_training.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(equivalence)

namespace {

/// A job with 130 samples in batches of 32. The last batch of an epoch has only 2 samples. If there
/// are several workers, some of them get no sample of it.
proto::Job small_job(proto::Protocol protocol, const std::vector<std::string>& more = {}) {
  std::vector<std::string> changes{"data.digits={train: 130 test: 20}", "data.batch=32", "epochs=3",
                                   "protocol=" + proto::Protocol_Name(protocol)};
  changes.insert(changes.end(), more.begin(), more.end());
  return example_job("digits_mlp", changes);
}

std::string serial_hash(const proto::Job& job) {
  serial_training loop{job};
  loop.train();
  return sha256_hex(std::span<const float>{loop.weights()});
}

} // namespace

BOOST_AUTO_TEST_CASE(one_worker_equals_a_serial_loop) {
  // Tests every protocol and every way to run (`all_ways`), but only some of their combinations.
  some_cases chosen{5};
  for (const auto protocol : all_protocols) {
    const auto job = small_job(protocol);
    const auto expected = serial_hash(job);
    for (const auto how : all_ways)
      for (const std::uint32_t ps : {1, 3}) {
        if (!chosen())
          continue;
        BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol)
                           << ", " << how << ", " << ps << " shards") {
          const auto result = train(how, job, 1, ps);
          BOOST_TEST(result.failure == "");
          BOOST_TEST(result.weights_sha256 == expected);
        }
      }
  }
}

BOOST_AUTO_TEST_CASE(buckets_shards_and_chunks_do_not_change_bits) {
  some_cases chosen{2};
  const auto expected = serial_hash(small_job(proto::RING));
  for (const auto bytes : {4, 4096, 1 << 30})
    for (const auto protocol : all_protocols) {
      if (!chosen())
        continue;
      const auto job = small_job(
        protocol,
        {"runtime.bucket_bytes=" + std::to_string(bytes), "runtime.ring_chunk_bytes=1000"});
      BOOST_TEST(simulate(simulated(job, 1, 5)).summary.weights_sha256 == expected);
    }
}

// Divides the weights among several shards at different places, and compares with a single shard.
// With LAMB, a shard always holds whole tensors.
BOOST_AUTO_TEST_CASE(placements_do_not_change_bits) {
  some_cases chosen{3};
  for (const auto* kind : {"SGD", "LAMB"}) {
    const auto optimizer = std::string{"optimizer={kind: "} + kind + "}";
    const auto one =
      simulate(simulated(small_job(proto::SYNC_PS, {optimizer}), 3, 1)).summary.weights_sha256;
    for (const auto* placement : {"BY_BYTES", "BY_TENSOR"})
      for (const std::size_t ps : {1, 2, 3, 9}) {
        if (!chosen())
          continue;
        BOOST_TEST_CONTEXT(kind << ", " << placement << ", " << ps << " shards") {
          std::vector<std::string> changes{optimizer};
          if (std::string{kind} == "SGD" || std::string{placement} == "BY_TENSOR")
            changes.push_back(std::string{"placement="} + placement);
          const auto x = simulate(simulated(small_job(proto::SYNC_PS, changes), 3, ps)).summary;
          BOOST_TEST(x.failure == "");
          BOOST_TEST(x.weights_sha256 == one);
        }
      }
  }
}

// With two ranks, a sum has two terms, so their order does not matter: a + b = b + a.
BOOST_AUTO_TEST_CASE(two_ranks_of_a_ring_equal_two_synchronous_workers) {
  const auto ring = simulate(simulated(small_job(proto::RING), 2, 0)).summary;
  const auto shards = simulate(simulated(small_job(proto::SYNC_PS), 2, 3)).summary;
  BOOST_TEST(ring.failure == "");
  BOOST_TEST(ring.weights_sha256 == shards.weights_sha256);
  for (const auto how : {way::here, way::processes})
    BOOST_TEST(train(how, small_job(proto::RING), 2, 0).weights_sha256 == ring.weights_sha256);
}

// Synchronous steps add up gradients in a fixed order. So the weights do not depend on the timing.
BOOST_AUTO_TEST_CASE(synchronous_steps_do_not_depend_on_timing) {
  for (const auto protocol : {proto::SYNC_PS, proto::RING}) {
    const auto job = small_job(protocol);
    const auto expected = simulate(simulated(job, 5, 2, 1)).summary;
    BOOST_TEST(expected.failure == "");
    for (std::uint64_t seed = 2; seed < 6; ++seed)
      BOOST_TEST(simulate(simulated(job, 5, 2, seed)).summary.weights_sha256
                 == expected.weights_sha256);
    BOOST_TEST(train_here(job, 5, 2).weights_sha256 == expected.weights_sha256);
  }
}

BOOST_AUTO_TEST_SUITE_END()
