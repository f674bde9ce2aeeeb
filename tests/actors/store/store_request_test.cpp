#include "actors/store/store_request.hpp"

#include <boost/test/unit_test.hpp>

#include <limits>
#include <numeric>
#include <stdexcept>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(store_requests)

namespace {

payload counted(std::size_t elements) {
  auto result = payload::floats(elements);
  const auto x = result.as_mutable_floats();
  std::iota(x.begin(), x.end(), 0.0F);
  return result;
}

/// The problem that a server reports for a request with these ranges. A range is a pair of begin
/// and count here.
std::string problem_of(std::vector<range> begin_and_count, const payload& values,
                       bool push = true) {
  proto::StoreRequest x;
  x.set_push(push);
  for (const auto& [begin, count] : begin_and_count) {
    x.add_begin(begin);
    x.add_count(count);
  }
  std::string result;
  const auto found = ranges_of(x, values, {10, 20}, result);
  BOOST_TEST((result.empty() || found.empty()));
  return result;
}

bool names(const std::string& text, const char* words) {
  BOOST_TEST_MESSAGE(text);
  return text.find(words) != std::string::npos;
}

} // namespace

BOOST_AUTO_TEST_CASE(an_operation_is_cut_between_servers) {
  const auto servers = split_evenly(10, 3); // 0-4, 4-7, 7-10
  const std::vector<range> where{{1, 3}, {3, 6}, {8, 8}, {9, 10}};
  const auto parts = cut(store_work::push_pull, where, counted(6), servers);
  BOOST_REQUIRE(parts.size() == 3u);
  BOOST_TEST(parts[0].header.ShortDebugString()
             == "begin: 1 begin: 3 count: 2 count: 1 push: true pull: true");
  BOOST_TEST(parts[1].header.ShortDebugString() == "begin: 4 count: 2 push: true pull: true");
  BOOST_TEST(parts[2].server == 2u);
  std::vector<std::vector<float>> values;
  for (const auto& x : parts) {
    const auto floats = x.values.as_floats();
    values.emplace_back(floats.begin(), floats.end());
    BOOST_TEST(x.count == floats.size());
    BOOST_TEST(static_cast<float>(x.begin) == floats[0]);
  }
  BOOST_TEST((values == std::vector<std::vector<float>>{{0, 1, 2}, {3, 4}, {5}}));
}

BOOST_AUTO_TEST_CASE(nothing_is_sent_for_no_elements) {
  const auto servers = split_evenly(10, 3);
  BOOST_TEST(cut(store_work::pull, {}, {}, servers).empty());
  const std::vector<range> empty{{10, 10}};
  BOOST_TEST(cut(store_work::push, empty, {}, servers).empty());
}

BOOST_AUTO_TEST_CASE(mistakes_of_the_program) {
  const auto servers = split_evenly(10, 2);
  const auto refused = [&](std::vector<range> where, std::size_t values) {
    BOOST_CHECK_THROW(cut(store_work::push, where, counted(values), servers),
                      std::invalid_argument);
  };
  refused({{0, 3}, {2, 4}}, 5);
  refused({{4, 5}, {0, 1}}, 2);
  refused({{9, 11}}, 2);
  refused({{3, 2}}, 0);
  refused({{0, 3}}, 2);
  BOOST_CHECK_THROW(cut(store_work::pull, std::vector<range>{{0, 1}}, counted(1), servers),
                    std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(what_a_server_takes) {
  proto::StoreRequest x;
  x.set_pull(true);
  for (const std::uint64_t begin : {10, 12, 13, 18}) {
    x.add_begin(begin);
    x.add_count(begin == 12 ? 1 : 2);
  }
  std::string problem;
  const auto ranges = ranges_of(x, {}, {10, 20}, problem);
  BOOST_TEST(problem == "");
  BOOST_TEST((ranges == std::vector<range>{{10, 15}, {18, 20}}));
}

BOOST_AUTO_TEST_CASE(what_a_server_refuses) {
  constexpr auto huge = std::numeric_limits<std::uint64_t>::max();
  BOOST_TEST(names(problem_of({{9, 1}}, counted(1)), "are not in [10, 20)"));
  BOOST_TEST(names(problem_of({{10, 11}}, counted(11)), "are not in"));
  BOOST_TEST(names(problem_of({{12, huge}}, counted(1)), "are not in"));
  BOOST_TEST(names(problem_of({{huge, 2}}, counted(2)), "are not in"));
  BOOST_TEST(names(problem_of({{12, 2}, {13, 1}}, counted(3)), "begin before 14"));
  BOOST_TEST(names(problem_of({{12, 2}}, counted(3)), "12 bytes of values where 8"));
  BOOST_TEST(names(problem_of({{12, 2}}, counted(2), false), "nothing is to be done"));
  BOOST_TEST(names(problem_of({{12, 2}}, payload::allocate(16).slice(1, 8)), "multiple of 4"));
  proto::StoreRequest x;
  x.set_push(true);
  x.add_begin(10);
  std::string problem;
  ranges_of(x, {}, {10, 20}, problem);
  BOOST_TEST(names(problem, "1 ranges with 0 lengths"));
  x.add_count(0);
  x.set_assign(true);
  problem.clear();
  ranges_of(x, {}, {10, 20}, problem);
  BOOST_TEST(names(problem, "a push that is an assignment"));
}

BOOST_AUTO_TEST_SUITE_END()
