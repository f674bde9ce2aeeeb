#include "actors/link/link_session.hpp"

#include "messages/errors.hpp"
#include "messages/types.hpp"
#include "tests/messages/codec.hpp"
#include "tests/support/input_errors.hpp"

#include <boost/test/unit_test.hpp>

#include <chrono>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(link_sessions)

namespace {

constexpr auto short_wait = 20ms;

/// A link_session without a channel, so its messages go to the actor `link`. `local` lists the
/// actors of this node.
struct fixture {
  codec code;
  caf::scoped_actor link{code.system()};
  caf::scoped_actor actor{code.system()};
  std::shared_ptr<directory> local = std::make_shared<directory>();
  std::shared_ptr<link_session> session = std::make_shared<link_session>(
    code.system(), local, caf::actor_cast<caf::strong_actor_ptr>(link.ptr()));
  const link_peer worker{{job_kind::worker, 1}, 5};
  const endpoint node{{job_kind::ps, 0}, proto::NODE};
  const endpoint ring{{job_kind::worker, 0}, proto::RING_NODE};

  fixture() {
    for (auto& name : {node, ring})
      local->add(name, caf::actor_cast<caf::strong_actor_ptr>(actor.ptr()));
  }

  ~fixture() {
    session->close(make_error(errc::link_lost), nullptr);
    local->clear();
  }

  void receive(proto::Frame::Kind kind, const endpoint& to, caf::message content) {
    proto::Frame frame;
    frame.set_kind(kind);
    frame.set_id(9);
    *frame.mutable_to() = to_proto(to);
    session->receive(frame, std::move(content), nullptr);
  }

  void segment() {
    receive(proto::Frame::ONE_WAY, ring, caf::make_message(proto::Segment{}, payload{}));
  }

  /// True if a message for the node's actor has arrived.
  bool arrived() {
    bool result = false;
    actor->receive([&](const proto::Segment&, const payload&) { result = true; },
                   [&](const proto::Shutdown&) { result = true; },
                   caf::others >> [&](caf::message_view&) -> caf::result<caf::message> {
                     result = true;
                     return caf::sec::unexpected_message;
                   },
                   caf::after(short_wait) >> [] {});
    return result;
  }

  std::string notice() {
    std::string result;
    link->receive([&](const message_refused& x) { result = x.text; },
                  caf::after(short_wait) >> [] {});
    return result;
  }
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_peer_that_has_not_introduced_itself, fixture) {
  segment();
  BOOST_TEST(!arrived());
  session->introduce(worker);
  segment();
  BOOST_TEST(arrived());
  BOOST_TEST(session->refused() == 1U);
}

BOOST_FIXTURE_TEST_CASE(a_refused_request_is_answered, fixture) {
  session->introduce(worker);
  receive(proto::Frame::REQUEST, node, caf::make_message(proto::Shutdown{}));
  BOOST_TEST(!arrived());
  caf::error error;
  std::uint64_t id = 0;
  link->receive([&](outbound& x) {
    id = x.frame.id();
    error = x.content.get_as<caf::error>(0);
  });
  BOOST_TEST(id == 9U);
  BOOST_TEST((code_of(error) == errc::malformed));
  for (const auto* part : {"worker/1", "Shutdown", "ps/0 (node)", "coordinator"})
    BOOST_TEST(contains(explain(error), part));
}

BOOST_FIXTURE_TEST_CASE(the_first_is_reported_and_all_are_counted, fixture) {
  session->introduce(worker);
  for (int i = 0; i < 100; ++i)
    receive(proto::Frame::ONE_WAY, node, caf::make_message(proto::Shutdown{}));
  BOOST_TEST(!arrived());
  BOOST_TEST(session->refused() == 100U);
  BOOST_TEST(contains(notice(), "worker/1"));
  BOOST_TEST(notice() == "");
}

BOOST_FIXTURE_TEST_CASE(messages_that_end_actors, fixture) {
  session->introduce({coordinator_task, 5});
  for (auto& x : {caf::make_message(caf::exit_msg{actor->address(), caf::exit_reason::kill}),
                  caf::make_message(make_error(errc::failed))})
    receive(proto::Frame::ONE_WAY, node, x);
  BOOST_TEST(!arrived());
  BOOST_TEST(session->refused() == 2U);
}

// An actor can be registered for one peer only. A rank of a ring takes segments only from its left
// neighbor, on whatever node this neighbor runs.
BOOST_FIXTURE_TEST_CASE(an_actor_for_one_peer, fixture) {
  local->add(ring, caf::actor_cast<caf::strong_actor_ptr>(actor.ptr()), link_peer{worker});
  const auto heard_from = [this](const link_peer& peer) {
    session->introduce(peer);
    segment();
    return arrived();
  };
  BOOST_TEST(heard_from(worker));
  BOOST_TEST(heard_from({coordinator_task, worker.incarnation}));
  BOOST_TEST(!heard_from({{job_kind::worker, 2}, 6}));
  BOOST_TEST(!heard_from({worker.task, 6}));
  BOOST_TEST(!heard_from({coordinator_task, 6}));
}

// A task is started a second time while its first process is still connected. The second process
// only learns why it may not join.
BOOST_FIXTURE_TEST_CASE(a_second_start_of_a_task, fixture) {
  const endpoint coordinator{coordinator_task, proto::COORDINATOR};
  local->add(coordinator, caf::actor_cast<caf::strong_actor_ptr>(actor.ptr()));
  local->add(ring, caf::actor_cast<caf::strong_actor_ptr>(actor.ptr()), link_peer{worker});
  session->introduce(worker);
  session->park();
  segment();
  BOOST_TEST(!arrived());
  BOOST_TEST(contains(notice(), "another start of worker/1 is connected"));
  proto::Join join;
  *join.mutable_task() = to_proto(worker.task);
  join.set_incarnation(worker.incarnation);
  receive(proto::Frame::REQUEST, coordinator, caf::make_message(join));
  BOOST_TEST(arrived());
  receive(proto::Frame::ONE_WAY, coordinator, caf::make_message(proto::Failure{}));
  BOOST_TEST(!arrived());
  BOOST_TEST(session->refused() == 2U);
}

BOOST_FIXTURE_TEST_CASE(nobody_of_that_name, fixture) {
  session->introduce({coordinator_task, 5});
  receive(proto::Frame::REQUEST, {{job_kind::ps, 8}, proto::NODE},
          caf::make_message(proto::Shutdown{}));
  caf::error error;
  link->receive([&](outbound& x) { error = x.content.get_as<caf::error>(0); });
  BOOST_TEST((code_of(error) == errc::no_such_endpoint));
  BOOST_TEST(session->refused() == 0U);
}

BOOST_AUTO_TEST_SUITE_END()
