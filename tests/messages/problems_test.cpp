#include "messages/problems.hpp"

#include "messages/names.hpp"

#include <limits>

#include <boost/test/unit_test.hpp>

using namespace troupe;

namespace {

constexpr auto nan_value = std::numeric_limits<double>::quiet_NaN();
constexpr auto infinite = std::numeric_limits<double>::infinity();
constexpr auto huge = std::numeric_limits<std::uint64_t>::max();

proto::Commit good_commit() {
  proto::Commit result;
  result.mutable_id()->set_sequence(1);
  result.set_samples(8);
  result.set_gradient_norm(2);
  result.set_loss(-0.5);
  result.set_scale(0.5);
  return result;
}

proto::Lease good_lease() {
  proto::Lease result;
  result.set_begin(10);
  result.set_end(30);
  result.set_batch(4);
  result.set_stride(8);
  result.set_offset(4);
  return result;
}

template <class Message, class Change, class... Limits>
std::string changed(Message x, Change change, Limits... limits) {
  change(x);
  return problem_of(x, limits...);
}

} // namespace

BOOST_AUTO_TEST_SUITE(problems)

BOOST_AUTO_TEST_CASE(commits) {
  const auto with = [](auto change) { return changed(good_commit(), change, 8U); };
  BOOST_TEST(with([](auto&) {}) == "");
  BOOST_TEST(with([](auto& x) { x.set_samples(9); }) == "9 samples in a batch of at most 8");
  BOOST_TEST(with([](auto& x) { x.mutable_id()->set_sequence(0); }) != "");
  for (const auto bad : {nan_value, infinite, -infinite}) {
    BOOST_TEST(with([bad](auto& x) { x.set_gradient_norm(bad); }) != "");
    BOOST_TEST(with([bad](auto& x) { x.set_loss(bad); }) != "");
    BOOST_TEST(with([bad](auto& x) { x.set_scale(bad); }) != "");
  }
  BOOST_TEST(with([](auto& x) { x.set_gradient_norm(-1); }) == "a norm of -1.000000");
  BOOST_TEST(with([](auto& x) { x.set_scale(1.5); }) != "");
  proto::Advanced news;
  BOOST_TEST(problem_of(news) == "");
  news.set_gradient_norm(2);
  BOOST_TEST(problem_of(news) == "");
  for (const auto bad : {nan_value, infinite, -1.0}) {
    news.set_gradient_norm(bad);
    BOOST_TEST(problem_of(news).find("a norm of ") == 0u);
  }
  proto::Damping damping;
  for (const auto bad : {nan_value, infinite, -1.0, 0.0, 1.5}) {
    damping.set_factor(bad);
    BOOST_TEST(problem_of(damping) != "");
  }
  damping.set_factor(1);
  BOOST_TEST(problem_of(damping) == "");
  // A gradient in quarantine is left out by all shards, so its numbers do not matter.
  BOOST_TEST(with([](auto& x) {
               x.set_quarantine(true);
               x.set_loss(nan_value);
             })
             == "");
}

BOOST_AUTO_TEST_CASE(leases) {
  const auto with = [](auto change) { return changed(good_lease(), change); };
  BOOST_TEST(with([](auto&) {}) == "");
  BOOST_TEST(with([](auto& x) { x.set_stride(0); }) != "");
  BOOST_TEST(with([](auto& x) { x.set_batch(0); }) != "");
  BOOST_TEST(with([](auto& x) { x.set_batch(5); }) == "batches of 5 at 4 of every 8");
  BOOST_TEST(with([](auto& x) { x.set_offset(8); }) != "");
  BOOST_TEST(with([](auto& x) { x.set_end(10); }) == "positions 10 to 10");
  BOOST_TEST(with([](auto& x) { x.set_end(huge); }) != "");
  BOOST_TEST(with([](auto& x) { x.set_stride(huge); }) != "");
}

