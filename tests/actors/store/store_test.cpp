#include "actors/store/store.hpp"

#include "actors/store/store_order.hpp"
#include "actors/store/store_server.hpp"
#include "kernels/error.hpp"
#include "messages/configure.hpp"
#include "tests/support/free_addresses.hpp"

#include <boost/test/unit_test.hpp>

#include <caf/io/all.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

using namespace troupe;
using namespace std::chrono_literals;
using way = peer_host_options::transport;

namespace {

struct config : caf::actor_system_config {
  explicit config(bool network = false) {
    configure(*this);
    if (network)
      load<caf::io::middleman>();
  }
};

store_options options_of(std::size_t elements, way by = way::automatic) {
  store_options result;
  result.elements = elements;
  result.transport = by;
  return result;
}

payload filled(std::size_t elements, float value) {
  auto result = payload::floats(elements);
  std::ranges::fill(result.as_mutable_floats(), value);
  return result;
}

bool all_are(const payload& x, float value) {
  return std::ranges::all_of(x.as_floats(), [=](float y) { return y == value; });
}

/// Adds 1 to all elements and 2 to some of them, `times` times, and pulls these elements after each
/// round. Returns true if each value was at least the sum of this client's own pushes.
bool works(store_client& client, std::size_t elements, int times) {
  const store_client::ranges everything{{0, elements}};
  const store_client::ranges some{{0, 1}, {elements / 2, elements / 2 + 1}};
  float own = 0;
  bool right = true;
  for (int k = 0; k < times; ++k) {
    client.push(everything, filled(elements, 1));
    client.push(some, filled(2, 2));
    const auto ticket = client.pull(some);
    own += 3;
    const auto found = client.wait(ticket).values;
    right = right && found.as_floats()[0] >= own && found.as_floats()[1] >= own;
  }
  return right;
}

/// Runs works() with several clients in threads, and then checks the values in the store.
void check_clients(const std::function<store_client()>& make, std::size_t clients,
                   std::size_t elements) {
  constexpr int times = 30;
  std::vector<char> right(clients);
  std::vector<std::thread> threads;
  for (std::size_t c = 0; c < clients; ++c)
    threads.emplace_back([&, c] {
      auto client = make();
      right[c] = works(client, elements, times);
    });
  for (auto& x : threads)
    x.join();
  BOOST_TEST(std::ranges::count(right, 1) == static_cast<std::ptrdiff_t>(clients));
  auto client = make();
  const auto found = client.wait(client.pull({{0, elements}}));
  const auto all = found.values.as_floats();
  const auto sum = static_cast<float>(times * static_cast<int>(clients));
  BOOST_TEST(all[0] == 3 * sum);
  BOOST_TEST(all[1] == sum);
  BOOST_TEST(all[elements / 2] == 3 * sum);
  BOOST_TEST(all[elements - 1] == sum);
}

/// Servers and clients, each in its own actor system, connected over loopback.
struct systems {
  systems(std::size_t servers, store_options how) : options(std::move(how)) {
    options.addresses = test::free_addresses(servers);
    for (std::size_t s = 0; s <= servers; ++s) {
      configs.push_back(std::make_unique<config>(true));
      all.push_back(std::make_unique<caf::actor_system>(*configs.back()));
    }
    for (std::size_t s = 0; s < servers; ++s)
      hosts.emplace_back(store_host::listen(*all[s], s, options));
  }

  store_client client() { return store_client::connect(*all.back(), options); }

  store_options options;
  std::vector<std::unique_ptr<config>> configs;
  std::vector<std::unique_ptr<caf::actor_system>> all;
  std::vector<std::optional<store_host>> hosts;
};

std::optional<store_failure> failure_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const store_error& error) {
    BOOST_TEST_MESSAGE(error.what());
    return error.failure();
  }
  return std::nullopt;
}

/// A server with elements 10 to 19. The test builds the messages for it.
struct bare_server {
  bare_server()
    : server(sys.spawn<store_server>(split_evenly(20, 2), 1, store_rule{})), self(sys) {}
  ~bare_server() { self->send_exit(server, caf::exit_reason::user_shutdown); }

