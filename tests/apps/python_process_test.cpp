#include "apps/troupe/bench/python_process.hpp"

#include <boost/test/unit_test.hpp>

#include <stdexcept>

using namespace troupe::bench;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(processes_of_python)

BOOST_AUTO_TEST_CASE(answers_until_the_end) {
  python_process process{"python3", "print(input() + '!'); print('no end of line', end='')", 1};
  process.tell("hello\n");
  BOOST_TEST(process.answer() == "hello!");
  BOOST_TEST(process.answer() == "");
}

// A process that hangs is reported, and is killed although it waits.
BOOST_AUTO_TEST_CASE(no_answer) {
  python_process process{"python3", "import time\ntime.sleep(1000)", 1};
  BOOST_CHECK_EXCEPTION(process.answer(50ms), std::runtime_error, [](const auto& error) {
    return std::string{error.what()} == "the Python process has not answered within 0.05 s";
  });
}

BOOST_AUTO_TEST_SUITE_END()
