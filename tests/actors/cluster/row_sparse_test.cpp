// Models with a large table of weights, of which a batch uses only a few rows. Only these rows are
// sent between nodes.

#include "actors/model/job_context.hpp"
#include "actors/model/job_file.hpp"
#include "actors/parameter_server/parameter_shard.hpp"
#include "actors/protocols/async_ps/async_policy.hpp"
#include "messages/configure.hpp"
#include "messages/errors.hpp"
#include "tests/actors/cluster/ways.hpp"
#include "tests/support/temporary_directory.hpp"

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <cmath>
#include <fstream>
#include <random>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(row_sparse)

namespace {

constexpr std::size_t records = 96;

/// A file of sparse records. Each record has 12 features that are not 0. With `short_ones`, every
/// second record has only one such feature.
struct sparse_file {
  temporary_directory folder;
  std::string path = (folder.path() / "records.libsvm").string();

  explicit sparse_file(std::size_t features = 5000, bool short_ones = false) {
    std::ofstream file{path};
    std::mt19937 random{7};
    for (std::size_t i = 0; i < records; ++i) {
      file << i % 3;
      for (std::size_t k = 0; k < (short_ones && i % 2 == 1 ? 1 : 12); ++k)
        file << ' ' << k * (features / 12) + 1 + random() % (features / 12) << ':'
             << 1 + i % 3 * static_cast<double>(k % 4);
      file << '\n';
    }
  }
};

proto::Job job_with(proto::Protocol protocol, const std::string& path,
                    const std::vector<std::string>& changes = {}) {
  auto result = parse_job(R"(
    model {
      layer { dense { units: 7 activation: TANH } }
      layer { dense { units: 3 } }
      loss: SOFTMAX_CROSS_ENTROPY
    }
    data { libsvm { features: 5000 } batch: 8 }
    learning_rate { base: 0.05 }
    optimizer { kind: MOMENTUM momentum: 0.9 weight_decay: 0.001 }
    epochs: 2)",
                          "job");
  result.mutable_data()->mutable_libsvm()->set_path(path);
  result.set_protocol(protocol);
  for (auto& x : changes)
    apply_override(result, x);
  validate(result);
  return result;
}

struct outcome {
  std::string weights;
  std::uint64_t bytes = 0;
};

outcome run(const proto::Job& job, std::size_t workers, std::size_t ps, bool one_node,
            std::uint64_t seed = 1) {
  auto options = simulated(job, workers, ps, seed);
  options.one_node = one_node;
  const auto result = simulate(options);
  BOOST_TEST(result.summary.failure == "");
  return {result.summary.weights_sha256, result.bytes};
}

/// The bytes of all pulls and pushes of a run if they transferred all parameters.
std::uint64_t dense_bytes(const proto::Job& job) {
  const auto data = build_data(job);
  const auto parameters = make_job_context(job, shape_of(*data.train))->parameters().size();
  const auto steps = job.epochs() * (data.train->size() / job.data().batch());
  return steps * 2 * parameters * sizeof(float);
}

} // namespace

// Tasks on one node share the whole table. Tasks on different nodes send only rows. The weights are
// the same, bit for bit.
BOOST_FIXTURE_TEST_CASE(the_same_bits_with_fewer_bytes, sparse_file) {
  for (const auto* const change : {"seed=1", "optimizer.kind=ADAM", "optimizer.clip_norm=0.5",
                                   "optimizer.kind=NESTEROV", "exchange_precision=BFLOAT16"})
    for (const std::size_t ps : {1, 3})
      for (const auto& [protocol, workers] :
           {std::pair{proto::SYNC_PS, 1}, std::pair{proto::SYNC_PS, 3}, {proto::ASYNC_PS, 1}})
        BOOST_TEST_CONTEXT(change << ", " << proto::Protocol_Name(protocol) << ", " << workers
                                  << " workers, " << ps << " shards") {
          const auto job = job_with(protocol, path, {change});
          const auto here = run(job, static_cast<std::size_t>(workers), ps, true);
          const auto apart = run(job, static_cast<std::size_t>(workers), ps, false);
          BOOST_TEST(here.weights == apart.weights);
          BOOST_TEST(apart.bytes < dense_bytes(job) / 4);
        }
}

