#include "actors/collective/collective.hpp"

#include "actors/cluster/peer_node.hpp"
#include "actors/link/file_descriptor.hpp"
#include "kernels/error.hpp"
#include "messages/configure.hpp"
#include "tests/support/free_addresses.hpp"

#include <boost/test/unit_test.hpp>

#include <caf/io/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>

#include <netinet/in.h>
#include <sys/socket.h>

using namespace troupe;
using troupe::test::free_addresses;
using namespace std::chrono_literals;

namespace {

struct config : caf::actor_system_config {
  explicit config(bool network = false) {
    configure(*this);
    if (network)
      load<caf::io::middleman>();
  }
};

/// Calls `body(group)` in one thread per rank. Returns by rank the exception that it threw, if any.
std::vector<std::optional<collective_failure>> run(std::vector<collective>& groups,
                                                   const std::function<void(collective&)>& body) {
  std::vector<std::optional<collective_failure>> result(groups.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < groups.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        body(groups[r]);
      } catch (const collective_error& error) {
        result[r] = error.failure();
      }
    });
  for (auto& x : threads)
    x.join();
  return result;
}

/// Adds up vectors of several sizes. Returns true if all sums are right.
template <class T>
bool sums_are_right(collective& group, std::size_t most = 100'003) {
  bool right = true;
  const auto ranks = group.ranks();
  for (const auto n : {std::size_t{3}, std::size_t{0}, ranks - 1, most}) {
    std::vector<T> x(n);
    for (std::size_t i = 0; i < n; ++i)
      x[i] = static_cast<T>(group.rank() + 1 + i % 7);
    group.all_reduce(x);
    for (std::size_t i = 0; i < n; ++i)
      right = right && x[i] == static_cast<T>(ranks * (ranks + 1) / 2 + ranks * (i % 7));
  }
  return right;
}

/// Each rank in its own actor system, connected over loopback.
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

/// A process that was stopped: its messages wait unread.
class stopped_peer : public collective_peer::base {
public:
  using collective_peer::base::base;

protected:
  behavior_type make_behavior() override {
    return {
      [](const proto::CollectivePiece&, const payload&) {},
      [this](const proto::CollectiveQuestion&) -> caf::result<proto::CollectiveStanding> {
        questions_.push_back(make_response_promise<proto::CollectiveStanding>());
        return questions_.back();
      },
      [](const proto::CollectiveFailure&) {},
      [](const proto::CollectiveLeave&) {},
    };
  }

  /// A promise keeps its actor alive.
  void on_exit() override { questions_.clear(); }

private:
  std::vector<caf::typed_response_promise<proto::CollectiveStanding>> questions_;
};

/// Ranks 0 to 2 on virtual time, and rank 3, which is stopped.
struct three_and_a_stopped_one {
  explicit three_and_a_stopped_one(all_reduce_schedule schedule) {
    cfg.set("scheduler.policy", caf::atom("testing"));
    sys = std::make_unique<caf::actor_system>(cfg);
    scheduler = &dynamic_cast<caf::scheduler::test_coordinator&>(sys->scheduler());
    meet_members all;
    for (std::size_t r = 0; r < 3; ++r) {
      member_options how{.rank = r, .ranks = 4, .schedule = schedule};
      how.deadline = 1'000ms;
      members.push_back(sys->spawn<collective_member>(how));
      all.peers.emplace_back(members[r]);
    }
    stopped = sys->spawn<stopped_peer>();
    all.peers.emplace_back(stopped);
    for (std::size_t r = 0; r < 3; ++r) {
      auto others = all;
      others.peers[r] = nullptr;
      caf::anon_send(members[r], std::move(others));
    }
  }

