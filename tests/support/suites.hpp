#pragma once

#include <boost/test/unit_test.hpp>

// Boost.Test puts a suite into a namespace of the same name. Many suites are named after the class
// that they test. Other files that are compiled with such a suite as one could not use the class
// without `troupe::`. Here the namespace has a longer name.
#undef BOOST_AUTO_TEST_SUITE_WITH_DECOR
#define BOOST_AUTO_TEST_SUITE_WITH_DECOR(suite_name, decorators)                                   \
  namespace BOOST_JOIN(suite_name, _suite) {                                                       \
    BOOST_AUTO_TU_REGISTRAR(suite_name)                                                            \
    (BOOST_STRINGIZE(suite_name), __FILE__, __LINE__, decorators);
