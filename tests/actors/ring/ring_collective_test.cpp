#include "actors/ring/ring_collective.hpp"

#include "tests/kernels/numeric.hpp"
#include "tests/support/effort.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <utility>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(ring_collective)

namespace {

/// Gives the value of element i that a rank contributes.
using input = std::function<float(std::size_t rank, std::size_t i)>;

/// All ranks of a ring, and the links between them. It is random which link delivers its next
/// piece, and when a rank contributes. A link delivers pieces in order. With `faults`, it delivers
/// them in any order, and some of them twice.
class ring {
public:
  ring(std::size_t ranks, std::size_t elements, std::size_t chunk_elements, bool faults = false,
       ring_work work = ring_work::all_reduce, bool adds_later = false,
       decltype(ring_place::round) round = {})
    : elements_(elements), chunk_(chunk_elements), faults_(faults), links_(ranks), messages_(ranks),
      floats_(ranks) {
    for (std::size_t r = 0; r < ranks; ++r)
      nodes_.emplace_back(ring_place{.rank = r,
                                     .ranks = ranks,
                                     .chunk_elements = chunk_elements,
                                     .adds_later = adds_later,
                                     .round = round,
                                     .bucket = 3},
                          elements, work);
  }

  void run(const input& value, std::uint64_t salt) {
    random_stream random(seed() + salt, "ring");
    std::vector<std::size_t> order(ranks());
    for (std::size_t r = 0; r < ranks(); ++r)
      order[r] = r;
    random.shuffle(std::span{order});
    std::size_t contributed = 0;
    for (;;) {
      std::vector<std::size_t> ready;
      for (std::size_t r = 0; r < ranks(); ++r)
        if (!links_[r].empty())
          ready.push_back(r);
      const bool late = contributed < ranks();
      if (ready.empty() && !late)
        break;
      if (late && (ready.empty() || random.below(20) == 0))
        contribute(order[contributed++], value);
      else
        deliver(ready[random.below(ready.size())], random);
    }
  }

  std::size_t ranks() const { return links_.size(); }
  ring_collective& node(std::size_t r) { return nodes_[r]; }
  std::uint64_t messages(std::size_t r) const { return messages_[r]; }
  std::uint64_t floats(std::size_t r) const { return floats_[r]; }
  std::size_t early() const { return early_; }
  std::size_t repeated() const { return repeated_; }
  std::size_t reordered() const { return reordered_; }

  /// Number of samples of rank r. Some ranks have none.
  static std::uint64_t samples(std::size_t r) { return r % 3 * 5; }

  /// Checks how many pieces each rank has sent. A chunk of segment s starts at rank s and makes 2
  /// (ranks - 1) hops.
  void check_traffic() const {
    std::vector<std::uint64_t> messages(ranks());
    std::vector<std::uint64_t> floats(ranks());
    for (std::size_t s = 0; s < ranks(); ++s) {
      const auto size = part_of(elements_, ranks(), s).size();
      const auto chunks = std::max<std::size_t>((size + chunk_ - 1) / chunk_, s == 0 ? 1 : 0);
      for (std::size_t hop = 1; hop <= 2 * (ranks() - 1); ++hop) {
        messages[(s + hop - 1) % ranks()] += chunks;
        floats[(s + hop - 1) % ranks()] += size;
      }
    }
    BOOST_TEST(messages_ == messages);
    BOOST_TEST(floats_ == floats);
  }

private:
  void contribute(std::size_t r, const input& value) {
    auto own = payload::floats(elements_);
    for (std::size_t i = 0; i < elements_; ++i)
      own.as_mutable_floats()[i] = value(r, i);
    contributed_.push_back(r);
    std::vector<ring_piece> out;
    nodes_[r].contribute(std::move(own), samples(r), out);
    send(r, std::move(out));
  }

