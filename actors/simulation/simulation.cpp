#include "actors/simulation/simulation.hpp"

#include "actors/cluster/local_cluster.hpp"
#include "actors/model/data_fingerprint.hpp"
#include "actors/model/global_batch.hpp"
#include "actors/worker/trainer.hpp"
#include "messages/configure.hpp"

#include <algorithm>
#include <iterator>

namespace troupe {

namespace {

using time_point = std::chrono::steady_clock::time_point;

std::string address_of(sim_node node) {
  return "node" + std::to_string(node) + ":1";
}

/// Stores all reports of the coordinator for the test.
class watcher : public run_observer::base {
public:
  watcher(caf::actor_config& cfg, std::shared_ptr<simulation_view> seen, time_point start)
    : run_observer::base(cfg), seen_(std::move(seen)), start_(start) {}

protected:
  behavior_type make_behavior() override {
    return {
      [this](const run_progress& x) { seen_->progress.push_back(x); },
      [](const epoch_report&) {},
      [](const run_summary&) {},
      [this](const run_notice& x) {
        seen_->notices.push_back({clock().now() - start_, x.text});
      },
    };
  }

private:
  std::shared_ptr<simulation_view> seen_;
  time_point start_;
};

} // namespace

simulation::simulation(simulation_options options)
  : options_(std::move(options)),
    files_(options_.files ? options_.files : std::make_shared<memory_storage>()),
    order_(options_.seed, "order") {
  check_workers(options_.job, options_.workers, traits_of(options_.protocols));
  configure(config_);
  config_.set("scheduler.policy", caf::atom("testing"));
  system_ = std::make_unique<caf::actor_system>(config_);
  scheduler_ = &dynamic_cast<caf::scheduler::test_coordinator&>(system_->scheduler());
  start_ = scheduler_->clock().now();
  network_ = std::make_unique<simulated_network>(*system_, options_.seed, options_.links);
  if (options_.channels)
    channels_ = std::make_unique<simulated_channels>(*system_, *network_, options_.seed);
  observer_ = caf::actor_cast<caf::actor>(system_->spawn<watcher>(seen_, start_));
  const auto count = options_.one_node ? 1 : evaluator_node() + (options_.evaluator ? 1 : 0);
  nodes_.resize(count);
  ended_.resize(count);
  ended_at_.resize(count);
  try {
    start_nodes();
  } catch (...) { // the job does not fit its data, for example
    end();
    throw;
  }
}

void simulation::start_nodes() {
  std::vector<task_name> front{coordinator_task};
  if (options_.one_node) {
    std::ranges::copy(tasks_of(static_cast<std::uint32_t>(options_.workers),
                               static_cast<std::uint32_t>(options_.ps)),
                      std::back_inserter(front));
    start_node(0, std::move(front));
    return;
  }
  if (options_.coordinator_trains)
    front.push_back({job_kind::worker, 0});
  start_node(0, front);
  for (std::uint32_t i = 0; i < options_.ps; ++i)
    start_node(ps_node(i), {{job_kind::ps, i}});
  for (std::uint32_t i = options_.coordinator_trains ? 1 : 0; i < options_.workers; ++i)
    start_node(worker_node(i), {{job_kind::worker, i}});
  if (options_.evaluator)
    start_node(evaluator_node(), {{job_kind::evaluator, 0}});
}

simulation::~simulation() {
  end();
}

/// Ends all actors. Otherwise, the destructor of the actor system would wait for them for ever.
void simulation::end() {
  for (auto& node : nodes_)
    if (node)
      caf::anon_send(node, crash_node{});
  nodes_.clear();
  caf::anon_send_exit(observer_, caf::exit_reason::kill);
  observer_ = nullptr;
  // Links and tasks end when their nodes end. If they did not, their timers would keep the system
  // from ending.
  network_->clear();
  if (channels_)
    channels_->clear();
  while (scheduler_->try_run_once())
    ;
  scheduler_->clock().cancel_all();
}

coordinator_setup simulation::make_coordinator() {
  coordinator_setup result;
  result.data = options_.data;
  auto job = options_.job;
  divide_batch(job, options_.workers);
  result.context =
    make_job_context(job, shape_of(*options_.data.train), traits_of(options_.protocols), {},
                     fingerprint_if_readable(options_.data));
  result.output = options_.job.output();
  result.files = files_;
  result.resume = options_.resume;
  result.origin = {"simulation", {}};
  const auto where = [&](sim_node x) { return options_.one_node ? "" : address_of(x); };
  for (std::uint32_t i = 0; i < options_.ps; ++i)
    result.tasks.push_back({{job_kind::ps, i}, where(ps_node(i))});
  for (std::uint32_t i = 0; i < options_.workers; ++i)
    result.tasks.push_back({{job_kind::worker, i}, where(worker_node(i))});
  if (options_.evaluator)
    result.tasks.push_back({{job_kind::evaluator, 0}, address_of(evaluator_node())});
  return result;
}

void simulation::start_node(sim_node number, std::vector<task_name> tasks) {
  start_node(number, std::move(tasks), options_.one_node ? "" : address_of(number), false);
}

sim_node simulation::restart(sim_node node) {
  const auto number = nodes_.size();
  nodes_.emplace_back();
  ended_.emplace_back();
  ended_at_.emplace_back();
  start_node(number, tasks_.at(node), addresses_.at(node), true);
  return number;
}

void simulation::start_node(sim_node number, std::vector<task_name> tasks, std::string address,
                            bool again) {
  tasks_.resize(std::max<std::size_t>(tasks_.size(), number + 1));
  addresses_.resize(tasks_.size());
  tasks_[number] = tasks;
  addresses_[number] = address;
  const bool coordinates = tasks.front() == coordinator_task;
  const auto last = system_->latest_actor_id();
  node_options how;
  if (channels_)
    how.links.channels = channels_->add_node();
  how.tasks = std::move(tasks);
  how.incarnation = number + 1;
  how.spawner = spawner{spawner::kind::cooperative};
  if (!options_.one_node) {
    how.net = network_->transport_of(number);
    how.coordinator_address = address_of(0);
  }
  how.protocols = options_.protocols;
  how.gpus = options_.gpus;
  const auto own = options_.other_data.find(number);
  how.source = [data = own == options_.other_data.end() ? options_.data : own->second](
                 const proto::Job&) { return data; };
  how.on_end = [this, number](const run_summary& x) {
    ended_[number] = x;
    ended_at_[number] = elapsed();
  };
  if (coordinates) {
    how.coordinator = make_coordinator();
    if (again)
      open_output_again(*how.coordinator);
    how.observer = caf::actor_cast<run_observer>(observer_);
  }
  auto handle = system_->spawn<cluster_node>(std::move(how));
  nodes_[number] = caf::actor_cast<caf::actor>(handle);
  homes_[last + 1] = number;
  homes_[system_->latest_actor_id() + 1] = std::nullopt;
  network_->listen(number, address, caf::actor_cast<caf::strong_actor_ptr>(handle));
  caf::anon_send(nodes_[number], begin_node{address});
}

void simulation::stop(sim_node node, const std::string& reason) {
  caf::anon_send(nodes_.at(node), stop_run{reason});
}

void simulation::crash(sim_node node) {
  // From now on, all messages of the node are lost, including its last ones. Call isolate() first:
  // after partition(), the other nodes could not notice the broken connections.
  network_->isolate(node);
  if (channels_)
    channels_->crash(node);
  for (sim_node other = 0; other < nodes_.size(); ++other)
    if (other != node)
      network_->partition(node, other);
  ended_[node] = run_summary{};
  ended_[node]->failure = "crashed";
  caf::anon_send(nodes_.at(node), crash_node{});
}

void simulation::freeze(sim_node node, const std::string& actor) {
  frozen_.emplace(node, actor);
}

void simulation::thaw(sim_node node, const std::string& actor) {
  frozen_.erase({node, actor});
}

std::optional<sim_node> simulation::home_of(caf::actor_id actor) const {
  const auto next = homes_.upper_bound(actor);
  return next == homes_.begin() ? std::nullopt : std::prev(next)->second;
}

bool simulation::frozen(const caf::resumable& job) const {
  const auto* actor = dynamic_cast<const caf::scheduled_actor*>(&job);
  if (frozen_.empty() || !actor)
    return false;
  const auto home = home_of(actor->id());
  return home && (frozen_.contains({*home, ""}) || frozen_.contains({*home, actor->name()}));
}

// True if this actor is a trainer whose gradient is not due yet. It is not scheduled until then.
bool simulation::computing(const caf::resumable& job) {
  const auto* actor = dynamic_cast<const trainer*>(&job);
  // A trainer may get further weights in the middle of a gradient. Handling them takes no virtual
  // time.
  if (!options_.gradient_done || !actor || actor->computing())
    return false;
  const auto now = scheduler_->clock().now();
  const auto number = trainers_.try_emplace(actor->id(), trainers_.size()).first->second;
  const auto [due, fresh] = computing_until_.try_emplace(actor->id());
  if (fresh)
    due->second = start_ + options_.gradient_done(number, now - start_);
  return due->second > now;
}

// Advances the time to the moment when the next gradient is due. Does nothing and returns false if
// another event comes earlier.
bool simulation::finish_computing() {
  auto& clock = scheduler_->clock();
  std::optional<time_point> next;
  for (const auto& [id, due] : computing_until_)
    if (due > clock.now() && (!next || due < *next))
      next = due;
  if (!next || (!clock.schedule().empty() && clock.schedule().begin()->first < *next))
    return false;
  clock.current_time = *next;
  return true;
}

// Lets one actor run. The actors that it spawns count as actors of its node.
void simulation::run_next_job() {
  const auto* actor = dynamic_cast<const caf::scheduled_actor*>(scheduler_->jobs.front());
  const auto home = actor ? home_of(actor->id()) : std::nullopt;
  const auto last = system_->latest_actor_id();
  if (actor)
    computing_until_.erase(actor->id());
  scheduler_->try_run_once();
  if (home && system_->latest_actor_id() > last) {
    homes_[last + 1] = home;
    homes_[system_->latest_actor_id() + 1] = std::nullopt;
  }
}

void simulation::at(std::chrono::nanoseconds when, std::function<void()> what) {
  events_.emplace(when, std::move(what));
}

std::chrono::nanoseconds simulation::elapsed() {
  return scheduler_->clock().now() - start_;
}

bool simulation::step() {
  if (channels_)
    channels_->pump();
  auto& jobs = scheduler_->jobs;
  const auto awake = std::partition(
    jobs.begin(), jobs.end(), [this](const auto* x) { return !frozen(*x) && !computing(*x); });
  if (awake != jobs.begin()) {
    const auto count = static_cast<std::uint64_t>(awake - jobs.begin());
    std::swap(jobs.front(), jobs[order_.below(count)]);
    run_next_job();
    return true;
  }
  if (!events_.empty() && events_.begin()->first <= elapsed()) {
    auto what = std::move(events_.begin()->second);
    events_.erase(events_.begin());
    what();
    return true;
  }
  return finish_computing() || scheduler_->trigger_timeout();
}

bool simulation::all_ended() const {
  return std::ranges::all_of(ended_, [](auto& x) { return x.has_value(); });
}

simulation_result simulation::run() {
  while (!all_ended() && elapsed() < options_.limit && step())
    ;
  simulation_result result;
  result.nodes = ended_;
  result.ended_at = ended_at_;
  // If the coordinator was started several times, use the summary of its newest node.
  const auto is_coordinator = [](auto& tasks) { return tasks.front() == coordinator_task; };
  const auto last = std::find_if(tasks_.rbegin(), tasks_.rend(), is_coordinator);
  if (const auto& ended = ended_[static_cast<std::size_t>(tasks_.rend() - last) - 1])
    result.summary = *ended;
  else
    result.summary.failure = "the run did not end within the simulation's time limit";
  result.trace_hash = network_->trace_hash();
  result.messages = network_->messages();
  result.bytes = network_->bytes();
  result.virtual_time = elapsed();
  return result;
}

simulation_result simulate(const simulation_options& options) {
  return simulation{options}.run();
}

} // namespace troupe
