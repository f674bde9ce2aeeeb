#include "actors/model/sha256.hpp"

#include <array>
#include <bit>
#include <new>
#include <string_view>

#include <openssl/evp.h>

namespace troupe {

static_assert(std::endian::native == std::endian::little, "floats are hashed as they are");

std::string sha256_hex(std::span<const std::byte> bytes) {
  std::array<unsigned char, 32> digest{};
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(), nullptr) != 1)
    throw std::bad_alloc{}; // the only possible failure
  constexpr std::string_view digits = "0123456789abcdef";
  std::string result;
  for (const auto byte : digest) {
    result += digits[byte >> 4];
    result += digits[byte & 15];
  }
  return result;
}

std::string sha256_hex(std::span<const float> values) {
  return sha256_hex(std::as_bytes(values));
}

} // namespace troupe
