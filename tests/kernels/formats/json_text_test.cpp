#include "kernels/formats/json_text.hpp"

#include "tests/support/input_errors.hpp"

#include <nlohmann/json.hpp>

BOOST_AUTO_TEST_SUITE(json_text)

using namespace troupe;
using namespace troupe::test;

namespace {

std::string json_error(const std::string& text) {
  return error_of([&] { parse_json(text, "x.json"); });
}

} // namespace

BOOST_AUTO_TEST_CASE(reads_json) {
  const auto x = parse_json(R"({"a": [1, {"b": "c"}], "d": null})", "x.json");
  BOOST_TEST(x["a"][1]["b"] == "c");
}

BOOST_AUTO_TEST_CASE(syntax_errors_have_a_place) {
  BOOST_TEST(contains(json_error("{\"a\": 1,\n  \"b\": x}"), "x.json:2:8: not valid JSON: "));
  BOOST_TEST(contains(json_error("{\"a\":"), "x.json:1:6: not valid JSON: "));
  BOOST_TEST(contains(json_error(""), "x.json:1:1: not valid JSON: "));
  BOOST_TEST(contains(json_error("{} {}"), "x.json:1:4: "));
  BOOST_TEST(contains(json_error("{\"a\": 1e999}"), "not valid JSON"));
}

BOOST_AUTO_TEST_CASE(a_key_stands_once) {
  BOOST_TEST(json_error(R"({"a": 1, "a": 2})") == "x.json: a: occurs twice");
  BOOST_TEST(json_error(R"({"a": [0, {"b": {"c": 1, "d": 2, "c": 3}}]})")
             == "x.json: a[1].b.c: occurs twice");
  BOOST_TEST(json_error(R"([{"a": 1}, {"a": 1}, [[{"a": 1, "a": 1}]]])")
             == "x.json: [2][0][0].a: occurs twice");
  // A key that occurs twice in one object is an error. In different objects, it is not.
  BOOST_TEST(json_error(R"({"a": {"a": {"a": 1}}, "b": [{"a": 1}, {"a": 2}]})") == "(no error)");
}

BOOST_AUTO_TEST_CASE(nesting_is_bounded) {
  BOOST_TEST(json_error(std::string(64, '[') + std::string(64, ']')) == "(no error)");
  BOOST_TEST(contains(json_error(std::string(65, '[')), "nested more than 64 deep"));
  BOOST_TEST(contains(json_error(std::string(100'000, '[')), "nested more than 64 deep"));
}

BOOST_AUTO_TEST_CASE(excerpts_are_short_and_valid) {
  BOOST_TEST(json_excerpt(nlohmann::json{{"a", 1}}) == R"({"a":1})");
  BOOST_TEST(json_excerpt(std::string(58, 'x')) == '"' + std::string(58, 'x') + '"');
  BOOST_TEST(json_excerpt(std::string(59, 'x')) == '"' + std::string(56, 'x') + "...");
  // An excerpt never ends inside a character. Here, a character of 2 bytes does not fit any more.
  std::string accents;
  for (int i = 0; i < 40; ++i)
    accents += "\u00e4";
  BOOST_TEST(json_excerpt(accents) == '"' + accents.substr(0, 56) + "...");
  BOOST_TEST(json_excerpt('x' + accents) == "\"x" + accents.substr(0, 54) + "...");
}

BOOST_AUTO_TEST_CASE(survives_hostile_variants) {
  const auto good = bytes_of(R"({"a": [1, -2.5e3, {"b": "c\u00e4"}], "d": null, "e": true})");
  const auto accepted = survive_hostile_variants(good, [](std::span<const std::byte> x) {
    parse_json({reinterpret_cast<const char*>(x.data()), x.size()}, "x.json");
  });
  BOOST_TEST(accepted == 0U);
}

BOOST_AUTO_TEST_SUITE_END()
