#include "actors/view.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>

// The second argument of in_view must be a message type of CAF. This header declares such types.
#include "messages/types.hpp"

using namespace troupe;

BOOST_AUTO_TEST_SUITE(view)

namespace {

const view three{
  42,
  {{{job_kind::worker, 0}, 100, ""},
   {{job_kind::worker, 2}, 102, "host:1"},
   {{job_kind::ps, 1}, 7, "[::1]:2"},
   {coordinator_task, 1, "host:3"}},
};

bool same(const member& a, const member& b) {
  return a.task == b.task && a.incarnation == b.incarnation && a.address == b.address;
}

/// An object with a view number and message handlers, like an actor.
struct listener {
  std::uint64_t view_number() const { return 42; }
  caf::result<proto::Fenced> on_fence(const proto::Fence& x) {
    heard = x.worker();
    return proto::Fenced{};
  }
  void on_segment(const proto::Segment& x, const payload& data) { heard = x.step() + data.size(); }

  std::uint64_t heard = 0;
};

} // namespace

BOOST_AUTO_TEST_CASE(round_trip) {
  const auto wire = to_proto(three, {job_kind::ps, 1});
  BOOST_TEST(wire.task().job() == "ps");
  BOOST_TEST(wire.task().index() == 1u);
  const auto back = from_proto(wire);
  BOOST_TEST(back.number == 42u);
  BOOST_TEST(std::ranges::equal(back.members, three.members, same));
}

BOOST_AUTO_TEST_CASE(members_are_put_in_order) {
  auto wire = to_proto(three, coordinator_task);
  std::ranges::reverse(*wire.mutable_member());
  wire.add_member()->mutable_task()->set_job("spectator");
  const auto back = from_proto(wire);
  BOOST_TEST(std::ranges::equal(back.members, three.members, same));
}

BOOST_AUTO_TEST_CASE(members_of_a_job) {
  const auto workers = three.of(job_kind::worker);
  BOOST_REQUIRE(workers.size() == 2u);
  BOOST_TEST(workers[0].task.index == 0u);
  BOOST_TEST(workers[1].task.index == 2u);
  BOOST_TEST(three.of(job_kind::ps).size() == 1u);
  BOOST_TEST(troupe::view{}.of(job_kind::ps).empty());
}

BOOST_AUTO_TEST_CASE(other_views_are_refused) {
  BOOST_TEST(!refuse_other_view(42, 42).has_value());
  for (const std::uint64_t theirs : {41, 43, 0}) {
    const auto error = refuse_other_view(42, theirs);
    BOOST_REQUIRE(error.has_value());
    BOOST_TEST((code_of(*error) == errc::old_view));
    BOOST_TEST(explain(*error)
               == "old view: message of view " + std::to_string(theirs)
                 + ", but this actor is in view 42");
  }
}

BOOST_AUTO_TEST_CASE(handlers_hear_their_own_view_only) {
  listener self;
  const auto fence = in_view(&self, &listener::on_fence);
  const auto segment = in_view(&self, &listener::on_segment);
  proto::Fence request;
  request.set_worker(9);
  request.set_view(41);
  BOOST_TEST((code_of(fence(request).err) == errc::old_view));
  proto::Segment one_way;
  one_way.set_step(3);
  one_way.set_view(43);
  segment(one_way, payload::allocate(5));
  BOOST_TEST(self.heard == 0u);
  request.set_view(42);
  BOOST_TEST(!fence(request).err);
  BOOST_TEST(self.heard == 9u);
  one_way.set_view(42);
  segment(one_way, payload::allocate(5));
  BOOST_TEST(self.heard == 8u);
}

BOOST_AUTO_TEST_SUITE_END()
