#include "actors/store/store_inbox.hpp"

#include "messages/configure.hpp"
#include "messages/store.hpp"

#include <caf/all.hpp>

#include <boost/test/unit_test.hpp>

#include <thread>
#include <vector>

#include <sys/resource.h>

using namespace troupe;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(store_inbox_waits)

namespace {

struct config : caf::actor_system_config {
  config() { configure(*this); }
};

/// Sends an answer to an inbox, like a server.
void answer(const inbox_owner& inbox, std::uint64_t number, std::uint64_t version) {
  proto::StoreAnswer content;
  content.set_version(version);
  (*inbox).enqueue(caf::make_mailbox_element(nullptr, caf::make_message_id(number).response_id(),
                                             {}, caf::make_message(std::move(content))),
                   nullptr);
}

/// How often this thread has given up the processor to wait.
long waits() {
  rusage result{};
  ::getrusage(RUSAGE_THREAD, &result);
  return result.ru_nvcsw;
}

} // namespace

BOOST_AUTO_TEST_CASE(answers_in_another_order) {
  config cfg;
  caf::actor_system sys{cfg};
  inbox_owner inbox{sys};
  inbox_owner nobody{sys};
  const caf::strong_actor_ptr receiver{(*nobody).ctrl()};
  std::vector<std::uint64_t> numbers;
  for (int i = 0; i < 5; ++i)
    numbers.push_back(inbox->ask(receiver, caf::make_message(proto::StoreClose{})));
  for (const int i : {3, 0, 4, 1})
    answer(inbox, numbers[i], 100 + i);
  for (const int i : {0, 1, 3, 4}) {
    const auto found = inbox->take(numbers[i], std::chrono::steady_clock::now() + 20s);
    BOOST_TEST_REQUIRE(found.has_value());
    BOOST_TEST(found->get_as<proto::StoreAnswer>(0).version() == 100U + i);
  }
  BOOST_TEST(!inbox->take(numbers[2], std::chrono::steady_clock::now() + 10ms).has_value());
}

BOOST_AUTO_TEST_CASE(only_the_awaited_answer_wakes_the_thread) {
  constexpr int count = 50;
  config cfg;
  caf::actor_system sys{cfg};
  inbox_owner inbox{sys};
  inbox_owner nobody{sys};
  const caf::strong_actor_ptr receiver{(*nobody).ctrl()};
  std::vector<std::uint64_t> numbers;
  for (int i = 0; i < count; ++i)
    numbers.push_back(inbox->ask(receiver, caf::make_message(proto::StoreClose{})));
  std::thread server{[&] {
    for (const auto number : numbers) {
      std::this_thread::sleep_for(1ms);
      answer(inbox, number, number);
    }
  }};
  const auto before = waits();
  const auto found = inbox->take(numbers.back(), std::chrono::steady_clock::now() + 20s);
  const auto after = waits();
  server.join();
  BOOST_TEST(found.has_value());
  BOOST_TEST(after - before < count / 2);
}

BOOST_AUTO_TEST_SUITE_END()
