#include "actors/collective/all_reduce_part.hpp"

#include "tests/kernels/numeric.hpp"
#include "tests/support/effort.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstring>
#include <functional>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(all_reduce_part)

namespace {

struct on_its_way {
  std::size_t from;
  addressed_piece what;
};

/// Gives the value of element i of the vector that a rank contributes.
using input = std::function<double(std::size_t rank, std::size_t i)>;

template <class T>
std::span<const T> as(const payload& x) {
  return {reinterpret_cast<const T*>(x.data()), x.size() / sizeof(T)};
}

/// All ranks of an all-reduce. Pieces are delivered in random order, and some of them twice.
template <class T>
class group {
public:
  group(all_reduce_schedule how, std::size_t ranks, std::size_t elements, std::size_t chunk,
        const input& value) {
    for (std::size_t r = 0; r < ranks; ++r) {
      auto own = payload::allocate(elements * sizeof(T));
      for (std::size_t i = 0; i < elements; ++i) {
        const auto x = static_cast<T>(value(r, i));
        std::memcpy(own.mutable_data() + i * sizeof(T), &x, sizeof x);
      }
      ring_place place{r, ranks, chunk};
      place.elements = sizeof(T) == 4 ? element_kind::float32 : element_kind::float64;
      std::vector<addressed_piece> send;
      parts_.emplace_back(how, place, std::move(own), send);
      take(r, std::move(send));
    }
  }

  void run(std::uint64_t salt) {
    random_stream random(seed() + salt, "all-reduce");
    while (!pieces_.empty()) {
      const auto which = random.below(pieces_.size());
      std::swap(pieces_[which], pieces_.back());
      auto x = pieces_.back();
      const bool keep = random.below(4) == 0;
      if (!keep)
        pieces_.pop_back();
      std::vector<addressed_piece> send;
      const auto to = x.what.to;
      const auto fate = parts_[to].receive(x.from, std::move(x.what.piece), send);
      BOOST_REQUIRE(!refused(fate));
      repeated_ += fate == piece_fate::repeated ? 1 : 0;
      take(to, std::move(send));
    }
  }

  void check(const std::function<double(std::size_t)>& expected) const {
    std::size_t wrong = 0;
    for (const auto& x : parts_) {
      BOOST_REQUIRE(x.complete());
      BOOST_TEST(x.awaited_step() == 0u);
      BOOST_TEST(x.awaited_ranks().empty());
      const auto sum = as<T>(x.sum());
      for (std::size_t i = 0; i < sum.size(); ++i)
        wrong += static_cast<double>(sum[i]) == expected(i) ? 0 : 1;
      BOOST_TEST(std::ranges::equal(x.sum().bytes(), parts_[0].sum().bytes()));
    }
    BOOST_TEST(wrong == 0u);
  }

  /// Number of ranks that have no sum, or one that differs from `expected`.
  std::size_t differing_from(std::span<const T> expected) const {
    return static_cast<std::size_t>(std::ranges::count_if(parts_, [&](const auto& x) {
      return !x.complete() || !same_bits(as<T>(x.sum()), expected);
    }));
  }

  std::span<const T> sum() const { return as<T>(parts_[0].sum()); }
  std::size_t repeated() const { return repeated_; }

private:
  void take(std::size_t from, std::vector<addressed_piece> send) {
    for (auto& x : send)
      pieces_.push_back({from, std::move(x)});
  }

  std::vector<all_reduce_part> parts_;
  std::vector<on_its_way> pieces_;
  std::size_t repeated_ = 0;
};

constexpr all_reduce_schedule schedules[] = {all_reduce_schedule::direct, all_reduce_schedule::ring,
                                             all_reduce_schedule::one_shot};

/// Rank 1 of 3. The vector has 9 float32 elements, a chunk has 2, and the schedule is `direct`.
struct one_rank {
  one_rank() : part(all_reduce_schedule::direct, {1, 3, 2}, payload::floats(9), send) {}

  piece_fate fate(std::size_t from, const ring_piece& x) { return part.receive(from, x, send); }

  std::vector<addressed_piece> send;
  all_reduce_part part;
};

ring_piece piece_of(std::uint32_t segment, std::uint32_t chunk, std::uint32_t hop,
                    std::size_t elements) {
  return {segment, chunk, hop, 0, payload::floats(elements)};
}

} // namespace

