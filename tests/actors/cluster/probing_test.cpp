// Tests `probe`, which finds out what listens at an address, with real sockets on this host.

#include "actors/cluster/probe.hpp"

#include "messages/configure.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <cstring>
#include <thread>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

BOOST_AUTO_TEST_SUITE(probing)

using namespace troupe;

namespace {

/// Listens on 127.0.0.1 and sends the same bytes to every client.
class server {
public:
  explicit server(std::string greeting) {
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    BOOST_TEST_REQUIRE(::bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    BOOST_TEST_REQUIRE(::listen(socket_, 128) == 0);
    socklen_t size = sizeof address;
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port = ntohs(address.sin_port);
    thread_ = std::thread{[this, greeting = std::move(greeting)] {
      for (int peer = ::accept(socket_, nullptr, nullptr); peer >= 0;
           peer = ::accept(socket_, nullptr, nullptr)) {
        ::send(peer, greeting.data(), greeting.size(), MSG_NOSIGNAL);
        ::shutdown(peer, SHUT_WR);
        char ignored = 0;
        while (::recv(peer, &ignored, 1, 0) > 0)
          ;
        ::close(peer);
      }
    }};
  }
  ~server() {
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
  }
  server(const server&) = delete;
  server& operator=(const server&) = delete;

  std::uint16_t port = 0;

private:
  int socket_;
  std::thread thread_;
};

/// A handshake of CAF: a header with the length of `rest`, then `rest`.
std::string handshake(const std::string& rest) {
  std::string result(32, '\0');
  result[6] = static_cast<char>(rest.size() >> 8);
  result[7] = static_cast<char>(rest.size());
  return result + rest;
}

proto::Reach probed(const std::string& address) {
  proto::Reach result;
  result.set_address(address);
  probe(result, std::chrono::seconds{20});
  return result;
}

proto::Reach probed_server(const std::string& greeting) {
  const server peer{greeting};
  return probed("127.0.0.1:" + std::to_string(peer.port));
}

} // namespace

BOOST_AUTO_TEST_CASE(a_node_introduces_itself) {
  const std::array tasks{coordinator_task, task_name{job_kind::worker, 12}};
  const auto x = probed_server(handshake("xx generic-caf-app yy" + identity_of(tasks) + "zz"));
  BOOST_TEST(x.problem() == proto::Reach::REACHED);
  BOOST_TEST(x.version() == version());
  BOOST_TEST_REQUIRE(x.hosted_size() == 2);
  BOOST_TEST(x.hosted(0).job() == "coordinator");
  BOOST_TEST(x.hosted(1).job() == "worker");
  BOOST_TEST(x.hosted(1).index() == 12U);
  BOOST_TEST(x.resolved().starts_with("127.0.0.1:"));
}

BOOST_AUTO_TEST_CASE(the_second_port_of_a_node) {
  const std::array tasks{task_name{job_kind::ps, 0}};
  const server second{""};
  const auto x = probed_server(handshake("generic-caf-app" + identity_of(tasks, second.port)));
  BOOST_TEST(x.problem() == proto::Reach::REACHED);
  BOOST_TEST(x.hosted_size() == 1);
  BOOST_TEST(x.channel_port() == second.port);
  BOOST_TEST(x.channel_problem() == proto::Reach::REACHED);
}

// A node may have a second port, which a firewall can block. Here, nobody listens at it.
BOOST_AUTO_TEST_CASE(a_second_port_that_is_closed) {
  const std::array tasks{task_name{job_kind::ps, 0}};
  std::uint16_t port = 0;
  {
    const server gone{""};
    port = gone.port;
  }
  const auto x = probed_server(handshake("generic-caf-app" + identity_of(tasks, port)));
  BOOST_TEST(x.problem() == proto::Reach::REACHED);
  BOOST_TEST(x.hosted_size() == 1);
  BOOST_TEST(x.channel_port() == port);
  BOOST_TEST(x.channel_problem() == proto::Reach::REFUSED);
  BOOST_TEST(x.channel_detail() == "Connection refused");
}

BOOST_AUTO_TEST_CASE(a_node_of_another_program) {
  const auto x = probed_server(handshake("generic-caf-app"));
  BOOST_TEST(x.problem() == proto::Reach::REACHED);
  BOOST_TEST(x.version() == "");
  BOOST_TEST(x.hosted_size() == 0);
}

BOOST_AUTO_TEST_CASE(servers_that_are_no_nodes) {
  for (const std::string& greeting :
       {std::string{}, std::string{"HTTP/1.1 400 Bad Request\r\n\r\n"}, std::string(31, '\0'),
        std::string(32, '\0'), std::string(8192, 'x'), handshake("another-framework"),
        handshake("generic-caf-app").substr(0, 40)})
    BOOST_TEST(probed_server(greeting).problem() == proto::Reach::FOREIGN);
}

BOOST_AUTO_TEST_CASE(hostile_introductions) {
  for (const std::string words :
       {"troupe/;", "troupe/ ;", "troupe/1 /;", "troupe/1 worker/99999999999999999999;",
        "troupe/1   worker;", "troupe/"})
    BOOST_TEST(probed_server(handshake("generic-caf-app" + words)).problem()
               == proto::Reach::REACHED);
}

BOOST_AUTO_TEST_CASE(nobody_there) {
  std::uint16_t port = 0;
  {
    const server gone{""};
    port = gone.port;
  }
  BOOST_TEST(probed("127.0.0.1:" + std::to_string(port)).problem() == proto::Reach::REFUSED);
  BOOST_TEST(probed("no-such-host.invalid:1").problem() == proto::Reach::UNRESOLVED);
  BOOST_TEST(probed("127.0.0.1:0").problem() == proto::Reach::UNKNOWN_PORT);
  BOOST_TEST(probed("").problem() == proto::Reach::UNKNOWN_PORT);
}

// 127.0.0.2 is another address of this host, and the server does not listen on it.
BOOST_AUTO_TEST_CASE(a_server_on_loopback_only) {
  const server peer{""};
  BOOST_TEST(probed("127.0.0.2:" + std::to_string(peer.port)).problem()
             == proto::Reach::LOOPBACK_ONLY);
}

BOOST_AUTO_TEST_CASE(many_at_once) {
  const server peer{handshake("generic-caf-app")};
  google::protobuf::RepeatedPtrField<proto::Reach> addresses;
  for (int i = 0; i < 50; ++i)
    addresses.Add()->set_address(i % 2 ? "127.0.0.1:" + std::to_string(peer.port) : "127.0.0.1:0");
  probe_all(addresses);
  for (int i = 0; i < 50; ++i)
    BOOST_TEST(addresses[i].problem()
               == (i % 2 ? proto::Reach::REACHED : proto::Reach::UNKNOWN_PORT));
}

BOOST_AUTO_TEST_SUITE_END()
