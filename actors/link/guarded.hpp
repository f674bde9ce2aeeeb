#pragma once

#include "messages/synchronizer.hpp"

#include <atomic>
#include <string>

namespace troupe {

/// A notice for the operator about a peer or another program.
struct link_notice {
  std::string text;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::link_notice)

namespace troupe {

/// True if this message would end its receiver, or falsely report that another actor has ended. Any
/// program that connects to a node's port can send such a message. This process never sends one to
/// a `guarded` actor, because it ends these actors by other means.
bool is_foreign_order(const caf::mailbox_element& x, const caf::actor_system& home);

/// The text for the operator about a message for which is_foreign_order() is true.
link_notice notice_of_foreign_order(const caf::mailbox_element& x, const char* receiver);

/// An actor that other processes can reach through the framework's own protocol. It ignores orders
/// to end, and false reports that another actor has ended. It counts these messages, and sends
/// itself a link_notice about the first one. Only its own code ends it.
template <class Base>
class guarded : public Base {
public:
  using Base::Base;
  using Base::enqueue;

  void enqueue(caf::mailbox_element_ptr what, caf::execution_unit* context) override {
    if (!is_foreign_order(*what, this->home_system())) {
      Base::enqueue(std::move(what), context);
      return;
    }
    if (ignored_++ == 0)
      Base::enqueue(caf::make_mailbox_element(nullptr, caf::make_message_id(), {},
                                              notice_of_foreign_order(*what, this->name())),
                    context);
  }

private:
  std::atomic<std::uint64_t> ignored_ = 0;
};

} // namespace troupe
