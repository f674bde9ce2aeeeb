// Other programs send messages to the ports of a run's nodes, over real sockets of this host. They
// must not disturb the run.

#include "actors/cluster/peer_node.hpp"
#include "tests/actors/cluster/nodes_at_ports.hpp"
#include "tests/support/input_errors.hpp"
#include "tests/support/logger_first.hpp"

#include <caf/io/all.hpp>

#include <boost/test/unit_test.hpp>

#include <atomic>
#include <thread>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_TEST_GLOBAL_FIXTURE(logger_first);

BOOST_AUTO_TEST_SUITE(strangers_at_ports)

namespace {

/// Joins a node with a Hello, the first message of a link. The node starts a link, which answers
/// with a Welcome. Then the visitor sends bad messages to this link.
class visitor : public caf::event_based_actor {
public:
  visitor(caf::actor_config& cfg, std::shared_ptr<std::atomic<int>> welcomed)
    : caf::event_based_actor(cfg), welcomed_(std::move(welcomed)) {}

  caf::behavior make_behavior() override {
    set_default_handler(caf::drop);
    return {[this](const proto::Welcome&) {
      ++*welcomed_;
      // Orders to end, garbage, and messages that only the peer of the link may send.
      const auto link = caf::actor_cast<caf::actor>(current_sender());
      send(link, proto::Frame{}, caf::make_message(proto::Shutdown{}));
      send(link, caf::exit_msg{address(), caf::exit_reason::kill});
      send(link, std::string{"unknown"});
    }};
  }

private:
  std::shared_ptr<std::atomic<int>> welcomed_;
};

/// A program that is not part of the run.
class stranger : process {
public:
  ~stranger() {
    for (auto& x : visitors_)
      caf::anon_send_exit(x, caf::exit_reason::user_shutdown);
  }

  /// Sends many kinds of messages and orders to the node at a port.
  void attack(std::uint16_t port) {
    const auto found = sys->middleman().remote_actor("127.0.0.1", port);
    if (!found)
      return; // The run is over.
    const auto node = *found;
    caf::scoped_actor self{*sys};
    for (const auto reason : {caf::exit_reason::kill, caf::exit_reason::user_shutdown}) {
      caf::anon_send_exit(node, reason);
      self->send_exit(node, reason);
      self->send(node, caf::down_msg{node.address(), reason});
    }
    self->send(node, caf::make_error(caf::sec::runtime_error));
    self->send(node, std::string{"unknown"});
    self->send(node, proto::Shutdown{});
    self->send(node, proto::OpenView{});
    self->send(node, proto::Welcome{});
    self->send(node, proto::Frame{}, caf::make_message(proto::Shutdown{}));
    self->send(node, proto::ChannelRefused{});
    self->request(node, 1s, proto::Shutdown{})
      .receive([](const proto::Ack&) {}, [](const caf::error&) {});
    for (int i = 0; i < 50; ++i)
      self->send(node, proto::Probe{});
    ++attacks;
  }

  /// Sends Hellos that claim to come from a task of the run.
  void say_hello(std::uint16_t port, int count) {
    const auto node = sys->middleman().remote_actor("127.0.0.1", port);
    if (!node)
      return;
    proto::Hello hello;
    hello.set_wire_version(wire_version);
    hello.mutable_task()->set_job("worker");
    hello.set_incarnation(7);
    for (int i = 0; i < count; ++i) {
      hello.mutable_task()->set_index(static_cast<std::uint32_t>(i % 3));
      visitors_.push_back(sys->spawn<visitor>(welcomed_));
      const auto from = caf::actor_cast<caf::strong_actor_ptr>(visitors_.back());
      caf::actor_cast<caf::strong_actor_ptr>(*node)->enqueue(
        caf::make_mailbox_element(from, caf::make_message_id(), {}, hello), nullptr);
    }
  }

  int attacks = 0;
  int welcomed() const { return *welcomed_; }

private:
  std::vector<caf::actor> visitors_;
  std::shared_ptr<std::atomic<int>> welcomed_ = std::make_shared<std::atomic<int>>(0);
};

} // namespace

BOOST_AUTO_TEST_CASE(orders_of_strangers) {
  for (const bool channels : {true, false})
    BOOST_TEST_CONTEXT((channels ? "channels" : "BASP")) {
      cluster x{channels};
      stranger other;
      for (auto& node : x.nodes)
        other.attack(node->port);
      x.begin();
      while (x.end.wait_for(1ms) != std::future_status::ready && other.attacks < 1000)
        for (auto& node : x.nodes)
          other.attack(node->port);
      const auto summary = x.result();
      BOOST_TEST(summary.failure == "");
      BOOST_TEST(summary.weights_sha256 == undisturbed());
      BOOST_TEST(other.attacks >= 8);
      for (auto& node : x.nodes) {
        BOOST_TEST(contains(node->all_notices(), "would have ended"));
        BOOST_TEST(contains(node->all_notices(), "refused: another program sent"));
      }
    }
}

