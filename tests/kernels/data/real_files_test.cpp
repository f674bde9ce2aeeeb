#include "kernels/data/images.hpp"
#include "kernels/data/table.hpp"
#include "kernels/formats/csv.hpp"
#include "kernels/formats/file.hpp"
#include "tests/support/folders.hpp"

#include <filesystem>
#include <numeric>

#include <boost/test/unit_test.hpp>

BOOST_AUTO_TEST_SUITE(real_files)

using namespace troupe;

namespace {

/// The path of a file with real data. If it is missing, reports the test case as skipped and
/// returns an empty path.
std::filesystem::path real_file(const std::string& name) {
  return test::has_data(name) ? test::data_folder() / name : std::filesystem::path{};
}

} // namespace

BOOST_AUTO_TEST_CASE(mnist) {
  const auto images = real_file("mnist10k/t10k-images-idx3-ubyte.gz");
  const auto labels = real_file("mnist10k/t10k-labels-idx1-ubyte.gz");
  if (images.empty() || labels.empty())
    return;
  const auto data = idx_images(read_plain_or_gzip(images), images.string(),
                               read_plain_or_gzip(labels), labels.string());
  BOOST_TEST(data->size() == 10'000u);
  BOOST_TEST(data->record().feature_width() == 784u);
  BOOST_TEST(data->record().label_width == 10u);
  BOOST_TEST(int{data->classes()[0]} == 7); // the first test image of MNIST is a 7
}

BOOST_AUTO_TEST_CASE(advertising) {
  const auto path = real_file("advertising.csv");
  if (path.empty())
    return;
  const std::vector<std::string> columns{"TV", "radio", "newspaper", "sales"};
  const auto table = parse_csv(read_file(path), columns, path.string());
  BOOST_TEST(table.rows == 200u);
  BOOST_TEST(table.values[0] == 230.1);
  BOOST_TEST(table.values[3] == 22.1);
  std::vector<std::uint64_t> rows(200);
  std::iota(rows.begin(), rows.end(), std::uint64_t{0});
  BOOST_TEST(moments_of(table.values, 4, 0, rows).mean == 147.0425,
             boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_SUITE_END()
