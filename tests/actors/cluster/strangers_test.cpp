// Other programs send messages to the ports of a run's nodes, over real sockets of this host.

#include "actors/cluster/basp_transport.hpp"
#include "actors/cluster/cluster_node.hpp"
#include "actors/cluster/peer_node.hpp"
#include "actors/link/channel_host.hpp"
#include "kernels/file_descriptor.hpp"
#include "tests/support/example_job.hpp"
#include "tests/support/input_errors.hpp"
#include "tests/support/logger_first.hpp"

#include <caf/io/all.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <atomic>
#include <future>
#include <thread>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_TEST_GLOBAL_FIXTURE(logger_first);

BOOST_AUTO_TEST_SUITE(strangers_at_ports)

namespace {

constexpr auto patience_limit = 120s;

proto::Job job_of_test() {
  return example_job("digits_mlp",
                     {"data.digits={train: 640 test: 20}", "data.batch=16", "epochs=8",
                      "protocol=SYNC_PS", "model.layer[0].dense.units=16"});
}

/// Collects the notices to the operator.
class listener : public run_observer::base {
public:
  listener(caf::actor_config& cfg, std::shared_ptr<std::vector<std::string>> notices,
           std::shared_ptr<std::mutex> mutex)
    : run_observer::base(cfg), notices_(std::move(notices)), mutex_(std::move(mutex)) {}

  behavior_type make_behavior() override {
    return {
      [](const run_progress&) {},
      [](const epoch_report&) {},
      [](const run_summary&) {},
      [this](const run_notice& x) {
        const std::lock_guard guard{*mutex_};
        notices_->push_back(x.text);
      },
    };
  }

private:
  std::shared_ptr<std::vector<std::string>> notices_;
  std::shared_ptr<std::mutex> mutex_;
};

/// An actor system with a port.
struct process {
  caf::actor_system_config cfg;
  std::unique_ptr<caf::actor_system> sys;

  explicit process(const std::function<void(caf::actor_system_config&)>& change = {}) {
    configure(cfg);
    tune(cfg);
    cfg.set("scheduler.max-threads", std::size_t{2});
    cfg.load<caf::io::middleman>();
    if (change)
      change(cfg);
    sys = std::make_unique<caf::actor_system>(cfg);
  }
};

/// A node in its own actor system, as if in its own process.
struct node_process : process {
  std::promise<run_summary> ended;
  std::shared_ptr<std::vector<std::string>> notices = std::make_shared<std::vector<std::string>>();
  std::shared_ptr<std::mutex> mutex = std::make_shared<std::mutex>();
  run_observer observer = sys->spawn<listener>(notices, mutex);
  std::shared_ptr<channel_host> channels;
  caf::actor node;
  std::uint16_t port = 0;

  node_process(node_options how, bool with_channels) {
    if (with_channels)
      channels = std::make_shared<channel_host>(*sys, channel_host_options{});
    how.links.channels = channels;
    how.net = std::make_shared<basp_transport>(*sys);
    how.observer = observer;
    how.on_end = [this](const run_summary& x) { ended.set_value(x); };
    node = caf::actor_cast<caf::actor>(sys->spawn<cluster_node>(std::move(how)));
    port =
      basp_transport::listen(*sys, caf::actor_cast<caf::strong_actor_ptr>(node), "127.0.0.1", 0);
  }

  ~node_process() {
    caf::anon_send(node, crash_node{});
    node = nullptr;
    caf::anon_send_exit(observer, caf::exit_reason::user_shutdown);
    observer = nullptr;
    if (channels)
      channels->stop();
  }

  void begin() { caf::anon_send(node, begin_node{"127.0.0.1:" + std::to_string(port)}); }

  std::string all_notices() {
    const std::lock_guard guard{*mutex};
    std::string result;
    for (auto& x : *notices)
      result += x + '\n';
    return result;
  }
};

/// A coordinator, a shard and two workers.
struct cluster {
  std::vector<std::unique_ptr<node_process>> nodes;
  std::future<run_summary> end;

