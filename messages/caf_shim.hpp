#pragma once

#include "messages/buffer.hpp"

#include <caf/all.hpp>

#include <google/protobuf/message_lite.h>

#include <concepts>
#include <string>

// Everything that depends on the version of the actor framework: how messages are serialized, and
// how typed signatures are written.

namespace troupe {

/// The largest payload, in bytes, that a message over the framework's network protocol can contain.
/// Larger payloads travel in chunks (transfer.hpp).
inline constexpr std::size_t max_inline_bytes = std::size_t{16} << 20;

template <class T>
concept header = std::derived_from<T, google::protobuf::MessageLite>;

/// True for a plain struct that is sent only between actors of one process. The struct may
/// therefore contain pointers and payloads. The macro TROUPE_LOCAL_MESSAGE (synchronizer.hpp) makes
/// this true for a struct.
template <class T>
struct is_local_message : std::false_type {};

/// Types that a message may contain: Protobuf headers, payloads and local structs. Plain numbers
/// are excluded, because the framework's serialization changes NaN, infinity, -0 and denormals.
template <class T>
concept message_type = header<T> || std::same_as<T, payload> || is_local_message<T>::value;

template <message_type... Ts>
struct reply {};

namespace detail {

template <class Out, class... In>
struct rpc_signature {
  using type = typename caf::replies_to<In...>::template with<Out>;
};

template <class... Out, class... In>
struct rpc_signature<reply<Out...>, In...> {
  using type = typename caf::replies_to<In...>::template with<Out...>;
};

template <class... In>
struct rpc_signature<void, In...> {
  using type = caf::reacts_to<In...>;
};

template <class T>
inline constexpr bool is_output = message_type<T> || std::same_as<T, void>;

template <class... Ts>
inline constexpr bool is_output<reply<Ts...>> = true;

/// Writes or reads a header: its length in bytes, then its bytes in Protobuf's binary format.
caf::error save_header(caf::serializer& sink, const google::protobuf::MessageLite& x);
caf::error load_header(caf::deserializer& source, google::protobuf::MessageLite& x);

} // namespace detail

/// A typed signature. `rpc<Out, In...>` is a message with the values In, whose answer has the value
/// Out. The answer of `rpc<reply<Weights, payload>, Pull>` has two values. `rpc<void, Heartbeat>`
/// has no answer.
template <class Out, message_type... In>
requires(detail::is_output<Out>) using rpc = typename detail::rpc_signature<Out, In...>::type;

/// Writes or reads a payload: its length in bytes, then the bytes. The bytes are copied once, to or
/// from the framework's buffer.
caf::error inspect(caf::serializer& sink, payload& x);
caf::error inspect(caf::deserializer& source, payload& x);
std::string to_string(const payload& x);

namespace proto {

template <header T>
caf::error inspect(caf::serializer& sink, T& x) {
  return detail::save_header(sink, x);
}

template <header T>
caf::error inspect(caf::deserializer& source, T& x) {
  return detail::load_header(source, x);
}

template <header T>
std::string to_string(const T& x) {
  return x.ShortDebugString();
}

} // namespace proto

} // namespace troupe
