#include "messages/transfer.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <deque>
#include <limits>

using namespace troupe;

namespace {

payload patterned(std::size_t size) {
  auto result = payload::allocate(size);
  for (std::size_t i = 0; i < size; ++i)
    result.mutable_data()[i] = static_cast<std::byte>(i * 2654435761U >> 13);
  return result;
}

/// Transfers `size` bytes. With `eager`, the receiver takes each chunk at once. Otherwise, it takes
/// a chunk only when the sender cannot send more, so that as much as possible is in transit.
void transfer_all(std::size_t size, const transfer_limits& limits, bool eager) {
  const auto data = patterned(size);
  outgoing_transfer out{data, limits};
  incoming_transfer in{size};
  std::deque<outgoing_transfer::chunk> wire;
  std::size_t chunks = 0;
  std::size_t most = 0;
  const auto take = [&] {
    BOOST_REQUIRE(in.accept(wire.front().offset, wire.front().data));
    wire.pop_front();
    BOOST_REQUIRE(out.credit(in.received()));
  };
  while (!out.done()) {
    if (auto chunk = out.next()) {
      BOOST_REQUIRE(chunk->data.size() <= limits.chunk_bytes);
      BOOST_REQUIRE(!chunk->data.empty());
      wire.push_back(std::move(*chunk));
      ++chunks;
      most = std::max(most, wire.size());
      if (!eager)
        continue;
    }
    BOOST_REQUIRE_MESSAGE(!wire.empty(), "the transfer is stuck");
    take();
  }
  const auto expected = (size + limits.chunk_bytes - 1) / limits.chunk_bytes;
  BOOST_TEST(chunks == expected);
  BOOST_TEST(most == std::min(expected, eager ? 1 : limits.window));
  BOOST_TEST(!out.next().has_value());
  BOOST_REQUIRE(in.complete());
  const auto result = in.take();
  BOOST_TEST(std::ranges::equal(result.bytes(), data.bytes()));
}

} // namespace

BOOST_AUTO_TEST_SUITE(transfer)

BOOST_AUTO_TEST_CASE(all_bytes_arrive_and_the_window_holds) {
  for (const std::size_t chunk : {1, 64, 1000})
    for (std::size_t window = 1; window <= 5; ++window)
      for (const std::size_t size :
           {std::size_t{0}, std::size_t{1}, chunk - 1, chunk, chunk + 1, window * chunk - 1,
            window * chunk, window * chunk + 1, std::size_t{10'007}})
        for (const bool eager : {false, true})
          BOOST_TEST_CONTEXT("chunk " << chunk << ", window " << window << ", size " << size)
  transfer_all(size, {chunk, window, 1 << 20}, eager);
}

BOOST_AUTO_TEST_CASE(chunks_share_the_payload) {
  const auto data = patterned(100);
  outgoing_transfer out{data, {40, 4, 1000}};
  BOOST_TEST(out.next()->data.data() == data.data());
  BOOST_TEST(out.next()->data.data() == data.data() + 40);
}

BOOST_AUTO_TEST_CASE(the_payload_is_held_until_the_last_credit) {
  auto data = patterned(100);
  {
    outgoing_transfer out{data, {40, 4, 1000}};
    while (out.next())
      ;
    BOOST_TEST(!out.done());
    BOOST_TEST(!data.unique());
    BOOST_TEST(out.credit(100));
    BOOST_TEST(out.done());
  }
  BOOST_TEST(data.unique());
}

BOOST_AUTO_TEST_CASE(a_credit_may_cover_several_chunks_or_part_of_one) {
  outgoing_transfer out{patterned(100), {10, 2, 1000}};
  BOOST_REQUIRE(out.next() && out.next());
  BOOST_TEST(!out.next().has_value());
  BOOST_TEST(out.credit(5));
  BOOST_TEST(!out.next().has_value());
  BOOST_TEST(out.credit(20));
  BOOST_TEST(out.credit(20));
  BOOST_REQUIRE(out.next() && out.next());
  BOOST_TEST(!out.next().has_value());
}

BOOST_AUTO_TEST_CASE(absurd_credits) {
  outgoing_transfer out{patterned(100), {10, 4, 1000}};
  BOOST_TEST(!out.credit(1));
  BOOST_REQUIRE(out.next() && out.next());
  BOOST_TEST(!out.credit(21));
  BOOST_TEST(!out.credit(100));
  BOOST_TEST(!out.credit(std::numeric_limits<std::uint64_t>::max()));
  BOOST_TEST(out.credit(20));
  BOOST_TEST(!out.credit(19));
  BOOST_TEST(!out.credit(0));
  BOOST_TEST(!out.done());
}

BOOST_AUTO_TEST_CASE(chunks_that_do_not_fit) {
  incoming_transfer in{100};
  BOOST_TEST(!in.accept(1, patterned(10)));
  BOOST_TEST(!in.accept(0, patterned(101)));
  BOOST_TEST(!in.accept(std::numeric_limits<std::uint64_t>::max(), patterned(1)));
  BOOST_TEST(in.accept(0, patterned(60)));
  BOOST_TEST(!in.accept(0, patterned(10)));
  BOOST_TEST(!in.accept(50, patterned(10)));
  BOOST_TEST(!in.accept(60, patterned(41)));
  BOOST_TEST(!in.accept(61, patterned(10)));
  BOOST_TEST(in.received() == 60u);
  BOOST_TEST(in.accept(60, patterned(40)));
  BOOST_TEST(in.complete());
  BOOST_TEST(!in.accept(100, patterned(1)));
}

BOOST_AUTO_TEST_CASE(empty_chunks_are_no_progress) {
  // Refuses empty chunks, with which a peer could keep a transfer alive forever.
  incoming_transfer in{100};
  BOOST_TEST(!in.accept(0, {}));
  incoming_transfer nothing{0};
  BOOST_TEST(nothing.complete());
  BOOST_TEST(!nothing.accept(0, {}));
}

BOOST_AUTO_TEST_SUITE_END()
