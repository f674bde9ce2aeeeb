#include "kernels/formats/nearest_name.hpp"

#include <vector>

#include <boost/test/unit_test.hpp>

BOOST_AUTO_TEST_SUITE(nearest_name)

using namespace troupe;

BOOST_AUTO_TEST_CASE(distances) {
  BOOST_TEST(edit_distance("", "") == 0u);
  BOOST_TEST(edit_distance("", "abc") == 3u);
  BOOST_TEST(edit_distance("abc", "") == 3u);
  BOOST_TEST(edit_distance("kitten", "sitting") == 3u);
  BOOST_TEST(edit_distance("RELU", "relu") == 0u);
  BOOST_TEST(edit_distance("realu", "relu") == 1u);
  BOOST_TEST(edit_distance("rleu", "relu") == 1u); // two neighboring letters are swapped
  BOOST_TEST(edit_distance(std::string(5000, 'a'), std::string(5000, 'b')) == 64u);
}

BOOST_AUTO_TEST_CASE(nearest) {
  const std::vector<std::string> names{"momentum", "weight_decay", "kind"};
  BOOST_TEST(troupe::nearest_name("momentun", names) == "momentum");
  BOOST_TEST(troupe::nearest_name("knd", names) == "kind");
  BOOST_TEST(troupe::nearest_name("x", {}).empty());
}

BOOST_AUTO_TEST_CASE(suggestions) {
  const std::vector<std::string> names{"TV", "radio", "newspaper"};
  BOOST_TEST(suggestion("rado", names)
             == "did you mean \"radio\"? valid: \"TV\", \"radio\", \"newspaper\"");
  BOOST_TEST(suggestion("news", names)
             == "did you mean \"newspaper\"? valid: \"TV\", \"radio\", \"newspaper\"");
  BOOST_TEST(suggestion("zzzzzz", names) == "valid: \"TV\", \"radio\", \"newspaper\"");
  BOOST_TEST(suggestion("x", {}).empty());
  BOOST_TEST(suggestion("zzzzzz", std::vector<std::string>(20, "n")).ends_with("and 4 more"));
}

BOOST_AUTO_TEST_SUITE_END()
