#include "actors/link/guarded.hpp"

#include <caf/make_type_erased_value.hpp>
#include <caf/system_messages.hpp>

namespace troupe {

bool is_foreign_order(const caf::mailbox_element& x, const caf::actor_system& home) {
  if (x.mid.is_response())
    return x.sender && x.sender->node() != home.node();
  const auto& content = const_cast<caf::mailbox_element&>(x).content();
  const auto token = content.type_token();
  if (token == caf::make_type_token<caf::exit_msg>() || token == caf::make_type_token<caf::error>())
    return true;
  if (token != caf::make_type_token<caf::down_msg>())
    return false;
  const auto source =
    caf::actor_cast<caf::strong_actor_ptr>(content.get_as<caf::down_msg>(0).source);
  return source && !source->get()->getf(caf::abstract_actor::is_terminated_flag);
}

link_notice notice_of_foreign_order(const caf::mailbox_element& x, const char* receiver) {
  const auto from = x.sender ? ", from the program " + caf::to_string(x.sender->node()) : "";
  return {std::string{receiver} + " ignored a message of another program that would have ended it"
          + from + "; others like it are counted, not shown"};
}

} // namespace troupe
