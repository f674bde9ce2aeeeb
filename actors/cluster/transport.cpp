#include "actors/cluster/transport.hpp"

#include <charconv>

namespace troupe {

transport::~transport() = default;

bool split_address(const std::string& address, std::string& host, std::uint16_t& port) {
  const auto colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0)
    return false;
  host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  const auto* first = address.data() + colon + 1;
  const auto* last = address.data() + address.size();
  const auto [end, error] = std::from_chars(first, last, port);
  return error == std::errc{} && end == last && first != last;
}

} // namespace troupe
