// An interrupted run that continues from a checkpoint gives the same result as an uninterrupted
// run.

#include "actors/model/data_fingerprint.hpp"
#include "tests/actors/cluster/resumed_runs.hpp"
#include "tests/support/effort.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <system_error>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(resume)

namespace {

proto::Job forty_steps(proto::Protocol protocol, std::size_t workers,
                       const std::vector<std::string>& more = {}) {
  std::vector<std::string> changes{"data.batch=" + std::to_string(16 / workers),
                                   "protocol=" + proto::Protocol_Name(protocol)};
  for (const auto& x : {equal_after_every_step(protocol), more})
    changes.insert(changes.end(), x.begin(), x.end());
  return troupe::test::forty_steps(changes);
}

/// The step of a checkpoint about halfway through the run. It is chosen among existing checkpoints,
/// because asynchronous workers make none at some steps.
std::uint64_t some_step(const site& x) {
  const auto names = x.checkpoints();
  return checkpoint_step(names.at(names.size() / 2));
}

struct setting {
  proto::Protocol protocol;
  std::size_t workers;
  std::size_t ps;
};

constexpr setting settings[] = {
  {proto::RING, 2, 0}, {proto::SYNC_PS, 2, 2}, {proto::ASYNC_PS, 1, 2}, {proto::SSP, 1, 2}};

std::uint64_t samples_left(std::uint64_t step) {
  const auto in_epoch = step % 10 == 0 && step > 0 ? records : step % 10 * 16;
  const auto epoch = step == 0 ? 0 : (step - 1) / 10;
  return records * (3 - epoch) + records - in_epoch;
}

} // namespace

// In asynchronous runs, a guard may damp (reduce) the learning rate. A resumed run restores the
// damping and the state of the guard.
BOOST_AUTO_TEST_CASE(the_pace_goes_on) {
  for (const auto protocol : {proto::ASYNC_PS, proto::SSP})
    BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol)) {
      const auto job = forty_steps(protocol, 4);
      site first{simulated(job, 4, 2)};
      BOOST_TEST_REQUIRE(simulate(first.options).summary.failure == "");
      const auto step = some_step(first);
      const auto interrupted = first.load(step, job)->manifest.pacing.value();
      BOOST_TEST(interrupted.gradients() == step);
      BOOST_TEST(interrupted.workers() == 4U);
      for (const std::size_t workers : {4, 2, 1}) {
        auto how = going_on(first, job, workers, 1, step);
        how.files = std::make_shared<memory_storage>();
        const site second{how};
        simulation cluster{second.options};
        BOOST_TEST_REQUIRE(cluster.run().summary.failure == "");
        const auto pacing = second.newest(job)->manifest.pacing;
        BOOST_TEST(pacing.has_value() == (workers > 1), "one worker is not paced");
        if (!pacing)
          continue;
        BOOST_TEST(pacing->gradients() > interrupted.gradients());
        BOOST_TEST(pacing->first_loss() == interrupted.first_loss());
        BOOST_TEST(pacing->workers() == workers);
      }
    }
}

BOOST_AUTO_TEST_CASE(a_pace_that_makes_no_sense_is_refused) {
  const auto job = forty_steps(proto::ASYNC_PS, 2);
  site first{simulated(job, 2, 1)};
  BOOST_TEST_REQUIRE(simulate(first.options).summary.failure == "");
  auto how = going_on(first, job, 2, 1, some_step(first));
  auto damaged = std::make_shared<checkpoint>(*how.resume);
  damaged->manifest.pacing.value().mutable_pacing()->set_damping(-1);
  how.resume = damaged;
  const auto failure = simulate(how).summary.failure;
  BOOST_TEST(failure.find("the pace of training") != std::string::npos, failure);
}

// A resumed run reports if its records differ from those of the checkpoint.
BOOST_AUTO_TEST_CASE(other_records_are_reported) {
  const auto job = forty_steps(proto::SYNC_PS, 1);
  site here{simulated(job, 1, 1)};
  BOOST_TEST(simulation{here.options}.run().summary.failure == "");
  const auto told = [&](const job_data& data) {
    const auto context = make_job_context(job, shape_of(*data.train), {}, {}, fingerprint_of(data));
    std::string result;
    for (auto& x : choose_checkpoint(*here.options.files, "elsewhere",
                                     checkpoint_folder("out").string(), *context)
                     .notices)
      result += x + '\n';
    return result;
  };
  BOOST_TEST(told(here.options.data).find("differ") == std::string::npos);
  auto other = job;
  other.mutable_data()->mutable_digits()->set_seed(other.data().digits().seed() + 1);
  BOOST_TEST(
    told(build_data(other))
      .find("the training data differ from those of the checkpoint: other labels (150 records "
            "here, 150 there); the run continues with the data here")
    != std::string::npos);
}

