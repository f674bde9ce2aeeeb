// Whole runs over real sockets of this host. Proxies cut, reset, half-close or stall their
// connections. broken_connections_test.cpp does the same in the simulator, which is faster and
// always gives the same bits.

#include "actors/cluster/cluster_node.hpp"
#include "actors/link/channel_host.hpp"
#include "tests/actors/cluster/ways.hpp"
#include "tests/actors/link/harming_proxy.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <cstdlib>
#include <future>
#include <limits>
#include <random>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;
using harm = harming_proxy::harm;

BOOST_AUTO_TEST_SUITE(harmed_sockets)

namespace {

constexpr auto patience_limit = 120s;
constexpr auto whole_record = std::numeric_limits<std::uint64_t>::max();

/// The kinds of harm that both ends notice at once. harm::stall is not among them: the ends notice
/// it only after some time, and a node that has not joined only after 10 seconds.
constexpr std::array noticed{harm::cut, harm::reset, harm::half_close};

constexpr std::array in_step{"protocol=SYNC_PS", "protocol=RING"};

/// A small job. Its gradients are so large that a channel does not copy them into a record (see
/// stream_channel::large), even after a ring divides them into segments.
proto::Job job_with(const std::string& protocol, std::uint64_t samples) {
  return example_job("digits_mlp",
                     {protocol, "data.digits={train: " + std::to_string(samples) + " test: 2}",
                      "data.batch=4", "epochs=1", "model.layer[0].dense.units=16",
                      "runtime.suspect_after_ms=200",
                      "runtime.request_timeout_ms=" + std::to_string(patience_limit / 1ms),
                      "runtime.link_grace_ms=" + std::to_string(patience_limit / 1ms)});
}

/// Makes TCP channels whose peers connect through a proxy.
class proxied_channels final : public channel_maker {
public:
  explicit proxied_channels(caf::actor_system& sys) : host_(sys, by_tcp()), proxy_(port()) {}

  proto::ChannelOffer offer(on_channel then) override {
    auto result = host_.offer(std::move(then));
    result.set_port(proxy_.port());
    return result;
  }

  void withdraw(const proto::ChannelOffer& offer) override { host_.withdraw(offer); }

  void connect(const proto::ChannelOffer& offer, const std::string& address,
               on_channel then) override {
    host_.connect(offer, address, std::move(then));
  }

  harming_proxy& proxy() noexcept { return proxy_; }
  void stop() { host_.stop(); }

private:
  static channel_host_options by_tcp() {
    channel_host_options result;
    result.address = "127.0.0.1";
    result.local = false;
    result.grace = patience_limit;
    return result;
  }

  std::uint16_t port() {
    const auto x = host_.offer({});
    host_.withdraw(x);
    return static_cast<std::uint16_t>(x.port());
  }

  channel_host host_;
  harming_proxy proxy_;
};

/// Finds nodes of this process by their address, so that their links use sockets.
class directory_of_nodes final : public transport {
public:
  void clear() { nodes_.clear(); }

  void add(const std::string& address, caf::strong_actor_ptr node) {
    nodes_.emplace(address, std::move(node));
  }

  void dial(const task_name& task, const std::string& address, dial_listener listener) override {
    caf::anon_send(listener, dialled{task, nodes_.at(address), {}});
  }

private:
  std::map<std::string, caf::strong_actor_ptr> nodes_;
};

/// A run of a coordinator, a shard and two workers. Each node has its own sockets.
class harmed_run {
public:
  explicit harmed_run(const proto::Job& job) : sys_(configured(cfg_)) {
    coordinator_setup setup;
    setup.data = build_data(job);
    setup.context = make_job_context(job, shape_of(*setup.data.train));
    std::vector<task_name> tasks{
      coordinator_task, {job_kind::ps, 0}, {job_kind::worker, 0}, {job_kind::worker, 1}};
    for (std::size_t i = 1; i < tasks.size(); ++i)
      setup.tasks.push_back({tasks[i], address_of(i)});
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      node_options how;
      how.tasks = {tasks[i]};
      how.incarnation = 100 + i;
      how.net = net_;
      how.links.channels = channels_.emplace_back(std::make_shared<proxied_channels>(sys_));
      how.source = [data = setup.data](const proto::Job&) { return data; };
      how.on_end = [this, i](const run_summary& x) { ended_[i].set_value(x); };
      if (i == 0)
        how.coordinator = setup;
      else
        how.coordinator_address = address_of(0);
      nodes_.push_back(caf::actor_cast<caf::actor>(sys_.spawn<cluster_node>(std::move(how))));
      net_->add(address_of(i), caf::actor_cast<caf::strong_actor_ptr>(nodes_.back()));
    }
  }

