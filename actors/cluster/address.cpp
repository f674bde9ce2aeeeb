#include "actors/cluster/address.hpp"

#include <charconv>

namespace troupe {

bool split_address(const std::string& address, std::string& host, std::uint16_t& port) {
  const auto colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0)
    return false;
  host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  // Refuse a URL, and a text of several words.
  if (host.find_first_of("/ \t") != std::string::npos)
    return false;
  const auto* first = address.data() + colon + 1;
  const auto* last = address.data() + address.size();
  const auto [end, error] = std::from_chars(first, last, port);
  return error == std::errc{} && end == last && first != last;
}

} // namespace troupe
