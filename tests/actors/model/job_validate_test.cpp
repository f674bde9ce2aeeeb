#include "actors/model/job_file.hpp"

#include "actors/model/job_context.hpp"
#include "tests/actors/model/example_job.hpp"
#include "tests/support/input_errors.hpp"

#include <algorithm>

BOOST_AUTO_TEST_SUITE(job_validate)

using namespace troupe;
using namespace troupe::test;

namespace {

/// The problems of a job to which these overrides are applied.
std::string problems(proto::Job job, std::initializer_list<const char*> overrides) {
  for (const auto* text : overrides)
    apply_override(job, text);
  return error_of([&] { validate(job); });
}

std::string problems(std::initializer_list<const char*> overrides) {
  return problems(digits_job(), overrides);
}

} // namespace

BOOST_AUTO_TEST_CASE(good_jobs) {
  BOOST_TEST(problems({}) == "(no error)");
  BOOST_TEST(problems(csv_job("x"), {}) == "(no error)");
  BOOST_TEST(problems({"data.digits.test=0"}) == "(no error)");
  BOOST_TEST(problems({"optimizer={}", "learning_rate={}"}) == "(no error)");
}

BOOST_AUTO_TEST_CASE(model) {
  BOOST_TEST(
    contains(problems({"model={ loss: SOFTMAX_CROSS_ENTROPY }"}), "model.layer: no layers"));
  BOOST_TEST(
    contains(problems({"model={ layer { dense { units: 10 } } }"}), "model.loss: missing"));
  BOOST_TEST(contains(problems({"model.layer[0].dense.units=0"}),
                      "model.layer[0].dense.units: expected 1 to 16777216, got 0"));
  BOOST_TEST(contains(problems({"model.layer[0].dense.units=4000000000"}), "got 4000000000"));
  BOOST_TEST(contains(problems({"model.layer[0]={}"}), "model.layer[0]: no kind"));
  BOOST_TEST(contains(problems({"model.layer[0].name=head"}),
                      "model.layer[1].name: \"head\" is the name of another layer"));
  BOOST_TEST(contains(problems({"model.layer[1].name=dense_1"}), "another layer"));
  BOOST_TEST(
    contains(problems({"model.layer[0].name=a b"}), "model.layer[0].name: expected 1 to 200"));
  BOOST_TEST(contains(problems({"model.layer[0].name="}), "model.layer[0].name"));
  BOOST_TEST(contains(problems({"model.layer[1].dense.units=1"}), "single class"));
}

BOOST_AUTO_TEST_CASE(models_without_parameters) {
  const auto problem = [](const std::string& layers) {
    auto job = digits_job();
    apply_override(job, "model={ " + layers + " loss: SOFTMAX_CROSS_ENTROPY }");
    return error_of([&] { make_job_context(job, {{.dims = {4}, .label_width = 4}, 100}); });
  };
  const std::string expected = "model.layer: the layers have no parameters to train; add a layer "
                               "that has some, such as dense";
  BOOST_TEST(problem("layer { dropout { rate: 0.5 } }") == expected);
  BOOST_TEST(problem("layer { slice { axis: 1 begin: 0 end: 4 } }") == expected);
  const std::string dense = "layer { dense { units: 4 } }";
  BOOST_TEST(problem("layer { dropout { rate: 0.5 } } " + dense) == "(no error)");
  BOOST_TEST(contains(problem(dense + " freeze: \"*\""),
                      "model.freeze: no parameter is left to train; name those that train"));
}

