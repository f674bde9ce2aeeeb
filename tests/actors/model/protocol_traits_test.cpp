#include "actors/model/protocol_traits.hpp"

#include "actors/model/job_file.hpp"
#include "actors/model/problem_list.hpp"
#include "tests/actors/model/example_job.hpp"
#include "tests/support/input_errors.hpp"

#include <map>
#include <set>

using namespace troupe;
using namespace troupe::test;

namespace {

proto::Job with(const std::vector<std::string>& changes) {
  auto result = digits_job();
  for (auto& x : changes)
    apply_override(result, x);
  return result;
}

std::string problems(const std::vector<std::string>& changes,
                     std::span<const protocol_traits> own = {}) {
  return error_of([&] { validate(with(changes), data_from::job, own); });
}

/// The row of a protocol that a program defines. Its parameter "neighbours" is required.
std::vector<protocol_traits> own_rows() {
  protocol_traits x;
  x.id = proto::CUSTOM;
  x.name = "gossip";
  x.weights = weights_at::workers;
  x.validate = [](const proto::Job& job, problem_list& problems) {
    problems.require(!custom_parameter(job, "neighbours").empty(), "custom_protocol.parameter",
                     "no neighbours");
  };
  return {x};
}

} // namespace

BOOST_AUTO_TEST_SUITE(protocol_traits)

BOOST_AUTO_TEST_CASE(each_protocol_of_the_schema_has_a_row) {
  const auto& names = *proto::Protocol_descriptor();
  std::set<std::string> seen;
  for (int i = 0; i < names.value_count(); ++i) {
    proto::Job job;
    job.set_protocol(static_cast<proto::Protocol>(names.value(i)->number()));
    if (job.protocol() == proto::PROTOCOL_UNSET || job.protocol() == proto::CUSTOM)
      continue;
    const auto* row = find_traits(job);
    BOOST_TEST_REQUIRE(row != nullptr, names.value(i)->name());
    BOOST_TEST((row->id == job.protocol()));
    BOOST_TEST(!row->decided_by.empty());
    BOOST_TEST(!row->exchange(job).empty());
    BOOST_TEST(seen.insert(row->name).second);
    // A protocol has the same name in JSON as on the command line, and case does not matter.
    auto same = digits_job();
    apply_override(same, "protocol=" + row->name);
    BOOST_TEST((same.protocol() == row->id));
    BOOST_TEST(row->uses_shards() == (row->default_shards() > 0));
    if (!row->settings.empty())
      BOOST_TEST(proto::Job::descriptor()->FindFieldByName(row->settings) != nullptr);
  }
  BOOST_TEST(seen.size() == builtin_traits().size());
}

BOOST_AUTO_TEST_CASE(fields_of_another_protocol_are_refused) {
  BOOST_TEST(problems({"async_ps={}"}) == "(no error)");
  BOOST_TEST(contains(problems({"async_ps={}", "protocol=RING"}),
                      "async_ps: only protocol ASYNC_PS reads it, and the job's protocol is RING; "
                      "leave it out, or set protocol: ASYNC_PS"));
  BOOST_TEST(contains(problems({"custom_protocol.name=gossip"}),
                      "custom_protocol: only protocol CUSTOM reads it"));
}

BOOST_AUTO_TEST_CASE(weights_are_asked_for_early_if_workers_do_not_wait) {
  for (const auto* good : {"protocol=ASYNC_PS", "protocol=SSP"})
    for (const auto* ahead : {"pull_ahead=0", "pull_ahead=1", "pull_ahead=4"})
      BOOST_TEST(problems({good, ahead}) == "(no error)");
  BOOST_TEST(problems({"pull_ahead=8"}) == "(no error)");
  BOOST_TEST(contains(problems({"pull_ahead=9"}),
                      "pull_ahead: 9; expected at most 8: each step ahead takes memory"));
  BOOST_TEST(contains(problems({"protocol=SSP", "ssp.staleness=2", "pull_ahead=3"}),
                      "pull_ahead: 3, but with ssp.staleness: 2 a step needs all updates that are "
                      "more than 2 steps older"));
  for (const auto* other : {"SYNC_PS", "RING", "LOCAL_SGD", "HOGWILD"}) {
    const auto protocol = std::string{"protocol="} + other;
    BOOST_TEST(contains(problems({protocol, "pull_ahead=1"}),
                        std::string{"pull_ahead: "} + other
                          + " does not pull weights while it computes; leave it out, or set "
                            "protocol: ASYNC_PS or SSP"));
  }
  const auto own = own_rows();
  BOOST_TEST(contains(
    problems({"protocol=CUSTOM", "custom_protocol.name=" + own[0].name, "pull_ahead=1"}, own),
    "pull_ahead: CUSTOM does not pull"));
}

