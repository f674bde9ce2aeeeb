#include "kernels/graph/placement.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(placement)

namespace {

layout of(const std::vector<shape>& shapes) {
  layout result;
  for (const auto& x : shapes)
    result.add("tensor_" + std::to_string(result.entries().size()), x);
  return result;
}

/// A layout with up to 12 tensors of up to 3 dimensions. Some tensors are scalars, and some have no
/// elements.
layout random_layout(std::mt19937& random) {
  std::vector<shape> shapes(random() % 13);
  for (auto& x : shapes) {
    std::vector<std::int64_t> extents(random() % 4);
    for (auto& extent : extents)
      extent = random() % 40 == 0 ? 0 : 1 + static_cast<std::int64_t>(random() % 9);
    x = shape{extents};
  }
  return of(shapes);
}

std::size_t largest(const std::vector<range>& parts) {
  return parts.empty() ? 0 : std::ranges::max(parts, {}, &range::size).size();
}

/// Cuts the tensors beginning with number `from` into parts, only between tensors, in all possible
/// ways. Returns the size of the largest part in the best way.
std::size_t least_largest(const layout& x, std::size_t parts, std::size_t from = 0) {
  const auto& tensors = x.entries();
  const auto at = [&](std::size_t i) { return i < tensors.size() ? tensors[i].offset : x.size(); };
  if (parts == 1)
    return x.size() - at(from);
  auto result = x.size();
  for (auto to = from; to <= tensors.size(); ++to)
    result = std::min(result, std::max(at(to) - at(from), least_largest(x, parts - 1, to)));
  return result;
}

void check_covers(const std::vector<range>& parts, std::size_t count, std::size_t n) {
  BOOST_TEST_REQUIRE(parts.size() == count);
  std::size_t end = 0;
  for (const auto& x : parts) {
    BOOST_TEST(x.begin == end);
    BOOST_TEST(x.begin <= x.end);
    end = x.end;
  }
  BOOST_TEST(end == n);
}

bool cuts_a_tensor(const layout& x, const std::vector<range>& parts) {
  return std::ranges::any_of(x.entries(), [&](auto& tensor) {
    return std::ranges::any_of(parts, [&](auto& part) {
      const auto common = intersect(tensor.elements(), part).size();
      return common != 0 && common != tensor.size;
    });
  });
}

/// The size of the largest part if the parts get tensors in turn, as with TensorFlow's
/// replica_device_setter.
std::size_t largest_in_turn(const layout& x, std::size_t parts) {
  std::vector<std::size_t> sizes(parts);
  for (std::size_t i = 0; i < x.entries().size(); ++i)
    sizes[i % parts] += x.entries()[i].size;
  return std::ranges::max(sizes);
}

std::vector<shape> vgg_16() {
  std::vector<shape> result;
  std::int64_t in = 3;
  for (const std::int64_t out : {64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512}) {
    result.insert(result.end(), {{out, in, 3, 3}, {out}});
    in = out;
  }
  result.insert(result.end(), {{25088, 4096}, {4096}, {4096, 4096}, {4096}, {4096, 1000}, {1000}});
  return result;
}

std::vector<shape> gpt_2() {
  std::vector<shape> result{{50257, 768}, {1024, 768}};
  for (int i = 0; i < 12; ++i)
    result.insert(result.end(),
                  {{768},
                   {768},
                   {768, 2304},
                   {2304},
                   {768, 768},
                   {768},
                   {768},
                   {768},
                   {768, 3072},
                   {3072},
                   {3072, 768},
                   {768}});
  result.insert(result.end(), {{768}, {768}});
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(every_element_is_in_one_part) {
  std::mt19937 random{1};
  for (int i = 0; i < 300; ++i) {
    const auto x = random_layout(random);
    for (const std::size_t parts : {1, 2, 3, 5, 16, 100})
      BOOST_TEST_CONTEXT(to_string(x) << parts << " parts") {
        const auto rows = cut_at_rows(x, parts);
        check_covers(rows, parts, x.size());
        // A cut moves to the beginning of a row, by at most an eighth of an even part.
        BOOST_TEST(largest(rows) <= (x.size() + parts - 1) / parts + x.size() / parts / 4);
        const auto tensors = cut_at_tensors(x, parts);
        check_covers(tensors, parts, x.size());
        BOOST_TEST(!cuts_a_tensor(x, tensors));
      }
  }
}

BOOST_AUTO_TEST_CASE(the_largest_part_of_whole_tensors_is_as_small_as_can_be) {
  std::mt19937 random{2};
  for (int i = 0; i < 200; ++i) {
    const auto x = random_layout(random);
    for (const std::size_t parts : {1, 2, 3, 4})
      BOOST_TEST_CONTEXT(to_string(x) << parts << " parts")
    BOOST_TEST(largest(cut_at_tensors(x, parts)) == least_largest(x, parts));
  }
}

// Each part gets a tensor if there are enough. A part without a tensor might not make the largest
// part larger, but is not allowed.
BOOST_AUTO_TEST_CASE(parts_of_whole_tensors_are_even) {
  const auto one_large = of({{100}, {10}, {1}, {1}});
  BOOST_TEST((cut_at_tensors(one_large, 4)
              == std::vector<range>{{0, 100}, {100, 110}, {110, 111}, {111, 112}}));
  const auto large_last = of({{10}, {10}, {10}, {10}, {100}});
  BOOST_TEST(std::ranges::none_of(cut_at_tensors(large_last, 3), &range::empty));
  const auto two = of({{3}, {4}});
  BOOST_TEST((cut_at_tensors(two, 4) == std::vector<range>{{0, 3}, {3, 7}, {7, 7}, {7, 7}}));
}

// The manual says with these figures why there is no placement ROUND_ROBIN.
BOOST_AUTO_TEST_CASE(tensors_in_turn_are_less_even) {
  struct figures {
    std::vector<shape> tensors;
    std::vector<double> in_turn;
    std::vector<double> whole;
  };
  const std::vector<shape> mlp{{784, 256}, {256}, {256, 128}, {128}, {128, 10}, {10}};
  for (const auto& x : {figures{mlp, {2.00, 2.56, 3.44, 6.83}, {1.71, 2.56, 3.41, 6.83}},
                        figures{vgg_16(), {2.00, 2.31, 3.28, 6.11}, {1.70, 2.23, 2.97, 5.94}},
                        figures{gpt_2(), {1.99, 1.78, 2.83, 4.07}, {1.00, 1.01, 1.24, 2.48}}}) {
    const auto tensors = of(x.tensors);
    const std::size_t servers[] = {2, 3, 4, 8};
    for (std::size_t i = 0; i < std::size(servers); ++i)
      BOOST_TEST_CONTEXT(tensors.size() << " parameters on " << servers[i]) {
        const auto even = static_cast<double>(tensors.size()) / static_cast<double>(servers[i]);
        const auto share = [even](std::size_t part) {
          return std::round(static_cast<double>(part) / even * 100) / 100;
        };
        BOOST_TEST(share(largest_in_turn(tensors, servers[i])) == x.in_turn[i]);
        BOOST_TEST(share(largest(cut_at_tensors(tensors, servers[i]))) == x.whole[i]);
        BOOST_TEST(share(largest(cut_at_rows(tensors, servers[i]))) <= 1.01);
      }
  }
}

BOOST_AUTO_TEST_CASE(rows_stay_whole) {
  // An even cut of 106 elements would be at 53, inside the row from 48 to 56. It moves to 56.
  BOOST_TEST((cut_at_rows(of({{13, 8}, {2}}), 2) == std::vector<range>{{0, 56}, {56, 106}}));
  // A row of a tensor with several dimensions is all elements with the same first index.
  BOOST_TEST((cut_at_rows(of({{13, 2, 4}, {2}}), 2) == std::vector<range>{{0, 56}, {56, 106}}));
  // The only row has 96 elements, so the cut would have to move by 48. This is too far, so the row
  // is cut.
  BOOST_TEST((cut_at_rows(of({{1, 96}, {96}}), 4)
              == std::vector<range>{{0, 48}, {48, 96}, {96, 144}, {144, 192}}));
}

BOOST_AUTO_TEST_CASE(no_parts_and_no_tensors) {
  BOOST_TEST(cut_at_rows(of({{3}}), 0).empty());
  BOOST_TEST(cut_at_tensors(of({{3}}), 0).empty());
  check_covers(cut_at_rows({}, 3), 3, 0);
  check_covers(cut_at_tensors({}, 3), 3, 0);
}

BOOST_AUTO_TEST_SUITE_END()
