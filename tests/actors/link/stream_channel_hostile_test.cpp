#include "kernels/file_descriptor.hpp"
#include "tests/actors/link/stream_ends.hpp"
#include "tests/support/input_errors.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <cstring>
#include <random>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace troupe;
using namespace troupe::test;

namespace {

std::vector<char> record(std::uint32_t kind, std::uint64_t body, const std::string& head) {
  std::vector<char> result(16 + head.size());
  const auto size = static_cast<std::uint32_t>(head.size());
  std::memcpy(result.data(), &kind, 4);
  std::memcpy(result.data() + 4, &size, 4);
  std::memcpy(result.data() + 8, &body, 8);
  std::ranges::copy(head, result.begin() + 16);
  return result;
}

} // namespace

BOOST_FIXTURE_TEST_SUITE(stream_channel_hostile_peers, with_shared_memory)

BOOST_AUTO_TEST_CASE(records_that_cannot_be_decoded) {
  std::vector<std::vector<char>> bad{
    record(0, 0, ""),
    record(99, 0, ""),
    record(proto::MESSAGE, 0, ""),
    record(proto::MESSAGE, 0, std::string(4, '\xff')),
    record(proto::MESSAGE, 0, std::string(200, '\0')),
    record(proto::MESSAGE, ~std::uint64_t{0}, ""),
    record(proto::RETURN, 7, ""),
    record(proto::RETURN, 0, "\xff\xff\xff"),
    record(proto::GREETING, 0, "\x0a\x01x\x10\x05"),
  };
  auto large = record(proto::MESSAGE, 0, "");
  large[7] = '\x7f';
  bad.push_back(large);
  for (const auto& bytes : bad) {
    connection x{true};
    BOOST_REQUIRE(::write(x.sockets[0], bytes.data(), bytes.size())
                  == static_cast<ssize_t>(bytes.size()));
    x.b->run();
    BOOST_TEST(contains(x.b->closed, "it sent"));
    BOOST_TEST(x.b->messages.empty());
    x.a->send(1, patterned(10));
    x.run();
    BOOST_TEST(x.b->messages.empty(), "nothing is believed afterwards");
  }
}

// A peer announces packed values that its bytes do not contain.
BOOST_AUTO_TEST_CASE(packed_values_that_cannot_be_decoded) {
  codec system;
  const auto content = system.encode(caf::make_message(proto::Segment{}, payload{}));
  const auto message = [&](std::uint64_t packed, std::size_t body) {
    proto::Frame frame;
    frame.set_packed(packed);
    std::string head(4, '\0');
    const auto encoded = frame.SerializeAsString();
    const auto size = static_cast<std::uint32_t>(encoded.size());
    std::memcpy(head.data(), &size, 4);
    head += encoded;
    head.append(content.begin(), content.end());
    auto result = record(proto::MESSAGE, body, head);
    result.resize(result.size() + body);
    return result;
  };
  const auto received = [&](const std::vector<char>& bytes) {
    connection x{false, std::uint64_t{1} << 20};
    BOOST_REQUIRE(::write(x.sockets[0], bytes.data(), bytes.size())
                  == static_cast<ssize_t>(bytes.size()));
    x.b->run();
    return std::pair{x.b->messages.size(), x.b->closed};
  };
  BOOST_TEST(received(message(100, 202)).first == 1U);
  for (const auto& bytes :
       {message(100, 201), message(100, 200), message(100, 204), message(101, 202), message(1, 202),
        message(100, 0), message((1 << 18) + 1, 202), message(~std::uint64_t{0}, 202)}) {
    const auto [messages, closed] = received(bytes);
    BOOST_TEST(messages == 0U);
    BOOST_TEST(contains(closed, "it sent"));
  }
}

