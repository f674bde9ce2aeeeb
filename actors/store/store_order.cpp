#include "actors/store/store_order.hpp"

#include <algorithm>

namespace troupe {

bool store_order::open(std::uint64_t client, bool again) {
  if (again && !knows(client))
    return false;
  clients_[client].used = ++uses_;
  if (clients_.size() > most_clients)
    clients_.erase(std::ranges::min_element(clients_, {}, [](auto& x) { return x.second.used; }));
  return true;
}

void store_order::close(std::uint64_t client) {
  clients_.erase(client);
}

store_order::turn store_order::judge(std::uint64_t client, std::uint64_t number) {
  auto& x = clients_.at(client);
  x.used = ++uses_;
  if (number == 0 || number >= x.next + store_window::operations)
    return turn::impossible;
  if (number < x.next)
    return turn::done;
  return number == x.next ? turn::due : turn::early;
}

} // namespace troupe