BOOST_AUTO_TEST_CASE(what_workers_report) {
  proto::LeaseDone done;
  done.set_samples(4);
  done.set_loss_samples(4);
  done.set_loss_sum(3);
  BOOST_TEST(problem_of(done) == "");
  BOOST_TEST(changed(done, [](auto& x) { x.set_loss_sum(nan_value); }) == "a sum of losses of nan");
  BOOST_TEST(changed(done, [](auto& x) { x.set_loss_samples(5); }) == "losses of 5 of 4 samples");
  BOOST_TEST(changed(done, [](auto& x) { x.set_loss_samples(0); }) != "");
  BOOST_TEST(changed(done, [](auto& x) { x.set_loss_sum(1e300); }) != "");
  for (const auto set :
       {&proto::Progress::set_computing, &proto::Progress::set_exchanging_while_computing,
        &proto::Progress::set_waiting_for_lease, &proto::Progress::set_waiting_for_data,
        &proto::Progress::set_waiting_for_weights, &proto::Progress::set_waiting_for_update})
    for (const auto bad : {-1.0, nan_value, infinite})
      BOOST_TEST(changed(done, [&](auto& x) { (x.mutable_progress()->*set)(bad); }) != "");
  BOOST_TEST(changed(done, [](auto& x) { x.mutable_progress()->set_gradient_norm(nan_value); })
             != "");
  BOOST_TEST(changed(proto::Heartbeat{}, [](auto& x) { x.set_loss_sum(infinite); }) != "");
  BOOST_TEST(changed(done, [](auto& x) { x.mutable_progress()->set_produced(huge); })
             == "gradients 18446744073709551615, more than any run counts");
  BOOST_TEST(changed(done, [](auto& x) { x.mutable_progress()->add_staleness(huge); }) != "");
  proto::TaskStatus status;
  BOOST_TEST(problem_of(status) == "");
  BOOST_TEST(changed(status, [](auto& x) { x.set_seconds(1e300); }) != "");
  BOOST_TEST(changed(status, [](auto& x) { x.set_step_seconds(nan_value); }) != "");
  BOOST_TEST(
    changed(status, [](auto& x) { x.set_doing(static_cast<proto::TaskStatus::Doing>(99)); })
    == "an activity 99");
  BOOST_TEST(changed(status, [](auto& x) { x.mutable_pacing()->set_damping(nan_value); }) != "");
  BOOST_TEST(changed(status, [](auto& x) { x.set_clock(huge); }) != "");
}

BOOST_AUTO_TEST_CASE(activities) {
  proto::TaskStatus status;
  auto& done = *status.mutable_done();
  for (int i = 0; i < 2; ++i) {
    done.add_pauses(5);
    done.add_lengths(7);
    done.add_doing(proto::TaskStatus::COMPUTING);
    done.add_steps(1);
    done.add_arrived(0);
  }
  *done.add_tasks() = to_proto(task_name{job_kind::ps, 0});
  BOOST_TEST(problem_of(status) == "");
  const auto with = [&](auto change) {
    return changed(status, [&](auto& x) { change(*x.mutable_done()); });
  };
  BOOST_TEST(with([](auto& x) { x.set_arrived(1, 1); }) == "");
  BOOST_TEST(with([](auto& x) { x.set_arrived(1, 2); }) == "an activity that is not known");
  BOOST_TEST(with([](auto& x) { x.set_doing(1, static_cast<proto::TaskStatus::Doing>(99)); })
             == "an activity that is not known");
  BOOST_TEST(with([](auto& x) { x.clear_doing(); }) == "");
  for (const auto& problem :
       {with([](auto& x) { x.add_pauses(1); }),
        with([](auto& x) { x.mutable_doing()->RemoveLast(); }),
        with([](auto& x) { x.clear_steps(); }), with([](auto& x) { x.clear_arrived(); })})
    BOOST_TEST(problem == "lists of activities of different or too large sizes");
  BOOST_TEST(with([](auto& x) { x.set_pauses(1, huge); })
             == "an activity that ends later than any run");
  BOOST_TEST(with([](auto& x) { x.set_lengths(1, huge - 10); })
             == "an activity that ends later than any run");
  BOOST_TEST(with([](auto& x) { x.set_steps(1, most_counted); })
             == "an activity of more steps than any run has");
  BOOST_TEST(changed(status, [](auto& x) { x.mutable_exchanged()->add_lengths(1); }) != "");
}

