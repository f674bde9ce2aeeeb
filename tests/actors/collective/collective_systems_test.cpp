#include "tests/actors/collective/ranks.hpp"

#include "actors/cluster/peer_node.hpp"
#include "kernels/error.hpp"
#include "kernels/file_descriptor.hpp"
#include "tests/support/free_addresses.hpp"

#include <boost/test/unit_test.hpp>

#include <caf/io/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <sys/socket.h>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(collective_of_systems)

namespace {

/// A group whose ranks are in different actor systems, connected over loopback.
class systems {
public:
  systems(std::size_t ranks, collective_options options) : addresses(free_addresses(ranks)) {
    options.addresses = addresses;
    for (std::size_t r = 0; r < ranks; ++r) {
      configs_.push_back(std::make_unique<config>(true));
      systems_.push_back(std::make_unique<caf::actor_system>(*configs_.back()));
    }
    std::vector<std::optional<collective>> joined(ranks);
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        auto own = options;
        own.rank = r;
        joined[r].emplace(collective::connect(*systems_[r], own));
      });
    for (auto& x : threads)
      x.join();
    for (auto& x : joined)
      groups.push_back(std::move(*x));
  }

private:
  std::vector<std::unique_ptr<config>> configs_;
  std::vector<std::unique_ptr<caf::actor_system>> systems_;

public:
  const std::vector<std::string> addresses;
  std::vector<collective> groups;
};

} // namespace

BOOST_AUTO_TEST_CASE(sums_over_loopback) {
  for (const bool share : {true, false})
    for (const auto schedule :
         {all_reduce_schedule::direct, all_reduce_schedule::ring, all_reduce_schedule::one_shot}) {
      collective_options options;
      options.share_memory = share;
      options.schedule = schedule;
      systems x{3, options};
      std::vector<char> right(3);
      const auto failures = run(x.groups, [&](collective& group) {
        right[group.rank()] =
          sums_are_right<float>(group, 1'000'003) && sums_are_right<double>(group);
      });
      for (std::size_t r = 0; r < 3; ++r)
        BOOST_TEST((right[r] && !failures[r]), (failures[r] ? failures[r]->text : ""));
    }
}

BOOST_AUTO_TEST_CASE(ranks_that_end_early) {
  for (int k = 0; k < 5; ++k) {
    systems x{3, {}};
    std::vector<char> right(3);
    const auto failures = run(x.groups, [&](collective& group) {
      right[group.rank()] = sums_are_right<float>(group);
      const auto ended = std::move(group);
    });
    for (std::size_t r = 0; r < 3; ++r)
      BOOST_TEST((right[r] && !failures[r]), (failures[r] ? failures[r]->text : ""));
    x.groups.clear();
  }
}