// A resumed run restores all slots (vectors) of the optimizer's state, and the number of updates,
// which Adam needs.
BOOST_AUTO_TEST_CASE(other_optimizers) {
  some_cases chosen{5};
  for (const auto* kind : {"SGD", "ADAM", "RMSPROP"})
    for (auto& [protocol, workers, ps] : settings)
      BOOST_TEST_CONTEXT(kind << ", " << proto::Protocol_Name(protocol)) {
        const auto job = forty_steps(protocol, workers, {std::string{"optimizer.kind="} + kind});
        site first{simulated(job, workers, ps)};
        const auto whole = simulate(first.options).summary;
        BOOST_TEST_REQUIRE(whole.failure == "");
        for (const std::uint64_t k : {3, 20, 33})
          if (chosen())
            BOOST_TEST(simulate(going_on(first, job, workers, ps, k)).summary.weights_sha256
                       == whole.weights_sha256);
      }
}

// A resumed run repeats dropout masks and augmentations, because these depend only on the batch, or
// on the record and the epoch. Running statistics are restored like weights.
BOOST_AUTO_TEST_CASE(dropout_batch_normalization_and_augmentation) {
  some_cases chosen{2};
  const auto model = [](const std::string& rate) {
    return "model={ layer { dense { units: 8 } } layer { batch_norm {} } layer { activation: RELU "
           "} "
           "layer { dropout { rate: "
      + rate + " } } layer { dense { units: 10 } } loss: SOFTMAX_CROSS_ENTROPY }";
  };
  for (auto& [protocol, workers, ps] : settings)
    BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol)) {
      const auto* const augment = "data.augment={flip: true crop_padding: 3}";
      const auto job = forty_steps(protocol, workers, {model("0.3"), augment});
      site first{simulated(job, workers, ps)};
      const auto whole = simulate(first.options).summary;
      BOOST_TEST_REQUIRE(whole.failure == "");
      for (const std::uint64_t k : {3, 20, 33})
        if (chosen())
          BOOST_TEST(simulate(going_on(first, job, workers, ps, k)).summary.weights_sha256
                     == whole.weights_sha256);
      for (const auto& other : {forty_steps(protocol, workers, {model("0.2"), augment}),
                                forty_steps(protocol, workers, {model("0.3")})})
        BOOST_TEST(simulate(site{simulated(other, workers, ps)}.options).summary.weights_sha256
                   != whole.weights_sha256);
    }
}

BOOST_AUTO_TEST_CASE(gradients_of_several_batches) {
  for (auto& [protocol, workers, ps] : settings)
    BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol)) {
      const auto job = forty_steps(protocol, workers,
                                   {"accumulate=4", "data.batch=" + std::to_string(4 / workers)});
      site first{simulated(job, workers, ps)};
      const auto whole = simulate(first.options).summary;
      BOOST_TEST_REQUIRE(whole.failure == "");
      BOOST_TEST(first.checkpoints().size() == steps);
      for (const std::uint64_t k : {1, 9, 25}) {
        const auto resumed = simulate(going_on(first, job, workers, ps, k)).summary;
        BOOST_TEST(resumed.weights_sha256 == whole.weights_sha256);
        BOOST_TEST(resumed.samples == samples_left(k));
      }
    }
}

// A checkpoint contains whole vectors. So the resumed run may divide the weights differently among
// its shards.
BOOST_AUTO_TEST_CASE(another_placement_and_number_of_shards) {
  some_cases chosen{5};
  for (const auto& [from, to] :
       {std::pair{"BY_BYTES", "BY_TENSOR"}, std::pair{"BY_TENSOR", "BY_BYTES"}}) {
    const auto placed = [&](const std::string& how) {
      return forty_steps(proto::SYNC_PS, 2, {"placement=" + how});
    };
    site first{simulated(placed(from), 2, 3)};
    const auto whole = simulate(first.options).summary;
    BOOST_TEST_REQUIRE(whole.failure == "");
    for (const std::uint64_t k : {3, 20, 33})
      for (const std::size_t ps : {1, 2, 3, 6}) {
        if (!chosen())
          continue;
        BOOST_TEST_CONTEXT(from << " to " << to << ", step " << k << ", " << ps << " shards") {
          const auto x = simulate(going_on(first, placed(to), 2, ps, k)).summary;
          BOOST_TEST(x.failure == "");
          BOOST_TEST(x.weights_sha256 == whole.weights_sha256);
        }
      }
  }
}

