#include "actors/store/store_inbox.hpp"

#include <utility>

namespace troupe {

store_inbox::~store_inbox() = default;

std::uint64_t store_inbox::ask(const caf::strong_actor_ptr& receiver, caf::message request) {
  std::uint64_t number = 0;
  {
    const std::lock_guard guard{mutex_};
    number = ++last_;
    answers_.emplace(number, std::nullopt);
  }
  receiver->enqueue(caf::make_mailbox_element(caf::strong_actor_ptr{ctrl()},
                                              caf::make_message_id(number), {}, std::move(request)),
                    nullptr);
  return number;
}

bool store_inbox::has(std::uint64_t number) {
  const std::lock_guard guard{mutex_};
  const auto place = answers_.find(number);
  return place == answers_.end() || place->second.has_value();
}

std::optional<caf::message> store_inbox::take(std::uint64_t number, clock::time_point deadline) {
  std::unique_lock lock{mutex_};
  const auto place = answers_.find(number);
  if (place == answers_.end())
    return std::nullopt;
  awaited_ = number;
  const bool came = came_.wait_until(lock, deadline, [&] { return place->second.has_value(); });
  awaited_ = 0;
  if (!came)
    return std::nullopt;
  auto result = std::move(place->second);
  answers_.erase(place);
  return result;
}

void store_inbox::forget(std::uint64_t number) {
  const std::lock_guard guard{mutex_};
  answers_.erase(number);
}

void store_inbox::enqueue(caf::mailbox_element_ptr what, caf::execution_unit*) {
  if (!what->mid.is_response())
    return;
  bool awaited = false;
  {
    const std::lock_guard guard{mutex_};
    const auto number = what->mid.request_id().integer_value();
    const auto place = answers_.find(number);
    if (place == answers_.end())
      return;
    place->second = what->move_content_to_message();
    awaited = number == awaited_;
  }
  if (awaited)
    came_.notify_one();
}

void store_inbox::kill_proxy(caf::execution_unit* context, caf::error reason) {
  cleanup(std::move(reason), context);
}

inbox_owner::inbox_owner(caf::actor_system& sys) {
  caf::actor_config cfg;
  actor_ =
    caf::make_actor<store_inbox, caf::strong_actor_ptr>(sys.next_actor_id(), sys.node(), &sys, cfg);
}

inbox_owner::~inbox_owner() {
  (*this)->kill_proxy(nullptr, caf::exit_reason::user_shutdown);
}

store_inbox& inbox_owner::operator*() const noexcept {
  return *static_cast<store_inbox*>(actor_->get());
}

} // namespace troupe
