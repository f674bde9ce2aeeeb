#include "tests/actors/collective/ranks.hpp"

#include <boost/test/unit_test.hpp>

#include <caf/all.hpp>

#include <algorithm>
#include <chrono>
#include <optional>
#include <stdexcept>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(collective_of_actors)

BOOST_AUTO_TEST_CASE(threads_of_one_system) {
  config cfg;
  caf::actor_system sys{cfg};
  for (const auto schedule :
       {all_reduce_schedule::direct, all_reduce_schedule::ring, all_reduce_schedule::one_shot})
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

// One actor requests several sums before the first is finished. The answers arrive in the order of
// the requests.
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
  for (const auto schedule :
       {all_reduce_schedule::direct, all_reduce_schedule::ring, all_reduce_schedule::one_shot})
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
      // The error ends the group, so later all-reduces fail, too.
      for (const auto& x : run(groups, [](collective& y) { sums_are_right<float>(y); }))
        BOOST_TEST((x && x->code == errc::malformed));
    }
}

// The vectors of two other ranks differ in length. Rank 0 finds this before its own program begins
// the all-reduce.
BOOST_AUTO_TEST_CASE(two_early_vectors_differ) {
  config cfg;
  caf::actor_system sys{cfg};
  caf::scoped_actor self{sys};
  const auto member = sys.spawn<collective_member>(
    member_options{.rank = 0, .ranks = 3, .schedule = all_reduce_schedule::direct});
  for (std::uint32_t rank = 1; rank < 3; ++rank) {
    const std::size_t elements = 9 * rank;
    auto header = whole_of({.rank = rank, .ranks = 3, .schedule = all_reduce_schedule::direct}, 1,
                           element_kind::float32, elements);
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

// Two ranks have different options. Either of them may notice this first.
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

// A piece that arrives early says that its vector is longer than the group allows. The member does
// not store it. The error names the sender, and all requests fail.
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

// The program of rank 2 does not start the second all-reduce. All other ranks name rank 2 in their
// errors, even if they wait for another neighbor in the ring.
BOOST_AUTO_TEST_CASE(a_rank_that_does_not_come) {
  config cfg;
  caf::actor_system sys{cfg};
  for (const auto schedule :
       {all_reduce_schedule::direct, all_reduce_schedule::ring, all_reduce_schedule::one_shot}) {
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

// A rank may end as soon as it has its sums, while other ranks still wait for theirs.
BOOST_AUTO_TEST_CASE(ranks_that_end_early) {
  config cfg;
  caf::actor_system sys{cfg};
  for (int k = 0; k < 20; ++k)
    for (const auto schedule :
         {all_reduce_schedule::direct, all_reduce_schedule::ring, all_reduce_schedule::one_shot}) {
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
