#include "actors/model/job_file.hpp"

#include "tests/actors/model/example_job.hpp"
#include "tests/support/input_errors.hpp"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(job_canonical)

using namespace troupe;
using namespace troupe::test;

namespace {

proto::Job with(const std::string& assignment) {
  auto job = digits_job();
  apply_override(job, assignment);
  return job;
}

} // namespace

BOOST_AUTO_TEST_CASE(text) {
  BOOST_TEST(canonical_text(digits_job()) == R"(model.layer[0].name: "dense_1"
model.layer[0].dense: {}
model.layer[0].dense.units: 16
model.layer[0].dense.activation: RELU
model.layer[1].name: "head"
model.layer[1].dense: {}
model.layer[1].dense.units: 10
model.loss: SOFTMAX_CROSS_ENTROPY
data.digits: {}
data.digits.train: 100
data.digits.test: 20
data.batch: 8
optimizer.kind: MOMENTUM
optimizer.momentum: 0.5
learning_rate.base: 0.1
learning_rate.step: {}
learning_rate.step.every_epochs: 2
learning_rate.step.factor: 0.5
epochs: 3
)");
  BOOST_TEST(canonical_text({}).empty());
}

// These hashes must never change, because files contain them and other versions of troupe compare
// them.
BOOST_AUTO_TEST_CASE(fixed_hash) {
  BOOST_TEST(job_hash({}) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  BOOST_TEST(job_hash(digits_job())
             == "98f31b7f6de828809669fbe2c1c976676dd146ca888aadc25978dc9ac3d01eba");
}

BOOST_AUTO_TEST_CASE(what_does_not_matter) {
  const auto hash = job_hash(digits_job());
  for (const char* same :
       {"name=other", "output=/tmp/x", "runtime.join_timeout_ms=1", "runtime.suspect_after_ms=300",
        "runtime.request_timeout_ms=1", "runtime.link_grace_ms=1", "runtime.threads=2",
        "runtime.check_kernels=true", "device[0]=/job:worker/task:*/device:GPU:0",
        "soft_placement=true",
        // defaults that are written out
        "seed=1", "protocol=ASYNC_PS", "data.digits.seed=1", "runtime.bucket_bytes=262144",
        "optimizer.weight_decay=0", "model.layer[0].name=dense_1", "model.layer[0].dense.bias=true",
        "precision=FLOAT32", "exchange_precision=FLOAT32", "async_ps={}", "runtime={}"}) {
    BOOST_TEST(job_hash(with(same)) == hash, same);
    BOOST_TEST(first_difference(digits_job(), with(same)).empty(), same);
  }
  const auto elastic = with("elastic={}");
  const auto patient = with("elastic.max_losses=9");
  BOOST_TEST(job_hash(elastic) == job_hash(patient));
  BOOST_TEST(first_difference(elastic, patient).empty());
  auto constant = digits_job();
  constant.clear_learning_rate();
  auto stated = constant;
  stated.mutable_learning_rate()->mutable_constant();
  BOOST_TEST(job_hash(constant) == job_hash(stated));
  BOOST_TEST(first_difference(constant, stated).empty());
  // The hash ignores settings that have no effect: plain SGD has no momentum.
  auto sgd = with("optimizer.kind=SGD");
  auto other = sgd;
  other.mutable_optimizer()->set_momentum(0.1F);
  BOOST_TEST(job_hash(sgd) == job_hash(other));
  // RMSPROP uses momentum only if it is set.
  auto rmsprop = with("optimizer={ kind: RMSPROP }");
  BOOST_TEST(job_hash(rmsprop) == job_hash(with("optimizer={ kind: RMSPROP momentum: 0 }")));
  BOOST_TEST(job_hash(rmsprop) != job_hash(with("optimizer={ kind: RMSPROP momentum: 0.9 }")));
  BOOST_TEST(job_hash(with("optimizer={ kind: ADAGRAD }"))
             == job_hash(with("optimizer={ kind: ADAGRAD epsilon: 1e-10 beta1: 0.5 }")));
}

// Older versions of troupe never shuffled splits. So a checkpoint of an older version fits the same
// job with `shuffle: false`.
BOOST_AUTO_TEST_CASE(settings_that_an_optimizer_does_not_use) {
  proto::Optimizer x;
  x.set_kind(proto::SGD);
  x.set_momentum(0.9F);
  x.set_clip_value(1);
  BOOST_TEST(unused_settings(x)
               == std::vector<std::string>{"momentum has no effect with kind SGD (MOMENTUM, "
                                           "NESTEROV and RMSPROP use it)"},
             boost::test_tools::per_element());
  x.set_kind(proto::RMSPROP);
  BOOST_TEST(unused_settings(x).empty());
  x.set_beta1(0.8);
  x.set_epsilon(1e-6);
  BOOST_TEST(
    unused_settings(x)
      == std::vector<
        std::string>{"beta1 has no effect with kind RMSPROP (ADAM, ADAMW and LAMB use it)"},
    boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(splits) {
  const auto hash_of = [](const std::string& split, const std::string& source) {
    proto::Job job;
    apply_override(job, "data={" + source + " split {" + split + "}}");
    return job_hash(job);
  };
  const std::string table = "csv {path: 'x'}";
  BOOST_TEST(hash_of("test: 0.2", table) == hash_of("test: 0.2 shuffle: true", table));
  BOOST_TEST(hash_of("test: 0.2", table) != hash_of("test: 0.2 shuffle: false", table));
  const std::string text = "text {path: 'x'}";
  BOOST_TEST(hash_of("test: 0.2", text) == hash_of("test: 0.2 shuffle: false", text));
  BOOST_TEST(canonical_text([] {
               proto::Job job;
               apply_override(job, "data.split={test: 0.2 shuffle: false}");
               return job;
             }())
             == "data.split.test: 0.2\n");
}

BOOST_AUTO_TEST_CASE(what_matters) {
  const auto hash = job_hash(digits_job());
  for (const char* different : {"model.layer[0].dense.units=17",
                                "model.layer[0].name=x",
                                "model.layer[0].dense.bias=false",
                                "optimizer.momentum=0.8",
                                "optimizer.kind=NESTEROV",
                                "optimizer.clip_value=1",
                                "optimizer.clip_norm=1",
                                "optimizer.l1=0.1",
                                "optimizer.lazy=true",
                                "optimizer.group[0]={match: '*.bias' weight_decay: 0}",
                                "optimizer.group[0]={match: '*.bias' learning_rate_scale: 2}",
                                "model.freeze[0]=head.*",
                                "model.train[0]=head.*",
                                "solver=EXACT",
                                "learning_rate.base=0.2",
                                "learning_rate.one_cycle={}",
                                "learning_rate.cosine={}",
                                "protocol=RING",
                                "epochs=4",
                                "seed=2",
                                "data.batch=9",
                                "data.digits.seed=2",
                                "precision=BFLOAT16",
                                "precision=FLOAT16",
                                "loss_scale.initial=1024",
                                "exchange_precision=BFLOAT16",
                                "tf32=true",
                                "async_ps.max_staleness=0",
                                "runtime.bucket_bytes=4",
                                "runtime.ring_chunk_bytes=4"}) {
    BOOST_TEST(job_hash(with(different)) != hash, different);
    BOOST_TEST(!first_difference(digits_job(), with(different)).empty(), different);
    BOOST_TEST(!first_difference(with(different), digits_job()).empty(), different);
  }
}

BOOST_AUTO_TEST_CASE(differences_in_words) {
  const auto job = digits_job();
  BOOST_TEST(first_difference(job, with("optimizer.momentum=0.8"))
             == "optimizer.momentum: 0.5 here, 0.8 there");
  BOOST_TEST(first_difference(job, with("seed=2")) == "seed: 1 here, 2 there");
  BOOST_TEST(first_difference(job, with("protocol=RING")) == "protocol: ASYNC_PS here, RING there");
  BOOST_TEST(first_difference(job, with("async_ps.max_staleness=3"))
             == "async_ps.max_staleness: absent here, 3 there");
  BOOST_TEST(first_difference(with("async_ps.max_staleness=3"), job)
             == "async_ps.max_staleness: 3 here, absent there");
  BOOST_TEST(first_difference(job, with("data.csv.path=x\"\n"))
             == "data.digits: set here, absent there");
}

// The hash does not cover whether such a message is present, because earlier versions left this
// out.
BOOST_AUTO_TEST_CASE(messages_that_are_present_but_empty) {
  const auto job = digits_job();
  for (const auto* message : {"moving_average", "early_stopping", "elastic", "local_sgd.outer",
                              "data.normalize", "data.augment"}) {
    const auto other = with(std::string{message} + "={}");
    const std::string path{message};
    BOOST_TEST(differences(other, job) == std::vector{path + ": set here, absent there"},
               boost::test_tools::per_element());
    BOOST_TEST(differences(job, other) == std::vector{path + ": absent here, set there"},
               boost::test_tools::per_element());
    BOOST_TEST(differences(other, other).empty(), path);
    BOOST_TEST(job_hash(job) == job_hash(other), path);
  }
}

BOOST_AUTO_TEST_CASE(absent_messages_have_no_defaults) {
  const auto job = digits_job();
  BOOST_TEST(differences(with("moving_average.decay=0.9"), job)
               == std::vector<std::string>{"moving_average.decay: 0.9 here, absent there"},
             boost::test_tools::per_element());
  BOOST_TEST(differences(with("data.split={}"), job)
               == std::vector<std::string>{"data.split.shuffle: true here, absent there"},
             boost::test_tools::per_element());
  BOOST_TEST(differences(job, with("early_stopping.patience=2"))
               == std::vector<std::string>{"early_stopping.patience: absent here, 2 there"},
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_global_batch_replaces_the_batch) {
  auto global = digits_job();
  global.mutable_data()->set_global_batch(16);
  auto local = digits_job();
  local.mutable_data()->set_batch(8);
  const std::vector<std::string> expected{"data.global_batch: 16 here, absent there",
                                          "data.batch: absent here, 8 there"};
  auto found = differences(global, local);
  std::ranges::sort(found, std::greater{});
  BOOST_TEST(found == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(strings_are_quoted) {
  BOOST_TEST(contains(canonical_text(with("data.csv.path=a\"\n\\\xff")),
                      R"(data.csv.path: "a\x22\x0a\x5c\xff")"));
}

BOOST_AUTO_TEST_SUITE_END()
