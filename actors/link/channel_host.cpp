#include "actors/link/channel_host.hpp"

#include "actors/boot_id.hpp"
#include "actors/link/link_secret.hpp"
#include "actors/link/sockets.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <ranges>
#include <set>
#include <system_error>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

namespace troupe {

namespace {

/// Largest number of connections whose peer has not identified itself. If there is one more, the
/// oldest connection is closed.
constexpr std::size_t max_strangers = 64;

/// Payloads of at least this many bytes are lent to a peer on this host (stream_options::lends).
/// Smaller payloads are sent, because lending would not cost less.
constexpr std::size_t share_from = std::size_t{64} << 10;

/// Acknowledgements, and reports that lent memory is released, are sent with the next message. They
/// wait for this message for at most `tick`, and are then sent alone. If only a few reports of
/// released memory wait, they wait for at most `long_tick`.
constexpr std::chrono::nanoseconds tick{1'000'000};
constexpr std::chrono::nanoseconds long_tick{5'000'000};

void ring(int bell) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(bell, &one, sizeof one);
}

void clear(int bell) {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto n = ::read(bell, &count, sizeof count);
}

} // namespace

/// Runs a task. If the task fails for lack of memory or descriptors, this thread continues, so that
/// the other connections survive.
template <class Task>
void guarded(const Task& task) {
  try {
    task();
  } catch (const std::exception& error) {
    spdlog::error("a connection is lost: {}", error.what());
  }
}

/// A timer that wakes the reading thread. If it is set while it is already running, only an earlier
/// time has an effect. It may outlive the channel_host, because channels use it.
class channel_host::timer {
public:
  timer() : file_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
    if (!file_)
      fail_with("timerfd_create");
  }

  int file() const noexcept { return file_.get(); }

  void set(std::chrono::nanoseconds after) noexcept {
    const auto at = std::chrono::steady_clock::now() + after;
    auto due = due_.load();
    do {
      if (due <= at)
        return;
    } while (!due_.compare_exchange_weak(due, at));
    itimerspec when{};
    when.it_value.tv_nsec = after.count();
    ::timerfd_settime(file_.get(), 0, &when, nullptr);
  }

  void went_off() noexcept {
    clear(file_.get());
    due_ = never;
  }

private:
  static constexpr auto never = std::chrono::steady_clock::time_point::max();

  file_descriptor file_;
  std::atomic<std::chrono::steady_clock::time_point> due_ = never;
};

/// The sockets and other files for whose events the reading thread waits. This object may outlive
/// the channel_host, because channels use it.
class channel_host::watched_sockets {
public:
  watched_sockets() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_)
      fail_with("epoll");
  }

  int epoll() const noexcept { return epoll_.get(); }

  bool add(int file, std::uint32_t events) { return control(EPOLL_CTL_ADD, file, events); }

  /// Begins to watch the socket of a channel. The reading thread then wakes when the socket can be
  /// written, because records may already wait to be written. If `beside` is false, the reading
  /// thread also wakes when data arrives. If `beside` is true, another thread reads the socket.
  bool add_channel(int socket, bool beside) {
    if (beside) {
      const std::lock_guard guard{mutex_};
      beside_.insert(socket);
    }
    return add(socket, events_of(socket, true));
  }

  void forget(int file) {
    const std::lock_guard guard{mutex_};
    beside_.erase(file);
    control(EPOLL_CTL_DEL, file, 0);
  }

  /// Sets whether the reading thread wakes when the socket can be written. Pass true only while
  /// records wait to be written: with true, a Unix socket wakes this process whenever the peer has
  /// read something. Does nothing before add_channel().
  void await_room(int socket, bool waits) {
    control(EPOLL_CTL_MOD, socket, events_of(socket, waits));
  }

