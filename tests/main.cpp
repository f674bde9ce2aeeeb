#include "tests/support/folders.hpp"
#include "tests/support/skip.hpp"

#include <cstdlib>

#define BOOST_TEST_NO_MAIN
#include <boost/test/unit_test.hpp>

namespace troupe::test {

std::filesystem::path source_folder() {
  return TROUPE_SOURCE_DIR;
}

std::filesystem::path data_folder() {
  return std::getenv("TROUPE_DATA");
}

bool has_data(const std::string& name) {
  const bool result = std::filesystem::exists(data_folder() / name);
  if (!result)
    skip(name + " is not in the folder of the data (TROUPE_DATA), " + data_folder().string());
  return result;
}

} // namespace troupe::test

namespace {

bool name_tests() {
  boost::unit_test::framework::master_test_suite().p_name.value = "troupe";
  return true;
}

} // namespace

int main(int argc, char** argv) {
  setenv("TROUPE_DATA", TROUPE_DATA_DIR, 0);
  const int result = boost::unit_test::unit_test_main(&name_tests, argc, argv);
  return result == 0 && troupe::test::anything_skipped() ? troupe::test::exit_skipped : result;
}
