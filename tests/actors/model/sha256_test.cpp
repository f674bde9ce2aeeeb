#include "actors/model/sha256.hpp"

#include "kernels/formats/file.hpp"

#include <array>

#include <boost/test/unit_test.hpp>

BOOST_AUTO_TEST_SUITE(sha256)

using namespace troupe;

// The examples in FIPS 180-4.
BOOST_AUTO_TEST_CASE(known_values) {
  BOOST_TEST(sha256_hex(as_byte_span(""))
             == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  BOOST_TEST(sha256_hex(as_byte_span("abc"))
             == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

BOOST_AUTO_TEST_CASE(floats_by_their_bytes) {
  const std::array<float, 1> one{1.0F};
  const std::array<std::byte, 4> bytes{std::byte{0}, std::byte{0}, std::byte{0x80},
                                       std::byte{0x3f}};
  BOOST_TEST(sha256_hex(std::span<const float>{one})
             == sha256_hex(std::span<const std::byte>{bytes}));
  const std::array<float, 1> plus{0.0F};
  const std::array<float, 1> minus{-0.0F};
  BOOST_TEST(sha256_hex(std::span<const float>{plus}) != sha256_hex(std::span<const float>{minus}));
}

BOOST_AUTO_TEST_SUITE_END()
