#include "actors/link/permissions.hpp"

#include "messages/collective.hpp"
#include "messages/pieces.hpp"
#include "messages/store.hpp"
#include "messages/types.hpp"

#include <boost/test/unit_test.hpp>

#include <set>
#include <typeindex>

using namespace troupe;

/// A message type that only a program of a user knows.
struct gossip_of_program {};

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(gossip_of_program)

BOOST_AUTO_TEST_SUITE(permissions_of_links)

namespace {

constexpr std::uint64_t incarnation = 77;

const link_peer coordinator{coordinator_task, incarnation};
const link_peer ps{{job_kind::ps, 1}, incarnation};
const link_peer worker{{job_kind::worker, 2}, incarnation};
const link_peer evaluator{{job_kind::evaluator, 0}, incarnation};
const std::vector<link_peer> everybody{coordinator, ps, worker, evaluator};

template <class T>
T from_task(const link_peer& who) {
  T x;
  *x.mutable_task() = to_proto(who.task);
  if constexpr (requires { x.set_incarnation(1); })
    x.set_incarnation(who.incarnation);
  return x;
}

template <class T>
T from_worker(const link_peer& who) {
  T x;
  if constexpr (requires { x.mutable_id(); }) {
    x.mutable_id()->set_worker(who.task.index);
    x.mutable_id()->set_incarnation(who.incarnation);
  } else {
    x.set_worker(who.task.index);
    if constexpr (requires { x.set_incarnation(1); })
      x.set_incarnation(who.incarnation);
  }
  return x;
}

template <class T>
T from_shard(const link_peer& who) {
  T x;
  x.set_shard(who.task.index);
  return x;
}

template <class T>
T from_rank(const link_peer& who) {
  T x;
  x.set_from(who.task.index);
  return x;
}

/// A kind of message to a service (a kind of actor of a task), and some senders that may send it.
struct allowed {
  proto::Service to;
  caf::message content;
  std::vector<link_peer> senders;
};

template <class... Ts>
allowed may(proto::Service to, std::vector<link_peer> senders, Ts... xs) {
  return {to, caf::make_message(std::move(xs)...), std::move(senders)};
}

std::vector<allowed> all_allowed() {
  using namespace proto;
  return {
    may(NODE, {coordinator}, OpenView{}),
    may(NODE, {coordinator}, Shutdown{}),
    may(COORDINATOR, {ps}, from_task<Join>(ps)),
    may(COORDINATOR, {evaluator}, from_task<Join>(evaluator)),
    may(COORDINATOR, {worker}, from_worker<LeaseRequest>(worker)),
    may(COORDINATOR, {worker}, from_worker<LeaseDone>(worker)),
    may(COORDINATOR, {worker}, from_worker<Heartbeat>(worker)),
    may(COORDINATOR, {worker}, from_worker<Leave>(worker)),
    may(COORDINATOR, {ps}, from_task<Failure>(ps)),
    may(COORDINATOR, {worker}, from_task<TaskStatus>(worker)),
    may(COORDINATOR, {ps, worker}, CheckpointPart{}, payload{}),
    may(COORDINATOR, {evaluator}, Evaluated{}),
    may(SHARD, {worker, coordinator}, from_worker<Push>(worker), payload{}),
    may(SHARD, {worker, coordinator}, from_worker<PushPiece>(worker), payload{}),
    may(SHARD, {worker, coordinator}, from_worker<Commit>(worker)),
    may(SHARD, {worker, coordinator}, from_worker<Commit>(worker), payload{}),
    may(SHARD, {worker}, from_worker<Admit>(worker)),
    may(SHARD, {ps}, from_shard<PartialNorm>(ps)),
    may(SHARD, {ps}, StepParts{}),
    may(SHARD, {ps}, Damping{}),
    may(SHARD, {coordinator}, Fence{}),
    may(SHARD, {coordinator}, IdleWorkers{}),
    may(SHARD, {coordinator}, ReportRequest{}),
    may(SHARD, {coordinator}, Restore{}, payload{}),
    may(SHARD, {worker}, StoreOpen{}),
    may(SHARD, {worker}, StoreRequest{}, payload{}),
    may(SHARD, {worker}, StoreClose{}),
    may(READER, {worker, coordinator}, from_worker<Pull>(worker)),
    may(READER, {coordinator}, Pull{}),
    may(WORKER, {coordinator}, Lease{}),
    may(SYNCHRONIZER, {ps}, from_shard<Advanced>(ps)),
    may(SYNCHRONIZER, {ps}, from_shard<NewWeights>(ps), payload{}),
    may(SYNCHRONIZER, {coordinator}, ReportRequest{}),
    may(SYNCHRONIZER, {coordinator}, Restore{}, payload{}),
    may(SYNCHRONIZER, {worker}, Segment{}, payload{}),
    may(RING_NODE, {worker}, Segment{}, payload{}),
    may(RING_NODE, {worker}, from_rank<CollectivePiece>(worker), payload{}),
    may(RING_NODE, {worker}, CollectiveQuestion{}),
    may(RING_NODE, {worker}, CollectiveFailure{}),
    may(RING_NODE, {worker}, from_rank<CollectiveLeave>(worker)),
    may(EVALUATOR, {coordinator}, Evaluate{}, payload{}),
  };
}

/// The endpoint of a service. The index of the task does not matter.
endpoint at(proto::Service service) {
  return {{job_kind::worker, 5}, service};
}

} // namespace

