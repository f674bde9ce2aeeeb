#pragma once

#include "kernels/range.hpp"
#include "messages/buffer.hpp"
#include "messages/proto/store.pb.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// The operations of a client on ranges of a store.
enum class store_work : std::uint8_t { push, assign, pull, push_pull };

constexpr bool sends_values(store_work x) noexcept {
  return x != store_work::pull;
}
constexpr bool gets_values(store_work x) noexcept {
  return x == store_work::pull || x == store_work::push_pull;
}

/// The number of elements in all ranges.
std::size_t elements_of(std::span<const range> ranges) noexcept;

/// The part of an operation at one server.
struct store_part {
  std::size_t server = 0;
  /// The request to send. The client still adds its name and the number of the operation.
  proto::StoreRequest header;
  /// The values to send.
  payload values;
  /// Position of this part's elements in the whole operation, and their number.
  std::size_t begin = 0;
  std::size_t count = 0;
};

/// Divides an operation among the servers.
/// @param values the values of all ranges, if the operation sends values; the results share its
/// bytes
/// @param servers the servers' parts of the store, in order
/// @throws std::invalid_argument if the ranges do not ascend, if they overlap or leave the store,
/// or if the number of values is wrong
std::vector<store_part> cut(store_work what, std::span<const range> ranges, const payload& values,
                            std::span<const range> servers);

/// Returns the ranges of a request that a server received. Adjacent ranges are joined. A request is
/// invalid if its ranges do not ascend or leave the server's part, or if the number of values is
/// wrong. The result is then empty, and `problem` describes the mistake.
std::vector<range> ranges_of(const proto::StoreRequest& x, const payload& values,
                             const range& server, std::string& problem);

} // namespace troupe