BOOST_AUTO_TEST_CASE(wrong_length_over_loopback) {
  systems x{3, {}};
  const auto failures = run(x.groups, [](collective& group) {
    std::vector<double> values(100'000 + group.rank() / 2);
    group.all_reduce(values);
  });
  for (const auto& failure : failures)
    BOOST_TEST((failure && failure->code == errc::malformed));
}

// With the default options, each all-reduce chooses its schedule by the length of the vector: short
// vectors are sent directly, long vectors around the ring.
BOOST_AUTO_TEST_CASE(schedules_by_length) {
  collective_options options;
  options.share_memory = false;
  options.chunk_bytes = 4096;
  systems x{3, options};
  std::vector<char> right(3);
  run(x.groups, [&](collective& group) { right[group.rank()] = sums_are_right<float>(group); });
  BOOST_TEST(std::ranges::count(right, 1) == 3);
}

// A second process connects as a rank that is already connected. It gets the reason of the refusal
// at once, long before connect_timeout.
BOOST_AUTO_TEST_CASE(a_second_process_of_a_rank) {
  const auto addresses = free_addresses(3);
  collective_options options;
  options.addresses = {addresses[0], addresses[1]};
  const auto connect = [&](caf::actor_system& sys, std::size_t rank, std::size_t first) {
    auto own = options;
    own.rank = rank;
    own.addresses[0] = addresses[first];
    return collective::connect(sys, own);
  };
  config a{true};
  config b{true};
  config c{true};
  caf::actor_system first{a};
  caf::actor_system second{b};
  caf::actor_system third{c};
  std::optional<collective> other;
  std::thread thread{[&] { other.emplace(connect(second, 1, 0)); }};
  std::optional<collective> group{connect(first, 0, 0)};
  thread.join();
  BOOST_CHECK_EXCEPTION(connect(third, 0, 2), collective_error, [](auto& error) {
    BOOST_TEST_MESSAGE(error.what());
    return error.failure().code == errc::join_refused
      && std::string{error.what()}.find("rank 0 has connected already") != std::string::npos;
  });
  // The group of the first processes still works.
  std::vector<collective> both;
  both.push_back(std::move(*group));
  both.push_back(std::move(*other));
  std::vector<char> right(2);
  run(both, [&](collective& x) { right[x.rank()] = sums_are_right<float>(x); });
  BOOST_TEST((right[0] && right[1]));
}

// A program that is not part of the group orders the nodes of all ranks to end. It also claims that
// actors have ended. The group must not be disturbed.
BOOST_AUTO_TEST_CASE(orders_of_strangers) {
  systems x{2, {}};
  config cfg{true};
  caf::actor_system sys{cfg};
  caf::scoped_actor self{sys};
  for (auto& address : x.addresses) {
    const auto port = std::stoul(address.substr(address.rfind(':') + 1));
    const auto node = sys.middleman().remote_actor("127.0.0.1", static_cast<std::uint16_t>(port));
    BOOST_TEST_REQUIRE(!!node);
    for (const auto reason : {caf::exit_reason::user_shutdown, caf::exit_reason::kill}) {
      self->send_exit(*node, reason);
      self->send(*node, caf::down_msg{node->address(), reason});
    }
    self->send(*node, caf::make_error(caf::sec::runtime_error));
    self->send(*node, std::string{"unknown"});
    // The node answers in order. So it has handled all earlier messages when this answer arrives.
    self->request(*node, 30s, std::string{"unknown"})
      .receive([] {}, [](const caf::error& x) { BOOST_TEST((x == caf::sec::unexpected_message)); });
  }
  std::vector<char> right(2);
  run(x.groups, [&](collective& group) { right[group.rank()] = sums_are_right<float>(group); });
  BOOST_TEST((right[0] && right[1]));
}

// Other ranks connect to the last rank, and the last rank opens no connection itself. So all links
// of the last rank may exist before its program asks its node to connect.
BOOST_AUTO_TEST_CASE(others_that_are_faster) {
  config cfg;
  caf::actor_system sys{cfg};
  caf::scoped_actor self{sys};
  const auto member = sys.spawn<collective_member>(member_options{.rank = 1, .ranks = 2});
  peer_node_options how;
  how.self = {job_kind::worker, 1};
  how.resident = caf::actor_cast<caf::strong_actor_ptr>(member);
  how.service = proto::RING_NODE;
  how.peers = {{{job_kind::worker, 0}, "rank 0", "127.0.0.1:1", false}};
  const auto node = sys.spawn<peer_node>(how);
  const auto session =
    std::make_shared<link_session>(sys, std::make_shared<directory>(), caf::strong_actor_ptr{});
  self->send(node, link_up{{job_kind::worker, 0}, 1, session});
  bool connected = false;
  self->request(node, 30s, connect_peers{})
    .receive([&](const peers_connected& x) { connected = x.residents.size() == 1; },
             [](const caf::error&) {});
  BOOST_TEST(connected);
  self->send_exit(member, caf::exit_reason::user_shutdown);
  self->wait_for(node);
}

BOOST_AUTO_TEST_CASE(a_rank_that_is_missing) {
  config cfg{true};
  caf::actor_system sys{cfg};
  collective_options options;
  options.addresses = free_addresses(2);
  options.connect_timeout = 100ms;
  for (const std::size_t rank : {0, 1}) {
    options.rank = rank;
    const auto other = "rank " + std::to_string(1 - rank) + " at " + options.addresses[1 - rank];
    BOOST_CHECK_EXCEPTION(collective::connect(sys, options), collective_error, [&](auto& error) {
      return error.failure().code == errc::timed_out
        && std::string{error.what()}.find(other) != std::string::npos;
    });
  }
}

BOOST_AUTO_TEST_CASE(options_that_make_no_sense) {
  config cfg{true};
  caf::actor_system sys{cfg};
  config no_network;
  caf::actor_system alone{no_network};
  const auto refused = [&](const std::string& text, auto&& change, bool network = true) {
    collective_options options;
    options.addresses = free_addresses(2);
    change(options);
    BOOST_CHECK_EXCEPTION(collective::connect(network ? sys : alone, options), input_error,
                          [&](auto& error) {
                            BOOST_TEST_MESSAGE(error.what());
                            return std::string{error.what()}.find(text) != std::string::npos;
                          });
  };
  refused("0 ranks", [](auto& x) { x.addresses.clear(); });
  refused("rank 2", [](auto& x) { x.rank = 2; });
  refused("'here'", [](auto& x) { x.addresses[1] = "here"; });
  refused("'127.0.0.1:0'", [](auto& x) { x.addresses[1] = "127.0.0.1:0"; });
  refused("chunk_bytes is 7", [](auto& x) { x.chunk_bytes = 7; });
  refused("deadline is 1 ms", [](auto& x) { x.deadline = 1ms; });
  refused(
    "load<caf::io::middleman>", [](auto&) {}, false);
  // The address of a rank is in use: another socket already listens there.
  const file_descriptor taken{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof where;
  auto* address = reinterpret_cast<sockaddr*>(&where);
  BOOST_REQUIRE(::bind(taken.get(), address, size) == 0 && ::listen(taken.get(), 1) == 0);
  BOOST_REQUIRE(::getsockname(taken.get(), address, &size) == 0);
  refused("in use",
          [&](auto& x) { x.addresses[0] = "127.0.0.1:" + std::to_string(ntohs(where.sin_port)); });
}

namespace {

/// A network without other nodes. The test decides when an attempt to connect fails.
class empty_network final : public transport {
public:
  void dial(const task_name& task, const std::string&, dial_listener listener) override {
    open.emplace_back(task, std::move(listener));
    most_open = std::max(most_open, open.size());
  }

  void fail_all() {
    for (auto& [task, listener] : std::exchange(open, {}))
      caf::anon_send(listener, dialled{task, nullptr, "refused"});
  }

  void answer_all(const caf::actor& node, const std::function<void()>& hang_up) {
    for (auto& [task, listener] : std::exchange(open, {}))
      caf::anon_send(listener,
                     dialled{task, caf::actor_cast<caf::strong_actor_ptr>(node), "", hang_up});
  }

  std::deque<std::pair<task_name, dial_listener>> open;
  std::size_t most_open = 0;
};

/// A node in virtual time, whose only peer is reached over an empty_network.
struct lone_node {
  explicit lone_node(std::chrono::milliseconds patience) {
    how.self = {job_kind::worker, 0};
    how.peers = {{{job_kind::ps, 0}, "server 0", "127.0.0.1:1"}};
    how.net = net;
    how.patience = patience;
    node = sys.spawn<peer_node>(how);
  }

  ~lone_node() {
    caf::anon_send(node, leave_peers{});
    net->fail_all();
    scheduler.run();
    scheduler.clock().cancel_all();
    scheduler.run();
  }

  void pass(std::chrono::milliseconds time) {
    scheduler.clock().advance_time(time);
    scheduler.run();
  }

  struct virtual_time : config {
    virtual_time() { set("scheduler.policy", caf::atom("testing")); }
  };
  virtual_time cfg;
  caf::actor_system sys{cfg};
  caf::scheduler::test_coordinator& scheduler =
    dynamic_cast<caf::scheduler::test_coordinator&>(sys.scheduler());
  std::shared_ptr<empty_network> net = std::make_shared<empty_network>();
  peer_node_options how;
  peer_node_actor node;
};

} // namespace

// The peer's node was found, but never answers. The connection is then closed before the next
// attempt, because it may be broken.
BOOST_AUTO_TEST_CASE(a_connection_without_an_answer) {
  lone_node x{60s};
  const auto deaf = x.sys.spawn(
    [](caf::event_based_actor*) -> caf::behavior { return {[](const proto::Hello&) {}}; });
  caf::anon_send(x.node, connect_peers{});
  x.scheduler.run();
  BOOST_TEST_REQUIRE(x.net->open.size() == 1u);
  int hung_up = 0;
  x.net->answer_all(deaf, [&] { ++hung_up; });
  x.scheduler.run();
  for (auto t = 0s; t < 20s && x.net->open.empty(); t += 1s) {
    BOOST_TEST(hung_up == (t < 10s ? 0 : 1));
    x.pass(1s);
  }
  BOOST_TEST(hung_up == 1);
  BOOST_TEST(x.net->open.size() == 1u);
  caf::anon_send_exit(deaf, caf::exit_reason::user_shutdown);
}

// A program calls retry() again and again while the peer cannot be reached, and each attempt to
// connect takes 300 ms. There must be one attempt at a time.
BOOST_AUTO_TEST_CASE(one_attempt_at_a_time) {
  lone_node x{500ms};
  int failures = 0;
  for (int call = 1; call <= 20; ++call) {
    x.sys.spawn(
      [&failures, node = x.node](caf::event_based_actor* self, connect_peers what) {
        self->request(node, caf::infinite, what)
          .then([](const peers_connected&) {}, [&failures](const caf::error&) { ++failures; });
      },
      connect_peers{});
    x.scheduler.run();
    for (auto t = 25ms; failures < call && t <= 1'000ms; t += 25ms) {
      if (t % 300ms == 0ms)
        x.net->fail_all();
      x.pass(25ms);
    }
    BOOST_TEST(failures == call);
  }
  BOOST_TEST(x.net->most_open == 1u);
}

BOOST_AUTO_TEST_SUITE_END()