  ~harmed_run() {
    for (auto& x : nodes_)
      caf::anon_send(x, crash_node{});
    nodes_.clear();
    net_->clear();
    for (auto& x : channels_)
      x->stop();
  }
  harmed_run(const harmed_run&) = delete;
  harmed_run& operator=(const harmed_run&) = delete;

  std::size_t size() const noexcept { return nodes_.size(); }

  /// The proxy through which peers reach a node.
  harming_proxy& proxy(std::size_t node) { return channels_.at(node)->proxy(); }

  /// Calls `meanwhile` again and again until the run is over.
  run_summary train(const std::function<void()>& meanwhile = {}) {
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      caf::anon_send(nodes_[i], begin_node{address_of(i)});
    auto end = ended_[0].get_future();
    const auto deadline = std::chrono::steady_clock::now() + patience_limit;
    while (end.wait_for(2ms) != std::future_status::ready) {
      BOOST_TEST_REQUIRE((std::chrono::steady_clock::now() < deadline));
      if (meanwhile)
        meanwhile();
    }
    return end.get();
  }

private:
  static caf::actor_system_config& configured(caf::actor_system_config& cfg) {
    configure(cfg);
    tune(cfg);
    return cfg;
  }

  static std::string address_of(std::size_t node) {
    return "127.0.0.1:" + std::to_string(node + 1);
  }

  std::array<std::promise<run_summary>, 4> ended_;
  caf::actor_system_config cfg_;
  caf::actor_system sys_;
  std::shared_ptr<directory_of_nodes> net_ = std::make_shared<directory_of_nodes>();
  std::vector<std::shared_ptr<proxied_channels>> channels_;
  std::vector<caf::actor> nodes_;
};

void check(const run_summary& x, const run_summary& undisturbed) {
  BOOST_TEST(x.failure == "");
  BOOST_TEST(x.samples == undisturbed.samples);
  BOOST_TEST(x.applied == undisturbed.applied);
  BOOST_TEST(x.rejected_stale + x.requeued + x.lost + x.split == 0U);
  BOOST_TEST(x.weights_sha256 == undisturbed.weights_sha256);
}

} // namespace

// Harms the connection to each node at record (message) 0, 1, 2, ... until a run has no record with
// this number.
BOOST_AUTO_TEST_CASE(at_every_record) {
  for (const auto* protocol : in_step) {
    const auto job = job_with(protocol, 8);
    const auto undisturbed = simulate(simulated(job, 2, 1)).summary;
    std::uint64_t harms = 0;
    for (std::size_t node = 0; node < 4; ++node) {
      some_cases chosen{7};
      std::uint64_t record = 0;
      for (bool harmed = true; harmed; ++record) {
        if (!chosen())
          continue;
        BOOST_TEST_INFO_SCOPE(protocol << ", node " << node << ", record " << record);
        harmed_run run{job};
        run.proxy(node).plan(noticed.at(record % noticed.size()), record,
                             record % 2 == 0 ? 9 : whole_record);
        check(run.train(), undisturbed);
        harmed = !run.proxy(node).planned();
        harms += harmed ? 1 : 0;
      }
    }
    BOOST_TEST_MESSAGE(protocol << ": " << harms << " harms");
    BOOST_TEST(harms > tries(40));
  }
}

// Harms connections at random until TROUPE_CUTS connections were harmed.
BOOST_AUTO_TEST_CASE(soak) {
  const auto* text = std::getenv("TROUPE_CUTS");
  const std::uint64_t wanted = text != nullptr ? std::stoull(text) : 60;
  std::mt19937_64 random{1};
  std::uint64_t harms = 0;
  std::uint64_t runs = 0;
  for (; harms < wanted; ++runs) {
    const auto job = job_with(in_step.at(runs % in_step.size()), 160);
    BOOST_TEST_INFO_SCOPE("run " << runs);
    harmed_run run{job};
    std::array<std::uint64_t, 4> of_node{};
    const auto result = run.train([&] {
      for (std::size_t node = 0; node < of_node.size(); ++node) {
        if (run.proxy(node).planned())
          continue;
        const bool trains = of_node[node]++ > 10;
        const auto how =
          trains && random() % 8 == 0 ? harm::stall : noticed.at(random() % noticed.size());
        run.proxy(node).plan(how, random() % 20,
                             random() % 2 == 0 ? whole_record : 1 + random() % 20'000);
      }
    });
    for (std::size_t node = 0; node < of_node.size(); ++node)
      harms += of_node[node] - (run.proxy(node).planned() ? 1 : 0);
    check(result, simulate(simulated(job, 2, 1)).summary);
  }
  BOOST_TEST_MESSAGE(harms << " harms in " << runs << " runs");
}

BOOST_AUTO_TEST_SUITE_END()