BOOST_AUTO_TEST_CASE(groups_and_frozen_parameters) {
  const auto group = [](const std::string& text) {
    return problems({("optimizer.group[0]={" + text + "}").c_str()});
  };
  BOOST_TEST(group(R"(match: "*.bias" weight_decay: 0)") == "(no error)");
  BOOST_TEST(contains(group("weight_decay: 0"), "optimizer.group[0].match: missing"));
  BOOST_TEST(contains(group(R"(match: "*")"), "optimizer.group[0]: has no effect"));
  for (const char* field : {"weight_decay", "l1", "learning_rate_scale"})
    for (const char* value : {"-1", "nan", "inf"})
      BOOST_TEST(contains(group(std::string{R"(match: "*" )"} + field + ": " + value),
                          std::string{"optimizer.group[0]."} + field + ": expected a finite"));
  BOOST_TEST(contains(group(R"(match: "*" learning_rate_scale: 0)"), "name them in model.freeze"));

  const auto exact = [](const char* change) {
    return problems(csv_job("x"), {"solver=EXACT", change});
  };
  BOOST_TEST(exact(R"(optimizer.group[0]={match: "*.bias" weight_decay: 0})") == "(no error)");
  BOOST_TEST(contains(exact(R"(optimizer.group[0]={match: "*" l1: 1})"), "optimizer.group[0].l1"));
  BOOST_TEST(contains(exact(R"(optimizer.group[0]={match: "*" learning_rate_scale: 2})"),
                      "optimizer.group[0].learning_rate_scale: solver: EXACT makes no steps"));
  BOOST_TEST(contains(exact("model.freeze[0]=*"), "model.freeze: solver: EXACT finds all weights"));
}

BOOST_AUTO_TEST_CASE(data_of_the_program) {
  auto job = digits_job();
  job.mutable_data()->clear_digits();
  BOOST_TEST(contains(error_of([&] { validate(job); }), "data: no source"));
  BOOST_TEST(error_of([&] { validate(job, data_from::program); }) == "(no error)");
  job.mutable_data()->mutable_split()->set_train(50);
  BOOST_TEST(contains(error_of([&] { validate(job, data_from::program); }),
                      "data.split: the program supplies its own"));
}

BOOST_AUTO_TEST_CASE(data) {
  BOOST_TEST(contains(problems({"data={}"}), "data: no source"));
  BOOST_TEST(problems({"data.batch=0"}) == "(no error)");
  BOOST_TEST(contains(problems({"data.batch=16777217"}), "data.batch: expected 0 (all"));
  BOOST_TEST(contains(problems({"data.prefetch=0"}), "data.prefetch: expected 1 to 64"));
  BOOST_TEST(contains(problems({"data.read_threads=0"}),
                      "data.read_threads: expected a number of threads from 1 to 1024, got 0"));
  BOOST_TEST(contains(problems({"data.read_threads=2", "data.libsvm={path: \"x\"}"}),
                      "data.read_threads: a worker reads sparse features on one thread"));
  BOOST_TEST(contains(problems({"evaluate={}"}), "evaluate.every_steps: expected a number"));
  BOOST_TEST(problems({"evaluate.measure[0]=F1"}) == "(no error)");
  BOOST_TEST(
    contains(problems({"evaluate.measure[0]=F1", "evaluate.every_steps=0"}),
             "evaluate.every_steps: expected a number of updates, at least 1; leave it out "
             "to evaluate only after each epoch"));
  BOOST_TEST(contains(problems({"max_bad=0"}), "max_bad: 0; expected at least 1"));
  BOOST_TEST(contains(problems({"data.batch=101"}),
                      "data.batch: 101 is more than the 100 training records"));
  auto job = digits_job();
  job.mutable_data()->clear_batch();
  BOOST_TEST(contains(problems(job, {"data.digits.train=20"}),
                      "data.batch: 64 (the default) is more than the 20 training records "
                      "(data.digits.train); set data.batch to at most 20, or to 0 for all"));
  BOOST_TEST(contains(problems({"data.digits.train=0"}), "data.digits.train"));
  BOOST_TEST(contains(problems({"data.digits.train=18446744073709551615", "data.digits.test=2"}),
                      "data.digits: train + test"));
  BOOST_TEST(contains(problems({"data.split.train=5"}), "data.split: data.digits already sets"));
  BOOST_TEST(contains(problems({"data={ idx { images: \"a\" } }"}), "data.idx.labels: missing"));
  BOOST_TEST(contains(problems({"data={ idx { images: \"a\" labels: \"b\" test_images: \"c\" } }"}),
                      "test_images and test_labels belong together"));
  BOOST_TEST(contains(problems({"data={ idx { images: \"a\" labels: \"b\" test_images: \"c\" "
                                "test_labels: \"d\" } split { test: 100 } }"}),
                      "data.split.test: there are test files"));
}