BOOST_AUTO_TEST_CASE(protocols_that_exchange_bfloat16) {
  for (const auto* protocol : {"ASYNC_PS", "SSP", "SYNC_PS", "RING"})
    BOOST_TEST(problems({std::string{"protocol="} + protocol, "exchange_precision=BFLOAT16"})
               == "(no error)");
  for (const auto* other : {"LOCAL_SGD", "HOGWILD"})
    BOOST_TEST(
      contains(problems({std::string{"protocol="} + other, "exchange_precision=BFLOAT16"}),
               std::string{"exchange_precision: protocol "} + other
                 + " exchanges FLOAT32; leave it out, or use ASYNC_PS, SSP, SYNC_PS or RING"));
  BOOST_TEST(contains(
    problems({"protocol=RING", "ring.shard_optimizer=true", "exchange_precision=BFLOAT16"}),
    "ring.shard_optimizer: workers then exchange weights"));
  BOOST_TEST(contains(problems({"exchange_precision=FLOAT16"}),
                      "exchange_precision: expected FLOAT32 or BFLOAT16"));
}

// A layer that normalizes over the batches of all workers needs a protocol with synchronous steps.
BOOST_AUTO_TEST_CASE(synchronized_layers_need_workers_in_step) {
  const auto layers = [](std::vector<std::string> changes, const std::string& sync = "true") {
    const auto norm = "layer { batch_norm { sync: " + sync + " } } ";
    changes.push_back("model={ " + norm + "layer { block { " + norm
                      + "} } layer { dense { units: 10 } } loss: SOFTMAX_CROSS_ENTROPY }");
    return problems(changes);
  };
  for (const auto* const protocol : {"RING", "SYNC_PS"})
    BOOST_TEST(layers({std::string{"protocol="} + protocol}) == "(no error)");
  const auto text = [](const std::string& who) {
    return ".batch_norm.sync: the workers of " + who
      + " do not wait for each other within a step, so they cannot normalize over all batches; "
        "leave sync "
        "out, or set protocol: RING or SYNC_PS";
  };
  for (const auto* const protocol : {"ASYNC_PS", "SSP", "HOGWILD", "LOCAL_SGD"}) {
    const std::vector<std::string> how{std::string{"protocol="} + protocol,
                                       "optimizer={kind: SGD}"};
    const auto told = layers(how);
    BOOST_TEST(contains(told, text(protocol)), told);
    BOOST_TEST(contains(told, ".block.layer[0].batch_norm.sync: "), told);
    BOOST_TEST(layers(how, "false") == "(no error)");
  }
  const std::vector<std::string> backup{"protocol=SYNC_PS", "sync_ps.backup_workers=1"};
  BOOST_TEST(
    contains(layers(backup), text("SYNC_PS with backup workers") + " without backup workers"));
  // A protocol that a program defines says itself whether it supports layers that normalize over
  // the batches of all workers.
  auto rows = own_rows();
  const std::vector<std::string> own{"protocol=CUSTOM",
                                     "custom_protocol={name: \"gossip\" parameter { name: "
                                     "\"neighbours\" value: \"2\" }}",
                                     "model={ layer { batch_norm { sync: true } } layer { dense { "
                                     "units: 10 } } loss: SOFTMAX_CROSS_ENTROPY }"};
  BOOST_TEST(contains(problems(own, rows), text("CUSTOM")));
  rows.front().sums_over_workers = true;
  BOOST_TEST(problems(own, rows) == "(no error)");
}

