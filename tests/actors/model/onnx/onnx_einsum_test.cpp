// ONNX's Einsum, compared with loops over all letters.

#include "tests/actors/model/onnx/single_node.hpp"
#include "tests/support/input_errors.hpp"

#include <map>

BOOST_AUTO_TEST_SUITE(onnx_einsum)

using namespace troupe;
using namespace troupe::test;

namespace {

/// The number of elements of each letter. "b" is the batch.
const std::map<char, std::int64_t> sizes{{'b', 2}, {'e', 3}, {'h', 2}, {'i', 4},
                                         {'j', 3}, {'k', 2}, {'o', 5}};

std::int64_t product(const std::string& letters) {
  std::int64_t result = 1;
  for (const char c : letters)
    result *= sizes.at(c);
  return result;
}

std::size_t position(const std::string& letters, const std::map<char, std::int64_t>& at) {
  std::int64_t result = 0;
  for (const char c : letters)
    result = result * sizes.at(c) + at.at(c);
  return static_cast<std::size_t>(result);
}

numbers expected(const std::vector<std::string>& operands, const std::string& output,
                 const std::vector<numbers>& values) {
  numbers result(static_cast<std::size_t>(product(output)), 0);
  std::map<char, std::int64_t> at;
  for (const auto& letters : operands)
    for (const char c : letters)
      at[c] = 0;
  for (bool more = true; more;) {
    double term = 1;
    for (std::size_t i = 0; i < operands.size(); ++i)
      term *= values[i][position(operands[i], at)];
    result[position(output, at)] += term;
    more = false;
    for (auto& [c, i] : at) {
      if (++i < sizes.at(c)) {
        more = true;
        break;
      }
      i = 0;
    }
  }
  return result;
}

single_node node_of(const std::string& equation, const std::vector<std::string>& operands) {
  auto result = single_node{"Einsum"}.text("equation", equation);
  for (const auto& letters : operands) {
    std::vector<std::int64_t> dims;
    for (const char c : letters)
      dims.push_back(c == 'b' ? shape::batch : sizes.at(c));
    result.feed("x" + std::to_string(&letters - operands.data()), dims);
  }
  return result;
}

void check(const std::string& equation, const std::vector<std::string>& operands,
           const std::string& output) {
  std::vector<numbers> values;
  for (const auto& letters : operands) {
    values.emplace_back();
    for (std::int64_t i = 0; i < product(letters); ++i)
      values.back().push_back(std::sin(static_cast<double>(7 * i + 3 * std::ssize(values))));
  }
  const auto y = expected(operands, output, values);
  const auto found = node_of(equation, operands).run<double>(values);
  compare(equation, {}, found[0], y);
  // The result is linear in the first operand. So its slope is a difference.
  numbers slopes;
  for (auto& x : values[0]) {
    x += 1;
    const auto moved = expected(operands, output, values);
    x -= 1;
    double slope = 0;
    for (std::size_t i = 0; i < y.size(); ++i)
      slope += moved[i] - y[i];
    slopes.push_back(slope);
  }
  compare(equation + ", slopes", {}, found[1], slopes, 1e-5);
}

} // namespace

BOOST_AUTO_TEST_CASE(products_of_tensors) {
  check("bi,ij->bj", {"bi", "ij"}, "bj");
  check("ij,bi->bj", {"ij", "bi"}, "bj");
  check("bi,jk->bijk", {"bi", "jk"}, "bijk");
  check("bi,bj->bij", {"bi", "bj"}, "bij");
  check("bi,bi->b", {"bi", "bi"}, "b");
  check("bi,i->b", {"bi", "i"}, "b");
  check("bi, ij -> bj", {"bi", "ij"}, "bj");
  check("bij,jk", {"bij", "jk"}, "bik");
  check("bihk,bjhk->bhij", {"bihk", "bjhk"}, "bhij"); // attention
  check("be,beo->bo", {"be", "beo"}, "bo");           // a mixture of experts
  check("bi,eih->beh", {"bi", "eih"}, "beh");
  check("beh,eho->beo", {"beh", "eho"}, "beo");
  check("jiok,bik->bjio", {"jiok", "bik"}, "bjio"); // capsules
  check("bij,jh->bi", {"bij", "jh"}, "bi");
  check("bi,ij,bj->b", {"bi", "ij", "bj"}, "b"); // a bilinear form
  check("ij,jk->ik", {"ij", "jk"}, "ik");
  check("bijk->bkji", {"bijk"}, "bkji");
  check("bijk->bj", {"bijk"}, "bj");
  check("b->b", {"b"}, "b");
}

BOOST_AUTO_TEST_CASE(equations_that_are_refused) {
  const auto error = [](const std::string& equation, const std::vector<std::string>& operands) {
    std::vector<numbers> values;
    for (const auto& letters : operands)
      values.emplace_back(static_cast<std::size_t>(product(letters)), 1);
    return error_of([&] { node_of(equation, operands).run<double>(values); });
  };
  BOOST_TEST(contains(error("bi->i", {"bi"}), "the sum over \"b\" runs over the batch"));
  BOOST_TEST(contains(error("bi,bj->ij", {"bi", "bj"}), "a sum runs over the batch"));
  BOOST_TEST(contains(error("bi,cj->ij", {"bi", "bj"}), "runs over the batch"));
  BOOST_TEST(contains(error("bi,cj->bcij", {"bi", "bj"}),
                      "the operands have the batch under different letters"));
  BOOST_TEST(
    contains(error("...i->...", {"bi"}), "the equation \"...i->...\" has \".\"; expected letters"));
  BOOST_TEST(contains(error("ii->i", {"ij"}), "has a letter twice in \"ii\""));
  BOOST_TEST(contains(error("bi->bj", {"bi"}), "has \"j\" only in the result"));
  BOOST_TEST(
    contains(error("bij->b", {"bi"}), "operand 0 of shape (batch, 4) has the letters \"bij\""));
  BOOST_TEST(contains(error("bi,ij->bj", {"bi", "ji"}),
                      "\"i\" has 4 elements in one operand, and 3 in another"));
  BOOST_TEST(contains(error("bi,ij->bj", {"bi"}), "the equation has 2 operands, and the node 1"));
}

BOOST_AUTO_TEST_SUITE_END()