  ~three_and_a_stopped_one() {
    for (auto& x : members)
      caf::anon_send_exit(x, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(stopped, caf::exit_reason::user_shutdown);
    scheduler->run();
    scheduler->clock().cancel_all();
    scheduler->run();
  }

  /// A program that asks this rank for a sum.
  void ask(std::size_t rank) {
    // With an argument, because without one the framework binds a reference to null.
    sys->spawn(
      [this](caf::event_based_actor* self, std::size_t r) {
        self->request(members[r], caf::infinite, all_reduce{payload::floats(100)})
          .then([](const all_reduced&) {},
                [this, r](const caf::error& error) { failures[r] = failure_of(error); });
      },
      rank);
    scheduler->run();
  }

  void pass(std::chrono::milliseconds time) {
    for (auto t = 0ms; t < time; t += 25ms) {
      scheduler->clock().advance_time(25ms);
      scheduler->run();
    }
  }

  config cfg;
  std::unique_ptr<caf::actor_system> sys;
  caf::scheduler::test_coordinator* scheduler = nullptr;
  std::vector<collective_member_actor> members;
  collective_peer stopped;
  std::array<std::optional<collective_failure>, 3> failures;
};

} // namespace

BOOST_AUTO_TEST_SUITE(collective_of_actors)

BOOST_AUTO_TEST_CASE(threads_of_one_system) {
  config cfg;
  caf::actor_system sys{cfg};
  for (const auto schedule : {all_reduce_schedule::direct, all_reduce_schedule::ring})
    for (const std::size_t ranks : {1, 2, 3, 5}) {
      collective_options options;
      options.schedule = schedule;
      options.chunk_bytes = 4096;
      auto groups = collective::in_one_system(sys, ranks, options);
      std::vector<char> right(ranks);
      const auto failures = run(groups, [&](collective& x) {
        right[x.rank()] = sums_are_right<float>(x) && sums_are_right<double>(x);
      });
      BOOST_TEST(std::ranges::count(right, 1) == static_cast<std::ptrdiff_t>(ranks));
      for (const auto& x : failures)
        BOOST_TEST(!x);
    }
}

// An actor of the program sends several requests at once. The answers come in order.
BOOST_AUTO_TEST_CASE(requests_wait_for_their_turn) {
  config cfg;
  caf::actor_system sys{cfg};
  auto groups = collective::in_one_system(sys, 2);
  caf::scoped_actor self{sys};
  std::vector<float> sums;
  for (int k = 1; k <= 5; ++k)
    for (auto& group : groups) {
      auto own = payload::floats(1);
      own.as_mutable_floats()[0] = static_cast<float>(k);
      self->send(group.member(), all_reduce{own});
    }
  for (int k = 0; k < 10; ++k)
    self->receive([&](const all_reduced& x) { sums.push_back(x.sum.as_floats()[0]); },
                  caf::after(30s) >> [] { BOOST_FAIL("no answer"); });
  std::ranges::sort(sums);
  BOOST_TEST(sums == (std::vector<float>{2, 2, 4, 4, 6, 6, 8, 8, 10, 10}));
}

