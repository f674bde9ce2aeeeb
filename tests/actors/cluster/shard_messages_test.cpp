// Single shards and readers, asked directly.

#include "actors/parameter_server/parameter_shard.hpp"
#include "actors/parameter_server/reader_front.hpp"
#include "messages/configure.hpp"
#include "messages/errors.hpp"
#include "tests/support/allocations.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

#include <thread>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t current_view = 1;

struct shard_fixture {
  shard_fixture() {
    configure(config);
    system.emplace(config);
    const auto job = example_job("digits_mlp", {"data.digits={train: 64 test: 20}"});
    context = make_job_context(job, shape_of(*build_data(job).train));
    shard_options options;
    options.view.number = current_view;
    options.view.members = {{{job_kind::worker, 0}, 11, ""}};
    options.where = context->shard(0, 1);
    board = options.board;
    versions = make_versions(*context, options.where, 0);
    shard = system->spawn<parameter_shard>(context, options, versions);
    reader = system->spawn<reader_front>(current_view, options.where, versions);
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

  caf::actor_system_config config;
  std::optional<caf::actor_system> system;
  std::shared_ptr<const job_context> context;
  std::shared_ptr<activity_board> board;
  std::shared_ptr<version_pool> versions;
  shard_actor shard;
  reader_actor reader;
};

} // namespace

BOOST_FIXTURE_TEST_SUITE(shard_messages, shard_fixture)

BOOST_AUTO_TEST_CASE(another_view_is_refused) {
  caf::scoped_actor self{*system};
  auto gradient = payload::floats(versions->elements());
  self->request(shard, 10s, push_header(0, 1), gradient)
    .receive([](const proto::Pushed&) { BOOST_ERROR("a push of an old view was taken"); },
             [](const caf::error& error) {
               BOOST_TEST((code_of(error) == errc::old_view));
               BOOST_TEST(explain(error).find("view 0") != std::string::npos);
             });
  proto::Pull pull;
  pull.set_view(2);
  self->request(reader, 10s, pull)
    .receive([](const proto::Weights&,
                const payload&) { BOOST_ERROR("a pull of another view was served"); },
             [](const caf::error& error) { BOOST_TEST((code_of(error) == errc::old_view)); });
  BOOST_TEST(versions->newest().version == 0U);
  self->request(shard, 10s, push_header(current_view, 1), gradient)
    .receive([](const proto::Pushed& x) { BOOST_TEST(x.outcome() == proto::APPLIED); },
             [](const caf::error& error) { BOOST_ERROR(explain(error)); });
  BOOST_TEST(versions->newest().version == 1U);
}

BOOST_AUTO_TEST_CASE(a_gradient_of_the_wrong_size_is_refused) {
  caf::scoped_actor self{*system};
  self->request(shard, 10s, push_header(current_view, 1), payload::floats(3))
    .receive([](const proto::Pushed&) { BOOST_ERROR("taken"); },
             [](const caf::error& error) { BOOST_TEST((code_of(error) == errc::malformed)); });
}

BOOST_AUTO_TEST_CASE(a_pull_copies_nothing) {
  // A million parameters.
  const range where{0, 1'000'000};
  auto big = std::make_shared<version_pool>(where.size(), 3);
  auto front = system->spawn<reader_front>(current_view, where, big);
  caf::scoped_actor self{*system};
  proto::Pull pull;
  pull.set_view(current_view);
  const auto before = large_allocations();
  for (int i = 0; i < 100; ++i)
    self->request(front, 10s, pull)
      .receive(
        [&](const proto::Weights& header, const payload& data) {
          BOOST_TEST(header.count() == where.size());
          BOOST_TEST((data.data() == big->newest().data.data()));
        },
        [](const caf::error& error) { BOOST_ERROR(explain(error)); });
  BOOST_TEST(large_allocations() - before == 0U);
  caf::anon_send_exit(front, caf::exit_reason::user_shutdown);
}

// Readers may hold versions for as long as they like: the writer waits, and goes on when one is
// given back.
BOOST_AUTO_TEST_CASE(a_writer_waits_for_readers) {
  caf::scoped_actor self{*system};
  auto gradient = payload::floats(versions->elements());
  std::ranges::fill(gradient.as_mutable_floats(), 0.0F);
  std::vector<version_pool::snapshot> held;
  std::uint64_t sequence = 0;
  for (int i = 0; i < 3; ++i) {
    held.push_back(versions->newest());
    self->request(shard, 10s, push_header(current_view, ++sequence), gradient)
      .receive([](const proto::Pushed& x) { BOOST_TEST(x.outcome() == proto::APPLIED); },
               [](const caf::error& error) { BOOST_ERROR(explain(error)); });
  }
  held.push_back(versions->newest());
  {
    // An actor of its own: a late answer stays in its mailbox.
    caf::scoped_actor impatient{*system};
    impatient->request(shard, 100ms, push_header(current_view, ++sequence), gradient)
      .receive([](const proto::Pushed&) { BOOST_ERROR("a version that is held was overwritten"); },
               [](const caf::error& error) { BOOST_TEST((error == caf::sec::request_timeout)); });
  }
  const auto doing = [this] { return board->status(system->clock().now()).doing(); };
  for (int i = 0; i < 1000 && doing() != proto::TaskStatus::WAITING_FOR_READERS; ++i)
    std::this_thread::sleep_for(10ms);
  BOOST_TEST(doing() == proto::TaskStatus::WAITING_FOR_READERS);
  held.erase(held.begin());
  // The repetition of what was asked before is answered as soon as there is room; it was applied
  // once.
  self->request(shard, 10s, push_header(current_view, sequence), gradient)
    .receive([](const proto::Pushed& x) { BOOST_TEST(x.outcome() == proto::APPLIED); },
             [](const caf::error& error) { BOOST_ERROR(explain(error)); });
  BOOST_TEST(versions->newest().version == 4U);
  BOOST_TEST(doing() == proto::TaskStatus::WAITING_FOR_GRADIENTS);
}

BOOST_AUTO_TEST_SUITE_END()
