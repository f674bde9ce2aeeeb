#pragma once

#include "messages/synchronizer.hpp"

#include <atomic>
#include <string>

namespace troupe {

/// Something about a peer, or another program, that the operator should know.
struct link_notice {
  std::string text;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::link_notice)

namespace troupe {

/// Whether this message would end the actor that gets it, or make it believe that another one has
/// ended, although nobody of this process wants that. Any program that connects to a node's port
/// can send such messages. The actors of this process end each other by other means where they are
/// `guarded`.
bool is_foreign_order(const caf::mailbox_element& x, const caf::actor_system& home);

/// What the operator reads.
link_notice notice_of_foreign_order(const caf::mailbox_element& x, const char* receiver);

/// An actor that other processes can reach through the framework's own protocol. It ignores orders
/// to end, and false reports that another actor has ended: it counts them, and sends itself a
/// link_notice about the first. Only its own code ends it.
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
