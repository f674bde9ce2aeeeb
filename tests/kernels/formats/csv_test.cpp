#include "kernels/formats/csv.hpp"

#include "tests/support/input_errors.hpp"

#include <cmath>

BOOST_AUTO_TEST_SUITE(csv)

using namespace troupe;
using namespace troupe::test;

namespace {

using names = std::vector<std::string>;

csv_columns parse(std::string_view text, const names& columns) {
  return parse_csv(bytes_of(text), columns, "x.csv");
}

std::string parse_error(std::string_view text, const names& columns) {
  return error_of([&] { parse(text, columns); });
}

} // namespace

BOOST_AUTO_TEST_CASE(chosen_columns_in_the_order_asked) {
  const auto table = parse("a,b,c\n1,2,3\n4,5,6\n", {"c", "a"});
  BOOST_TEST(table.rows == 2u);
  BOOST_TEST(table.values == (std::vector<double>{3, 1, 6, 4}));
  BOOST_TEST(table.names == (names{"c", "a"}));
}

BOOST_AUTO_TEST_CASE(line_ends_and_quotes) {
  const std::vector<double> expected{1, -2.5};
  BOOST_TEST(parse("a,b\r\n1,-2.5\r\n", {"a", "b"}).values == expected);
  BOOST_TEST(parse("a,b\n1,-2.5", {"a", "b"}).values == expected);
  BOOST_TEST(parse("a,b\n1,-2.5\n\r\n\n", {"a", "b"}).values == expected);
  BOOST_TEST(parse("\xef\xbb\xbf"
                   "a,b\n1,-2.5\n",
                   {"a", "b"})
               .values
             == expected);
  BOOST_TEST(parse("\"a\",\"b\"\r\n\"1\",\" -2.5 \"\r\n", {"a", "b"}).values == expected);
  BOOST_TEST(parse("\"a,\"\"q\"\"\n\",b\n+1,-25e-1\n", {"a,\"q\"\n", "b"}).values == expected);
  BOOST_TEST(parse(",TV\n\"any, thing\",7\n", {"TV"}).values == std::vector<double>{7});
  BOOST_TEST(parse("a,b\n1,\n", {"a"}).values == std::vector<double>{1});
}

BOOST_AUTO_TEST_CASE(header_alone) {
  const auto bytes = bytes_of(",TV,\"a b\"\r\n");
  BOOST_TEST(parse_csv_header(bytes, "x") == (names{"", "TV", "a b"}));
}