  explicit cluster(bool with_channels, const std::function<void(node_options&)>& change = {}) {
    const auto job = job_of_test();
    coordinator_setup setup;
    setup.data = build_data(job);
    setup.context = make_job_context(job, shape_of(*setup.data.train));
    const std::vector<task_name> tasks{
      {job_kind::ps, 0}, {job_kind::worker, 0}, {job_kind::worker, 1}};
    for (auto& task : tasks)
      setup.tasks.push_back({task, "127.0.0.1:0"});
    node_options first;
    first.tasks = {coordinator_task};
    first.incarnation = 100;
    first.coordinator = std::move(setup);
    if (change)
      change(first);
    nodes.push_back(std::make_unique<node_process>(std::move(first), with_channels));
    for (auto& task : tasks) {
      node_options how;
      how.tasks = {task};
      how.incarnation = 100 + nodes.size();
      how.coordinator_address = "127.0.0.1:" + std::to_string(nodes[0]->port);
      how.source = build_data;
      if (change)
        change(how);
      nodes.push_back(std::make_unique<node_process>(std::move(how), with_channels));
    }
    end = nodes[0]->ended.get_future();
  }

  void begin() {
    for (auto& x : nodes)
      x->begin();
  }

  run_summary result() {
    BOOST_TEST_REQUIRE((end.wait_for(patience_limit) == std::future_status::ready));
    return end.get();
  }
};

/// Sends a Hello. The node starts a link for it, which answers with a Welcome.
class visitor : public caf::event_based_actor {
public:
  visitor(caf::actor_config& cfg, std::shared_ptr<std::atomic<int>> welcomed)
    : caf::event_based_actor(cfg), welcomed_(std::move(welcomed)) {}

  caf::behavior make_behavior() override {
    set_default_handler(caf::drop);
    return {[this](const proto::Welcome&) {
      ++*welcomed_;
      // Sends to its own link: orders, garbage, and messages that only a peer sends.
      const auto link = caf::actor_cast<caf::actor>(current_sender());
      send(link, proto::Frame{}, caf::make_message(proto::Shutdown{}));
      send(link, caf::exit_msg{address(), caf::exit_reason::kill});
      send(link, std::string{"unknown"});
    }};
  }

private:
  std::shared_ptr<std::atomic<int>> welcomed_;
};

/// A program that is not a node.
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

  /// Sends Hello as a task of the run.
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

std::string undisturbed() {
  static const auto result = [] {
    cluster x{true};
    x.begin();
    const auto summary = x.result();
    BOOST_TEST(summary.failure == "");
    for (auto& node : x.nodes)
      BOOST_TEST(!contains(node->all_notices(), "refused"));
    return summary.weights_sha256;
  }();
  return result;
}

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

/// Another start of a worker. It sends its state to the coordinator as soon as it has a link.
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

// Its message would be legal if the first start were not connected.
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
    other.say_hello(node->port, 2'500);
  const auto summary = x.result();
  BOOST_TEST(summary.failure == "");
  BOOST_TEST(summary.weights_sha256 == undisturbed());
  BOOST_TEST(other.welcomed() > 0);
}

// -- the framework's own servers ----------------------------------------------------------------

namespace {

std::atomic<int> spawned = 0;

/// An actor that another program can start by its name.
class by_name : public caf::event_based_actor {
public:
  using caf::event_based_actor::event_based_actor;

  caf::behavior make_behavior() override {
    ++spawned;
    return {};
  }
};

/// Answers everything, and offers an actor by its name.
struct embedding_program : process {
  embedding_program()
    : process([](caf::actor_system_config& cfg) { cfg.add_actor_type<by_name>("by_name"); }) {}

  class echo : public caf::event_based_actor {
  public:
    using caf::event_based_actor::event_based_actor;
    caf::behavior make_behavior() override {
      return {[](const proto::Ack& x) { return x; }};
    }
  };

  ~embedding_program() { caf::anon_send_exit(served, caf::exit_reason::user_shutdown); }

  /// True if the framework's server of this process stores a value with this name.
  bool keeps(const std::string& key) {
    caf::scoped_actor self{*sys};
    bool result = false;
    self
      ->request(caf::actor_cast<caf::actor>(sys->config_serv()), caf::infinite,
                caf::get_atom::value, key)
      .receive([&](const std::string&, const caf::message& x) { result = !x.empty(); },
               [](const caf::error&) {});
    return result;
  }

  basp_transport net{*sys};
  caf::actor served = sys->spawn<echo>();
  std::uint16_t port =
    basp_transport::listen(*sys, caf::actor_cast<caf::strong_actor_ptr>(served), "127.0.0.1", 0);
};

/// Writes the frames of the framework's protocol itself.
class raw_program {
public:
  raw_program(caf::actor_system& codec, std::uint16_t port)
    : codec_(codec), socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    BOOST_TEST_REQUIRE(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to)
                       == 0);
    const caf::node_id::default_data::host_id_type host{1, 2, 3};
    static std::uint32_t number = 4711;
    write(caf::io::basp::message_type::client_handshake, 0, 0, caf::invalid_actor_id,
          caf::make_node_id(number++, host));
    const auto [head, hello] = read();
    std::vector<std::string> programs;
    std::set<std::string> types;
    caf::binary_deserializer source{codec_, hello};
    BOOST_TEST_REQUIRE(!source(peer_, programs, published_, types));
  }