BOOST_AUTO_TEST_CASE(local_sgd_reads_its_fields) {
  const auto local = [](std::vector<std::string> changes) {
    changes.insert(changes.begin(), {"protocol=LOCAL_SGD"});
    return problems(changes);
  };
  BOOST_TEST(local({}) == "(no error)");
  BOOST_TEST(contains(local({"local_sgd.every=0"}), "local_sgd.every: 0; expected"));
  BOOST_TEST(local({"local_sgd.every=4", "evaluate.every_steps=12"}) == "(no error)");
  BOOST_TEST(contains(local({"local_sgd.every=4", "evaluate.every_steps=6"}),
                      "evaluate.every_steps: the replicas are equal only after each 4 steps"));
  BOOST_TEST(contains(local({"checkpoint.every_steps=6"}), "expected a multiple of that, got 6"));
  auto job = with({"protocol=LOCAL_SGD", "local_sgd.every=4"});
  BOOST_TEST(traits_of(job).steps_between_waits(job) == 4U);
  BOOST_TEST(traits_of(job).exchange(job) == "replicas are averaged after every 4 steps");
  job.mutable_local_sgd()->set_every(1);
  BOOST_TEST(traits_of(job).exchange(job) == "replicas are averaged after each step");
}

BOOST_AUTO_TEST_CASE(fragments_are_checked) {
  const auto local = [](const std::string& fields, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"protocol=LOCAL_SGD", "local_sgd={" + fields + "}"});
    return problems(more);
  };
  for (const auto* good : {"fragments: 1", "fragments: 8", "every: 3 fragments: 2", "behind: WAIT"})
    BOOST_TEST(local(good) == "(no error)", good);
  BOOST_TEST(contains(local("fragments: 0"), "local_sgd.fragments: 0; each part has its own step"));
  BOOST_TEST(contains(local("every: 4 fragments: 5"),
                      "expected at least 1 and at most local_sgd.every, which is 4"));
  BOOST_TEST(contains(local("behind: BEHIND_UNSET"), "local_sgd.behind: expected WAIT or CONTR"));
  auto job = with({"protocol=LOCAL_SGD", "local_sgd={every: 50 fragments: 4}"});
  BOOST_TEST(traits_of(job).steps_between_waits(job) == 12U);
  BOOST_TEST(traits_of(job).exchange(job)
             == "replicas are averaged after every 50 steps, in 4 parts, one after the other");
}

BOOST_AUTO_TEST_CASE(workers_that_contribute_take_different_numbers_of_steps) {
  const auto local = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"protocol=LOCAL_SGD", "local_sgd.behind=CONTRIBUTE"});
    return problems(more);
  };
  BOOST_TEST(local({}) == "(no error)");
  BOOST_TEST(local({"local_sgd.outer={}"}) == "(no error)");
  BOOST_TEST(local({"checkpoint.every_steps=16", "output=out"}) == "(no error)");
  BOOST_TEST(contains(local({"checkpoint.every_steps=12"}), "expected a multiple of that, got 12"));
  BOOST_TEST(local({"evaluate.every_steps=8"}) == "(no error)");
  const auto text = local({"local_sgd.fragments=2"});
  BOOST_TEST(
    contains(text,
             "local_sgd.fragments: with local_sgd.behind: CONTRIBUTE workers take different "
             "numbers"),
    text);
  BOOST_TEST(contains(text, "or set local_sgd.behind: WAIT"), text);
  const auto job = with({"protocol=LOCAL_SGD", "local_sgd.behind=CONTRIBUTE"});
  BOOST_TEST(!adapted_traits(job).in_step);
  BOOST_TEST(adapted_traits(job).needs_all);
  BOOST_TEST(traits_of(job).exchange(job)
             == "replicas are averaged after every 8 steps of the fastest worker");
  const auto waiting = with({"protocol=LOCAL_SGD"});
  BOOST_TEST(adapted_traits(waiting).in_step);
}

