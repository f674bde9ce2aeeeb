// Trains inside a program that has its own actor system.

#include "actors/cluster/training.hpp"

#include "actors/model/job_file.hpp"
#include "actors/model/sha256.hpp"
#include "tests/actors/cluster/ways.hpp"
#include "tests/support/temporary_directory.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <thread>

using namespace troupe;

namespace {

constexpr std::chrono::minutes patience_limit{4};

bool wait_for(const std::function<bool()>& condition) {
  const auto limit = std::chrono::steady_clock::now() + patience_limit;
  while (!condition() && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  return condition();
}

/// Records of the plane y = 3 x0 - 2 x1 + 1 on a grid, without noise. Every protocol finds its
/// coefficients.
class plane : public dataset {
public:
  explicit plane(std::uint64_t records, bool broken = false) : records_(records), broken_(broken) {}

  std::uint64_t size() const noexcept override { return records_; }
  const record_shape& record() const noexcept override { return record_; }
  void read(std::span<const std::uint64_t> records, feature_batch features,
            label_batch labels) const override {
    if (broken_)
      throw std::runtime_error{"the camera is off"};
    read_ += records.size();
    for (std::size_t i = 0; i < records.size(); ++i) {
      const auto x = static_cast<float>(records[i] % 5) / 2 - 1;
      const auto y = static_cast<float>(records[i] / 5 % 5) / 2 - 1;
      features.numbers[2 * i] = x;
      features.numbers[2 * i + 1] = y;
      labels.targets[i] = 3 * x - 2 * y + 1;
    }
  }

  std::uint64_t records_read() const { return read_; }

private:
  record_shape record_{.dims = {2}, .labels = label_kind::targets, .label_width = 1};
  std::uint64_t records_;
  bool broken_;
  mutable std::atomic<std::uint64_t> read_{0};
};

/// A data set that blocks once, in the middle of training, until a condition of the test is true.
class plane_that_waits : public plane {
public:
  static constexpr std::uint64_t half_way = 1'500;

  explicit plane_that_waits(std::function<bool()> until) : plane(100), until_(std::move(until)) {}

  void read(std::span<const std::uint64_t> records, feature_batch features,
            label_batch labels) const override {
    plane::read(records, features, labels);
    if (records_read() >= half_way && !waited_.exchange(true))
      came_ = wait_for(until_);
  }

  bool waited() const { return waited_; }
  /// True if the condition became true. False if the wait ended at its time limit.
  bool came() const { return came_; }

private:
  std::function<bool()> until_;
  mutable std::atomic<bool> waited_{false};
  mutable std::atomic<bool> came_{false};
};

proto::Job plane_job(proto::Protocol protocol, std::uint32_t epochs = 20) {
  proto::Job job;
  job.mutable_model()->add_layer()->mutable_dense()->set_units(1);
  job.mutable_model()->set_loss(proto::MEAN_SQUARED_ERROR);
  job.mutable_data()->set_batch(5);
  job.mutable_learning_rate()->set_base(0.1F);
  job.set_protocol(protocol);
  job.set_epochs(epochs);
  return job;
}

training_options plane_options(proto::Protocol protocol, std::uint32_t epochs = 20) {
  training_options result;
  result.job = plane_job(protocol, epochs);
  result.data.train = std::make_shared<plane>(100);
  result.workers = 2;
  result.ps = 2;
  return result;
}

/// Options of a run that gives the same weights every time. Model and numbers of tasks depend on
/// the protocol. An asynchronous job has one worker, because its weights would otherwise depend on
/// timing.
training_options repeatable(proto::Protocol protocol) {
  auto result = plane_options(protocol);
  const bool in_step = test::traits_of(protocol).in_step;
  result.workers = in_step ? 2 + protocol % 2 : 1;
  result.ps = 1 + protocol % 3;
  auto& first = *result.job.mutable_model()->mutable_layer()->Add();
  first.mutable_dense()->set_units(1);
  result.job.mutable_model()->mutable_layer(0)->mutable_dense()->set_units(2 + protocol);
  return result;
}

/// Numbers of the reports that an observer has received.
struct heard {
  std::atomic<int> progress{0};
  std::atomic<int> epochs{0};
  std::atomic<int> ends{0};
  std::atomic<int> weights{0};
};

using whole_observer = run_observer::extend<rpc<void, epoch_weights>>;

/// An observer of a run. It counts the reports and calls `at_epoch` at the end of each epoch, for
/// example to stop the run.
class listener : public whole_observer::base {
public:
  listener(caf::actor_config& cfg, std::shared_ptr<heard> what, std::function<void()> at_epoch)
    : whole_observer::base(cfg), heard_(std::move(what)), at_epoch_(std::move(at_epoch)) {}

protected:
  behavior_type make_behavior() override {
    return {
      [this](const run_progress&) { ++heard_->progress; },
      [this](const epoch_report&) {
        ++heard_->epochs;
        if (at_epoch_)
          at_epoch_();
      },
      [this](const run_summary&) { ++heard_->ends; },
      [](const run_notice&) {},
      [this](const epoch_weights& x) { heard_->weights += x.weights.as_floats().size() == 3; },
    };
  }
  void on_exit() override { at_epoch_ = nullptr; }

private:
  std::shared_ptr<heard> heard_;
  std::function<void()> at_epoch_;
};

struct configuration : caf::actor_system_config {
  configuration() { configure(*this); }
};

/// A program with an actor system. At its end, the system must contain no actor of troupe.
struct program {
  ~program() { BOOST_TEST(empties()); }

  /// True if the system soon contains no actor of troupe. Actors take some time to end.
  bool empties() {
    return wait_for([this] { return sys.registry().running() <= actors_before; });
  }

  auto begin(const training_actor& run) {
    return self->request(run, patience_limit, begin_training{});
  }

  /// Runs training and returns its error. Empty if it succeeds.
  caf::error error_of(training_options options) {
    caf::error result;
    begin(spawn_training(sys, std::move(options)))
      .receive([](const trained&) {}, [&](const caf::error& x) { result = x; });
    return result;
  }

  std::string hash_of(const training_options& options) {
    std::string result;
    begin(spawn_training(sys, options))
      .receive([&](const trained& x) { result = x.summary.weights_sha256; },
               [](const caf::error& x) { BOOST_ERROR(explain(x)); });
    return result;
  }

  configuration cfg;
  caf::actor_system sys{cfg};
  caf::scoped_actor self{sys};
  std::size_t actors_before = sys.registry().running();
};

void check_plane(const trained& x) {
  BOOST_TEST(x.summary.failure == "");
  BOOST_TEST_REQUIRE(x.weights.as_floats().size() == 3u);
  const auto weight = x.tensor("dense_1.weight");
  const auto bias = x.tensor("dense_1.bias");
  BOOST_TEST_REQUIRE(weight.size() == 2u);
  BOOST_TEST_REQUIRE(bias.size() == 1u);
  BOOST_TEST(std::abs(weight[0] - 3) < 0.01);
  BOOST_TEST(std::abs(weight[1] + 2) < 0.01);
  BOOST_TEST(std::abs(bias[0] - 1) < 0.01);
  BOOST_TEST(x.tensor("dense_2.bias").empty());
  BOOST_TEST(sha256_hex(x.weights.as_floats()) == x.summary.weights_sha256);
}

void fail(const caf::error& x) {
  BOOST_ERROR(explain(x));
}

} // namespace

BOOST_AUTO_TEST_SUITE(training)

BOOST_AUTO_TEST_CASE(own_data_progress_and_weights) {
  program p;
  const auto told = std::make_shared<heard>();
  auto options = plane_options(proto::ASYNC_PS);
  const auto data = std::make_shared<plane>(100);
  options.data.train = data;
  const auto observer = p.sys.spawn<listener>(told, nullptr);
  options.observer = observer;
  options.weights = observer;
  p.actors_before = p.sys.registry().running();
  p.begin(spawn_training(p.sys, options)).receive(check_plane, fail);
  // Each run reads the records to train, and again to evaluate after each epoch.
  BOOST_TEST(data->records_read() >= 2u * 20 * 100);
  BOOST_TEST(p.empties());
  BOOST_TEST(wait_for([&] { return told->ends == 1 && told->weights == 20; }));
  BOOST_TEST(told->epochs == 20);
  p.self->send_exit(observer, caf::exit_reason::user_shutdown);
  p.self->wait_for(observer);
}

BOOST_AUTO_TEST_CASE(runs_at_the_same_time_and_one_after_another) {
  program p;
  for (int round = 0; round < 2; ++round) {
    auto first = p.begin(spawn_training(p.sys, plane_options(proto::SYNC_PS)));
    auto second = p.begin(spawn_training(p.sys, plane_options(proto::RING, 40)));
    first.receive(check_plane, fail);
    second.receive(check_plane, fail);
    BOOST_TEST(p.empties());
  }
}

// Two runs in one process. In the middle of its training, each run waits until the other run is in
// the middle of its training, too.
BOOST_AUTO_TEST_CASE(two_runs_give_the_bits_of_each_alone) {
  program p;
  const auto& all = test::all_protocols;
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::array how{repeatable(all[i]), repeatable(all[(i + 1) % all.size()])};
    BOOST_TEST_CONTEXT(test::traits_of(all[i]).name << " and the next") {
      const std::array alone{p.hash_of(how[0]), p.hash_of(how[1])};
      BOOST_TEST(alone[0] != alone[1]);
      std::array<std::shared_ptr<plane_that_waits>, 2> data;
      for (std::size_t j : {0, 1}) {
        data[j] = std::make_shared<plane_that_waits>([&data, j] { return data[1 - j]->waited(); });
      }
      how[0].data.train = data[0];
      how[1].data.train = data[1];
      auto first = p.begin(spawn_training(p.sys, how[0]));
      auto second = p.begin(spawn_training(p.sys, how[1]));
      first.receive([&](const trained& x) { BOOST_TEST(x.summary.weights_sha256 == alone[0]); },
                    fail);
      second.receive([&](const trained& x) { BOOST_TEST(x.summary.weights_sha256 == alone[1]); },
                     fail);
      BOOST_TEST(data[0]->came());
      BOOST_TEST(data[1]->came());
    }
  }
}

