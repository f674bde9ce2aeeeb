#include "kernels/data/text.hpp"

#include "tests/support/input_errors.hpp"

#include <numeric>
#include <utility>

BOOST_AUTO_TEST_SUITE(text)

using namespace troupe;
using namespace troupe::test;

namespace {

/// A text of the characters 0, 1, 2, ... in this order.
std::shared_ptr<const text_dataset> counting(std::size_t characters, std::size_t window,
                                             std::size_t stride) {
  std::vector<std::int32_t> tokens(characters);
  std::iota(tokens.begin(), tokens.end(), 0);
  return std::make_shared<const text_dataset>(std::move(tokens), characters, window, stride);
}

std::vector<std::int32_t> tokens_of(const dataset& x, std::vector<std::uint64_t> records) {
  const auto n = records.size() * x.record().feature_width();
  std::vector<std::int32_t> tokens(n);
  std::vector<std::int32_t> labels(n);
  x.read(records, std::span{tokens}, {labels, {}});
  // The label of each character is the next one.
  for (std::size_t i = 0; i < n; ++i)
    BOOST_TEST(labels[i] == tokens[i] + 1);
  return tokens;
}

} // namespace

BOOST_AUTO_TEST_CASE(windows_side_by_side) {
  const auto x = counting(10, 3, 3);
  BOOST_TEST(x->size() == 3u);
  BOOST_TEST(tokens_of(*x, {2, 0}) == (std::vector<std::int32_t>{6, 7, 8, 0, 1, 2}));
  BOOST_TEST(counting(9, 3, 3)->size() == 2u); // no character follows the last window
  const auto& record = x->record();
  BOOST_TEST((record.features == feature_kind::tokens));
  BOOST_TEST((record.dims == shape{3}));
  BOOST_TEST(record.vocabulary == 10u);
  BOOST_TEST(record.label_width == 10u);
  BOOST_TEST(record.label_elements() == 3u);
}

BOOST_AUTO_TEST_CASE(all_windows) {
  const auto x = counting(10, 3, 1);
  BOOST_TEST(x->size() == 7u);
  BOOST_TEST(tokens_of(*x, {6}) == (std::vector<std::int32_t>{6, 7, 8}));
  BOOST_TEST(counting(4, 3, 1)->size() == 1u);
  BOOST_TEST(counting(10, 3, 5)->size() == 2u);
}

BOOST_AUTO_TEST_CASE(parts_share_no_character) {
  const auto whole = counting(100, 4, 1);
  const text_dataset first{whole, 0, 60};
  const text_dataset second{whole, 60, 100};
  BOOST_TEST(first.size() == 56u);
  BOOST_TEST(second.size() == 36u);
  // The first part ends with character 59. So its last label is 59, and not a character of the
  // second part.
  BOOST_TEST(tokens_of(first, {55}) == (std::vector<std::int32_t>{55, 56, 57, 58}));
  BOOST_TEST(tokens_of(second, {0}) == (std::vector<std::int32_t>{60, 61, 62, 63}));
  BOOST_TEST(tokens_of(second, {35}) == (std::vector<std::int32_t>{95, 96, 97, 98}));
  BOOST_TEST(&first.storage() == whole.get());
  BOOST_TEST(&second.storage() == whole.get());
  BOOST_TEST(&second.tokens() == &whole->tokens());
}

BOOST_AUTO_TEST_CASE(errors) {
  BOOST_TEST(
    contains(error_of([] { counting(3, 3, 1); }), "3 characters are too few for a window"));
  const auto whole = counting(10, 3, 1);
  BOOST_TEST(contains(error_of([&] { text_dataset{whole, 7, 10}; }), "too few"));
  BOOST_TEST(contains(error_of([&] { text_dataset{whole, 7, 11}; }), "do not lie within its 10"));
  BOOST_TEST(contains(error_of([&] { text_dataset{whole, 7, 6}; }), "do not lie"));
}

BOOST_AUTO_TEST_SUITE_END()