namespace {

/// A second process that claims to be the same worker. It sends its state to the coordinator as
/// soon as it has a link.
class second_start : public caf::event_based_actor {
public:
  second_start(caf::actor_config& cfg, task_name task) : caf::event_based_actor(cfg), task_(task) {}

  caf::behavior make_behavior() override {
    set_default_handler(caf::drop);
    return {[this](const proto::Welcome&) {
      proto::Frame frame;
      frame.set_kind(proto::Frame::ONE_WAY);
      *frame.mutable_to() = to_proto(endpoint{coordinator_task, proto::COORDINATOR});
      proto::TaskStatus status;
      *status.mutable_task() = to_proto(task_);
      send(caf::actor_cast<caf::actor>(current_sender()), frame, caf::make_message(status));
    }};
  }

private:
  task_name task_;
};

} // namespace

// A worker is started a second time. This is legal only if the first process is not connected.
BOOST_AUTO_TEST_CASE(second_starts_of_a_task) {
  cluster x{true};
  const process other;
  const task_name task{job_kind::worker, 0};
  proto::Hello hello;
  hello.set_wire_version(wire_version);
  *hello.mutable_task() = to_proto(task);
  hello.set_incarnation(7);
  x.begin();
  std::vector<caf::actor> started;
  const auto node = other.sys->middleman().remote_actor("127.0.0.1", x.nodes[0]->port);
  BOOST_TEST_REQUIRE(!!node);
  const auto refused = [&] {
    return contains(x.nodes[0]->all_notices(), "another start of worker/0 is connected");
  };
  while (!refused() && x.end.wait_for(2ms) != std::future_status::ready) {
    started.push_back(other.sys->spawn<second_start>(task));
    caf::actor_cast<caf::strong_actor_ptr>(*node)->enqueue(
      caf::make_mailbox_element(caf::actor_cast<caf::strong_actor_ptr>(started.back()),
                                caf::make_message_id(), {}, hello),
      nullptr);
  }
  BOOST_TEST(refused());
  const auto summary = x.result();
  BOOST_TEST(summary.failure == "");
  BOOST_TEST(summary.weights_sha256 == undisturbed());
  for (auto& y : started)
    caf::anon_send_exit(y, caf::exit_reason::user_shutdown);
}

BOOST_AUTO_TEST_CASE(many_hellos) {
  cluster x{true};
  stranger other;
  x.begin();
  for (auto& node : x.nodes)
    other.say_hello(node->port, 400);
  const auto summary = x.result();
  BOOST_TEST(summary.failure == "");
  BOOST_TEST(summary.weights_sha256 == undisturbed());
  BOOST_TEST(other.welcomed() > 0);
}

// -- processes that send a Hello and then nothing ------------------------------------------------

namespace {

proto::Hello hello_of(std::uint32_t index) {
  proto::Hello result;
  result.set_wire_version(wire_version);
  *result.mutable_task() = to_proto(task_name{job_kind::worker, index});
  result.set_incarnation(7);
  result.set_nonce("mine");
  return result;
}

/// True if the node answers with a Welcome. False if the node refuses, because too many processes
/// are connected that have not joined.
bool welcomed(caf::scoped_actor& who, const peer_node_actor& node, std::uint32_t index) {
  bool result = false;
  who->send(node, hello_of(index));
  who->receive(
    [&](const proto::Welcome&) { result = true; },
    [&](const proto::Failure& x) { BOOST_TEST(contains(x.reason(), "all 2 places are taken")); });
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(places_of_silent_processes) {
  process here;
  caf::scoped_actor first{*here.sys};
  caf::scoped_actor second{*here.sys};
  caf::scoped_actor third{*here.sys};
  peer_node_options how;
  how.self = {job_kind::ps, 0};
  how.strangers = 2;
  how.links.secret = "none of them knows it";
  const auto node = here.sys->spawn<peer_node>(std::move(how));
  BOOST_TEST(welcomed(first, node, 1));
  BOOST_TEST(welcomed(second, node, 2));
  BOOST_TEST(!welcomed(third, node, 3));
  std::this_thread::sleep_for(time_to_become_peer);
  BOOST_TEST(welcomed(third, node, 3));
  caf::anon_send(node, leave_peers{});
}

BOOST_AUTO_TEST_SUITE_END()