  /// A message for an actor with a name, or with a number.
  void send(caf::atom_value to, const caf::message& x) {
    write(caf::io::basp::message_type::direct_message, caf::io::basp::header::named_receiver_flag,
          0, static_cast<std::uint64_t>(to), std::vector<caf::strong_actor_ptr>{}, x);
  }

  void send(caf::actor_id to, const caf::message& x, caf::message_id id = caf::make_message_id()) {
    write(caf::io::basp::message_type::direct_message, 0, id.integer_value(), to,
          std::vector<caf::strong_actor_ptr>{}, x);
  }

  /// A message that another actor seems to have sent: an actor of the process at the port.
  void send_as(caf::actor_id from, const caf::message& x,
               caf::message_id id = caf::make_message_id()) {
    sender_ = from;
    write(caf::io::basp::message_type::routed_message, 0, id.integer_value(), published_, peer_,
          peer_, std::vector<caf::strong_actor_ptr>{}, x);
    sender_ = 12;
  }

  /// Returns when the actor at the port has answered, and has therefore received all earlier
  /// messages.
  void wait_for_answer() {
    const auto id = caf::make_message_id(1);
    send(published_, caf::make_message(proto::Ack{}), id);
    while (read().first.operation_data != id.response_id().integer_value())
      ;
  }

  /// Writes the header of a message of this length, and nothing else.
  void announce(std::uint32_t bytes) {
    const caf::io::basp::header x{
      caf::io::basp::message_type::direct_message, 0, bytes, 0, 12, published_};
    write_header(x, {});
  }

  /// True if the other side closes the connection within this time.
  bool closed_within(std::chrono::milliseconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    std::array<char, 1000> said{}; // Questions of the framework to each new process.
    for (;;) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
      pollfd x{socket_.get(), POLLIN, 0};
      if (left.count() <= 0 || ::poll(&x, 1, static_cast<int>(left.count())) <= 0)
        return false;
      if (::recv(socket_.get(), said.data(), said.size(), 0) <= 0)
        return true;
    }
  }

  caf::actor_id published() const { return published_; }

private:
  template <class... Ts>
  void write(caf::io::basp::message_type type, std::uint8_t flags, std::uint64_t id,
             std::uint64_t to, const Ts&... xs) {
    std::vector<char> payload;
    caf::binary_serializer body{codec_, payload};
    BOOST_TEST_REQUIRE(!body(const_cast<Ts&>(xs)...));
    // The sender has a number, so that it can be answered.
    caf::io::basp::header x{type, flags,   static_cast<std::uint32_t>(payload.size()),
                            id,   sender_, to};
    if (type == caf::io::basp::message_type::client_handshake)
      x.source_actor = caf::invalid_actor_id;
    write_header(x, payload);
  }

  void write_header(caf::io::basp::header x, const std::vector<char>& payload) {
    std::vector<char> bytes;
    caf::binary_serializer head{codec_, bytes};
    BOOST_TEST_REQUIRE(!head(x));
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    BOOST_TEST_REQUIRE(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL)
                       == static_cast<ssize_t>(bytes.size()));
  }

  std::vector<char> read_bytes(std::size_t count) {
    std::vector<char> result(count);
    if (count > 0)
      BOOST_TEST_REQUIRE(::recv(socket_.get(), result.data(), count, MSG_WAITALL)
                         == static_cast<ssize_t>(count));
    return result;
  }

  std::pair<caf::io::basp::header, std::vector<char>> read() {
    const auto bytes = read_bytes(caf::io::basp::header_size);
    caf::io::basp::header head;
    caf::binary_deserializer source{codec_, bytes};
    BOOST_TEST_REQUIRE(!source(head));
    return {head, read_bytes(head.payload_len)};
  }

  caf::actor_system& codec_;
  file_descriptor socket_;
  caf::node_id peer_;
  caf::actor_id published_ = 0;
  caf::actor_id sender_ = 12;
};

const auto spawn_server = caf::atom("SpawnServ");
const auto config_server = caf::atom("ConfigServ");

} // namespace

