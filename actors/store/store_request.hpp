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

/// What a client does with ranges of a store.
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
  /// The names of the client and of the operation are still missing.
  proto::StoreRequest header;
  /// Values to send.
  payload values;
  /// Position of its elements in the whole operation, and their number.
  std::size_t begin = 0;
  std::size_t count = 0;
};

/// Cuts an operation where the servers' parts meet. `servers`: their parts, in order. `values`
/// holds the values of all ranges, if there are any to send; the parts share its bytes. Throws
/// std::invalid_argument if the ranges do not ascend, overlap or leave the store, or if there are
/// more or fewer values.
std::vector<store_part> cut(store_work what, std::span<const range> ranges, const payload& values,
                            std::span<const range> servers);

/// The ranges of a request that a server has got; neighbours are joined. Empty if it asks for
/// nothing, or `problem` says what is wrong with it: ranges that do not ascend or are not of the
/// server's part, or another number of values.
std::vector<range> ranges_of(const proto::StoreRequest& x, const payload& values,
                             const range& server, std::string& problem);

} // namespace troupe
