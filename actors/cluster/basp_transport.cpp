#include "actors/cluster/basp_transport.hpp"

#include "actors/cluster/address.hpp"
#include "actors/link/sockets.hpp"
#include "kernels/error.hpp"
#include "messages/errors.hpp"

#include <caf/io/all.hpp>
#include <caf/io/basp_broker.hpp>

#include <cerrno>
#include <functional>
#include <memory>
#include <set>
#include <system_error>

#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

namespace troupe {

namespace {

constexpr auto no_answer = "a program accepts connections there, but does not answer";

/// Finds the reason why a node cannot listen at this address, because CAF's network module (the
/// middleman) does not report it.
std::string listen_problem(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.empty() ? nullptr : host.c_str(),
                                      std::to_string(port).c_str(), &hints, &found);
      error != 0)
    return ::gai_strerror(error);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner{found, ::freeaddrinfo};
  for (const auto* x = found; x != nullptr; x = x->ai_next) {
    const int socket = ::socket(x->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    const int error = ::bind(socket, x->ai_addr, x->ai_addrlen) == 0 ? 0 : errno;
    ::close(socket);
    if (error == EADDRINUSE)
      return "the port is in use; end the program that has it (`ss -ltnp` shows it), or give this "
             "task another port";
    if (error != 0)
      return std::generic_category().message(error);
  }
  return "the port is in use, or the address is not of this host";
}

/// Makes one attempt to connect. It resolves the name and connects on its own thread, because both
/// may block. Then it gives the socket to CAF's broker. CAF can connect by itself, but does so for
/// all peers on one thread and without a time limit: if one address did not answer, no other peer
/// could be reached for minutes.
class dialler : public caf::event_based_actor {
public:
  dialler(caf::actor_config& cfg, task_name task, std::string address, dial_listener listener,
          std::chrono::milliseconds timeout)
    : caf::event_based_actor(cfg), task_(task), address_(std::move(address)),
      listener_(std::move(listener)), timeout_(timeout) {}

  const char* name() const override { return "troupe.dialler"; }

protected:
  caf::behavior make_behavior() override {
    std::string host;
    std::uint16_t port = 0;
    if (!split_address(address_, host, port)) {
      tell(nullptr, "'" + address_ + "' is not host:port");
      return {};
    }
    std::string problem;
    bool refused = false;
    auto socket = connect_to(host, port, timeout_, problem, refused);
    if (!socket) {
      tell(nullptr, problem);
      return {};
    }
    // The other end speaks first. CAF would only wait for about a second.
    if (!has_data(socket.get(), timeout_)) {
      tell(nullptr, no_answer);
      return {};
    }
    const auto copy = std::make_shared<file_descriptor>(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
    auto& middleman = system().middleman();
    request(middleman.named_broker<caf::io::basp_broker>(caf::atom("BASP")), timeout_,
            caf::connect_atom::value, middleman.backend().new_scribe(socket.release()), port)
      .then(
        [this, copy](const caf::node_id&, caf::strong_actor_ptr& node,
                     const std::set<std::string>&) {
          tell(std::move(node), "nothing is published there",
               [copy] { ::shutdown(copy->get(), SHUT_RDWR); });
        },
        [this](const caf::error& error) {
          tell(nullptr,
               error == caf::sec::request_timeout || error == caf::sec::connection_timeout
                 ? no_answer
                 : explain(error));
        });
    return {[](caf::unit_t) {}};
  }

private:
  void tell(caf::strong_actor_ptr node, std::string problem, std::function<void()> hang_up = {}) {
    if (node)
      problem.clear();
    send(listener_, dialled{task_, std::move(node), std::move(problem), std::move(hang_up)});
    quit();
  }

  task_name task_;
  std::string address_;
  dial_listener listener_;
  std::chrono::milliseconds timeout_;
};

} // namespace

basp_transport::basp_transport(caf::actor_system& sys, std::chrono::milliseconds timeout)
  : sys_(sys), timeout_(timeout) {
  // CAF's actors SpawnServ and ConfigServ must not be reachable for other processes. Another
  // process reaches an actor by a name in the registry, or by a handle that it has received. No
  // code sends handles of these two actors, so it is enough to remove their names.
  sys.registry().erase(caf::atom("SpawnServ"));
  sys.registry().erase(caf::atom("ConfigServ"));
}

void basp_transport::dial(const task_name& task, const std::string& address,
                          dial_listener listener) {
  sys_.spawn<dialler, caf::detached>(task, address, std::move(listener), timeout_);
}

std::uint16_t basp_transport::listen(caf::actor_system& sys, const caf::strong_actor_ptr& node,
                                     const std::string& host, std::uint16_t port) {
  auto result =
    sys.middleman().publish(caf::actor_cast<caf::actor>(node), port, host.c_str(), true);
  if (!result)
    throw input_error{"cannot listen on " + (host.empty() ? "port " : host + ':')
                      + std::to_string(port) + ": " + listen_problem(host, port)};
  return *result;
}

} // namespace troupe