// In a ring, the order of additions depends only on the number of ranks. So a resumed run gives the
// same bits on other hosts, and with pieces of another size.
BOOST_AUTO_TEST_CASE(another_placement_of_ranks) {
  enum class placement { apart, with_channels, beside_the_coordinator, in_one_process };
  some_cases chosen{5};
  for (const std::size_t ranks : {2, 3, 4}) {
    const auto job = forty_steps(proto::RING, ranks);
    const auto in_small_pieces = forty_steps(proto::RING, ranks, {"runtime.ring_chunk_bytes=40"});
    site first{simulated(job, ranks, 0)};
    const auto whole = simulate(first.options).summary;
    BOOST_TEST_REQUIRE(whole.failure == "");
    for (const auto where : {placement::apart, placement::with_channels,
                             placement::beside_the_coordinator, placement::in_one_process})
      for (const std::uint64_t k : {3, 20}) {
        if (!chosen())
          continue;
        BOOST_TEST_CONTEXT(ranks << " ranks, placement " << static_cast<int>(where) << ", step "
                                 << k) {
          auto how = going_on(first, k == 3 ? job : in_small_pieces, ranks, 0, k);
          how.channels = where == placement::with_channels;
          how.coordinator_trains = where == placement::beside_the_coordinator;
          how.one_node = where == placement::in_one_process;
          const auto x = simulate(how).summary;
          BOOST_TEST(x.failure == "");
          BOOST_TEST(x.weights_sha256 == whole.weights_sha256);
        }
      }
  }
}

// A run of any protocol can continue from a checkpoint of any other protocol, with any number of
// workers. Every sample is trained once, the ledger (the account of all gradients) balances, and
// the model improves.
BOOST_AUTO_TEST_CASE(another_protocol_and_number_of_workers) {
  some_cases chosen;
  for (auto& [protocol, workers, ps] : settings) {
    const auto job = forty_steps(protocol, workers);
    site first{simulated(job, workers, ps)};
    BOOST_TEST_REQUIRE(simulate(first.options).summary.failure == "");
    for (const auto other : all_protocols)
      for (const std::size_t crew : {1, 3})
        for (const std::uint64_t k : {4, 20, 27}) {
          if (!chosen())
            continue;
          BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol)
                             << " to " << proto::Protocol_Name(other) << ", " << crew
                             << " workers, step " << k) {
            const auto next = forty_steps(other, 1, {"data.batch=7"});
            const auto resumed = simulate(going_on(first, next, crew, 2, k)).summary;
            BOOST_TEST(resumed.failure == "");
            BOOST_TEST(resumed.samples == samples_left(k));
            BOOST_TEST(resumed.split == 0U);
            BOOST_TEST(resumed.test_loss < std::log(10.0));
          }
        }
  }
}

// The coordinator crashes again and again. Each time, a new run continues from the newest
// checkpoint.
BOOST_AUTO_TEST_CASE(crashes_and_resumptions) {
  for (auto& [protocol, workers, ps] : settings) {
    const auto job = forty_steps(protocol, workers, {"checkpoint={every_steps: 3 keep: 2}"});
    site x{simulated(job, workers, ps)};
    const auto whole = simulate(x.options).summary;
    BOOST_TEST_REQUIRE(whole.failure == "");
    for (std::uint64_t seed = 1; seed <= tries(5); ++seed)
      BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol) << ", seed " << seed) {
        x.options.files = std::make_shared<memory_storage>();
        x.options.resume = nullptr;
        std::uint64_t last = 0;
        simulation_result result;
        int crashes = 0;
        for (; crashes < 100; ++crashes) {
          simulation run{x.options};
          run.at(3ms + (seed + crashes) % 7 * 517us, [&] { run.crash(run.coordinator_node()); });
          result = run.run();
          if (result.summary.failure.empty())
            break;
          x.options.resume = x.newest(job);
          const auto now = x.options.resume ? x.options.resume->manifest.step : 0;
          BOOST_TEST(now >= last);
          last = now;
          BOOST_TEST(x.checkpoints().size() <= 2U);
        }
        BOOST_TEST(crashes > 2);
        BOOST_TEST(result.summary.failure == "");
        BOOST_TEST(result.summary.weights_sha256 == whole.weights_sha256);
      }
  }
}

