#include "messages/scheduler.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/mailbox_element.hpp>
#include <caf/policy/work_sharing.hpp>
#include <caf/resumable.hpp>
#include <caf/scheduler/coordinator.hpp>

#include <cfenv>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// The longest turn: the time for which actors run on this thread one after the other. If a turn
/// takes longer, actors that are woken in it run on other threads, because the current actor may be
/// computing.
constexpr std::chrono::microseconds long_turn{50};

/// The actors that will run on this thread, and what the thread does now.
struct own_jobs {
  std::deque<caf::resumable*> waiting;
  /// The time at which the thread's turn began. A turn is a sequence of actors that run one after
  /// the other on this thread.
  std::chrono::steady_clock::time_point since;
  /// True while this thread has an object of receivers_run_here: actors that the thread wakes then
  /// run on this thread.
  bool wanted = false;
  bool running = false;
  /// True if this thread belongs to a scheduler.
  bool is_worker = false;

  void begin() { since = std::chrono::steady_clock::now(); }
  bool turn_is_over() const { return std::chrono::steady_clock::now() - since > long_turn; }

  caf::resumable* next() {
    auto* result = waiting.front();
    waiting.pop_front();
    return result;
  }
};

thread_local own_jobs here;

/// Sets the floating-point mode that a new thread has, and restores the previous mode at the end.
/// Without this, the results of an actor could depend on the thread that runs the actor.
class usual_arithmetic {
public:
  usual_arithmetic() noexcept {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~usual_arithmetic() { std::fesetenv(&before_); }
  usual_arithmetic(const usual_arithmetic&) = delete;
  usual_arithmetic& operator=(const usual_arithmetic&) = delete;

private:
  std::fenv_t before_;
};

/// The queue of actors that all threads of the scheduler share. Unlike its base class, it wakes a
/// thread only after it has unlocked the queue. Otherwise that thread would wake up, wait for the
/// lock, and have to be woken again.
class policy : public caf::policy::work_sharing {
public:
  template <class Coordinator>
  void enqueue(Coordinator* self, caf::resumable* job) {
    queue_type one{job};
    auto& shared = d(self);
    {
      const std::lock_guard guard{shared.lock};
      shared.queue.splice(shared.queue.end(), one);
    }
    shared.cv.notify_one();
  }

  template <class Coordinator>
  void central_enqueue(Coordinator* self, caf::resumable* job) {
    enqueue(self, job);
  }

  template <class Worker>
  void external_enqueue(Worker* self, caf::resumable* job) {
    enqueue(self->parent(), job);
  }

  template <class Worker>
  void resume_job_later(Worker* self, caf::resumable* job) {
    enqueue(self->parent(), job);
  }

  template <class Worker>
  void internal_enqueue(Worker* self, caf::resumable* job) {
    if (!here.is_worker || here.turn_is_over())
      enqueue(self->parent(), job);
    else
      here.waiting.push_back(job);
  }

  template <class Worker>
  caf::resumable* dequeue(Worker* self) {
    here.is_worker = true;
    if (!here.waiting.empty()) {
      auto* result = here.next();
      if (here.turn_is_over())
        for (; !here.waiting.empty();)
          enqueue(self->parent(), here.next());
      return result;
    }
    auto* result = work_sharing::dequeue(self);
    here.begin();
    return result;
  }
};

/// The clock of the scheduler, which delivers timeouts and delayed messages on its own thread. It
/// wakes this thread only if a new timeout is earlier than all others. The framework's own clock
/// wakes its thread each time that a timeout is set or cancelled, so at least twice for each
/// request.
class quiet_clock final : public caf::detail::thread_safe_actor_clock {
  using base = caf::detail::simple_actor_clock;

public:
  void start() {
    thread_ = std::thread{[this] { run(); }};
  }

  /// Ends the thread, and drops all timeouts and delayed messages.
  void stop() {
    {
      const std::lock_guard guard{mutex_};
      stops_ = true;
      changed_.notify_one();
    }
    thread_.join();
    cancel_all();
  }

  void set_ordinary_timeout(time_point t, caf::abstract_actor* self, caf::atom_value type,
                            std::uint64_t id) override {
    const std::lock_guard guard{mutex_};
    base::set_ordinary_timeout(t, self, type, id);
    wake_by(t);
  }

  void set_request_timeout(time_point t, caf::abstract_actor* self, caf::message_id id) override {
    const std::lock_guard guard{mutex_};
    base::set_request_timeout(t, self, id);
    wake_by(t);
  }

  void set_multi_timeout(time_point t, caf::abstract_actor* self, caf::atom_value type,
                         std::uint64_t id) override {
    const std::lock_guard guard{mutex_};
    base::set_multi_timeout(t, self, type, id);
    wake_by(t);
  }

