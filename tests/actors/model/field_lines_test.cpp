#include "actors/model/field_lines.hpp"

#include <boost/test/unit_test.hpp>

#include <vector>

BOOST_AUTO_TEST_SUITE(field_lines)

using troupe::with_lines;

namespace {

const std::string text = R"(model {
  layer { dense { units: 0 } }
  layer {
    dense {
      units: 10
    }
  }
}
local_sgd { every: 8 }
)";

std::string told(const std::string& problem, const std::vector<std::string>& overrides = {}) {
  return with_lines(problem, text, "job", overrides);
}

} // namespace

BOOST_AUTO_TEST_CASE(the_line_of_the_innermost_field_that_is_there) {
  BOOST_TEST(told("local_sgd: no") == "job:9: local_sgd: no");
  BOOST_TEST(told("model.layer[1].dense.units: no") == "job:5: model.layer[1].dense.units: no");
  BOOST_TEST(told("model.layer[1].dense.activation: no")
             == "job:4: model.layer[1].dense.activation: no");
  BOOST_TEST(told("model.layer[7].dense: no") == "job:1: model.layer[7].dense: no");
}

BOOST_AUTO_TEST_CASE(each_problem_has_its_own) {
  BOOST_TEST(told("local_sgd: a\nepochs: b\nmodel.layer[0]: c")
             == "job:9: local_sgd: a\nepochs: b\njob:2: model.layer[0]: c");
}

BOOST_AUTO_TEST_CASE(what_is_not_in_the_text) {
  BOOST_TEST(told("epochs: 0") == "epochs: 0");
  BOOST_TEST(told("a sentence: without a field") == "a sentence: without a field");
  BOOST_TEST(told("local_sgd.every: 0", {"local_sgd.every=0"}) == "local_sgd.every: 0");
  BOOST_TEST(told("local_sgd.every: 0", {"local_sgd={}"}) == "local_sgd.every: 0");
  BOOST_TEST(told("local_sgd.every: 0", {"local=0"}) == "job:9: local_sgd.every: 0");
  BOOST_TEST(with_lines("epochs: 0", "{\"epochs\": 0}", "job", {}) == "epochs: 0");
  BOOST_TEST(with_lines("epochs: 0", "epochs: :", "job", {}) == "epochs: 0");
}

BOOST_AUTO_TEST_SUITE_END()
