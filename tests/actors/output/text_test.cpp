#include "actors/output/text.hpp"

#include <boost/test/unit_test.hpp>

#include <limits>
#include <string>
#include <vector>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(text)

BOOST_AUTO_TEST_CASE(numbers_in_groups) {
  BOOST_TEST(grouped(0) == "0");
  BOOST_TEST(rate_text(0.42) == "0.4");
  BOOST_TEST(rate_text(1234.5) == "1,234");
  BOOST_TEST(rate_text(-3) == "0.0");
  BOOST_TEST(grouped(999) == "999");
  BOOST_TEST(grouped(1000) == "1,000");
  BOOST_TEST(grouped(12'345'678.4) == "12,345,678");
  BOOST_TEST(grouped(-1234) == "-1,234");
  BOOST_TEST(grouped(-0.2) == "0");
  BOOST_TEST(grouped(std::numeric_limits<double>::infinity()) == "inf");
  BOOST_TEST(counted(1, "worker") == "1 worker");
  BOOST_TEST(counted(2000, "worker") == "2,000 workers");
}

BOOST_AUTO_TEST_CASE(numbers_in_a_line) {
  BOOST_TEST(first_numbers({}) == "");
  BOOST_TEST(first_numbers(std::vector<double>{2.9388891, -0.001037, 0})
             == "2.938889  -0.001037  0");
  std::string ones = "1";
  for (int i = 1; i < 64; ++i)
    ones += "  1";
  BOOST_TEST(first_numbers(std::vector<double>(64, 1.0)) == ones);
  BOOST_TEST(first_numbers(std::vector<double>(2064, 1.0)) == ones + "  (and 2,000 more)");
}

BOOST_AUTO_TEST_CASE(times) {
  BOOST_TEST(duration_text(0.42) == "0.42 s");
  BOOST_TEST(duration_text(7.06) == "7.1 s");
  BOOST_TEST(duration_text(59.99) == "1:00");
  BOOST_TEST(duration_text(-1) == "0.00 s");
  BOOST_TEST(clock_text(7) == "0:07");
  BOOST_TEST(clock_text(125) == "2:05");
  BOOST_TEST(clock_text(3609) == "1:00:09");
  BOOST_TEST(clock_text(std::numeric_limits<double>::infinity()) == "?");
  BOOST_TEST(clock_text(std::numeric_limits<double>::quiet_NaN()) == "?");
}

BOOST_AUTO_TEST_CASE(markup_is_escaped) {
  BOOST_TEST(escape_html("<b a=\"1\" c='2'>&amp;</b>")
             == "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;amp;&lt;/b&gt;");
  BOOST_TEST(escape_html("Größe\n\t7") == "Größe\n\t7");
  // Replaces invalid UTF-8 (a byte of Latin-1, a truncated sequence, an overlong "/"), control
  // characters, and U+FFFE.
  BOOST_TEST(escape_html("a\xf6z") == "a\xef\xbf\xbdz");
  BOOST_TEST(escape_html("a\xc3") == "a\xef\xbf\xbd");
  BOOST_TEST(escape_html("\xc0\xaf") == "\xef\xbf\xbd\xef\xbf\xbd");
  BOOST_TEST(escape_html(std::string_view{"a\0b\x1b", 4})
             == "a\xef\xbf\xbd"
                "b\xef\xbf\xbd");
  BOOST_TEST(escape_html("\xef\xbf\xbe") == "\xef\xbf\xbd");
}

BOOST_AUTO_TEST_CASE(what_is_too_wide_is_cut) {
  BOOST_TEST(cells_of("Größe") == 5u);
  BOOST_TEST(cut("Größe", 5, true) == "Größe");
  BOOST_TEST(cut("Größe", 4, true) == "Grö…");
  BOOST_TEST(cut("Größe", 4, false) == "Grö.");
  BOOST_TEST(cut("abc", 1, true) == "…");
  BOOST_TEST(cut("abc", 0, true).empty());
}

BOOST_AUTO_TEST_SUITE_END()
