#pragma once

#include "messages/configure.hpp"
#include "messages/types.hpp"

#include <caf/all.hpp>

#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

namespace troupe::test {

/// An actor system that knows troupe's message types, like the system of an embedding program.
class codec {
public:
  codec() : sys_(configured(cfg_)) {}

  /// Encodes a value as for a connection.
  template <class T>
  std::vector<char> encode(T x) {
    std::vector<char> bytes;
    error_of_encode = encode_to(bytes, x);
    return bytes;
  }

  template <class T>
  caf::error encode_to(std::vector<char>& bytes, T& x) {
    caf::binary_serializer sink{sys_, bytes};
    return sink(x);
  }

  template <class T>
  caf::error decode(std::span<const char> bytes, T& x) {
    caf::binary_deserializer source{sys_, bytes.data(), bytes.size()};
    caf::error result;
    // Loads a message with load(), because CAF's operator() would hide an error inside it and give
    // an empty message.
    if constexpr (std::is_same_v<T, caf::message>)
      result = x.load(source);
    else
      result = source(x);
    left = source.remaining();
    return result;
  }

  caf::actor_system& system() { return sys_; }

  caf::error error_of_encode;
  /// Number of bytes that the last decode did not read.
  std::size_t left = 0;

private:
  static caf::actor_system_config& configured(caf::actor_system_config& cfg) {
    configure(cfg);
    cfg.set("scheduler.max-threads", std::size_t{1});
    return cfg;
  }

  caf::actor_system_config cfg_;
  caf::actor_system sys_;
};

} // namespace troupe::test
