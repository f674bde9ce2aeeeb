#include "kernels/formats/characters.hpp"

#include "tests/support/input_errors.hpp"

BOOST_AUTO_TEST_SUITE(characters)

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_CASE(utf8_there_and_back) {
  std::u32string all;
  for (const char32_t c :
       {0x0, 0x41, 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xe000, 0xffff, 0x10000, 0x10ffff})
    all += c;
  const auto text = encode_utf8(all);
  BOOST_TEST(text.size() == 3 * 1 + 2 * 2 + 4 * 3 + 2 * 4u);
  BOOST_TEST((decode_utf8(bytes_of(text), "x") == all));
  BOOST_TEST(encode_utf8(U"\xd800") == encode_utf8(U"\xfffd"));
}

BOOST_AUTO_TEST_CASE(what_is_not_utf8) {
  for (const std::string bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80",
                                "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff",
                                "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xc3\x28"})
    BOOST_TEST(contains(error_of([&] { decode_utf8(bytes_of("ab\nc" + bad), "x.txt"); }),
                        "x.txt:2: byte 4 of the file is not UTF-8"));
}

BOOST_AUTO_TEST_CASE(vocabulary_of_a_text) {
  const vocabulary known{U"to be, or not"};
  BOOST_TEST((known.characters() == U" ,benort"));
  const auto tokens = known.encode(U"no, be", "x");
  BOOST_TEST(tokens == (std::vector<std::int32_t>{4, 5, 1, 0, 2, 3}));
  BOOST_TEST((known.decode(tokens) == U"no, be"));
  BOOST_TEST(vocabulary{}.size() == 0u);
  BOOST_TEST(contains(error_of([&] { known.encode(U"be\nx", "a.txt"); }),
                      "a.txt:1:3: the character \"\\n\" is not one of the 8"));
  const vocabulary lines{U"be\n"};
  BOOST_TEST(contains(error_of([&] { lines.encode(U"be\neex", "a.txt"); }),
                      "a.txt:2:3: the character \"x\""));
}

// The characters of a text are collected in pieces, which must not affect the result.
BOOST_AUTO_TEST_CASE(large_vocabulary) {
  std::u32string text;
  for (char32_t i = 0; i < 40'000; ++i)
    text += 0x20 + (i * 7919) % 20'011;
  const vocabulary known{text};
  BOOST_TEST(known.size() == 20'011u);
  BOOST_TEST((known.decode(known.encode(text, "x")) == text));
}

BOOST_AUTO_TEST_SUITE_END()