  static proto::StoreRequest request(std::uint64_t number, std::size_t begin, std::size_t count) {
    proto::StoreRequest x;
    x.set_client(5);
    x.set_number(number);
    x.add_begin(begin);
    x.add_count(count);
    x.set_push(true);
    x.set_pull(true);
    return x;
  }

  void open(std::uint64_t elements = 20) {
    proto::StoreOpen x;
    x.set_client(5);
    x.set_elements(elements);
    x.set_servers(2);
    x.set_server(1);
    self->request(server, 30s, x)
      .receive([](const proto::StoreOpened&) {}, [&](const caf::error& e) { note(e); });
  }

  /// The first value of the answer; -1 if there was an error.
  float ask(const proto::StoreRequest& x, const payload& values) {
    float result = -1;
    self->request(server, 30s, x, values)
      .receive([&](const proto::StoreAnswer&, const payload& y) { result = y.as_floats()[0]; },
               [&](const caf::error& e) { note(e); });
    return result;
  }

  void note(const caf::error& error) {
    code = code_of(error);
    text = explain(error);
    BOOST_TEST_MESSAGE(text);
  }

  config cfg;
  caf::actor_system sys{cfg};
  store_actor server;
  caf::scoped_actor self;
  errc code = errc::none;
  std::string text;
};

} // namespace

BOOST_AUTO_TEST_SUITE(store_in_one_system)

