#include "actors/cluster/cluster_node.hpp"

#include "actors/cluster/address.hpp"
#include "actors/cluster/prober.hpp"
#include "actors/cluster/redials.hpp"
#include "actors/link/port.hpp"
#include "actors/model/job_file.hpp"
#include "kernels/error.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

// How a node connects to others, joins, and ends. cluster_node_tasks.cpp starts the actors of its
// tasks.

namespace troupe {

namespace {

constexpr std::chrono::milliseconds tick_interval{500};

/// A node that has left a view waits this long before it joins again, so that the others have left
/// it too.
constexpr std::chrono::milliseconds rejoin_pause{200};

/// A coordinator that was stopped between two views waits this long for the others to join again,
/// so that it can tell them to end.
constexpr std::chrono::milliseconds stop_pause{1'000};

/// Largest number of nodes that have sent Hello and are not peers yet. Further ones get no answer.
constexpr std::size_t max_newcomers = 256;

/// Longer than resolving and trying all addresses.
constexpr std::chrono::minutes probe_limit{2};

/// See link_options::window.
constexpr std::uint64_t least_window = std::uint64_t{1} << 30;

/// The largest payload that is accepted from a peer if the job is small, or not yet known. Nodes
/// exchange no payloads before they know the job.
constexpr std::size_t least_payload = std::size_t{64} << 20;

/// Time for an answer to Join. If the link's connection breaks, the answer is late: first, one end
/// must notice, and then the connection must be restored.
constexpr std::chrono::milliseconds join_patience = 2 * stream_channel::first_suspicion;

/// A stopping node waits this long for others.
constexpr std::chrono::milliseconds stop_patience{5'000};

} // namespace

cluster_node::cluster_node(caf::actor_config& cfg, node_options options)
  : super(cfg), options_(std::move(options)), most_payload_(options_.links.transfer.max_bytes),
    jitter_(options_.incarnation | 1) {
  options_.links.transfer.max_bytes = std::min(most_payload_, least_payload);
  // The highest task represents this node to others.
  std::ranges::iter_swap(options_.tasks.begin(), std::ranges::max_element(options_.tasks));
}

cluster_node::behavior_type cluster_node::make_behavior() {
  set_down_handler([this](caf::down_msg& x) { on_down(x); });
  set_default_handler(
    [this](caf::scheduled_actor*, caf::message_view&) -> caf::result<caf::message> {
      refuse_stranger("an unknown message");
      return caf::sec::unexpected_message;
    });
  return {
    [this](const proto::Hello& x) { on_hello(x); },
    [this](const proto::OpenView& x) -> caf::result<proto::ViewReady> {
      if (auto error = refuse_stranger("OpenView"))
        return std::move(*error);
      return on_open_view(x);
    },
    [this](const proto::Shutdown& x) -> caf::result<proto::Ack> {
      if (auto error = refuse_stranger("Shutdown"))
        return std::move(*error);
      if (x.next_view() && !stopping_ && !ended_)
        leave_view("the view is over: " + x.reason());
      else if (task_name lost; x.failed() && !x.next_view() && from_proto(x.lost(), lost))
        end_with(x.reason(), lost);
      else
        end_with(x.failed() && !x.next_view() ? x.reason() : "");
      return proto::Ack{};
    },
    [this](const resolve& x) -> caf::result<resolved> {
      auto answer = make_response_promise<resolved>();
      reach(x.name,
            [answer](caf::strong_actor_ptr y) mutable { answer.deliver(resolved{std::move(y)}); });
      return answer;
    },
    [this](const run_summary& x) { end(x); },
    [this](worker_left) { on_worker_left(); },
    [this](const worker_ready& x) {
      task_ready({job_kind::worker, x.worker}, x.problem, errc::bad_input);
      // An elastic run goes on without a worker that cannot read its data.
      if (!x.problem.empty() && context_->job.has_elastic() && only(job_kind::worker))
        end_with(x.problem);
    },
    [this](const link_up& x) { on_link_up(x); },
    [this](const link_down& x) { on_link_down(x, caf::actor_cast<caf::actor>(current_sender())); },
    [this](const link_notice& x) { on_notice(x); },
    [this](const dialled& x) { on_dialled(x); },
    [this](const begin_node& x) { on_begin(x); },
    [this](crash_node) { quit(caf::exit_reason::kill); },
    [this](const redial& x) { try_dial(x.task); },
    [this](const stop_run& x) { on_stop(x); },
    [this](const evaluator_ready& x) { on_evaluator_ready(x); },
    [this](const proto::Probe&) { return on_probe(); },
    [this](const next_view& x) {
      if (ended_)
        return;
      after_ = x;
      // Other nodes can only be told once they have joined again.
      stop_later_ = std::exchange(stopping_, std::nullopt);
      leave_view("the view is over: " + x.reason);
    },
    [this](begin_again) { on_begin_again(); },
    [this](tick) { on_tick(); },
  };
}

// -- reaching actors ----------------------------------------------------------------------------

// Other nodes connect to the highest task of a node. If it has several tasks, it hosts the
// coordinator, to which every node has a link.
task_name cluster_node::front_of(const task_name& task) const {
  const auto member = std::ranges::find(view_.members, task, &member::task);
  const auto coordinator = links_.find(coordinator_task);
  return member != view_.members.end() && coordinator != links_.end()
      && coordinator->second.incarnation == member->incarnation
    ? coordinator_task
    : task;
}

bool cluster_node::only(job_kind job) const {
  return std::ranges::all_of(options_.tasks, [job](auto& task) { return task.job == job; });
}

bool cluster_node::hosts(const task_name& task) const {
  return std::ranges::find(options_.tasks, task) != options_.tasks.end();
}

void cluster_node::host(const endpoint& name, caf::strong_actor_ptr actor,
                        const std::optional<link_peer>& only) {
  local_->add(name, std::move(actor), only);
  flush_waiting();
}

void cluster_node::start(const caf::strong_actor_ptr& actor) {
  started_.push_back(actor);
  monitor(actor);
}

// An actor of this node ends only on request or because of an error. After an error, the view
// cannot continue.
void cluster_node::on_down(const caf::down_msg& x) {
  awaited_.erase(x.source);
  if (ended_)
    return;
  for (auto& [peer, connection] : links_)
    if (connection.handle.address() == x.source) {
      const auto why = explain(x.reason);
      on_link_down({peer, why, why, false}, connection.handle);
      return;
    }
  const auto i = std::ranges::find_if(
    started_, [&](auto& y) { return caf::actor_cast<caf::actor_addr>(y) == x.source; });
  if (i == started_.end())
    return;
  const std::string name = static_cast<caf::monitorable_actor*>((*i)->get())->name();
  const auto reason =
    to_string(options_.tasks.front()) + ": " + name + " ended by an error: " + explain(x.reason);
  auto coordinator = lookup({coordinator_task, proto::COORDINATOR});
  // The coordinator can continue without an evaluator.
  if (!coordinator || only(job_kind::evaluator)
      || (coordinator_ && coordinator_.address() == x.source)) {
    end_with(reason);
    return;
  }
  proto::Failure failure;
  *failure.mutable_task() = to_proto(options_.tasks.front());
  failure.set_reason(reason);
  send(caf::actor_cast<coordinator_actor>(coordinator), std::move(failure));
}

caf::strong_actor_ptr cluster_node::lookup(const endpoint& name) {
  if (hosts(name.task))
    return local_->find(name);
  auto i = links_.find(front_of(name.task));
  if (i == links_.end())
    return nullptr;
  auto& port = i->second.ports[name];
  if (!port)
    port = make_port(system(), i->second.session, name);
  return port;
}

void cluster_node::reach(const endpoint& name, on_reached then) {
  if (auto actor = lookup(name)) {
    then(std::move(actor));
    return;
  }
  waiting_.emplace_back(name, std::move(then));
  if (!hosts(name.task))
    dial_if_ours(front_of(name.task));
}

void cluster_node::flush_waiting() {
  // Handlers may add new entries.
  for (auto& [name, then] : std::exchange(waiting_, {}))
    if (auto actor = lookup(name))
      then(std::move(actor));
    else
      waiting_.emplace_back(name, std::move(then));
}

// The lower (job, task) dials; the other side waits.
void cluster_node::dial_if_ours(const task_name& task) {
  if (ended_ || !options_.net || !(options_.tasks.front() < task) || dialling_.contains(task))
    return;
  auto address = addresses_.find(task);
  if (address == addresses_.end())
    return;
  dialling attempt;
  attempt.address = address->second;
  attempt.since = clock().now();
  dialling_.emplace(task, std::move(attempt));
  try_dial(task);
}

void cluster_node::try_dial(const task_name& task) {
  auto i = dialling_.find(task);
  if (ended_ || i == dialling_.end())
    return;
  ++i->second.attempts;
  spdlog::debug("dialling {} at {}, attempt {}", to_string(task), i->second.address,
                i->second.attempts);
  options_.net->dial(task, i->second.address, caf::actor_cast<dial_listener>(this));
}

void cluster_node::on_dialled(const dialled& x) {
  auto i = dialling_.find(x.task);
  if (ended_ || i == dialling_.end())
    return;
  if (x.node) {
    std::string host;
    std::uint16_t port = 0;
    split_address(i->second.address, host, port);
    link::dial_to how{x.node, x.task, options_.tasks.front(), options_.incarnation, host};
    i->second.link = caf::actor_cast<caf::actor>(system().spawn<link>(
      caf::actor_cast<caf::actor>(this), local_, std::move(how), options_.links));
    return;
  }
  i->second.problem = x.problem;
  spdlog::debug("{} at {} cannot be reached: {}", to_string(x.task), i->second.address, x.problem);
  delayed_send(this, pause_before(i->second.attempts, jitter_), redial{x.task});
}

void cluster_node::on_hello(const proto::Hello& x) {
  if ((ended_ && !returning_) || !current_sender())
    return;
  if (begun_ && !ended_) {
    accept(current_sender(), x);
    return;
  }
  early_.emplace_back(current_sender(), x);
  if (early_.size() > max_newcomers)
    early_.pop_front();
}

void cluster_node::accept(const caf::strong_actor_ptr& peer, const proto::Hello& x) {
  if (newcomers_.size() >= max_newcomers
      && clock().now() - newcomers_.front().since >= time_to_become_peer) {
    anon_send(newcomers_.front().link, end_link{"others wait for its place"});
    newcomers_.pop_front();
  }
  // A peer with a different wire version sees this in our Welcome, and gives up. A node without an
  // answer tries again.
  if (newcomers_.size() >= max_newcomers
      || std::ranges::find(newcomers_, peer, &newcomer::peer) != newcomers_.end())
    return;
  task_name task;
  const auto known = from_proto(x.task(), task) ? links_.find(task) : links_.end();
  const bool second = known != links_.end() && known->second.incarnation != x.incarnation();
  link::accept_from how{peer, x, options_.tasks.front(), options_.incarnation, second};
  admit({peer,
         caf::actor_cast<caf::actor>(system().spawn<link>(caf::actor_cast<caf::actor>(this), local_,
                                                          std::move(how), options_.links)),
         clock().now()});
}

void cluster_node::admit(newcomer x) {
  newcomers_.push_back(std::move(x));
}

void cluster_node::forget_newcomer(const caf::actor& link) {
  std::erase_if(newcomers_, [&](auto& x) { return x.link == link; });
}

// For requests that only the coordinator makes, over a link or in this process.
std::optional<caf::error> cluster_node::refuse_stranger(const char* message) {
  const auto& sender = current_sender();
  // In the framework's protocol, a peer can name the sender of a message, even an actor of this
  // process if it is registered. The coordinator's actors are not.
  if (sender && sender->node() == system().node()
      && (is_port(sender) || system().registry().get(sender->id()) != sender))
    return std::nullopt;
  const std::string text = std::string{"another program sent "} + message + " to "
    + to_string(options_.tasks.front()) + "; only the coordinator may";
  if (strangers_refused_++ == 0)
    on_notice({"refused: " + text + "; others like it are counted, not shown"});
  return make_error(errc::malformed, text);
}

void cluster_node::on_notice(const link_notice& x) {
  if (told_.size() < max_newcomers && told_.insert(x.text).second)
    notice(x.text, notice_level::warning);
}

void cluster_node::on_link_up(const link_up& x) {
  if (ended_) {
    anon_send(caf::actor_cast<caf::actor>(current_sender()),
              end_link{"this node has left the view"});
    return;
  }
  dialling_.erase(x.peer);
  // A second start of a task does not replace the first one. It may ask to join, which is refused.
  if (auto i = links_.find(x.peer); i != links_.end() && i->second.incarnation != x.incarnation) {
    x.session->park();
    return;
  }
  const auto address = addresses_.find(x.peer);
  spdlog::debug("link to {}{} is up", to_string(x.peer),
                address == addresses_.end() ? ", which dialled," : " at " + address->second);
  forget_newcomer(caf::actor_cast<caf::actor>(current_sender()));
  if (const auto i = links_.find(x.peer); i != links_.end())
    anon_send(i->second.handle, end_link{});
  drop_link(x.peer, caf::exit_reason::remote_link_unreachable);
  links_[x.peer] = {caf::actor_cast<caf::actor>(current_sender()), x.incarnation, x.session, {}};
  x.session->limit(options_.links.limits());
  monitor(links_[x.peer].handle);
  flush_waiting();
}

void cluster_node::on_link_down(const link_down& x, const caf::actor& which) {
  spdlog::debug("link to {} is down: {}", to_string(x.peer), x.reason);
  forget_newcomer(which);
  if (auto i = links_.find(x.peer); i != links_.end() && i->second.handle == which) {
    const auto lost = worker_beside(i->second);
    drop_link(x.peer, make_error(errc::link_lost, x.cause));
    if (x.peer == coordinator_task && !ended_) {
      const auto reason = "lost the coordinator: " + x.reason;
      // The coordinator may be between two views, or be started again.
      if (returns() && !stopping_)
        leave_view(reason);
      else
        end_with(reason, lost);
    }
    return;
  }
  auto i = dialling_.find(x.peer);
  if (!x.dialled || i == dialling_.end())
    return;
  // The link never came up.
  i->second.problem = x.reason;
  delayed_send(this, pause_before(i->second.attempts, jitter_), redial{x.peer});
}

// Actors that monitor an actor of the peer are notified.
void cluster_node::drop_link(const task_name& peer, const caf::error& reason) {
  auto lost = links_.extract(peer);
  if (!lost)
    return;
  for (auto& [name, port] : lost.mapped().ports)
    static_cast<caf::actor_proxy*>(port->get())->kill_proxy(context(), reason);
}

void cluster_node::on_tick() {
  ticking_ = false;
  if (ended_)
    return;
  for (auto& [task, attempt] : dialling_) {
    const auto waited = clock().now() - attempt.since;
    const auto text = to_string(task) + " at " + attempt.address + " ("
      + std::to_string(std::chrono::floor<std::chrono::seconds>(waited).count())
      + " s: " + attempt.problem + ")";
    if (waited >= options_.join_timeout) {
      const auto reason = "gave up waiting for " + text
        + ": is it running there, and can this host reach that address? `troupe doctor` shows more";
      const auto tasks = options_.tasks;
      for (auto& own : tasks)
        task_ready(own, reason);
      end_with(reason);
      return;
    }
    if (waited >= attempt.next_notice) {
      notice("waiting for " + text);
      attempt.next_notice =
        std::chrono::floor<std::chrono::seconds>(waited) + std::chrono::seconds{5};
    }
  }
  ticking_ = true;
  delayed_send(this, tick_interval, tick{});
}

// A separate actor answers, because it resolves names and connects, which may block.
caf::result<proto::Probed> cluster_node::on_probe() {
  if (probes_.size() >= max_newcomers)
    return make_error(errc::failed, "too many probes wait for an answer of this node");
  probes_.push_back(make_response_promise<proto::Probed>());
  auto result = probes_.back();
  if (probes_.size() == 1)
    begin_probing();
  return result;
}

void cluster_node::begin_probing() {
  auto cluster = options_.cluster;
  for (auto& [task, address] : addresses_)
    cluster[task] = address;
  probe_order order;
  for (auto& task : options_.tasks)
    *order.answer.add_hosted() = to_proto(task);
  for (auto& [task, address] : cluster) {
    if (hosts(task))
      continue;
    auto& x = *order.answer.add_reach();
    *x.mutable_task() = to_proto(task);
    x.set_address(address);
    x.set_connected(links_.contains(front_of(task)));
  }
  const auto answer_all = [this](auto x) {
    for (auto& waiting : std::exchange(probes_, {}))
      waiting.deliver(x);
  };
  request(options_.spawner.spawn_heavy<prober>(system()), probe_limit, std::move(order))
    .then([answer_all](const proto::Probed& x) { answer_all(x); },
          [answer_all](const caf::error& error) { answer_all(error); });
}

// -- joining ------------------------------------------------------------------------------------

void cluster_node::on_begin(const begin_node& x) {
  address_ = x.address;
  if (!options_.coordinator)
    addresses_[coordinator_task] = options_.coordinator_address;
  else if (!start_coordinator())
    return;
  for (auto& task : options_.tasks)
    local_->add({task, proto::NODE}, ctrl());
  for (auto& task : options_.tasks)
    if (task != coordinator_task)
      join_as(task);
  begun_ = true;
  for (auto& [peer, hello] : std::exchange(early_, {}))
    accept(peer, hello);
  if (!std::exchange(ticking_, true))
    delayed_send(this, tick_interval, tick{});
}

/// False if this node had to end instead.
bool cluster_node::start_coordinator() {
  begun_at_ = clock().now();
  auto& setup = *options_.coordinator;
  limit_links(*setup.context);
  if (const auto problem = lacks_device(*setup.context, coordinator_task); !problem.empty()) {
    end_with(problem);
    return false;
  }
  coordinator_options how;
  how.context = setup.context;
  how.data = setup.data;
  how.tasks = setup.tasks;
  how.output = setup.output;
  how.files = setup.files;
  how.origin = setup.origin;
  how.resume = std::move(setup.resume);
  how.initial = setup.initial;
  // The next view may have to begin from these weights, too.
  if (!setup.context->job.has_elastic())
    setup.initial = {};
  how.constant_guess = setup.constant_guess;
  if (after_.last > 0)
    how.notices.push_back("view " + std::to_string(after_.last) + " is over: " + after_.reason);
  how.notices.insert(how.notices.end(), setup.notices.begin(), setup.notices.end());
  if (const auto& text = devices_[coordinator_task].notice; !text.empty())
    how.notices.push_back(text);
  how.after = after_;
  how.device = testing_device_of(setup.context, coordinator_task);
  how.observer = options_.observer;
  how.weights = setup.weights;
  how.spawner = options_.spawner;
  how.host = caf::actor_cast<coordinator_host>(this);
  auto handle = system().spawn<coordinator>(std::move(how));
  coordinator_ = caf::actor_cast<caf::actor>(handle);
  start(caf::actor_cast<caf::strong_actor_ptr>(handle));
  host({coordinator_task, proto::COORDINATOR}, caf::actor_cast<caf::strong_actor_ptr>(handle));
  return true;
}

// -- the next view ------------------------------------------------------------------------------

// Ends all actors and links of this node. It joins again once the actors have ended, so that two
// incarnations of a task never need memory at the same time.
void cluster_node::leave_view(const std::string& reason) {
  spdlog::debug("{} leaves view {}: {}", to_string(options_.tasks.front()), view_.number, reason);
  for (auto& x : started_) {
    awaited_.insert(caf::actor_cast<caf::actor_addr>(x));
    monitor(x); // It may have ended already.
  }
  end_links();
  end_actors(reason);
  returning_ = true;
  leaving_since_ = clock().now();
  // The first attempt comes soon; others may have to wait for the coordinator.
  delayed_send(this, left_at_ ? longest_pause : rejoin_pause, begin_again{});
  if (!left_at_)
    left_at_ = leaving_since_;
}

void cluster_node::end_links() {
  while (!links_.empty()) {
    const auto peer = links_.begin()->first;
    anon_send(links_.begin()->second.handle, end_link{"this node has left the view"});
    drop_link(peer, make_error(errc::link_lost, "this node has left the view"));
  }
  for (auto& x : newcomers_)
    anon_send(x.link, end_link{"this node has left the view"});
  for (auto& [task, x] : dialling_)
    if (x.link)
      anon_send(x.link, end_link{"this node has left the view"});
}

/// True if this node joins again when it loses the coordinator: in an elastic run, or before it has
/// joined. Once it has lost the coordinator: until `join_timeout` has passed since then.
bool cluster_node::returns() const {
  return left_at_ ? clock().now() - *left_at_ < options_.join_timeout
                  : !context_ || context_->job.has_elastic();
}

void cluster_node::on_begin_again() {
  if (!returning_)
    return;
  if (!awaited_.empty() && clock().now() - leaving_since_ < options_.join_timeout) {
    delayed_send(this, rejoin_pause, begin_again{});
    return;
  }
  returning_ = false;
  ended_ = false;
  if (!awaited_.empty()) {
    end_between_views(to_string(options_.tasks.front())
                      + " cannot join again: its computation or its reading of data hangs");
    return;
  }
  options_.incarnation += std::uint64_t{1} << 32;
  local_ = std::make_shared<directory>();
  addresses_.clear();
  devices_.clear();
  context_ = nullptr;
  view_ = {};
  workers_left_ = 0;
  try {
    if (options_.coordinator) {
      open_output_again(*options_.coordinator);
      // Each view has its own file of TensorBoard, whose name is this time.
      options_.coordinator->origin.started += std::max<std::chrono::steady_clock::duration>(
        clock().now() - begun_at_, std::chrono::seconds{1});
    }
  } catch (const std::exception& error) { // input_error, std::system_error
    end_between_views(after_.reason + "; the run cannot go on: " + error.what());
    return;
  }
  on_begin({address_});
  if (auto order = std::exchange(stop_later_, std::nullopt))
    delayed_send(this, stop_pause, std::move(*order));
}

void cluster_node::end_between_views(const std::string& failure) {
  run_summary summary;
  summary.failure = failure;
  if (options_.coordinator && options_.observer)
    send(options_.observer, summary);
  end(summary);
}

void cluster_node::join_as(const task_name& task) {
  reach({coordinator_task, proto::COORDINATOR}, [this, task](caf::strong_actor_ptr coordinator) {
    proto::Join x;
    *x.mutable_task() = to_proto(task);
    x.set_incarnation(options_.incarnation);
    x.set_address(address_);
    x.set_version(options_.version);
    if (options_.job) {
      x.set_job_hash(job_hash(*options_.job));
      x.set_job_text(options_.job->DebugString());
    }
    ask(
      this, caf::actor_cast<coordinator_actor>(coordinator), patience{join_patience, 2},
      [this](const proto::Joined& answer) { on_joined(answer); },
      [this](const caf::error& error) {
        if (ended_)
          return;
        // The coordinator may not have noticed yet that this node has left the last view.
        if (returns() && !stopping_ && (left_at_ || code_of(error) == errc::link_lost))
          leave_view(explain(error));
        else
          end_with(explain(error));
      },
      x);
  });
}

void cluster_node::on_joined(const proto::Joined& x) {
  left_at_.reset();
  if (context_)
    return;
  if (options_.coordinator) {
    context_ = options_.coordinator->context;
    return;
  }
  try {
    proto::Job job;
    if (!job.ParseFromString(x.job()))
      throw input_error{"the coordinator's job cannot be decoded"};
    const bool from_job = job.data().source_case() != proto::Data::SOURCE_NOT_SET;
    validate(job, from_job ? data_from::job : data_from::program, traits_of(options_.protocols));
    const auto shape = from_proto(x.data());
    spdlog::debug("joined: job {}, {}", x.job_hash().substr(0, 12), to_string(shape));
    context_ =
      make_job_context(job, shape, traits_of(options_.protocols), {},
                       x.has_fingerprint() ? std::optional{x.fingerprint()} : std::nullopt);
    limit_links(*context_);
    if (context_->hash != x.job_hash())
      throw input_error{
        "the coordinator's job is read differently here (another hash): run the same "
        "troupe version on all nodes"};
  } catch (const input_error& error) {
    end_with(error.what());
  }
}

// A few copies of all weights and states can be in transit to a peer: the state of a checkpoint,
// gradients, and weights. No message of the built-in protocols has a payload larger than all
// weights.
void cluster_node::limit_links(const job_context& context) {
  const auto bytes = context.parameters().size() * sizeof(float);
  auto& limits = options_.links;
  limits.suspect_after = std::chrono::milliseconds{context.job.runtime().suspect_after_ms()};
  limits.grace = std::chrono::milliseconds{context.job.runtime().link_grace_ms()};
  limits.window =
    std::min<std::uint64_t>(limits.window, std::max<std::uint64_t>(least_window, 16 * bytes));
  limits.transfer.max_bytes =
    std::min(most_payload_, std::max<std::size_t>(least_payload, 16 * bytes));
  for (auto& [peer, x] : links_) {
    // The peer may send payloads before the link handles the message.
    x.session->limit(limits.limits());
    anon_send(x.handle, change_limits{limits.suspect_after, limits.limits()});
  }
}

// -- end ----------------------------------------------------------------------------------------

void cluster_node::on_stop(const stop_run& x) {
  if (returning_ && options_.coordinator) {
    stop_later_ = x;
    return;
  }
  if (returning_) {
    returning_ = ended_ = false;
    end_with("stopped (" + x.reason + ')');
    return;
  }
  if (ended_)
    return;
  stopping_ = x;
  if (coordinator_) {
    send(caf::actor_cast<caf::typed_actor<rpc<void, stop_run>>>(coordinator_), x);
    return;
  }
  if (only(job_kind::evaluator)) {
    end_with(""); // The coordinator continues without this node.
    return;
  }
  // A checkpoint needs this node until the coordinator ends the run.
  const bool serves = context_ && context_->job.has_checkpoint()
    && (!only(job_kind::worker) || context_->protocol.in_step || !context_->protocol.uses_shards());
  auto limit = stop_patience;
  if (only(job_kind::worker) && !workers_.empty() && !serves) {
    for (auto& worker : workers_)
      send(worker, leave_run{x.reason});
  } else if (auto coordinator = lookup({coordinator_task, proto::COORDINATOR})) {
    auto failure = stopped_task(options_.tasks.front(), x.reason);
    failure.set_goes_on(serves);
    if (serves)
      limit += stopping_limit;
    send(caf::actor_cast<coordinator_actor>(coordinator), std::move(failure));
  } else {
    end_with("stopped (" + x.reason + ')');
    return;
  }
  // An answer may never arrive.
  run_summary given_up;
  given_up.failure = "stopped (" + x.reason + "); the coordinator did not answer";
  given_up.interrupted = true;
  delayed_send(this, limit, std::move(given_up));
}

void cluster_node::on_worker_left() {
  if (++workers_left_ == workers_.size())
    end_with("");
}

void cluster_node::end_with(const std::string& failure, const std::optional<task_name>& lost) {
  run_summary summary;
  summary.failure = failure;
  summary.missing = lost;
  end(summary);
}

void cluster_node::end(const run_summary& summary) {
  if (ended_)
    return;
  auto last = summary;
  if (last.missing)
    last.ring = ring_without(*last.missing);
  if (last.ring)
    last.failure += "; " + to_string(*last.ring);
  end_actors(last.failure.empty() ? "the run is over" : last.failure);
  if (options_.on_end)
    options_.on_end(last);
  quit();
}

// Each survivor reports its own position. It does not matter who noticed the loss first: this node,
// a neighbour, or the coordinator.
std::optional<ring_failure> cluster_node::ring_without(const task_name& lost) {
  const auto workers = view_.of(job_kind::worker);
  const auto at = std::ranges::find(workers, lost, &member::task);
  if (at == workers.end() || hosts(lost))
    return std::nullopt;
  for (const auto& [task, board] : boards_)
    if (const auto x = board->ring()) {
      ring_failure result{lost, static_cast<std::size_t>(at - workers.begin())};
      result.rank = x->rank;
      result.ranks = x->ranks;
      result.step = x->step;
      result.bucket = x->bucket;
      result.waited = std::chrono::floor<std::chrono::milliseconds>(clock().now() - x->since);
      return result;
    }
  return std::nullopt;
}

/// The worker of the node at the other end; if it has none, its first task.
task_name cluster_node::worker_beside(const peer_link& x) const {
  task_name result = coordinator_task;
  for (const auto& m : view_.members)
    if (m.incarnation == x.incarnation && m.task.job == job_kind::worker)
      result = m.task;
  return result;
}

void cluster_node::on_exit() {
  if (ended_ && !returning_)
    return;
  const std::string reason = "this node has ended";
  end_actors(reason);
  run_summary summary;
  summary.failure = reason;
  if (options_.on_end)
    options_.on_end(summary);
}

// Ends all actors that this node started, answers waiting requests, and drops all handles, because
// CAF frees an actor with its last reference.
void cluster_node::end_actors(const std::string& reason) {
  ended_ = true;
  for (auto& [task, state] : opening_)
    for (auto& answer : state.answers)
      answer.deliver(make_error(errc::failed, reason));
  for (auto i = started_.rbegin(); i != started_.rend(); ++i)
    anon_send_exit(*i, caf::exit_reason::user_shutdown);
  started_.clear();
  boards_.clear();
  workers_.clear();
  waiting_.clear();
  early_.clear();
  newcomers_.clear();
  for (auto& x : std::exchange(probes_, {}))
    x.deliver(make_error(errc::failed, reason));
  coordinator_ = nullptr;
  opening_.clear();
  dialling_.clear();
  links_.clear();
  local_->clear();
}

void cluster_node::notice(const std::string& text, notice_level level) {
  if (options_.observer)
    send(options_.observer, run_notice{text, level});
}

patience cluster_node::requests() const {
  return {std::chrono::milliseconds{context_->job.runtime().request_timeout_ms()}, 3};
}

} // namespace troupe
