// If a worker and a parameter server are on one host, the server sends new weights without being
// asked: the worker reads them in shared memory. These tests run the two processes as one, with a
// socket between their halves.

#include "actors/link/link_session.hpp"
#include "actors/link/port.hpp"
#include "actors/link/stream_channel.hpp"
#include "actors/parameter_server/parameter_shard.hpp"
#include "actors/parameter_server/ps_synchronizer.hpp"
#include "actors/protocols/async_ps/async_policy.hpp"
#include "actors/protocols/sync_ps/sync_policy.hpp"
#include "messages/configure.hpp"
#include "messages/selection.hpp"
#include "tests/kernels/numeric.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <atomic>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <thread>

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t current_view = 1;
constexpr std::uint64_t incarnation = 11;
constexpr task_name worker_task{job_kind::worker, 0};
constexpr task_name shard_task{job_kind::ps, 0};

/// A reader (the actor of a shard that answers pulls). It returns the newest version and counts the
/// pulls.
class counting_reader : public reader_actor::base {
public:
  counting_reader(caf::actor_config& cfg, std::shared_ptr<version_pool> versions,
                  std::shared_ptr<std::atomic<int>> pulls)
    : reader_actor::base(cfg), versions_(std::move(versions)), pulls_(std::move(pulls)) {}

protected:
  behavior_type make_behavior() override {
    return {[this](const proto::Pull& x) -> caf::result<proto::Weights, payload> {
      ++*pulls_;
      auto newest = versions_->newest();
      proto::Weights header;
      header.set_count(versions_->elements());
      header.set_version(newest.version);
      if (x.has_rows()) {
        auto rows = payload::floats(selected(x.rows(), 0, versions_->elements()));
        gather(x.rows(), 0, newest.data.as_floats(), rows.as_mutable_floats());
        return {std::move(header), std::move(rows)};
      }
      return {std::move(header), std::move(newest.data)};
    }};
  }

private:
  std::shared_ptr<version_pool> versions_;
  std::shared_ptr<std::atomic<int>> pulls_;
};

/// Receives and ignores the shard's decisions about gradients. A real reader needs the decisions,
/// because some pulls must wait for them.
class deaf_reader : public decision_listener::base {
public:
  using decision_listener::base::base;

protected:
  behavior_type make_behavior() override {
    return {[](const gradient_decided&) {}};
  }
};

/// What one of the two simulated processes has.
struct simulated_process {
  std::shared_ptr<directory> actors = std::make_shared<directory>();
  std::shared_ptr<link_session> session;
  std::shared_ptr<stream_channel> channel;

  void connect(caf::actor_system& sys, int socket, bool lends, const link_peer& peer) {
    ::fcntl(socket, F_SETFL, O_NONBLOCK);
    stream_options how;
    how.lends = lends;
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

/// Two connected TCP sockets of this process.
std::array<int, 2> tcp_sockets() {
  const file_descriptor listener{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof where;
  auto* at = reinterpret_cast<sockaddr*>(&where);
  const int near = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool connected = ::bind(listener.get(), at, size) == 0 && ::listen(listener.get(), 1) == 0
    && ::getsockname(listener.get(), at, &size) == 0 && ::connect(near, at, size) == 0;
  BOOST_REQUIRE(connected);
  const int far = ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC);
  BOOST_REQUIRE(far >= 0);
  return {near, far};
}

std::array<int, 2> local_sockets() {
  std::array<int, 2> result{};
  BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, result.data()) == 0);
  return result;
}

struct manner {
  bool in_step = false;
  /// True: the processes share memory over a UNIX socket. False: they are connected by TCP.
  bool lends = true;
  /// True: the shard knows the worker's synchronizer, so it can send weights to it without a pull.
  bool listens = true;
  /// The compensation of staleness for asynchronous workers; empty if there is none. With
  /// compensation, the job has two workers, but only one trains.
  std::string compensation = {};
};