BOOST_AUTO_TEST_CASE(the_outer_optimizer_is_checked) {
  const auto outer = [](const std::string& fields) {
    return problems({"protocol=LOCAL_SGD", "local_sgd.outer={" + fields + "}"});
  };
  for (const auto* good : {"", "kind: SGD rate: 1", "kind: MOMENTUM momentum: 0", "momentum: 0.99"})
    BOOST_TEST(outer(good) == "(no error)", good);
  for (const auto* rate : {"0", "-1", "nan", "inf"})
    BOOST_TEST(contains(outer(std::string{"rate: "} + rate),
                        "local_sgd.outer.rate: " + std::string{rate}
                          + "; expected a number above 0, such as 0.7"));
  for (const auto* momentum : {"1", "-0.5", "nan"})
    BOOST_TEST(contains(outer(std::string{"momentum: "} + momentum),
                        "local_sgd.outer.momentum: " + std::string{momentum}
                          + "; expected at least 0 and less than 1, such as 0.9"));
  BOOST_TEST(contains(outer("kind: SGD momentum: 0.9"),
                      "local_sgd.outer.momentum: SGD has none; leave it out, or set kind"));
  BOOST_TEST(contains(outer("kind: KIND_UNSET"), "local_sgd.outer.kind: expected SGD, MOMENTUM"));
  const auto job = with({"protocol=LOCAL_SGD", "local_sgd.outer={}"});
  BOOST_TEST(traits_of(job).exchange(job)
             == "replicas are averaged after every 8 steps, followed by an outer step of NESTEROV, "
                "rate 0.7, momentum 0.5");
  const auto plain = with({"protocol=LOCAL_SGD", "local_sgd.outer={kind: SGD rate: 1}"});
  BOOST_TEST(traits_of(plain).exchange(plain)
             == "replicas are averaged after every 8 steps, followed by an outer step of SGD, rate "
                "1");
}

BOOST_AUTO_TEST_CASE(a_ring_divides_state_only_element_by_element) {
  const auto ring = [](std::vector<std::string> changes) {
    changes.insert(changes.begin(), {"protocol=RING", "ring.shard_optimizer=true"});
    return problems(changes);
  };
  BOOST_TEST(ring({}) == "(no error)");
  BOOST_TEST(ring({"optimizer={kind: ADAMW clip_value: 1}"}) == "(no error)");
  BOOST_TEST(contains(ring({"optimizer={kind: LAMB}"}),
                      "ring.shard_optimizer: no worker holds a whole tensor's state"));
  BOOST_TEST(contains(ring({"optimizer.clip_norm=1"}),
                      "ring.shard_optimizer: no worker has the whole gradient"));
  BOOST_TEST(
    contains(problems({"ring={shard_optimizer: true}"}), "ring: only protocol RING reads it"));
  const auto job = with({"protocol=RING", "ring.shard_optimizer=true"});
  BOOST_TEST(contains(traits_of(job).exchange(job), "each worker updates a part"));
}

BOOST_AUTO_TEST_CASE(ssp_reads_its_field) {
  BOOST_TEST(problems({"protocol=SSP"}) == "(no error)");
  BOOST_TEST(problems({"protocol=SSP", "ssp.staleness=0"}) == "(no error)");
  BOOST_TEST(contains(problems({"ssp.staleness=2"}),
                      "ssp: only protocol SSP reads it, and the job's protocol is ASYNC_PS; leave "
                      "it out, or set protocol: SSP"));
  BOOST_TEST(contains(problems({"protocol=SSP", "async_ps.compensation=NONE"}),
                      "async_ps: only protocol ASYNC_PS reads it"));
  auto job = with({"protocol=SSP"});
  const auto begin =
    std::string{"each gradient is applied when it arrives; no worker is more than "};
  BOOST_TEST(traits_of(job).exchange(job) == begin + "4 steps ahead of the slowest");
  job.mutable_ssp()->set_staleness(1);
  BOOST_TEST(traits_of(job).exchange(job) == begin + "1 step ahead of the slowest");
}

