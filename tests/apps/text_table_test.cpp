#include "apps/troupe/text_table.hpp"

#include <boost/test/unit_test.hpp>

using troupe::text_table;

BOOST_AUTO_TEST_SUITE(text_tables)

BOOST_AUTO_TEST_CASE(columns_of_characters) {
  text_table table{{"layer", "size", "é"}};
  table.add({"größe", "1", "2"});
  table.add({"x", "100", "1000"});
  const std::vector<std::string> expected{"layer  size     é", "größe     1     2",
                                          "x       100  1000"};
  BOOST_TEST(table.lines() == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(alignment_of_columns) {
  text_table table{{"#", "name", "kind", "n"}, "rll"};
  table.add({"9", "a", "µ", "5"});
  table.add_line("  a line without columns, longer than the table");
  table.add({"10", "b", "c", "60"});
  const std::vector<std::string> expected{" #  name  kind   n", " 9  a     µ      5",
                                          "  a line without columns, longer than the table",
                                          "10  b     c     60"};
  BOOST_TEST(table.lines() == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
