// A test that leaks memory on purpose. It shows that leaks are found.

#include <boost/test/unit_test.hpp>

#include <memory>

BOOST_AUTO_TEST_CASE(leaks) {
  // Leaks many objects. If it leaked only one, its address might still be in a register or on the
  // stack, and then it would not count as a leak.
  for (int i = 0; i < 100; ++i)
    BOOST_TEST(*std::make_unique<int>(i).release() == i);
}