// The elements are whole numbers, so their sums are exact in any order of additions.
BOOST_AUTO_TEST_CASE(exact_sums_in_any_order_of_events) {
  std::uint64_t salt = 0;
  std::size_t repeated = 0;
  for (const auto how : schedules)
    for (const std::size_t ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 32})
      for (const auto elements : {std::size_t{0}, std::size_t{1}, std::size_t{101}, ranks - 1,
                                  ranks, ranks + 1, std::size_t{tries(20'011)}})
        for (const std::size_t chunk : {16, 65'536})
          BOOST_TEST_CONTEXT("schedule " << static_cast<int>(how) << ", ranks " << ranks
                                         << ", elements " << elements << ", chunk " << chunk) {
            if (elements / chunk / ranks > 300)
              continue;
            const input value = [](std::size_t r, std::size_t i) {
              return static_cast<double>(r + 1 + i % 7);
            };
            const auto expected = [&](std::size_t i) {
              return static_cast<double>(ranks * (ranks + 1) / 2 + ranks * (i % 7));
            };
            group<float> floats{how, ranks, elements, chunk, value};
            floats.run(++salt);
            floats.check(expected);
            repeated += floats.repeated();
            group<double> doubles{how, ranks, elements, chunk, value};
            doubles.run(++salt);
            doubles.check(expected);
          }
  BOOST_TEST(repeated > tries(1'000));
}

// Sums depend on the order of additions, which is documented. `direct` and `one_shot` add ranks 0,
// 1, 2, ... `ring` adds up segment s in the order of ranks s, s + 1, ...; rank 0 follows the last
// rank.
BOOST_AUTO_TEST_CASE(the_order_of_additions) {
  constexpr std::size_t elements = 5'003;
  const input value = [](std::size_t r, std::size_t i) {
    return 1.0 / static_cast<double>(1 + r * 31 + i);
  };
  for (const auto how : schedules)
    for (const std::size_t ranks : {2, 3, 7, 17})
      for (std::uint64_t salt = 0; salt < 5; ++salt) {
        group<float> x{how, ranks, elements, 100, value};
        x.run(salt);
        std::vector<float> expected;
        for (std::size_t s = 0; s < ranks; ++s) {
          const auto first = how == troupe::all_reduce_schedule::ring ? s : 0;
          const auto where = part_of(elements, ranks, s);
          for (auto i = where.begin; i < where.end; ++i) {
            auto sum = static_cast<float>(value(first, i));
            for (std::size_t k = 1; k < ranks; ++k)
              sum += static_cast<float>(value((first + k) % ranks, i));
            expected.push_back(sum);
          }
        }
        BOOST_TEST(same_bits(x.sum(), expected));
      }
}

BOOST_AUTO_TEST_CASE(the_same_bits_in_every_order_of_delivery) {
  const input value = [](std::size_t r, std::size_t i) {
    return 1.0 / static_cast<double>(1 + r * 31 + i);
  };
  for (const auto how : schedules)
    for (const std::size_t ranks : {2, 5}) {
      const auto run = [&](std::uint64_t salt) {
        group<float> x{how, ranks, 101, 4, value};
        x.run(salt);
        return x;
      };
      const auto first = run(0);
      std::size_t different = 0;
      for (std::uint64_t salt = 1; salt <= tries(1'000); ++salt)
        different += run(salt).differing_from(first.sum());
      BOOST_TEST(different == 0u, "schedule " << static_cast<int>(how) << ", ranks " << ranks);
    }
}

BOOST_AUTO_TEST_CASE(what_a_rank_waits_for) {
  one_rank x;
  BOOST_TEST(x.part.awaited_step() == 1u);
  BOOST_TEST(x.part.awaited_ranks() == (std::vector<std::size_t>{0, 2}));
  x.fate(0, piece_of(1, 0, 1, 2));
  x.fate(0, piece_of(1, 1, 1, 1));
  BOOST_TEST(x.part.awaited_ranks() == (std::vector<std::size_t>{2}));
  x.fate(2, piece_of(1, 0, 1, 2));
  x.fate(2, piece_of(1, 1, 1, 1));
  BOOST_TEST(x.part.awaited_step() == 2u);
  BOOST_TEST(x.part.awaited_ranks() == (std::vector<std::size_t>{0, 2}));
  for (const std::uint32_t s : {0, 2}) {
    x.fate(s, piece_of(s, 0, 2, 2));
    BOOST_TEST(!x.part.complete());
    x.fate(s, piece_of(s, 1, 2, 1));
  }
  BOOST_TEST(x.part.complete());
  BOOST_TEST(x.part.awaited_step() == 0u);
}

BOOST_AUTO_TEST_CASE(the_ring_waits_for_its_left_neighbour) {
  std::vector<addressed_piece> send;
  troupe::all_reduce_part x{
    troupe::all_reduce_schedule::ring, {1, 3, 100}, payload::floats(3), send};
  BOOST_TEST(x.awaited_step() == 1u);
  BOOST_TEST(x.awaited_ranks() == (std::vector<std::size_t>{0}));
  for (std::uint32_t step = 1; step <= 4; ++step) {
    const auto segment = static_cast<std::uint32_t>(ring_received(1, step, 3));
    BOOST_TEST((x.receive(2, piece_of(segment, 0, step, 1), send) == piece_fate::not_due));
    BOOST_TEST((x.receive(0, piece_of(segment, 0, step, 1), send) == piece_fate::taken));
    BOOST_TEST(x.awaited_step() == (step + 1) % 5);
  }
  BOOST_TEST(x.complete());
}

BOOST_AUTO_TEST_CASE(one_shot_waits_for_all_others) {
  std::vector<addressed_piece> send;
  troupe::all_reduce_part x{
    troupe::all_reduce_schedule::one_shot, {1, 3, 2}, payload::floats(3), send};
  BOOST_TEST(send.size() == 4u); // two chunks to each of the other ranks
  send.clear();
  BOOST_TEST(x.awaited_step() == 1u);
  BOOST_TEST(x.awaited_ranks() == (std::vector<std::size_t>{0, 2}));
  const auto fate = [&](std::size_t from, const ring_piece& y) { return x.receive(from, y, send); };
  BOOST_TEST((fate(0, piece_of(1, 0, 1, 2)) == piece_fate::no_such_segment));
  BOOST_TEST((fate(0, piece_of(0, 2, 1, 2)) == piece_fate::no_such_chunk));
  BOOST_TEST((fate(0, piece_of(0, 0, 2, 2)) == piece_fate::not_due));
  BOOST_TEST((fate(1, piece_of(0, 0, 1, 2)) == piece_fate::not_due));
  for (const std::size_t from : {2, 0}) {
    BOOST_TEST((fate(from, piece_of(0, 0, 1, 2)) == piece_fate::taken));
    BOOST_TEST((fate(from, piece_of(0, 0, 1, 2)) == piece_fate::repeated));
    BOOST_TEST(!x.complete());
    BOOST_TEST((fate(from, piece_of(0, 1, 1, 1)) == piece_fate::taken));
  }
  BOOST_TEST(x.complete());
  BOOST_TEST(send.empty());
  BOOST_TEST(x.awaited_step() == 0u);
}

BOOST_AUTO_TEST_CASE(pieces_that_do_not_fit) {
  one_rank x;
  BOOST_TEST((x.fate(0, piece_of(3, 0, 1, 2)) == piece_fate::no_such_segment));
  BOOST_TEST((x.fate(0, piece_of(1, 2, 1, 0)) == piece_fate::no_such_chunk));
  BOOST_TEST((x.fate(0, piece_of(1, 0, 1, 3)) == piece_fate::wrong_size));
  // Pieces that this rank does not expect: a part of another rank's segment, a sum from a rank that
  // does not own its segment, a piece of another step, and a piece of an unknown rank.
  BOOST_TEST((x.fate(0, piece_of(2, 0, 1, 2)) == piece_fate::not_due));
  BOOST_TEST((x.fate(0, piece_of(2, 0, 2, 2)) == piece_fate::not_due));
  BOOST_TEST((x.fate(0, piece_of(1, 0, 3, 2)) == piece_fate::not_due));
  BOOST_TEST((x.fate(1, piece_of(1, 0, 1, 2)) == piece_fate::not_due));
  BOOST_TEST((x.fate(3, piece_of(1, 0, 1, 2)) == piece_fate::not_due));
  BOOST_TEST((x.fate(0, piece_of(1, 0, 1, 2)) == piece_fate::taken));
  BOOST_TEST((x.fate(0, piece_of(1, 0, 1, 2)) == piece_fate::repeated));
}

// As soon as a rank no longer reads a buffer, it releases the buffer to its owner or to the pool.
BOOST_AUTO_TEST_CASE(payloads_are_not_held_longer_than_they_are_needed) {
  one_rank x;
  std::vector<payload> others;
  for (const std::size_t from : {0, 2}) {
    const auto part = piece_of(1, 0, 1, 2);
    others.push_back(part.data);
    x.fate(from, part);
  }
  for (auto& data : others)
    BOOST_TEST(data.unique());
}

BOOST_AUTO_TEST_SUITE_END()
