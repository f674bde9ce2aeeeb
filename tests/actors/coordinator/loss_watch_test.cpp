#include "actors/coordinator/loss_watch.hpp"

#include <boost/test/unit_test.hpp>

#include <limits>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(loss_watch)

namespace {

proto::Job job_of(double warmup = 0) {
  proto::Job result;
  result.set_epochs(10);
  result.mutable_learning_rate()->set_base(0.5F);
  result.mutable_learning_rate()->set_warmup_epochs(static_cast<float>(warmup));
  return result;
}

bool contains(const std::optional<std::string>& text, const std::string& what) {
  return text && text->find(what) != std::string::npos;
}

} // namespace

BOOST_AUTO_TEST_CASE(a_run_that_learns_is_left_alone) {
  const auto job = job_of();
  troupe::loss_watch watch{job, {4, 2.3, 100}};
  for (std::uint32_t epoch = 1; epoch <= 10; ++epoch)
    BOOST_TEST(!watch.epoch(epoch, 2.0 / epoch).has_value());
  BOOST_TEST(!watch.epoch(11, 0.2001).has_value(), "noise");
}

BOOST_AUTO_TEST_CASE(no_better_than_a_guess) {
  const auto job = job_of();
  troupe::loss_watch watch{job, {4, 2.3, 100}};
  const auto text = watch.epoch(1, 2.31);
  BOOST_TEST(contains(text, "in epoch 1 of 10 is 2.31"), text.value_or(""));
  BOOST_TEST(contains(text, "a constant guess, which has 2.3"), text.value_or(""));
  BOOST_TEST(contains(text, "Lower learning_rate.base (0.5)"), text.value_or(""));
  BOOST_TEST(!watch.epoch(2, 2.3).has_value(), "once");
  BOOST_TEST(!watch.epoch(3, 1.0).has_value());
  BOOST_TEST(watch.epoch(4, 2.4).has_value(), "again, after it had recovered");
}

BOOST_AUTO_TEST_CASE(hardly_better_than_a_guess) {
  const auto job = job_of();
  troupe::loss_watch watch{job, {4, 2.3, 100}};
  const auto text = watch.epoch(1, 2.29);
  BOOST_TEST(contains(text,
                      "is 2.29: hardly better than a constant guess, which has 2.3. Train for "
                      "more epochs, try a higher or a lower learning_rate.base (0.5), "),
             text.value_or(""));
  BOOST_TEST(!contains(text, "Lower"));
  BOOST_TEST(!contains(text, "no better"));
}

// The loss is high, but it falls: a lower rate would not help.
BOOST_AUTO_TEST_CASE(worse_than_a_guess_but_falling) {
  const auto job = job_of(1);
  troupe::loss_watch watch{job, {4, 2.3, 100}};
  BOOST_TEST(!watch.epoch(1, 8).has_value(), "warm-up");
  const auto text = watch.epoch(2, 5);
  BOOST_TEST(
    contains(text, "no better than a constant guess, which has 2.3. Train for more epochs"),
    text.value_or(""));
}

BOOST_AUTO_TEST_CASE(few_updates_say_nothing) {
  const auto job = job_of();
  troupe::loss_watch watch{job, {4, 2.3, 10}};
  for (std::uint32_t epoch = 1; epoch < 5; ++epoch)
    BOOST_TEST(!watch.epoch(epoch, 2.31).has_value());
  BOOST_TEST(watch.epoch(5, 2.31).has_value());
}

BOOST_AUTO_TEST_CASE(tokens_cannot_be_scaled) {
  auto job = job_of();
  job.mutable_data()->mutable_npz();
  troupe::loss_watch watch{job, {4, 2.3, 100, feature_kind::tokens}};
  BOOST_TEST(!contains(watch.epoch(1, 2.4), "scale the features"));
}

BOOST_AUTO_TEST_CASE(a_warm_up_is_given_time) {
  const auto job = job_of(2);
  troupe::loss_watch watch{job, {1, 2.3, 100}};
  BOOST_TEST(!watch.epoch(1, 2.35).has_value());
  BOOST_TEST(!watch.epoch(2, 2.31).has_value());
  BOOST_TEST(watch.epoch(3, 2.31).has_value());
}

BOOST_AUTO_TEST_CASE(a_loss_that_grows) {
  auto job = job_of(1);
  job.mutable_async_ps()->set_compensation(proto::AsyncPs::NONE);
  troupe::loss_watch watch{job, {4, std::nullopt, 100}};
  BOOST_TEST(!watch.epoch(1, 0.3).has_value());
  const auto text = watch.epoch(2, 0.6);
  BOOST_TEST(contains(text, "grew from 0.3 to 0.6 in epoch 2 of 10"), text.value_or(""));
  BOOST_TEST(contains(text, "leave out async_ps.compensation: NONE"), text.value_or(""));
  BOOST_TEST(!contains(text, "warmup_epochs"));
  BOOST_TEST(!watch.epoch(3, std::numeric_limits<double>::quiet_NaN()).has_value());
}

BOOST_AUTO_TEST_CASE(advice_about_what_the_job_uses) {
  auto job = job_of(1);
  job.mutable_local_sgd()->set_every(8);
  const auto advice = [&job] {
    troupe::loss_watch watch{job, {4, 2.3, 100}};
    watch.epoch(1, 1);
    return watch.epoch(2, 2);
  };
  BOOST_TEST(contains(advice(), ", scale the features"));
  BOOST_TEST(!contains(advice(), "outer"));
  job.mutable_data()->mutable_csv();
  BOOST_TEST(contains(advice(), ", scale the features (data.csv.standardize)"));
  job.mutable_data()->mutable_csv()->set_standardize(true);
  BOOST_TEST(!contains(advice(), "scale the features"));
  job.mutable_data()->mutable_libsvm();
  BOOST_TEST(!contains(advice(), "scale the features"));
  job.mutable_data()->mutable_npy();
  BOOST_TEST(contains(advice(), ", scale the features (data.normalize)"));
  job.mutable_data()->mutable_image_folder();
  BOOST_TEST(!contains(advice(), "scale the features"));
  job.mutable_data()->mutable_npy();
  job.mutable_local_sgd()->mutable_outer()->set_momentum(0.9F);
  job.mutable_data()->mutable_normalize();
  BOOST_TEST(
    contains(advice(), "lower local_sgd.outer.momentum (0.9) or raise local_sgd.every (8)"),
    advice().value_or(""));
  BOOST_TEST(!contains(advice(), "scale the features"));
}

BOOST_AUTO_TEST_SUITE_END()