BOOST_AUTO_TEST_CASE(all_rows) {
  using place = std::pair<proto::Service, std::type_index>;
  std::set<place> rows;
  for (auto& x : permissions())
    rows.emplace(x.to, *x.message);
  BOOST_TEST(rows.size() == permissions().size(), "a row is there twice");
  for (auto& x : all_allowed()) {
    for (auto& sender : x.senders)
      BOOST_TEST(refusal(sender, at(x.to), x.content) == "");
    rows.erase({x.to, *x.content.type(0).second});
  }
  BOOST_TEST(rows.empty(), "a row is not tested");
}

// Each message is refused at services for which it is not meant, and from tasks of other kinds.
BOOST_AUTO_TEST_CASE(other_places_and_jobs) {
  int refused = 0;
  std::set<std::pair<proto::Service, std::type_index>> rows;
  for (auto& x : permissions())
    rows.emplace(x.to, *x.message);
  for (auto& x : all_allowed())
    for (int to = 0; to < 12; ++to)
      if (const auto service = static_cast<proto::Service>(to);
          !rows.contains({service, *x.content.type(0).second}))
        for (auto& sender : everybody) {
          BOOST_TEST(refusal(sender, at(service), x.content) != "");
          ++refused;
        }
  BOOST_TEST(refused > 1000);
  for (auto& sender : {ps, worker, evaluator}) {
    BOOST_TEST(refusal(sender, at(proto::NODE), caf::make_message(proto::Shutdown{})) != "");
    BOOST_TEST(refusal(sender, at(proto::NODE), caf::make_message(proto::OpenView{})) != "");
    BOOST_TEST(refusal(sender, at(proto::WORKER), caf::make_message(proto::Lease{})) != "");
    BOOST_TEST(refusal(sender, at(proto::SHARD), caf::make_message(proto::Fence{})) != "");
    BOOST_TEST(refusal(sender, at(proto::SHARD), caf::make_message(proto::Restore{}, payload{}))
               != "");
  }
  for (auto& sender : {ps, evaluator}) {
    const auto push = from_worker<proto::Push>(sender);
    BOOST_TEST(refusal(sender, at(proto::SHARD), caf::make_message(push, payload{})) != "");
    BOOST_TEST(refusal(sender, at(proto::RING_NODE), caf::make_message(proto::Segment{}, payload{}))
               != "");
  }
  BOOST_TEST(
    refusal(worker, at(proto::SHARD), caf::make_message(from_shard<proto::PartialNorm>(worker)))
    != "");
  BOOST_TEST(refusal(worker, at(proto::READER), caf::make_message(proto::Pull{})) != "",
             "snapshots are the coordinator's");
}