BOOST_AUTO_TEST_CASE(csv) {
  const auto csv = [](std::initializer_list<const char*> overrides) {
    return problems(csv_job("x"), overrides);
  };
  BOOST_TEST(contains(csv({"data.csv.path="}), "data.csv.path: missing"));
  BOOST_TEST(contains(csv({"data.csv.target="}), "data.csv.target: missing"));
  BOOST_TEST(
    contains(csv({"data.csv.features[1]=a"}), "data.csv.features[1]: column \"a\" appears twice"));
  BOOST_TEST(contains(csv({"data.csv.features[1]=y"}), "column \"y\" is the target"));
  BOOST_TEST(
    contains(csv({"data.csv={ path: \"x\" target: \"y\" }"}), "data.csv.features: no columns"));
  BOOST_TEST(contains(csv({"data.split={}"}), "data.split: set train, test or validation"));
  BOOST_TEST(
    contains(csv({"data.split.train=1"}), "data.batch: 2 is more than the 1 training records"));
  BOOST_TEST(contains(csv({"data.split.test=0"}), "data.split.test: expected a number of records"));
}

BOOST_AUTO_TEST_CASE(model_and_data_fit) {
  // A missing loss is the only problem of a table.
  auto no_loss = csv_job("x");
  no_loss.mutable_model()->clear_loss();
  no_loss.mutable_model()->mutable_layer(0)->mutable_dense()->set_units(3);
  BOOST_TEST(contains(problems(no_loss, {}), "model.loss: missing"));
  BOOST_TEST(!contains(problems(no_loss, {}), "LOSS_UNSET"));
  BOOST_TEST(contains(problems({"model.loss=MEAN_SQUARED_ERROR"}), "needs targets"));
  BOOST_TEST(contains(problems({"model.layer[1].dense.units=9"}),
                      "\"head\", has 9 units, but the digits have 10 classes"));
  BOOST_TEST(contains(problems(csv_job("x"), {"model.layer[0].dense.units=2"}),
                      "\"dense_1\", has 2 units, but the data has 1 target"));
  BOOST_TEST(contains(
    problems(csv_job("x"), {"model.loss=SOFTMAX_CROSS_ENTROPY", "model.layer[0].dense.units=2"}),
    "needs classes"));
}