  void deliver(std::size_t from, random_stream& random) {
    const auto to = (from + 1) % ranks();
    auto& link = links_[from];
    const auto which = faults_ ? random.below(link.size()) : 0;
    reordered_ += which > 0 ? 1 : 0;
    auto piece = link[which];
    const bool again = std::exchange(came_[{to, piece.segment, piece.chunk, piece.hop}], true);
    if (!faults_ || random.below(3) > 0)
      link.erase(link.begin() + static_cast<std::ptrdiff_t>(which));
    early_ += std::ranges::find(contributed_, to) == contributed_.end() ? 1 : 0;
    std::vector<ring_piece> out;
    const auto fate = nodes_[to].receive(std::move(piece), out);
    BOOST_REQUIRE((fate == (again ? piece_fate::repeated : piece_fate::taken)));
    BOOST_REQUIRE((!again || out.empty()));
    repeated_ += again ? 1 : 0;
    send(to, std::move(out));
  }

  void send(std::size_t from, std::vector<ring_piece> out) {
    for (auto& x : out) {
      ++messages_[from];
      floats_[from] += x.data.size() / sizeof(float);
      links_[from].push_back(std::move(x));
    }
  }

  std::size_t elements_;
  std::size_t chunk_;
  bool faults_;
  std::vector<ring_collective> nodes_;
  /// Link r leads from rank r to the next rank.
  std::vector<std::deque<ring_piece>> links_;
  std::vector<std::size_t> contributed_;
  std::vector<std::uint64_t> messages_;
  std::vector<std::uint64_t> floats_;
  /// Pieces that arrived before their receiver had contributed.
  std::size_t early_ = 0;
  /// Receiver, segment, chunk and hop of all delivered pieces.
  std::map<std::array<std::size_t, 4>, bool> came_;
  std::size_t repeated_ = 0;
  std::size_t reordered_ = 0;
};

void check_complete(ring& x, std::size_t elements) {
  std::uint64_t samples = 0;
  for (std::size_t r = 0; r < x.ranks(); ++r)
    samples += ring::samples(r);
  const auto& first = x.node(0).sum();
  for (std::size_t r = 0; r < x.ranks(); ++r) {
    BOOST_REQUIRE(x.node(r).complete());
    BOOST_TEST(x.node(r).samples() == samples);
    BOOST_REQUIRE(x.node(r).sum().size() == elements * sizeof(float));
    BOOST_TEST(same_bits(x.node(r).sum().as_floats(), first.as_floats()));
  }
}

const std::vector<std::size_t> all_ranks{1, 2, 3, 4, 5, 6, 7, 8, 16, 17};

/// Calls `body(ranks, elements, chunk, salt)` for many combinations.
template <class Body>
void for_geometries(Body&& body) {
  std::uint64_t salt = 0;
  some_cases chosen;
  for (const auto ranks : all_ranks)
    for (const std::size_t elements : {0, 1, 2, 3, 7, 101, 4096, 100'003})
      for (const std::size_t chunk : {1, 16, 65'536})
        if (elements / chunk <= 10'000 && chosen())
          BOOST_TEST_CONTEXT("ranks " << ranks << ", elements " << elements << ", chunk " << chunk)
  body(ranks, elements, chunk, ++salt);
}

/// Rounds all elements of bucket 3, except every fifth one, to multiples of 1/4.
void round_most(std::size_t bucket, range part, std::span<float> values) {
  BOOST_REQUIRE(bucket == 3U);
  BOOST_REQUIRE(values.size() == part.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    if ((part.begin + i) % 5 > 0)
      values[i] = std::round(values[i] * 4) / 4;
}

/// Rank 1 of 4, which has contributed 40 elements in chunks of 5. It expects the piece of segment 0
/// with hop 1.
struct one_rank {
  one_rank() : node({1, 4, 5}, 40) {
    std::vector<ring_piece> out;
    auto own = payload::floats(40);
    std::ranges::fill(own.as_mutable_floats(), 1.0F);
    node.contribute(std::move(own), 1, out);
  }

  piece_fate fate(ring_piece x) {
    std::vector<ring_piece> out;
    const auto result = node.receive(std::move(x), out);
    BOOST_TEST((result == piece_fate::taken || out.empty()));
    return result;
  }

  ring_collective node;
};

ring_piece good_piece() {
  auto data = payload::floats(5);
  std::ranges::fill(data.as_mutable_floats(), 2.0F);
  return {0, 1, 1, 3, data};
}

/// Pieces that rank 1 of 4 must refuse, for each possible reason. There are 40 elements in chunks
/// of 5.
std::vector<std::pair<ring_piece, piece_fate>> misfits() {
  std::vector<std::pair<ring_piece, piece_fate>> result;
  const auto with = [&](piece_fate fate, auto&& change) {
    auto piece = good_piece();
    change(piece);
    result.emplace_back(std::move(piece), fate);
  };
  for (const auto segment : {4U, ~0U})
    with(piece_fate::no_such_segment, [&](auto& x) { x.segment = segment; });
  for (const auto chunk : {2U, ~0U})
    with(piece_fate::no_such_chunk, [&](auto& x) { x.chunk = chunk; });
  with(piece_fate::no_such_chunk, [](auto& x) {
    x.chunk = 2; // this chunk would begin at the end of the segment
    x.data = {};
  });
  for (const auto hop : {0U, 2U, 3U, 4U, 7U, ~0U})
    with(piece_fate::not_due, [&](auto& x) { x.hop = hop; });
  for (const std::size_t bytes : {0, 4, 16, 19, 21, 24})
    with(piece_fate::wrong_size, [&](auto& x) { x.data = payload::allocate(bytes); });
  // A sum that arrives before the partial sum has passed through this rank.
  with(piece_fate::not_due, [](auto& x) { x.hop = 5; });
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(exact_sums_in_any_order_of_events) {
  std::size_t early = 0;
  for_geometries([&](std::size_t ranks, std::size_t elements, std::size_t chunk, auto salt) {
    ring x{ranks, elements, chunk};
    x.run([](std::size_t r, std::size_t i) { return static_cast<float>(r + 1 + i % 7); }, salt);
    check_complete(x, elements);
    std::size_t wrong = 0;
    const auto sum = x.node(ranks - 1).sum().as_floats();
    for (std::size_t i = 0; i < elements; ++i)
      wrong += sum[i] == static_cast<float>(ranks * (ranks + 1) / 2 + ranks * (i % 7)) ? 0 : 1;
    BOOST_TEST(wrong == 0u);
    x.check_traffic();
    early += x.early();
  });
  BOOST_TEST(early > tries(1'000), "only " << early << " pieces were early: this tests little");
}

// Compares with a float64 sum, and bit for bit with the documented order of additions. Error bound
// of a float sum of R terms in any order: (R - 1) 2^-24 sum|x|, plus 1 % for the terms of second
// order.
BOOST_AUTO_TEST_CASE(random_sums) {
  for (const auto ranks : all_ranks)
    for (const std::size_t elements : {1, 101, 100'003}) {
      std::vector<std::vector<double>> values;
      for (std::size_t r = 0; r < ranks; ++r)
        values.push_back(random_values(elements, "ring values", r));
      ring x{ranks, elements, 1000};
      x.run([&](std::size_t r, std::size_t i) { return static_cast<float>(values[r][i]); },
            ranks + elements);
      check_complete(x, elements);
      std::vector<float> in_order(elements);
      std::size_t beyond = 0;
      const auto sum = x.node(0).sum().as_floats();
      for (std::size_t s = 0; s < ranks; ++s) {
        const auto where = part_of(elements, ranks, s);
        for (auto i = where.begin; i < where.end; ++i) {
          double exact = 0;
          double magnitude = 0;
          in_order[i] = static_cast<float>(values[s][i]);
          for (std::size_t k = 0; k < ranks; ++k) {
            const auto v = values[(s + k) % ranks][i];
            exact += v;
            magnitude += std::fabs(v);
            if (k > 0)
              in_order[i] += static_cast<float>(v);
          }
          const double bound = 1.01 * static_cast<double>(ranks - 1) * 0x1p-24 * magnitude;
          beyond += !(std::fabs(double{sum[i]} - exact) <= bound) ? 1 : 0;
        }
      }
      BOOST_TEST(beyond == 0u, ranks << " ranks, " << elements << " elements");
      BOOST_TEST(same_bits(sum, in_order));
    }
}

BOOST_AUTO_TEST_CASE(the_same_bits_in_every_order_of_delivery) {
  const input value = [](std::size_t r, std::size_t i) {
    return 1.0F / static_cast<float>(1 + r * 31 + i);
  };
  constexpr std::size_t elements = 101;
  const auto run = [&](std::size_t ranks, ring_work work, std::uint64_t salt) {
    ring x{ranks, elements, 4, salt % 2 == 0, work};
    x.run(value, salt);
    return x;
  };
  for (const auto work : {ring_work::all_reduce, ring_work::exchange}) {
    const std::size_t ranks = work == ring_work::exchange ? 2 : 5;
    auto first = run(ranks, work, 1);
    const auto expected = first.node(0).sum().as_floats();
    std::size_t reordered = 0;
    std::size_t different = 0;
    for (std::uint64_t salt = 2; salt <= 1 + tries(1'000); ++salt) {
      auto x = run(ranks, work, salt);
      reordered += x.reordered();
      for (std::size_t r = 0; r < ranks; ++r)
        different +=
          x.node(r).complete() && same_bits(x.node(r).sum().as_floats(), expected) ? 0 : 1;
    }
    BOOST_TEST(different == 0u);
    BOOST_TEST(reordered > tries(1'000));
  }
}

// The expected numbers of messages and elements are those in the comments of ring_collective. They
// are exact if the elements can be divided evenly among ranks and chunks.
BOOST_AUTO_TEST_CASE(steps_and_bytes) {
  for (const auto ranks : all_ranks) {
    constexpr std::size_t chunks = 6;
    const auto elements = ranks * chunks * 8;
    ring x{ranks, elements, 8};
    x.run([](std::size_t, std::size_t) { return 1.0F; }, ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      BOOST_TEST(x.messages(r) == 2 * (ranks - 1) * chunks);
      BOOST_TEST(x.floats(r) == 2 * (ranks - 1) * elements / ranks);
    }
  }
}

// Two ranks may exchange whole vectors in one hop. The sum equals that of the two hops of a ring,
// bit for bit. One hop sends as many elements as the two hops, but no message waits for an earlier
// one.
BOOST_AUTO_TEST_CASE(two_ranks_exchange_their_vectors) {
  const input value = [](std::size_t r, std::size_t i) {
    return 1.0F / static_cast<float>(1 + r * 31 + i);
  };
  std::uint64_t salt = 0;
  std::size_t repeated = 0;
  for (const std::size_t elements : {0, 1, 2, 3, 101, 4096, 100'003})
    for (const std::size_t chunk : {1, 16, 65'536}) {
      if (elements / chunk > 10'000)
        continue;
      ring in_two_hops{2, elements, chunk};
      in_two_hops.run(value, ++salt);
      for (const bool faults : {false, false, true, true}) {
        ring x{2, elements, chunk, faults, ring_work::exchange};
        x.run(value, ++salt);
        check_complete(x, elements);
        repeated += x.repeated();
        for (std::size_t r = 0; r < 2; ++r) {
          BOOST_TEST(same_bits(x.node(r).sum().as_floats(), in_two_hops.node(r).sum().as_floats()));
          BOOST_TEST(x.messages(r) == std::max<std::size_t>((elements + chunk - 1) / chunk, 1));
          BOOST_TEST(x.floats(r) == elements);
          BOOST_TEST(x.node(r).awaited_hop() == 0u);
          BOOST_TEST(x.node(r).addend().empty());
        }
        ring later{2, elements, chunk, faults, ring_work::exchange, true};
        later.run(value, ++salt);
        repeated += later.repeated();
        for (std::size_t r = 0; r < 2; ++r) {
          auto& node = later.node(r);
          BOOST_TEST_REQUIRE(node.complete());
          BOOST_TEST(node.samples() == ring::samples(0) + ring::samples(1));
          BOOST_TEST_REQUIRE(node.sum().size() == elements * sizeof(float));
          BOOST_TEST_REQUIRE(node.addend().size() == elements * sizeof(float));
          std::vector<float> sum(elements);
          std::ranges::transform(node.sum().as_floats(), node.addend().as_floats(), sum.begin(),
                                 std::plus{});
          BOOST_TEST(same_bits(sum, in_two_hops.node(r).sum().as_floats()));
          // Both ranks add in the same order, whichever vector arrives first.
          BOOST_TEST(same_bits(node.sum().as_floats(), later.node(0).sum().as_floats()));
          BOOST_TEST(later.messages(r) == 1u);
          BOOST_TEST(later.floats(r) == elements);
          BOOST_TEST(node.awaited_hop() == 0u);
        }
      }
    }
  BOOST_TEST(repeated > 100u);
}

BOOST_AUTO_TEST_CASE(an_exchange_takes_only_its_own_pieces) {
  std::vector<ring_piece> out;
  troupe::ring_collective node{{1, 2, 5}, 10, ring_work::exchange};
  auto sum = good_piece();
  sum.hop = 2;
  auto elsewhere = good_piece();
  elsewhere.segment = 1;
  auto beyond = good_piece();
  beyond.chunk = 2;
  auto first = good_piece();
  first.chunk = 0;
  for (const bool contributed : {false, true}) {
    if (contributed)
      node.contribute(payload::floats(10), 1, out);
    BOOST_TEST((node.receive(sum, out) == piece_fate::not_due));
    BOOST_TEST((node.receive(elsewhere, out) == piece_fate::no_such_segment));
    BOOST_TEST((node.receive(beyond, out) == piece_fate::no_such_chunk));
    BOOST_TEST(node.awaited_hop() == 1u);
    BOOST_TEST((node.receive(contributed ? first : good_piece(), out) == piece_fate::taken));
    BOOST_TEST((node.receive(good_piece(), out) == piece_fate::repeated));
  }
  BOOST_TEST(node.complete());
  BOOST_TEST(out.size() == 2u);
}

BOOST_AUTO_TEST_CASE(own_values_are_not_changed) {
  std::vector<troupe::ring_collective> nodes;
  std::vector<payload> own;
  std::vector<std::vector<ring_piece>> out(2);
  for (std::size_t r = 0; r < 2; ++r) {
    nodes.emplace_back(ring_place{r, 2, 3}, 10);
    own.push_back(payload::floats(10));
    std::ranges::fill(own[r].as_mutable_floats(), static_cast<float>(r + 1));
  }
  for (std::size_t r = 0; r < 2; ++r)
    nodes[r].contribute(own[r], 1, out[r]);
  while (!out[0].empty() || !out[1].empty())
    for (std::size_t r = 0; r < 2; ++r)
      for (auto& piece : std::exchange(out[r], {}))
        BOOST_REQUIRE((nodes[1 - r].receive(piece, out[1 - r]) == piece_fate::taken));
  for (std::size_t r = 0; r < 2; ++r) {
    BOOST_REQUIRE(nodes[r].complete());
    BOOST_TEST(std::ranges::count(own[r].as_floats(), static_cast<float>(r + 1)) == 10);
    BOOST_TEST(std::ranges::count(nodes[r].sum().as_floats(), 3.0F) == 10);
  }
}

BOOST_AUTO_TEST_CASE(not_complete_before_its_own_part) {
  troupe::ring_collective node{{0, 1, 4}, 8};
  BOOST_TEST(!node.complete());
  std::vector<ring_piece> out;
  node.contribute(payload::floats(8), 9, out);
  BOOST_TEST(node.complete());
  BOOST_TEST(node.samples() == 9u);
  BOOST_TEST(out.empty());
}

// Tries 1,000 random orders of events. Pieces arrive late, out of order, or several times.
BOOST_AUTO_TEST_CASE(repeated_and_reordered_pieces) {
  const input value = [](std::size_t r, std::size_t i) {
    return 1.0F / static_cast<float>(1 + r * 31 + i);
  };
  std::size_t repeated = 0;
  std::size_t reordered = 0;
  std::uint64_t salt = 0;
  for (const auto ranks : all_ranks)
    for (const auto elements :
         {std::size_t{0}, std::size_t{1}, std::size_t{101}, ranks - 1, ranks + 1})
      for (const std::size_t chunk : {3, 16}) {
        ring plain{ranks, elements, chunk};
        plain.run(value, ++salt);
        for (std::size_t k = 0; k < 10; ++k) {
          ring x{ranks, elements, chunk, true};
          x.run(value, ++salt);
          check_complete(x, elements);
          BOOST_TEST(same_bits(x.node(0).sum().as_floats(), plain.node(0).sum().as_floats()),
                     ranks << " ranks, " << elements << " elements, salt " << salt);
          repeated += x.repeated();
          reordered += x.reordered();
        }
      }
  BOOST_TEST(salt >= 1'000u);
  BOOST_TEST(repeated > 10'000u, "only " << repeated << " pieces were repeated");
  BOOST_TEST(reordered > 10'000u, "only " << reordered << " pieces were reordered");
}

BOOST_AUTO_TEST_CASE(repeated_and_reordered_pieces_of_a_long_vector) {
  const input value = [](std::size_t r, std::size_t i) {
    return 1.0F / static_cast<float>(1 + r * 31 + i);
  };
  for (const std::size_t ranks : {2, 5}) {
    ring plain{ranks, 1'000'003, 4096};
    plain.run(value, 1);
    ring x{ranks, 1'000'003, 4096, true};
    x.run(value, 2);
    check_complete(x, 1'000'003);
    BOOST_TEST(same_bits(x.node(0).sum().as_floats(), plain.node(0).sum().as_floats()));
    BOOST_TEST(x.repeated() > 100u);
  }
}

// Wrong pieces arrive before or after this rank contributes. The collective must continue as if
// they had not arrived.
BOOST_AUTO_TEST_CASE(pieces_that_do_not_fit) {
  for (const bool early : {false, true})
    for (const auto& [piece, fate] : misfits()) {
      ring_piece good = good_piece();
      std::vector<ring_piece> out;
      one_rank x;
      troupe::ring_collective before{{1, 4, 5}, 40};
      auto& node = early ? before : x.node;
      BOOST_TEST((node.receive(piece, out) == fate));
      BOOST_TEST(refused(fate));
      BOOST_TEST(std::string{describe(fate)} != describe(piece_fate::taken));
      BOOST_TEST(out.empty());
      BOOST_TEST((node.receive(good, out) == piece_fate::taken));
      BOOST_TEST(out.size() == (early ? 0u : 1u));
      BOOST_TEST((node.receive(good, out) == piece_fate::repeated));
      BOOST_TEST(
        (node.receive(piece, out) == (piece.hop == 5 && !early ? piece_fate::taken : fate)));
    }
}

// With hop h, a piece of segment s arrives at rank s + h. If it arrives at another rank, it was
// sent by a wrong rank.
BOOST_AUTO_TEST_CASE(pieces_that_are_due_elsewhere) {
  for (std::uint32_t segment = 0; segment < 4; ++segment) {
    one_rank x;
    for (std::uint32_t hop = 1; hop <= 6; ++hop) {
      auto piece = good_piece();
      piece.segment = segment;
      piece.hop = hop;
      const bool due = (segment + hop) % 4 == 1;
      BOOST_TEST((x.fate(piece) == (due ? piece_fate::taken : piece_fate::not_due)));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_lonely_rank_takes_no_pieces) {
  troupe::ring_collective node{{0, 1, 5}, 5};
  std::vector<ring_piece> out;
  auto piece = good_piece();
  piece.chunk = 0;
  for (const std::uint32_t hop : {0, 1, 2}) {
    piece.hop = hop;
    BOOST_TEST((node.receive(piece, out) == piece_fate::not_due));
  }
}

// Each partial sum is rounded before it is sent, and the complete sum too.
BOOST_AUTO_TEST_CASE(sums_are_rounded) {
  const auto value = [](std::size_t rank, std::size_t i) {
    return static_cast<float>((rank * 7 + i * 3) % 16) / 16;
  };
  for_geometries(
    [&](std::size_t ranks, std::size_t elements, std::size_t chunk, std::uint64_t salt) {
      ring x{ranks, elements, chunk, true, ring_work::all_reduce, false, round_most};
      x.run(value, salt);
      check_complete(x, elements);
      const auto sum = x.node(0).sum().as_floats();
      for (std::size_t s = 0; s < ranks; ++s)
        for (auto i = part_of(elements, ranks, s).begin; i < part_of(elements, ranks, s).end; ++i) {
          auto expected = value(s, i); // Segment s begins at rank s.
          for (std::size_t hop = 1; hop < ranks; ++hop) {
            expected += value((s + hop) % ranks, i);
            round_most(3, {i, i + 1}, {&expected, 1});
          }
          BOOST_TEST(sum[i] == expected);
        }
    });
}

BOOST_AUTO_TEST_SUITE_END()