private:
  std::uint32_t events_of(int socket, bool room) {
    const std::lock_guard guard{mutex_};
    std::uint32_t result = EPOLLET;
    if (!beside_.contains(socket))
      result |= EPOLLIN;
    if (room)
      result |= EPOLLOUT;
    return result;
  }

  bool control(int operation, int file, std::uint32_t events) {
    epoll_event x{};
    x.events = events;
    x.data.fd = file;
    return ::epoll_ctl(epoll_.get(), operation, file, &x) == 0;
  }

  file_descriptor epoll_;
  std::mutex mutex_;
  std::set<int> beside_;
};

channel_host::channel_host(caf::actor_system& sys, channel_host_options options,
                           file_descriptor listener)
  : sys_(sys), options_(std::move(options)), remote_(std::move(listener)),
    watched_(std::make_shared<watched_sockets>()), bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
    spare_(::open("/dev/null", O_RDONLY | O_CLOEXEC)), timer_(std::make_shared<timer>()),
    turn_(std::make_shared<reader_turn>()) {
  if (!bell_)
    fail_with("eventfd");
  if (options_.local) {
    offer_.set_host(boot_id());
    offer_.set_socket("troupe-" + random_text());
    local_ = listen_locally(offer_.socket());
    watch(local_.get(), EPOLLIN, [this](auto) { on_connection(local_.get(), true); });
    buffer_pool::process().share_from(share_from);
  }
  if (!options_.address.empty()) {
    auto port = options_.port;
    if (!remote_)
      remote_ = listen_on(options_.address, port);
    offer_.set_port(port);
    watch(remote_.get(), EPOLLIN, [this](auto) { on_connection(remote_.get(), false); });
  }
  watch(bell_.get(), EPOLLIN, [this](auto) { run_tasks(); });
  watch(timer_->file(), EPOLLIN, [this](auto) { on_tick(); });
  thread_ = std::thread{[this] { run(); }};
}

channel_host::~channel_host() {
  stop();
}

void channel_host::stop() {
  turn_->close([this] { interrupt(); });
  {
    const std::lock_guard guard{mutex_};
    stopping_ = true;
    ring(bell_.get());
  }
  // While `thread_` writes the last messages, it may start background threads that restore broken
  // connections. So end `thread_` first, and then the background threads.
  if (thread_.joinable())
    thread_.join();
  {
    std::unique_lock guard{mutex_};
    stopped_ = true;
    changed_.notify_all();
    changed_.wait(guard, [this] { return background_ == 0; });
  }
  end_readers();
  local_ = {};
  remote_ = {};
  std::vector<std::function<void()>> tasks;
  std::map<std::string, on_channel> expected;
  {
    const std::lock_guard guard{mutex_};
    tasks.swap(tasks_);
    expected.swap(expected_);
  }
  if (options_.outlived)
    for (auto& x : channels_)
      x.second->keep_loans();
  strangers_.clear();
  handlers_.clear();
  channels_.clear();
  routes_.clear();
}

void channel_host::end_readers() {
  decltype(readers_) readers;
  decltype(ended_readers_) ended;
  {
    const std::lock_guard guard{handling_};
    readers.swap(readers_);
    ended.swap(ended_readers_);
  }
  // Here, the destructors of the readers run and wait for the readers' threads. These threads may
  // need the mutex, so it is not locked here.
}

// -- the thread ---------------------------------------------------------------------------------

void channel_host::run() {
  bool stops = false;
  time_point last{};
  for (;;) {
    turn_->wait();
    // Check stopping_ in each round. The bell that stop() rings is not enough, because a handler
    // may already have cleared it.
    if (!stops) {
      const std::lock_guard guard{mutex_};
      stops = stopping_;
      last = std::chrono::steady_clock::now() + options_.last_words;
    }
    // Gives peers time to receive the last messages.
    if (stops && (std::chrono::steady_clock::now() >= last || all_idle()))
      return;
    handle_events(stops ? 10 : -1);
  }
}