BOOST_AUTO_TEST_CASE(training) {
  for (const char* field : {"optimizer.beta1", "optimizer.beta2", "optimizer.smoothing",
                            "learning_rate.one_cycle.rising"})
    for (const char* value : {"-0.1", "1", "nan"})
      BOOST_TEST(contains(problems({(std::string{field} + '=' + value).c_str()}),
                          std::string{field} + ": expected 0 or more and less than 1"));
  for (const char* field :
       {"optimizer.epsilon", "optimizer.clip_value", "optimizer.clip_norm", "optimizer.l1",
        "learning_rate.exponential.factor", "learning_rate.one_cycle.start_divisor",
        "learning_rate.one_cycle.end_divisor"})
    for (const char* value : {"-0.1", "nan", "inf"})
      BOOST_TEST(contains(problems({(std::string{field} + '=' + value).c_str()}),
                          std::string{field} + ": expected a finite number"));
  const auto small = problems({"optimizer={kind: ADAM epsilon: 1e-40}"});
  BOOST_TEST(contains(small, "optimizer.epsilon: expected a finite "));
  BOOST_TEST(contains(small, "got 1e-40"), small);
  BOOST_TEST(!contains(problems({"optimizer={kind: SGD epsilon: 1e-40}"}), "epsilon"));
  BOOST_TEST(
    contains(problems({"optimizer.clip_value=1e-40"}), "optimizer.clip_value: as a float32"));
  BOOST_TEST(contains(problems({"epochs=0"}), "epochs: 0"));
  BOOST_TEST(
    contains(problems({"optimizer={kind: LAMB lazy: true}"}), "optimizer.lazy: LAMB needs"));
  BOOST_TEST(contains(problems({"optimizer={kind: LAMB group { match: '*.bias' lazy: true }}"}),
                      "optimizer.group[0].lazy: LAMB needs"));
  BOOST_TEST(contains(problems({"optimizer.group[0].match=*.bias"}),
                      "optimizer.group[0]: has no effect; add weight_decay, l1, "));
  for (const char* value : {"-0.1", "1", "nan", "inf"})
    BOOST_TEST(contains(problems({(std::string{"optimizer.momentum="} + value).c_str()}),
                        "optimizer.momentum: expected 0 or more and less than 1"));
  for (const char* value : {"-0.1", "nan", "inf"}) {
    BOOST_TEST(contains(problems({(std::string{"optimizer.weight_decay="} + value).c_str()}),
                        "optimizer.weight_decay"));
    BOOST_TEST(contains(problems({(std::string{"learning_rate.base="} + value).c_str()}),
                        "learning_rate.base: expected a finite number, more than 0"));
    BOOST_TEST(contains(problems({(std::string{"learning_rate.warmup_epochs="} + value).c_str()}),
                        "learning_rate.warmup_epochs"));
    BOOST_TEST(contains(problems({(std::string{"learning_rate.step.factor="} + value).c_str()}),
                        "learning_rate.step.factor"));
    BOOST_TEST(contains(problems({(std::string{"learning_rate.cosine.final="} + value).c_str()}),
                        "learning_rate.cosine.final"));
  }
  BOOST_TEST(contains(problems({"learning_rate.base=0"}), "learning_rate.base"));
  BOOST_TEST(
    contains(problems({"learning_rate.step.every_epochs=0"}), "learning_rate.step.every_epochs"));
  BOOST_TEST(contains(problems({"learning_rate.warmup_epochs=4"}), "longer than the job's epochs"));
  BOOST_TEST(contains(problems({"runtime.ring_chunk_bytes=6"}),
                      "runtime.ring_chunk_bytes: expected a multiple of 4"));
  BOOST_TEST(contains(problems({"runtime.bucket_bytes=0"}), "runtime.bucket_bytes"));
  BOOST_TEST(contains(problems({"runtime.request_timeout_ms=0"}), "runtime.request_timeout_ms"));
  BOOST_TEST(contains(problems({"runtime.join_timeout_ms=0"}), "runtime.join_timeout_ms"));
  BOOST_TEST(contains(problems({"runtime.suspect_after_ms=99"}), "runtime.suspect_after_ms"));
  BOOST_TEST(contains(problems({"runtime.link_grace_ms=30000"}),
                      "runtime.link_grace_ms: 30000; expected less than 30000"));
  BOOST_TEST(!contains(problems({"runtime.link_grace_ms=29999"}), "runtime.link_grace_ms"));
  for (const char* threads : {"runtime.threads=0", "runtime.threads=1025"})
    BOOST_TEST(contains(problems({threads}), "runtime.threads: expected a number of threads"));
}