BOOST_AUTO_TEST_CASE(buffers_come_back) {
  config cfg;
  caf::actor_system sys{cfg};
  auto own = payload::floats(10'000);
  auto other = payload::floats(10'000);
  {
    auto groups = collective::in_one_system(sys, 2);
    const auto failures = run(groups, [&](collective& x) {
      x.all_reduce(x.rank() == 0 ? own : other, element_kind::float32);
    });
    BOOST_TEST((!failures[0] && !failures[1]));
  }
  BOOST_TEST(own.unique());
  BOOST_TEST(other.unique());
}

BOOST_AUTO_TEST_CASE(another_length_or_kind) {
  config cfg;
  caf::actor_system sys{cfg};
  for (const auto schedule : {all_reduce_schedule::direct, all_reduce_schedule::ring})
    for (const bool kind : {false, true}) {
      collective_options options;
      options.schedule = schedule;
      auto groups = collective::in_one_system(sys, 3, options);
      const auto body = [&](collective& x) {
        std::vector<float> floats(x.rank() == 1 && !kind ? 11 : 10);
        std::vector<double> doubles(10);
        if (x.rank() == 1 && kind)
          x.all_reduce(doubles);
        else
          x.all_reduce(floats);
      };
      for (const auto& x : run(groups, body)) {
        BOOST_REQUIRE(x);
        BOOST_TEST((x->code == errc::malformed));
        BOOST_TEST(x->number == 1u);
        BOOST_TEST(x->text.find(kind ? "10 float64" : "11 float32") != std::string::npos, x->text);
      }
      // The group has ended.
      for (const auto& x : run(groups, [](collective& y) { sums_are_right<float>(y); }))
        BOOST_TEST((x && x->code == errc::malformed));
    }
}

// The rank that finds it has not begun the all-reduce.
BOOST_AUTO_TEST_CASE(two_early_vectors_differ) {
  config cfg;
  caf::actor_system sys{cfg};
  caf::scoped_actor self{sys};
  const auto member = sys.spawn<collective_member>(member_options{.rank = 0, .ranks = 3});
  for (std::uint32_t rank = 1; rank < 3; ++rank) {
    const std::size_t elements = 9 * rank;
    auto header = whole_of({.rank = rank, .ranks = 3}, 1, element_kind::float32, elements);
    header.set_step(1);
    self->send(member, header, payload::floats(elements / 3));
  }
  std::optional<collective_failure> found;
  self->request(member, 30s, all_reduce{payload::floats(9)})
    .receive([](const all_reduced&) {},
             [&](const caf::error& error) { found = failure_of(error); });
  BOOST_REQUIRE(found);
  BOOST_TEST((found->code == errc::malformed));
  BOOST_TEST(found->rank == 2u);
  BOOST_TEST(found->number == 1u);
  BOOST_TEST(found->step == 0u);
  BOOST_TEST(found->text.find("has not begun all-reduce 1") != std::string::npos, found->text);
  self->send_exit(member, caf::exit_reason::user_shutdown);
}

// Members whose programs gave them different options. Either of them may notice it first.
BOOST_AUTO_TEST_CASE(another_option) {
  config cfg;
  caf::actor_system sys{cfg};
  caf::scoped_actor self{sys};
  const member_options usual{.rank = 0, .ranks = 2};
  auto ring = usual;
  ring.schedule = all_reduce_schedule::ring;
  auto chunks = usual;
  chunks.chunk_bytes = 8;
  auto more = usual;
  more.ranks = 3;
  for (auto& [other, text] :
       {std::pair{ring, "has schedule "}, std::pair{chunks, "has elements per chunk of "},
        std::pair{more, "has a number of ranks of "}}) {
    auto options = other;
    options.rank = 1;
    const auto a = sys.spawn<collective_member>(usual);
    const auto b = sys.spawn<collective_member>(options);
    self->send(a, meet_members{{collective_peer{}, b}});
    meet_members all{{a, collective_peer{}}};
    all.peers.resize(options.ranks);
    self->send(b, all);
    self->send(b, all_reduce{payload::floats(100)});
    std::string found;
    self->request(a, 30s, all_reduce{payload::floats(100)})
      .receive([](const all_reduced&) {}, [&](const caf::error& error) { found = explain(error); });
    BOOST_TEST(found.find(text) != std::string::npos, found);
    for (const auto& x : {a, b})
      self->send_exit(x, caf::exit_reason::user_shutdown);
  }
}

BOOST_AUTO_TEST_CASE(a_vector_of_broken_elements_harms_nobody_else) {
  config cfg;
  caf::actor_system sys{cfg};
  auto groups = collective::in_one_system(sys, 2);
  BOOST_CHECK_THROW(groups[0].all_reduce(payload::allocate(7), element_kind::float32),
                    std::invalid_argument);
  std::vector<char> right(2);
  run(groups, [&](collective& x) { right[x.rank()] = sums_are_right<float>(x); });
  BOOST_TEST((right[0] && right[1]));
}

BOOST_AUTO_TEST_CASE(a_vector_that_is_not_aligned_or_too_long) {
  config cfg;
  caf::actor_system sys{cfg};
  collective_options options;
  options.max_bytes = 1'000'000;
  auto groups = collective::in_one_system(sys, 2, options);
  const auto bytes = payload::allocate(2'000'000);
  BOOST_CHECK_THROW(groups[0].all_reduce(bytes.slice(4, 80), element_kind::float64),
                    std::invalid_argument);
  BOOST_CHECK_THROW(groups[0].all_reduce(bytes.slice(0, 1'000'008), element_kind::float64),
                    std::invalid_argument);
  std::vector<char> right(2);
  run(groups, [&](collective& x) { right[x.rank()] = sums_are_right<double>(x); });
  BOOST_TEST((right[0] && right[1]));
}

BOOST_AUTO_TEST_CASE(a_rank_that_was_moved_from) {
  config cfg;
  caf::actor_system sys{cfg};
  auto groups = collective::in_one_system(sys, 1);
  auto other = std::move(groups[0]);
  std::vector<float> values(3);
  BOOST_CHECK_THROW(groups[0].all_reduce(values), std::logic_error);
  BOOST_CHECK_THROW(groups[0].rank(), std::logic_error);
  BOOST_CHECK_THROW(groups[0].ranks(), std::logic_error);
  BOOST_CHECK_THROW(groups[0].member(), std::logic_error);
  groups[0] = std::move(other);
  BOOST_TEST(groups[0].ranks() == 1u);
}

// No data is kept of a vector that the group does not allow. The error names the sender, and all
// requests fail.
BOOST_AUTO_TEST_CASE(a_hostile_piece_that_comes_early) {
  config cfg;
  caf::actor_system sys{cfg};
  caf::scoped_actor self{sys};
  member_options how{.rank = 0, .ranks = 2};
  how.max_bytes = 1000;
  const auto member = sys.spawn<collective_member>(how);
  auto header = whole_of(how, 1, element_kind::float32, 251);
  header.set_from(1);
  header.set_step(1);
  const auto data = payload::floats(126);
  self->send(member, header, data);
  std::optional<collective_failure> failure;
  self->request(member, 30s, all_reduce{payload::floats(10)})
    .receive([](const all_reduced&) {}, [&](const caf::error& e) { failure = failure_of(e); });
  BOOST_REQUIRE(failure);
  BOOST_TEST((failure->code == errc::malformed));
  BOOST_TEST(failure->rank == 1u);
  BOOST_TEST(failure->text.find("longer than the 1000 bytes") != std::string::npos, failure->text);
  self->send_exit(member, caf::exit_reason::user_shutdown);
}

// All ranks blame the rank whose program does not start the all-reduce, even those that wait for
// another rank in the ring.
BOOST_AUTO_TEST_CASE(a_rank_that_does_not_come) {
  config cfg;
  caf::actor_system sys{cfg};
  for (const auto schedule : {all_reduce_schedule::direct, all_reduce_schedule::ring}) {
    collective_options options;
    options.schedule = schedule;
    options.deadline = 3'000ms;
    auto groups = collective::in_one_system(sys, 4, options);
    const auto failures = run(groups, [](collective& x) {
      std::vector<float> values(1000);
      x.all_reduce(values);
      if (x.rank() != 2)
        x.all_reduce(values);
    });
    for (const std::size_t r : {0, 1, 3}) {
      BOOST_REQUIRE(failures[r]);
      BOOST_TEST((failures[r]->code == errc::timed_out));
      BOOST_TEST(failures[r]->rank == 2u);
      BOOST_TEST(failures[r]->number == 2u);
      BOOST_TEST(failures[r]->step >= 1u);
      BOOST_TEST((failures[r]->waited >= options.deadline));
      BOOST_TEST(failures[r]->text.find("rank 2 has not begun it") == 0u, failures[r]->text);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_rank_that_has_left) {
  config cfg;
  caf::actor_system sys{cfg};
  auto groups = collective::in_one_system(sys, 3);
  run(groups, [](collective& x) { sums_are_right<float>(x); });
  groups.erase(groups.begin() + 1);
  for (const auto& x : run(groups, [](collective& y) { sums_are_right<float>(y); })) {
    BOOST_REQUIRE(x);
    BOOST_TEST((x->code == errc::failed));
    BOOST_TEST(x->rank == 1u);
    BOOST_TEST(x->text.find("rank 1 has left after all-reduce 4") == 0u, x->text);
  }
}

// Ranks end as soon as they have their sums. This does not affect ranks that still wait.
BOOST_AUTO_TEST_CASE(ranks_that_end_early) {
  config cfg;
  caf::actor_system sys{cfg};
  for (int k = 0; k < 20; ++k)
    for (const auto schedule : {all_reduce_schedule::direct, all_reduce_schedule::ring}) {
      collective_options options;
      options.schedule = schedule;
      auto groups = collective::in_one_system(sys, 3, options);
      std::vector<char> right(3);
      const auto failures = run(groups, [&](collective& x) {
        right[x.rank()] = sums_are_right<float>(x, 50'000);
        const auto ended = std::move(x);
      });
      for (std::size_t r = 0; r < 3; ++r)
        BOOST_TEST((right[r] && !failures[r]), (failures[r] ? failures[r]->text : ""));
      groups.clear();
    }
}

BOOST_AUTO_TEST_SUITE_END()

// Tests on virtual time.
BOOST_AUTO_TEST_SUITE(collective_deadlines)

BOOST_AUTO_TEST_CASE(all_know_within_twice_the_deadline) {
  for (const auto schedule : {all_reduce_schedule::direct, all_reduce_schedule::ring}) {
    three_and_a_stopped_one x{schedule};
    for (std::size_t r = 0; r < 3; ++r) {
      x.ask(r);
      x.pass(100ms);
    }
    x.pass(600ms);
    for (const auto& failure : x.failures)
      BOOST_TEST(!failure);
    // The last request came 700 ms ago.
    x.pass(1'300ms);
    for (const auto& failure : x.failures) {
      BOOST_REQUIRE(failure);
      BOOST_TEST((failure->code == errc::timed_out));
      BOOST_TEST(failure->rank == 3u);
      BOOST_TEST(failure->number == 1u);
      BOOST_TEST(failure->step >= 1u);
      BOOST_TEST((failure->waited >= 1'000ms && failure->waited < 2'000ms));
      BOOST_TEST(failure->text.find("rank 3 does not answer") == 0u, failure->text);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_rank_that_dies_is_known_at_once) {
  three_and_a_stopped_one x{all_reduce_schedule::ring};
  x.ask(0);
  x.ask(1);
  caf::anon_send_exit(x.stopped, caf::exit_reason::kill);
  x.scheduler->run();
  x.ask(2);
  for (const auto& failure : x.failures) {
    BOOST_REQUIRE(failure);
    BOOST_TEST((failure->code == errc::link_lost));
    BOOST_TEST(failure->rank == 3u);
    BOOST_TEST(failure->text.find("rank 3 is gone") == 0u, failure->text);
  }
}

// No request is waiting: time passes without a failure.
BOOST_AUTO_TEST_CASE(an_idle_group_has_no_deadline) {
  three_and_a_stopped_one x{all_reduce_schedule::direct};
  x.pass(5'000ms);
  for (const auto& failure : x.failures)
    BOOST_TEST(!failure);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(collective_of_systems)

BOOST_AUTO_TEST_CASE(sums_over_loopback) {
  for (const bool share : {true, false})
    for (const auto schedule : {all_reduce_schedule::direct, all_reduce_schedule::ring}) {
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

// Each all-reduce chooses its schedule: short vectors are sent directly, long ones around the ring.
BOOST_AUTO_TEST_CASE(schedules_by_length) {
  collective_options options;
  options.share_memory = false;
  options.chunk_bytes = 4096;
  systems x{3, options};
  std::vector<char> right(3);
  run(x.groups, [&](collective& group) { right[group.rank()] = sums_are_right<float>(group); });
  BOOST_TEST(std::ranges::count(right, 1) == 3);
}

// It does not wait until connect_timeout, and learns the reason.
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
  // The other ranks are not affected.
  std::vector<collective> both;
  both.push_back(std::move(*group));
  both.push_back(std::move(*other));
  std::vector<char> right(2);
  run(both, [&](collective& x) { right[x.rank()] = sums_are_right<float>(x); });
  BOOST_TEST((right[0] && right[1]));
}

// Another program tells the nodes of all ranks to end, and that actors have ended.
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
    // An answer shows that all of that has arrived.
    self->request(*node, 30s, std::string{"unknown"})
      .receive([] {}, [](const caf::error& x) { BOOST_TEST((x == caf::sec::unexpected_message)); });
  }
  std::vector<char> right(2);
  run(x.groups, [&](collective& group) { right[group.rank()] = sums_are_right<float>(group); });
  BOOST_TEST((right[0] && right[1]));
}

// The last rank dials no other rank. All its links may exist before it is told to connect.
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
  // Another socket listens there.
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

BOOST_AUTO_TEST_SUITE_END()
