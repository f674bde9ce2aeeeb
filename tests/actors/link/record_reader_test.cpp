#include "actors/link/record_reader.hpp"

#include "actors/link/stream_records.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <vector>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(record_readers)

namespace {

constexpr std::size_t first_bytes = 512;
constexpr record_limits any{false, false, 1 << 20};

/// Gives the reader up to `most` bytes with this value. Returns how many it had room for.
std::size_t fill(record_reader& to, std::size_t most, char value) {
  const auto n = std::min(to.room().size(), most);
  std::ranges::fill(to.room().first(n), value);
  to.add(n);
  return n;
}

} // namespace

// A peer announces the longest possible head, and sends it in small pieces. The reader must not
// allocate memory for bytes that have not arrived. So the free room in its buffer is never larger
// than the part of the head that has arrived.
BOOST_AUTO_TEST_CASE(memory_follows_the_bytes_of_a_head) {
  record_reader reader{first_bytes};
  std::vector<char> header(records::header_bytes + records::max_head_bytes);
  records::put_header(header, proto::MESSAGE, 0);
  std::copy_n(header.begin(), records::header_bytes, reader.room().begin());
  reader.add(records::header_bytes);
  std::size_t arrived = records::header_bytes;
  record_reader::record x;
  while (reader.next(any, x) == record_reader::result::none) {
    BOOST_TEST_REQUIRE(arrived < header.size());
    BOOST_TEST_REQUIRE(!reader.room().empty());
    BOOST_TEST_REQUIRE(reader.room().size() <= std::max(arrived, first_bytes));
    arrived += fill(reader, std::max(arrived / 3, first_bytes), 'x');
  }
  BOOST_TEST(arrived == header.size());
  BOOST_TEST(x.kind == proto::MESSAGE);
  BOOST_TEST(x.head.size() == records::max_head_bytes);
  BOOST_TEST(std::ranges::all_of(x.head, [](char c) { return c == 'x'; }));
}

BOOST_AUTO_TEST_SUITE_END()
