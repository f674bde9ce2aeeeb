// A link without a channel cuts large payloads into chunks and sends them itself.

#include "actors/link/link.hpp"
#include "messages/configure.hpp"
#include "messages/types.hpp"
#include "tests/messages/codec.hpp"
#include "tests/support/input_errors.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(transfers_of_links)

namespace {

constexpr auto short_wait = 200ms;
constexpr auto long_wait = 20s;

/// A link without a channel. The test plays its owner, and a peer that never takes a chunk.
struct link_to_a_stuck_peer {
  codec code;
  caf::scoped_actor owner{code.system()};
  caf::scoped_actor peer{code.system()};
  const task_name own_name{job_kind::worker, 0};
  const task_name peer_name{job_kind::worker, 1};
  const endpoint ring{peer_name, proto::RING_NODE};
  caf::actor end;
  std::shared_ptr<link_session> session;

  link_to_a_stuck_peer() {
    link_options how;
    how.transfer.chunk_bytes = 1024;
    how.stall_timeout = 20ms;
    link::dial_to dial{caf::actor_cast<caf::strong_actor_ptr>(peer.ptr()), peer_name, own_name, 7,
                       ""};
    end = caf::actor_cast<caf::actor>(code.system().spawn<troupe::link>(
      caf::actor_cast<caf::actor>(owner.ptr()), std::make_shared<directory>(), dial, how));
    peer->receive([](const proto::Hello&) {},
                  caf::after(long_wait) >> [] { BOOST_FAIL("no Hello came"); });
    proto::Welcome welcome;
    welcome.set_wire_version(wire_version);
    *welcome.mutable_task() = to_proto(peer_name);
    welcome.set_incarnation(8);
    peer->send(end, welcome);
    owner->receive([&](const link_up& x) { session = x.session; },
                   caf::after(long_wait) >> [] { BOOST_FAIL("the link is not up"); });
  }

  caf::actor port() { return caf::actor_cast<caf::actor>(make_port(code.system(), session, ring)); }

  /// The peer announces a message in chunks, and sends none of them.
  void announce(proto::Frame::Kind kind) {
    proto::Frame frame;
    frame.set_kind(kind);
    frame.set_id(5);
    frame.set_chunked_bytes(4096);
    peer->send(end, frame, caf::make_message(proto::Segment{}, payload{}));
  }

  /// The reason why the link ended; empty if it does not end within `limit`.
  template <class Time>
  std::string reason(Time limit) {
    std::string result;
    owner->receive([&](const link_down& x) { result = x.reason; }, caf::after(limit) >> [] {});
    return result;
  }
};

} // namespace

// A message without an answer, such as a segment of a ring, has no deadline of its own. If it makes
// no progress, the link ends, because the ring would otherwise wait forever.
BOOST_AUTO_TEST_CASE(a_stuck_message_without_an_answer_ends_the_link) {
  link_to_a_stuck_peer sends;
  sends.owner->send(sends.port(), proto::Segment{}, payload::allocate(1 << 16));
  BOOST_TEST(contains(sends.reason(long_wait), "a message made no progress for 20 ms"));
  link_to_a_stuck_peer receives;
  receives.announce(proto::Frame::ONE_WAY);
  BOOST_TEST(contains(receives.reason(long_wait), "a message made no progress for 20 ms"));
}

// A request has its own deadline, which the requesting actor checks. So a request or an answer
// without progress does not end the link.
BOOST_AUTO_TEST_CASE(a_stuck_request_or_answer_does_not) {
  link_to_a_stuck_peer x;
  x.owner->request(x.port(), caf::infinite, proto::Push{}, payload::allocate(1 << 16));
  x.announce(proto::Frame::RESPONSE);
  BOOST_TEST(x.reason(short_wait) == "");
  // The link still works.
  x.owner->send(x.port(), proto::Segment{}, payload::allocate(1 << 16));
  BOOST_TEST(contains(x.reason(long_wait), "a message made no progress for 20 ms"));
}

BOOST_AUTO_TEST_SUITE_END()