BOOST_AUTO_TEST_CASE(clients_and_servers) {
  config cfg;
  caf::actor_system sys{cfg};
  for (const std::size_t servers : {1, 2, 5})
    for (const std::size_t clients : {1, 4})
      for (const std::size_t elements : {std::size_t{4}, std::size_t{10'007}}) {
        const auto hosts = store_host::in_one_system(sys, servers, options_of(elements));
        check_clients([&] { return store_client::in_one_system(sys, hosts); }, clients, elements);
      }
}

BOOST_AUTO_TEST_CASE(updates_by_a_rule) {
  config cfg;
  caf::actor_system sys{cfg};
  auto options = options_of(100);
  options.rule = {optimizer{.kind = optimizer_kind::momentum, .momentum = 0.5F}, 1.0};
  const auto hosts = store_host::in_one_system(sys, 3, options);
  auto client = store_client::in_one_system(sys, hosts);
  client.assign({{0, 100}}, filled(100, 8));
  float velocity = 0;
  float weight = 8;
  for (std::uint64_t k = 1; k <= 10; ++k) {
    const auto found = client.wait(client.push_pull({{0, 100}}, filled(100, 1)));
    velocity = 0.5F * velocity + 1;
    weight -= velocity;
    BOOST_TEST(all_are(found.values, weight));
    BOOST_TEST((found.versions == std::vector<std::uint64_t>{k + 1, k + 1, k + 1}));
  }
}

BOOST_AUTO_TEST_CASE(ticket_after_ticket) {
  config cfg;
  caf::actor_system sys{cfg};
  const auto hosts = store_host::in_one_system(sys, 2, options_of(8));
  auto client = store_client::in_one_system(sys, hosts);
  // Sends more pulls than may wait for an answer. The client must wait in between.
  std::vector<store_ticket> pulls;
  for (int k = 1; k <= 300; ++k) {
    client.push({{2, 6}}, filled(4, 1));
    pulls.push_back(client.pull({{3, 5}}));
  }
  for (int k = 300; k >= 1; --k)
    BOOST_TEST(
      all_are(client.wait(pulls[static_cast<std::size_t>(k - 1)]).values, static_cast<float>(k)));
  BOOST_CHECK_THROW(client.wait(pulls[0]), std::invalid_argument);
  BOOST_CHECK_THROW(client.wait({1'000'000}), std::invalid_argument);
  BOOST_CHECK_THROW(client.push({{0, 9}}, filled(9, 1)), std::invalid_argument);
  BOOST_TEST(client.wait(client.pull({})).values.empty());
}

BOOST_AUTO_TEST_CASE(lent_buffers_come_back) {
  config cfg;
  caf::actor_system sys{cfg};
  const auto hosts = store_host::in_one_system(sys, 2, options_of(10'000));
  auto client = store_client::in_one_system(sys, hosts);
  const auto values = filled(10'000, 1);
  client.wait(client.push({{0, 10'000}}, values));
  // The server may keep the message for a moment after its answer.
  while (!values.unique())
    std::this_thread::yield();
}

BOOST_AUTO_TEST_CASE(a_server_that_ends) {
  config cfg;
  caf::actor_system sys{cfg};
  auto hosts = store_host::in_one_system(sys, 3, options_of(9));
  auto client = store_client::in_one_system(sys, hosts);
  client.wait(client.push({{0, 9}}, filled(9, 1)));
  hosts.erase(hosts.begin() + 1);
  const auto ticket = client.push({{0, 9}}, filled(9, 1));
  for (int k = 0; k < 2; ++k) {
    const auto failure = failure_of([&] { client.wait(ticket); });
    BOOST_REQUIRE(failure);
    BOOST_TEST((failure->code == errc::link_lost));
    BOOST_TEST(failure->server == 1u);
    BOOST_TEST((failure->last_heard > std::chrono::steady_clock::time_point{}));
    BOOST_TEST(failure->text.find("server 1 is gone") == 0u, failure->text);
  }
  // Afterwards, operations on the lost server fail at once. The other servers continue.
  BOOST_TEST(failure_of([&] { client.pull({{4, 5}}); }).has_value());
  BOOST_TEST(all_are(client.wait(client.pull({{0, 3}})).values, 2));
  BOOST_TEST(failure_of([&] { client.retry(); }).has_value());
}

BOOST_AUTO_TEST_CASE(objects_that_were_moved_from) {
  config cfg;
  caf::actor_system sys{cfg};
  auto hosts = store_host::in_one_system(sys, 1, options_of(9));
  auto client = store_client::in_one_system(sys, hosts);
  const auto other = std::move(client);
  BOOST_CHECK_THROW(client.pull({{0, 1}}), std::logic_error);
  const auto host = std::move(hosts[0]);
  BOOST_CHECK_THROW(store_client::in_one_system(sys, hosts), input_error);
}

BOOST_AUTO_TEST_CASE(options_that_make_no_sense) {
  config cfg;
  caf::actor_system sys{cfg};
  const auto refused = [&](const std::string& text, auto&& change, std::size_t servers = 2) {
    auto options = options_of(10);
    change(options);
    BOOST_CHECK_EXCEPTION(store_host::in_one_system(sys, servers, options), input_error,
                          [&](auto& error) {
                            BOOST_TEST_MESSAGE(error.what());
                            return std::string{error.what()}.find(text) != std::string::npos;
                          });
  };
  const auto nothing = [](auto&) {};
  refused("0 servers", nothing, 0);
  refused("elements is 0", [](auto& x) { x.elements = 0; });
  refused("deadline is 1 ms", [](auto& x) { x.deadline = 1ms; });
  refused("lamb", [](auto& x) { x.rule.update = optimizer{.kind = optimizer_kind::lamb}; });
  refused("clip_norm", [](auto& x) { x.rule.update = optimizer{.clip_norm = 1}; });
  refused("'there'", [](auto& x) { x.addresses = {"there"}; });
  auto options = options_of(10);
  options.addresses = {"127.0.0.1:1"};
  BOOST_CHECK_THROW(store_host::listen(sys, 1, options), input_error);
  // This actor system has no network module, so there are no remote servers.
  BOOST_CHECK_THROW(store_host::listen(sys, 0, options), input_error);
  BOOST_CHECK_THROW(store_client::connect(sys, options), input_error);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(store_messages_of_strangers)

BOOST_AUTO_TEST_CASE(repeated_operations_are_done_once) {
  bare_server x;
  x.open();
  BOOST_TEST(x.ask(bare_server::request(1, 10, 2), filled(2, 1)) == 1);
  BOOST_TEST(x.ask(bare_server::request(1, 10, 2), filled(2, 1)) == 1);
  BOOST_TEST(x.ask(bare_server::request(2, 10, 2), filled(2, 1)) == 2);
}

// Operation 3 arrives first. Then operation 2 arrives twice. They wait for operation 1.
BOOST_AUTO_TEST_CASE(operations_that_overtake_others) {
  bare_server x;
  x.open();
  std::vector<float> found;
  for (const std::uint64_t number : {3, 2, 2, 1})
    x.self->send(x.server, bare_server::request(number, 10, 1), filled(1, 1));
  // Operations 1 to 3 are answered. The first message with operation 2 gets an error, because the
  // second one replaces it.
  int errors = 0;
  for (int k = 0; k < 4; ++k)
    x.self->receive(
      [&](const proto::StoreAnswer&, const payload& y) { found.push_back(y.as_floats()[0]); },
      [&](const caf::error& e) { errors += code_of(e) == errc::interrupted ? 1 : 0; },
      caf::after(30s) >> [] { BOOST_FAIL("no answer"); });
  std::ranges::sort(found);
  BOOST_TEST(found == (std::vector<float>{1, 2, 3}), boost::test_tools::per_element());
  BOOST_TEST(errors == 1);
}

BOOST_AUTO_TEST_CASE(what_is_refused) {
  bare_server x;
  const auto refused = [&](errc code, const std::string& text) {
    BOOST_TEST((x.code == code));
    BOOST_TEST(x.text.find(text) != std::string::npos, x.text);
  };
  x.ask(bare_server::request(1, 10, 1), filled(1, 1));
  refused(errc::fenced, "does not know the client");
  x.open(21);
  refused(errc::malformed, "in a store of 20 elements");
  x.open();
  x.ask(bare_server::request(1, 9, 1), filled(1, 1));
  refused(errc::malformed, "elements [9, 10) are not in [10, 20)");
  x.ask(bare_server::request(1, 10, std::size_t{1} << 40), filled(1, 1));
  refused(errc::malformed, "are not in [10, 20)");
  x.ask(bare_server::request(2 + store_window::operations, 10, 1), filled(1, 1));
  refused(errc::malformed, "out of turn");
  // Refused operations are not counted: the next one still has number 1.
  BOOST_TEST(x.ask(bare_server::request(1, 10, 1), filled(1, 1)) == 1);
}

// Operations that wait for an earlier one take only a bounded amount of memory, even if that one
// never arrives.
BOOST_AUTO_TEST_CASE(a_client_that_leaves_a_gap) {
  config cfg;
  caf::actor_system sys{cfg};
  constexpr std::size_t elements = 1'000'000;
  const auto server = sys.spawn<store_server>(split_evenly(elements, 1), 0, store_rule{});
  caf::scoped_actor self{sys};
  proto::StoreOpen hello;
  hello.set_client(5);
  hello.set_elements(elements);
  hello.set_servers(1);
  self->request(server, 30s, hello)
    .receive([](const proto::StoreOpened&) {}, [](const caf::error&) { BOOST_FAIL("refused"); });
  const auto values = filled(elements, 1);
  for (std::uint64_t number = 2; number < 20; ++number)
    self->send(server, bare_server::request(number, 0, elements), values);
  // Two of these operations fit into the bounded memory. The other 16 are refused.
  for (int k = 0; k < 16; ++k)
    self->receive([](const proto::StoreAnswer&, const payload&) { BOOST_FAIL("it was done"); },
                  [](const caf::error& e) {
                    BOOST_TEST(explain(e).find("arrived before earlier ones") != std::string::npos,
                               explain(e));
                  },
                  caf::after(30s) >> [] { BOOST_FAIL("no answer"); });
  // The client ends. The two operations that wait get an error.
  proto::StoreClose goodbye;
  goodbye.set_client(5);
  self->send(server, goodbye);
  int ended = 0;
  for (int k = 0; k < 2; ++k)
    self->receive([&](const caf::error& e) { ended += code_of(e) == errc::interrupted ? 1 : 0; },
                  caf::after(30s) >> [] { BOOST_FAIL("no answer"); });
  BOOST_TEST(ended == 2);
  self->send_exit(server, caf::exit_reason::user_shutdown);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(store_of_systems)

BOOST_AUTO_TEST_CASE(clients_over_loopback) {
  for (const auto by : {way::automatic, way::tcp, way::basp})
    for (const std::size_t elements : {std::size_t{10}, std::size_t{1'000'003}}) {
      systems x{2, options_of(elements, by)};
      check_clients([&] { return x.client(); }, 2, elements);
    }
}

// Large operations are sent in pieces, and small operations may overtake the pieces. They must
// still take effect in order.
BOOST_AUTO_TEST_CASE(small_operations_after_large_ones) {
  constexpr std::size_t elements = 2'000'000;
  for (const auto by : {way::automatic, way::tcp, way::basp}) {
    systems x{1, options_of(elements, by)};
    auto client = x.client();
    for (int k = 1; k <= 5; ++k) {
      const auto value = static_cast<float>(k);
      client.assign({{0, elements}}, filled(elements, value));
      client.push({{7, 8}}, filled(1, 0.5F));
      const auto found = client.wait(client.pull({{6, 8}})).values;
      BOOST_TEST(found.as_floats()[0] == value);
      BOOST_TEST(found.as_floats()[1] == value + 0.5F);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_server_that_ends) {
  for (const auto by : {way::automatic, way::tcp, way::basp}) {
    systems x{2, options_of(10, by)};
    auto client = x.client();
    client.wait(client.push({{0, 10}}, filled(10, 1)));
    x.hosts[1].reset();
    const auto failure = failure_of([&] { client.wait(client.push({{0, 10}}, filled(10, 1))); });
    BOOST_REQUIRE(failure);
    BOOST_TEST(failure->server == 1u);
    BOOST_TEST((failure->code == errc::link_lost || failure->code == errc::no_such_endpoint));
    BOOST_TEST(all_are(client.wait(client.pull({{0, 5}})).values, 2));
  }
}

BOOST_AUTO_TEST_CASE(an_address_that_is_in_use) {
  for (const auto by : {way::automatic, way::tcp, way::basp}) {
    systems x{1, options_of(10, by)};
    BOOST_CHECK_THROW(store_host::listen(*x.all[0], 0, x.options), input_error);
    auto client = x.client();
    BOOST_TEST(all_are(client.wait(client.push_pull({{0, 10}}, filled(10, 1))).values, 1));
  }
}

// A server that is restarted has lost its values. The client must get an error, not a store of
// zeros.
BOOST_AUTO_TEST_CASE(a_server_that_starts_again) {
  systems x{1, options_of(10)};
  auto client = x.client();
  client.wait(client.push({{0, 10}}, filled(10, 1)));
  x.hosts[0].reset();
  BOOST_TEST(failure_of([&] { client.wait(client.pull({{0, 10}})); }).has_value());
  x.hosts[0].emplace(store_host::listen(*x.all[0], 0, x.options));
  // Tries again until the client has noticed that its first connection is lost.
  std::optional<store_failure> failure;
  do
    failure = failure_of([&] { client.retry(); });
  while (failure && failure->code != errc::fenced);
  BOOST_TEST((failure && failure->text.find("has restarted") != std::string::npos));
  auto other = x.client();
  BOOST_TEST(all_are(other.wait(other.pull({{0, 10}})).values, 0));
}

BOOST_AUTO_TEST_CASE(a_server_that_is_missing) {
  config cfg{true};
  caf::actor_system sys{cfg};
  auto options = options_of(10);
  options.addresses = test::free_addresses(1);
  options.connect_timeout = 100ms;
  const auto failure = failure_of([&] { store_client::connect(sys, options); });
  BOOST_REQUIRE(failure);
  BOOST_TEST((failure->code == errc::timed_out));
  BOOST_TEST(failure->server == 0u);
  BOOST_TEST(failure->text.find("server 0 at " + options.addresses[0]) != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_client_with_other_options) {
  systems x{1, options_of(10)};
  x.options.elements = 11;
  const auto failure = failure_of([&] { x.client(); });
  BOOST_REQUIRE(failure);
  BOOST_TEST((failure->code == errc::malformed));
  BOOST_TEST(failure->text.find("in a store of 10 elements") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
