#include "actors/ring/ring_collective.hpp"

#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>

using namespace troupe;
using namespace troupe::test;

namespace {

/// The value of element i at a rank.
using input = std::function<float(std::size_t rank, std::size_t i)>;

/// All ranks of a ring, and the links between them. Each link keeps its order; which link delivers
/// next, and when a rank contributes, is drawn at random.
class ring {
public:
  ring(std::size_t ranks, std::size_t elements, std::size_t chunk_elements)
    : elements_(elements), chunk_(chunk_elements), links_(ranks), messages_(ranks), floats_(ranks) {
    for (std::size_t r = 0; r < ranks; ++r)
      nodes_.emplace_back(ring_place{r, ranks, chunk_elements}, elements);
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
        deliver(ready[random.below(ready.size())]);
    }
  }

  std::size_t ranks() const { return links_.size(); }
  ring_collective& node(std::size_t r) { return nodes_[r]; }
  std::uint64_t messages(std::size_t r) const { return messages_[r]; }
  std::uint64_t floats(std::size_t r) const { return floats_[r]; }
  std::size_t early() const { return early_; }

  /// Samples of rank r; some ranks have none.
  static std::uint64_t samples(std::size_t r) { return r % 3 * 5; }

  /// Counted hop by hop: a chunk of segment s starts at rank s and makes 2 (ranks - 1) hops.
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

  void deliver(std::size_t from) {
    const auto to = (from + 1) % ranks();
    auto piece = std::move(links_[from].front());
    links_[from].pop_front();
    early_ += std::ranges::find(contributed_, to) == contributed_.end() ? 1 : 0;
    std::vector<ring_piece> out;
    BOOST_REQUIRE(nodes_[to].receive(std::move(piece), out));
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
  std::vector<ring_collective> nodes_;
  /// Link r leads from rank r to the next one.
  std::vector<std::deque<ring_piece>> links_;
  std::vector<std::size_t> contributed_;
  std::vector<std::uint64_t> messages_;
  std::vector<std::uint64_t> floats_;
  /// Pieces that came before their receiver had contributed.
  std::size_t early_ = 0;
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

const std::vector<std::size_t> all_ranks{1, 2, 3, 4, 5, 6, 7, 8, 16};

/// Calls `body(ranks, elements, chunk, salt)`.
template <class Body>
void for_geometries(Body&& body) {
  std::uint64_t salt = 0;
  for (const auto ranks : all_ranks)
    for (const std::size_t elements : {0, 1, 2, 3, 7, 101, 4096, 100'003})
      for (const std::size_t chunk : {1, 16, 65'536})
        if (elements / chunk <= 10'000)
          BOOST_TEST_CONTEXT("ranks " << ranks << ", elements " << elements << ", chunk " << chunk)
  body(ranks, elements, chunk, ++salt);
}

/// A rank of a ring of 4 with 40 elements in chunks of 5 that has contributed: a piece of hop 1 of
/// segment 0 is due at rank 1.
struct one_rank {
  one_rank() : node({1, 4, 5}, 40) {
    std::vector<ring_piece> out;
    auto own = payload::floats(40);
    std::ranges::fill(own.as_mutable_floats(), 1.0F);
    node.contribute(std::move(own), 1, out);
  }

  bool accepts(ring_piece x) {
    std::vector<ring_piece> out;
    const bool result = node.receive(std::move(x), out);
    BOOST_TEST((result || out.empty()));
    return result;
  }

  ring_collective node;
};

ring_piece good_piece() {
  auto data = payload::floats(5);
  std::ranges::fill(data.as_mutable_floats(), 2.0F);
  return {0, 1, 1, 3, data};
}

} // namespace

BOOST_AUTO_TEST_SUITE(ring_collective)

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
  BOOST_TEST(early > 1'000u, "only " << early << " pieces were early: this tests little");
}

// Against float64, with the bound of the sum of R floats in any order: (R - 1) 2^-24 sum|x| (1 %
// for the terms of second order); and bit for bit against the documented order of addition.
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

BOOST_AUTO_TEST_CASE(the_same_bits_in_every_run) {
  const input value = [](std::size_t r, std::size_t i) {
    return 1.0F / static_cast<float>(1 + r * 31 + i);
  };
  ring first{5, 1009, 16};
  first.run(value, 1);
  for (std::uint64_t salt = 2; salt <= 20; ++salt) {
    ring again{5, 1009, 16};
    again.run(value, salt);
    BOOST_TEST(same_bits(first.node(0).sum().as_floats(), again.node(salt % 5).sum().as_floats()));
  }
}

// What the header promises, where the ranks divide the elements and the chunks the segments.
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
        BOOST_REQUIRE(nodes[1 - r].receive(piece, out[1 - r]));
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

BOOST_AUTO_TEST_CASE(malformed_pieces) {
  one_rank x;
  BOOST_TEST(x.accepts(good_piece()));
  auto piece = good_piece();
  piece.segment = 4;
  BOOST_TEST(!x.accepts(piece));
  piece.segment = ~0U;
  BOOST_TEST(!x.accepts(piece));
  piece = good_piece();
  piece.chunk = 2;
  BOOST_TEST(!x.accepts(piece));
  piece.chunk = ~0U;
  BOOST_TEST(!x.accepts(piece));
  piece.chunk = 2; // Begins where the segment ends.
  piece.data = {};
  BOOST_TEST(!x.accepts(piece));
  piece = good_piece();
  piece.hop = 0;
  BOOST_TEST(!x.accepts(piece));
  piece.hop = 7;
  BOOST_TEST(!x.accepts(piece));
  piece.hop = ~0U;
  BOOST_TEST(!x.accepts(piece));
  for (const std::size_t bytes : {0, 4, 16, 19, 21, 24}) {
    piece = good_piece();
    piece.data = payload::allocate(bytes);
    BOOST_TEST(!x.accepts(piece));
  }
}

// Hop h of segment s ends at rank s + h: anything else comes from a peer of another rank.
BOOST_AUTO_TEST_CASE(pieces_that_are_due_elsewhere) {
  for (std::uint32_t segment = 0; segment < 4; ++segment)
    for (std::uint32_t hop = 1; hop <= 6; ++hop) {
      one_rank x;
      auto piece = good_piece();
      piece.segment = segment;
      piece.hop = hop;
      BOOST_TEST(x.accepts(piece) == ((segment + hop) % 4 == 1));
    }
}

BOOST_AUTO_TEST_CASE(malformed_pieces_that_come_early) {
  troupe::ring_collective node{{1, 4, 5}, 40};
  std::vector<ring_piece> out;
  auto piece = good_piece();
  piece.hop = 7;
  BOOST_TEST(!node.receive(piece, out));
  BOOST_TEST(node.receive(good_piece(), out));
  BOOST_TEST(out.empty());
}

BOOST_AUTO_TEST_CASE(a_lonely_rank_takes_no_pieces) {
  troupe::ring_collective node{{0, 1, 5}, 5};
  std::vector<ring_piece> out;
  auto piece = good_piece();
  piece.chunk = 0;
  for (const std::uint32_t hop : {0, 1, 2}) {
    piece.hop = hop;
    BOOST_TEST(!node.receive(piece, out));
  }
}

BOOST_AUTO_TEST_SUITE_END()
