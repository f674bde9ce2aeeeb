#include "actors/cluster/cluster_node.hpp"

#include "actors/model/job_file.hpp"
#include "kernels/error.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

// This file: how a node begins and joins. Other files of the class: cluster_node_links.cpp connects
// the node to other nodes, cluster_node_tasks.cpp starts the actors of its tasks, and
// cluster_node_end.cpp ends them.

namespace troupe {

namespace {

/// Smallest value of link_options::window, the limit for the bytes that wait for a peer. It applies
/// if the model is small.
constexpr std::uint64_t least_window = std::uint64_t{1} << 30;

/// The largest payload in bytes that a peer may send, if the model is small or the job is not yet
/// known. (A correct peer sends no payload before the job is known.)
constexpr std::size_t least_payload = std::size_t{64} << 20;

/// How long to wait for the answer to Join. If the link's connection breaks, the answer comes late:
/// one end must first notice the break, and then restore the connection.
constexpr std::chrono::milliseconds join_patience = 2 * stream_channel::first_suspicion;

} // namespace

cluster_node::cluster_node(caf::actor_config& cfg, node_options options)
  : super(cfg), options_(std::move(options)), most_payload_(options_.links.transfer.max_bytes),
    jitter_(options_.incarnation | 1) {
  options_.links.transfer.max_bytes = std::min(most_payload_, least_payload);
  options_.links.meter = std::make_shared<payload_meter>();
  // Move the highest task (in the order evaluator, worker, ps, coordinator) to the front: it is the
  // name by which other nodes know this node.
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
      // An elastic run continues without a worker that cannot read its data. So this node ends, and
      // the other nodes continue.
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
      // An order to stop must wait: this node can pass it on only when the other nodes have joined
      // again.
      stop_later_ = std::exchange(stopping_, std::nullopt);
      leave_view("the view is over: " + x.reason);
    },
    [this](begin_again) { on_begin_again(); },
    [this](tick) { on_tick(); },
  };
}

bool cluster_node::only(job_kind job) const {
  return std::ranges::all_of(options_.tasks, [job](auto& task) { return task.job == job; });
}

bool cluster_node::hosts(const task_name& task) const {
  return std::ranges::find(options_.tasks, task) != options_.tasks.end();
}

void cluster_node::start(const caf::strong_actor_ptr& actor) {
  started_.push_back(actor);
  monitor(actor);
}

// Handles the end of an actor of this node. An actor ends only on request or because of an error.
// After an error, the view cannot continue.
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

void cluster_node::notice(const std::string& text, notice_level level) {
  if (options_.observer)
    send(options_.observer, run_notice{text, level});
}

patience cluster_node::requests() const {
  return {std::chrono::milliseconds{context_->job.runtime().request_timeout_ms()}, 3};
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
  tick_later();
}

/// Starts the coordinator on this node. Returns false if it cannot start; this node has then ended.
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
  // In an elastic run, keep the weights, because the next view may have to begin from them, too.
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
      this, caf::actor_cast<coordinator_actor>(coordinator), patience{join_patience, 2, nullptr},
      [this](const proto::Joined& answer) { on_joined(answer); },
      [this](const caf::error& error) {
        if (ended_)
          return;
        // The coordinator may refuse a node that joins again, if it has not yet noticed that the
        // node has left the last view. So the node tries once more.
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

// Sets the limits of all links from the size of the model. A few copies of all weights and
// optimizer states may be in transit to a peer at once, because weights, gradients and the state
// for a checkpoint are sent. No message of the built-in protocols has a payload larger than all
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
    // Set the limits of the session directly, because the peer may send payloads before the link
    // handles change_limits.
    x.session->limit(limits.limits());
    anon_send(x.handle, change_limits{limits.suspect_after, limits.limits()});
  }
}

} // namespace troupe