BOOST_AUTO_TEST_CASE(exact_solutions) {
  const auto job = csv_job("x");
  BOOST_TEST(problems(job, {"solver=EXACT"}) == "(no error)");
  BOOST_TEST(contains(problems({"solver=EXACT"}), "solver: EXACT needs a linear model"));
  BOOST_TEST(contains(problems(job, {"solver=EXACT", "model.layer[0].dense.activation=RELU"}),
                      "solver: EXACT needs a linear model"));
  BOOST_TEST(contains(problems(job, {"solver=EXACT", "optimizer.l1=0.1"}),
                      "optimizer.l1: there is no closed form"));
  BOOST_TEST(contains(problems(job, {"solver=EXACT", "checkpoint.every_steps=5"}),
                      "checkpoint: solver: EXACT makes no steps"));
}

BOOST_AUTO_TEST_CASE(elastic_runs) {
  BOOST_TEST(problems({"elastic={}", "checkpoint.every_steps=5"}) == "(no error)");
  BOOST_TEST(contains(problems({"elastic={}"}), "elastic: after a loss, the run goes on from its"));
  BOOST_TEST(contains(problems({"elastic.min_workers=0", "checkpoint.every_steps=5"}),
                      "elastic.min_workers: expected at least 1"));
}

BOOST_AUTO_TEST_CASE(values_that_only_text_can_set) {
  auto job = digits_job();
  job.set_solver(proto::SOLVER_UNSET);
  job.set_protocol(proto::PROTOCOL_UNSET);
  job.mutable_optimizer()->set_kind(proto::OPTIMIZER_UNSET);
  job.set_precision(proto::PRECISION_UNSET);
  const auto text = problems(job, {});
  BOOST_TEST(contains(text, "precision: expected FLOAT32, BFLOAT16 or FLOAT16"));
  BOOST_TEST(contains(text, "protocol: expected one of async_ps"));
  BOOST_TEST(contains(text, "solver: expected ITERATIVE or EXACT"));
  BOOST_TEST(contains(text, "optimizer.kind: expected SGD"));
}

BOOST_AUTO_TEST_CASE(all_problems_at_once) {
  const auto text = problems(
    {"epochs=0", "data.prefetch=0", "model.layer[0].dense.units=0", "optimizer.momentum=2"});
  BOOST_TEST(std::ranges::count(text, '\n') == 3);
}

BOOST_AUTO_TEST_CASE(sources_of_other_formats) {
  const auto of = [](const std::string& data) {
    return problems({("data={ " + data + " }").c_str()});
  };
  BOOST_TEST(of("npy { features: \"x\" labels: \"y\" }") == "(no error)");
  BOOST_TEST(contains(of("npy {}"), "data.npy.features: missing"));
  BOOST_TEST(contains(of("npy { features: \"x\" }"), "data.npy.labels: missing"));
  BOOST_TEST(contains(of("npy { features: \"x\" labels: \"y\" test_labels: \"z\" }"),
                      "data.npy: test_features and test_labels belong together"));
  BOOST_TEST(contains(of("npz {}"), "data.npz.path: missing"));
  BOOST_TEST(contains(of("npz { path: \"x\" }"), "data.npz.labels: missing"));
  BOOST_TEST(of("text { path: \"x\" }") == "(no error)");
  BOOST_TEST(contains(of("text {}"), "data.text.path: missing"));
  BOOST_TEST(contains(of("text { path: \"x\" window: 0 }"), "data.text.window: expected 1 to"));
  BOOST_TEST(contains(of("text { path: \"x\" stride: 0 }"), "data.text.stride: 0 characters"));
  BOOST_TEST(contains(of("text { path: \"x\" vocabulary: \"\" }"), "data.text.vocabulary: empty"));
  BOOST_TEST(contains(of("libsvm {}"), "data.libsvm.path: missing"));
  BOOST_TEST(contains(of("libsvm { path: \"x\" features: 0 }"), "data.libsvm.features: expected"));
  BOOST_TEST(contains(of("libsvm { path: \"x\" test_path: \"y\" } split { test: 1 }"),
                      "data.split.test: there are test files (data.libsvm.test_path)"));
}