// With these rules, a shard updates only rows that a batch named. The weights are those of a ring,
// which updates all rows.
BOOST_FIXTURE_TEST_CASE(updates_of_rows, sparse_file) {
  for (const auto* const rule :
       {"kind: SGD", "kind: ADAGRAD", "kind: ADAGRAD clip_value: 0.01",
        "kind: SGD group { match: \"*.bias\" weight_decay: 0.01 }", "kind: ADAM lazy: true",
        "kind: MOMENTUM momentum: 0.9 weight_decay: 0.01 l1: 0.001 lazy: true",
        "kind: ADAMW weight_decay: 0.01 group { match: \"dense_1.weight\" lazy: true }"})
    // With several workers, only SYNC_PS has a defined order of updates.
    for (const auto& [protocol, count] : {std::pair{proto::SYNC_PS, 1},
                                          {proto::SYNC_PS, 2},
                                          {proto::SYNC_PS, 3},
                                          {proto::ASYNC_PS, 1},
                                          {proto::SSP, 1}})
      for (const std::size_t ps : {1, 3})
        BOOST_TEST_CONTEXT(rule << ", " << proto::Protocol_Name(protocol) << ", " << count
                                << " workers, " << ps << " shards") {
          const auto workers = static_cast<std::size_t>(count);
          const auto change = "optimizer={" + std::string{rule} + "}";
          const auto here = run(job_with(protocol, path, {change}), workers, ps, true);
          const auto apart = run(job_with(protocol, path, {change}), workers, ps, false);
          BOOST_TEST(here.weights == apart.weights);
          if (workers < 3) // with three terms, a ring adds up in another order
            BOOST_TEST(here.weights
                       == run(job_with(proto::RING, path, {change}), workers, 0, true).weights);
        }
}

BOOST_FIXTURE_TEST_CASE(clipped_updates_of_rows, sparse_file) {
  for (const std::size_t workers : {1, 3}) {
    const auto job = job_with(proto::SYNC_PS, path, {"optimizer={kind: ADAGRAD clip_norm: 0.5}"});
    BOOST_TEST(run(job, workers, 3, true).weights == run(job, workers, 3, false).weights);
  }
}