  void cancel_ordinary_timeout(caf::abstract_actor* self, caf::atom_value type) override {
    const std::lock_guard guard{mutex_};
    base::cancel_ordinary_timeout(self, type);
  }

  void cancel_request_timeout(caf::abstract_actor* self, caf::message_id id) override {
    const std::lock_guard guard{mutex_};
    base::cancel_request_timeout(self, id);
  }

  void cancel_timeouts(caf::abstract_actor* self) override {
    const std::lock_guard guard{mutex_};
    base::cancel_timeouts(self);
  }

  void schedule_message(time_point t, caf::strong_actor_ptr receiver,
                        caf::mailbox_element_ptr content) override {
    const std::lock_guard guard{mutex_};
    base::schedule_message(t, std::move(receiver), std::move(content));
    wake_by(t);
  }

  void schedule_message(time_point t, caf::group target, caf::strong_actor_ptr sender,
                        caf::message content) override {
    const std::lock_guard guard{mutex_};
    base::schedule_message(t, std::move(target), std::move(sender), std::move(content));
    wake_by(t);
  }

  void cancel_all() override {
    schedule_map dropped; // Destroyed without the lock, because actors may end with it.
    const std::lock_guard guard{mutex_};
    dropped.swap(schedule_);
    actor_lookup_.clear();
  }

private:
  void wake_by(time_point t) {
    if (t < waits_until_)
      changed_.notify_one();
  }

  void run() {
    std::unique_lock guard{mutex_};
    while (!stops_) {
      waits_until_ = schedule_.empty() ? time_point::max() : schedule_.begin()->first;
      if (schedule_.empty())
        changed_.wait(guard);
      else
        changed_.wait_until(guard, waits_until_);
      waits_until_ = time_point::min();
      auto due = take_due();
      guard.unlock();
      for (auto& x : due)
        ship(*x);
      due.clear();
      guard.lock();
    }
  }

  std::vector<unique_delayed_event_ptr> take_due() {
    std::vector<unique_delayed_event_ptr> result;
    for (const auto t = now(); !schedule_.empty() && schedule_.begin()->first <= t;) {
      auto& x = result.emplace_back(std::move(schedule_.begin()->second));
      if (x->backlink != actor_lookup_.end())
        actor_lookup_.erase(x->backlink);
      schedule_.erase(schedule_.begin());
    }
    return result;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stops_ = false;
  /// The time at which the waiting thread will wake up. While the thread runs, this is the smallest
  /// possible time: a new timeout is then never earlier, so nobody wakes the thread.
  time_point waits_until_ = time_point::min();
  std::thread thread_;
};

class scheduler final : public caf::scheduler::coordinator<policy> {
public:
  using super = caf::scheduler::coordinator<policy>;

  using super::super;

  quiet_clock& clock() noexcept override { return clock_; }

protected:
  void start() override {
    clock_.start();
    super::start();
  }

  void stop() override {
    super::stop();
    clock_.stop();
  }

  // The framework calls this on a thread that does not belong to the scheduler, when that thread
  // wakes an actor.
  void enqueue(caf::resumable* job) override {
    if (!here.wanted || (here.running && here.turn_is_over())) {
      super::enqueue(job);
      return;
    }
    here.waiting.push_back(job);
    if (std::exchange(here.running, true))
      return;
    here.begin();
    {
      const usual_arithmetic mode;
      while (!here.waiting.empty())
        run(here.next());
    }
    here.running = false;
  }

private:
  // noexcept ends the program if an actor throws. Otherwise, the actors that wait behind it would
  // never run.
  void run(caf::resumable* job) noexcept {
    switch (job->resume(system().dummy_execution_unit(), max_throughput())) {
    case caf::resumable::resume_later:
      super::enqueue(job);
      break;
    default:
      caf::intrusive_ptr_release(job);
    }
  }

  quiet_clock clock_;
};

} // namespace

void load_scheduler(caf::actor_system_config& cfg) {
  cfg.module_factories.emplace_back(
    [](caf::actor_system& sys) -> caf::actor_system::module* { return new scheduler{sys}; });
}

void renew_turn() noexcept {
  here.begin();
}

void hand_over_receivers(caf::actor_system& sys) {
  const bool wanted = std::exchange(here.wanted, false);
  for (auto* x : std::exchange(here.waiting, {}))
    sys.scheduler().enqueue(x);
  here.wanted = wanted;
}

receivers_run_here::receivers_run_here() noexcept : before_(std::exchange(here.wanted, true)) {}

receivers_run_here::~receivers_run_here() {
  here.wanted = before_;
}

} // namespace troupe
