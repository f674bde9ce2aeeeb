#include "actors/status/activity_board.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace std::chrono_literals;
using status = proto::TaskStatus;

BOOST_AUTO_TEST_SUITE(activity_board)

BOOST_AUTO_TEST_CASE(time_is_counted_by_what_it_was_spent_on) {
  troupe::activity_board board;
  const auto t = troupe::activity_board::time_point{} + 1h;
  BOOST_TEST(board.status(t).doing() == status::DOING_UNSET);
  board.enter(status::WAITING_FOR_LEASE, t);
  board.enter(status::COMPUTING, t + 2s);
  board.enter(status::COMPUTING, t + 3s); // the same activity is reported again
  board.enter(status::WAITING_FOR_UPDATE, t + 7s);
  board.enter(status::COMPUTING, t + 8s);
  BOOST_TEST(board.seconds_in(status::WAITING_FOR_LEASE, t + 10s) == 2);
  BOOST_TEST(board.seconds_in(status::COMPUTING, t + 10s) == 7);
  BOOST_TEST(board.seconds_in(status::WAITING_FOR_UPDATE, t + 10s) == 1);
  BOOST_TEST(board.seconds_in(status::WAITING_FOR_DATA, t + 10s) == 0);
  const auto now = board.status(t + 10s);
  BOOST_TEST(now.doing() == status::COMPUTING);
  BOOST_TEST(now.seconds() == 2);
}

BOOST_AUTO_TEST_CASE(exchanges_hidden_by_computing) {
  troupe::activity_board board;
  const auto t = troupe::activity_board::time_point{} + 1h;
  const auto hidden = [&](auto after) {
    return board.seconds_exchanging_while_computing(t + after);
  };
  board.exchange(true, t);
  BOOST_TEST(hidden(1s) == 0);
  board.enter(status::COMPUTING, t + 1s);
  BOOST_TEST(hidden(3s) == 2);
  board.exchange(true, t + 2s); // the exchange still goes on
  board.exchange(false, t + 4s);
  BOOST_TEST(hidden(9s) == 3);
  board.exchange(true, t + 5s);
  board.enter(status::WAITING_FOR_UPDATE, t + 6s);
  BOOST_TEST(hidden(9s) == 4);
  board.enter(status::COMPUTING, t + 8s);
  BOOST_TEST(hidden(9s) == 5);
  BOOST_TEST(hidden(7s) == 4, "a time before the last change");
}

BOOST_AUTO_TEST_CASE(steps_and_pieces) {
  troupe::activity_board board;
  const auto t = troupe::activity_board::time_point{} + 1h;
  board.enter(status::COMPUTING, t);
  BOOST_TEST(board.status(t + 1s).step_seconds() == 1);
  board.count_step(t + 2s);
  board.count_step(t + 4s);
  board.count_sent(3);
  board.count_received(t);
  const auto now = board.status(t + 5s);
  BOOST_TEST(now.steps() == 2U);
  BOOST_TEST(now.step_seconds() == 1);
  BOOST_TEST(now.pieces_sent() == 3U);
  BOOST_TEST(now.pieces_received() == 1U);
}

BOOST_AUTO_TEST_CASE(others_are_named_while_they_are_waited_for) {
  troupe::activity_board board;
  const auto t = troupe::activity_board::time_point{} + 1h;
  for (const auto i : {0U, 1U, 1U, 2U})
    board.await({job_kind::ps, i});
  board.enter(status::COMPUTING, t);
  BOOST_TEST(board.status(t).waits_for_size() == 0);
  BOOST_TEST(describe(board.status(t)) == "computes");
  board.enter(status::WAITING_FOR_WEIGHTS, t);
  BOOST_TEST(describe(board.status(t)) == "waits for weights from ps/0, ps/1 and ps/2");
  board.arrived({job_kind::ps, 1});
  board.arrived({job_kind::ps, 0});
  BOOST_TEST(describe(board.status(t)) == "waits for weights from ps/2");
  board.await({job_kind::worker, 4});
  board.set_behind(3);
  board.arrived({job_kind::ps, 2});
  BOOST_TEST(describe(board.status(t)) == "waits for worker/4, 3 steps behind");
  board.set_behind(0);
  board.arrived({job_kind::worker, 4});
  board.await({job_kind::ps, 2});
  board.enter(status::WAITING_FOR_UPDATE, t);
  BOOST_TEST(describe(board.status(t)) == "waits for the update by ps/2");
  board.arrived({job_kind::ps, 2});
  board.await({job_kind::worker, 4});
  BOOST_TEST(describe(board.status(t)) == "waits for gradients from worker/4");
  board.arrived({job_kind::worker, 4});
  board.await({job_kind::ps, 1});
  board.enter(status::WAITING_FOR_NORM, t);
  BOOST_TEST(describe(board.status(t)) == "waits for the gradient's norm from ps/1");
  board.enter(status::WAITING_FOR_LEASE, t);
  BOOST_TEST(describe(board.status(t)) == "waits for a lease");
}

BOOST_AUTO_TEST_CASE(long_lists_are_shortened) {
  std::vector<task_name> tasks;
  BOOST_TEST(enumerate(tasks) == "");
  for (std::uint32_t i = 0; i < 4; ++i)
    tasks.push_back({job_kind::worker, i});
  BOOST_TEST(enumerate(tasks) == "worker/0, worker/1, worker/2 and worker/3");
  tasks.push_back({job_kind::worker, 4});
  BOOST_TEST(enumerate(tasks) == "worker/0, worker/1, worker/2 and 2 others");
}

BOOST_AUTO_TEST_CASE(the_position_in_a_ring) {
  troupe::activity_board board;
  const auto t = troupe::activity_board::time_point{} + 1h;
  board.count_received(t);
  BOOST_TEST(!board.ring());
  board.set_ring({.rank = 1, .ranks = 3, .step = 7, .bucket = 2, .since = t});
  board.count_received(t + 3s);
  const auto x = board.ring();
  BOOST_TEST_REQUIRE(x.has_value());
  BOOST_TEST(x->rank == 1u);
  BOOST_TEST(x->ranks == 3u);
  BOOST_TEST(x->step == 7u);
  BOOST_TEST(x->bucket.value() == 2u);
  BOOST_TEST((x->since == t + 3s));
}

BOOST_AUTO_TEST_CASE(the_text_of_a_lost_rank) {
  ring_failure x{{job_kind::worker, 2}, 1, 0, 3, 7, 4, 412ms};
  BOOST_TEST(
    to_string(x)
    == "rank 0 of 3 lost rank 1 (worker/2) in step 7; it has waited for bucket 4 for 412 ms");
  x.bucket.reset();
  BOOST_TEST(to_string(x)
             == "rank 0 of 3 lost rank 1 (worker/2) in step 7, while it waited for no other rank");
}

BOOST_AUTO_TEST_SUITE_END()
