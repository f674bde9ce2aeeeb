// Measures how long a pull of weights takes while a shard is idle, and while it makes one update
// after the other. A reader must not wait for the writer.
// Prints minimum, median, 99th percentile and maximum of both, measured in alternating rounds, and
// the ratio of the 99th percentiles. Exits with 1 if a pull returned old weights, or weights of
// several versions.

#include "actors/model/job_file.hpp"
#include "actors/parameter_server/parameter_shard.hpp"
#include "actors/parameter_server/reader_front.hpp"
#include "actors/protocols/async_ps/async_policy.hpp"
#include "messages/configure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t width = 4096; // 4096 x 4096 float32: 64 MiB
constexpr int rounds = 5;
constexpr int pulls_per_round = 400;
constexpr auto pause_between_pulls = 500us;

using milliseconds = std::chrono::duration<double, std::milli>;

std::shared_ptr<const job_context> big_job() {
  const auto job =
    parse_job("model { layer { dense { units: 4096 bias: false } } loss: MEAN_SQUARED_ERROR }"
              "data { csv { path: 'none' features: 'x' target: 'y' } batch: 1 }"
              "optimizer { kind: SGD } learning_rate { base: 1 } epochs: 1",
              "benchmark");
  return make_job_context(
    job, {{.dims = {width}, .labels = label_kind::targets, .label_width = width}, 1});
}

/// Pulls weights, in rounds. Checks that all weights of a pull belong to the same version.
class puller {
public:
  puller(caf::actor_system& sys, reader_actor reader) : self_(sys), reader_(std::move(reader)) {
    header_.set_view(1);
  }

  void round(std::vector<double>& milliseconds_taken) {
    for (int i = 0; i < pulls_per_round; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      self_->request(reader_, 10s, header_)
        .receive(
          [&](const proto::Weights& x, const payload& data) {
            milliseconds_taken.push_back(
              milliseconds{std::chrono::steady_clock::now() - begin}.count());
            check(x.version(), data.as_floats());
          },
          [&](const caf::error&) { wrong_ = true; });
      std::this_thread::sleep_for(pause_between_pulls);
    }
  }

  bool wrong() const { return wrong_; }

private:
  // Checks the version of the weights. They are 0 at first, and every update subtracts 1, so each
  // element shows its version.
  void check(std::uint64_t version, std::span<const float> weights) {
    const auto expected = -static_cast<float>(version);
    for (std::size_t i = 0; i < weights.size(); i += 4093)
      wrong_ = wrong_ || weights[i] != expected;
    wrong_ = wrong_ || version < last_;
    last_ = version;
  }

  caf::scoped_actor self_;
  reader_actor reader_;
  proto::Pull header_;
  std::uint64_t last_ = 0;
  bool wrong_ = false;
};

/// Pushes one gradient after the other until it is told to stop. Two gradients are always under
/// way.
class pusher {
public:
  pusher(caf::actor_system& sys, shard_actor shard, std::size_t elements)
    : shard_(std::move(shard)), gradient_(payload::floats(elements)),
      thread_([this, &sys] { work(sys); }) {
    std::ranges::fill(gradient_.as_mutable_floats(), 1.0F);
  }
  ~pusher() {
    stop_ = true;
    thread_.join();
  }
  pusher(const pusher&) = delete;
  pusher& operator=(const pusher&) = delete;

  void active(bool x) { active_ = x; }
  std::uint64_t updates() const { return updates_; }

private:
  void work(caf::actor_system& sys) {
    caf::scoped_actor self{sys};
    proto::Push header;
    header.set_view(1);
    header.mutable_id()->set_incarnation(1);
    header.set_samples(1);
    proto::Commit commit;
    commit.set_view(1);
    commit.set_samples(1);
    while (!stop_) {
      if (!active_) {
        std::this_thread::sleep_for(1ms);
        continue;
      }
      header.mutable_id()->set_sequence(++sequence_);
      *commit.mutable_id() = header.id();
      self->send(shard_, header, gradient_);
      self->request(shard_, 60s, commit)
        .receive([&](const proto::Pushed&) { ++updates_; },
                 [](const caf::error&) { std::abort(); });
    }
  }

  shard_actor shard_;
  payload gradient_;
  std::atomic<bool> active_ = false;
  std::atomic<bool> stop_ = false;
  std::atomic<std::uint64_t> updates_ = 0;
  std::uint64_t sequence_ = 0;
  std::thread thread_;
};

double at(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
}

double report(const char* name, std::vector<double>& x) {
  std::ranges::sort(x);
  fmt::print("{:<16} min {:.3f}  median {:.3f}  p99 {:.3f}  max {:.3f} ms  ({} pulls)\n", name,
             x.front(), at(x, 0.5), at(x, 0.99), x.back(), x.size());
  return at(x, 0.99);
}

} // namespace

int main() {
  const auto context = big_job();
  caf::actor_system_config cfg;
  configure(cfg);
  tune(cfg);
  caf::actor_system sys{cfg};
  shard_options options;
  options.view.number = 1;
  options.view.members = {{{job_kind::worker, 0}, 1, ""}};
  options.where = context->shard(0, 1);
  options.policy = std::make_shared<async_policy>(context, options.where, 0, 1, nullptr);
  auto versions = std::make_shared<version_pool>(options.where.size(), 4);
  auto shard = sys.spawn<parameter_shard, caf::detached>(context, options, versions);
  auto reader = sys.spawn<reader_front>(std::uint64_t{1}, options.where, versions);
  std::vector<double> idle;
  std::vector<double> busy;
  bool wrong = false;
  {
    puller pulls{sys, reader};
    pusher pushes{sys, caf::actor_cast<shard_actor>(shard), options.where.size()};
    for (int i = 0; i < rounds; ++i) {
      pulls.round(idle);
      pushes.active(true);
      const auto before = pushes.updates();
      pulls.round(busy);
      pushes.active(false);
      fmt::print("round {}: {} updates of 64 MiB beside {} pulls\n", i + 1,
                 pushes.updates() - before, pulls_per_round);
      std::this_thread::sleep_for(100ms);
    }
    wrong = pulls.wrong();
  }
  caf::anon_send_exit(shard, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(reader, caf::exit_reason::user_shutdown);
  const auto quiet = report("idle", idle);
  const auto updating = report("being updated", busy);
  fmt::print("p99 being updated / idle: {:.2f}\n", updating / quiet);
  if (wrong)
    fmt::print("a pull returned wrong weights\n");
  return wrong ? 1 : 0;
}
