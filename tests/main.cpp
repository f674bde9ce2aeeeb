#include "tests/support/folders.hpp"
#include "tests/support/leftovers.hpp"
#include "tests/support/skip.hpp"

#include <cstdlib>
#include <iostream>
#include <thread>

#define BOOST_TEST_NO_MAIN
#include <boost/cstdlib.hpp>
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

using namespace boost::unit_test;

/// After each test case, notes which descriptors, threads and shared memory are left behind.
class tidiness : public test_observer {
public:
  void test_unit_finish(const test_unit& x, unsigned long /*microseconds*/) override {
    if (x.p_type == TUT_CASE)
      left_.note(x.full_name());
  }

  /// False if the tests have left anything behind. Prints what it is.
  bool good() const {
    const auto found = left_.found();
    for (const auto& x : found)
      std::cerr << "error: the tests have left behind: " << x << '\n';
    return found.empty();
  }

  // Boost.Test's own observers must be called first.
  int priority() override { return 10; }

private:
  troupe::test::leftovers left_;
};

tidiness& observer() {
  static tidiness result;
  return result;
}

bool name_tests() {
  framework::master_test_suite().p_name.value = "troupe";
  framework::register_observer(observer());
  return true;
}

} // namespace

int main(int argc, char** argv) {
  setenv("TROUPE_DATA", TROUPE_DATA_DIR, 0);
  std::thread{[] {}}.join(); // lets ThreadSanitizer start its own thread now
  observer();                // the observer must exist before any test runs
  int result = unit_test_main(&name_tests, argc, argv);
  if (result == 0 && !observer().good())
    result = boost::exit_test_failure;
  return result == 0 && troupe::test::anything_skipped() ? troupe::test::exit_skipped : result;
}
