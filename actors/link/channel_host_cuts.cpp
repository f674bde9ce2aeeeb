// A part of channel_host: restores broken connections in background threads.

#include "actors/link/channel_host.hpp"
#include "actors/link/sockets.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <random>
#include <system_error>

namespace troupe {

namespace {

/// Longest pause in milliseconds between attempts to connect to a port that refuses connections.
constexpr int refusal_pause = 100;

constexpr auto nothing_arrives = "it accepts connections, but data does not arrive there; perhaps "
                                 "the network loses large packets (check its MTU)";

} // namespace

void channel_host::in_background(std::function<void()> task) {
  const std::lock_guard guard{mutex_};
  if (stopped_)
    return;
  std::thread{[this, task = std::move(task)]() mutable {
    task();
    task = nullptr; // Objects that the task holds must not outlive stop().
    const std::lock_guard guard{mutex_};
    --background_;
    changed_.notify_all();
  }}.detach();
  ++background_;
}

// Waits for `time`, and then returns true. Returns false early if the channel's connection works
// again, if it has broken again since break number `cuts`, or if the channel_host has stopped.
bool channel_host::pause(std::chrono::milliseconds time, const channel_ptr& channel,
                         std::uint64_t cuts) {
  std::unique_lock guard{mutex_};
  return !changed_.wait_for(guard, time,
                            [&] { return stopped_ || !channel->cut() || channel->cuts() != cuts; });
}

void channel_host::on_cut(const channel_ptr& channel) {
  const auto keep = channel; // A copy, because the handler that holds this reference is removed.
  drop(keep);
  auto& where = routes_[keep];
  const auto now = std::chrono::steady_clock::now();
  spdlog::debug("the connection to {} broke", where.address);
  // If `give_up` is already set, leave it: the connection was restored, but broke again before
  // anything arrived. The time limit then still begins at the first break.
  if (where.give_up == time_point{})
    where.give_up = now + keep->grace();
  else
    where.restored = true;
  if (now >= where.give_up) {
    give_up(keep, keep->cuts(), nothing_arrives);
    return;
  }
  try {
    in_background([this, keep, where, cuts = keep->cuts()] {
      if (where.ours)
        connect_again(keep, where, cuts);
      else
        ask_whether_it_runs(keep, where, cuts);
    });
  } catch (const std::system_error& error) {
    give_up(keep, keep->cuts(), error.what());
  }
}

// Connects to the peer again; runs in the background. It waits longer before each attempt. The
// waits are random, so that the many peers of one host do not all connect at the same time.
void channel_host::connect_again(const channel_ptr& channel, const route& where,
                                 std::uint64_t cuts) {
  std::minstd_rand random{static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(&where))};
  std::string problem = where.restored ? nothing_arrives : "it did not answer";
  constexpr auto never = time_point::max();
  auto refused_since = never;
  for (int wait = 20; pause(std::chrono::milliseconds{wait / 2 + random() % wait}, channel, cuts);
       wait = std::min(2 * wait, refused_since == never ? 500 : refusal_pause)) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      where.give_up - std::chrono::steady_clock::now());
    if (left.count() <= 0)
      break;
    bool refused = false;
    auto socket = connect_to(where.address, where.port, std::min(left, options_.connect_timeout),
                             problem, refused);
    if (socket) {
      post([this, channel, socket = std::make_shared<file_descriptor>(std::move(socket))] {
        resume(channel, std::move(*socket), nullptr);
      });
      return;
    }
    const auto now = std::chrono::steady_clock::now();
    refused_since = refused ? std::min(refused_since, now) : never;
    if (refused && now - refused_since >= options_.refused_for) {
      problem = "its process has ended";
      break;
    }
  }
  post([this, channel, cuts, problem] { give_up(channel, cuts, problem); });
}

// Tests in the background whether the peer's port accepts connections. If it does, a later refusal
// shows that the peer's process has ended. If it does not, a firewall may be the reason for a
// refusal.
void channel_host::ask_whether_it_is_reachable(const channel_ptr& channel, const route& where) {
  routes_[channel] = where;
  if (where.port == 0)
    return;
  const auto ask = [this, channel, where] {
    std::string problem;
    bool refused = false;
    if (connect_to(where.address, where.port, options_.connect_timeout, problem, refused))
      post([this, channel] {
        if (const auto x = routes_.find(channel); x != routes_.end())
          x->second.reachable = true;
      });
  };
  try {
    in_background(ask);
  } catch (const std::system_error& error) { // There are too many threads.
    spdlog::debug("cannot test whether {} is reachable: {}", where.address, error.what());
  }
}

// Tests whether the peer's process still runs. Runs in the background, on the side that waits until
// the peer connects again. A peer that runs connects again when it notices that the connection
// broke, but perhaps only this side has noticed. So this side tries to connect to the peer's port.
void channel_host::ask_whether_it_runs(const channel_ptr& channel, const route& where,
                                       std::uint64_t cuts) {
  std::string problem;
  bool refused = false;
  auto until = where.give_up;
  const auto began = std::chrono::steady_clock::now();
  while (where.reachable) {
    refused = false;
    if (connect_to(where.address, where.port, options_.connect_timeout, problem, refused))
      until += channel->unnoticed_for();
    if (!refused || std::chrono::steady_clock::now() - began >= options_.refused_for)
      break;
    if (!pause(std::chrono::milliseconds{refusal_pause}, channel, cuts))
      return;
  }
  if (refused)
    problem = "its process has ended";
  else if (!pause(std::chrono::duration_cast<std::chrono::milliseconds>(
                    until - std::chrono::steady_clock::now()),
                  channel, cuts))
    return;
  else if (where.restored)
    problem = nothing_arrives;
  else if (until != where.give_up)
    problem = "its port answers, but it did not come back";
  else
    problem = fmt::format("its connection broke, and it did not come back within {:g} s",
                          std::chrono::duration<double>(channel->grace()).count());
  post([this, channel, cuts, problem] { give_up(channel, cuts, problem); });
}

void channel_host::resume(const channel_ptr& channel, file_descriptor socket,
                          const proto::Greeting* greeting) {
  const auto x = routes_.find(channel);
  if (x == routes_.end())
    return;
  channel->resume(std::move(socket), greeting, x->second.token);
  spdlog::debug("the connection to {} continues", x->second.address);
  {
    const std::lock_guard guard{mutex_};
    changed_.notify_all();
  }
  serve(channel);
}

void channel_host::give_up(const channel_ptr& channel, std::uint64_t cuts,
                           const std::string& reason) {
  if (!channel->cut() || channel->cuts() != cuts)
    return;
  routes_.erase(channel);
  channel->give_up(reason);
}

} // namespace troupe
