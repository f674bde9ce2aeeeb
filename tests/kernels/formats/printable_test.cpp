#include "kernels/formats/printable.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace std::string_view_literals;

BOOST_AUTO_TEST_SUITE(printable)

BOOST_AUTO_TEST_CASE(text_stays) {
  BOOST_TEST(troupe::printable("") == "");
  BOOST_TEST(troupe::printable("sales, 12 %") == "sales, 12 %");
  BOOST_TEST(troupe::printable("Größe \xe2\x82\xac \xf0\x9f\x98\x80")
             == "Größe \xe2\x82\xac \xf0\x9f\x98\x80");
}

BOOST_AUTO_TEST_CASE(controls_are_named) {
  BOOST_TEST(troupe::printable("a\tb\r\nc\x1b[2J\x7f"sv) == "a\\tb\\r\\nc\\x1b[2J\\x7f");
  BOOST_TEST(troupe::printable("\0"sv) == "\\x00");
  // U+009B is escaped, because it begins a terminal command, like ESC [.
  BOOST_TEST(troupe::printable("\xc2\x9b") == "\\xc2\\x9b");
}

BOOST_AUTO_TEST_CASE(lines_are_kept_where_asked) {
  BOOST_TEST(troupe::printable("a\nb\tc", true) == "a\nb\\tc");
}

BOOST_AUTO_TEST_CASE(what_is_not_utf8_is_named) {
  BOOST_TEST(troupe::printable("\xff\x80") == "\\xff\\x80");
  BOOST_TEST(troupe::printable("\xe2\x82") == "\\xe2\\x82"); // truncated
  BOOST_TEST(troupe::printable("\xe2"
                               "a")
             == "\\xe2"
                "a");                                        // no continuation byte
  BOOST_TEST(troupe::printable("\xc0\xaf") == "\\xc0\\xaf"); // longer than needed
  BOOST_TEST(troupe::printable("\xe0\x80\x80") == "\\xe0\\x80\\x80");
  BOOST_TEST(troupe::printable("\xed\xa0\x80") == "\\xed\\xa0\\x80"); // a surrogate
  BOOST_TEST(troupe::printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
}

BOOST_AUTO_TEST_CASE(every_byte) {
  for (int c = 0; c < 256; ++c) {
    const std::string text(1, static_cast<char>(c));
    const auto shown = troupe::printable(text);
    BOOST_TEST((shown == text) == (c >= 0x20 && c < 0x7f));
    for (auto x : shown)
      BOOST_TEST((x >= 0x20 && x < 0x7f));
  }
}

BOOST_AUTO_TEST_CASE(excerpts) {
  BOOST_TEST(excerpt("12345", 5) == "12345");
  BOOST_TEST(excerpt("123456", 5) == "12...");
  BOOST_TEST(excerpt("\x01\x02", 5) == "\\x01\\x02");
  // An excerpt never ends inside a character.
  BOOST_TEST(excerpt("1\xe2\x82\xac"
                     "4567",
                     5)
             == "1...");
  // Bytes that are not part of a character are shown as escapes.
  BOOST_TEST(excerpt("\x80\x80\x80\x80\x80\x80", 5) == "\\x80\\x80...");
}

BOOST_AUTO_TEST_SUITE_END()