// A worker in the same process names the rows, but sends the whole range. The shard reads only the
// named rows of it, and writes only them.
BOOST_FIXTURE_TEST_CASE(other_rows_are_not_read, sparse_file) {
  caf::actor_system_config config;
  configure(config);
  caf::actor_system system{config};
  const auto job = job_with(proto::ASYNC_PS, path, {"optimizer={kind: SGD}"});
  const auto context = make_job_context(job, shape_of(*build_data(job).train));
  shard_options options;
  options.view.number = 1;
  options.view.members.push_back({{job_kind::worker, 0}, 11, ""});
  options.where = context->shard(0, 1);
  options.policy = std::make_shared<async_policy>(context, options.where, 0, 1, nullptr);
  const auto versions = make_versions(*context, options.where, 0);
  options.reader = system.spawn<reader_front>(1, options.where, versions);
  const auto shard = system.spawn<parameter_shard>(context, options, versions);
  const auto& table =
    context->parameters().entries()[context->training->row_sparse_gradients()[0].parameter];
  const auto width = table.size / static_cast<std::size_t>(table.shape[0]);
  const auto before =
    std::vector<float>(versions->published().begin(), versions->published().end());
  caf::scoped_actor self{system};
  for (std::uint32_t step = 1; step <= 4; ++step) {
    proto::Push push;
    push.set_view(1);
    push.mutable_id()->set_incarnation(11);
    push.mutable_id()->set_sequence(step);
    push.set_samples(8);
    auto& rows = *push.mutable_rows()->add_tensor();
    rows.set_begin(table.offset);
    rows.set_end(table.offset + table.size);
    rows.set_width(width);
    rows.add_row(step % 2 == 0 ? 3 : 40);
    auto gradient = payload::floats(versions->elements());
    std::ranges::fill(gradient.as_mutable_floats(), 8.0F);
    proto::Commit commit;
    commit.set_view(1);
    *commit.mutable_id() = push.id();
    commit.set_samples(8);
    self->request(shard, std::chrono::seconds{10}, push, gradient)
      .receive([](const proto::Pushed&) {}, [](const caf::error& x) { BOOST_ERROR(explain(x)); });
    self->request(shard, std::chrono::seconds{10}, commit)
      .receive([](const proto::Pushed& x) { BOOST_TEST((x.outcome() == proto::APPLIED)); },
               [](const caf::error& x) { BOOST_ERROR(explain(x)); });
  }
  const auto after = versions->newest();
  BOOST_TEST(after.version == 4u);
  for (std::size_t i = 0; i < before.size(); ++i) {
    const auto row = (i - table.offset) / width;
    const bool in_table = table.elements().contains(i);
    const float steps = !in_table ? 4 : row == 3 || row == 40 ? 2 : 0;
    BOOST_TEST_REQUIRE(std::abs(after.data.as_floats()[i] - (before[i] - 0.05F * steps)) < 1e-5F);
  }
  caf::anon_send_exit(shard, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(options.reader, caf::exit_reason::user_shutdown);
}

// A worker keeps old values in the rows that it did not pull. Reading such a row would change the
// weights.
BOOST_FIXTURE_TEST_CASE(interleavings, sparse_file) {
  const auto job = job_with(proto::SYNC_PS, path);
  const auto expected = run(job, 3, 2, true).weights;
  for (std::uint64_t seed = 1; seed <= 20; ++seed)
    BOOST_TEST(run(job, 3, 2, false, seed).weights == expected);
  for (std::uint64_t seed = 1; seed <= 5; ++seed)
    run(job_with(proto::ASYNC_PS, path), 4, 2, false, seed);
}

BOOST_FIXTURE_TEST_CASE(processes, sparse_file) {
  const auto job = job_with(proto::SYNC_PS, path);
  const auto apart = train_in_processes(job, 2, 2);
  BOOST_TEST(apart.failure == "");
  BOOST_TEST(apart.weights_sha256 == run(job, 2, 2, true).weights);
}

// If a batch names more row numbers than the table has rows, the whole table is sent.
BOOST_AUTO_TEST_CASE(small_tables_are_dense) {
  const sparse_file file{24};
  const auto job = job_with(proto::SYNC_PS, file.path, {"data.libsvm.features=24"});
  const auto apart = run(job, 1, 2, false);
  BOOST_TEST(apart.weights == run(job, 1, 2, true).weights);
  BOOST_TEST(apart.bytes > dense_bytes(job));
}

// Some batches use so many rows that the whole table is pulled; others use few. A late answer to
// one pull must not be checked against the rows of the next pull.
BOOST_AUTO_TEST_CASE(some_batches_name_all_rows) {
  const sparse_file file{24, true};
  const auto job =
    job_with(proto::ASYNC_PS, file.path, {"data.libsvm.features=24", "data.batch=2", "epochs=1"});
  for (std::uint64_t seed = 1; seed <= 20; ++seed)
    run(job, 2, 2, false, seed);
}

// The weights of an embedding layer are a large table, too. The ids of the tokens in a batch name
// its rows.
BOOST_AUTO_TEST_CASE(embeddings) {
  const temporary_directory folder;
  std::ofstream{folder / "text"}
    << "abcdeabcdeeabccbadabcdeabcdabecdabcdeaabbccddeeabcdecdeabcdeabcbcdae";
  auto job = parse_job(R"(
    model {
      layer { embedding { width: 5 entries: 3000 } }
      loss: SOFTMAX_CROSS_ENTROPY
    }
    data { text { window: 4 } batch: 4 }
    learning_rate { base: 0.05 }
    optimizer { kind: MOMENTUM momentum: 0.9 weight_decay: 0.001 }
    protocol: SYNC_PS
    epochs: 2)",
                       "job");
  job.mutable_data()->mutable_text()->set_path((folder / "text").string());
  validate(job);
  for (const std::size_t workers : {1, 2}) {
    const auto apart = run(job, workers, 2, false);
    BOOST_TEST(apart.weights == run(job, workers, 2, true).weights);
    BOOST_TEST(apart.bytes < dense_bytes(job) / 4);
  }
}

BOOST_AUTO_TEST_SUITE_END()
