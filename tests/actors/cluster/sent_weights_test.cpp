// A worker and a parameter server in two processes of one host, which share memory. Both are in
// this process here, with a socket between them.

#include "actors/link/link_session.hpp"
#include "actors/link/port.hpp"
#include "actors/link/stream_channel.hpp"
#include "actors/parameter_server/parameter_shard.hpp"
#include "actors/parameter_server/ps_synchronizer.hpp"
#include "actors/protocols/async_ps/async_policy.hpp"
#include "actors/protocols/sync_ps/sync_policy.hpp"
#include "messages/configure.hpp"
#include "tests/kernels/numeric.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <atomic>
#include <functional>
#include <thread>

#include <fcntl.h>
#include <sys/socket.h>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t current_view = 1;
constexpr std::uint64_t incarnation = 11;
constexpr task_name worker_task{job_kind::worker, 0};
constexpr task_name shard_task{job_kind::ps, 0};

/// Answers pulls with the newest version, and counts them.
class counting_reader : public reader_actor::base {
public:
  counting_reader(caf::actor_config& cfg, std::shared_ptr<version_pool> versions,
                  std::shared_ptr<std::atomic<int>> pulls)
    : reader_actor::base(cfg), versions_(std::move(versions)), pulls_(std::move(pulls)) {}

protected:
  behavior_type make_behavior() override {
    return {[this](const proto::Pull&) -> caf::result<proto::Weights, payload> {
      ++*pulls_;
      auto newest = versions_->newest();
      proto::Weights header;
      header.set_count(versions_->elements());
      header.set_version(newest.version);
      return {std::move(header), std::move(newest.data)};
    }};
  }

private:
  std::shared_ptr<version_pool> versions_;
  std::shared_ptr<std::atomic<int>> pulls_;
};

/// Ignores decisions, as a reader without waiting pulls does.
class deaf_reader : public decision_listener::base {
public:
  using decision_listener::base::base;

protected:
  behavior_type make_behavior() override {
    return {[](const gradient_decided&) {}};
  }
};

/// One of the two processes.
struct process {
  std::shared_ptr<directory> actors = std::make_shared<directory>();
  std::shared_ptr<link_session> session;
  std::shared_ptr<stream_channel> channel;

  void connect(caf::actor_system& sys, int socket, const link_peer& peer) {
    ::fcntl(socket, F_SETFL, O_NONBLOCK);
    stream_options how;
    how.lends = true;
    how.wake = [] {};
    channel = std::make_shared<stream_channel>(sys, file_descriptor{socket}, how);
    session = std::make_shared<link_session>(sys, actors, nullptr);
    session->introduce(peer);
    BOOST_REQUIRE(session->use(channel));
    channel->listen({[this](const proto::Frame& frame, caf::message content) {
                       session->receive(frame, std::move(content), nullptr);
                     },
                     [](const std::string&) {}});
  }

  void run() const {
    channel->on_writable();
    while (channel->on_readable())
      ;
    channel->on_tick();
  }
};

/// The worker is the test itself.
struct two_processes {
  explicit two_processes(bool in_step) : in_step_(in_step) {
    buffer_pool::process().share_from(std::size_t{64} << 10);
    configure(config_);
    sys_.emplace(config_);
    self_.emplace(*sys_);
    std::array<int, 2> sockets{};
    BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) == 0);
    near_.connect(*sys_, sockets[0], {shard_task, 12});
    far_.connect(*sys_, sockets[1], {worker_task, incarnation});
    context_ = make_job_context(
      example_job("digits_mlp", {"data.digits={train: 640 test: 20}", "data.batch=64"}),
      data_shape{{.dims = {1, 28, 28}, .label_width = 10}, 640});
    start_shard();
    start_synchronizer();
  }

  ~two_processes() {
    for (const auto& x :
         {caf::actor_cast<caf::actor>(shard_), caf::actor_cast<caf::actor>(reader_),
          caf::actor_cast<caf::actor>(listener_), caf::actor_cast<caf::actor>(synchronizer_)})
      caf::anon_send_exit(x, caf::exit_reason::user_shutdown);
    for (auto* x : {&near_, &far_}) {
      x->actors->clear();
      x->session->close(make_error(errc::link_lost), nullptr);
    }
  }

  /// Weights for the next step, the first of them in the worker's memory.
  acquired acquire_weights() {
    (*self_)->send(synchronizer_, acquire{});
    return await<acquired>();
  }

  /// A whole step. Returns its weights.
  weight_range step(bool pauses = false) {
    const auto x = acquire_weights();
    BOOST_TEST_REQUIRE(x.ranges.size() == 1U);
    const auto n = context_->parameters().size();
    auto gradient = payload::floats(n);
    std::ranges::fill(gradient.as_mutable_floats(), 1.0F);
    (*self_)->send(synchronizer_, contribute{x.step, 0, n, 64, std::move(gradient)});
    (*self_)->send(synchronizer_, commit{x.step, 64, 64, static_cast<double>(n), pauses});
    const auto outcome = await<committed>();
    BOOST_TEST(outcome.outcome == proto::APPLIED);
    return x.ranges[0];
  }

  /// As if the shard had sent it.
  void send_weights(std::uint64_t version, std::size_t elements) {
    proto::NewWeights header;
    header.set_view(current_view);
    header.set_version(version);
    caf::anon_send(caf::actor_cast<new_weights_taker>(synchronizer_), header,
                   payload::floats(elements));
  }

  int pulls() const { return *pulls_; }
  std::size_t elements() const { return versions_->elements(); }
  version_pool::snapshot newest() const { return versions_->newest(); }

