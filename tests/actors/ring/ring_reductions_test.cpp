#include "actors/ring/ring_reductions.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(ring_reductions_of_a_rank)

BOOST_AUTO_TEST_CASE(pieces_of_collectives_that_do_not_exist) {
  ring_reductions x{{1, 2, 100}, {6, 4}};
  const auto fate = [&](const reduction_id& id, std::size_t floats) {
    ring_reductions::effects result;
    const auto fate = x.receive(id, {0, 0, 1, 3, payload::floats(floats)}, result);
    BOOST_TEST(result.send.empty());
    BOOST_TEST(!result.done);
    return fate;
  };
  BOOST_TEST((fate({0, 0, 2}, 1) == piece_fate::no_such_bucket));
  BOOST_TEST((fate({0, 1, 3}, 1) == piece_fate::no_such_bucket));
  BOOST_TEST((fate({0, 2, 0}, 3) == piece_fate::no_such_bucket));
  BOOST_TEST((fate({2, 0, 0}, 3) == piece_fate::not_due));
  BOOST_TEST((fate({0, 0, 0}, 4) == piece_fate::wrong_size));
  // Refused pieces change nothing: this step, its second attempt, and the next step still accept
  // their own pieces.
  for (const reduction_id id : {reduction_id{0, 0, 0}, {0, 1, 0}, {1, 0, 0}}) {
    BOOST_TEST((fate(id, 6) == piece_fate::taken));
    BOOST_TEST((fate(id, 6) == piece_fate::repeated));
  }
  // Reduction 2 of the second attempt has one element per rank: whether its gradient is left out.
  BOOST_TEST((fate({0, 1, 2}, 2) == piece_fate::taken));
  BOOST_TEST(x.repeated() == 3u);
}

// Sums for synchronized batch normalization. They are in float64, are added beside the buckets of
// the gradient, and exist only in the first attempt of a step.
BOOST_AUTO_TEST_CASE(sums_over_batches) {
  for (const bool in_halves : {false, true}) {
    const ring_place places[] = {{0, 2, 2, in_halves}, {1, 2, 2, in_halves}};
    ring_reductions ranks[] = {{places[0], {6, 4}, {5, 1}}, {places[1], {6, 4}, {5, 1}}};
    const auto first = ranks[0].first_sum();
    // Reductions are numbered: first the buckets (two per bucket if in halves), then the numbers of
    // left-out gradients and the comparison of the replicas.
    BOOST_TEST(first == (in_halves ? 6U : 4U));
    std::vector<double> expected(5);
    ring_reductions::effects waiting[2];
    for (std::size_t r = 0; r < 2; ++r) {
      auto values = payload::allocate(5 * sizeof(double));
      std::vector<double> own;
      for (std::size_t i = 0; i < 5; ++i)
        own.push_back(static_cast<double>(r + 1) / static_cast<double>(3 + i));
      std::ranges::transform(expected, own, expected.begin(), std::plus{});
      std::memcpy(values.mutable_data(), own.data(), values.size());
      ranks[r].contribute({{0, 0, first}, 3 + 4 * r, std::move(values)}, waiting[r]);
    }
    for (bool moves = true; moves;) {
      moves = false;
      for (std::size_t r = 0; r < 2; ++r)
        for (auto& x : std::exchange(waiting[r].send, {})) {
          moves = true;
          BOOST_TEST(
            (ranks[1 - r].receive(x.id, std::move(x.piece), waiting[1 - r]) == piece_fate::taken));
        }
    }
    for (auto& x : waiting) {
      BOOST_TEST_REQUIRE(x.done.has_value());
      BOOST_TEST(x.done->samples == 10U);
      BOOST_TEST_REQUIRE(x.done->sum.size() == 5 * sizeof(double));
      BOOST_TEST(std::memcmp(x.done->sum.data(), expected.data(), x.done->sum.size()) == 0);
    }
    ring_reductions::effects none;
    const auto fate = [&](const reduction_id& id) {
      return ranks[0].receive(id, {1, 0, 1, 1, payload::floats(2)}, none);
    };
    BOOST_TEST((fate({0, 0, first + 2}) == piece_fate::no_such_bucket));
    BOOST_TEST((fate({0, 1, first}) == piece_fate::no_such_bucket));
    BOOST_TEST((fate({0, 0, first - 1}) == piece_fate::no_such_bucket));
  }
}

// GPUs add up the buckets themselves. So the reduction of a bucket sends no elements. It only waits
// until all ranks have contributed.
BOOST_AUTO_TEST_CASE(ranks_on_gpus_wait_for_each_other) {
  for (const std::size_t count : {2, 3, 5}) {
    std::vector<ring_reductions> ranks;
    std::vector<ring_reductions::effects> waiting(count);
    for (std::size_t r = 0; r < count; ++r)
      ranks.push_back({{.rank = r, .ranks = count, .on_gpus = true}, {600, 4}});
    const auto deliver = [&] {
      for (bool moves = true; std::exchange(moves, false);)
        for (std::size_t r = 0; r < count; ++r)
          for (auto& x : std::exchange(waiting[r].send, {})) {
            BOOST_TEST(x.piece.data.size() == 0U);
            const auto right = (r + 1) % count;
            BOOST_TEST((ranks[right].receive(x.id, std::move(x.piece), waiting[right])
                        == piece_fate::taken));
            moves = true;
          }
    };
    // Each of the two buckets has two reductions.
    for (const reduction_id id : {reduction_id{0, 0, 1}, {0, 0, 3}, {0, 0, 0}, {0, 1, 2}})
      for (std::size_t r = 0; r < count; ++r) {
        BOOST_TEST(std::ranges::none_of(waiting, [](auto& x) { return x.done.has_value(); }));
        ranks[r].contribute({id, r + 1, {}}, waiting[r]);
        deliver();
        if (r + 1 < count)
          continue;
        for (auto& x : waiting) {
          BOOST_TEST_REQUIRE(x.done.has_value());
          BOOST_TEST((x.done->id == id));
          BOOST_TEST(x.done->samples == count * (count + 1) / 2);
          x.done.reset();
        }
      }
    // The sums for batch normalization have the numbers after all other reductions: four for the
    // buckets, one for the numbers of left-out gradients, and one for the comparison of replicas.
    BOOST_TEST(ranks[0].first_sum() == 6U);
  }
}

BOOST_AUTO_TEST_SUITE_END()
