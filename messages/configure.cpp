#include "messages/configure.hpp"

#include "messages/collective.hpp"
#include "messages/errors.hpp"
#include "messages/pieces.hpp"
#include "messages/scheduler.hpp"
#include "messages/store.hpp"
#include "messages/types.hpp"

#include <caf/io/basp/header.hpp>
#include <caf/thread_hook.hpp>

#include <atomic>
#include <chrono>
#include <random>
#include <string>

#include <dlfcn.h>
#include <sched.h>

namespace troupe {

namespace {

std::atomic<std::uint32_t> longest_message = longest_framework_message;

/// Lets every thread of an actor system use all processors of the process. Without this hook, a new
/// thread may use only the processors of the thread that starts it, and that thread may be bound to
/// one processor (see peer_reader).
class all_processors final : public caf::thread_hook {
public:
  void init(caf::actor_system&) override {
    known_ = ::sched_getaffinity(0, sizeof processors_, &processors_) == 0;
  }

  void thread_started() override {
    if (known_)
      ::sched_setaffinity(0, sizeof processors_, &processors_);
  }

  void thread_terminates() override {}

private:
  cpu_set_t processors_{};
  bool known_ = false;
};

} // namespace

const char* version() noexcept {
  return TROUPE_VERSION;
}

void configure(caf::actor_system_config& cfg) {
  cfg.add_message_types<caf::id_block::troupe>();
  cfg.add_message_types<caf::id_block::troupe_collective>();
  cfg.add_message_types<caf::id_block::troupe_store>();
  cfg.add_message_types<caf::id_block::troupe_pieces>();
  cfg.error_renderers.emplace(caf::atom("troupe"),
                              [](std::uint8_t code, caf::atom_value, const caf::message& context) {
                                return explain({code, caf::atom("troupe"), context});
                              });
}

void limit_framework_messages(std::uint32_t bytes) noexcept {
  longest_message = bytes;
}

void tune(caf::actor_system_config& cfg) {
  load_scheduler(cfg);
  cfg.add_thread_hook<all_processors>();
  cfg.set("scheduler.max-throughput", std::size_t{100});
  // If nothing arrives from a peer before the timeout, the peer is treated as lost. Heartbeats keep
  // idle connections alive.
  cfg.set("middleman.heartbeat-interval", caf::timespan{std::chrono::seconds{1}});
  cfg.set("middleman.connection-timeout", caf::timespan{std::chrono::seconds{10}});
  cfg.set("middleman.enable-automatic-connections", false);
}

} // namespace troupe

// get_root_uuid() and valid() below replace functions of the framework with the same names, because
// the dynamic linker finds the functions of this file first. The framework makes the name of a
// process from the result of get_root_uuid() and the process ID. The framework's get_root_uuid()
// would return the ID of the host. Then two containers could have equal names, if each runs as
// process 1 and their hosts have equal IDs. The function below returns random numbers, so the names
// differ.
namespace caf::detail {

std::string get_root_uuid() {
  std::random_device random;
  std::string result;
  for (int i = 0; i < 4; ++i)
    result += std::to_string(random()) + '-';
  return result;
}

} // namespace caf::detail

// The framework calls this function for the header of each message, before it allocates the memory
// that the header announces. If the result is false, the framework closes the connection.
namespace caf::io::basp {

bool valid(const header& hdr) {
  using function = bool (*)(const header&);
  static const auto original =
    reinterpret_cast<function>(::dlsym(RTLD_NEXT, "_ZN3caf2io4basp5validERKNS1_6headerE"));
  return hdr.payload_len <= troupe::longest_message && (original == nullptr || original(hdr));
}

} // namespace caf::io::basp
