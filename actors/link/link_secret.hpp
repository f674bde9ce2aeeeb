#pragma once

#include "actors/link/permissions.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

/// HMAC-SHA256 (RFC 2104), 32 bytes.
std::string hmac_sha256(std::string_view key, std::string_view text);

/// Compares two texts. For texts of equal length, the time does not depend on their contents, so it
/// reveals nothing about a secret.
bool equal_in_constant_time(std::string_view a, std::string_view b) noexcept;

/// 128 random bits of the system as 32 hexadecimal digits. Throws std::system_error.
std::string random_text();

/// The facts about a new link that both nodes know. Each node sends an HMAC over these facts, with
/// the cluster's secret as key, to prove that it knows the secret. A proof is therefore valid only
/// for one link, one direction and these two nodes.
struct link_introduction {
  link_peer dialling;
  link_peer dialled;
  /// Random texts of the two nodes.
  std::string dialling_nonce;
  std::string dialled_nonce;
};

enum class link_side : std::uint8_t { dialling, dialled };

/// The proof that the node on side `who` sends: an HMAC over its side and `x`.
std::string proof_of(link_side who, const link_introduction& x, std::string_view secret);

} // namespace troupe
