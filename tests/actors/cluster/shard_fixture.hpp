#pragma once

#include "actors/parameter_server/parameter_shard.hpp"
#include "actors/parameter_server/reader_front.hpp"
#include "actors/protocols/async_ps/async_policy.hpp"
#include "actors/protocols/sync_ps/sync_policy.hpp"
#include "messages/configure.hpp"
#include "messages/errors.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// Tests of a parameter shard with single messages use these fixtures.

namespace troupe::test {

using namespace std::chrono_literals;

inline constexpr std::uint64_t view_of_shard = 1;

/// A shard that has all parameters and serves this number of workers. All workers have the
/// incarnation (start number) 11.
struct shard_fixture {
  explicit shard_fixture(bool in_step = false, std::uint32_t workers = 1, bool in_pieces = false,
                         std::vector<std::string> changes = {}) {
    configure(config);
    system.emplace(config);
    changes.insert(changes.begin(), {"data.digits={train: 64 test: 20}", "data.batch=64"});
    const auto job = example_job("digits_mlp", changes);
    context = make_job_context(job, shape_of(*build_data(job).train));
    shard_options options;
    options.view.number = view_of_shard;
    std::vector<std::uint32_t> indices;
    for (std::uint32_t i = 0; i < workers; ++i) {
      options.view.members.push_back({{job_kind::worker, i}, 11, ""});
      indices.push_back(i);
    }
    options.where = context->shard(0, 1);
    if (in_step)
      policy = std::make_shared<sync_policy>(options.where, options.index, indices);
    else
      policy = std::make_shared<async_policy>(context, options.where, 0, workers, nullptr);
    options.policy = policy;
    options.in_pieces = in_pieces;
    board = options.board;
    versions = make_versions(*context, options.where, 0);
    const auto front = system->spawn<reader_front>(view_of_shard, options.where, versions);
    reader = front;
    options.reader = front;
    shard = system->spawn<parameter_shard>(context, options, versions);
  }

  ~shard_fixture() {
    caf::anon_send_exit(shard, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(reader, caf::exit_reason::user_shutdown);
  }

  proto::Push push_header(std::uint64_t view, std::uint64_t sequence) const {
    proto::Push result;
    result.set_view(view);
    result.mutable_id()->set_incarnation(11);
    result.mutable_id()->set_sequence(sequence);
    result.set_samples(64);
    return result;
  }

  proto::Commit commit_header(std::uint64_t sequence, std::uint32_t worker = 0) const {
    proto::Commit result;
    result.set_view(view_of_shard);
    *result.mutable_id() = push_header(view_of_shard, sequence).id();
    result.mutable_id()->set_worker(worker);
    result.set_samples(64);
    return result;
  }

  payload gradient(float value) const {
    auto result = payload::floats(versions->elements());
    std::ranges::fill(result.as_mutable_floats(), value);
    return result;
  }

  /// The answer to a request. Fails if there is none within 10 s.
  template <class... In>
  proto::Pushed ask(const In&... in) {
    caf::scoped_actor self{*system};
    proto::Pushed result;
    self->request(shard, 10s, in...)
      .receive([&](const proto::Pushed& x) { result = x; },
               [](const caf::error& error) { BOOST_ERROR(explain(error)); });
    return result;
  }

  template <class Answer = proto::Pushed, class... In>
  errc refusal(const In&... in) {
    caf::scoped_actor self{*system};
    auto result = errc::none;
    self->request(shard, 10s, in...)
      .receive([&](const Answer&) { BOOST_ERROR("taken"); },
               [&](const caf::error& error) { result = code_of(error); });
    return result;
  }

  proto::Fence fence_order() const {
    proto::Fence result;
    result.set_view(view_of_shard);
    result.set_incarnation(11);
    return result;
  }

  /// Plays the coordinator after it has lost worker 0: sends a fence, after which the shard accepts
  /// no new gradient of this worker. Without `last`, this is the first fence. With `last`, it is
  /// the second fence, which names the newest gradient that must still be applied.
  proto::Fenced fence(const std::optional<proto::Commit>& last = std::nullopt) {
    caf::scoped_actor self{*system};
    auto order = fence_order();
    if (last)
      *order.mutable_last() = *last;
    proto::Fenced result;
    self->request(shard, 10s, order)
      .receive([&](const proto::Fenced& x) { result = x; },
               [](const caf::error& error) { BOOST_ERROR(explain(error)); });
    return result;
  }

  proto::Report report() {
    caf::scoped_actor self{*system};
    proto::ReportRequest question;
    question.set_view(view_of_shard);
    proto::Report result;
    self->request(shard, 10s, question)
      .receive([&](const proto::Report& x) { result = x; },
               [](const caf::error& error) { BOOST_ERROR(explain(error)); });
    return result;
  }

  proto::Push push_of(std::uint64_t sequence, std::uint32_t worker = 0) const {
    auto result = push_header(view_of_shard, sequence);
    result.mutable_id()->set_worker(worker);
    return result;
  }

  /// Makes updates with gradients of worker 0, and holds each version, until all slots are in use.
  /// From then on, commits wait. Raises `sequence` to that of the last gradient.
  std::vector<version_pool::snapshot> hold_all_slots(std::uint64_t& sequence) {
    std::vector<version_pool::snapshot> held{versions->newest()};
    while (held.size() < 4) {
      ask(push_of(++sequence), gradient(0));
      BOOST_TEST(ask(commit_header(sequence)).outcome() == proto::APPLIED);
      held.push_back(versions->newest());
    }
    return held;
  }

  std::uint64_t version() const { return versions->newest().version; }

  caf::actor_system_config config;
  std::optional<caf::actor_system> system;
  std::shared_ptr<const job_context> context;
  std::shared_ptr<activity_board> board;
  std::shared_ptr<version_pool> versions;
  std::shared_ptr<shard_policy> policy;
  shard_actor shard;
  reader_actor reader;
};

struct two_asynchronous : shard_fixture {
  two_asynchronous() : shard_fixture(false, 2) {}

  proto::Pushed admit(std::uint64_t sequence, std::uint32_t worker) {
    proto::Admit question;
    question.set_view(view_of_shard);
    *question.mutable_id() = push_of(sequence, worker).id();
    return ask(question);
  }
};

} // namespace troupe::test
