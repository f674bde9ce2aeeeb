#include "apps/troupe/session.hpp"

#include "actors/cluster/address.hpp"
#include "actors/cluster/basp_transport.hpp"
#include "actors/cluster/probe.hpp"
#include "actors/link/channel_host.hpp"
#include "actors/link/sockets.hpp"
#include "apps/troupe/console.hpp"
#include "apps/troupe/stop_signals.hpp"
#include "kernels/error.hpp"
#include "messages/configure.hpp"

#include <caf/io/all.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <future>
#include <latch>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include <sys/resource.h>

namespace troupe {

namespace {

/// How long an actor system may take to end after its node has ended. If it takes longer, there is
/// a bug, and the process ends by force.
constexpr std::chrono::milliseconds shutdown_deadline{1'500};

/// Signals within this time count as one.
constexpr std::chrono::milliseconds one_signal{1'000};

/// An estimate of the largest number of threads that a process starts. The first part is for the
/// actor system, the console and connections. The second part is for each task.
constexpr std::size_t threads_of_process = 16;
constexpr std::size_t threads_of_task = 4;

/// Waits at most 100 ms for a stop signal. Returns its name, or an empty text if no signal came.
std::string next_signal() {
  const auto signals = stop_signals();
  const timespec limit{0, 100'000'000};
  const auto number = ::sigtimedwait(&signals, nullptr, &limit);
  return number == SIGINT ? "SIGINT" : number == SIGTERM ? "SIGTERM" : "";
}

/// Ends the process by force if this object is not destroyed in time.
class watchdog {
public:
  explicit watchdog(int code)
    : thread_([this, code] {
        if (done_.get_future().wait_for(shutdown_deadline) == std::future_status::timeout)
          std::_Exit(code);
      }) {}
  ~watchdog() {
    done_.set_value();
    thread_.join();
  }
  watchdog(const watchdog&) = delete;
  watchdog& operator=(const watchdog&) = delete;

private:
  std::promise<void> done_;
  std::thread thread_;
};

bool is_loopback(const std::string& host) {
  in_addr address{};
  if (::inet_pton(AF_INET, host.c_str(), &address) == 1)
    return (ntohl(address.s_addr) >> 24) == IN_LOOPBACKNET;
  return host == "localhost" || host == "::1";
}

struct listen_address {
  std::string host;
  std::uint16_t port = 0;
};

listen_address address_of(const session_options& options) {
  listen_address result;
  if (!split_address(options.listen, result.host, result.port))
    throw input_error{"'" + options.listen + "' is not host:port"};
  if (!is_loopback(result.host) && !options.insecure)
    throw input_error{
      options.listen
      + " is not on loopback, and nodes neither encrypt nor authenticate what they send: "
        "pass --insecure if everyone on that network may read and steer this run"};
  return result;
}

/// Makes the node listen. Returns the address at which other nodes reach it.
std::string listen(caf::actor_system& sys, const caf::strong_actor_ptr& node,
                   const session_options& options) {
  auto [host, port] = address_of(options);
  try {
    port = basp_transport::listen(sys, node, is_loopback(host) ? host : "", port);
  } catch (const input_error& error) {
    throw input_error{options.name.empty() ? error.what() : options.name + ' ' + error.what()};
  }
  return host + ':' + std::to_string(port);
}

/// Raises the limit of open files to the largest allowed value, because shared memory needs many
/// file descriptors.
void allow_many_files() {
  rlimit x{};
  if (::getrlimit(RLIMIT_NOFILE, &x) == 0) {
    x.rlim_cur = x.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &x);
  }
}

/// The options and the listening socket for channels. A channel is a separate connection for the
/// messages of a link (ChannelOffer in wire.proto). The socket is opened before the actor system
/// begins, because the node's first message contains its port.
struct channel_plan {
  channel_host_options how;
  /// Empty if links do not use channels.
  file_descriptor listener;
};

channel_plan plan_channels(const session_options& options) {
  channel_plan result;
  if (options.listen.empty() || options.transport == "basp")
    return result;
  const auto host = address_of(options).host;
  allow_many_files();
  auto& how = result.how;
  // If `host` is not a loopback address, listens on all addresses, because other hosts may reach
  // this host at an address that it does not know.
  how.address = is_loopback(host) ? host : any_address;
  how.port = options.channel_port;
  how.local = options.transport == "auto";
  how.max_bytes = options.node.links.transfer.max_bytes;
  how.reads_beside_peers =
    std::ranges::all_of(options.node.tasks, [](auto& task) { return task.job == job_kind::ps; });
  try {
    result.listener = listen_on(how.address, how.port);
  } catch (const std::system_error& error) {
    throw input_error{
      std::string{error.what()}
      + ": choose another --channel-port, or use --transport=basp, which needs none"};
  }
  return result;
}

/// Null if links do not use channels.
std::shared_ptr<channel_host> make_channels(caf::actor_system& sys, channel_plan plan) {
  if (!plan.listener)
    return nullptr;
  return std::make_shared<channel_host>(sys, std::move(plan.how), std::move(plan.listener));
}

/// Stops the channels when it is destroyed. They must stop before the actor system ends.
struct channels_end {
  std::shared_ptr<channel_host> channels;

  ~channels_end() {
    if (channels)
      channels->stop();
  }
};

run_summary wait_for_end(std::future<run_summary> end, const session_options& options,
                         const run_observer& observer, const std::atomic<bool>& training,
                         const std::function<void(const std::string&)>& stop) {
  using time_point = std::chrono::steady_clock::time_point;
  std::optional<time_point> stopping;
  while (end.wait_for(std::chrono::seconds{0}) != std::future_status::ready) {
    if (options.hear)
      for (auto& line : options.hear())
        caf::anon_send(observer, run_notice{line});
    auto reason = std::optional{next_signal()};
    const auto now = std::chrono::steady_clock::now();
    // A second signal ends the process at once. Programs such as `timeout` send a signal twice, to
    // the process and to its group. This counts as one signal.
    if (!reason->empty() && stopping && now - *stopping > one_signal)
      std::_Exit(exit_failed);
    if (reason->empty() && options.watch && !stopping && !training)
      reason = options.watch();
    if (reason && !reason->empty() && !stopping) {
      stopping = now;
      stop(*reason);
    }
  }
  return end.get();
}

/// Throws std::runtime_error if this process cannot run this number of threads at once. Without
/// this check, the process could fail later: an actor that gets no thread ends the process, or it
/// does not start and nobody notices.
void require_threads(std::size_t count) {
  std::latch all_started{1};
  std::vector<std::jthread> threads;
  std::string problem;
  try {
    while (threads.size() < count)
      threads.emplace_back([&] { all_started.wait(); });
  } catch (const std::exception& error) {
    problem = error.what();
  }
  all_started.count_down();
  if (!problem.empty())
    throw std::runtime_error(
      fmt::format("this process needs {} threads and could start only {}: {}; raise its limits of "
                  "threads (`ulimit -u`; pids.max of a container) or of memory (`ulimit -v`)",
                  count, threads.size(), problem));
}

} // namespace

run_summary run_session(session_options options) {
  require_threads(threads_of_process + threads_of_task * options.node.tasks.size());
  caf::actor_system_config cfg;
  configure(cfg);
  tune(cfg);
  const bool networked = !options.listen.empty();
  auto plan = plan_channels(options);
  if (networked) {
    cfg.load<caf::io::middleman>();
    cfg.set(
      "middleman.app-identifiers",
      std::vector<std::string>{"generic-caf-app", identity_of(options.node.tasks, plan.how.port)});
  }
  std::optional<watchdog> guard;
  // `ended` and `training` live longer than the actor system, because its actors write to them.
  std::promise<run_summary> ended;
  std::atomic<bool> training = false;
  caf::actor_system sys{cfg};
  const channels_end sockets{make_channels(sys, std::move(plan))};
  if (networked) {
    options.node.net = std::make_shared<basp_transport>(sys);
    options.node.links.channels = sockets.channels;
    options.node.spawner = spawner{spawner::kind::threads, sockets.channels};
  }
  auto observer = sys.spawn<console, caf::detached>(&training);
  options.node.observer = observer;
  options.node.on_end = [&](const run_summary& x) { ended.set_value(x); };
  auto node = sys.spawn<cluster_node>(std::move(options.node));
  const auto stop_all = [&] {
    caf::anon_send(node, crash_node{});
    // An exit message would end the console before it shows all output.
    caf::anon_send(observer, close_console{});
  };
  try {
    std::string address;
    if (networked)
      address = listen(sys, caf::actor_cast<caf::strong_actor_ptr>(node), options);
    if (options.listening)
      options.listening(address);
    caf::anon_send(node, begin_node{address});
  } catch (...) {
    stop_all();
    throw;
  }
  auto result =
    wait_for_end(ended.get_future(), options, observer, training,
                 [&](const std::string& reason) { caf::anon_send(node, stop_run{reason}); });
  if (options.ended)
    options.ended(result);
  guard.emplace(result.failure.empty() ? exit_done : exit_failed);
  stop_all();
  return result;
}

} // namespace troupe
