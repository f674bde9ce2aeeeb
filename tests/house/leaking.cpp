// A test that leaks memory, to show that leaks are found.

#include <boost/test/unit_test.hpp>

#include <memory>

BOOST_AUTO_TEST_CASE(leaks) {
  // Otherwise a register or the stack may still hold the address of the last one.
  for (int i = 0; i < 100; ++i)
    BOOST_TEST(*std::make_unique<int>(i).release() == i);
}
