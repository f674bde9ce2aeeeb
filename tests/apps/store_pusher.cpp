// A server or a client of a parameter store between processes.
// Usage: store_pusher INDEX|client|flood DEADLINE_MS automatic|tcp|basp HOST:PORT ...
// INDEX: a server, which runs until it is killed.
// client: pushes ones until a server fails.
// flood: like `client`. Then it tries to push 10,000 more times and prints how much its memory has
// grown. It repeats the unanswered pushes until this succeeds, and prints whether each push took
// effect exactly once.

#include "actors/store/store.hpp"
#include "messages/configure.hpp"
#include "messages/errors.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>

#include <unistd.h>

namespace {

constexpr std::size_t elements = 100'000;
constexpr int most_attempts = 10'000;

troupe::payload new_ones() {
  auto result = troupe::payload::floats(elements);
  std::ranges::fill(result.as_mutable_floats(), 1.0F);
  return result;
}

/// The resident memory of this process in KiB, including shared memory.
long resident_kib() {
  long all = 0;
  long resident = 0;
  std::ifstream{"/proc/self/statm"} >> all >> resident;
  return resident * (::sysconf(_SC_PAGESIZE) / 1024);
}

/// Tries many times to push a new gradient. Between the pushes, it sometimes tries to connect
/// again. Returns how many pushes were accepted.
/// @param before the memory of this process while the server still answered, in KiB
std::uint64_t flood(troupe::store_client& store, const troupe::store_client::ranges& where,
                    long before) {
  std::uint64_t accepted = 0;
  int refused = 0;
  for (int i = 0; i < most_attempts; ++i)
    try {
      if (i % 4000 == 2000)
        store.retry();
      store.push(where, new_ones());
      ++accepted;
    } catch (const troupe::store_error&) {
      ++refused;
    }
  std::cout << "flood: " << accepted << " accepted, " << refused << " refused, grew by "
            << resident_kib() - before << " KiB" << std::endl;
  return accepted;
}

int run_server(caf::actor_system& sys, troupe::store_options options, std::size_t index) {
  const auto host = troupe::store_host::listen(sys, index, options);
  std::cout << "listens" << std::endl;
  for (;;)
    ::pause();
}

int run_client(caf::actor_system& sys, const troupe::store_options& options, bool floods) {
  auto store = troupe::store_client::connect(sys, options);
  const troupe::store_client::ranges all{{0, elements}};
  const auto ones = new_ones();
  std::uint64_t pushes = 0;
  long before = 0;
  try {
    for (;;) {
      const auto last = store.push(all, ones);
      ++pushes;
      if (pushes % 5 == 0)
        store.wait(last);
      if (pushes == 20) {
        before = resident_kib();
        std::cout << "works" << std::endl;
      }
    }
  } catch (const troupe::store_error& error) {
    const auto& x = error.failure();
    std::cout << to_string(x.code) << ", server " << x.server << ": " << x.text << std::endl;
  }
  if (floods)
    pushes += flood(store, all, before);
  for (;;)
    try {
      store.retry();
      const auto found = store.wait(store.pull(all)).values;
      const auto values = found.as_floats();
      const auto wanted = static_cast<float>(pushes);
      const bool right = std::ranges::count(values, wanted) == std::ptrdiff_t{elements};
      std::cout << (right ? "each once" : "wrong") << std::endl;
      return right ? 0 : 2;
    } catch (const troupe::store_error& error) {
      if (error.failure().code == troupe::errc::fenced) {
        std::cout << "again: " << error.what() << std::endl;
        return 3;
      }
    }
}

} // namespace

int main(int count, char** arguments) {
  caf::actor_system_config cfg;
  troupe::configure(cfg);
  cfg.load<caf::io::middleman>();
  caf::actor_system sys{cfg};
  using transport = troupe::peer_host_options::transport;
  const std::string_view by{arguments[3]};
  troupe::store_options options;
  options.elements = elements;
  options.deadline = std::chrono::milliseconds{std::stol(arguments[2])};
  options.transport = by == "tcp" ? transport::tcp
    : by == "basp"                ? transport::basp
                                  : transport::automatic;
  options.connect_timeout = std::chrono::seconds{1};
  options.addresses.assign(arguments + 4, arguments + count);
  const std::string_view role{arguments[1]};
  return role == "client" || role == "flood" ? run_client(sys, options, role == "flood")
                                             : run_server(sys, options, std::stoul(arguments[1]));
}