BOOST_AUTO_TEST_CASE(hogwild_takes_plain_sgd) {
  BOOST_TEST(problems({"protocol=HOGWILD", "optimizer.kind=SGD"}) == "(no error)");
  BOOST_TEST(contains(problems({"protocol=HOGWILD", "optimizer.kind=MOMENTUM"}),
                      "optimizer.kind: MOMENTUM, but HOGWILD workers share the weights, and no "
                      "optimizer state; expected SGD"));
}

BOOST_AUTO_TEST_CASE(sync_ps_reads_its_fields) {
  const auto sync = [](std::vector<std::string> changes) {
    changes.insert(changes.begin(), {"protocol=SYNC_PS"});
    return problems(changes);
  };
  BOOST_TEST(sync({}) == "(no error)");
  BOOST_TEST(sync({"sync_ps.backup_workers=1", "sync_ps.late=REJECT"}) == "(no error)");
  BOOST_TEST(contains(sync({"sync_ps.late=REJECT"}),
                      "sync_ps.late: without backup workers, no gradient is late; leave it out"));
  BOOST_TEST(contains(sync({"sync_ps.backup_workers=1", "sync_ps.late=LATE_UNSET"}),
                      "no value \"LATE_UNSET\"; valid: \"REJECT\", \"REQUEUE\""));
  BOOST_TEST(
    contains(problems({"sync_ps={}", "protocol=RING"}), "sync_ps: only protocol SYNC_PS reads it"));
  auto job = with({"protocol=SYNC_PS"});
  BOOST_TEST(adapted_traits(job).in_step);
  BOOST_TEST(adapted_traits(job).gradients_of_step(job, 4) == 4U);
  job = with({"protocol=SYNC_PS", "sync_ps.backup_workers=1"});
  BOOST_TEST(!adapted_traits(job).in_step);
  BOOST_TEST(!adapted_traits(job).needs_all);
  BOOST_TEST(adapted_traits(job).gradients_of_step(job, 4) == 3U);
  BOOST_TEST(adapted_traits(job).exchange(job)
             == "the gradients of a step are added up, and applied, without the last one, whose "
                "samples are trained again");
  check_workers(job, 2);
  BOOST_TEST(
    contains(error_of([&] { check_workers(job, 1); }),
             "sync_ps.backup_workers: 1 of 1 worker would leave no worker for a step; expected "
             "less than the number of workers"));
}

BOOST_AUTO_TEST_CASE(elastic_runs_need_as_many_workers_as_they_ask_for) {
  const auto job = with({"elastic.min_workers=3", "checkpoint.every_steps=5"});
  check_workers(job, 3);
  BOOST_TEST(contains(error_of([&] { check_workers(job, 2); }),
                      "elastic.min_workers: 3, and the cluster has 2; expected at most that many"));
}

BOOST_AUTO_TEST_CASE(placement_needs_shards_and_an_optimizer_that_fits) {
  for (const auto* protocol : {"ASYNC_PS", "SYNC_PS", "SSP"})
    for (const auto* placement : {"BY_BYTES", "BY_TENSOR"})
      BOOST_TEST(
        problems({std::string{"protocol="} + protocol, std::string{"placement="} + placement})
        == "(no error)");
  BOOST_TEST(contains(problems({"placement=BY_LAYER"}), "no value \"BY_LAYER\""));
  BOOST_TEST(contains(problems({"placement=PLACEMENT_UNSET"}), "placement"));
  BOOST_TEST(contains(problems({"placement=ROUND_ROBIN"}),
                      "placement: ROUND_ROBIN: each parameter "
                      "server holds one range"));
  for (const auto* protocol : {"RING", "LOCAL_SGD"})
    BOOST_TEST(contains(problems({std::string{"protocol="} + protocol, "placement=BY_TENSOR"}),
                        std::string{"placement: "} + protocol
                          + " has no parameter servers to place parameters on; leave it out"));
  BOOST_TEST(problems({"optimizer.kind=LAMB"}) == "(no error)");
  BOOST_TEST(problems({"optimizer.kind=LAMB", "placement=BY_TENSOR"}) == "(no error)");
  BOOST_TEST(contains(problems({"optimizer.kind=LAMB", "placement=BY_BYTES"}),
                      "placement: BY_BYTES cuts tensors, but LAMB needs their norms"));
}

