#include "actors/collective/early_pieces.hpp"

#include <boost/test/unit_test.hpp>

#include <stdexcept>
#include <string>

using namespace troupe;

namespace {

/// A piece of all-reduce number 1, which sums 100 float32 values over 4 ranks. A chunk has at most
/// 10 elements.
struct piece {
  explicit piece(const member_options& options, std::uint32_t from, std::uint32_t segment,
                 std::uint32_t chunk = 0, std::uint32_t step = 1) {
    header = whole_of(options, 1, element_kind::float32, 100);
    header.set_from(from);
    header.set_segment(segment);
    header.set_chunk(chunk);
    header.set_step(step);
    // `one_shot` has one segment of 100 elements. The other schedules have four segments of 25
    // elements, whose last chunk has 5.
    data =
      payload::floats(options.schedule != all_reduce_schedule::one_shot && chunk == 2 ? 5 : 10);
  }

  proto::CollectivePiece header;
  payload data;
};

member_options options_of(all_reduce_schedule schedule) {
  member_options result{.rank = 2, .ranks = 4, .schedule = schedule};
  result.chunk_bytes = 40;
  result.max_bytes = 400;
  return result;
}

} // namespace

BOOST_AUTO_TEST_SUITE(early_pieces_of_other_ranks)

BOOST_AUTO_TEST_CASE(pieces_that_can_come_early_are_kept_once) {
  const auto direct = options_of(all_reduce_schedule::direct);
  early_pieces x{direct};
  for (int twice = 0; twice < 2; ++twice)
    for (const std::uint32_t from : {0, 1, 3})
      for (const std::uint32_t chunk : {0, 1, 2}) {
        const piece y{direct, from, 2, chunk};
        BOOST_TEST(x.keep(y.header, y.data) == "");
      }
  BOOST_TEST(x.take().size() == 9u);
  BOOST_TEST(x.take().empty());

  // The left neighbor sends its own segment, then the sum over two ranks, then the sum over three
  // ranks.
  const auto ring = options_of(all_reduce_schedule::ring);
  early_pieces z{ring};
  for (const std::uint32_t step : {1, 2, 3}) {
    const piece y{ring, 1, (2 + 4 - step) % 4, 0, step};
    BOOST_TEST(z.keep(y.header, y.data) == "");
  }
  BOOST_TEST(z.take().size() == 3u);

  const auto one_shot = options_of(all_reduce_schedule::one_shot);
  early_pieces w{one_shot};
  for (const std::uint32_t from : {0, 1, 3})
    for (std::uint32_t chunk = 0; chunk < 10; ++chunk) {
      const piece y{one_shot, from, 0, chunk};
      BOOST_TEST(w.keep(y.header, y.data) == "");
    }
  BOOST_TEST(w.take().size() == 30u);
}

BOOST_AUTO_TEST_CASE(all_others_are_refused) {
  const auto direct = options_of(all_reduce_schedule::direct);
  const auto ring = options_of(all_reduce_schedule::ring);
  const auto refused = [](const member_options& how, const piece& x, const std::string& text) {
    early_pieces y{how};
    const auto found = y.keep(x.header, x.data);
    BOOST_TEST(found.find(text) != std::string::npos, found);
    BOOST_TEST(y.take().empty());
  };
  refused(direct, piece{direct, 4, 2}, "it says it is of rank 4");
  refused(direct, piece{direct, 2, 2}, "it says it is of rank 2");
  refused(direct, piece{direct, 0, 7}, "there is no such segment");
  refused(direct, piece{direct, 0, 2, 3}, "there is no such chunk");
  refused(direct, piece{direct, 0, 1}, "it is not due here");
  // Pieces that cannot be early: a sum can only exist after this rank has sent its own part.
  refused(direct, piece{direct, 0, 0, 0, 2}, "it is not due here");
  refused(ring, piece{ring, 1, 2, 0, 4}, "it is not due here");
  refused(ring, piece{ring, 1, 1, 0, 0}, "it is not due here");
  refused(ring, piece{ring, 0, 1, 0, 1}, "it is not due here");
  const auto one_shot = options_of(all_reduce_schedule::one_shot);
  refused(one_shot, piece{one_shot, 0, 1}, "there is no such segment");
  refused(one_shot, piece{one_shot, 0, 0, 10}, "there is no such chunk");
  refused(one_shot, piece{one_shot, 0, 0, 0, 2}, "it is not due here");
  refused(direct, piece{ring, 1, 1}, "has schedule ring, this rank direct");
  piece x{direct, 0, 2};
  x.data = payload::floats(9);
  refused(direct, x, "its size is wrong");
  x.data = payload::allocate(48).slice(1, 40);
  refused(direct, x, "its bytes are not aligned");
  x = piece{direct, 0, 2};
  x.header.set_ranks(5);
  refused(direct, x, "a number of ranks of 5");
  x = piece{direct, 0, 2};
  x.header.set_kind(9);
  refused(direct, x, "of an unknown kind");
  // Refuses a piece whose vector is longer than the group allows, even if the piece itself is
  // small.
  x = piece{direct, 0, 2};
  x.header.set_elements(101);
  refused(direct, x, "longer than the 400 bytes");
  x.header.set_elements(~std::uint64_t{0});
  refused(direct, x, "longer than the 400 bytes");
  x = piece{direct, 0, 2};
  x.header.set_chunk_elements(~std::uint64_t{0});
  refused(direct, x, "elements per chunk");
}

