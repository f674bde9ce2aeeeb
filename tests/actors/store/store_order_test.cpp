#include "actors/store/store_order.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using turn = store_order::turn;

BOOST_AUTO_TEST_SUITE(store_order_of_clients)

BOOST_AUTO_TEST_CASE(each_number_is_due_once_and_in_order) {
  store_order x;
  BOOST_TEST(x.open(7, false));
  BOOST_TEST((x.judge(7, 2) == turn::early));
  BOOST_TEST((x.judge(7, 1) == turn::due));
  BOOST_TEST((x.judge(7, 1) == turn::due));
  x.done(7);
  BOOST_TEST((x.judge(7, 1) == turn::done));
  BOOST_TEST((x.judge(7, 2) == turn::due));
  BOOST_TEST((x.judge(7, 0) == turn::impossible));
  // An operation may arrive before its turn, but only within a window. The window begins at the
  // operation whose turn it is.
  BOOST_TEST((x.judge(7, 1 + store_window::operations) == turn::early));
  BOOST_TEST((x.judge(7, 2 + store_window::operations) == turn::impossible));
}

BOOST_AUTO_TEST_CASE(a_client_that_opens_again_goes_on) {
  store_order x;
  BOOST_TEST(!x.open(7, true));
  BOOST_TEST(!x.knows(7));
  BOOST_TEST(x.open(7, false));
  x.done(7);
  BOOST_TEST(x.open(7, true));
  BOOST_TEST((x.judge(7, 2) == turn::due));
  x.close(7);
  BOOST_TEST(!x.knows(7));
}

BOOST_AUTO_TEST_CASE(the_clients_used_last_are_remembered) {
  store_order x;
  for (std::uint64_t client = 1; client <= store_order::most_clients; ++client)
    BOOST_TEST(x.open(client, false));
  x.judge(1, 1);
  BOOST_TEST(x.open(100'000, false));
  BOOST_TEST(x.knows(1));
  BOOST_TEST(!x.knows(2));
  BOOST_TEST(x.knows(3));
  BOOST_TEST(x.knows(100'000));
}

BOOST_AUTO_TEST_SUITE_END()