BOOST_AUTO_TEST_CASE(async_ps_reads_its_buffer) {
  BOOST_TEST(problems({"async_ps.buffer=1"}) == "(no error)");
  BOOST_TEST(problems({"async_ps.buffer=1024"}) == "(no error)");
  BOOST_TEST(problems({"async_ps={buffer: 2 compensation: NONE max_staleness: 3}"})
             == "(no error)");
  BOOST_TEST(contains(problems({"async_ps.buffer=0"}),
                      "async_ps.buffer: 0; expected a number of gradients from 1 to 1024"));
  BOOST_TEST(contains(problems({"async_ps.buffer=1025"}), "async_ps.buffer: 1025; expected"));
  for (const auto* kind : {"STALENESS_RATE", "GAP_AWARE", "DC"}) {
    const auto how = std::string{"async_ps={compensation: "} + kind;
    BOOST_TEST(contains(problems({how + " buffer: 2}"}),
                        std::string{"async_ps.buffer: "} + kind
                          + " makes an update of each gradient; leave buffer out"));
    BOOST_TEST(problems({how + " buffer: 1}"}) == "(no error)");
  }
  BOOST_TEST(contains(problems({"protocol=SYNC_PS", "async_ps.buffer=2"}),
                      "async_ps: only protocol ASYNC_PS reads it"));
  auto job = with({"async_ps.buffer=3"});
  BOOST_TEST(adapted_traits(job).holds_back);
  BOOST_TEST(adapted_traits(job).gradients_of_step(job, 2) == 3U);
  BOOST_TEST(adapted_traits(job).exchange(job)
             == "the mean of each 3 gradients is applied when the last of them arrives");
  BOOST_TEST(!adapted_traits(with({})).holds_back);
}

BOOST_AUTO_TEST_CASE(unknown_names_list_those_that_are_known) {
  const auto none = problems({"protocol=CUSTOM", "custom_protocol.name=gossip"});
  BOOST_TEST(contains(none, "protocol: CUSTOM, but this program adds no protocol of its own"));
  BOOST_TEST(contains(none, "async_ps, sync_ps, ring"));
  const auto own = own_rows();
  BOOST_TEST(
    contains(problems({"protocol=CUSTOM", "custom_protocol.name=gosip"}, own),
             "protocol: this program adds no protocol \"gosip\"; did you mean \"gossip\"?"));
  BOOST_TEST(contains(problems({"protocol=CUSTOM"}, own),
                      "protocol: CUSTOM needs custom_protocol.name; expected one of gossip"));
  BOOST_TEST(contains(error_of([&] { traits_of(with({"protocol=CUSTOM"}), own); }),
                      "protocol: CUSTOM needs custom_protocol.name"));
}

BOOST_AUTO_TEST_CASE(a_row_of_a_program_checks_its_parameters) {
  const auto own = own_rows();
  const std::vector<std::string> job{"protocol=CUSTOM", "custom_protocol.name=gossip"};
  BOOST_TEST(contains(problems(job, own), "custom_protocol.parameter: no neighbours"));
  auto complete = job;
  complete.emplace_back("custom_protocol.parameter[0]={name: \"neighbours\" value: \"2\"}");
  BOOST_TEST(problems(complete, own) == "(no error)");
  BOOST_TEST(custom_parameter(with(complete), "neighbours") == "2");
  BOOST_TEST(custom_parameter(with(complete), "others") == "");
  BOOST_TEST(traits_of(with(complete), own).name == "gossip");
}

BOOST_AUTO_TEST_SUITE_END()
