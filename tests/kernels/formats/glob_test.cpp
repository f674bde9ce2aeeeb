#include "kernels/formats/glob.hpp"

#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

BOOST_AUTO_TEST_SUITE(glob)

using troupe::matches_glob;

BOOST_AUTO_TEST_CASE(whole_names) {
  BOOST_TEST(matches_glob("", ""));
  BOOST_TEST(matches_glob("conv_1.weight", "conv_1.weight"));
  BOOST_TEST(!matches_glob("conv_1.weight", "conv_1.weights"));
  BOOST_TEST(!matches_glob("conv_1.weight", "a.conv_1.weight"));
  BOOST_TEST(!matches_glob("", "a"));
  BOOST_TEST(!matches_glob("a", ""));
}

BOOST_AUTO_TEST_CASE(stars_and_question_marks) {
  BOOST_TEST(matches_glob("*", ""));
  BOOST_TEST(matches_glob("**", "h.0.bias"));
  BOOST_TEST(matches_glob("*.bias", "h.0.bias"));
  BOOST_TEST(!matches_glob("*.bias", "h.0.bias.x"));
  BOOST_TEST(!matches_glob("*.bias", "bias"));
  BOOST_TEST(matches_glob("h.*.bias", "h.0.attn.bias"));
  BOOST_TEST(matches_glob("*ab", "aab"));
  BOOST_TEST(matches_glob("*a*b*", "xxaxxbxx"));
  BOOST_TEST(!matches_glob("*a*b*", "xxbxxaxx"));
  BOOST_TEST(matches_glob("h.?.weight", "h.7.weight"));
  BOOST_TEST(!matches_glob("h.?.weight", "h.10.weight"));
  BOOST_TEST(!matches_glob("?", ""));
  // Only * and ? have a special meaning.
  BOOST_TEST(matches_glob("[a].b", "[a].b"));
  BOOST_TEST(!matches_glob("a.b", "axb"));
}

// Matching must not take exponential time: a pattern with 20 stars does not match 10,000
// characters.
BOOST_AUTO_TEST_CASE(many_stars_end) {
  std::string pattern;
  for (int i = 0; i < 20; ++i)
    pattern += "*a";
  BOOST_TEST(!matches_glob(pattern + "b", std::string(10'000, 'a')));
}

BOOST_AUTO_TEST_CASE(distances) {
  using troupe::glob_distance;
  BOOST_TEST(glob_distance("", "") == 0u);
  BOOST_TEST(glob_distance("", "abc") == 3u);
  BOOST_TEST(glob_distance("abc", "") == 3u);
  BOOST_TEST(glob_distance("*", "abc") == 0u);
  BOOST_TEST(glob_distance("*.bias", "h.0.bias") == 0u);
  BOOST_TEST(glob_distance("*.bais", "h.0.bias") == 2u);
  BOOST_TEST(glob_distance("h.?.wight", "h.7.weight") == 1u);
  BOOST_TEST(glob_distance("kitten", "sitting") == 3u);
}

BOOST_AUTO_TEST_CASE(suggestions) {
  using troupe::glob_suggestion;
  const std::vector<std::string> names{"first.weight", "first.bias", "head.weight"};
  const std::string valid = R"(valid: "first.weight", "first.bias", "head.weight")";
  BOOST_TEST(glob_suggestion("*.bais", names) == R"(did you mean "first.bias"? )" + valid);
  BOOST_TEST(glob_suggestion("hed.*", names) == R"(did you mean "head.weight"? )" + valid);
  BOOST_TEST(glob_suggestion("conv.*", names) == valid);
  BOOST_TEST(glob_suggestion("*", {}).empty());
}

BOOST_AUTO_TEST_SUITE_END()