// A peer must send its token first. Before that, nothing is done or allocated for it.
BOOST_AUTO_TEST_CASE(strangers_that_say_something_else_first) {
  codec system;
  const auto content = system.encode(caf::make_message(proto::Segment{}));
  std::string head(4, '\0');
  head.append(content.begin(), content.end());
  for (const auto& bytes :
       {record(proto::MESSAGE, 0, head), record(proto::MESSAGE, std::uint64_t{1} << 36, head),
        record(proto::END, 0, ""), record(proto::RETURN, 0, ""), record(proto::PING, 0, ""),
        record(proto::GREETING, 0, std::string(300, 'x'))}) {
    std::array<int, 2> sockets{};
    BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) == 0);
    end_point stranger{system.system(), sockets[1], true, std::uint64_t{1} << 36};
    BOOST_REQUIRE(::write(sockets[0], bytes.data(), bytes.size())
                  == static_cast<ssize_t>(bytes.size()));
    stranger.run();
    BOOST_TEST(stranger.channel->over());
    BOOST_TEST(stranger.channel->greeting().token() == "");
    ::close(sockets[0]);
  }
}

// For each of the first 400 bytes of a stream of valid records: sends the stream with this byte
// changed. The receiver accepts the changed records or closes the connection.
BOOST_AUTO_TEST_CASE(changed_bytes) {
  std::vector<char> good;
  {
    connection x{false};
    x.a->send(1, patterned(20));
    x.a->send(2, patterned(20'000));
    good.resize(30'000);
    const auto n = ::read(x.sockets[1], good.data(), good.size());
    BOOST_REQUIRE(n > 20'000);
    good.resize(static_cast<std::size_t>(n));
  }
  std::mt19937 random{3};
  for (std::size_t i = 0; i < 400; ++i) {
    auto bytes = good;
    bytes[i] = static_cast<char>(bytes[i] ^ static_cast<char>(1 + random() % 255));
    connection x{true, 1 << 20};
    BOOST_REQUIRE(::write(x.sockets[0], bytes.data(), bytes.size())
                  == static_cast<ssize_t>(bytes.size()));
    x.b->run();
    BOOST_TEST(x.b->messages.size() <= 2U);
  }
}

namespace {

/// Sends a message with a payload in shared memory. `loan` describes where the payload is in the
/// memory. `descriptor` is the file descriptor of the memory, or -1 to send none.
void send_loan(int socket, codec& system, const proto::Loan& loan, int descriptor) {
  proto::Frame frame;
  *frame.mutable_loan() = loan;
  const auto text = frame.SerializeAsString();
  std::string head(4, '\0');
  const auto size = static_cast<std::uint32_t>(text.size());
  std::memcpy(head.data(), &size, 4);
  head += text;
  const auto content = system.encode(caf::make_message(proto::Segment{}, payload{}));
  head.append(content.begin(), content.end());
  auto bytes = record(proto::MESSAGE, 0, head);
  iovec part{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (descriptor >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    auto* x = CMSG_FIRSTHDR(&message);
    x->cmsg_level = SOL_SOCKET;
    x->cmsg_type = SCM_RIGHTS;
    x->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(x), &descriptor, sizeof(int));
  }
  BOOST_REQUIRE(::sendmsg(socket, &message, 0) == static_cast<ssize_t>(bytes.size()));
}

constexpr int usual_seals = F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE;

file_descriptor memory_file(std::size_t bytes, int seals, bool with_pages = true) {
  file_descriptor result{::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  const auto size = static_cast<off_t>(bytes);
  BOOST_REQUIRE(::ftruncate(result.get(), size) == 0);
  if (with_pages)
    BOOST_REQUIRE(::fallocate(result.get(), 0, 0, size) == 0);
  BOOST_REQUIRE(::fcntl(result.get(), F_ADD_SEALS, seals) == 0);
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(loans_that_cannot_be) {
  const auto sealed = memory_file(8192, usual_seals);
  const auto shrinks = memory_file(8192, F_SEAL_GROW | F_SEAL_FUTURE_WRITE);
  const auto writable = memory_file(8192, F_SEAL_SHRINK);
  const file_descriptor pipe_like{::dup(0)};
  struct sample {
    std::uint64_t memory_bytes;
    bool first_time;
    std::uint64_t offset;
    std::uint64_t bytes;
    int descriptor;
    bool good;
  };
  const std::vector<sample> samples{
    {8192, true, 0, 8192, sealed.get(), true},
    {8192, true, 100, 8092, sealed.get(), true},
    {8192, true, 100, 8093, sealed.get(), false},
    {8192, true, ~std::uint64_t{0} - 3, 8, sealed.get(), false},
    {8192, true, 0, 0, sealed.get(), false},
    {8193, true, 0, 10, sealed.get(), false},
    {0, true, 0, 10, sealed.get(), false},
    {8192, true, 0, 10, shrinks.get(), false},
    {8192, true, 0, 10, writable.get(), false},
    {8192, true, 0, 10, pipe_like.get(), false},
    {8192, true, 0, 10, -1, false},
    {8192, false, 0, 10, -1, false},
  };
  const auto before = open_files();
  for (const auto& sample : samples) {
    connection x{true};
    proto::Loan loan;
    loan.set_number(1);
    loan.set_memory(5);
    loan.set_memory_bytes(sample.memory_bytes);
    loan.set_first_time(sample.first_time);
    loan.set_offset(sample.offset);
    loan.set_bytes(sample.bytes);
    send_loan(x.sockets[0], x.system, loan, sample.descriptor);
    x.b->run();
    BOOST_TEST(x.b->messages.size() == (sample.good ? 1U : 0U));
    BOOST_TEST((x.b->closed == "") == sample.good);
  }
  BOOST_TEST(open_files() == before);
}

// The receiver allocates memory as soon as a payload is announced. So it limits the announced size.
BOOST_AUTO_TEST_CASE(a_payload_that_is_too_large) {
  for (const std::uint64_t bytes : {std::uint64_t{20'001}, std::uint64_t{1} << 35}) {
    connection x{false};
    x.b->channel->limit({.max_bytes = 20'000});
    const auto announcement = record(proto::MESSAGE, bytes, "");
    BOOST_REQUIRE(::write(x.sockets[0], announcement.data(), announcement.size())
                  == static_cast<ssize_t>(announcement.size()));
    x.b->run();
    BOOST_TEST(contains(x.b->closed, "a payload of " + std::to_string(bytes) + " bytes"));
    BOOST_TEST(x.b->channel->finished(), "nothing is lent, so the socket can be closed");
  }
}

// A peer offers shared memory that has no pages yet. It must be refused, because the kernel would
// allocate the pages when the receiver reads them.
BOOST_AUTO_TEST_CASE(memory_without_pages) {
  const auto sparse = memory_file(1 << 20, usual_seals, false);
  connection x{true};
  proto::Loan loan;
  loan.set_number(1);
  loan.set_memory(1);
  loan.set_memory_bytes(1 << 20);
  loan.set_first_time(true);
  loan.set_bytes(10);
  send_loan(x.sockets[0], x.system, loan, sparse.get());
  x.b->run();
  BOOST_TEST(x.b->messages.empty());
  BOOST_TEST(contains(x.b->closed, "memory that cannot be used"));
}

// A peer shares more memory than is allowed in total, or sends descriptors that it did not
// announce.
BOOST_AUTO_TEST_CASE(too_much) {
  const auto sealed = memory_file(8192, usual_seals);
  connection x{true, 20'000};
  for (std::uint64_t i = 1; i <= 3; ++i) {
    proto::Loan loan;
    loan.set_number(i);
    loan.set_memory(i);
    loan.set_memory_bytes(8192);
    loan.set_first_time(true);
    loan.set_bytes(10);
    send_loan(x.sockets[0], x.system, loan, sealed.get());
    x.b->run();
  }
  BOOST_TEST(x.b->messages.size() == 2U);
  BOOST_TEST(contains(x.b->closed, "memory that cannot be used"));
}

BOOST_AUTO_TEST_SUITE_END()
