#pragma once

#include <boost/test/unit_test.hpp>

// Boost.Test puts a suite into a namespace with the suite's name. Many suites have the name of the
// class that they test. If several files are compiled as one, this namespace would hide the class
// `troupe::NAME` from the other files. So this macro makes the name of the namespace longer.
#undef BOOST_AUTO_TEST_SUITE_WITH_DECOR
#define BOOST_AUTO_TEST_SUITE_WITH_DECOR(suite_name, decorators)                                   \
  namespace BOOST_JOIN(suite_name, _suite) {                                                       \
    BOOST_AUTO_TU_REGISTRAR(suite_name)                                                            \
    (BOOST_STRINGIZE(suite_name), __FILE__, __LINE__, decorators);
