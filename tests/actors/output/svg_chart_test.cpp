#include "actors/output/svg_chart.hpp"

#include "tests/support/input_errors.hpp"

#include <cmath>
#include <limits>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(svg_chart)

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t result = 0;
  for (auto i = text.find(part); i != text.npos; i = text.find(part, i + 1))
    ++result;
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(ticks_hold_all_values) {
  const std::vector<double> expected{0, 0.2, 0.4, 0.6, 0.8, 1};
  const auto ticks = axis_ticks(0, 1);
  BOOST_REQUIRE(ticks.size() == expected.size());
  for (std::size_t i = 0; i < ticks.size(); ++i)
    BOOST_TEST(std::abs(ticks[i] - expected[i]) < 1e-12);
  for (const double low : {-3e8, -1.0, 0.0, 0.97, 1e-12, 5.0})
    for (const double size : {0.0, 1e-300, 1e-20, 1e-9, 0.013, 1.0, 7.0, 1e9}) {
      const auto x = axis_ticks(low, low + size);
      BOOST_TEST_CONTEXT(low << " + " << size) {
        BOOST_TEST(x.size() >= 2u);
        BOOST_TEST(x.size() <= 16u);
        const auto slack = 1e-9 * (x.back() - x.front()) + 1e-15 * std::abs(low);
        BOOST_TEST(x.front() <= low + slack);
        BOOST_TEST(x.back() >= low + size - slack);
      }
    }
}

BOOST_AUTO_TEST_CASE(numbers_at_ticks) {
  BOOST_TEST(tick_text(0) == "0");
  BOOST_TEST(tick_text(0.30000000000000004) == "0.3");
  BOOST_TEST(tick_text(9000) == "9000");
  BOOST_TEST(tick_text(20'000) == "20k");
  BOOST_TEST(tick_text(2.5e6) == "2.5M");
  BOOST_TEST(tick_text(1e-7) == "1e-07");
}

BOOST_AUTO_TEST_CASE(lines) {
  BOOST_TEST(line_chart({"a", "x"}, {}).empty());
  std::vector<chart_line> lines{{"one", "series-1", {{0, 1}, {1, 2}, {2, 1}}, false}};
  const auto plain = line_chart({"a", "x"}, lines);
  BOOST_TEST(count(plain, "<path") == 1u);
  BOOST_TEST(count(plain, "<circle") == 0u);
  BOOST_TEST(count(plain, "L") == 2u);
  lines[0].marks = true;
  BOOST_TEST(count(line_chart({"a", "x"}, lines), "<circle") == 3u);
  // A line with a single point would be invisible, so this point is drawn as a circle.
  lines[0] = {"one", "series-1", {{0, 1}}, false};
  BOOST_TEST(count(line_chart({"a", "x"}, lines), "<circle") == 1u);
}

BOOST_AUTO_TEST_CASE(values_that_are_not_finite_interrupt_a_line) {
  std::vector<chart_line> lines{
    {"one", "series-1", {{0, 1}, {1, 2}, {2, not_a_number}, {3, 1}, {4, 1}}, false}};
  const auto x = line_chart({"a", "x"}, lines);
  BOOST_TEST(count(x, "M") == 2u);
  BOOST_TEST(count(x, "nan") == 0u);
  for (auto& p : lines[0].points)
    p.y = std::numeric_limits<double>::infinity();
  BOOST_TEST(line_chart({"a", "x"}, lines).empty());
}

BOOST_AUTO_TEST_CASE(upright_bars) {
  BOOST_TEST(bar_chart({"a", "x"}, {}).empty());
  const std::vector<chart_bar> bars{{"0", 1'000'000}, {"1", 1}, {"2-3", 0}};
  const auto x = bar_chart({"a", "x"}, bars);
  BOOST_TEST(count(x, "<rect") == 2u, "nothing is drawn for none");
  BOOST_TEST(contains(x, "1,000,000"));
  BOOST_TEST(contains(x, "height=\"1.0\""), "one in a million is seen");
  BOOST_TEST(contains(x, "2-3"));
}

BOOST_AUTO_TEST_CASE(stacks) {
  const std::vector<chart_part> parts{{"computing", "series-1"}, {"waiting", "series-2"}};
  BOOST_TEST(stacked_bars("a", parts, {}).empty());
  std::vector<chart_stack> all{{"worker/0", {3, 1}, "75 %"}, {"worker/1", {0, 2}, "0 %"}};
  const auto x = stacked_bars("a", parts, all);
  BOOST_TEST(count(x, "<rect") == 3u);
  BOOST_TEST(contains(x, "worker/1"));
  BOOST_TEST(contains(x, "waiting: 2.0 s"));
  all[0].parts[0] = not_a_number;
  BOOST_TEST(count(stacked_bars("a", parts, all), "nan") == 0u);
}

BOOST_AUTO_TEST_CASE(texts_are_escaped) {
  const std::string hostile = "<script>\"'&";
  const std::vector<chart_line> lines{{hostile, "series-1", {{0, 1}}, true}};
  const std::vector<chart_bar> bars{{hostile, 1}};
  const std::vector<chart_part> parts{{hostile, "series-1"}};
  const std::vector<chart_stack> stacks{{hostile, {1}, hostile}};
  for (auto& x : {line_chart({hostile, hostile}, lines), bar_chart({hostile, hostile}, bars),
                  stacked_bars(hostile, parts, stacks)}) {
    BOOST_TEST(!x.empty());
    BOOST_TEST(count(x, "<script") == 0u);
    BOOST_TEST(count(x, "\"'") == 0u);
  }
}

BOOST_AUTO_TEST_SUITE_END()
