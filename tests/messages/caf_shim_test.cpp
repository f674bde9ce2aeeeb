#include "messages/caf_shim.hpp"

#include "codec.hpp"
#include "messages/configure.hpp"
#include "messages/errors.hpp"
#include "messages/interfaces.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include <caf/all.hpp>
#include <caf/io/all.hpp>

using namespace troupe;
using namespace troupe::test;

namespace {

// -- types allowed in a typed signature --------------------------------------------------------

template <class Out, class... In>
concept allowed = requires {
  typename rpc<Out, In...>;
};

template <class... Out>
concept allowed_reply = requires {
  typename reply<Out...>;
};

static_assert(allowed<proto::Pushed, proto::Push, payload>);
static_assert(allowed<reply<proto::Weights, payload>, proto::Pull>);
static_assert(allowed<void, proto::Heartbeat>);
static_assert(allowed<void, acquired>, "structs that stay in the process may hold anything");
static_assert(!allowed<void, float>);
static_assert(!allowed<void, double>);
static_assert(!allowed<void, std::vector<float>>);
static_assert(!allowed<void, proto::Push, std::vector<float>>);
static_assert(!allowed<void, proto::Push, double>);
static_assert(!allowed<float, proto::Pull>);
static_assert(!allowed<std::vector<float>, proto::Pull>);
static_assert(!allowed<void, std::string>);
static_assert(!allowed<void, std::uint64_t>);
static_assert(!allowed<void, caf::actor>, "names, not handles");
static_assert(allowed_reply<proto::Weights, payload>);
static_assert(!allowed_reply<proto::Weights, float>);
static_assert(!allowed_reply<std::vector<float>>);

payload patterned(std::size_t size) {
  auto result = payload::allocate(size);
  for (std::size_t i = 0; i < size; ++i)
    result.mutable_data()[i] = static_cast<std::byte>(i * 2654435761U >> 11);
  return result;
}

bool same_bytes(const payload& a, const payload& b) {
  return std::ranges::equal(a.bytes(), b.bytes());
}

/// An encoded payload that announces `size` bytes but contains only `carried` bytes.
std::vector<char> announced(codec& c, std::uint64_t size, std::size_t carried) {
  auto result = c.encode(size);
  result.resize(result.size() + carried, 'x');
  return result;
}

struct fixture : codec {};

} // namespace

BOOST_FIXTURE_TEST_SUITE(caf_shim, fixture)

BOOST_AUTO_TEST_CASE(payloads_of_all_sizes) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{127}, std::size_t{128},
                                 std::size_t{4097}, (std::size_t{1} << 20) + 3, max_inline_bytes}) {
    const auto x = patterned(size);
    const auto wire = encode(x);
    BOOST_REQUIRE(!error_of_encode);
    BOOST_TEST(wire.size() == size + sizeof(std::uint64_t));
    payload back = patterned(5);
    BOOST_REQUIRE(!decode(wire, back));
    BOOST_TEST(left == 0u);
    BOOST_TEST(back.size() == size);
    BOOST_TEST(same_bytes(back, x));
    caf::message in_message;
    BOOST_REQUIRE(!decode(encode(caf::make_message(x)), in_message));
    BOOST_TEST(same_bytes(in_message.get_as<payload>(0), x));
  }
}

BOOST_AUTO_TEST_CASE(floats_keep_their_bits) {
  const std::vector<std::uint32_t> bits{
    0x7fc00000, 0xffc00000, 0x7fc12345, 0x7fa00001, 0x7f800000, 0xff800000,
    0x80000000, 0x00000000, 0x00000001, 0x807fffff, 0x7f7fffff, 0x3f800000,
  };
  auto x = payload::floats(bits.size());
  std::memcpy(x.mutable_data(), bits.data(), x.size());
  payload back;
  BOOST_REQUIRE(!decode(encode(x), back));
  BOOST_REQUIRE(back.as_floats().size() == bits.size());
  BOOST_TEST(std::memcmp(back.data(), bits.data(), x.size()) == 0);
}

