#include "actors/link/link_secret.hpp"

#include "actors/model/sha256.hpp"
#include "messages/configure.hpp"

#include <algorithm>
#include <cerrno>
#include <span>
#include <system_error>

#include <sys/random.h>

namespace troupe {

namespace {

constexpr std::size_t block_bytes = 64;

std::string digest_of(const std::string& text) {
  const auto digest = sha256(std::as_bytes(std::span{text}));
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

void put(std::string& to, std::uint64_t x) {
  for (int i = 0; i < 8; ++i)
    to += static_cast<char>(x >> (8 * i) & 0xFF);
}

void put(std::string& to, std::string_view x) {
  put(to, x.size());
  to += x;
}

void put(std::string& to, const link_peer& x) {
  put(to, to_string(x.task));
  put(to, x.incarnation);
}

} // namespace

std::string hmac_sha256(std::string_view key, std::string_view text) {
  auto block = key.size() > block_bytes ? digest_of(std::string{key}) : std::string{key};
  block.resize(block_bytes, '\0');
  auto inner = block;
  auto outer = block;
  for (auto& x : inner)
    x = static_cast<char>(x ^ 0x36);
  for (auto& x : outer)
    x = static_cast<char>(x ^ 0x5C);
  return digest_of(outer + digest_of(inner.append(text)));
}

bool equal_in_constant_time(std::string_view a, std::string_view b) noexcept {
  if (a.size() != b.size())
    return false;
  volatile unsigned char different = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    different = static_cast<unsigned char>(different | (a[i] ^ b[i]));
  return different == 0;
}

std::string random_text() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw std::system_error{errno, std::generic_category(), "no random numbers"};
  std::string result;
  for (const auto x : bytes) {
    constexpr std::string_view digits = "0123456789abcdef";
    result += digits[x >> 4];
    result += digits[x & 15];
  }
  return result;
}

std::string proof_of(link_side who, const link_introduction& x, std::string_view secret) {
  std::string text;
  put(text, who == link_side::dialling ? "troupe: dialling" : "troupe: dialled");
  put(text, wire_version);
  put(text, x.dialling);
  put(text, x.dialled);
  put(text, x.dialling_nonce);
  put(text, x.dialled_nonce);
  return hmac_sha256(secret, text);
}

} // namespace troupe