// Another program of the same framework starts an actor here, and asks for a value.
BOOST_AUTO_TEST_CASE(servers_of_the_framework) {
  embedding_program x;
  process other;
  spawned = 0;
  const auto node = other.sys->middleman().remote_actor("127.0.0.1", x.port);
  BOOST_TEST_REQUIRE(!!node);
  const auto started = other.sys->middleman().remote_spawn<caf::actor>(
    node->node(), "by_name", caf::make_message(), patience_limit);
  BOOST_TEST(!started);
  BOOST_TEST(spawned == 0);
  caf::scoped_actor self{*other.sys};
  const auto broker = other.sys->middleman().named_broker<caf::io::basp_broker>(caf::atom("BASP"));
  bool answered = false;
  self
    ->request(broker, patience_limit, caf::forward_atom::value, node->node(), config_server,
              caf::make_message(caf::get_atom::value, std::string{"key"}))
    .receive([&](const std::string&, const caf::message&) { answered = true; },
             [&](const caf::error& error) { BOOST_TEST_MESSAGE(to_string(error)); });
  BOOST_TEST(!answered);
}

BOOST_AUTO_TEST_CASE(frames_for_the_servers_of_the_framework) {
  embedding_program x;
  const process codec;
  spawned = 0;
  raw_program raw{*codec.sys, x.port};
  raw.send(config_server,
           caf::make_message(caf::put_atom::value, std::string{"key"}, caf::make_message(7)));
  raw.send(spawn_server,
           caf::make_message(caf::spawn_atom::value, std::string{"by_name"}, caf::make_message(),
                             std::set<std::string>{}));
  // By number, because these are the first actors of a system.
  for (caf::actor_id i = 1; i < raw.published(); ++i) {
    raw.send(i, caf::make_message(caf::put_atom::value, std::string{"key"}, caf::make_message(7)));
    raw.send(i,
             caf::make_message(caf::spawn_atom::value, std::string{"by_name"}, caf::make_message(),
                               std::set<std::string>{}));
  }
  raw.wait_for_answer();
  BOOST_TEST(!x.keeps("key"));
  BOOST_TEST(spawned == 0);
}

// In the framework's protocol, a message can name any sender. Then it seems to come from an actor
// of the process that receives it.
BOOST_AUTO_TEST_CASE(orders_in_the_name_of_an_actor_of_the_node) {
  for (const bool channels : {true, false}) {
    cluster x{channels};
    const process codec;
    int sent = 0;
    const auto attack = [&] {
      for (auto& node : x.nodes) {
        raw_program raw{*codec.sys, node->port};
        for (caf::actor_id i = 1; i <= raw.published() + 40; ++i) {
          raw.send_as(i, caf::make_message(proto::Shutdown{}));
          raw.send_as(i, caf::make_message(proto::OpenView{}));
          sent += 2;
        }
      }
    };
    attack();
    x.begin();
    const auto summary = x.result();
    BOOST_TEST(summary.failure == "");
    BOOST_TEST(summary.weights_sha256 == undisturbed());
    BOOST_TEST(sent > 4 * 40);
    for (auto& node : x.nodes)
      BOOST_TEST(contains(node->all_notices(), "refused: another program sent"));
  }
}

// The framework would allocate the memory at once.
BOOST_AUTO_TEST_CASE(headers_that_announce_too_much) {
  embedding_program x;
  const process codec;
  for (const auto bytes :
       {longest_framework_message + 1, std::uint32_t{1} << 31, ~std::uint32_t{0}}) {
    raw_program raw{*codec.sys, x.port};
    raw.announce(bytes);
    BOOST_TEST(raw.closed_within(patience_limit));
  }
  raw_program modest{*codec.sys, x.port};
  modest.announce(2'000);
  BOOST_TEST(!modest.closed_within(100ms));
  limit_framework_messages(1'000);
  raw_program raw{*codec.sys, x.port};
  raw.announce(2'000);
  BOOST_TEST(raw.closed_within(patience_limit));
  limit_framework_messages(longest_framework_message);
  raw_program last{*codec.sys, x.port};
  last.wait_for_answer();
}

// -- processes that say Hello, and then nothing -------------------------------------------------

namespace {

proto::Hello hello_of(std::uint32_t index) {
  proto::Hello result;
  result.set_wire_version(wire_version);
  *result.mutable_task() = to_proto(task_name{job_kind::worker, index});
  result.set_incarnation(7);
  result.set_nonce("mine");
  return result;
}

/// True if the node answers with a Welcome; false if it refuses.
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