BOOST_AUTO_TEST_CASE(errors_say_where) {
  BOOST_TEST(contains(parse_error("", {"a"}), "x.csv: empty"));
  BOOST_TEST(contains(parse_error("a,b\n", {"a"}), "x.csv: no records"));
  BOOST_TEST(contains(parse_error("TV,radio\n1,2\n", {"rado"}),
                      "no column \"rado\"; did you mean \"radio\"?"));
  BOOST_TEST(contains(parse_error("a;b\n1,5;2\n", {"a"}), "divided by semicolons? Save the file"));
  BOOST_TEST(contains(parse_error("a\tb\n1\t2\n", {"a"}), "divided by tabs?"));
  BOOST_TEST(contains(parse_error("a|b\n1|2\n", {"a"}), "divided by \"|\"?"));
  BOOST_TEST(!contains(parse_error("a;b,c\n1,2\n", {"a"}), "divided by"));
  using namespace std::string_view_literals;
  BOOST_TEST(parse_error("\xff\xfe"
                         "a\0,\0b\0\n\0"sv,
                         {"a"})
             == "x.csv: text in UTF-16; save the file as UTF-8");
  BOOST_TEST(contains(parse_error("\xfe\xff\0a\0\n"sv, {"a"}), "UTF-16"));
  BOOST_TEST(contains(parse_error("a,b\n1,2\n", {"a", "a"}), "\"a\" is requested twice"));
  BOOST_TEST(contains(parse_error("a,a\n1,2\n", {"a"}), "more than once"));
  BOOST_TEST(contains(parse_error("a,b\n1,2\n3\n", {"a"}),
                      "x.csv:3: expected 2 fields as in the header, found 1"));
  // The fields of a short row may be in wrong columns, so their number is checked first.
  BOOST_TEST(contains(parse_error("a,b,label\n1,2,x\n3,x\n", {"a", "b"}),
                      "x.csv:3: expected 3 fields as in the header, found 2"));
  BOOST_TEST(
    contains(parse_error("1,2.5\n3,4\n", {"price"}),
             "no column \"price\"; valid: \"1\", \"2.5\". The first line has only numbers: is "
             "the header line with the names of the columns missing?"));
  BOOST_TEST(!contains(parse_error("1,x\n3,4\n", {"a"}), "only numbers"));
  BOOST_TEST(contains(parse_error("a,b\n1,2\n\n3,4\n", {"a"}), "x.csv:3: "));
  BOOST_TEST(contains(parse_error("a,b\n1,2,3\n", {"a"}), "found 3"));
  BOOST_TEST(contains(parse_error("a,b\n1,2\nx,4\n", {"a"}),
                      "x.csv:3: column \"a\": expected a finite number, found \"x\""));
  BOOST_TEST(contains(parse_error("a\n1e999\n", {"a"}), "finite"));
  BOOST_TEST(
    contains(parse_error("a\nnan\n", {"a"}),
             "found \"nan\". If this means a missing value, add it to data.csv.missing_text"));
  BOOST_TEST(contains(parse_error("a\ninf\n", {"a"}), "finite"));
  BOOST_TEST(contains(parse_error("a,b\n,2\n", {"a"}), "found \"\""));
  BOOST_TEST(contains(parse_error("a\n+-1\n", {"a"}), "found \"+-1\""));
  BOOST_TEST(contains(parse_error("a\n1\n\"2\n", {"a"}),
                      "x.csv:3: a quote is opened here and never closed"));
  BOOST_TEST(contains(parse_error("a\n\"2\"3\n", {"a"}), "x.csv:2: text after a closing quote"));
  // Line breaks inside quotes count in the line numbers of errors.
  BOOST_TEST(contains(parse_error("a,b\n1,\"x\ny\"\nz,2\n", {"a"}), "x.csv:4: column \"a\""));
}

