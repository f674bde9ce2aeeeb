#include "actors/schedules/all_reduce_schedule.hpp"

#include "tests/support/effort.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <tuple>
#include <vector>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(all_reduce_schedule)

namespace {

const std::vector<std::size_t> all_ranks{1,  2,  3,  4,  5,  6,  7,  8,  9,
                                         10, 11, 12, 13, 14, 15, 16, 17, 32};
constexpr all_reduce_schedule schedules[] = {all_reduce_schedule::direct, all_reduce_schedule::ring,
                                             all_reduce_schedule::one_shot};

/// Calls `body(schedule, ranks, cut)` for many combinations.
template <class Body>
void for_geometries(Body&& body) {
  for (const auto how : schedules)
    for (const auto ranks : all_ranks)
      for (const auto elements : {std::size_t{0}, std::size_t{1}, std::size_t{101}, ranks - 1,
                                  ranks, ranks + 1, std::size_t{test::tries(5'003)}})
        for (const std::size_t chunk : {7, 65'536})
          BOOST_TEST_CONTEXT("schedule " << static_cast<int>(how) << ", ranks " << ranks
                                         << ", elements " << elements << ", chunk " << chunk)
  body(how, ranks, chunk_layout{elements, segments_of(how, ranks), chunk});
}

/// Makes the sends and receives of all ranks in the order of their steps, without messages. Returns
/// the vectors of all ranks at the end.
std::vector<std::vector<std::uint64_t>> execute(all_reduce_schedule how, std::size_t ranks,
                                                const chunk_layout& cut) {
  std::vector<std::vector<std::uint64_t>> values(ranks);
  for (std::size_t r = 0; r < ranks; ++r)
    for (std::size_t i = 0; i < cut.elements(); ++i)
      values[r].push_back((r + 1) * (i + 3));
  for (std::uint32_t step = 1; step <= steps_of(how, ranks); ++step) {
    const auto before = values;
    for (std::size_t r = 0; r < ranks; ++r)
      for (const auto& move : moves_of(how, r, ranks, cut))
        if (move.step == step && move.to == r)
          for (auto i = move.where.begin; i < move.where.end; ++i)
            values[r][i] = before[move.from][i] + (move.adds ? values[r][i] : 0);
  }
  return values;
}

} // namespace

BOOST_AUTO_TEST_CASE(the_result_is_the_sum_at_all_ranks) {
  for_geometries([](auto how, std::size_t ranks, const chunk_layout& cut) {
    const auto values = execute(how, ranks, cut);
    std::size_t wrong = 0;
    for (const auto& x : values)
      for (std::size_t i = 0; i < cut.elements(); ++i)
        wrong += x[i] == ranks * (ranks + 1) / 2 * (i + 3) ? 0 : 1;
    BOOST_TEST(wrong == 0u);
  });
}

BOOST_AUTO_TEST_CASE(what_one_rank_sends_another_one_receives) {
  for_geometries([](auto how, std::size_t ranks, const chunk_layout& cut) {
    // Each send must have its receive: +1 for a send, -1 for a receive, by (step, from, to,
    // segment, chunk).
    std::map<std::tuple<std::uint32_t, std::size_t, std::size_t, std::uint32_t, std::uint32_t>, int>
      open;
    std::size_t strange = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      std::uint32_t last = 1;
      for (const auto& x : moves_of(how, r, ranks, cut)) {
        strange += x.from == x.to || (x.from != r && x.to != r) || x.step < last ? 1 : 0;
        strange += x.step > steps_of(how, ranks) || !(x.where == cut.where(x.segment, x.chunk));
        last = x.step;
        open[{x.step, x.from, x.to, x.segment, x.chunk}] += x.from == r ? 1 : -1;
      }
    }
    BOOST_TEST(strange == 0u);
    BOOST_TEST(std::ranges::all_of(open, [](auto& x) { return x.second == 0; }));
  });
}

// Steps and elements must be as documented in the header file.
BOOST_AUTO_TEST_CASE(steps_and_elements) {
  for_geometries([](auto how, std::size_t ranks, const chunk_layout& cut) {
    const bool ring = how == troupe::all_reduce_schedule::ring;
    const bool one_shot = how == troupe::all_reduce_schedule::one_shot;
    BOOST_TEST(steps_of(how, ranks)
               == (ranks == 1   ? 0
                     : ring     ? 2 * (ranks - 1)
                     : one_shot ? 1
                                : 2));
    std::size_t total = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      std::size_t sent = 0;
      std::uint32_t steps = 0;
      for (const auto& x : moves_of(how, r, ranks, cut)) {
        sent += x.from == r ? x.where.size() : 0;
        steps = std::max(steps, x.step);
      }
      const auto size = [&](std::size_t s) { return cut.segment(s % cut.ranks()).size(); };
      const auto n = cut.elements();
      const auto expected = ranks == 1 ? 0
        : one_shot                     ? (ranks - 1) * n
        : ring                         ? 2 * n - size(r + 1) - size(r + 2)
                                       : n + (ranks - 2) * size(r);
      BOOST_TEST(sent == expected);
      BOOST_TEST(steps <= steps_of(how, ranks));
      total += sent;
    }
    BOOST_TEST(total == (one_shot ? ranks : 2) * (ranks - 1) * cut.elements());
  });
}

BOOST_AUTO_TEST_CASE(segments_and_chunks_cover_the_vector_once) {
  for_geometries([](auto, std::size_t ranks, const chunk_layout& cut) {
    std::size_t next = 0;
    std::size_t number = 0;
    BOOST_TEST((cut.ranks() == ranks || cut.ranks() == 1));
    for (std::size_t s = 0; s < cut.ranks(); ++s)
      for (std::uint32_t c = 0; c < cut.chunks(s); ++c) {
        BOOST_TEST(cut.number(s, c) == number++);
        BOOST_TEST(cut.where(s, c).begin == next);
        next = cut.where(s, c).end;
      }
    BOOST_TEST(next == cut.elements());
    BOOST_TEST(cut.number(cut.ranks(), 0) == number);
    BOOST_TEST(cut.chunks(0) >= 1u);
  });
  BOOST_CHECK_THROW(chunk_layout(5, 0, 1), std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
