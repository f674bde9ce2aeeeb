#include "kernels/formats/npy.hpp"

#include "tests/support/input_errors.hpp"

#include <array>
#include <cstring>

BOOST_AUTO_TEST_SUITE(npy)

using namespace troupe;
using namespace troupe::test;

namespace {

/// An .npy file with this header and these values.
std::vector<std::byte> with_header(std::string_view header, std::string_view values,
                                   char version = 1) {
  std::string text = "\x93NUMPY";
  text +=
    {version, '\0', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  if (version > 1)
    text += {'\0', '\0'};
  return bytes_of(text + std::string{header} + std::string{values});
}

template <class T>
std::vector<std::byte> written(npy_type type, std::vector<std::uint64_t> shape,
                               std::vector<T> values) {
  return write_npy(type, shape, std::as_bytes(std::span{values}));
}

void check_values(const std::vector<std::byte>& file, npy_type type,
                  const std::vector<double>& expected) {
  const auto x = parse_npy(file, "x");
  BOOST_TEST((x.type == type));
  BOOST_TEST(x.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    BOOST_TEST(x.at(i) == expected[i]);
}

} // namespace

BOOST_AUTO_TEST_CASE(what_is_written_is_read) {
  check_values(written<std::uint8_t>(npy_type::u8, {3}, {0, 7, 255}), npy_type::u8, {0, 7, 255});
  check_values(written<std::int32_t>(npy_type::i32, {2, 1}, {-5, 1 << 30}), npy_type::i32,
               {-5, 1 << 30});
  check_values(written<std::int64_t>(npy_type::i64, {2}, {-1, 1LL << 40}), npy_type::i64,
               {-1, 1LL << 40});
  check_values(written<float>(npy_type::f32, {1, 2}, {0.5F, -3}), npy_type::f32, {0.5, -3});
  check_values(written<double>(npy_type::f64, {}, {1e300}), npy_type::f64, {1e300});
  check_values(written<float>(npy_type::f32, {3, 0, 4}, {}), npy_type::f32, {});
  const auto file = written<float>(npy_type::f32, {2, 3}, {1, 2, 3, 4, 5, 6});
  const std::vector<std::uint64_t> shape{2, 3};
  BOOST_TEST(parse_npy(file, "x").shape == shape);
  BOOST_TEST((file.size() - 24) % 64 == 0u);
  BOOST_TEST(contains(error_of([&] { write_npy(npy_type::f32, shape, {}); }), "do not fill"));
}

BOOST_AUTO_TEST_CASE(headers_that_numpy_writes) {
  const std::string values(12, '\1');
  for (const char version : {1, 2, 3}) {
    const auto file = with_header(
      "{'descr': '|u1', 'fortran_order': False, 'shape': (4, 3), }   \n", values, version);
    BOOST_TEST(parse_npy(file, "x").size() == 12u);
  }
  const auto other_order =
    with_header("{\"shape\":(12,),\"fortran_order\":True,\"descr\":\"<u1\"}", values);
  // In an array with one dimension, C order and Fortran order are the same.
  BOOST_TEST(parse_npy(other_order, "x").size() == 12u);
}

BOOST_AUTO_TEST_CASE(errors_say_what_to_do) {
  const auto error = [](std::string_view header, std::string_view values = "") {
    return error_of([&] { parse_npy(with_header(header, values), "x.npy"); });
  };
  const auto of = [](std::string_view descr, std::string_view order, std::string_view shape) {
    return "{'descr': " + std::string{descr} + ", 'fortran_order': " + std::string{order}
    + ", 'shape': " + std::string{shape} + "}";
  };
  BOOST_TEST(contains(error(of("'>f4'", "False", "(1,)")), "x.npy: elements of type \">f4\""));
  BOOST_TEST(contains(error(of("'|O'", "False", "(1,)")), "elements of type \"|O\""));
  BOOST_TEST(
    contains(error(of("'<U4'", "False", "(1,)")), "save numpy.unique(x, return_inverse=True)[1]"));
  BOOST_TEST(contains(error(of("'|b1'", "False", "(1,)")), "x.astype(\"<i4\") for classes"));
  BOOST_TEST(contains(error(of("[('a', '<f4')]", "False", "(1,)")), "structured array"));
  BOOST_TEST(contains(error(of("'<f4'", "True", "(2, 2)")), "ascontiguousarray"));
  BOOST_TEST(contains(error(of("'<f4'", "1", "(2, 2)")), "neither True nor False"));
  BOOST_TEST(contains(error(of("'<f4'", "False", "(2, x)")), "no whole number"));
  BOOST_TEST(contains(error(of("'<f4'", "False", "(-2,)")), "no whole number"));
  BOOST_TEST(contains(error("{'descr': '<f4'}"), "a key that is missing"));
  BOOST_TEST(contains(error("{'descr': '<f4', 'descr': '<f4'}"), "appears twice"));
  BOOST_TEST(contains(error(of("'<f4'", "False", "(2,)") + " x", "12345678"), "text after"));
  BOOST_TEST(contains(error(of("'<f4'", "False", "(2,)"), "1234567"),
                      "truncated: shape (2) of float32 takes 8 bytes of values, the file has 7"));
  BOOST_TEST(contains(error(of("'<f4'", "False", "(2,)"), "123456789"), "too long"));
  BOOST_TEST(contains(error_of([] { parse_npy(bytes_of("PK"), "x"); }), "not a .npy file"));
  BOOST_TEST(contains(error_of([] { parse_npy(with_header("", "", 4), "x"); }), "version 4"));
}

BOOST_AUTO_TEST_CASE(hostile_input) {
  const auto parse = [](auto b) { parse_npy(b, "x"); };
  const auto good = written<float>(npy_type::f32, {2, 3}, {1, 2, 3, 4, 5, 6});
  BOOST_TEST(survive_hostile_variants(good, parse) == 0u);
  const auto error = [&](std::string_view shape) {
    return error_of([&] {
      parse(
        with_header("{'descr': '<f8', 'fortran_order': False, 'shape': " + std::string{shape} + "}",
                    "12345678"));
    });
  };
  BOOST_TEST(contains(error("(1000000000000000000,)"), "truncated: shape (1000000000000000000)"));
  BOOST_TEST(contains(error("(4294967296, 4294967296)"), "larger than any file"));
  BOOST_TEST(contains(error("(99999999999999999999,)"), "larger than any file"));
  std::string many = "(";
  for (int i = 0; i < 100; ++i)
    many += "1,";
  BOOST_TEST(contains(error(many + ")"), "more than 64 dimensions"));
}

BOOST_AUTO_TEST_SUITE_END()
