#include "actors/model/optimizer_builder.hpp"

#include "tests/actors/model/example_job.hpp"
#include "tests/support/input_errors.hpp"

BOOST_AUTO_TEST_SUITE(optimizer_builder)

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_CASE(kinds) {
  proto::Optimizer options;
  BOOST_TEST((build_optimizer(options).kind == optimizer_kind::sgd));
  options.set_kind(proto::MOMENTUM);
  options.set_momentum(0.5F);
  options.set_weight_decay(0.25F);
  BOOST_TEST((build_optimizer(options) == optimizer{optimizer_kind::momentum, 0.5F, 0.25F}));
  options.set_kind(proto::NESTEROV);
  BOOST_TEST((build_optimizer(options).kind == optimizer_kind::nesterov));
  options.set_kind(proto::RMSPROP);
  BOOST_TEST(build_optimizer(options).slots() == 2U);
  options.clear_momentum();
  BOOST_TEST(build_optimizer(options).slots() == 1U);
  options.set_smoothing(0.5);
  BOOST_TEST(build_optimizer(options).smoothing == 0.5);
  options.set_kind(proto::ADAGRAD);
  BOOST_TEST(build_optimizer(options).epsilon == 1e-10);
  options.set_kind(proto::ADAM);
  options.set_beta1(0.8);
  options.set_clip_value(0.5);
  const optimizer adam{.kind = optimizer_kind::adam,
                       .weight_decay = 0.25F,
                       .beta1 = 0.8,
                       .smoothing = 0.5,
                       .clip_value = 0.5};
  BOOST_TEST((build_optimizer(options) == adam));
  options.set_kind(proto::ADAMW);
  BOOST_TEST((build_optimizer(options).kind == optimizer_kind::adamw));
  options.set_kind(proto::LAMB);
  options.set_clip_norm(2);
  options.set_l1(0.125);
  BOOST_TEST((build_optimizer(options).kind == optimizer_kind::lamb));
  BOOST_TEST(build_optimizer(options).clip_norm == 2);
  BOOST_TEST(build_optimizer(options).l1 == 0.125);
  BOOST_TEST(!build_optimizer(options).lazy);
  options.set_lazy(true);
  BOOST_TEST(build_optimizer(options).lazy);
  options.set_kind(proto::OPTIMIZER_UNSET);
  BOOST_TEST(contains(error_of([&] { build_optimizer(options); }), "optimizer.kind"));
}

BOOST_AUTO_TEST_CASE(groups) {
  layout tensors;
  tensors.add("a.weight", {2});
  tensors.add("a.bias", {2});
  tensors.add("a.mean", {2}, {}, parameter_kind::state);
  tensors.add("table.bias", {2}, {}, parameter_kind::frozen);
  tensors.add("head.bias", {2});
  const auto of = [&](const std::string& text) {
    auto job = digits_job();
    apply_override(job, "optimizer={kind: ADAMW weight_decay: 0.5 l1: 0.25 " + text + "}");
    return build_groups(job.optimizer(), tensors);
  };
  const auto none = of("");
  BOOST_TEST(none.rules.size() == 1U);
  BOOST_TEST(none.of_tensor == std::vector<std::size_t>(5, 0), boost::test_tools::per_element());
  const auto both = of(R"(group { match: "head.*" learning_rate_scale: 0.1 }
                          group { match: "*.bias" weight_decay: 0 l1: 0 })");
  BOOST_TEST(both.of_tensor == (std::vector<std::size_t>{2, 1, 2, 2, 0}),
             boost::test_tools::per_element());
  BOOST_TEST_REQUIRE(both.rules.size() == 3U);
  const auto others = both.rules[2];
  BOOST_TEST((both.rules[0] == group_rule{others.rule, 0.1}));
  auto plain = others.rule;
  BOOST_TEST(plain.weight_decay == 0.5F);
  plain.weight_decay = 0;
  plain.l1 = 0;
  BOOST_TEST((both.rules[1] == group_rule{plain, 1}));
  const auto lazy = of(R"(group { match: "*.bias" lazy: true })");
  BOOST_TEST((lazy.rules[0].rule.lazy && !lazy.rules[1].rule.lazy));
  const auto other = of(R"(lazy: true group { match: "*.bias" lazy: false })");
  BOOST_TEST((!other.rules[0].rule.lazy && other.rules[1].rule.lazy));

  const auto problem = [&](const std::string& text) { return error_of([&] { of(text); }); };
  BOOST_TEST(problem(R"(group { match: "hed.bias" l1: 0 })")
             == "optimizer.group[0].match: \"hed.bias\" matches no parameter; did you mean "
                "\"head.bias\"? valid: \"a.weight\", \"a.bias\", \"head.bias\"");
  BOOST_TEST(
    problem(R"(group { match: "table.*" l1: 0 })")
    == "optimizer.group[0].match: \"table.*\" matches no trained parameter; leave the group "
       "out");
  BOOST_TEST(problem(R"(group { match: "*" l1: 0 } group { match: "*.bias" l1: 0 })")
             == "optimizer.group[1].match: \"*.bias\" matches only parameters of earlier groups; "
                "move it up, or leave it out");
}

BOOST_AUTO_TEST_CASE(schedules) {
  auto job = digits_job();
  const auto step = build_learning_rate(job);
  BOOST_TEST(step.at(0) == 0.1, boost::test_tools::tolerance(1e-6));
  BOOST_TEST(step.at(2) == 0.05, boost::test_tools::tolerance(1e-6));
  apply_override(job, "learning_rate.cosine={}");
  const auto cosine = build_learning_rate(job);
  BOOST_TEST(cosine.at(1.5) == 0.05,
             boost::test_tools::tolerance(1e-6)); // after half of the three epochs
  BOOST_TEST(cosine.at(3) < 1e-9);
  apply_override(job, "learning_rate={ base: 1 exponential { factor: 0.5 } }");
  BOOST_TEST(build_learning_rate(job).at(2) == 0.25, boost::test_tools::tolerance(1e-6));
  apply_override(job, "learning_rate={ base: 1 one_cycle { rising: 0.5 start_divisor: 10 } }");
  BOOST_TEST(build_learning_rate(job).at(0) == 0.1, boost::test_tools::tolerance(1e-6));
  BOOST_TEST(build_learning_rate(job).at(1.5) == 1.0, boost::test_tools::tolerance(1e-6));
  BOOST_TEST(build_learning_rate(job).at(3) == 1e-5, boost::test_tools::tolerance(1e-6));
  apply_override(job, "learning_rate={ base: 1 warmup_epochs: 2 constant {} }");
  const auto warm = build_learning_rate(job);
  BOOST_TEST(warm.at(1) == 0.5, boost::test_tools::tolerance(1e-6));
  BOOST_TEST(warm.at(3) == 1.0, boost::test_tools::tolerance(1e-6));
  BOOST_TEST(build_learning_rate(proto::Job{}).at(5) == 0.01, boost::test_tools::tolerance(1e-6));
}

BOOST_AUTO_TEST_SUITE_END()
