#include "actors/model/global_batch.hpp"

#include "actors/model/data_builder.hpp"
#include "actors/model/job_file.hpp"
#include "tests/actors/model/example_job.hpp"
#include "tests/support/input_errors.hpp"

BOOST_AUTO_TEST_SUITE(global_batch)

using namespace troupe;
using namespace troupe::test;

namespace {

proto::Job job_with(const std::string& change) {
  auto result = digits_job();
  result.mutable_data()->clear_batch();
  apply_override(result, change);
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(divided_among_the_workers) {
  auto job = job_with("data.global_batch=48");
  divide_batch(job, 4);
  BOOST_TEST(job.data().batch() == 12u);
  const auto context = make_job_context(job, shape_of(*build_data(job).train));
  BOOST_TEST(context->batch() == 12u);
  BOOST_TEST(batch_text(*context, 4) == "12 samples per worker, 48 over all 4 workers");
  BOOST_TEST(batch_text(*context, 1) == "12 samples per worker, 12 over the one worker");
  // A job without `global_batch` does not change.
  auto other = job_with("data.batch=8");
  divide_batch(other, 3);
  BOOST_TEST(other.data().batch() == 8u);
}

BOOST_AUTO_TEST_CASE(divided_among_batches_that_are_added_up) {
  auto job = job_with("data.global_batch=48");
  apply_override(job, "accumulate=3");
  divide_batch(job, 4);
  BOOST_TEST(job.data().batch() == 4u);
  const auto context = make_job_context(job, shape_of(*build_data(job).train));
  BOOST_TEST(context->gradient_samples() == 12u);
  BOOST_TEST(batch_text(*context, 4)
             == "12 samples per worker (3 batches of 4), 48 over all 4 workers");
  apply_override(job, "data.global_batch=52");
  BOOST_TEST(error_of([&] { divide_batch(job, 4); })
             == "data.global_batch: 52 samples cannot be divided among 4 workers with accumulate: "
                "3; expected a multiple of 12");
}

BOOST_AUTO_TEST_CASE(accumulate_that_cannot_be) {
  const auto problem = [](const std::vector<std::string>& changes) {
    auto job = digits_job();
    for (auto& x : changes)
      apply_override(job, x);
    return error_of([&] { validate(job); });
  };
  BOOST_TEST(problem({"accumulate=4"}) == "(no error)");
  BOOST_TEST(contains(problem({"accumulate=0"}), "accumulate: 0; expected a number of batches"));
  BOOST_TEST(contains(problem({"accumulate=2", "data.batch=0"}), "accumulate: data.batch is 0"));
  BOOST_TEST(contains(problem({"accumulate=4294967295"}), "accumulate: 4294967295 batches of"));
}

BOOST_AUTO_TEST_CASE(what_does_not_divide) {
  auto job = job_with("data.global_batch=50");
  BOOST_TEST(error_of([&] { divide_batch(job, 4); })
             == "data.global_batch: 50 samples cannot be divided among 4 workers; expected a "
                "multiple of 4");
  apply_override(job, "data.batch=10");
  divide_batch(job, 5); // both settings give the same batch
  BOOST_TEST(job.data().batch() == 10u);
  BOOST_TEST(contains(error_of([&] { divide_batch(job, 2); }), "data.batch: 10 per worker, but"));
  BOOST_TEST(contains(error_of([&] { validate(job_with("data.global_batch=0")); }),
                      "data.global_batch: 0 samples"));
}

// Dividing the batch among workers must not change the hash of the job, because weights files
// contain the hash and nodes compare it.
BOOST_AUTO_TEST_CASE(the_job_stays_the_same) {
  const auto job = job_with("data.global_batch=48");
  auto divided = job;
  divide_batch(divided, 4);
  BOOST_TEST(job_hash(divided) == job_hash(job));
  BOOST_TEST(job_hash(job_with("data.global_batch=24")) != job_hash(job));
  BOOST_TEST(first_difference(divided, job).empty());
}

// An elastic run may continue without some of its workers.
BOOST_AUTO_TEST_CASE(fewer_workers) {
  auto job = job_with("data.batch=12");
  const auto text = [&job](std::size_t present) {
    return batch_text(*make_job_context(job, shape_of(*build_data(job).train)), present, 4);
  };
  BOOST_TEST(text(4) == "12 samples per worker, 48 over all 4 workers");
  BOOST_TEST(text(3) == "12 samples per worker, 36 over 3 of 4 workers");
  job = job_with("data.global_batch=96");
  job.set_accumulate(2);
  divide_batch(job, 4);
  BOOST_TEST(text(4) == "24 samples per worker (2 batches of 12), 96 over all 4 workers");
  BOOST_TEST(text(1)
             == "24 samples per worker (2 batches of 12), 24 over 1 of 4 workers, of "
                "data.global_batch: 96");
}

// The batch per worker is unknown until the number of workers is known. Until then, the data may
// have fewer records than the default batch of 64.
BOOST_AUTO_TEST_CASE(data_without_workers) {
  auto job = job_with("data.global_batch=40");
  apply_override(job, "data.digits={ train: 50 test: 10 }");
  validate(job);
  BOOST_TEST(build_data(job).train->size() == 50u);
  apply_override(job, "data.global_batch=60");
  divide_batch(job, 1);
  BOOST_TEST(contains(error_of([&] { build_training_data(job); }), "data.batch: 60 is more than"));
}

BOOST_AUTO_TEST_SUITE_END()