BOOST_AUTO_TEST_CASE(hostile_input) {
  const names columns{"a", "b"};
  const auto good = bytes_of("a,\"b\",c\r\n1,\"2\",\"x\"\"y\"\r\n3,4.5e1,z\r\n");
  survive_hostile_variants(good, [&](auto bytes) { parse_csv(bytes, columns, "x"); });
  // A file with only commas does not have the requested columns. A million commas must not take
  // quadratic time.
  BOOST_TEST(contains(parse_error(std::string(999'999, ','), columns), "no column"));
  BOOST_TEST(
    contains(parse_error(std::string(1'000'000, ','), columns), "more than 1000000 columns"));
  BOOST_TEST(contains(parse_error(std::string(1'000'000, '\n'), columns), "empty"));
  BOOST_TEST(contains(parse_error("a\n" + std::string(1'000'000, '1') + "\n", {"a"}), "11..."));
}

BOOST_AUTO_TEST_CASE(numbers_and_texts_with_gaps) {
  const std::vector<csv_column> columns{{"x"}, {"colour", true}};
  const names missing{"NA"};
  const std::string text = "colour,x\nred,1\n blue ,NA\n,3\nred,-4\n\"a,b\",\n";
  const auto table = parse_csv(bytes_of(text), columns, missing, "x.csv");
  BOOST_TEST(table.rows == 5u);
  BOOST_TEST(table.texts[0].empty());
  BOOST_TEST(table.texts[1] == (names{"red", "blue", "a,b"}));
  const std::vector<double> x{1, NAN, 3, -4, NAN};
  const std::vector<double> colour{0, 1, NAN, 0, 2};
  for (std::size_t i = 0; i < 5; ++i) {
    BOOST_TEST(
      (table.values[2 * i] == x[i] || (std::isnan(table.values[2 * i]) && std::isnan(x[i]))));
    BOOST_TEST((table.values[2 * i + 1] == colour[i]
                || (std::isnan(table.values[2 * i + 1]) && std::isnan(colour[i]))));
  }
  const auto gap = first_gap(bytes_of(text), columns, missing, "x.csv");
  BOOST_TEST(gap.place == "x.csv:3: column \"x\"");
  BOOST_TEST(columns[gap.column].name == "x");
  BOOST_TEST(contains(error_of([&] { parse_csv(bytes_of(text), columns, names{}, "x.csv"); }),
                      "x.csv:3: column \"x\": expected a finite number, found \"NA\""));
}

BOOST_AUTO_TEST_CASE(texts_are_utf8) {
  const auto parse = [](const std::string& text) {
    return parse_csv(bytes_of(text), std::vector<csv_column>{{"x"}, {"city", true}}, names{},
                     "x.csv");
  };
  BOOST_TEST(parse("x,city\n1,Québec\n").texts[1] == (names{"Québec"}));
  BOOST_TEST(contains(error_of([&] {
                        parse("x,city\n1,Paris\n2,Qu\xe9"
                              "bec\n");
                      }),
                      "x.csv:3: column \"city\": \"Qu\\xe9bec\" is not UTF-8; save the file as "
                      "UTF-8"));
  // The texts of other columns are not read.
  BOOST_TEST(parse("x,city,more\n1,Paris,\xe9\n").rows == 1u);
}

// Reads a file in parts. Errors must name the lines of the whole file.
BOOST_AUTO_TEST_CASE(a_file_in_parts) {
  const auto bytes = bytes_of("x,y\n1,a\n2,\"b\nc\"\n3,a\n4,\n\n");
  const std::vector<csv_column> columns{{"y", true}, {"x", false}};
  for (const std::uint64_t most : {1, 2, 3, 9}) {
    csv_reader reader{bytes, columns, {}, "x.csv"};
    std::vector<double> x;
    std::string y;
    for (auto part = reader.next(most); part.rows > 0; part = reader.next(most)) {
      BOOST_TEST(part.rows <= most);
      for (std::uint64_t i = 0; i < part.rows; ++i) {
        x.push_back(part.values[2 * i + 1]);
        const auto which = part.values[2 * i];
        y += std::isnan(which) ? "-" : part.texts[0][static_cast<std::size_t>(which)];
      }
    }
    BOOST_TEST(x == (std::vector<double>{1, 2, 3, 4}));
    BOOST_TEST(y == "ab\nca-");
    BOOST_TEST(reader.next(most).rows == 0u);
  }
  const auto wrong = bytes_of("x,y\n1,a\n?,b\n");
  csv_reader reader{wrong, columns, {}, "x.csv"};
  BOOST_TEST(reader.next(1).rows == 1u);
  BOOST_TEST(contains(error_of([&] { reader.next(1); }), "x.csv:3: column \"x\""));
}

BOOST_AUTO_TEST_CASE(categories_in_order) {
  names sorted;
  // Categories that are texts are sorted by their bytes.
  BOOST_TEST(sort_categories(names{"b", "10", "a"}, sorted) == (std::vector<std::size_t>{2, 0, 1}));
  BOOST_TEST(sorted == (names{"10", "a", "b"}));
  // Categories that are numbers are sorted by value. Equal numbers are the same category.
  BOOST_TEST(sort_categories(names{"10", "9", "-1", "9.0"}, sorted)
             == (std::vector<std::size_t>{2, 1, 0, 1}));
  BOOST_TEST(sorted == (names{"-1", "9", "10"}));
  BOOST_TEST(sort_categories(names{}, sorted).empty());
  BOOST_TEST(sorted.empty());
}

BOOST_AUTO_TEST_CASE(categories_are_found) {
  const category_index numbers{names{"-1", "9", "10"}};
  BOOST_TEST((numbers.find("9") == 1U));
  BOOST_TEST((numbers.find("9.0") == 1U));
  BOOST_TEST((numbers.find("1e1") == 2U));
  BOOST_TEST(!numbers.find("8"));
  BOOST_TEST(!numbers.find("x"));
  const category_index mixed{names{"10", "a", "b"}};
  BOOST_TEST((mixed.find("b") == 2U));
  BOOST_TEST((mixed.find("10") == 0U));
  BOOST_TEST(!mixed.find("10.0"));
  BOOST_TEST(!category_index{names{}}.find("1"));
}

BOOST_AUTO_TEST_SUITE_END()
