// Other programs, with or without CAF, send messages of CAF's protocol (BASP) to the ports of
// nodes. They must do no harm.

#include "actors/cluster/basp_transport.hpp"
#include "kernels/file_descriptor.hpp"
#include "tests/actors/cluster/nodes_at_ports.hpp"
#include "tests/support/input_errors.hpp"

#include <caf/io/all.hpp>

#include <boost/test/unit_test.hpp>

#include <atomic>
#include <memory>
#include <vector>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(framework_frames)

namespace {

std::atomic<int> spawned = 0;

/// An actor type that a CAF program can spawn in another process by its name.
class by_name : public caf::event_based_actor {
public:
  using caf::event_based_actor::event_based_actor;

  caf::behavior make_behavior() override {
    ++spawned;
    return {};
  }
};

/// A program of a user that uses CAF. It answers every message, and lets other processes spawn
/// `by_name`.
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

  /// True if CAF's internal server in this process stores a value with this name.
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

/// Writes frames of CAF's protocol to a plain socket.
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

  /// Sends a message to an actor, given by its name or by its number.
  void send(caf::atom_value to, const caf::message& x) {
    write(caf::io::basp::message_type::direct_message, caf::io::basp::header::named_receiver_flag,
          0, static_cast<std::uint64_t>(to), std::vector<caf::strong_actor_ptr>{}, x);
  }

  void send(caf::actor_id to, const caf::message& x, caf::message_id id = caf::make_message_id()) {
    write(caf::io::basp::message_type::direct_message, 0, id.integer_value(), to,
          std::vector<caf::strong_actor_ptr>{}, x);
  }

  /// Sends a message with a false sender: its header names an actor of the receiving process.
  void send_as(caf::actor_id from, const caf::message& x,
               caf::message_id id = caf::make_message_id()) {
    sender_ = from;
    write(caf::io::basp::message_type::routed_message, 0, id.integer_value(), published_, peer_,
          peer_, std::vector<caf::strong_actor_ptr>{}, x);
    sender_ = 12;
  }

  /// Sends a request to the actor at the port and waits for its answer. By then the actor has
  /// received all earlier messages.
  void wait_for_answer() {
    const auto id = caf::make_message_id(1);
    send(published_, caf::make_message(proto::Ack{}), id);
    while (read().first.operation_data != id.response_id().integer_value())
      ;
  }

  /// Writes only the header of a message of this length.
  void announce(std::uint32_t bytes) {
    const caf::io::basp::header x{
      caf::io::basp::message_type::direct_message, 0, bytes, 0, 12, published_};
    write_header(x, {});
  }

  /// True if the other side closes the connection within this time.
  bool closed_within(std::chrono::milliseconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    std::array<char, 1000> said{}; // Holds the questions that CAF asks each new process.
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
    // The header names a sender, so that the receiver can answer.
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

// Another CAF program asks CAF's internal servers in this process to spawn an actor, and to return
// a stored value.
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
  // CAF numbers actors in the order of their creation. Its internal servers are the first, so small
  // numbers reach them.
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

// In CAF's protocol, the sender of a message is whatever its header says. This message seems to
// come from an actor of the process that receives it.
BOOST_AUTO_TEST_CASE(orders_in_the_name_of_an_actor_of_the_node) {
  for (const bool channels : {true, false}) {
    cluster x{channels};
    const process codec;
    int sent = 0;
    // They stay connected during the run: CAF cleans up a closed connection late, by the number of
    // its descriptor, which a connection of the run may have by then.
    std::vector<std::unique_ptr<raw_program>> others;
    const auto attack = [&] {
      for (auto& node : x.nodes) {
        auto& raw = *others.emplace_back(std::make_unique<raw_program>(*codec.sys, node->port));
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

// CAF allocates as many bytes as a header announces, at once. So long messages must be refused by
// their header.
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

BOOST_AUTO_TEST_SUITE_END()
