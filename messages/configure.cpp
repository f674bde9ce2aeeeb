#include "messages/configure.hpp"

#include "messages/collective.hpp"
#include "messages/errors.hpp"
#include "messages/pieces.hpp"
#include "messages/scheduler.hpp"
#include "messages/store.hpp"
#include "messages/types.hpp"

#include <random>
#include <string>

namespace troupe {

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

void tune(caf::actor_system_config& cfg) {
  load_scheduler(cfg);
  cfg.set("scheduler.max-throughput", std::size_t{100});
  // A peer is given up if nothing arrives from it before the timeout. Heartbeats keep idle
  // connections alive.
  cfg.set("middleman.heartbeat-interval", caf::timespan{std::chrono::seconds{1}});
  cfg.set("middleman.connection-timeout", caf::timespan{std::chrono::seconds{10}});
  cfg.set("middleman.enable-automatic-connections", false);
}

} // namespace troupe

// Replaces a function of the framework: the dynamic linker takes this one. The framework makes the
// name of a process from its result. The framework's version returns the host's id, so containers
// that start as process 1 on hosts with equal ids would have equal names.
namespace caf::detail {

std::string get_root_uuid() {
  std::random_device random;
  std::string result;
  for (int i = 0; i < 4; ++i)
    result += std::to_string(random()) + '-';
  return result;
}

} // namespace caf::detail
