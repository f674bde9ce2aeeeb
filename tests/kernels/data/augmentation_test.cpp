#include "kernels/data/augmentation.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

BOOST_AUTO_TEST_SUITE(augmentations)

using namespace troupe;

namespace {

const shape dims{2, 3, 4};

std::vector<float> image() {
  std::vector<float> result(dims.elements());
  std::iota(result.begin(), result.end(), 1.0F);
  return result;
}

/// The expected image: mirrored if `flips` is true, and then moved.
std::vector<float> expected(bool flips, int down, int right) {
  const auto from = image();
  std::vector<float> result(from.size());
  for (int c = 0; c < 2; ++c)
    for (int y = 0; y < 3; ++y)
      for (int x = 0; x < 4; ++x) {
        const int old_y = y + down;
        const int shifted = x + right;
        if (old_y < 0 || old_y >= 3 || shifted < 0 || shifted >= 4)
          continue;
        const int old_x = flips ? 3 - shifted : shifted;
        result[(c * 3 + y) * 4 + x] = from[(c * 3 + old_y) * 4 + old_x];
      }
  return result;
}

} // namespace

// Every result is the image after a flip, a shift, or both. All possible results occur.
BOOST_AUTO_TEST_CASE(flips_and_shifts) {
  std::vector<std::vector<float>> all;
  for (const bool flips : {false, true})
    for (int down = -2; down <= 2; ++down)
      for (int right = -2; right <= 2; ++right)
        all.push_back(expected(flips, down, right));
  std::set<std::size_t> seen;
  for (std::uint64_t key = 0; key < 1000; ++key) {
    auto x = image();
    augment(x, dims, {true, 2}, key);
    const auto which = std::ranges::find(all, x);
    BOOST_TEST_REQUIRE((which != all.end()));
    seen.insert(static_cast<std::size_t>(which - all.begin()));
    auto again = image();
    augment(again, dims, {true, 2}, key);
    BOOST_TEST(again == x);
  }
  BOOST_TEST(seen.size() == all.size());
}

BOOST_AUTO_TEST_CASE(half_are_mirrored) {
  int mirrored = 0;
  for (std::uint64_t key = 0; key < 1000; ++key) {
    auto x = image();
    augment(x, dims, {true, 0}, key);
    mirrored += x == expected(true, 0, 0) ? 1 : 0;
  }
  BOOST_TEST((mirrored > 430 && mirrored < 570));
  auto x = image();
  augment(x, dims, {}, 7);
  BOOST_TEST(x == image());
}

BOOST_AUTO_TEST_SUITE_END()
