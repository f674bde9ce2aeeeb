// How a node connects to other nodes by the framework's protocol, with real sockets on this host.

#include "actors/cluster/basp_transport.hpp"
#include "actors/link/sockets.hpp"
#include "tests/actors/cluster/nodes_at_ports.hpp"
#include "tests/support/input_errors.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <condition_variable>
#include <thread>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(dialling)

namespace {

/// The results of attempts to connect, in the order of their arrival.
class results {
public:
  void add(const dialled& x) {
    const std::lock_guard guard{mutex_};
    all_.push_back(x);
    changed_.notify_all();
  }
  std::vector<dialled> wait_for(std::size_t count) {
    std::unique_lock guard{mutex_};
    BOOST_TEST_REQUIRE(
      changed_.wait_for(guard, patience_limit, [&] { return all_.size() >= count; }));
    return std::exchange(all_, {});
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<dialled> all_;
};

class collector : public dial_listener::base {
public:
  collector(caf::actor_config& cfg, std::shared_ptr<results> to)
    : dial_listener::base(cfg), to_(std::move(to)) {}

  behavior_type make_behavior() override {
    return {[this](const dialled& x) { to_->add(x); }};
  }

private:
  std::shared_ptr<results> to_;
};

class published : public caf::event_based_actor {
public:
  using caf::event_based_actor::event_based_actor;
  caf::behavior make_behavior() override {
    return {[](caf::unit_t) {}};
  }
};

/// A process that dials, and one that listens.
struct two_processes {
  process dialling;
  process listening;
  std::shared_ptr<results> found = std::make_shared<results>();
  dial_listener listener = dialling.sys->spawn<collector>(found);
  caf::actor node = listening.sys->spawn<published>();
  std::uint16_t port = basp_transport::listen(
    *listening.sys, caf::actor_cast<caf::strong_actor_ptr>(node), "127.0.0.1", 0);

  ~two_processes() {
    caf::anon_send_exit(listener, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(node, caf::exit_reason::user_shutdown);
  }
};

/// A port that does not answer attempts to connect, like an address that a firewall drops: its
/// queue of connections is full.
class silent_port {
public:
  silent_port() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof where;
    auto* address = reinterpret_cast<sockaddr*>(&where);
    BOOST_TEST_REQUIRE(::bind(listener_.get(), address, size) == 0);
    BOOST_TEST_REQUIRE(::listen(listener_.get(), 0) == 0);
    BOOST_TEST_REQUIRE(::getsockname(listener_.get(), address, &size) == 0);
    port = ntohs(where.sin_port);
    for (auto& x : waiting_) {
      x = file_descriptor{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
      ::connect(x.get(), address, size);
    }
  }

  std::uint16_t port = 0;

private:
  file_descriptor listener_;
  std::array<file_descriptor, 4> waiting_;
};

/// A port that passes one connection on to another port, but only after `delay`, as a network with
/// a long way does.
class late_port {
public:
  late_port(std::uint16_t to, std::chrono::milliseconds delay)
    : listener_(listen_on("127.0.0.1", port)), thread_([this, to, delay] { run(to, delay); }) {}
  ~late_port() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }

  std::uint16_t port = 0;

private:
  void run(std::uint16_t to, std::chrono::milliseconds delay) {
    pollfd incoming{listener_.get(), POLLIN, 0};
    ::poll(&incoming, 1, -1);
    std::string problem;
    bool refused = false;
    std::array<file_descriptor, 2> ends{accept_on(listener_.get(), problem)};
    if (!ends[0])
      return;
    std::this_thread::sleep_for(delay);
    ends[1] = connect_to("127.0.0.1", to, 5s, problem, refused);
    for (;;) {
      std::array<pollfd, 3> files{
        {{ends[0].get(), POLLIN, 0}, {ends[1].get(), POLLIN, 0}, {listener_.get(), 0, 0}}};
      ::poll(files.data(), files.size(), -1);
      if (files[2].revents != 0) // the destructor waits
        return;
      for (std::size_t i = 0; i < 2; ++i) {
        std::array<char, 4096> bytes{};
        if (files[i].revents == 0)
          continue;
        const auto n = ::recv(ends[i].get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (n <= 0)
          return;
        ::send(ends[1 - i].get(), bytes.data(), static_cast<std::size_t>(n), MSG_NOSIGNAL);
      }
    }
  }

  file_descriptor listener_;
  std::thread thread_;
};

std::string at(std::uint16_t port) {
  return "127.0.0.1:" + std::to_string(port);
}

} // namespace

BOOST_AUTO_TEST_CASE(an_address_that_does_not_answer_delays_no_other) {
  const silent_port silent;
  two_processes x;
  basp_transport net{*x.dialling.sys, 2s};
  net.dial({job_kind::worker, 0}, at(silent.port), x.listener);
  // The first attempt has begun to connect.
  std::this_thread::sleep_for(200ms);
  net.dial({job_kind::worker, 1}, at(x.port), x.listener);
  const auto found = x.found->wait_for(2);
  BOOST_TEST(found[0].task.index == 1U);
  BOOST_TEST((found[0].node != nullptr));
  BOOST_TEST(found[1].task.index == 0U);
  BOOST_TEST((found[1].node == nullptr));
  BOOST_TEST(contains(found[1].problem, "timed out"));
}

// CAF itself closes a connection over which nothing arrives within about a second.
BOOST_AUTO_TEST_CASE(an_answer_that_takes_long) {
  two_processes x;
  const late_port late{x.port, 2s};
  basp_transport net{*x.dialling.sys};
  net.dial({job_kind::worker, 0}, at(late.port), x.listener);
  const auto found = x.found->wait_for(1);
  BOOST_TEST(found[0].problem == "");
  BOOST_TEST((found[0].node != nullptr));
}

// All attempts find the same node, whether or not another connection to it is open already.
BOOST_AUTO_TEST_CASE(several_attempts_find_the_same_node) {
  two_processes x;
  basp_transport net{*x.dialling.sys};
  for (std::uint32_t i = 0; i < 3; ++i)
    net.dial({job_kind::worker, i}, at(x.port), x.listener);
  auto found = x.found->wait_for(3);
  net.dial({job_kind::worker, 3}, at(x.port), x.listener);
  found.push_back(x.found->wait_for(1).front());
  for (const auto& y : found) {
    BOOST_TEST_REQUIRE((y.node != nullptr));
    BOOST_TEST((y.node == found.front().node));
  }
}

// After hang_up(), the other process is connected again by a new connection.
BOOST_AUTO_TEST_CASE(a_connection_that_is_given_up) {
  two_processes x;
  basp_transport net{*x.dialling.sys};
  const auto dial = [&] {
    net.dial({job_kind::worker, 0}, at(x.port), x.listener);
    return x.found->wait_for(1).front();
  };
  const auto first = dial();
  caf::scoped_actor self{*x.dialling.sys};
  self->monitor(first.node);
  first.hang_up();
  self->receive([](const caf::down_msg&) {},
                caf::after(patience_limit) >> [] { BOOST_FAIL("the connection is still open"); });
  const auto second = dial();
  BOOST_TEST_REQUIRE((second.node != nullptr));
  BOOST_TEST((second.node != first.node));
}

BOOST_AUTO_TEST_CASE(problems) {
  two_processes x;
  basp_transport net{*x.dialling.sys, 2s};
  const auto problem_of = [&](const std::string& address) {
    net.dial({job_kind::worker, 0}, address, x.listener);
    return x.found->wait_for(1).front().problem;
  };
  std::uint16_t port = 0;
  { const auto closed = listen_on("127.0.0.1", port); }
  BOOST_TEST(contains(problem_of(at(port)), "refused"));
  BOOST_TEST(contains(problem_of("host.invalid:1"), "host unknown"));
  BOOST_TEST(contains(problem_of("nothing"), "is not host:port"));
  // The system accepts the connection, but no program answers.
  const auto mute = listen_on("127.0.0.1", port = 0);
  BOOST_TEST(contains(problem_of(at(port)), "does not answer"));
}

BOOST_AUTO_TEST_SUITE_END()