// Messages with parts of checkpoints arrive twice or not at all.
BOOST_AUTO_TEST_CASE(messages_that_are_repeated_or_lost) {
  for (auto& [protocol, workers, ps] : settings)
    for (const auto what : {verdict::duplicate, verdict::drop}) {
      const auto job = forty_steps(protocol, workers, {"runtime.request_timeout_ms=3"});
      site first{simulated(job, workers, ps)};
      simulation run{first.options};
      std::uint64_t seen = 0;
      std::uint64_t hits = 0;
      run.network().judge_with([&](sim_node, sim_node, const caf::message& content) {
        if (!content.match_elements<proto::Frame, caf::message>())
          return verdict::deliver;
        const auto& inner = content.get_as<caf::message>(1);
        if (inner.empty() || !inner.match_element<proto::CheckpointPart>(0) || ++seen % 5 != 0)
          return verdict::deliver;
        ++hits;
        return what;
      });
      const auto whole = run.run().summary;
      BOOST_TEST(whole.failure == "");
      BOOST_TEST(hits >= (what == verdict::duplicate ? 10U : 2U));
      // If a part of a checkpoint is lost, this checkpoint is lost, and later checkpoints are lost,
      // too. This ends when the lost part is requested again, which takes longer than this run.
      const auto written = first.checkpoints();
      BOOST_TEST(written.size() >= (what == verdict::duplicate ? steps : 3U));
      for (std::size_t i = 1; i < written.size(); i += 11)
        BOOST_TEST(simulate(going_on(first, job, workers, ps, checkpoint_step(written[i])))
                     .summary.weights_sha256
                   == whole.weights_sha256);
    }
}

// Workers crash while checkpoints are made. A run continues from every checkpoint, and trains
// exactly the samples that the checkpoint lists as remaining.
BOOST_AUTO_TEST_CASE(workers_that_vanish_between_checkpoints) {
  std::size_t resumed = 0;
  for (std::uint64_t seed = 1; seed <= (under_sanitizer ? 2 : 8); ++seed)
    BOOST_TEST_CONTEXT("seed " << seed) {
      const auto job = forty_steps(proto::ASYNC_PS, 2,
                                   {"async_ps.max_staleness=4", "runtime.request_timeout_ms=20"});
      site first{simulated(job, 4, 3, seed)};
      simulation run{first.options};
      run.at(4ms + seed * 37us, [&] { run.crash(run.worker_node(1)); });
      run.at(6ms + seed * 37us, [&] { run.stop(run.worker_node(2), "SIGTERM"); });
      const auto whole = run.run().summary;
      BOOST_TEST(whole.failure == "");
      for (auto& name : first.checkpoints()) {
        const auto k = checkpoint_step(name);
        if (k % 5 != 0)
          continue;
        const auto options = going_on(first, job, 2, 2, k);
        const auto& cut = options.resume->manifest.cut;
        const auto result = simulate(options).summary;
        BOOST_TEST(result.failure == "");
        BOOST_TEST(result.samples == records * (3 - cut.epoch) + cut.samples());
        ++resumed;
      }
    }
  BOOST_TEST(resumed > (under_sanitizer ? 5U : 20U));
}

// Operation N of the storage fails, for many N. The run continues without the checkpoint that could
// not be written.
BOOST_AUTO_TEST_CASE(a_storage_that_fails) {
  class failing_storage : public memory_storage {
  public:
    std::size_t failing = 0;
    std::size_t calls = 0;

    void write_directory(const std::filesystem::path& directory,
                         std::span<const named_contents> files) override {
      if (calls++ == failing)
        throw std::system_error{ENOSPC, std::generic_category(),
                                "cannot write " + directory.string()};
      memory_storage::write_directory(directory, files);
    }
  };
  for (auto& [protocol, workers, ps] : settings) {
    const auto job = forty_steps(protocol, workers, {"checkpoint={every_steps: 8 keep: 9}"});
    site x{simulated(job, workers, ps)};
    const auto whole = simulate(x.options).summary;
    for (std::size_t n = 0; n < 5; ++n) {
      auto files = std::make_shared<failing_storage>();
      files->failing = n;
      x.options.files = files;
      const auto result = simulate(x.options).summary;
      BOOST_TEST(result.failure == "");
      BOOST_TEST(result.weights_sha256 == whole.weights_sha256);
      BOOST_TEST(files->calls == 5U);
      BOOST_TEST(x.checkpoints().size() == 4U);
      BOOST_TEST(x.newest(job)->manifest.step == (n == 4 ? 32U : 40U));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
