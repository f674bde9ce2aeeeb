#include "actors/parameter_server/rounded_versions.hpp"

#include "actors/model/data_builder.hpp"
#include "kernels/cpu/rounding.hpp"
#include "messages/selection.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(rounded_versions)

namespace {

std::shared_ptr<const job_context> example() {
  const auto job = example_job("digits_mlp", {"data.digits={train: 40 test: 10}"});
  return make_job_context(job, shape_of(*build_data(job).train));
}

version_pool::snapshot version(std::uint64_t number, std::size_t size) {
  version_pool::snapshot result{number, payload::floats(size)};
  for (std::size_t i = 0; i < size; ++i)
    result.data.as_mutable_floats()[i] = std::sin(static_cast<float>(i + number));
  return result;
}

std::vector<float> rounded(const job_context& context, range where, std::span<const float> x) {
  std::vector<float> result(x.begin(), x.end());
  round_to_bfloat16(context.parameters(), where, result);
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(the_two_newest_versions_are_kept) {
  const auto context = example();
  const range where{10, 2000};
  troupe::rounded_versions all{context, where};
  std::vector<payload> first;
  for (const std::uint64_t v : {5, 6, 7}) {
    const auto x = version(v, where.size());
    first.push_back(all.whole(x));
    BOOST_TEST(first.back().is_rounded());
    BOOST_TEST(
      std::ranges::equal(first.back().as_floats(), rounded(*context, where, x.data.as_floats())));
  }
  const auto again = [&](std::uint64_t v) { return all.whole(version(v, where.size())).data(); };
  BOOST_TEST(again(7) == first[2].data());
  BOOST_TEST(again(6) == first[1].data());
  BOOST_TEST(again(5) != first[0].data(), "an older version is rounded again");
  BOOST_TEST(again(7) == first[2].data(), "and replaces no newer version");
}

BOOST_AUTO_TEST_CASE(parts_and_rows_have_the_values_of_the_whole) {
  const auto context = example();
  const range where{3, 1003};
  troupe::rounded_versions all{context, where};
  const auto x = version(1, where.size());
  const auto values = x.data.as_floats();
  const auto whole = all.whole(x);
  const auto part = all.part({103, 203}, values.subspan(100, 100));
  BOOST_TEST(std::ranges::equal(part.as_floats(), whole.as_floats().subspan(100, 100)));
  proto::Selection rows;
  auto& table = *rows.add_tensor();
  table.set_begin(100);
  table.set_end(900);
  table.set_width(8);
  for (const auto row : {0, 7, 8, 99})
    table.add_row(static_cast<std::uint32_t>(row));
  const auto some = all.rows(rows, values);
  std::vector<float> expected(selected(rows, where.begin, where.end));
  gather(rows, where.begin, whole.as_floats(), expected);
  BOOST_TEST(std::ranges::equal(some.as_floats(), expected));
  BOOST_TEST(some.is_rounded());
}

BOOST_AUTO_TEST_SUITE_END()
