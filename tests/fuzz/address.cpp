// Fuzz target: addresses of tasks.

#include "actors/cluster/address.hpp"
#include "tests/fuzz/target.hpp"

using namespace troupe;

TROUPE_FUZZ_TARGET(address, input) {
  const std::string text{fuzz::as_text(input)};
  std::string host;
  std::uint16_t port = 0;
  if (!split_address(text, host, port))
    return;
  fuzz::require(!host.empty(), "an address has a host");
  std::string again;
  std::uint16_t same = 0;
  fuzz::require(split_address('[' + host + "]:" + std::to_string(port), again, same)
                  && again == host && same == port,
                "an address that is written and read is the same address");
}
