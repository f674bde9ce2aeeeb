#include "tests/support/skip.hpp"

#define BOOST_TEST_NO_MAIN
#include <boost/test/unit_test.hpp>

namespace {

bool name_tests() {
  boost::unit_test::framework::master_test_suite().p_name.value = "troupe";
  return true;
}

} // namespace

int main(int argc, char** argv) {
  const int result = boost::unit_test::unit_test_main(&name_tests, argc, argv);
  return result == 0 && troupe::test::anything_skipped() ? troupe::test::exit_skipped : result;
}