/// The two processes and their connection. The test itself plays the worker.
struct two_processes {
  explicit two_processes(manner how) : how_(std::move(how)) {
    buffer_pool::process().share_from(std::size_t{64} << 10);
    configure(config_);
    sys_.emplace(config_);
    self_.emplace(*sys_);
    const auto sockets = how_.lends ? local_sockets() : tcp_sockets();
    near_.connect(*sys_, sockets[0], how_.lends, {shard_task, 12});
    far_.connect(*sys_, sockets[1], how_.lends, {worker_task, incarnation});
    std::vector<std::string> job{"data.digits={train: 640 test: 20}", "data.batch=64"};
    if (!how_.compensation.empty())
      job.insert(job.end(),
                 {"protocol=ASYNC_PS", "optimizer={kind: SGD}",
                  "async_ps={compensation: " + how_.compensation + "}"});
    context_ = make_job_context(example_job("digits_mlp", job),
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

  /// Gets the weights for the next step of the worker.
  acquired acquire_weights(const batch_rows& rows) {
    (*self_)->send(synchronizer_, acquire{{}, 0, 0, rows});
    return await<acquired>();
  }

  /// Makes a whole step of the worker. Returns the weights from which it computed its gradient.
  weight_range step(bool pauses = false, const batch_rows& rows = nullptr, bool finite = true) {
    const auto x = acquire_weights(rows);
    BOOST_TEST_REQUIRE(x.ranges.size() == 1U);
    const auto n = context_->parameters().size();
    auto gradient = payload::floats(n);
    std::ranges::fill(gradient.as_mutable_floats(), 1.0F);
    (*self_)->send(synchronizer_, contribute{x.step, 0, n, 64, std::move(gradient)});
    const double squares =
      finite ? static_cast<double>(n) : std::numeric_limits<double>::infinity();
    (*self_)->send(synchronizer_, commit{x.step, 64, 64, squares, pauses});
    const auto outcome = await<committed>();
    BOOST_TEST(outcome.outcome == (finite ? proto::APPLIED : proto::QUARANTINED));
    return x.ranges[0];
  }

  /// A batch that uses one row of the largest table.
  batch_rows one_row() const {
    const auto all = context_->parameters().entries();
    const auto table =
      std::ranges::max_element(all, {}, [](auto& x) { return x.elements().size(); })->elements();
    proto::Selection result;
    auto& part = *result.add_tensor();
    part.set_begin(table.begin);
    part.set_end(table.end);
    part.set_width(1);
    part.add_row(0);
    BOOST_TEST_REQUIRE(selected(result, 0, elements()) < elements() / 2);
    return std::make_shared<const proto::Selection>(result);
  }

  /// Tells the shard that the worker is lost. The worker's first gradient must be applied, and no
  /// later one.
  void lose_the_worker() {
    proto::Commit last;
    last.set_view(current_view);
    last.mutable_id()->set_incarnation(incarnation);
    last.mutable_id()->set_sequence(1);
    last.set_samples(64);
    proto::Push push;
    push.set_view(current_view);
    *push.mutable_id() = last.id();
    push.set_samples(64);
    auto gradient = payload::floats(elements());
    std::ranges::fill(gradient.as_mutable_floats(), 1.0F);
    const auto fails = [](const caf::error& error) { BOOST_FAIL(explain(error)); };
    (*self_)
      ->request(shard_, caf::infinite, push, gradient)
      .receive([](const proto::Pushed& x) { BOOST_TEST(x.outcome() == proto::ACCEPTED); }, fails);
    proto::Fence fence;
    fence.set_view(current_view);
    fence.set_incarnation(incarnation);
    *fence.mutable_last() = last;
    (*self_)->request(shard_, caf::infinite, fence).receive([](const proto::Fenced&) {}, fails);
  }

  /// Waits until this number of pulls has arrived at the shard.
  void await_pulls(int count) {
    for (int i = 0; i < 100'000 && pulls() < count; ++i) {
      near_.run();
      far_.run();
      std::this_thread::sleep_for(100us);
    }
    BOOST_TEST(pulls() == count);
  }

  /// Sends weights to the worker as if the shard had sent them.
  void send_weights(std::uint64_t version, std::size_t elements) {
    proto::NewWeights header;
    header.set_view(current_view);
    header.set_version(version);
    caf::anon_send(caf::actor_cast<new_weights_taker>(synchronizer_), header,
                   payload::floats(elements));
  }

  int pulls() const { return *pulls_; }
  /// Bytes of weights that the shard has sent without a pull.
  std::uint64_t sent() const { return board_->status({}).bytes_sent(); }
  /// The weights at this version, if the shard has noted that the worker has read them.
  payload noted(std::uint64_t version) const { return pulled_->find(0, version); }
  std::size_t elements() const { return versions_->elements(); }
  version_pool::snapshot newest() const { return versions_->newest(); }

private:
  void start_shard() {
    shard_options options;
    options.view.number = current_view;
    options.view.members.push_back({worker_task, incarnation, ""});
    options.where = context_->shard(0, 1);
    options.board = board_;
    versions_ = make_versions(*context_, options.where, 2, 2);
    if (how_.in_step) {
      options.policy =
        std::make_shared<sync_policy>(options.where, 0, std::vector<std::uint32_t>{0});
    } else {
      if (!how_.compensation.empty())
        pulled_ = std::make_shared<pulled_versions>(std::set<std::uint32_t>{0});
      options.pulled = pulled_;
      options.policy =
        std::make_shared<async_policy>(context_, options.where, 0, pulled_ ? 2 : 1, pulled_);
      options.reader = sys_->spawn<deaf_reader>();
    }
    listener_ = options.reader;
    shard_ = sys_->spawn<parameter_shard>(context_, options, versions_);
    reader_ = sys_->spawn<counting_reader>(versions_, pulls_);
    step_listeners listeners;
    if (how_.listens)
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
    options.in_step = how_.in_step;
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

  manner how_;
  caf::actor_system_config config_;
  std::optional<caf::actor_system> sys_;
  std::optional<caf::scoped_actor> self_;
  /// The process of the worker (near) and of the parameter server (far).
  simulated_process near_;
  simulated_process far_;
  std::shared_ptr<const job_context> context_;
  std::shared_ptr<version_pool> versions_;
  std::shared_ptr<std::atomic<int>> pulls_ = std::make_shared<std::atomic<int>>(0);
  std::shared_ptr<activity_board> board_ = std::make_shared<activity_board>();
  std::shared_ptr<pulled_versions> pulled_;
  shard_shell shard_;
  reader_actor reader_;
  decision_listener listener_;
  caf::typed_actor<rpc<void, acquire>, rpc<void, contribute>, rpc<void, commit>> synchronizer_;
};

} // namespace

BOOST_AUTO_TEST_SUITE(sent_weights)

// Only the first step pulls weights. For later steps, the worker reads the newest version in the
// shard's memory.
BOOST_AUTO_TEST_CASE(a_worker_on_this_host_need_not_pull) {
  for (const bool in_step : {false, true}) {
    two_processes here{{.in_step = in_step}};
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

// A worker that pauses may begin its next step much later. So the shard sends it no weights, and it
// pulls again.
BOOST_AUTO_TEST_CASE(after_a_pause_an_asynchronous_worker_pulls) {
  two_processes here{{}};
  here.step();
  here.step(true);
  BOOST_TEST(here.pulls() == 1);
  BOOST_TEST(here.step().version.value == 2U);
  BOOST_TEST(here.pulls() == 2);
  BOOST_TEST(here.step().version.value == 3U);
  BOOST_TEST(here.pulls() == 2);
}

// The worker says that it pauses before the shard decides about its gradient. So the shard sends no
// weights.
BOOST_AUTO_TEST_CASE(nothing_is_sent_to_a_worker_that_pauses) {
  two_processes here{{}};
  here.step();
  const auto before = here.sent();
  BOOST_TEST(before == here.elements() * sizeof(float));
  here.step(true);
  BOOST_TEST(here.sent() == before);
}

BOOST_AUTO_TEST_CASE(nothing_is_sent_to_a_lost_worker) {
  two_processes here{{}};
  here.lose_the_worker();
  BOOST_TEST(here.newest().version == 1U);
  BOOST_TEST(here.sent() == 0U);
}

// Over TCP, memory is not shared, and the shard would have to copy all weights. So the worker
// pulls.
BOOST_AUTO_TEST_CASE(over_tcp_a_worker_on_this_host_pulls) {
  for (const bool in_step : {false, true}) {
    two_processes here{{.in_step = in_step, .lends = false}};
    for (std::uint64_t i = 0; i < 4; ++i)
      here.step();
    BOOST_TEST(here.newest().version == 4U);
    BOOST_TEST(here.pulls() >= 4);
    BOOST_TEST(here.sent() == 0U);
  }
}

BOOST_AUTO_TEST_CASE(a_worker_that_reads_rows_pulls_rows) {
  for (const bool in_step : {false, true}) {
    two_processes here{{.in_step = in_step}};
    for (int i = 0; i < 4; ++i) {
      here.step(false, here.one_row());
      BOOST_TEST(here.pulls() == 1 + i);
    }
    BOOST_TEST(here.sent() == 0U);
    // The next batches read all weights. The first of them pulls, and the second uses weights that
    // the shard has sent.
    BOOST_TEST(here.step().version.value == 4U);
    BOOST_TEST(here.pulls() == 5);
    BOOST_TEST(here.step().version.value == 5U);
    BOOST_TEST(here.pulls() == 5);
  }
}

BOOST_AUTO_TEST_CASE(after_a_quarantine_an_asynchronous_worker_need_not_pull) {
  two_processes here{{}};
  for (std::uint64_t i = 0; i < 4; ++i) {
    BOOST_TEST(here.step(false, nullptr, i % 2 == 0).version.value == (i + 1) / 2);
    BOOST_TEST(here.pulls() == 1);
  }
}

// The answer to the worker's commit says that no weights were sent. So the worker pulls at once,
// and does not wait until its next step begins.
BOOST_AUTO_TEST_CASE(without_sent_weights_a_worker_pulls_at_once) {
  two_processes here{{.listens = false}};
  for (int i = 0; i < 4; ++i) {
    BOOST_TEST(here.step().version.value == static_cast<std::uint64_t>(i));
    here.await_pulls(i + 2);
  }
  BOOST_TEST(here.sent() == 0U);
}

// A compensation of staleness compares the newest weights with those that the gradient was computed
// from. So the shard must note sent weights as read by the worker.
BOOST_AUTO_TEST_CASE(sent_weights_count_as_read) {
  for (const std::string compensation : {"GAP_AWARE", "DC"}) {
    two_processes here{{.compensation = compensation}};
    for (std::uint64_t i = 0; i < 4; ++i) {
      here.step();
      BOOST_TEST(here.pulls() == 1);
      const auto newest = here.newest();
      BOOST_TEST(newest.version == i + 1);
      const auto noted = here.noted(i + 1);
      BOOST_TEST_REQUIRE(noted.size() == newest.data.size());
      BOOST_TEST(same_bits(noted.as_floats(), newest.data.as_floats()));
    }
  }
}

BOOST_AUTO_TEST_CASE(weights_that_were_not_announced_are_not_used) {
  for (const bool in_step : {false, true}) {
    two_processes here{{.in_step = in_step}};
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
    // An asynchronous worker pulls again as soon as its commit is answered.
    here.await_pulls(in_step ? 4 : 5);
  }
}

BOOST_AUTO_TEST_SUITE_END()