BOOST_AUTO_TEST_CASE(counts) {
  proto::CheckpointPart part;
  part.set_version(most_counted);
  BOOST_TEST(problem_of(part) == "");
  BOOST_TEST(changed(part, [](auto& x) { x.set_version(most_counted + 1); })
             == "version 281474976710657, more than any run counts");
  BOOST_TEST(changed(part, [](auto& x) { x.add_mark()->set_lease(huge); })
             == "lease 18446744073709551615, more than any run counts");
  BOOST_TEST(changed(part, [](auto& x) { x.add_mark()->set_incarnation(huge); }) == "");
  BOOST_TEST(changed(part, [](auto& x) { x.add_mark()->set_updates(huge); }) != "");
  BOOST_TEST(changed(part, [](auto& x) { x.add_mark()->mutable_loss_scale()->set_value(1); })
             == "");
  BOOST_TEST(changed(part, [](auto& x) { x.add_mark()->mutable_loss_scale(); })
             == "a loss scale of 0");
  BOOST_TEST(problem_of(proto::Restore{}) == "");
  BOOST_TEST(changed(proto::Restore{}, [](auto& x) { x.set_updates(huge); }) != "");
  BOOST_TEST(changed(proto::Restore{}, [](auto& x) { x.set_version(huge); }) != "");
  BOOST_TEST(changed(proto::Restore{}, [](auto& x) { x.set_samples(huge); }) != "");
  BOOST_TEST(problem_of(proto::Report{}) == "");
  BOOST_TEST(changed(proto::Report{}, [](auto& x) { x.set_samples(huge); }) != "");
  BOOST_TEST(changed(proto::Report{}, [](auto& x) { x.set_captured(huge); }) != "");
  BOOST_TEST(changed(proto::Report{}, [](auto& x) { x.add_decided()->set_applied(huge); }) != "");
}

BOOST_AUTO_TEST_CASE(norms) {
  proto::PartialNorm norm;
  BOOST_TEST(problem_of(norm) == "");
  for (const auto bad : {-1.0, nan_value, infinite})
    BOOST_TEST(changed(norm, [bad](auto& x) { x.set_squares(bad); }) != "");
}

BOOST_AUTO_TEST_CASE(views) {
  proto::OpenView view;
  *view.mutable_task() = to_proto(task_name{job_kind::worker, 1});
  BOOST_TEST(problem_of(view, 5) == "worker/1, as started here, is not a member");
  auto* self = view.add_member();
  *self->mutable_task() = view.task();
  self->set_incarnation(5);
  BOOST_TEST(problem_of(view, 5) == "");
  BOOST_TEST(problem_of(view, 6) != "", "another start of the same task");
  view.mutable_loss_scale()->set_value(std::uint64_t{1} << 60);
  BOOST_TEST(problem_of(view, 5) == "");
  view.mutable_loss_scale()->set_value(3);
  BOOST_TEST(problem_of(view, 5) == "a loss scale of 3");
  *view.add_member()->mutable_task() = view.task();
  BOOST_TEST(problem_of(view, 5) == "worker/1 is a member twice");
  view.mutable_member(1)->mutable_task()->set_job("what");
  BOOST_TEST(problem_of(view, 5) == "a member of an unknown job 'what'");
  proto::OpenView beside;
  *beside.mutable_task() = to_proto(task_name{job_kind::evaluator, 0});
  BOOST_TEST(problem_of(beside, 5) == "");
}

BOOST_AUTO_TEST_CASE(evaluations) {
  proto::Evaluated x;
  x.set_weights_sha256(std::string(64, 'a'));
  BOOST_TEST(problem_of(x, 3) == "");
  BOOST_TEST(changed(
               x, [](auto& y) { y.set_accuracy(1.5); }, 3U)
             != "");
  BOOST_TEST(changed(
               x, [](auto& y) { y.set_test_accuracy(nan_value); }, 3U)
             != "");
  BOOST_TEST(changed(
               x, [](auto& y) { y.set_weights_sha256("abc"); }, 3U)
             != "");
  BOOST_TEST(changed(
               x, [](auto& y) { y.add_coefficients(1); }, 3U)
             == "1 coefficients instead of 3");
  BOOST_TEST(changed(
               x, [](auto& y) { y.mutable_measures()->set_auc(1.5); }, 3U)
             == "a measure outside 0 .. 1");
  BOOST_TEST(changed(
               x, [](auto& y) { y.mutable_test_measures()->set_perplexity(-1); }, 3U)
             == "a perplexity of -1.000000");
  auto diverged = x;
  diverged.mutable_measures()->set_perplexity(nan_value);
  BOOST_TEST(problem_of(diverged, 3).find("a perplexity of ") == 0u);
  diverged.set_loss(nan_value);
  BOOST_TEST(problem_of(diverged, 3) == "", "the weights are the cause, not the evaluator");
  diverged.mutable_measures()->set_perplexity(infinite);
  BOOST_TEST(problem_of(diverged, 3) == "");
  for (int i = 0; i < 4; ++i)
    x.mutable_measures()->add_confusion(i);
  BOOST_TEST(problem_of(x, 3) == "");
  BOOST_TEST(changed(
               x, [](auto& y) { y.mutable_measures()->add_confusion(1); }, 3U)
             == "a confusion matrix of 5 numbers, which is not square");
}

BOOST_AUTO_TEST_SUITE_END()