bool channel_host::handle_events(int timeout) {
  std::array<epoll_event, 32> events;
  const int n =
    ::epoll_wait(watched_->epoll(), events.data(), static_cast<int>(events.size()), timeout);
  const std::lock_guard guard{handling_};
  for (int i = 0; i < n; ++i)
    // The handler of an earlier event may have closed the file of this event. Then no handler is
    // left for this file.
    if (const auto x = handlers_.find(events[i].data.fd); x != handlers_.end())
      guarded([&] { (*std::shared_ptr{x->second})(events[i].events); });
  return n > 0;
}

bool channel_host::read_until(function_ref<bool()> done, std::chrono::nanoseconds patience) {
  if (done())
    return true;
  if (!turn_->take([this] { interrupt(); }))
    return done();
  auto last = std::chrono::steady_clock::now();
  bool is_done = done();
  while (!is_done && std::chrono::steady_clock::now() - last < patience) {
    if (handle_events(0))
      last = std::chrono::steady_clock::now();
    else
      std::this_thread::yield(); // Other threads may need this core, even the thread that answers.
    is_done = done();
  }
  turn_->give_back(!is_done);
  return is_done;
}

void channel_host::run_until(function_ref<bool()> done) {
  if (done() || !turn_->take([this] { interrupt(); }))
    return;
  while (!done() && !turn_->closed())
    handle_events(-1);
  turn_->give_back(false);
}

void channel_host::interrupt() {
  ring(bell_.get());
}

// True if no channel has work left. A channel whose socket broke is only in routes_, so routes_ is
// also searched.
bool channel_host::all_idle() {
  const std::lock_guard guard{handling_};
  const auto idle = [this](auto& x) { return x->idle(options_.outlived); };
  return std::ranges::all_of(channels_ | std::views::values, idle)
    && std::ranges::all_of(routes_ | std::views::keys, idle);
}

void channel_host::post(std::function<void()> task) {
  {
    const std::lock_guard guard{mutex_};
    if (stopped_)
      return;
    tasks_.push_back(std::move(task));
  }
  ring(bell_.get());
  turn_->recall();
}

void channel_host::run_tasks() {
  clear(bell_.get());
  std::vector<std::function<void()>> tasks;
  {
    const std::lock_guard guard{mutex_};
    tasks.swap(tasks_);
  }
  for (auto& x : tasks)
    guarded(x);
}

void channel_host::watch(int file, std::uint32_t events, handler then) {
  handlers_[file] = std::make_shared<handler>(std::move(then));
  if (!watched_->add(file, events)) {
    handlers_.erase(file);
    fail_with("a connection cannot be watched");
  }
}

void channel_host::forget(int file) {
  watched_->forget(file);
  handlers_.erase(file);
}

// -- connections --------------------------------------------------------------------------------

proto::ChannelOffer channel_host::offer(on_channel then) {
  auto result = offer_;
  result.set_token(random_text());
  const std::lock_guard guard{mutex_};
  if (!stopping_)
    expected_.emplace(result.token(), std::move(then));
  return result;
}

void channel_host::withdraw(const proto::ChannelOffer& offer) {
  const std::lock_guard guard{mutex_};
  expected_.erase(offer.token());
}

void channel_host::connect(const proto::ChannelOffer& offer, const std::string& address,
                           on_channel then) {
  if (!offer.host().empty() && offer.host() == offer_.host())
    if (auto socket = connect_locally(offer.socket())) {
      connected(std::move(socket), {offer.token(), {}, 0, true}, then);
      return;
    }
  if (offer.port() == 0 || address.empty()) {
    post([then] { then(nullptr, "the peer can only be reached through the first connection"); });
    return;
  }
  const auto reach = [this, offer, address, then] {
    std::string problem;
    const auto port = static_cast<std::uint16_t>(offer.port());
    bool refused = false;
    auto socket = connect_to(address, port, options_.connect_timeout, problem, refused);
    if (!socket) {
      post([then, problem] { then(nullptr, problem); });
      return;
    }
    const auto ip = peer_of(socket.get());
    connected(std::move(socket), {offer.token(), ip.empty() ? address : ip, port, true}, then);
  };
  try {
    in_background(reach);
  } catch (const std::system_error& error) { // There are too many threads.
    post([then, problem = std::string{error.what()}] { then(nullptr, problem); });
  }
}