// A node may send messages in the name of tasks that it hosts, but not of tasks on other nodes.
BOOST_AUTO_TEST_CASE(in_the_name_of_others) {
  const link_peer sibling{{job_kind::worker, 3}, 88};
  const link_peer older{worker.task, incarnation - 1};
  const link_peer other_shard{{job_kind::ps, 0}, incarnation};
  const auto refused = [](const link_peer& sender, proto::Service to, auto... xs) {
    return refusal(sender, at(to), caf::make_message(xs...)) != "";
  };
  for (auto& name : {sibling, older}) {
    BOOST_TEST(refused(worker, proto::SHARD, from_worker<proto::Push>(name), payload{}));
    BOOST_TEST(refused(worker, proto::SHARD, from_worker<proto::PushPiece>(name), payload{}));
    BOOST_TEST(refused(worker, proto::SHARD, from_worker<proto::Commit>(name)));
    BOOST_TEST(refused(worker, proto::COORDINATOR, from_worker<proto::LeaseRequest>(name)));
    BOOST_TEST(refused(worker, proto::COORDINATOR, from_task<proto::Join>(name)));
    BOOST_TEST(refused(coordinator, proto::SHARD, from_worker<proto::Commit>(name)));
  }
  BOOST_TEST(refused(worker, proto::READER, from_worker<proto::Pull>(sibling)));
  BOOST_TEST(refused(worker, proto::COORDINATOR, from_task<proto::TaskStatus>(sibling)));
  BOOST_TEST(refused(worker, proto::COORDINATOR, proto::Join{}), "names no task");
  BOOST_TEST(refused(ps, proto::SYNCHRONIZER, from_shard<proto::Advanced>(other_shard)));
  BOOST_TEST(
    refused(ps, proto::SYNCHRONIZER, from_shard<proto::NewWeights>(other_shard), payload{}));
  BOOST_TEST(refused(worker, proto::RING_NODE, from_rank<proto::CollectiveLeave>(sibling)));
  BOOST_TEST(speaks_for(worker, worker));
  BOOST_TEST(speaks_for(coordinator, worker), "it hosts the worker");
  BOOST_TEST(!speaks_for(coordinator, older));
  BOOST_TEST(!speaks_for(worker, older));
  BOOST_TEST(!speaks_for(ps, worker));
}

// Messages that are never allowed: CAF's own messages, which can end actors, and handshakes and
// answers, which are not for the actors of tasks.
BOOST_AUTO_TEST_CASE(never) {
  for (auto& sender : everybody)
    for (int to = 0; to < 12; ++to) {
      const auto place = at(static_cast<proto::Service>(to));
      for (auto& x :
           {caf::make_message(caf::exit_msg{{}, caf::exit_reason::kill}),
            caf::make_message(caf::down_msg{{}, caf::exit_reason::kill}),
            caf::make_message(caf::make_error(caf::sec::none)), caf::make_message(1),
            caf::make_message(std::string{"x"}), caf::message{}, caf::make_message(proto::Hello{}),
            caf::make_message(proto::Welcome{}), caf::make_message(proto::Proof{}),
            caf::make_message(proto::Frame{}), caf::make_message(proto::Pushed{}),
            caf::make_message(proto::Weights{}, payload{}), caf::make_message(payload{})})
        BOOST_TEST(refusal(sender, place, x) != "");
    }
}

// Message types that troupe does not know are allowed only for the parts that a protocol defines
// (SYNCHRONIZER and SHARD). The program's own protocol decides what to do with them.
BOOST_AUTO_TEST_CASE(types_of_an_embedding_program) {
  const auto content = caf::make_message(gossip_of_program{});
  for (auto& sender : everybody) {
    BOOST_TEST(refusal(sender, at(proto::SYNCHRONIZER), content) == "");
    BOOST_TEST(refusal(sender, at(proto::SHARD), content) == "");
    BOOST_TEST(refusal(sender, at(proto::NODE), content) != "");
    BOOST_TEST(refusal(sender, at(proto::COORDINATOR), content) != "");
  }
}

BOOST_AUTO_TEST_SUITE_END()