BOOST_AUTO_TEST_CASE(a_slice_sends_its_own_bytes_only) {
  const auto whole = patterned(100);
  const auto wire = encode(whole.slice(10, 7));
  BOOST_TEST(wire.size() == 7 + sizeof(std::uint64_t));
  payload back;
  BOOST_REQUIRE(!decode(wire, back));
  BOOST_TEST(same_bytes(back, whole.slice(10, 7)));
}

BOOST_AUTO_TEST_CASE(cut_payloads) {
  const auto size = (std::size_t{1} << 20) + 3;
  const auto wire = encode(caf::make_message(patterned(size)));
  for (const std::size_t keep : {std::size_t{0}, std::size_t{1}, std::size_t{8}, std::size_t{40},
                                 size / 2, wire.size() - 1}) {
    const std::vector<char> cut(wire.begin(), wire.begin() + static_cast<std::ptrdiff_t>(keep));
    caf::message back;
    BOOST_TEST(static_cast<bool>(decode(cut, back)));
  }
}

BOOST_AUTO_TEST_CASE(absurd_sizes_are_refused_before_anything_is_allocated) {
  for (const std::uint64_t size : {std::uint64_t{max_inline_bytes} + 1, std::uint64_t{1} << 32,
                                   std::uint64_t{1} << 62, ~std::uint64_t{0}}) {
    const auto before = buffer_pool::process().retained();
    payload back;
    const auto error = decode(announced(*this, size, 100), back);
    BOOST_TEST((code_of(error) == errc::malformed));
    BOOST_TEST(explain(error).find(std::to_string(size)) != std::string::npos);
    BOOST_TEST(back.empty());
    // Nothing was allocated: otherwise, the pool would now retain that memory.
    BOOST_TEST(buffer_pool::process().retained() == before);
  }
}

BOOST_AUTO_TEST_CASE(more_announced_than_sent) {
  payload back;
  BOOST_TEST(static_cast<bool>(decode(announced(*this, 101, 100), back)));
  BOOST_TEST(!decode(announced(*this, 100, 100), back));
}

BOOST_AUTO_TEST_CASE(too_large_to_send_in_one_piece) {
  BOOST_TEST(encode(payload::allocate(max_inline_bytes + 1)).empty());
  BOOST_TEST((code_of(error_of_encode) == errc::malformed));
}

BOOST_AUTO_TEST_CASE(a_header_that_is_none) {
  // An encoded LeaseDone whose field 1 announces more bytes than follow.
  auto bytes = encode(std::string("\x0a\x7f", 2));
  proto::LeaseDone back;
  const auto error = decode(bytes, back);
  BOOST_TEST((code_of(error) == errc::malformed));
  BOOST_TEST(explain(error).find("troupe.proto.LeaseDone") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(fields_of_a_newer_peer_are_passed_over) {
  proto::Segment newer;
  newer.set_step(7);
  proto::Ack older;
  BOOST_TEST(!decode(encode(newer), older));
}

BOOST_AUTO_TEST_CASE(texts_for_logs) {
  BOOST_TEST(to_string(patterned(1000)) == "payload(1000 bytes)");
  BOOST_TEST(to_string(payload{}) == "payload(0 bytes)");
  // Log texts must not contain the bytes of a payload, also if it is inside a message, as in CAF's
  // own log.
  const auto text = to_string(caf::make_message(proto::Pull{}, patterned(1000)));
  BOOST_TEST(text.find("1000 bytes") != std::string::npos, text);
  BOOST_TEST(text.size() < 100u);
}

// CAF names a system by host, process ID and a count of the systems in this process. Host and
// process ID may be equal in two containers, and are equal here. So troupe's names must have a
// random part.
BOOST_AUTO_TEST_CASE(names_of_systems_are_random) {
  const auto name = [] {
    caf::actor_system_config cfg;
    configure(cfg);
    cfg.load<caf::io::middleman>();
    const caf::actor_system sys{cfg};
    return to_string(sys.node()).substr(0, 20);
  };
  const auto first = name();
  BOOST_TEST(first.size() == 20u);
  BOOST_TEST(first != name());
}

BOOST_AUTO_TEST_SUITE_END()