// One run is in the middle of its training when another run fails or is stopped.
BOOST_AUTO_TEST_CASE(a_run_goes_on_when_another_fails_or_is_stopped) {
  program p;
  const auto stop = [&](const training_actor& run) { p.self->send(run, stop_run{"enough"}); };
  const auto end = [&](const training_actor& run) {
    p.self->send_exit(run, caf::exit_reason::user_shutdown);
  };
  const auto nothing = [](const training_actor&) {};
  const std::pair<std::string, std::function<void(const training_actor&)>> ways[] = {
    {"interrupted: enough", stop},
    {"interrupted: the run was stopped from outside", end},
    {"the data cannot be read: the camera is off", nothing},
    {"not finite", nothing}};
  for (const auto protocol : {proto::SYNC_PS, proto::RING})
    for (std::size_t i = 0; i < std::size(ways); ++i)
      BOOST_TEST_CONTEXT(test::traits_of(protocol).name << ", " << ways[i].first) {
        auto steady = repeatable(protocol);
        const auto alone = p.hash_of(steady);
        std::atomic<bool> ended{false};
        const auto data = std::make_shared<plane_that_waits>([&] { return ended.load(); });
        steady.data.train = data;
        auto answer = p.begin(spawn_training(p.sys, steady));
        BOOST_TEST(wait_for([&] { return data->waited(); }));

        auto other = plane_options(protocol, 1'000'000);
        const auto read = std::make_shared<plane>(100, i == 2);
        other.data.test = std::make_shared<plane>(100);
        other.data.train = read;
        if (i == 3)
          other.job.mutable_learning_rate()->set_base(3e38F);
        const auto run = spawn_training(p.sys, other);
        auto ends = p.begin(run);
        if (i < 2)
          BOOST_TEST(wait_for([&] { return read->records_read() > 1'000; }));
        ways[i].second(run);
        ends.receive([](const trained&) { BOOST_ERROR("it trained"); },
                     [&](const caf::error& x) {
                       BOOST_TEST(explain(x).find(ways[i].first) != std::string::npos, explain(x));
                     });
        ended = true;
        answer.receive([&](const trained& x) { BOOST_TEST(x.summary.weights_sha256 == alone); },
                       fail);
        BOOST_TEST(data->came());
      }
}

BOOST_AUTO_TEST_CASE(two_runs_do_not_share_an_output_directory) {
  program p;
  const test::temporary_directory out;
  auto first = plane_options(proto::SYNC_PS);
  std::atomic<bool> refused{false};
  const auto data = std::make_shared<plane_that_waits>([&] { return refused.load(); });
  first.data.train = data;
  first.job.set_output(out.path().string());
  auto answer = p.begin(spawn_training(p.sys, first));
  BOOST_TEST(wait_for([&] { return data->waited(); }));
  auto second = plane_options(proto::RING);
  second.job.set_output(out.path().string());
  const auto error = p.error_of(second);
  BOOST_TEST((code_of(error) == errc::bad_input));
  BOOST_TEST(explain(error).find("another run writes to " + out.path().string())
               != std::string::npos,
             explain(error));
  refused = true;
  answer.receive(check_plane, fail);
}

BOOST_AUTO_TEST_CASE(the_program_stops_a_run) {
  program p;
  auto options = plane_options(proto::ASYNC_PS, 1'000'000);
  const auto told = std::make_shared<heard>();
  caf::actor stopped;
  std::atomic<bool> known{false};
  const auto stop = [&] {
    if (known && told->progress > 0)
      caf::anon_send(stopped, stop_run{"good enough"});
  };
  const auto observer = p.sys.spawn<listener>(told, stop);
  options.observer = observer;
  p.actors_before = p.sys.registry().running();
  const auto run = spawn_training(p.sys, options);
  stopped = caf::actor_cast<caf::actor>(run);
  known = true;
  caf::error error;
  p.begin(run).receive([](const trained&) {}, [&](const caf::error& x) { error = x; });
  BOOST_TEST((code_of(error) == errc::interrupted));
  BOOST_TEST(explain(error) == "interrupted: good enough");
  BOOST_TEST(p.empties());
  BOOST_TEST(wait_for([&] { return told->ends == 1; }));
  p.self->send_exit(observer, caf::exit_reason::user_shutdown);
  p.self->wait_for(observer);
  stopped = nullptr;
}

BOOST_AUTO_TEST_CASE(stopped_before_it_begins) {
  program p;
  const auto run = spawn_training(p.sys, plane_options(proto::ASYNC_PS));
  p.self->send(run, stop_run{"changed my mind"});
  caf::error error;
  p.begin(run).receive([](const trained&) {}, [&](const caf::error& x) { error = x; });
  BOOST_TEST(explain(error) == "interrupted: changed my mind");
}

BOOST_AUTO_TEST_CASE(an_exit_message_ends_everything) {
  program p;
  const auto run = spawn_training(p.sys, plane_options(proto::ASYNC_PS, 1'000'000));
  auto answer = p.begin(run);
  p.self->send_exit(run, caf::exit_reason::user_shutdown);
  caf::error error;
  answer.receive([](const trained&) {}, [&](const caf::error& x) { error = x; });
  BOOST_TEST((error != caf::none));
}

BOOST_AUTO_TEST_CASE(a_run_begins_once) {
  program p;
  const auto run = spawn_training(p.sys, plane_options(proto::ASYNC_PS));
  auto first = p.begin(run);
  auto second = p.begin(run);
  first.receive(check_plane, fail);
  caf::error error;
  second.receive([](const trained&) {}, [&](const caf::error& x) { error = x; });
  BOOST_TEST(explain(error) == "this run has already begun; spawn another");
}

BOOST_AUTO_TEST_CASE(what_is_wrong_is_told_before_anything_starts) {
  program p;
  const auto problem = [&](const std::function<void(training_options&)>& change) {
    auto options = plane_options(proto::ASYNC_PS);
    change(options);
    const auto error = p.error_of(options);
    BOOST_TEST((code_of(error) == errc::bad_input));
    return explain(error);
  };
  BOOST_TEST(problem([](auto& x) { x.workers = 0; })
             == "bad input: no workers; expected at least one");
  BOOST_TEST(problem([](auto& x) { x.ps = 0; })
             == "bad input: async_ps needs at least one parameter shard");
  BOOST_TEST(problem([](auto& x) { x.data = {}; })
             == "bad input: data: no source; add one of idx, csv, digits, npy, npz, text, libsvm, "
                "image_folder");
  BOOST_TEST(problem([](auto& x) { x.data.train = std::make_shared<plane>(4); })
             == "bad input: data.batch: 5 is more than the 4 training records");
  BOOST_TEST(problem([](auto& x) { x.data.train = std::make_shared<plane>(0); })
             == "bad input: data: no training records; expected at least one");
  BOOST_TEST(problem([](auto& x) { x.data.test = std::make_shared<plane>(0); })
             == "bad input: data: no test records; leave out the test data to test on the training "
                "records");
  BOOST_TEST(problem([](auto& x) { x.job.mutable_data()->mutable_split()->set_test(5); })
             == "bad input: data.split: the program supplies its own training and test "
                "records; leave it out");
  BOOST_TEST(
    problem([](auto& x) { x.job.mutable_model()->mutable_layer(0)->mutable_dense()->set_units(2); })
    == "bad input: layer \"dense_1\" has 2 units, but the data has 1 target per sample; "
       "expected the same number");
}

BOOST_AUTO_TEST_CASE(a_run_goes_on_from_a_checkpoint) {
  program embedding;
  const test::temporary_directory out;
  auto options = plane_options(proto::SYNC_PS, 2);
  options.job.set_output(out.path().string());
  options.job.mutable_checkpoint()->set_every_steps(5);
  BOOST_TEST(!embedding.error_of(options));
  // A second run with this output directory is refused, because it would overwrite the files of the
  // first.
  const auto error = embedding.error_of(options);
  BOOST_TEST((code_of(error) == errc::bad_input));
  BOOST_TEST(explain(error).find("already has checkpoints") != std::string::npos);
  options.job.set_epochs(5);
  options.resume = "";
  embedding.begin(spawn_training(embedding.sys, options))
    .receive([](const trained& x) { BOOST_TEST(x.summary.samples == 3U * 100U); },
             [](const caf::error& x) { BOOST_ERROR(explain(x)); });
}

BOOST_AUTO_TEST_CASE(losses_that_are_not_finite_have_an_error_of_their_own) {
  program p;
  for (const auto protocol : test::all_protocols) {
    auto options = plane_options(protocol);
    options.job.mutable_learning_rate()->set_base(3e38F);
    const auto error = p.error_of(std::move(options));
    BOOST_TEST((code_of(error) == errc::not_finite), explain(error));
  }
}

BOOST_AUTO_TEST_CASE(an_exact_solution_is_trained_weights_too) {
  program p;
  const auto told = std::make_shared<heard>();
  auto options = plane_options(proto::ASYNC_PS);
  options.job.set_solver(proto::EXACT);
  const auto observer = p.sys.spawn<listener>(told, nullptr);
  options.observer = observer;
  options.weights = observer;
  p.actors_before = p.sys.registry().running();
  p.begin(spawn_training(p.sys, options)).receive(check_plane, fail);
  BOOST_TEST(p.empties());
  BOOST_TEST(wait_for([&] { return told->ends == 1 && told->weights == 1; }));
  BOOST_TEST(told->epochs == 1);
  p.self->send_exit(observer, caf::exit_reason::user_shutdown);
  p.self->wait_for(observer);
}

BOOST_AUTO_TEST_CASE(data_that_fail_to_read_end_the_run) {
  program p;
  auto options = plane_options(proto::ASYNC_PS);
  options.data.test = options.data.train;
  options.data.train = std::make_shared<plane>(100, true);
  const auto error = p.error_of(options);
  BOOST_TEST((code_of(error) == errc::failed));
  BOOST_TEST(explain(error).find("the data cannot be read: the camera is off") != std::string::npos,
             explain(error));
}

BOOST_AUTO_TEST_SUITE_END()
