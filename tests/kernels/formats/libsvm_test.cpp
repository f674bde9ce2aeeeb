#include "kernels/formats/libsvm.hpp"

#include "tests/support/input_errors.hpp"

BOOST_AUTO_TEST_SUITE(libsvm)

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_CASE(rows) {
  const auto x = parse_libsvm(bytes_of("+1 1:0.5 3:-2e1 # a comment 9:9\r\n"
                                       "\n"
                                       "-1\n"
                                       "# only a comment\n"
                                       "  2.5\t7:+1 \n"
                                       "0 2:1"),
                              "x");
  BOOST_TEST(x.labels == (std::vector<double>{1, -1, 2.5, 0}));
  BOOST_TEST(x.row_starts == (std::vector<std::uint64_t>{0, 2, 2, 3, 4}));
  BOOST_TEST(x.columns == (std::vector<std::uint32_t>{0, 2, 6, 1}));
  BOOST_TEST(x.values == (std::vector<float>{0.5F, -20, 1, 1}));
  BOOST_TEST(x.width == 7u);
  BOOST_TEST(parse_libsvm(bytes_of("1\n"), "x").width == 0u);
  BOOST_TEST(parse_libsvm(bytes_of("1 2147483648:1"), "x").width == 1U << 31);
}

BOOST_AUTO_TEST_CASE(errors_name_the_line) {
  const auto error = [](std::string_view text) {
    return error_of([&] { parse_libsvm(bytes_of(text), "a.txt"); });
  };
  BOOST_TEST(contains(error(""), "a.txt: no rows"));
  BOOST_TEST(contains(error("# nothing\n\n"), "no rows"));
  BOOST_TEST(contains(error("1 1:1\nx 1:1"), "a.txt:2: label \"x\""));
  BOOST_TEST(contains(error("nan 1:1"), "expected a finite number"));
  BOOST_TEST(contains(error("1 1:inf"), "value \"inf\""));
  BOOST_TEST(contains(error("1 1:1e39"), "value \"1e39\""));
  BOOST_TEST(contains(error("1 1:"), "value \"\""));
  BOOST_TEST(contains(error("1 1"), "\"1\": expected index:value"));
  BOOST_TEST(contains(error("1 0:1"), "index \"0\": expected a whole number from 1"));
  BOOST_TEST(contains(error("1 2147483649:1"), "index \"2147483649\""));
  BOOST_TEST(contains(error("1 99999999999999999999:1"), "index \"99999999999999999999\""));
  BOOST_TEST(contains(error("1 qid:3 1:1"), "index \"qid\""));
  BOOST_TEST(contains(error("1 3:1 2:1"), "index 2 after index 3: expected ascending"));
  BOOST_TEST(contains(error("1 3:1 3:1"), "index 3 after index 3"));
}

// Reads a file in parts, with or without labels. Errors must name the lines of the whole file.
BOOST_AUTO_TEST_CASE(a_file_in_parts) {
  const auto bytes = bytes_of("1 2:5\n3:6 4:7\n# none\n\n-2\n1:8\n");
  for (const std::uint64_t most : {1, 2, 9}) {
    libsvm_reader reader{bytes, "a.txt"};
    std::vector<double> labels;
    std::vector<std::uint32_t> columns;
    for (auto part = reader.next(most); part.rows() > 0; part = reader.next(most)) {
      BOOST_TEST(part.rows() <= most);
      BOOST_TEST(part.row_starts.size() == part.rows() + 1);
      labels.insert(labels.end(), part.labels.begin(), part.labels.end());
      columns.insert(columns.end(), part.columns.begin(), part.columns.end());
    }
    BOOST_TEST(labels == (std::vector<double>{1, 0, -2, 0}), boost::test_tools::per_element());
    BOOST_TEST(columns == (std::vector<std::uint32_t>{1, 2, 3, 0}),
               boost::test_tools::per_element());
  }
  const auto wrong = bytes_of("1:1\n2:x\n");
  libsvm_reader reader{wrong, "a.txt"};
  BOOST_TEST(reader.next(1).rows() == 1u);
  BOOST_TEST(contains(error_of([&] { reader.next(1); }), "a.txt:2: value \"x\""));
}

BOOST_AUTO_TEST_CASE(hostile_input) {
  survive_hostile_variants(bytes_of("1 1:0.5 3:-2e1 # c\n-1\n+2 7:1\n"),
                           [](auto b) { parse_libsvm(b, "x"); });
}

BOOST_AUTO_TEST_SUITE_END()