BOOST_AUTO_TEST_CASE(all_are_of_one_vector) {
  const auto direct = options_of(all_reduce_schedule::direct);
  early_pieces x{direct};
  const piece first{direct, 0, 2};
  BOOST_TEST(x.keep(first.header, first.data) == "");
  piece other{direct, 1, 2};
  other.header.set_elements(99);
  const auto found = x.keep(other.header, other.data);
  BOOST_TEST(found.find("has a vector of 99 float32, rank 0 100 float32") == 0u, found);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(choice_of_a_schedule)

BOOST_AUTO_TEST_CASE(by_the_length_of_a_vector) {
  using how = all_reduce_schedule;
  constexpr std::size_t chunk = 10'000;
  constexpr std::size_t mib = 1 << 20;
  for (const std::size_t ranks : {2, 3, 17}) {
    const bool two = ranks == 2;
    const auto choice = [&](std::size_t bytes) { return schedule_for(ranks, bytes, chunk); };
    BOOST_TEST((choice(0) == how::one_shot));
    BOOST_TEST((choice(4096) == how::one_shot));
    BOOST_TEST((choice(ranks * chunk) == (two ? how::one_shot : how::direct)));
    BOOST_TEST((choice(ranks * (chunk + 1)) == (two ? how::one_shot : how::ring)));
    const auto in_memory = [&](std::size_t bytes) {
      return schedule_for(ranks, bytes, chunk, true);
    };
    BOOST_TEST((in_memory(4096) == how::one_shot));
    BOOST_TEST((in_memory(mib) == (two ? how::one_shot : how::direct)));
    BOOST_TEST((in_memory(mib + 1) == how::direct));
  }
}

BOOST_AUTO_TEST_CASE(one_that_is_given_stays) {
  member_options how{.rank = 0, .ranks = 3, .schedule = std::nullopt, .in_shared_memory = false};
  how.chunk_bytes = 4096;
  const auto chosen = [&](std::size_t elements) {
    return static_cast<all_reduce_schedule>(
      whole_of(how, 1, element_kind::float64, elements).schedule());
  };
  BOOST_TEST((chosen(3) == all_reduce_schedule::one_shot));
  BOOST_TEST((chosen(1000) == all_reduce_schedule::direct));
  BOOST_TEST((chosen(2000) == all_reduce_schedule::ring));
  how.schedule = all_reduce_schedule::direct;
  BOOST_TEST((chosen(2000) == all_reduce_schedule::direct));
  how.schedule = all_reduce_schedule::ring;
  BOOST_TEST((chosen(3) == all_reduce_schedule::ring));
}

BOOST_AUTO_TEST_CASE(elements_that_are_not_aligned) {
  const auto bytes = payload::allocate(64);
  auto sum = payload::allocate(16);
  BOOST_TEST(aligned(element_kind::float32, bytes.slice(4, 16)));
  BOOST_TEST(!aligned(element_kind::float64, bytes.slice(4, 16)));
  BOOST_TEST(!aligned(element_kind::float32, bytes.slice(2, 16)));
  BOOST_CHECK_THROW(add(element_kind::float64, bytes.slice(4, 16), bytes.slice(0, 16), sum),
                    std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