private:
  void start_shard() {
    shard_options options;
    options.view.number = current_view;
    options.view.members.push_back({worker_task, incarnation, ""});
    options.where = context_->shard(0, 1);
    versions_ = make_versions(*context_, options.where, 1);
    if (in_step_) {
      options.policy =
        std::make_shared<sync_policy>(options.where, 0, std::vector<std::uint32_t>{0});
    } else {
      options.policy = std::make_shared<async_policy>(context_, options.where, 0, 1, nullptr);
      options.reader = sys_->spawn<deaf_reader>();
    }
    listener_ = options.reader;
    shard_ = sys_->spawn<parameter_shard>(context_, options, versions_);
    reader_ = sys_->spawn<counting_reader>(versions_, pulls_);
    step_listeners listeners;
    listeners.actors.push_back(caf::actor_cast<step_listener>(
      make_port(*sys_, far_.session, endpoint{worker_task, proto::SYNCHRONIZER})));
    caf::anon_send(shard_, listeners);
    far_.actors->add({shard_task, proto::SHARD}, caf::actor_cast<caf::strong_actor_ptr>(shard_));
    far_.actors->add({shard_task, proto::READER}, caf::actor_cast<caf::strong_actor_ptr>(reader_));
  }

  void start_synchronizer() {
    ps_synchronizer_options options;
    options.view = current_view;
    options.incarnation = incarnation;
    options.in_step = in_step_;
    options.shards.push_back(caf::actor_cast<shard_actor>(
      make_port(*sys_, near_.session, endpoint{shard_task, proto::SHARD})));
    options.readers.push_back(caf::actor_cast<reader_actor>(
      make_port(*sys_, near_.session, endpoint{shard_task, proto::READER})));
    synchronizer_ = sys_->spawn<ps_synchronizer>(context_, options,
                                                 caf::actor_cast<worker_actor>(caf::actor{*self_}));
    near_.actors->add({worker_task, proto::SYNCHRONIZER},
                      caf::actor_cast<caf::strong_actor_ptr>(synchronizer_));
  }

  template <class T>
  T await() {
    std::optional<T> result;
    for (int i = 0; i < 100'000 && !result; ++i) {
      near_.run();
      far_.run();
      (*self_)->receive([&](const T& x) { result = x; },
                        [&](const broken& x) { BOOST_FAIL(x.reason); }, caf::after(100us) >> [] {});
    }
    BOOST_REQUIRE(result);
    return *result;
  }

  bool in_step_;
  caf::actor_system_config config_;
  std::optional<caf::actor_system> sys_;
  std::optional<caf::scoped_actor> self_;
  /// The worker's, and the parameter server's.
  process near_;
  process far_;
  std::shared_ptr<const job_context> context_;
  std::shared_ptr<version_pool> versions_;
  std::shared_ptr<std::atomic<int>> pulls_ = std::make_shared<std::atomic<int>>(0);
  shard_shell shard_;
  reader_actor reader_;
  decision_listener listener_;
  caf::typed_actor<rpc<void, acquire>, rpc<void, contribute>, rpc<void, commit>> synchronizer_;
};

} // namespace

BOOST_AUTO_TEST_SUITE(sent_weights)

// Only the first step pulls. The weights are those of the newest version, in the shard's memory.
BOOST_AUTO_TEST_CASE(a_worker_on_this_host_need_not_pull) {
  for (const bool in_step : {false, true}) {
    two_processes here{in_step};
    for (std::uint64_t i = 0; i < 6; ++i) {
      const auto newest = here.newest();
      const auto weights = here.step();
      BOOST_TEST(weights.version.value == i);
      BOOST_TEST(newest.version == i);
      BOOST_TEST(same_bits(weights.data.as_floats(), newest.data.as_floats()));
      BOOST_TEST(!weights.data.storage()->writable());
      BOOST_TEST(here.pulls() == 1);
    }
  }
}

// Its next step may begin much later.
BOOST_AUTO_TEST_CASE(after_a_pause_an_asynchronous_worker_pulls) {
  two_processes here{false};
  here.step();
  here.step(true);
  BOOST_TEST(here.pulls() == 1);
  BOOST_TEST(here.step().version.value == 2U);
  BOOST_TEST(here.pulls() == 2);
  BOOST_TEST(here.step().version.value == 3U);
  BOOST_TEST(here.pulls() == 2);
}

BOOST_AUTO_TEST_CASE(weights_that_were_not_announced_are_not_used) {
  for (const bool in_step : {false, true}) {
    two_processes here{in_step};
    here.step();
    here.send_weights(1, here.elements() - 1);
    BOOST_TEST(here.step().version.value == 1U);
    BOOST_TEST(here.pulls() == 1);
    here.send_weights(99, here.elements());
    for (std::uint64_t i = 2; i < 5; ++i) {
      const auto newest = here.newest();
      const auto weights = here.step();
      BOOST_TEST(weights.version.value == i);
      BOOST_TEST(same_bits(weights.data.as_floats(), newest.data.as_floats()));
    }
    BOOST_TEST(here.pulls() == 4);
  }
}

BOOST_AUTO_TEST_SUITE_END()