BOOST_AUTO_TEST_CASE(splits_and_normalization) {
  const auto of = [](const std::string& more) {
    const auto data = "data={ npy { features: \"x\" labels: \"y\" } " + more + " }";
    return problems({data.c_str()});
  };
  BOOST_TEST(of("split { train: 0.9 validation: 0.05 }") == "(no error)");
  for (const auto* part : {"-1", "1.5", "nan", "0"})
    BOOST_TEST(
      contains(of(std::string{"split { validation: "} + part + " }"),
               "data.split.validation: expected a number of records, at least 1, or a fraction"));
  BOOST_TEST(of("normalize { kind: UNIT_RANGE }") == "(no error)");
  BOOST_TEST(of("normalize { mean: 0.1 stddev: 0.3 }") == "(no error)");
  BOOST_TEST(contains(of("normalize {}"), "data.normalize: give either kind"));
  BOOST_TEST(contains(of("normalize { kind: UNIT_RANGE mean: 1 stddev: 1 }"), "give either kind"));
  BOOST_TEST(contains(of("normalize { mean: 1 }"), "1 of mean, but 0 of stddev"));
  BOOST_TEST(contains(of("normalize { mean: 1 stddev: 0 }"), "data.normalize.stddev[0]: expected"));
  BOOST_TEST(contains(problems({"data={ csv {} normalize { kind: UNIT_RANGE } }"}),
                      "data.normalize: not for data.csv; use data.csv.standardize"));
}

BOOST_AUTO_TEST_CASE(precision) {
  for (const char* good : {"precision=FLOAT32", "precision=BFLOAT16", "precision=FLOAT16"})
    BOOST_TEST(problems({good}) == "(no error)", good);
  BOOST_TEST(problems({"precision=FLOAT16", "loss_scale={initial: 1024 growth_interval: 0}"})
             == "(no error)");
  for (const char* other : {"precision=FLOAT32", "precision=BFLOAT16"})
    BOOST_TEST(contains(problems({other, "loss_scale.initial=1024"}),
                        "loss_scale: only precision: FLOAT16 needs it; leave it out"),
               other);
  for (const char* wrong :
       {"loss_scale.initial=3", "loss_scale.initial=0.5", "loss_scale.initial=0",
        "loss_scale.initial=-2", "loss_scale.initial=inf", "loss_scale.initial=nan",
        "loss_scale.initial=1e30"})
    BOOST_TEST(contains(problems({"precision=FLOAT16", wrong}),
                        "loss_scale.initial: expected a power of two from 1 to 2^60"),
               wrong);
  BOOST_TEST(problems({"tf32=true"}) == "(no error)");
  BOOST_TEST(contains(problems({"tf32=true", "precision=BFLOAT16"}),
                      "tf32: products of precision: BFLOAT16 have 16 bits already"));
  BOOST_TEST(contains(problems(csv_job("x"), {"solver=EXACT", "tf32=true"}),
                      "tf32: solver: EXACT computes in double"));
  BOOST_TEST(contains(problems(csv_job("x"), {"solver=EXACT", "precision=BFLOAT16"}),
                      "precision: solver: EXACT makes no steps; leave it out"));
  // With FLOAT16, each worker has its own loss scale. So sums over all workers, as in synchronized
  // layers, would be wrong.
  const char* together = "model.layer[0]={ name: 'together' batch_norm { sync: true } }";
  BOOST_TEST(problems({"protocol=SYNC_PS", together, "precision=BFLOAT16"}) == "(no error)");
  BOOST_TEST(contains(problems({"protocol=SYNC_PS", together, "precision=FLOAT16"}),
                      "precision: FLOAT16 does not fit layer \"together\", whose batch_norm.sync"));
  // Two checks find this problem of a layer. It is reported only once.
  const auto text = problems({"precision=FLOAT16", "model.layer[0].dense.units=0"});
  BOOST_TEST(text.find("units: expected") == text.rfind("units: expected"));
}

BOOST_AUTO_TEST_SUITE_END()
