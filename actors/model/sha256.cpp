#include "actors/model/sha256.hpp"

#include <array>
#include <bit>
#include <new>
#include <string_view>

#include <openssl/evp.h>

namespace troupe {

static_assert(std::endian::native == std::endian::little, "floats are hashed as they are");

std::array<std::byte, 32> sha256(std::span<const std::byte> bytes) {
  std::array<std::byte, 32> result{};
  if (EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(result.data()),
                 nullptr, EVP_sha256(), nullptr)
      != 1)
    throw std::bad_alloc{}; // OpenSSL fails here only if memory runs out
  return result;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string result;
  for (const auto byte : sha256(bytes)) {
    result += digits[std::to_integer<unsigned>(byte) >> 4];
    result += digits[std::to_integer<unsigned>(byte) & 15];
  }
  return result;
}

std::string sha256_hex(std::span<const float> values) {
  return sha256_hex(std::as_bytes(values));
}

} // namespace troupe