void channel_host::connected(file_descriptor socket, const route& where, const on_channel& then) {
  const bool same_host = where.address.empty();
  auto channel = make_channel(std::move(socket), same_host);
  channel->greet(where.token, static_cast<std::uint16_t>(offer_.port()));
  post([this, channel, where, same_host, then] {
    if (!same_host)
      routes_[channel] = where;
    serve(channel);
    attend(channel, [&] { then(channel, {}); });
  });
}

channel_host::channel_ptr channel_host::make_channel(file_descriptor socket, bool same_host) {
  stream_options how;
  how.lends = same_host;
  how.resumes = !same_host;
  how.polls = true;
  how.limits.max_bytes = options_.max_bytes;
  how.limits.grace = options_.grace;
  how.wake = [timer = timer_] { timer->set(tick); };
  how.wake_later = [timer = timer_] { timer->set(long_tick); };
  how.full = [turn = turn_, watched = watched_](int full) {
    watched->await_room(full, true);
    turn->recall();
  };
  how.empty = [watched = watched_](int empty) { watched->await_room(empty, false); };
  return std::make_shared<stream_channel>(sys_, std::move(socket), std::move(how));
}

void channel_host::on_connection(int listener, bool same_host) {
  std::string peer;
  auto socket = accept_on(listener, peer);
  if (!socket) {
    // This process cannot open more files. The connection would wait forever, so close the spare
    // descriptor, accept the connection, and close it.
    if (errno == EMFILE || errno == ENFILE) {
      spdlog::warn("a connection was refused: this process cannot open more files (`ulimit -n`)");
      spare_ = {};
      accept_on(listener, peer);
      spare_ = file_descriptor{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
    }
    return;
  }
  auto channel = make_channel(std::move(socket), same_host);
  strangers_.push_back(channel);
  watch(channel->socket(), EPOLLIN, [this, channel, peer](auto) { on_greeting(channel, peer); });
  if (strangers_.size() > max_strangers) {
    forget(strangers_.front()->socket());
    strangers_.pop_front();
  }
}

void channel_host::on_greeting(const channel_ptr& stranger, const std::string& address) {
  stranger->on_readable();
  const auto greeting = stranger->greeting();
  if (greeting.token().empty() && !stranger->over() && !stranger->cut())
    return;
  // Copy `stranger` and `address`, because forget() removes the handler that owns them.
  const auto channel = stranger;
  const auto where = address;
  std::erase(strangers_, channel);
  forget(channel->socket());
  on_channel then;
  {
    const std::lock_guard guard{mutex_};
    if (auto x = expected_.extract(greeting.token()))
      then = std::move(x.mapped());
  }
  const auto known = std::ranges::find_if(routes_, [&](auto& x) {
    return !greeting.token().empty() && !x.second.ours && x.second.token == greeting.token();
  });
  if (then) {
    if (!where.empty()) {
      // Always answer the greeting. This may be the second connection of the peer: the first one
      // may have broken before its greeting was read here. The peer waits for an answer only on a
      // second connection, but this side cannot tell the two apart.
      channel->greet(greeting.token(), 0);
      ask_whether_it_is_reachable(
        channel, {greeting.token(), where, static_cast<std::uint16_t>(greeting.port())});
    }
    serve(channel);
    attend(channel, [&] { then(channel, {}); });
  } else if (known != routes_.end()) {
    const auto mine = known->first;
    if (mine->socket() >= 0)
      drop(mine); // The old connection broke, but this side has not noticed yet.
    resume(mine, channel->release_socket(), &greeting);
  } else {
    spdlog::debug("a connection without a valid token was closed");
    channel->end(); // A peer that tries to restore a connection then gives up.
  }
}

void channel_host::serve(const channel_ptr& channel) {
  const auto socket = channel->socket();
  channels_[socket] = channel;
  handlers_[socket] = std::make_shared<handler>(
    [this, channel](std::uint32_t events) { on_events(channel, events); });
  if (!watched_->add_channel(socket, read_beside(channel))) {
    const auto error = errno;
    drop(channel);
    errno = error;
    fail_with("a connection cannot be watched");
  }
}

/// Starts a thread that reads the messages of a peer on the peer's processor. Returns false if
/// there is no such thread; the usual thread then reads the messages.
bool channel_host::read_beside(const channel_ptr& channel) {
  if (!options_.reads_beside_peers || !channel->lends()
      || readers_.size() >= std::thread::hardware_concurrency())
    return false;
  const auto socket = channel->socket();
  const auto processor = processor_of_peer(socket);
  if (!processor)
    return false;
  const auto on_data = [this, channel, socket] {
    const std::lock_guard guard{handling_};
    // While this thread waited for the mutex, the socket may have been closed.
    if (const auto x = channels_.find(socket); x != channels_.end() && x->second == channel)
      guarded([&] { on_events(channel, EPOLLIN); });
  };
  ended_readers_.reserve(ended_readers_.size() + readers_.size() + 1); // drop() must not fail.
  auto& reader = readers_[socket];
  try {
    reader = std::make_unique<peer_reader>(socket, *processor, on_data);
    return true;
  } catch (const std::system_error& error) {
    readers_.erase(socket);
    spdlog::debug("no thread reads beside a peer: {}", error.what());
    return false;
  }
}

void channel_host::on_events(const channel_ptr& channel, std::uint32_t events) {
  attend(channel, [&] { exchange(channel, events); });
}

// Runs a task that handles events of a channel. If the task fails in the middle of a record, for
// example for lack of memory, the channel cannot continue, and is given up.
void channel_host::attend(const channel_ptr& channel, const std::function<void()>& task) {
  const auto keep = channel; // The handler that holds the reference may be removed.
  try {
    task();
  } catch (const std::exception& error) {
    spdlog::error("a connection is lost: {}", error.what());
    keep->keep_loans();
    routes_.erase(keep);
    drop(keep);
    keep->give_up(error.what());
  }
}

void channel_host::exchange(const channel_ptr& channel, std::uint32_t events) {
  if ((events & EPOLLOUT) != 0)
    channel->on_writable();
  if ((events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0 && channel->on_readable())
    // More data may be there, but other channels have their turn first. Epoll reports only new
    // data, so this posted task reads the rest later.
    post([this, channel] {
      if (channels_.contains(channel->socket()))
        on_events(channel, EPOLLIN);
    });
  if (channel->cut()) {
    on_cut(channel);
  } else if (channel->finished()) {
    routes_.erase(channel);
    drop(channel);
  } else if (const auto x = routes_.find(channel); x != routes_.end() && channel->works()) {
    x->second.give_up = {};
    x->second.restored = false;
  }
}

void channel_host::drop(const channel_ptr& channel) {
  if (auto reader = readers_.extract(channel->socket())) {
    reader.mapped()->end();
    ended_readers_.push_back(std::move(reader.mapped()));
  }
  channels_.erase(channel->socket());
  forget(channel->socket());
  channel->release_socket();
}

void channel_host::on_tick() {
  timer_->went_off();
  std::erase_if(ended_readers_, [](auto& x) { return x->finished(); });
  std::vector<channel_ptr> finished;
  for (auto& [file, x] : channels_) {
    x->on_tick();
    if (x->finished())
      finished.push_back(x);
  }
  for (auto& x : finished) {
    routes_.erase(x);
    drop(x);
  }
}

} // namespace troupe
